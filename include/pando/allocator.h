// SPDX-License-Identifier: Apache-2.0
// Who owns which slot: the paged allocator (and, at page size 1, the token allocator).
// PrefixCache and engines call it; it touches no KV bytes. It belongs to one thread.
//
// Invariant: each page in [1, num_pages] is free or handed out, never both, and a bit per page says
// which. Every call is all or nothing: room is checked before anything is written. Freeing what is
// not handed out, or a slot out of range, stops at a check that names the slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// In which order freed pages are handed out again.
enum class ReuseOrder {
  fifo,    ///< longest free first
  sorted,  ///< lowest id first, so that neighbours stay neighbours and copies coalesce
};

class PagedAllocator;

/// A remembered state of a PagedAllocator, see PagedAllocator::backup_state(). While one is held,
/// changes are journalled, so that taking it is O(1) and restoring it costs what changed since.
/// Move-only; must not outlive its allocator.
class [[nodiscard]] AllocatorState {
 public:
  AllocatorState(AllocatorState&& other) noexcept;
  AllocatorState& operator=(AllocatorState&& other) noexcept;
  ~AllocatorState();

 private:
  friend class PagedAllocator;
  AllocatorState(PagedAllocator* owner, std::size_t mark) : owner_(owner), mark_(mark) {}

  PagedAllocator* owner_;
  std::size_t mark_;
};

/// Hands out slots in pages, and takes them back. Page 0 pads batches and is never handed out. It
/// belongs to one thread.
class PagedAllocator {
 public:
  struct Options {
    std::size_t capacity_tokens = 0;  ///< rounded down to whole pages; the padding page is extra
    std::size_t page_size = 1;        ///< any power of two
    ReuseOrder order = ReuseOrder::fifo;

    Status validate() const;
  };

  static Result<std::unique_ptr<PagedAllocator>> create(const Options& options);
  ~PagedAllocator();
  PagedAllocator(const PagedAllocator&) = delete;
  PagedAllocator& operator=(const PagedAllocator&) = delete;

  /// Slots of whole pages: `out.size()` must be a multiple of the page size. All or nothing.
  /// O(pages).
  Status alloc(std::span<SlotId> out);

  /// Grows request i from `prefix_lens[i]` to `seq_lens[i]` tokens: first what is left of its open
  /// page (the one of `last_slots[i]`, the slot of its last token; ignored when the prefix fills
  /// its pages), then whole pages, then a new open page. `out` receives the new slots, request by
  /// request; its size must be the sum of the growths.
  Status alloc_extend(std::span<const std::size_t> prefix_lens,
                      std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                      std::span<SlotId> out);

  /// One more token for each request; `seq_lens[i]` counts it. Otherwise as alloc_extend().
  Status alloc_decode(std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                      std::span<SlotId> out);

  /// How many pages alloc_extend() would take.
  std::size_t pages_for_extend(std::span<const std::size_t> prefix_lens,
                               std::span<const std::size_t> seq_lens) const;
  /// How many pages alloc_decode() would take.
  std::size_t pages_for_decode(std::span<const std::size_t> seq_lens) const;

  /// Returns every page that holds one of these slots. All slots of a page go in one call, or in
  /// one free group; naming a page by some of its slots frees the whole page.
  void free(std::span<const SlotId> slots);
  void free_pages(std::span<const PageId> pages);  ///< returns pages by number

  void begin_free_group();  ///< from here to end_free_group(), frees are collected
  void end_free_group();    ///< applies the frees since begin_free_group() all at once

  /// Remembers the present state, in O(1), for restore_state(). States nest. Not inside a free
  /// group.
  AllocatorState backup_state();
  /// Goes back to that state exactly, and gives up younger ones.
  void restore_state(AllocatorState state);

  /// Everything is free again, in initial order. Refused while a state is held, or in a free group.
  Status clear();

  std::size_t page_size() const;        ///< tokens of a page
  std::size_t num_pages() const;        ///< pages, not counting the padding page
  std::size_t capacity() const;         ///< tokens that fit in
  std::size_t available() const;        ///< tokens that are free
  std::size_t available_pages() const;  ///< pages that are free
  bool is_free(PageId page) const;      ///< whether nobody has this page
  std::size_t memory_bytes() const;     ///< bytes of the bookkeeping, heap included

  /// Proves that each page is free or handed out, never both. O(pages).
  Status check() const;

 private:
  friend class AllocatorState;
  friend class WindowAllocator;
  struct Impl;
  explicit PagedAllocator(std::unique_ptr<Impl> impl);
  /// The pages that alloc_extend and alloc_decode will take, or why they will refuse.
  Result<std::size_t> plan_extend(std::span<const std::size_t> prefix_lens,
                                  std::span<const std::size_t> seq_lens,
                                  std::span<const SlotId> last_slots, std::size_t out_size) const;
  Result<std::size_t> plan_decode(std::span<const std::size_t> seq_lens,
                                  std::span<const SlotId> last_slots, std::size_t out_size) const;
  void drop_state(std::size_t mark);

  std::unique_ptr<Impl> impl_;
};

/// A PagedAllocator with pages of one token.
Result<std::unique_ptr<PagedAllocator>> make_token_allocator(std::size_t capacity_tokens,
                                                             ReuseOrder order = ReuseOrder::fifo);

}  // namespace pando
