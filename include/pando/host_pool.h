// SPDX-License-Identifier: Apache-2.0
// The host mirror of a KvPool: the same planes in one of four layouts, pages with states that say
// who may touch them, and pages as flat bytes for storage. A copier fills and reads it.
// Pages and their states belong to one thread; bytes of a protected page belong to the copy that it
// is protected for.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pando/arena.h"
#include "pando/geometry.h"
#include "pando/host_page.h"
#include "pando/kv_pool.h"
#include "pando/result.h"

namespace pando {

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
