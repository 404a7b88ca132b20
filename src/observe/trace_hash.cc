// SPDX-License-Identifier: Apache-2.0
// Names of blocks in a trace; see the header. docs/formats.md has the bytes.
#include "observe/trace_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/hex.h"
#include "base/sha256.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kSessionBytes = 8;

std::uint64_t id_of(const PageHash& hash) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < sizeof word; ++i) word = word << 8 | hash[i];
  return word >> 11;  // 53 bits
}

}  // namespace

TraceHash::TraceHash(std::string key, std::size_t block_tokens)
    : key_(std::move(key)), block_tokens_(block_tokens) {}

// SHA-256(purpose || 0 || length of the key, 8 bytes || key || namespace)
PageHash TraceHash::keyed(std::string_view purpose, std::string_view ns) {
  message_.assign(purpose.begin(), purpose.end());
  message_.push_back(0);
  const std::uint64_t length = key_.size();
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&length);
  message_.insert(message_.end(), bytes, bytes + sizeof length);
  message_.insert(message_.end(), key_.begin(), key_.end());
  message_.insert(message_.end(), ns.begin(), ns.end());
  const std::size_t size = message_.size();
  message_.resize(size + kSha256Room);
  PageHash out;
  sha256_in_place(message_.data(), size, out);
  return out;
}

std::vector<std::uint64_t> TraceHash::ids(const Key& prompt) {
  PageHash hash = keyed("pando-trace-v1", prompt.ns);
  std::vector<std::uint64_t> ids;
  ids.reserve(prompt.tokens.size() / block_tokens_ + 1);
  for (std::size_t at = 0; at < prompt.tokens.size(); at += block_tokens_) {
    const std::size_t n = std::min(block_tokens_, prompt.tokens.size() - at);
    const std::size_t size = hash.size() + n * sizeof(Token);
    message_.resize(size + kSha256Room);
    std::memcpy(message_.data(), hash.data(), hash.size());
    std::memcpy(message_.data() + hash.size(), prompt.tokens.data() + at, n * sizeof(Token));
    sha256_in_place(message_.data(), size, hash);
    ids.push_back(id_of(hash));
  }
  return ids;
}

std::string TraceHash::session(std::string_view ns) {
  const PageHash hash = keyed("pando-trace-session-v1", ns);
  std::string text;
  for (std::size_t i = 0; i < kSessionBytes; ++i) append_hex(text, hash[i]);
  return text;
}

}  // namespace pando
