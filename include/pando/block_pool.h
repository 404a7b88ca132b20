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

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "pando/block_hash.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

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
