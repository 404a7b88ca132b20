// SPDX-License-Identifier: Apache-2.0
// Who owns which slot. PagedAllocator hands out slots of KV in pages; WindowAllocator the same with
// a second side for sliding-window layers; StateAllocator slots for snapshots of recurrent state;
// SlotAllocator contiguous slots, one a sequence; RequestTable rows in which kernels find the slots
// of a request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

// ---- Paged allocator
// ----------------------------------------------------------------------------- Who owns which
// slot: the paged allocator (and, at page size 1, the token allocator). PrefixCache and engines
// call it; it touches no KV bytes. It belongs to one thread.
//
// Invariant: each page in [1, num_pages] is free or handed out, never both, and a bit per page says
// which. Every call is all or nothing: room is checked before anything is written. Freeing what is
// not handed out, or a slot out of range, stops at a check that names the slot.

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

// ---- Window allocator
// ---------------------------------------------------------------------------- Slots for models
// that mix full-attention and sliding-window layers: two pools of different sizes behind one front.
// A token is named by its full slot; its window slot is found by translate(), and can be given back
// alone once the token has left the window.
//
// Invariant: a full page that is handed out has one window page or none; a window page belongs to
// exactly one full page. Pages of both sides have the same size, so one entry per page says it all.
// Every call takes from both sides or from neither. It belongs to one thread.
//
// A model without full-attention layers uses the same: its full slots are then names without bytes,
// and there may be as many of them as are worth indexing.

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

// ---- State allocator
// ----------------------------------------------------------------------------- Slots for snapshots
// of recurrent state (Mamba, SSM): one slot holds one snapshot of all recurrent layers. The engine
// takes one, copies its state in, and gives it to the cache; or keeps one as the working state of a
// request. A slot knows its pool, so that one of another pool is refused. It belongs to one thread.

/// Slots for snapshots of recurrent state (Mamba, SSM): one slot holds one snapshot of all
/// recurrent layers. It belongs to one thread.
class StateAllocator {
 public:
  static Result<std::unique_ptr<StateAllocator>> create(std::size_t num_slots);
  ~StateAllocator();
  StateAllocator(const StateAllocator&) = delete;
  StateAllocator& operator=(const StateAllocator&) = delete;

  std::optional<StateSlot> alloc();  ///< the lowest free slot; `std::nullopt` when all are taken
  /// Gives back a slot of this pool that is handed out; anything else stops at a check.
  void free(StateSlot slot);

  /// Whether the slot is of this pool and handed out.
  bool is_taken(StateSlot slot) const;
  std::size_t capacity() const;   ///< slots
  std::size_t available() const;  ///< slots that are free

 private:
  struct Impl;
  explicit StateAllocator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// ---- Slot allocator
// ------------------------------------------------------------------------------ Whole-sequence
// slots: the lowest free one in O(1) at any size, with a version that tells whether a slot has been
// given to someone else since. RequestTable and SlotCache stand on it. It belongs to one thread.

/// Told of every slot that changes hands, once it has, on the thread that did it. It may not call
/// the allocator to change anything.
class SlotWatcher {
 public:
  virtual void slot_taken(std::size_t slot) = 0;  ///< by alloc, alloc_at or occupy
  virtual void slot_freed(std::size_t slot) = 0;

 protected:
  ~SlotWatcher() = default;
};

/// Slots for whole sequences, with versions, for SlotCache: the lowest free one in O(1). It belongs
/// to one thread.
class SlotAllocator {
 public:
  static Result<std::unique_ptr<SlotAllocator>> create(std::size_t num_slots);
  ~SlotAllocator();
  SlotAllocator(const SlotAllocator&) = delete;
  SlotAllocator& operator=(const SlotAllocator&) = delete;

  /// The lowest free slot, its version raised by one; `std::nullopt` when all are taken.
  std::optional<std::size_t> alloc();

  /// Takes this slot, which must be free, its version raised by one.
  void alloc_at(std::size_t slot);

  /// Takes this slot, which must be free, and keeps its version: what it held is being reused.
  void occupy(std::size_t slot);

  /// Gives back a taken slot. Its version, and what it holds, stay until the next alloc().
  void free(std::size_t slot);

  bool is_free(std::size_t slot) const;           ///< whether nobody has this slot
  std::uint64_t version(std::size_t slot) const;  ///< raised whenever the slot is handed out anew
  std::size_t free_count() const;                 ///< slots that are free
  std::size_t size() const;                       ///< slots

  /// At most one; nullptr ends it. It must outlive the allocator or end it.
  void watch(SlotWatcher* watcher);
  bool is_watched() const;

 private:
  struct Impl;
  explicit SlotAllocator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// ---- Request table
// ------------------------------------------------------------------------------- One row of slots
// per running request, as attention kernels read them. Bounds are checked on every call; a row is
// usable only between alloc and free. It belongs to one thread.

/// Which slots each running request has: a row per request. It belongs to one thread.
class RequestTable {
 public:
  /// `max_rows` requests of at most `row_len` tokens. Memory is touched only as rows are written.
  static Result<std::unique_ptr<RequestTable>> create(std::size_t max_rows, std::size_t row_len);
  ~RequestTable();
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  std::optional<std::size_t> alloc();  ///< the lowest free row; `std::nullopt` when all are taken
  /// `out.size()` rows, or none and an error.
  Status alloc(std::span<std::size_t> out);
  void free(std::size_t row);  ///< gives back a row that is taken
  void free(std::span<const std::size_t> rows);

  /// Copies `slots` to positions [offset, offset + slots.size()) of the row.
  Status write(std::size_t row, std::size_t offset, std::span<const SlotId> slots);
  /// The whole row, row_len long. What was never written reads as slot 0, the padding slot; a row
  /// used before still holds what its last request wrote.
  std::span<SlotId> row(std::size_t row);
  std::span<const SlotId> row(std::size_t row) const;

  /// Frees every row.
  void clear();

  std::size_t max_rows() const;   ///< rows
  std::size_t row_len() const;    ///< slots of a row
  std::size_t available() const;  ///< rows that are free

 private:
  struct Impl;
  explicit RequestTable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
