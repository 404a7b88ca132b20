// SPDX-License-Identifier: Apache-2.0
// TestPools: a device pool and its mirror in memory that the test itself can touch, for tests of
// how transfers run; and LongTransfers, which others have to wait for.
#pragma once

#include "support/copy_fixture.h"

namespace pando::testing {

/// All bytes of one layer of slots [first, first + n), in an order that depends on the geometry
/// alone. For pools in memory that the test can touch.
template <typename Pool>
Bytes read_layer(const Pool& pool, std::size_t layer, std::size_t first, std::size_t n) {
  Bytes out;
  const Geometry& geometry = pool.geometry();
  for (std::size_t slot = first; slot < first + n; ++slot)
    for (std::size_t plane = 0; plane < geometry.planes.size(); ++plane)
      for (std::size_t head = 0; head < geometry.planes[plane].heads; ++head) {
        const std::byte* at =
            row_address(pool.planes()[plane], geometry.page_size, layer, slot, head);
        out.insert(out.end(), at, at + geometry.planes[plane].head_bytes());
      }
  return out;
}
template <typename Pool>
Bytes read_slots(const Pool& pool, std::size_t first, std::size_t n) {
  Bytes out;
  for (std::size_t layer = 0; layer < pool.geometry().num_layers; ++layer)
    out = out + read_layer(pool, layer, first, n);
  return out;
}

/// A device pool full of random bytes, and a mirror of as many pages full of poison.
class TestPools {
 public:
  explicit TestPools(const Geometry& geometry = small_geometry(), std::size_t num_pages = 16,
                     MemoryKind kind = MemoryKind::host)
      : memory(2 * (num_pages + 1) * geometry.page_bytes() + 65536, kPoison),
        arena(make_user_arena(memory, kind)),
        device(*KvPool::create(
            {.geometry = geometry, .capacity_tokens = num_pages * geometry.page_size}, *arena)),
        host(*HostPool::create(
            {.layout = HostLayout::page_first, .ratio = 1.0, .keep_free_bytes = 0}, *device,
            *arena)) {
    const std::byte* start = device->planes()[0].layers[0];
    const Bytes bytes = random_bytes(device->size_bytes(), 1);
    std::copy(bytes.begin(), bytes.end(), memory.begin() + (start - memory.data()));
  }
  static Geometry small_geometry() {
    return mha_geometry({{.num_layers = 3, .first_layer = 5, .page_size = 4}, 2, 20});
  }
  /// Pages of 256 KiB: a few dozen keep a copier busy.
  static Geometry big_geometry() { return mha_geometry({{4, 0, 16, DType::fp32}, 8, 64}); }

  /// Of a device pool: 1, 2, ... n.
  static std::vector<PageId> all_pages(std::size_t n) {
    std::vector<PageId> pages;
    for (std::size_t i = 1; i <= n; ++i) pages.push_back(static_cast<PageId>(i));
    return pages;
  }

  /// `n` host pages in the state that a backup or a load asks for.
  std::vector<HostPageId> take(std::size_t n, PageState state) {
    std::vector<HostPageId> pages(n);
    host->alloc(pages).value();
    host->protect_write(pages);
    if (state == PageState::loading) {
      host->complete_write(pages, false);
      host->protect_load(pages);
    }
    return pages;
  }
  PagePairs pairs(std::span<const PageId> device_pages, std::span<const HostPageId> host_pages) {
    return {*device, *host, device_pages, host_pages};
  }
  Bytes page(PageId page) const { return read_page(*device, index_of(page)); }
  Bytes page(HostPageId page) const { return read_page(*host, index_of(page)); }

  Bytes memory;  // of both pools
  std::unique_ptr<Arena> arena;
  std::unique_ptr<KvPool> device;
  std::unique_ptr<HostPool> host;

 private:
  template <typename Pool>
  static Bytes read_page(const Pool& pool, std::size_t page) {
    const std::size_t page_size = pool.geometry().page_size;
    return read_slots(pool, page * page_size, page_size);
  }
};

/// Transfers of 8 MiB, so that others have to wait.
class LongTransfers {
 public:
  Transfer submit(Copier& copier, std::size_t stream) {
    return *copier.backup(pools_.pairs(device_pages_, host_pages_), stream);
  }
  std::vector<Transfer> submit(Copier& copier, std::size_t stream, std::size_t n) {
    std::vector<Transfer> out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(submit(copier, stream));
    return out;
  }

 private:
  TestPools pools_{TestPools::big_geometry(), 32};
  std::vector<PageId> device_pages_ = TestPools::all_pages(32);
  std::vector<HostPageId> host_pages_ = pools_.take(32, PageState::writing);
};

}  // namespace pando::testing
