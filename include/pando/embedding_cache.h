// SPDX-License-Identifier: Apache-2.0
// What encoders made of images, sound and video, by content hash: the same picture in two prompts
// is encoded once. The least recently used go first when the capacity, in bytes, is reached.
// Values are shared, not copied: an engine hands over memory that it owns, and whoever got a value
// keeps it, evicted or not. Every call may come from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "pando/result.h"

namespace pando {

/// Bytes that nobody changes any more, on a CPU or a GPU: the cache never reads them. The pointer
/// may alias what really owns them, a tensor for instance; the last holder lets go of it.
struct Embedding {
  std::shared_ptr<const void> data = {};
  std::size_t size_bytes = 0;

  /// For memory that the CPU can read.
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data.get()), size_bytes};
  }
};

/// Over a copy of these bytes.
Embedding copy_embedding(std::span<const std::byte> bytes);

/// One name for the items of a prompt that are encoded together: of one item its own hash; of
/// several the SHA-256, as lowercase hex, over each one's length (8 bytes, little endian) and
/// text. So order matters, and ("ab", "c") is not ("a", "bc"). No items, or an empty hash: refused.
Result<std::string> combined_hash(std::span<const std::string_view> hashes);

/// Totals of an EmbeddingCache.
struct EmbeddingStats {
  std::uint64_t hits = 0;       ///< by get(); has() does not count
  std::uint64_t misses = 0;     ///< get() of what is not there
  std::uint64_t evictions = 0;  ///< items that left for others
  std::uint64_t refused = 0;    ///< items larger than the capacity
  std::size_t used_bytes = 0;   ///< bytes of the embeddings that are cached now
};

/// What encoders made of images, sound and video, by content hash: the least recently used go when
/// the capacity, in bytes, is reached. Every call may come from any thread.
class EmbeddingCache {
 public:
  /// The capacity counts the bytes of embeddings, not those of their hashes.
  static Result<std::unique_ptr<EmbeddingCache>> create(std::size_t capacity_bytes);
  ~EmbeddingCache();
  EmbeddingCache(const EmbeddingCache&) = delete;
  EmbeddingCache& operator=(const EmbeddingCache&) = delete;

  /// Makes `hash`, text or bytes in whatever form the engine has it, the most recently used item,
  /// evicting others as needed. A hash that is there gets the new value; those who have the old one
  /// keep it. An item larger than the capacity is `out_of_capacity`: it evicts nothing, and leaves
  /// what is there under its hash.
  Status put(std::string_view hash, Embedding embedding);
  /// Whether get() would find it; not a use.
  bool has(std::string_view hash) const;
  /// The embedding, or `std::nullopt`. Counts as a use.
  std::optional<Embedding> get(std::string_view hash);
  /// Drops all items; not counted as evictions.
  void clear();

  std::size_t size() const;            ///< items
  std::size_t capacity_bytes() const;  ///< bytes of embeddings that it may hold
  EmbeddingStats stats() const;        ///< totals since it was made
  /// Proves that items, index and bytes agree; O(items).
  Status check() const;

 private:
  struct Impl;
  explicit EmbeddingCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
