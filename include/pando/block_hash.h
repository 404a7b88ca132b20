// SPDX-License-Identifier: Apache-2.0
// Names of blocks by what is in them: a block's hash takes in the hash of the block before it, its
// own tokens, and whatever else its KV depends on. BlockCache finds prefixes by them; engines that
// hash alike find each other's blocks. docs/formats.md gives the bytes.
//
// A hash may collide, by chance or because somebody wants it to. So each block has a second one,
// under a key of this process, and a block is served only where both agree.
// Values only; a BlockHasher may be used from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// What names a block.
enum class HashFunction {
  keyed,        ///< fast, 128 bits, under a random key: for one process
  sha256_cbor,  ///< vLLM's, SHA-256 of canonical CBOR
  xxhash_cbor,  ///< vLLM's, XXH3-128 of canonical CBOR
  sglang,       ///< SGLang's chain of SHA-256, that of PrefixCache and its stores
};
std::string_view to_string(HashFunction function);
Result<HashFunction> parse_hash_function(std::string_view name);

/// Something that stands at tokens [offset, offset + length) of a request, like an image.
struct MultimodalItem {
  std::string id;          ///< a hash of its content
  std::size_t offset = 0;  ///< first token
  std::size_t length = 0;  ///< tokens
};

/// What keeps equal tokens of two requests apart.
struct RequestKeys {
  std::string lora = {};                      ///< name of the adapter; empty: none
  std::string salt = {};                      ///< whoever has another shares nothing
  std::vector<MultimodalItem> items = {};     ///< in order, not overlapping
  std::vector<std::byte> prompt_embeds = {};  ///< given in place of tokens: a row per token
  std::size_t embed_bytes = 0;                ///< bytes of a row of `prompt_embeds`

  bool empty() const {
    return lora.empty() && salt.empty() && items.empty() && prompt_embeds.empty();
  }
  Status validate() const;
};

/// What the hash of the block at tokens [begin, end) takes in beside its tokens, in the order that
/// vLLM hashes them in.
std::vector<ExtraKey> extra_keys(const RequestKeys& keys, std::size_t begin, std::size_t end);

/// The hash of a block, and a second one under a key of this process: a block is served only where
/// both agree. BlockHasher makes them. Made by hand, for blocks that have names of another kind,
/// `check` must be spread evenly: blocks are looked up by it.
struct BlockHash {
  PageHash value = {};  ///< 32 bytes, by the function chosen; a hash of 16 is followed by zeros
  std::array<std::uint64_t, 2> check = {};  ///< the second hash, of this process; 64 bits or 128
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

/// Options of a BlockHasher.
struct BlockHashOptions {
  HashFunction function = HashFunction::keyed;  ///< which function
  /// What chains start from (vLLM: PYTHONHASHSEED) or, of the keyed function, its key. Unless
  /// given: "vllm-none-hash" for sha256_cbor, random for the others. SGLang's has none.
  std::optional<std::string> seed = {};
  /// 128 bits in the second hash, not 64: for whoever does not compare tokens too.
  bool wide_check = false;

  Status validate() const;
};

/// Names blocks by what is in them: a hash takes in that of the block before, the tokens, and what
/// else their KV depends on. May be used from any thread.
class BlockHasher {
 public:
  static Result<BlockHasher> create(std::size_t block_size, const BlockHashOptions& options = {});

  /// Adds to `chain` the hashes of the whole blocks of `tokens` that it does not have yet. The
  /// tokens of those it has are not looked at again.
  Status extend(std::span<const Token> tokens, const RequestKeys& keys,
                std::vector<BlockHash>& chain) const;

  /// Tokens of a block.
  std::size_t block_size() const { return block_size_; }
  /// Which function it uses.
  HashFunction function() const { return function_; }
  std::size_t hash_bytes() const;  ///< bytes that the function gives: 16 or 32
  /// Other processes get the same hashes, and nobody can make two blocks collide.
  bool is_shareable() const { return hash_bytes() == sizeof(PageHash); }
  /// vLLM's functions give the first block of a request with a salt the hash of one whose adapter
  /// has that name. The second hash tells them apart; where only the first goes, mark such a block
  /// in BlockPool::cache().
  bool may_alias(const RequestKeys& keys) const {
    return function_ != HashFunction::sglang && keys.lora.empty() && !keys.salt.empty();
  }
  /// What the first block is chained from; SGLang's function: nothing but the namespace.
  const PageHash& root() const { return root_; }

 private:
  static constexpr std::size_t kSecretBytes = 192;
  using Secret = std::array<std::uint8_t, kSecretBytes>;
  class Writer;

  BlockHasher() = default;
  struct Pair {
    std::uint64_t low = 0, high = 0;
  };
  void hash_block(const PageHash* parent, std::span<const Token> tokens, Writer& writer,
                  PageHash& out) const;
  void extend_cbor(std::span<const Token> tokens, std::uint64_t ns, std::span<BlockHash> chain,
                   std::size_t first) const;
  template <typename Check, std::size_t kBlock>
  void extend_keyed(const Token* tokens, std::span<BlockHash> chain, std::size_t first,
                    Writer* writer) const;
  void extend_any(std::span<const Token> tokens, std::span<BlockHash> chain, std::size_t first,
                  const std::optional<PageHash>& start, std::uint64_t ns, Writer& writer) const;
  Pair link_check(Pair parent, std::span<const Token> tokens, Writer& writer) const;
  template <typename Hash, std::size_t kBlock>
  static Pair link(Pair parent, std::span<const Token, kBlock> tokens, const Secret& secret,
                   Writer* writer);
  Pair check_of(const PageHash& value, std::uint64_t ns) const;

  std::size_t block_size_ = 0;
  HashFunction function_ = HashFunction::keyed;
  bool wide_check_ = false;
  PageHash root_ = {};
  Secret secret_ = {};        // of the keyed function
  Secret check_secret_ = {};  // of the second hash
};

}  // namespace pando
