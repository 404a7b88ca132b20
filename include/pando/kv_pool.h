// SPDX-License-Identifier: Apache-2.0
// The bytes of a device tier: for every slot that an allocator hands out, a row per plane and
// layer. The engine writes KV through set(), its kernels read through views; copier.h moves pages
// between a pool and its host mirror. The memory is of a GPU, or of the CPU where that is the
// device. Bytes are the caller's to order: nothing here locks a slot. Views, sizes and addresses
// may be read from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pando/arena.h"
#include "pando/geometry.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// How a device pool lies in memory.
enum class DeviceLayout {
  layer_first,  ///< a buffer per plane and layer, (slots, heads, dim)
  page_major,   ///< one buffer for all, (planes, layers, pages, page, heads, dim), as NPUs expect
};

/// Where the rows of one plane are. Head h of slot s in layer l starts at
///   layers[l] + s / page_size * page_stride + s % page_size * token_stride + h * head_stride.
struct PlaneMemory {
  std::vector<std::byte*> layers = {};  ///< address of each layer
  std::size_t page_stride = 0;          ///< bytes from page to page
  std::size_t token_stride = 0;         ///< bytes from token to token of a page
  std::size_t head_stride = 0;          ///< bytes from head to head of a token
};

/// Memory as a framework's tensor: `shape` and `strides` (in bytes) have `rank` entries.
struct TensorView {
  std::byte* data = nullptr;                 ///< address of the first element
  DType dtype = DType::bf16;                 ///< type of the elements
  std::size_t rank = 0;                      ///< number of dimensions
  std::array<std::int64_t, 4> shape = {};    ///< elements of each dimension
  std::array<std::int64_t, 4> strides = {};  ///< bytes from one to the next of each dimension
};

/// A contiguous piece of memory, as network cards want it registered.
struct MemoryRegion {
  std::byte* address = nullptr;  ///< where it begins
  std::size_t size_bytes = 0;    ///< bytes of all of it
  std::size_t item_bytes = 0;    ///< bytes of a row or page in it
};

/// What to write: one row of elements per slot. Stored is value / scale, computed in fp32 and then
/// rounded to nearest even; what lies beyond the range of fp8 or int8 becomes its largest value.
/// NaN keeps its sign alone (int8: 0).
struct Rows {
  const void* data = nullptr;    ///< elements of the first row
  DType dtype = DType::bf16;     ///< their type
  std::size_t stride_bytes = 0;  ///< bytes from row to row; 0: they follow each other
  float scale = 1.0F;            ///< what values are divided by
};

/// Where a snapshot lies in a pool of state_geometry() with as many tokens as the StateAllocator
/// has slots: behind the padding.
constexpr SlotId row_of(StateSlot slot) { return static_cast<SlotId>(slot.index + 1); }

/// Says when each layer of a load has arrived; a Transfer gives one.
class LayerSignal {
 public:
  virtual ~LayerSignal() = default;
  /// Blocks until the layer (counted from 0) is in place; an error if it will never be.
  virtual Status wait_layer(std::size_t layer) = 0;
  /// The same for work queued on a cudaStream_t: the stream waits, the caller does not.
  virtual Status wait_layer_on(std::size_t layer, void* stream) = 0;
  /// All layers are in place.
  virtual bool done() const = 0;
};

/// Rows of some slots in host memory, for instance of a request that was retracted. KvPool::save()
/// makes them.
class SavedKv {
 public:
  SavedKv(SavedKv&& other) noexcept;
  SavedKv& operator=(SavedKv&& other) noexcept;
  ~SavedKv();
  std::size_t num_tokens() const;  ///< slots that were saved
  std::size_t size_bytes() const;  ///< bytes of their rows

 private:
  friend class KvPool;
  struct Impl;
  explicit SavedKv(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct PoolOptions {
  Geometry geometry = {};
  /// Rounded down to whole pages. A padding page, number 0, comes on top.
  std::size_t capacity_tokens = 0;
  DeviceLayout layout = DeviceLayout::layer_first;
};

/// The bytes of a device tier: for every slot that an allocator hands out, a row per plane and
/// layer. Views, sizes and addresses may be read from any thread; which slots may be written when
/// is for the caller to know.
class KvPool {
 public:
  /// One block of the arena's memory, which must outlive the pool. Refused with all sizes named,
  /// before anything is allocated, when it would not fit. The padding page starts as zeros.
  static Result<std::unique_ptr<KvPool>> create(const PoolOptions& options, Arena& arena);
  /// Over an engine's own buffers: pages [0, num_pages) in any strides, which stay the engine's.
  static Result<std::unique_ptr<KvPool>> adopt(const Geometry& geometry, std::size_t num_pages,
                                               std::vector<PlaneMemory> planes, MemoryKind kind);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  const Geometry& geometry() const;                ///< the shape of a row
  std::size_t num_pages() const;                   ///< pages, the padding page included
  std::size_t size_bytes() const;                  ///< bytes of all pages
  MemoryKind memory_kind() const;                  ///< where its memory is
  const std::vector<PlaneMemory>& planes() const;  ///< where the rows of each plane are
  /// One per plane and layer; items are rows, in a page-major pool pages. None over an engine's own
  /// buffers, which the engine registers.
  std::vector<MemoryRegion> regions() const;

  /// Plane `plane` of a layer (ids count from first_layer): (slots, heads, dim), or (pages, page,
  /// heads, dim) where slots are not evenly spaced or the pool is page-major. On a CPU this first
  /// waits for loads of that layer, see gate().
  Result<TensorView> view(std::size_t layer, std::size_t plane) const;
  Result<TensorView> key(std::size_t layer) const;  ///< keys as attention reads them: plane 0
  /// Values as attention reads them: plane 1; of a latent plane, its first part.
  Result<TensorView> value(std::size_t layer) const;

  /// Writes one row per slot and plane. Rows of the pool's own type are copied as they are; others
  /// must be fp16, bf16 or fp32. On a GPU: rows are device memory, and the call returns when they
  /// are written.
  Status set(std::size_t layer, std::span<const SlotId> slots, std::span<const Rows> planes);
  /// Writes a latent plane from its two parts.
  Status set_parts(std::size_t layer, std::span<const SlotId> slots, const Rows& nope,
                   const Rows& rope);

  /// Slot dst[i] becomes a copy of what src[i] held before the call, in all layers.
  Status move(std::span<const SlotId> dst, std::span<const SlotId> src);

  /// Copies rows out to memory of `host` (pinned for a GPU's pool), for restore().
  Result<SavedKv> save(std::span<const SlotId> slots, Arena& host) const;
  /// Copies saved rows back to as many slots.
  Status restore(const SavedKv& saved, std::span<const SlotId> slots);

  /// Views of a layer wait for this load's share of it from now on; what copies all layers (save,
  /// move, a copier) does not. A load that fails or is cancelled makes views errors until
  /// open_gate().
  void gate(std::shared_ptr<LayerSignal> load);
  /// Forgets all loads.
  void open_gate();
  Status wait_layer(std::size_t layer) const;  ///< waits on the gate of this layer
  /// A cudaStream_t waits on the gate of this layer; the caller does not.
  Status wait_layer_on(std::size_t layer, void* stream) const;

 private:
  friend class PoolUse;
  struct Impl;
  explicit KvPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
