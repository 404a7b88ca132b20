// SPDX-License-Identifier: Apache-2.0
// For small engines that keep each sequence in one contiguous slot: which slot holds the longest
// prefix of a prompt, whether it can simply be continued there, and which slot to give to a new
// sequence. A SlotAllocator says who has which slot; the cache knows what each one holds, also
// after it was given back, in a tree over tokens: memory grows with branches, not with tokens.
//
// Invariant: what is known of a slot is what it holds. So knowledge ends when the slot is handed
// out anew, here or by the allocator itself, and shrinks when a new sequence continues in it.
// It belongs to the thread of its allocator. Copies run elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "pando/allocators.h"
#include "pando/copier.h"
#include "pando/pools.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

struct SlotCacheOptions {
  std::size_t slot_tokens = 0;  ///< how many tokens a slot holds, at most
  /// How many nodes of the tree are kept: a node is a stretch of tokens without a branch; each
  /// namespace has one of its own. When there are more, the least recently used ends of sequences
  /// are forgotten, down to the branch before.
  std::size_t max_nodes = 1000;
  /// For copy_kv, both or neither: a pool whose pages are slots, slot s being page s + 1, and what
  /// copies in it. They must outlive the cache and its copies.
  KvPool* pool = nullptr;
  Copier* copier = nullptr;
  std::size_t copy_stream = 0;
  /// Of the hash that finds nodes; random unless given.
  std::optional<std::uint64_t> hash_seed = {};

  Status validate() const;
};

/// A slot that holds the first `length` tokens of a key.
struct SlotMatch {
  std::size_t length = 0;     ///< tokens that the slot holds of the key
  std::size_t slot = 0;       ///< which slot
  std::uint64_t version = 0;  ///< of the slot, as the allocator counts
  /// Version of what the cache knows about the slot; raised whenever that shrinks.
  std::uint64_t edition = 0;
  bool free = false;  ///< whether occupy() would take it
};

/// What a SlotCache holds, and has forgotten.
struct SlotCacheStats {
  std::size_t num_nodes = 0;      ///< nodes of the tree
  std::size_t num_sequences = 0;  ///< slots of which something is known
  std::size_t num_pinned = 0;     ///< different prefixes that are pinned
  std::size_t num_copies = 0;     ///< copies not yet seen to have finished
  std::uint64_t evictions = 0;    ///< nodes forgotten because there were too many
  std::size_t nodes_over = 0;     ///< nodes beyond max_nodes, because all leaves are pinned
};

/// For engines that keep each sequence in one contiguous slot: which slot holds the longest prefix
/// of a prompt, whether it can be continued there, and which slot to give to a new sequence. It
/// belongs to the thread of its allocator.
class SlotCache {
 public:
  /// The allocator must outlive the cache, which is told of every slot that changes hands; there is
  /// one cache at most on an allocator. Nothing is known of its slots at first.
  static Result<std::unique_ptr<SlotCache>> create(const SlotCacheOptions& options,
                                                   SlotAllocator& slots);
  ~SlotCache();
  SlotCache(const SlotCache&) = delete;
  SlotCache& operator=(const SlotCache&) = delete;

  /// The slot holds the KV of exactly these tokens now. It must have been handed out once. What
  /// was known of it before is replaced; where the key continues that, matches stay valid.
  /// `in_use` while a copy into the slot is under way.
  Status insert(const Key& key, std::size_t slot);

  /// The longest prefix, to the token, that some slot holds; `std::nullopt` if there is none. Of
  /// slots that hold as much, one that is free and not pinned, else a free one, else one in use.
  /// Counts as a use. O(key) and O(depth of the tree), whatever the number of slots.
  Result<std::optional<SlotMatch>> find(const Key& key);
  /// As find(), but no use: nothing changes.
  Result<std::optional<SlotMatch>> probe(const Key& key) const;

  /// A slot for a new sequence: the lowest free one that holds nothing known, else the one whose
  /// sequence has not been used for longest. Its version rises, and what it held is forgotten.
  /// Pinned slots and those that a copy reads are not given. `std::nullopt` when no other is free.
  std::optional<std::size_t> take();
  /// Takes the matched slot to continue in it behind the first match.length tokens: all else that
  /// it held is forgotten. Its version stays. `stale_handle` if since the match the slot was handed
  /// out, continued or partly forgotten; `in_use` if it is taken, or a pin or a copy needs more of
  /// it.
  Status occupy(const SlotMatch& match);
  /// Gives back a taken slot; one that is free stops at a check. What it holds can still be found.
  /// The same as SlotAllocator::free; counts as a use.
  void free(std::size_t slot);

  /// Keeps this prefix: it is not evicted, and one slot that holds it is neither given away nor
  /// continued before its end. Counted. `not_found` unless a slot holds all of it. Only the engine
  /// itself can break a pin, by taking its slot from the allocator or inserting something else for
  /// it: then another slot that holds the prefix is kept, or the next one that does.
  Status pin(const Key& key);
  /// Undoes one pin of the same key; `not_found` if there is none.
  Status release(const Key& key);

  /// Copies the KV of the key, which some slot must hold, to the beginning of another slot, which
  /// must be taken. What was known of that slot is forgotten; insert() when the copy is done. The
  /// source is kept until then. `unavailable` without a pool, `not_found` if no other slot holds
  /// the whole key, `in_use` if the target is pinned or part of a running copy.
  Result<Transfer> copy_kv(const Key& key, std::size_t target);

  /// Forgets everything; `in_use` while something is pinned.
  Status clear();

  SlotCacheStats stats() const;      ///< what it holds now, and totals since it was made
  std::size_t memory_bytes() const;  ///< bytes of all bookkeeping
  std::string dump() const;          ///< the tree as text, for people
  /// Proves every invariant; O(tree).
  Status check() const;

 private:
  struct Impl;
  explicit SlotCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
