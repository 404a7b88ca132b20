// SPDX-License-Identifier: Apache-2.0
// SHA-256 through libcrypto's low-level calls: the one-shot and EVP forms look the algorithm up
// again for every page, which costs more than hashing it.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/page_hash.h"

#include <openssl/sha.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/tokens.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tokens are hashed as they lie in memory");

constexpr std::string_view kSaltPrefix{"sglang-cache-salt-v1\0", 21};
constexpr std::string_view kNamespacePrefix{"pando-namespace-v1\0", 19};

PageHash digest(std::string_view prefix, std::string_view text) {
  PageHash out;
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, prefix.data(), prefix.size());
  SHA256_Update(&context, text.data(), text.size());
  SHA256_Final(out.data(), &context);
  return out;
}

// The salt, if `ns` is made of a salt and nothing else (see make_namespace).
std::optional<std::string_view> only_salt(std::string_view ns) {
  const std::size_t colon = ns.find(':');
  if (!ns.starts_with('s') || colon == std::string_view::npos) return {};
  const std::string_view salt = ns.substr(colon + 1);
  if (ns != make_namespace({.salt = salt})) return {};
  return salt;
}

void add_pairs(SHA256_CTX* context, const Token* tokens, std::size_t num_units) {
  Token pairs[256];
  for (std::size_t done = 0; done < num_units;) {
    const std::size_t step = std::min<std::size_t>(num_units - done, 128);
    for (std::size_t i = 0; i < step; ++i) {
      pairs[2 * i] = tokens[done + i];
      pairs[2 * i + 1] = tokens[done + i + 1];
    }
    SHA256_Update(context, pairs, step * 2 * sizeof(Token));
    done += step;
  }
}

}  // namespace

void hash_page_chain(const PageHash* parent, const Token* tokens, std::size_t num_pages,
                     std::size_t page_size, bool bigram, PageHash* out) {
  for (std::size_t i = 0; i < num_pages; ++i, tokens += page_size, parent = out++) {
    SHA256_CTX context;
    SHA256_Init(&context);
    if (parent != nullptr) SHA256_Update(&context, parent->data(), parent->size());
    if (bigram) {
      add_pairs(&context, tokens, page_size);
    } else {
      SHA256_Update(&context, tokens, page_size * sizeof(Token));
    }
    SHA256_Final(out->data(), &context);
  }
}

PageHash digest_of(std::string_view text) { return digest({}, text); }

std::int64_t block_id(const PageHash& hash) {
  std::uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | hash[static_cast<std::size_t>(i)];
  return static_cast<std::int64_t>(value);
}

std::optional<PageHash> chain_start(std::string_view ns) {
  if (ns.empty()) return {};
  if (const auto salt = only_salt(ns)) return digest(kSaltPrefix, *salt);
  return digest(kNamespacePrefix, ns);
}

Result<std::vector<PageHash>> hash_pages(std::span<const Token> tokens, std::size_t page_size,
                                         bool bigram, const std::optional<PageHash>& parent) {
  if (page_size == 0) return make_error(ErrorCode::invalid_argument, "hash_pages: page size is 0");
  if (Status s = refuse_negative(tokens, 0, tokens.size(), "hash_pages"); !s) return s.error();
  const std::size_t overlap = bigram ? 1 : 0;
  const std::size_t units = tokens.size() > overlap ? tokens.size() - overlap : 0;
  std::vector<PageHash> hashes(units / page_size);
  hash_page_chain(parent ? &*parent : nullptr, tokens.data(), hashes.size(), page_size, bigram,
                  hashes.data());
  return hashes;
}

}  // namespace pando
