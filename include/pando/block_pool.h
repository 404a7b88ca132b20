// SPDX-License-Identifier: Apache-2.0
// Blocks of KV by number: who holds them, what the full ones contain, and in which order the free
// ones are taken. What BlockCache stands on; an engine with a scheduler of its own may use it
// alone.
//
// A block is held by any number of requests, or free. A free one keeps its content, and is found by
// it, until it is taken for something else. Blocks that requests of different layer groups use come
// from one pool; their contents never mix. Block 0, the null block, stands for what is not there:
// it is never handed out, held or freed. A pool belongs to one thread. Freeing what is not held
// stops at a check that names the block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

// ---- Block hash ---------------------------------------------------------------------------------
// ---------------------------------------------------------------------------------- Names of
// blocks by what is in them: a block's hash takes in the hash of the block before it, its own
// tokens, and whatever else its KV depends on. BlockCache finds prefixes by them; engines that hash
// alike find each other's blocks. docs/formats.md gives the bytes.
//
// A hash may collide, by chance or because somebody wants it to. So each block has a second one,
// under a key of this process, and a block is served only where both agree.
// Values only; a BlockHasher may be used from any thread.

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

// ---- Block pool
// -----------------------------------------------------------------------------------

inline constexpr PageId kNullBlock{0};

/// What a full block is found by: the hash at its end, and its tokens.
struct BlockContent {
  std::uint32_t group = 0;
  const BlockHash* hash = nullptr;
  const Token* tokens = nullptr;  ///< as many as the group's block size; see keep_tokens
  bool alias = false;             ///< see BlockHasher::may_alias
};

/// Chooses who goes among free blocks with content, in place of the queue's order; those without
/// are still taken first. The pool tells it of every block with content. Must not call back.
class BlockVictims {
 public:
  virtual ~BlockVictims() = default;
  virtual void cached(PageId block) = 0;     ///< a held block has content from now on
  virtual void held(PageId block) = 0;       ///< it was free
  virtual void freed(PageId block) = 0;      ///< nobody holds it any more
  virtual void forgotten(PageId block) = 0;  ///< it has lost its content; also those of take()
  /// The free block with content that goes next. `oldest` is the one that was freed first.
  virtual PageId take(PageId oldest) = 0;
};

struct BlockPoolOptions {
  std::size_t num_blocks = 0;                   ///< the null block among them
  std::vector<std::size_t> block_sizes = {16};  ///< tokens of a block, by group
  bool caching = true;                          ///< else nothing is found
  /// Keeps the tokens of full blocks, 4 bytes each, and compares them on a hit. Without, a hit
  /// rests on the two hashes.
  bool keep_tokens = true;
  /// Of blocks with equal content only the first is found; the others are not kept when freed.
  /// Without, several may be.
  bool deduplicate = false;
  /// Told of blocks that are about to lose their content, while content() still gives it; then, one
  /// by one, of content that no other block has. Must not call back.
  std::function<void(std::span<const PageId>)> on_evict = {};
  std::function<void(const BlockContent&)> on_gone = {};
  /// Must outlive the pool. None: the blocks at the front of the queue go, which is lru.
  BlockVictims* victims = nullptr;

  Status validate() const;
};

class BlockPool {
 public:
  static Result<std::unique_ptr<BlockPool>> create(BlockPoolOptions options);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// A block with this content, of several the oldest; the null block if there is none.
  PageId find(const BlockContent& content) const;
  /// The same for blocks that follow each other: block i has its hash at hash[i * stride]. Returns
  /// how many there are before one that is not.
  std::size_t find_run(const BlockContent& first, std::size_t stride, std::span<PageId> out) const;

  /// Holds blocks: free ones leave the queue. Null blocks are passed over, here and in free().
  void touch(std::span<const PageId> blocks);
  /// Takes new blocks from the front of the queue, all or nothing, and holds them. What they
  /// contained is forgotten. With `victims`, these choose among blocks with content.
  Status take(std::span<PageId> out);
  /// A held block is full from now on. False: it is not kept, see `deduplicate` and `caching`.
  bool cache(PageId block, const BlockContent& content);
  /// Lets go. Of those that nobody holds any more, blocks without content go to the front of the
  /// queue and the others to its end, each in the order given: give the blocks of a request from
  /// its end, so that its tail is taken before its head.
  void free(std::span<const PageId> blocks);
  /// Forgets what blocks contain; whoever holds them goes on.
  void forget(std::span<const PageId> blocks);
  /// Forgets everything; refused while a block is held.
  Status reset();

  bool has_content(PageId block) const;
  BlockContent content(PageId block) const;  ///< only if it has one
  bool has_twin(PageId block) const;         ///< another one has the same
  std::uint32_t num_holders(PageId block) const;

  std::size_t num_blocks() const;
  std::size_t num_free() const;
  double usage() const;  ///< share of the blocks, the null block left out, that is held
  /// What is found, in tokens of a group: held, or free and thus evictable.
  Sizes sizes(std::uint32_t group) const;
  /// Times that a hash agreed and the content did not.
  std::uint64_t collisions() const;
  /// The free blocks, the next to be taken first; with `victims`, those with content in the order
  /// in which they were freed. O(free).
  std::vector<PageId> free_blocks() const;
  std::size_t memory_bytes() const;
  /// Proves that queue, holders, contents and counts agree. O(blocks).
  Status check() const;

 private:
  struct Impl;
  explicit BlockPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
