// SPDX-License-Identifier: Apache-2.0
// The functions that name blocks. Each writes one message per block (parent, tokens, extra keys)
// and hashes it.
#define XXH_INLINE_ALL
#include "pando/block_pool.h"

#include <xxhash.h>

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/named.h"
#include "base/page_hash.h"
#include "base/random.h"
#include "base/sha256.h"
#include "base/tokens.h"
#include "base/words.h"
#include "blocks/cbor.h"

namespace pando {
namespace {

constexpr Named<HashFunction> kFunctions[] = {
    {HashFunction::keyed, "keyed"},
    {HashFunction::sha256_cbor, "sha256_cbor"},
    {HashFunction::xxhash_cbor, "xxhash_cbor"},
    {HashFunction::sglang, "sglang"},
};
constexpr std::string_view kVllmSeed = "vllm-none-hash";
constexpr std::string_view kExtraPrefix{"pando-extra-keys-v1\0", 20};
constexpr std::size_t kShortHash = 16;
static_assert(sizeof(BlockHash::check) == kShortHash);

void write(CborWriter& out, std::span<const ExtraKey> extra) {
  for (const ExtraKey& key : extra) {
    if (const auto* name = std::get_if<std::string>(&key)) {
      out.reserve(16 + name->size());
      out.text(*name);
    } else if (const auto* item = std::get_if<ItemKey>(&key)) {
      out.reserve(32 + item->id.size());
      out.array(2);
      out.text(item->id);
      out.integer(item->offset);
    } else {
      out.reserve(2 * sizeof(PageHash));
      out.bytes(std::span(std::get<PageHash>(key)));
    }
  }
}

/// What of a request's keys goes into a message.
enum class Names { with, without };

// The extra keys of a block as one array; nothing if there are none.
void write_extra(CborWriter& out, std::vector<ExtraKey> extra, Names names) {
  if (names == Names::without)
    std::erase_if(extra, [](const ExtraKey& k) { return std::holds_alternative<std::string>(k); });
  if (extra.empty()) return;
  out.reserve(16);
  out.array(extra.size());
  write(out, extra);
}

void store(const XXH128_hash_t& hash, PageHash& out) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  std::memcpy(out.data(), bytes.digest, kShortHash);
  std::memset(out.data() + kShortHash, 0, out.size() - kShortHash);
}

// Objects, so that they are compiled into whoever is given one.
struct Hash128 {
  static constexpr std::size_t kWords = 2;
  template <typename Secret>
  [[gnu::always_inline]] XXH128_hash_t operator()(const void* data, std::size_t size_bytes,
                                                  const Secret& key) const {
    return XXH3_128bits_withSecret(data, size_bytes, key.data(), key.size());
  }
};
struct Hash64 {
  static constexpr std::size_t kWords = 1;
  template <typename Secret>
  [[gnu::always_inline]] XXH128_hash_t operator()(const void* data, std::size_t size_bytes,
                                                  const Secret& key) const {
    return {XXH3_64bits_withSecret(data, size_bytes, key.data(), key.size()), 0};
  }
};

// 64 bytes that nobody can foresee.
std::string random_text() {
  std::string text(64, '\0');
  for (std::size_t i = 0; i < text.size(); i += sizeof(std::uint64_t))
    store_word(reinterpret_cast<std::uint8_t*>(text.data()) + i, random_seed());
  return text;
}

}  // namespace

std::string_view to_string(HashFunction function) { return name_of(kFunctions, function); }

Result<HashFunction> parse_hash_function(std::string_view name) {
  if (const auto known = value_of(kFunctions, name)) return *known;
  return make_error(ErrorCode::invalid_argument,
                    "hash function \"{}\": expected keyed, sha256_cbor, xxhash_cbor or sglang",
                    name);
}

Status BlockHashOptions::validate() const {
  if (function == HashFunction::sglang && seed)
    return make_error(ErrorCode::invalid_argument,
                      "a seed for the hash function sglang, whose chains start from nothing");
  return {};
}

// ---- Messages ----------------------------------------------------------------------------------

/// The bytes of one block that are hashed, and the buffers they are written to.
class BlockHasher::Writer {
 public:
  Writer(const BlockHasher& hasher, const RequestKeys& keys, std::string_view ns)
      : hasher_(hasher), keys_(keys), ns_(ns) {}

  /// The extra keys of block i: as the function wants them, and our own way. vLLM's list cannot
  /// tell a salt from an adapter of the same name; ours begins with the namespace.
  void set_extra(std::size_t i) {
    if (keys_.empty()) return;
    const std::size_t size = hasher_.block_size_;
    const std::vector<ExtraKey> list = extra_keys(keys_, i * size, (i + 1) * size);
    own_extra.clear();
    extra.clear();
    if (list.empty() && ns_.empty()) return;  // as of a request without keys
    own_extra.reserve(16 + ns_.size());
    own_extra.text(ns_);
    write_extra(own_extra, list, Names::without);
    // SGLang's chain has names in its start.
    const bool is_sglang = hasher_.function_ == HashFunction::sglang;
    write_extra(extra, list, is_sglang ? Names::without : Names::with);
  }

  CborWriter message;    // what is hashed
  CborWriter extra;      // of the function; nothing: it has none
  CborWriter own_extra;  // likewise

 private:
  const BlockHasher& hasher_;
  const RequestKeys& keys_;
  const std::string_view ns_;
};

Result<BlockHasher> BlockHasher::create(std::size_t block_size, const BlockHashOptions& options) {
  if (block_size == 0)
    return make_error(ErrorCode::invalid_argument, "hashes of blocks of 0 tokens");
  if (Status s = options.validate(); !s) return s.error();
  BlockHasher hasher;
  hasher.block_size_ = block_size;
  hasher.function_ = options.function;
  hasher.wide_check_ = options.wide_check;
  const std::string random = random_text();
  XXH3_generateSecret(hasher.check_secret_.data(), kSecretBytes, random.data(), random.size());
  const std::string seed = options.seed.value_or(
      options.function == HashFunction::sha256_cbor ? std::string(kVllmSeed) : random_text());
  if (options.function == HashFunction::keyed) {
    XXH3_generateSecret(hasher.secret_.data(), kSecretBytes, seed.data(), seed.size());
    return hasher;
  }
  if (options.function == HashFunction::sglang) return hasher;
  CborWriter message;
  message.reserve(seed.size() + 16 + kSha256Room);
  message.text(seed);
  if (options.function == HashFunction::sha256_cbor) {
    sha256_in_place(message.data(), message.size(), hasher.root_);
  } else {
    store(XXH3_128bits(message.data(), message.size()), hasher.root_);
  }
  return hasher;
}

std::size_t BlockHasher::hash_bytes() const {
  const bool is_sha = function_ == HashFunction::sha256_cbor || function_ == HashFunction::sglang;
  return is_sha ? sizeof(PageHash) : kShortHash;
}

// The extra keys have been set. Of the functions but the keyed one.
void BlockHasher::hash_block(const PageHash* parent, std::span<const Token> tokens, Writer& writer,
                             PageHash& out) const {
  CborWriter& message = writer.message;
  const CborWriter& extra = writer.extra;
  message.clear();
  message.reserve(64 + 5 * tokens.size() + extra.size() + kExtraPrefix.size() + kSha256Room);
  const auto write_vllms = [&](auto parent_hash) {
    message.array(3);
    message.bytes(parent_hash);
    message.tokens(tokens);
    extra.size() > 0 ? message.raw(extra.data(), extra.size()) : message.null();
  };
  switch (function_) {
    case HashFunction::keyed:
      break;
    case HashFunction::sha256_cbor:
      write_vllms(std::span<const std::uint8_t, sizeof(PageHash)>(*parent));
      sha256_in_place(message.data(), message.size(), out);
      return;
    case HashFunction::xxhash_cbor:
      write_vllms(std::span<const std::uint8_t, kShortHash>(parent->data(), kShortHash));
      store(XXH3_128bits(message.data(), message.size()), out);
      return;
    case HashFunction::sglang: {
      PageHash with_extra;
      if (extra.size() > 0) {
        message.raw(kExtraPrefix.data(), kExtraPrefix.size());
        if (parent != nullptr) message.raw(parent->data(), sizeof(PageHash));
        message.raw(extra.data(), extra.size());
        sha256_in_place(message.data(), message.size(), with_extra);
        parent = &with_extra;
        message.clear();
      }
      if (parent != nullptr) message.raw(parent->data(), sizeof(PageHash));
      message.raw(tokens.data(), tokens.size_bytes());
      sha256_in_place(message.data(), message.size(), out);
      return;
    }
  }
}

// A link of the chains that are ours: of the parent, a hash of the tokens, our own extra keys
// (nullptr: none). Two words that have no address stay in registers from one block to the next. (As
// an array they go through memory, and each link waits for the stores: 29 ns a block, not 18.)
template <typename Hash, std::size_t kBlock>
[[gnu::always_inline]] inline BlockHasher::Pair BlockHasher::link(
    Pair parent, std::span<const Token, kBlock> tokens, const Secret& secret, Writer* writer) {
  const XXH128_hash_t own = Hash{}(tokens.data(), tokens.size_bytes(), secret);
  const std::uint64_t link[] = {parent.low, own.low64, parent.high, own.high64};
  constexpr std::size_t kBytes = Hash::kWords * 2 * sizeof(std::uint64_t);
  XXH128_hash_t hash;
  if (writer == nullptr || writer->own_extra.size() == 0) {
    hash = Hash{}(link, kBytes, secret);
  } else {
    const CborWriter& extra = writer->own_extra;
    writer->message.clear();
    writer->message.reserve(kBytes + extra.size());
    writer->message.raw(link, kBytes);
    writer->message.raw(extra.data(), extra.size());
    hash = Hash{}(writer->message.data(), writer->message.size(), secret);
  }
  return {hash.low64, hash.high64};
}

// Nobody can make SHA-256 collide: there, the second hash places the first, and adds the namespace.
[[gnu::noinline]] BlockHasher::Pair BlockHasher::check_of(const PageHash& value,
                                                          std::uint64_t ns) const {
  const std::uint64_t words[] = {load_word(value.data()) ^ ns, load_word(value.data() + 8)};
  const XXH128_hash_t hash = wide_check_ ? Hash128{}(words, sizeof words, check_secret_)
                                         : Hash64{}(words, sizeof words, check_secret_);
  return {hash.low64, hash.high64};
}

// The second hash where the first can be made to collide.
BlockHasher::Pair BlockHasher::link_check(Pair parent, std::span<const Token> tokens,
                                          Writer& writer) const {
  return wide_check_ ? link<Hash128>(parent, tokens, check_secret_, &writer)
                     : link<Hash64>(parent, tokens, check_secret_, &writer);
}

// The keyed chain, and the second one beside it. With the block size known, and no extra keys
// (nullptr), hashing has no branches.
template <typename Check, std::size_t kBlock>
void BlockHasher::extend_keyed(const Token* tokens, std::span<BlockHash> chain, std::size_t first,
                               Writer* writer) const {
  Pair keyed, check;
  if (first > 0) {
    const BlockHash& last = chain[first - 1];
    keyed = {load_word(last.value.data()), load_word(last.value.data() + 8)};
    check = {last.check[0], last.check[1]};
  }
  for (std::size_t i = first; i < chain.size(); ++i) {
    const std::span<const Token, kBlock> block(tokens + i * block_size_, block_size_);
    if (writer != nullptr) writer->set_extra(i);
    keyed = link<Hash128>(keyed, block, secret_, writer);
    check = link<Check>(check, block, check_secret_, writer);
    store_word(chain[i].value.data(), keyed.low);
    store_word(chain[i].value.data() + 8, keyed.high);
    chain[i].check = {check.low, check.high};
  }
}

// Any function but the keyed one.
void BlockHasher::extend_any(std::span<const Token> tokens, std::span<BlockHash> chain,
                             std::size_t first, const std::optional<PageHash>& start,
                             std::uint64_t ns, Writer& writer) const {
  const PageHash* parent = first > 0 ? &chain[first - 1].value : start ? &*start : nullptr;
  Pair check;
  if (first > 0) check = {chain[first - 1].check[0], chain[first - 1].check[1]};
  for (std::size_t i = first; i < chain.size(); ++i) {
    const std::span block = tokens.subspan(i * block_size_, block_size_);
    writer.set_extra(i);
    hash_block(parent, block, writer, chain[i].value);
    parent = &chain[i].value;
    check = is_shareable() ? check_of(*parent, ns) : link_check(check, block, writer);
    chain[i].check = {check.low, check.high};
  }
}

Status BlockHasher::extend(std::span<const Token> tokens, const RequestKeys& keys,
                           std::vector<BlockHash>& chain) const {
  const std::size_t first = chain.size();
  const std::size_t end = tokens.size() / block_size_;
  if (end <= first) return {};
  if (Status s = refuse_negative(tokens, first * block_size_, end * block_size_, "block hashes");
      !s)
    return s;
  chain.resize(end);
  const std::string ns = make_namespace({.lora = keys.lora, .salt = keys.salt});
  Writer writer(*this, keys, ns);
  if (function_ == HashFunction::keyed) {
    Writer* const with_keys = keys.empty() ? nullptr : &writer;
    if (wide_check_) {
      extend_keyed<Hash128, std::dynamic_extent>(tokens.data(), chain, first, with_keys);
    } else if (block_size_ == 16 && keys.empty()) {
      extend_keyed<Hash64, 16>(tokens.data(), chain, first, nullptr);
    } else {
      extend_keyed<Hash64, std::dynamic_extent>(tokens.data(), chain, first, with_keys);
    }
    return {};
  }
  const std::uint64_t ns_tag =
      XXH3_64bits_withSecret(ns.data(), ns.size(), check_secret_.data(), kSecretBytes);
  if (function_ == HashFunction::sha256_cbor && keys.empty()) {
    extend_cbor(tokens, ns_tag, chain, first);
  } else {
    const bool is_sglang = function_ == HashFunction::sglang;
    const std::optional<PageHash> start = is_sglang ? chain_start(ns) : std::optional(root_);
    extend_any(tokens, chain, first, start, ns_tag, writer);
  }
  return {};
}

}  // namespace pando
