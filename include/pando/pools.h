// SPDX-License-Identifier: Apache-2.0
// The bytes. A Geometry says which planes a model's KV has and how large a row is; an Arena is
// where memory comes from; KvPool and WindowPool hold the KV of each slot on the device, HostPool
// that of pages in host memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/allocators.h"
#include "pando/result.h"
#include "pando/types.h"

namespace pando {

// ---- Arena
// --------------------------------------------------------------------------------------- Where the
// large blocks of pools come from: the heap, huge pages, one NUMA node, memory that the caller has,
// page-locked memory, a GPU. An Arena is a plug point, so an engine can bring its own. An arena
// outlives its blocks, and every block goes back to the arena that it came from. Calls to one arena
// must not overlap. Blocks are few and large: an arena may round each up to whole pages.

/// Where memory is, and so who can touch it.
enum class MemoryKind {
  host,    ///< ordinary memory of the machine
  pinned,  ///< host memory that a GPU reads directly
  cuda,    ///< a GPU's own; the host must not touch it
};

/// Where the large blocks of pools come from. A plug point, so an engine can bring its own.
class Arena {
 public:
  virtual ~Arena() = default;

  /// `size_bytes` > 0, aligned to at least `alignment` (a power of two). Contents undefined.
  /// `out_of_capacity` when there is not as much; nothing was changed then.
  virtual Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) = 0;
  /// A block from `allocate`, with the size that was asked for.
  virtual void free(void* memory, std::size_t size_bytes) = 0;
  /// What one could still allocate now, as far as can be known; pools refuse before they try.
  /// Memory that was allocated but never written to may still count.
  virtual std::size_t available_bytes() const = 0;
  /// Where its memory is.
  virtual MemoryKind kind() const { return MemoryKind::host; }
  virtual std::string_view name() const = 0;  ///< what it is called in messages
};

/// The heap. Like all arenas of host memory it refuses more than `available_memory()`: the kernel
/// would promise that, and end the process when the pages are first written.
std::unique_ptr<Arena> make_malloc_arena();

/// Where huge pages come from.
enum class HugePages {
  transparent,  ///< the kernel is asked for them (madvise) and gives ordinary pages when it has
                ///< none
  reserved,     ///< from the kernel's pool (MAP_HUGETLB, vm.nr_hugepages), or not at all
};
/// Memory in huge pages.
std::unique_ptr<Arena> make_huge_page_arena(HugePages kind = HugePages::transparent);

/// Memory bound to one NUMA node. `invalid_argument` where the machine has no such node; `allocate`
/// is `unavailable` where the kernel forbids binding.
Result<std::unique_ptr<Arena>> make_numa_arena(unsigned node);

/// Carves from memory that the caller owns and keeps alive; `kind` says what the memory is. Blocks
/// follow each other: a freed block is used again when those behind it are free too, so when
/// everything is freed the arena starts over.
std::unique_ptr<Arena> make_user_arena(std::span<std::byte> memory,
                                       MemoryKind kind = MemoryKind::host);

/// Page-locked host memory. `unavailable` in a build without CUDA or on a machine without a GPU.
Result<std::unique_ptr<Arena>> make_pinned_arena();
/// Memory of a GPU. `unavailable` in a build without CUDA or on a machine without a GPU.
Result<std::unique_ptr<Arena>> make_cuda_arena(int device = 0);

/// Bytes this process may still use: the least of the machine's available memory and the limits of
/// its container (cgroup v1 and v2, all levels).
std::size_t available_memory();

// ---- Geometry
// ------------------------------------------------------------------------------------ The shape of
// KV: which arrays a model keeps per layer, how wide a row of each is, and how many tokens a page
// has. Pools, host pools and copiers are all told about a model by one Geometry. A family of
// attention is a set of planes, so everything that moves bytes knows planes alone.

/// The type of an element of KV.
enum class DType : std::uint8_t { fp16, bf16, fp32, fp8_e4m3, fp8_e5m2, int8 };

std::size_t size_of(DType dtype);  ///< bytes of an element
std::string_view to_string(DType dtype);

/// One array of a layer: for each slot a row of `heads` x `dim` elements.
struct Plane {
  std::string name;           ///< such as "key"
  std::uint32_t heads = 1;    ///< heads of a row
  std::uint32_t dim = 0;      ///< elements of a head
  DType dtype = DType::bf16;  ///< their type
  /// Of a row that is written in two parts (MLA's nope and rope): elements of the first; else 0.
  std::uint32_t first_part = 0;

  /// Bytes of one head of a row.
  std::size_t head_bytes() const { return dim * size_of(dtype); }
  /// Bytes of a row: all heads.
  std::size_t row_bytes() const { return heads * head_bytes(); }
  friend bool operator==(const Plane&, const Plane&) = default;
};

/// The shape of KV: which arrays a model keeps per layer, how wide a row of each is, and how many
/// tokens a page has.
struct Geometry {
  std::vector<Plane> planes = {};  ///< the arrays of each layer
  std::size_t num_layers = 0;      ///< layers here
  /// Id of the first layer here; pipeline stages hold [first_layer, first_layer + num_layers).
  std::size_t first_layer = 0;
  std::size_t page_size = 1;  ///< tokens of a page

  Status validate() const;  ///< an error where it makes no sense

  std::size_t token_bytes() const;  ///< bytes of one token in all planes and layers
  /// Bytes of one page in all planes and layers.
  std::size_t page_bytes() const { return token_bytes() * page_size; }
  /// Bytes of one plane's share of a page, all layers.
  std::size_t page_bytes(const Plane& plane) const;

  /// Where the plane of this name is in `planes`.
  Result<std::size_t> plane_index(std::string_view name) const;

  /// One text that is equal only for equal geometries; for messages, and for keys of stored pages.
  std::string describe() const;

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

/// What every family is told.
struct LayerRange {
  std::size_t num_layers = 0;
  std::size_t first_layer = 0;
  std::size_t page_size = 1;
  DType dtype = DType::bf16;
};

/// The shape of separate keys and values, see mha_geometry().
struct MhaShape {
  LayerRange layers = {};
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t value_dim = 0;
};
/// Separate keys and values: planes "key" and "value". `value_dim` 0 means as `head_dim`.
Geometry mha_geometry(const MhaShape& shape);

/// The shape of latent attention, see mla_geometry().
struct MlaShape {
  LayerRange layers = {};
  std::uint32_t nope_dim = 0;
  std::uint32_t rope_dim = 0;
  bool split = false;
};
/// One latent row per token, its first `nope_dim` elements without and the rest with position:
/// plane "latent"; with `split`, planes "nope" and "rope" (page-major pools of NPUs).
Geometry mla_geometry(const MlaShape& shape);

/// The shape of sparse attention over latents, see dsa_geometry().
struct DsaShape {
  MlaShape mla = {};
  std::uint32_t index_dim = 0;
  DType index_dtype = DType::fp8_e4m3;
  bool index_scale = false;
};
/// Sparse attention over latents (DSA, NSA): MLA and plane "index_key", from which an indexer
/// chooses tokens; with `index_scale` also plane "index_scale", one fp32 per token.
Geometry dsa_geometry(const DsaShape& shape);

/// The shape of double sparsity, see double_sparse_geometry().
struct DoubleSparseShape {
  MhaShape mha = {};
  std::uint32_t label_dim = 0;
};
/// Double sparsity: MHA and plane "label", the `label_dim` heavy channels of each head.
Geometry double_sparse_geometry(const DoubleSparseShape& shape);

/// Snapshots of recurrent layers: the given planes (say "conv" and "ssm"), one row per snapshot.
/// A page is one snapshot.
Geometry state_geometry(std::size_t num_layers, std::vector<Plane> planes);

// ---- Kv pool
// ------------------------------------------------------------------------------------- The bytes
// of a device tier: for every slot that an allocator hands out, a row per plane and layer. The
// engine writes KV through set(), its kernels read through views; copier.h moves pages between a
// pool and its host mirror. The memory is of a GPU, or of the CPU where that is the device. Bytes
// are the caller's to order: nothing here locks a slot. Views, sizes and addresses may be read from
// any thread.

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

// ---- Window pool
// --------------------------------------------------------------------------------- The bytes of a
// model that mixes full-attention and sliding-window layers: two KvPools, one per kind of layer. A
// layer id leads to its pool, and slots are always full slots: those of window layers are
// translated by the WindowAllocator that handed both out. Each side has a host mirror of its own,
// and is copied on its own.

struct WindowPoolOptions {
  /// Page size and planes; num_layers and first_layer are not looked at.
  Geometry geometry = {};
  std::vector<std::size_t> full_layers = {};    ///< ids, in the order they are kept
  std::vector<std::size_t> window_layers = {};  ///< likewise; no id twice
  DeviceLayout layout = DeviceLayout::layer_first;
};

/// The bytes of a model that mixes full-attention and sliding-window layers: two KvPools, one per
/// kind of layer. Slots are always full slots: the allocator translates them for window layers.
class WindowPool {
 public:
  /// Sized as the allocator's two sides are. Allocator and arena must outlive the pool.
  static Result<std::unique_ptr<WindowPool>> create(const WindowPoolOptions& options,
                                                    const WindowAllocator& slots, Arena& arena);
  ~WindowPool();

  /// The pool of the full layers, numbered 0, 1, ... in the order given; `nullptr` without any.
  KvPool* full() const;
  /// The pool of the window layers, numbered 0, 1, ... in the order given; `nullptr` without any.
  KvPool* window() const;
  std::size_t size_bytes() const;  ///< bytes of both pools
  /// As KvPool::regions(), of the full layers and then of the window layers.
  std::vector<MemoryRegion> regions() const;

  /// As KvPool::key(), of a layer by its id in the model.
  Result<TensorView> key(std::size_t layer) const;
  /// As KvPool::value(), of a layer by its id in the model.
  Result<TensorView> value(std::size_t layer) const;
  /// As KvPool::set(), of a layer by its id in the model. In a window layer, rows of slots without
  /// a window go to the padding slot.
  Status set(std::size_t layer, std::span<const SlotId> slots, std::span<const Rows> planes);
  /// As KvPool::move(), in all layers; of window layers, where both slots have a window.
  Status move(std::span<const SlotId> dst, std::span<const SlotId> src);

 private:
  struct Impl;
  explicit WindowPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// ---- Host page
// ----------------------------------------------------------------------------------- Names for
// pages of host memory: which page, and what is in it. The transitions between states are those of
// a host pool, which alone moves pages from one to another. Values only: nothing here allocates or
// holds a lock.

/// A page of a host pool. Another type than PageId, so that the two ends of a copy cannot be
/// confused.
enum class HostPageId : std::uint32_t {};

constexpr std::uint32_t index_of(HostPageId page) { return static_cast<std::uint32_t>(page); }

/// What is in a host page and who may touch it.
enum class PageState : std::uint8_t {
  idle,       ///< free
  reserved,   ///< handed out, nothing in it yet
  writing,    ///< protected: a copy from the device or a read from storage fills it
  backed_up,  ///< holds the only fast copy: the device no longer has it
  synced,     ///< same as on the device
  loading,    ///< protected: a copy to the device reads it
};

std::string_view to_string(PageState state);

// ---- Host pool
// ----------------------------------------------------------------------------------- The host
// mirror of a KvPool: the same planes in one of four layouts, pages with states that say who may
// touch them, and pages as flat bytes for storage. A copier fills and reads it. Pages and their
// states belong to one thread; bytes of a protected page belong to the copy that it is protected
// for.

/// Order of the dimensions, outermost first, of each plane (docs/formats.md). All but layer_first
/// keep a plane's share of a page in one piece.
enum class HostLayout {
  layer_first,        ///< layer, slot, head, dim
  page_first,         ///< slot, layer, head, dim
  page_first_direct,  ///< page, layer, token, head, dim
  page_head,          ///< page, head, token, layer, dim
};
std::string_view to_string(HostLayout layout);

struct HostPoolOptions {
  HostLayout layout = HostLayout::layer_first;
  /// Size: exactly one of the two. `ratio` counts in pages of the device pool, padding left out.
  std::optional<double> ratio = std::nullopt;
  std::optional<std::size_t> size_bytes = std::nullopt;
  /// Refused when less than this would be left of what the arena has available: of the machine's
  /// and its container's memory, for arenas that take from those.
  std::size_t keep_free_bytes = std::size_t{1} << 30;
};

/// The host mirror of a KvPool: the same planes in one of four layouts, and pages with states that
/// say who may touch them. Pages and their states belong to one thread.
class HostPool {
 public:
  /// A mirror of `device`, in one block of the arena's memory, which must outlive it. Pinned where
  /// a GPU copies.
  static Result<std::unique_ptr<HostPool>> create(const HostPoolOptions& options,
                                                  const KvPool& device, Arena& arena);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  const Geometry& geometry() const;                ///< that of the device pool
  HostLayout layout() const;                       ///< order of the dimensions
  MemoryKind memory_kind() const;                  ///< of what kind its memory is
  std::size_t size_bytes() const;                  ///< bytes of all pages
  std::size_t num_pages() const;                   ///< pages
  std::size_t available_pages() const;             ///< pages that are idle
  std::size_t count(PageState state) const;        ///< pages in this state
  const std::vector<PlaneMemory>& planes() const;  ///< where the rows of each plane are

  // The life of a page, see PageState. Each call changes all pages or none; what the state does not
  // allow stops at a check that names page and state.
  /// idle -> reserved, lowest first. All or nothing.
  Status alloc(std::span<HostPageId> out);
  /// reserved, backed_up or synced -> idle.
  void free(std::span<const HostPageId> pages);
  /// reserved -> writing.
  void protect_write(std::span<const HostPageId> pages);
  /// writing -> synced; from storage, without a copy on the device: -> backed_up.
  void complete_write(std::span<const HostPageId> pages, bool on_device = true);
  /// writing -> reserved.
  void abort_write(std::span<const HostPageId> pages);
  /// backed_up -> loading.
  void protect_load(std::span<const HostPageId> pages);
  /// loading -> synced.
  void complete_load(std::span<const HostPageId> pages);
  /// loading -> backed_up.
  void abort_load(std::span<const HostPageId> pages);
  /// synced -> backed_up: the device dropped its copy.
  void device_gone(std::span<const HostPageId> pages);
  /// backed_up -> synced: the device computed it anew.
  void device_came(std::span<const HostPageId> pages);
  PageState state(HostPageId page) const;  ///< what is in this page and who may touch it
  /// All pages idle; refused while one is protected.
  Status clear();

  /// Bytes of a page in all planes and layers.
  std::size_t page_bytes() const { return geometry().page_bytes(); }
  /// Copies a page out: planes one after the other, each in the order of the layout.
  Status page_bytes(HostPageId page, std::span<std::byte> out) const;
  /// Copies a page in; it must be protected for writing.
  Status load_page(HostPageId page, std::span<const std::byte> bytes);
  /// The bytes of a page where they are: one region per plane where the layout keeps a page in one
  /// piece, else one per plane and layer. In the order in which pages are copied out.
  Result<std::vector<MemoryRegion>> page_regions(HostPageId page) const;
  /// Whether the layout keeps a plane's share of a page in one piece.
  bool pages_are_contiguous() const { return layout() != HostLayout::layer_first; }

  /// Proves that states and counts agree; O(pages).
  Status check() const;

 private:
  friend class PoolUse;
  struct Impl;
  explicit HostPool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
