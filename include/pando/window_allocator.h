// SPDX-License-Identifier: Apache-2.0
// Slots for models that mix full-attention and sliding-window layers: two pools of different sizes
// behind one front. A token is named by its full slot; its window slot is found by translate(), and
// can be given back alone once the token has left the window.
//
// Invariant: a full page that is handed out has one window page or none; a window page belongs to
// exactly one full page. Pages of both sides have the same size, so one entry per page says it all.
// Every call takes from both sides or from neither. It belongs to one thread.
//
// A model without full-attention layers uses the same: its full slots are then names without bytes,
// and there may be as many of them as are worth indexing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "pando/allocator.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

class WindowAllocator;

/// A remembered state of both sides of a WindowAllocator and of which pages belong together, see
/// WindowAllocator::backup_state(). Otherwise as AllocatorState.
class [[nodiscard]] WindowAllocatorState {
 public:
  WindowAllocatorState(WindowAllocatorState&& other) noexcept;
  WindowAllocatorState& operator=(WindowAllocatorState&& other) noexcept;
  ~WindowAllocatorState();

 private:
  friend class WindowAllocator;
  WindowAllocatorState(WindowAllocator* owner, AllocatorState full, AllocatorState window,
                       std::size_t mark);

  WindowAllocator* owner_;
  AllocatorState full_;
  AllocatorState window_;
  std::size_t mark_;
};

/// Slots of a model with sliding-window layers: each full page may have a window page beside it,
/// which can be given back alone. It belongs to one thread.
class WindowAllocator {
 public:
  struct Options {
    std::size_t full_tokens = 0;    ///< rounded down to whole pages
    std::size_t window_tokens = 0;  ///< likewise; at most full_tokens
    std::size_t page_size = 1;      ///< any power of two
    ReuseOrder order = ReuseOrder::fifo;

    Status validate() const;
  };

  static Result<std::unique_ptr<WindowAllocator>> create(const Options& options);
  ~WindowAllocator();
  WindowAllocator(const WindowAllocator&) = delete;
  WindowAllocator& operator=(const WindowAllocator&) = delete;

  /// As PagedAllocator::alloc(); every new page gets a window page too.
  Status alloc(std::span<SlotId> out);
  /// As PagedAllocator::alloc_extend(); every new page gets a window page too.
  Status alloc_extend(std::span<const std::size_t> prefix_lens,
                      std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                      std::span<SlotId> out);
  /// As PagedAllocator::alloc_decode(); every new page gets a window page too.
  Status alloc_decode(std::span<const std::size_t> seq_lens, std::span<const SlotId> last_slots,
                      std::span<SlotId> out);

  Status alloc_full(std::span<SlotId> out);  ///< slots of whole pages without window pages
  /// Gives window pages to pages that are handed out and have none.
  Status alloc_window(std::span<const PageId> pages);

  /// Returns every page that holds one of these slots, with its window page if it still has one.
  void free(std::span<const SlotId> slots);
  /// Returns pages by number, with their window pages.
  void free_pages(std::span<const PageId> pages);

  /// Returns the window pages of these slots alone. A page that has none is passed over, so doing
  /// it twice is harmless.
  void free_window(std::span<const SlotId> slots);
  /// As free_window(), by the numbers of the full pages.
  void free_window_pages(std::span<const PageId> pages);

  /// Gives `to`, which has none, the window page of `from`, which has one.
  void move_window(PageId from, PageId to);

  /// The window slot of each full slot; the padding slot 0 where there is none. O(slots).
  void translate(std::span<const SlotId> full, std::span<SlotId> window) const;
  /// Whether this page, which is handed out, has a window page.
  bool has_window(PageId page) const;

  void begin_free_group();  ///< from here to end_free_group(), frees of both sides are collected
  void end_free_group();    ///< applies the frees since begin_free_group() all at once

  /// As PagedAllocator::backup_state(), for both sides and their pairs.
  WindowAllocatorState backup_state();
  /// Goes back to that state exactly, and gives up younger ones.
  void restore_state(WindowAllocatorState state);
  Status clear();  ///< as PagedAllocator::clear(), for both sides

  /// Each side's own figures: capacity, what is available, pages a call would take.
  const PagedAllocator& full() const;
  const PagedAllocator& window() const;
  /// Tokens of a page, the same on both sides.
  std::size_t page_size() const { return full().page_size(); }
  std::size_t memory_bytes() const;  ///< bookkeeping of both sides, heap included

  /// Proves that each page is free or handed out, never both, and that a window page belongs to
  /// exactly one full page. O(pages).
  Status check() const;

 private:
  friend class WindowAllocatorState;
  struct Impl;
  explicit WindowAllocator(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
