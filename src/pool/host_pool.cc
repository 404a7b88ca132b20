// SPDX-License-Identifier: Apache-2.0
// HostPool: one block of memory in a layout, HostPages for who may touch what, and pages as flat
// bytes, which are the regions of a page one after the other.
#include "pando/pools.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "pool/arena_block.h"
#include "pool/host_pages.h"
#include "pool/plane_memory.h"
#include "pool/pool_use.h"

namespace pando {

std::string_view to_string(HostLayout layout) {
  constexpr std::string_view kNames[] = {"layer_first", "page_first", "page_first_direct",
                                         "page_head"};
  return kNames[static_cast<std::size_t>(layout)];
}

struct HostPool::Impl {
  Impl(const Geometry& shape, HostLayout order, std::size_t num_pages)
      : geometry(shape), layout(order), pages(num_pages) {}

  Geometry geometry;
  HostLayout layout;
  HostPages pages;
  MemoryKind kind = MemoryKind::host;
  ArenaBlock block = {};
  std::vector<PlaneMemory> planes = {};
  std::atomic<int> uses = 0;  // transfers under way
};

namespace {

// So that 0.29 of 100 pages are 29, whatever binary fractions make of it.
constexpr double kTolerance = 1e-6;

Result<std::size_t> pages_for(const HostPoolOptions& options, const KvPool& device) {
  if (options.ratio.has_value() == options.size_bytes.has_value())
    return make_error(ErrorCode::invalid_argument,
                      "host pool: expected either a ratio or a size in bytes");
  const std::size_t page_bytes = device.geometry().page_bytes();
  if (options.ratio && !(*options.ratio > 0 && std::isfinite(*options.ratio)))
    return make_error(ErrorCode::invalid_argument, "host pool: ratio {}; expected above 0",
                      *options.ratio);
  const double asked =
      options.ratio
          ? *options.ratio * static_cast<double>(device.num_pages() - 1) + kTolerance
          : std::floor(static_cast<double>(*options.size_bytes) / static_cast<double>(page_bytes));
  if (asked < 1 || asked > 0x1p32)
    return make_error(ErrorCode::invalid_argument,
                      "host pool: {:.0f} pages of {}; expected 1 to 2^32", std::floor(asked),
                      describe_bytes(page_bytes));
  return static_cast<std::size_t>(asked);
}

}  // namespace

HostPool::HostPool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HostPool::~HostPool() {
  const int uses = impl_->uses.load(std::memory_order_acquire);
  PANDO_CHECK(uses == 0, "host pool destroyed while {} transfers use it; wait for them first",
              uses);
}

Result<std::unique_ptr<HostPool>> HostPool::create(const HostPoolOptions& options,
                                                   const KvPool& device, Arena& arena) {
  if (arena.kind() == MemoryKind::cuda)
    return make_error(ErrorCode::invalid_argument,
                      "host pool: arena \"{}\" is a GPU's memory; expected the host's",
                      arena.name());
  Result<std::size_t> num_pages = pages_for(options, device);
  if (!num_pages) return num_pages.error();
  const auto bytes = placed_bytes(device.geometry(), options.layout, *num_pages);
  if (!bytes)
    return make_error(ErrorCode::out_of_capacity,
                      "host pool: {} pages of {} are more than memory can be", *num_pages,
                      describe_bytes(device.geometry().page_bytes()));
  Result<ArenaBlock> block = ArenaBlock::allocate(
      arena, *bytes,
      fmt::format("host pool of {} pages ({})", *num_pages, device.geometry().describe()),
      options.keep_free_bytes);
  if (!block) return block.error();
  auto impl = std::make_unique<Impl>(device.geometry(), options.layout, *num_pages);
  impl->kind = arena.kind();
  impl->block = std::move(*block);
  impl->planes = place(impl->geometry, impl->layout, *num_pages, impl->block.data());
  return std::unique_ptr<HostPool>(new HostPool(std::move(impl)));
}

const Geometry& HostPool::geometry() const { return impl_->geometry; }
HostLayout HostPool::layout() const { return impl_->layout; }
MemoryKind HostPool::memory_kind() const { return impl_->kind; }
std::size_t HostPool::size_bytes() const { return impl_->block.size_bytes(); }
std::size_t HostPool::num_pages() const { return impl_->pages.size(); }
std::size_t HostPool::available_pages() const { return impl_->pages.available(); }
std::size_t HostPool::count(PageState state) const { return impl_->pages.count(state); }
const std::vector<PlaneMemory>& HostPool::planes() const { return impl_->planes; }

using Pages = std::span<const HostPageId>;
Status HostPool::alloc(std::span<HostPageId> out) { return impl_->pages.alloc(out); }
void HostPool::free(Pages pages) { impl_->pages.free(pages); }
void HostPool::protect_write(Pages pages) { impl_->pages.protect_write(pages); }
void HostPool::complete_write(Pages pages, bool on_device) {
  impl_->pages.complete_write(pages, on_device);
}
void HostPool::abort_write(Pages pages) { impl_->pages.abort_write(pages); }
void HostPool::protect_load(Pages pages) { impl_->pages.protect_load(pages); }
void HostPool::complete_load(Pages pages) { impl_->pages.complete_load(pages); }
void HostPool::abort_load(Pages pages) { impl_->pages.abort_load(pages); }
void HostPool::device_gone(Pages pages) { impl_->pages.device_gone(pages); }
void HostPool::device_came(Pages pages) { impl_->pages.device_came(pages); }
PageState HostPool::state(HostPageId page) const { return impl_->pages.state(page); }
Status HostPool::clear() { return impl_->pages.clear(); }
Status HostPool::check() const { return impl_->pages.check(); }

Result<std::vector<MemoryRegion>> HostPool::page_regions(HostPageId page) const {
  const Impl& self = *impl_;
  if (index_of(page) >= num_pages())
    return make_error(ErrorCode::invalid_argument, "host pool: no page {}; it has {}",
                      index_of(page), num_pages());
  std::vector<MemoryRegion> out;
  for (std::size_t i = 0; i < self.planes.size(); ++i) {
    const PlaneMemory& memory = self.planes[i];
    const std::size_t offset = index_of(page) * memory.page_stride;
    if (pages_are_contiguous()) {  // layer 0, head 0 of token 0 is where the page begins
      const std::size_t bytes = self.geometry.page_bytes(self.geometry.planes[i]);
      out.push_back({memory.layers[0] + offset, bytes, bytes});
      continue;
    }
    const std::size_t bytes = self.geometry.planes[i].row_bytes() * self.geometry.page_size;
    for (std::byte* layer : memory.layers) out.push_back({layer + offset, bytes, bytes});
  }
  return out;
}

Status HostPool::page_bytes(HostPageId page, std::span<std::byte> out) const {
  Result<std::vector<MemoryRegion>> regions = page_regions(page);
  if (!regions) return regions.error();
  if (out.size() != page_bytes())
    return make_error(ErrorCode::invalid_argument,
                      "page_bytes: room for {} bytes; expected exactly {}", out.size(),
                      page_bytes());
  const PageState now = state(page);
  if (now == PageState::idle || now == PageState::reserved || now == PageState::writing)
    return make_error(ErrorCode::invalid_argument,
                      "page_bytes: page {} is {}; expected one that holds KV", index_of(page),
                      to_string(now));
  std::byte* to = out.data();
  for (const MemoryRegion& region : *regions) {
    std::memcpy(to, region.address, region.size_bytes);
    to += region.size_bytes;
  }
  return {};
}

Status HostPool::load_page(HostPageId page, std::span<const std::byte> bytes) {
  Result<std::vector<MemoryRegion>> regions = page_regions(page);
  if (!regions) return regions.error();
  if (bytes.size() != page_bytes())
    return make_error(ErrorCode::invalid_argument, "load_page: {} bytes; expected exactly {}",
                      bytes.size(), page_bytes());
  if (state(page) != PageState::writing)
    return make_error(ErrorCode::invalid_argument,
                      "load_page: page {} is {}; expected it protected for writing", index_of(page),
                      to_string(state(page)));
  const std::byte* from = bytes.data();
  for (const MemoryRegion& region : *regions) {
    std::memcpy(region.address, from, region.size_bytes);
    from += region.size_bytes;
  }
  return {};
}

PoolUse::PoolUse(HostPool& pool) : PoolUse(pool.impl_->uses) {}

}  // namespace pando
