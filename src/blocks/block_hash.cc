// SPDX-License-Identifier: Apache-2.0
// The functions that name blocks. Each writes one message per block (parent, tokens, extra keys)
// and hashes it.
#define XXH_INLINE_ALL
#include "pando/block_hash.h"

#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/bulk.h"
#include "base/check.h"
#include "base/named.h"
#include "base/page_hash.h"
#include "base/sha256.h"
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

std::uint64_t load_word(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
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

void random_bytes(std::span<std::uint8_t> out) {
  // Up to 256 bytes come at once or not at all, and not only on a kernel that has no such call.
  PANDO_CHECK(getrandom(out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()),
              "no random bytes for the key of a hash");
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
  /// The extra keys of a block: as the function wants them, and our own way. vLLM's list cannot
  /// tell a salt from an adapter of the same name; ours begins with the namespace.
  void set_extra(HashFunction function, const RequestKeys& keys, std::string_view ns,
                 std::size_t begin, std::size_t end) {
    const std::vector<ExtraKey> list = extra_keys(keys, begin, end);
    own_extra.clear();
    extra.clear();
    if (list.empty() && ns.empty()) return;  // as of a request without keys
    own_extra.reserve(16 + ns.size());
    own_extra.text(ns);
    write_extra(own_extra, list, Names::without);
    // SGLang's chain has names in its start.
    write_extra(extra, list, function == HashFunction::sglang ? Names::without : Names::with);
  }

  CborWriter message;    // what is hashed
  CborWriter extra;      // of the function; nothing: it has none
  CborWriter own_extra;  // likewise
};

Result<BlockHasher> BlockHasher::create(std::size_t block_size, const BlockHashOptions& options) {
  if (block_size == 0)
    return make_error(ErrorCode::invalid_argument, "hashes of blocks of 0 tokens");
  if (Status s = options.validate(); !s) return s.error();
  BlockHasher hasher;
  hasher.block_size_ = block_size;
  hasher.function_ = options.function;
  hasher.wide_check_ = options.wide_check;
  std::array<std::uint8_t, 128> seeds;
  random_bytes(seeds);
  const auto half = std::span<const std::uint8_t>(seeds).first(64);
  std::string seed = options.seed.value_or(
      options.function == HashFunction::sha256_cbor
          ? std::string(kVllmSeed)
          : std::string(reinterpret_cast<const char*>(half.data()), half.size()));
  XXH3_generateSecret(hasher.check_secret_.data(), kSecretBytes, seeds.data() + half.size(),
                      half.size());
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

// The extra keys have been written.
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
      break;  // see hash_keyed
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

// The keyed chain, and the second one beside it. With the block size known, hashing has no
// branches.
template <typename Check, std::size_t kBlock>
void BlockHasher::extend_keyed(const Token* tokens, std::span<BlockHash> chain,
                               std::size_t first) const {
  Pair keyed, check;
  if (first > 0) {
    const BlockHash& last = chain[first - 1];
    keyed = {load_word(last.value.data()), load_word(last.value.data() + 8)};
    check = {last.check[0], last.check[1]};
  }
  for (std::size_t i = first; i < chain.size(); ++i) {
    const std::span<const Token, kBlock> block(tokens + i * block_size_, block_size_);
    keyed = link<Hash128>(keyed, block, secret_, nullptr);
    check = link<Check>(check, block, check_secret_, nullptr);
    std::memcpy(chain[i].value.data(), &keyed.low, sizeof keyed.low);
    std::memcpy(chain[i].value.data() + sizeof keyed.low, &keyed.high, sizeof keyed.high);
    chain[i].check = {check.low, check.high};
  }
}

Status BlockHasher::extend(std::span<const Token> tokens, const RequestKeys& keys,
                           std::vector<BlockHash>& chain) const {
  const std::size_t first = chain.size();
  const std::size_t end = tokens.size() / block_size_;
  if (end <= first) return {};
  const std::span fresh = tokens.subspan(first * block_size_, (end - first) * block_size_);
  if (has_negative(fresh.data(), fresh.size())) {
    const auto at = std::find_if(fresh.begin(), fresh.end(), [](Token t) { return t < 0; });
    return make_error(ErrorCode::invalid_argument, "token {} at position {} is negative", *at,
                      first * block_size_ + static_cast<std::size_t>(at - fresh.begin()));
  }
  chain.resize(end);
  const std::string ns = make_namespace({.lora = keys.lora, .salt = keys.salt});
  std::optional<PageHash> start = root_;
  if (function_ == HashFunction::sglang) start = chain_start(ns);
  const std::uint64_t ns_tag =
      XXH3_64bits_withSecret(ns.data(), ns.size(), check_secret_.data(), kSecretBytes);
  if (keys.empty() && function_ == HashFunction::sha256_cbor) {
    extend_cbor(tokens, ns_tag, chain, first);
    return {};
  }
  if (keys.empty() && function_ == HashFunction::keyed) {
    if (wide_check_) {
      extend_keyed<Hash128, std::dynamic_extent>(tokens.data(), chain, first);
    } else if (block_size_ == 16) {
      extend_keyed<Hash64, 16>(tokens.data(), chain, first);
    } else {
      extend_keyed<Hash64, std::dynamic_extent>(tokens.data(), chain, first);
    }
    return {};
  }
  Writer writer;
  const bool is_keyed = function_ == HashFunction::keyed;
  const PageHash* parent = first > 0 ? &chain[first - 1].value : start ? &*start : nullptr;
  Pair check, keyed;
  if (first > 0) check = {chain[first - 1].check[0], chain[first - 1].check[1]};
  if (is_keyed) keyed = {load_word(parent->data()), load_word(parent->data() + 8)};
  for (std::size_t i = first; i < end; ++i) {
    const std::span block = tokens.subspan(i * block_size_, block_size_);
    BlockHash& out = chain[i];
    if (!keys.empty())
      writer.set_extra(function_, keys, ns, i * block_size_, (i + 1) * block_size_);
    if (is_keyed) {
      keyed = link<Hash128>(keyed, block, secret_, &writer);
      std::memcpy(out.value.data(), &keyed.low, sizeof keyed.low);
      std::memcpy(out.value.data() + sizeof keyed.low, &keyed.high, sizeof keyed.high);
    } else {
      hash_block(parent, block, writer, out.value);
      parent = &out.value;
    }
    if (is_shareable()) {
      check = check_of(out.value, ns_tag);
    } else if (wide_check_) {
      check = link<Hash128>(check, block, check_secret_, &writer);
    } else {
      check = link<Hash64>(check, block, check_secret_, &writer);
    }
    out.check = {check.low, check.high};
  }
  return {};
}

}  // namespace pando
