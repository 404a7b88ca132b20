// SPDX-License-Identifier: Apache-2.0
// HostPool by example: how large it is, what it refuses before it takes memory, and pages as flat
// bytes in every layout, compared with the documented order. What each operation does to a state is
// in host_pages_test.cc; here only that it arrives.
#include "pando/pools.h"

#include <gtest/gtest.h>

#include <limits>

#include "pool/pool_use.h"
#include "support/pool_fixture.h"

namespace pando::testing {
namespace {

using enum PageState;
using Pages = std::vector<HostPageId>;

constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
constexpr LayerRange kLayers{.num_layers = 3, .page_size = 4};
constexpr HostLayout kLayouts[] = {HostLayout::layer_first, HostLayout::page_first,
                                   HostLayout::page_first_direct, HostLayout::page_head};
constexpr PageState kStates[] = {idle, reserved, writing, backed_up, synced, loading};

Geometry mha() { return all_families(kLayers)[0].geometry; }

/// A pool of so many pages over a device pool of 10.
struct TestHostPool {
  explicit TestHostPool(const Geometry& geometry, std::size_t num_pages = 5,
                        HostLayout layout = HostLayout::layer_first)
      : device(PoolKind::layer_first, geometry, 11),
        pool(*HostPool::create({.layout = layout,
                                .size_bytes = num_pages * geometry.page_bytes(),
                                .keep_free_bytes = 0},
                               *device.pool, arena)) {}
  HostPool* operator->() const { return pool.get(); }

  /// A page that was just handed out, brought into `state`.
  HostPageId page_in(PageState state) const {
    Pages page(1);
    pool->alloc(page).value();
    if (state == idle) pool->free(page);
    if (state == idle || state == reserved) return page[0];
    pool->protect_write(page);
    if (state == writing) return page[0];
    pool->complete_write(page, state == synced);
    if (state == loading) pool->protect_load(page);
    return page[0];
  }

  CanaryArena arena;
  TestPool device;
  std::unique_ptr<HostPool> pool;
};

template <typename Visit>
void for_each_layout_and_family(Visit&& visit) {
  for (const HostLayout layout : kLayouts)
    for (const DType dtype : {DType::bf16, DType::int8})
      for (const Family& family : all_families({.num_layers = 3, .page_size = 4, .dtype = dtype})) {
        SCOPED_TRACE(family.name + ", " + std::string(to_string(layout)));
        visit(layout, family.geometry);
      }
}

TEST(HostPool, IsSizedByARatioOfTheDevicesPages) {
  const TestPool device(PoolKind::layer_first, mha(), 11);
  for (const auto& [ratio, pages] :
       std::vector<std::pair<double, std::size_t>>{{1, 10}, {2.5, 25}, {0.25, 2}, {0.1, 1}}) {
    CanaryArena arena;
    const auto pool =
        *HostPool::create({.ratio = ratio, .keep_free_bytes = 0}, *device.pool, arena);
    EXPECT_EQ(pool->num_pages(), pages);
    EXPECT_EQ(pool->available_pages(), pages);
    EXPECT_EQ(pool->count(idle), pages);
    EXPECT_EQ(pool->size_bytes(), pages * mha().page_bytes());
    EXPECT_EQ(pool->geometry(), mha());
    EXPECT_EQ(pool->layout(), HostLayout::layer_first);
    EXPECT_TRUE(pool->check().ok());
  }
}

TEST(HostPool, IsSizedByBytesInWholePages) {
  const TestPool device(PoolKind::layer_first, mha(), 11);
  CanaryArena arena;
  for (const std::size_t more : {std::size_t{0}, mha().page_bytes() - 1}) {
    const auto pool = *HostPool::create(
        {.size_bytes = 3 * mha().page_bytes() + more, .keep_free_bytes = 0}, *device.pool, arena);
    EXPECT_EQ(pool->num_pages(), 3u);
    EXPECT_EQ(pool->size_bytes(), 3 * mha().page_bytes());
  }
}

TEST(HostPool, RefusesSizesThatCannotBe) {
  const TestPool device(PoolKind::layer_first, mha(), 11);
  FailingArena arena({});
  const auto refused = [&](std::optional<double> ratio, std::optional<std::size_t> size_bytes,
                           std::string_view message) {
    const HostPoolOptions options{.ratio = ratio, .size_bytes = size_bytes, .keep_free_bytes = 0};
    return fails(HostPool::create(options, *device.pool, arena), kInvalid, message);
  };
  using Limits = std::numeric_limits<double>;
  EXPECT_TRUE(refused({}, {}, "either a ratio or a size"));
  EXPECT_TRUE(refused(1, 1 << 20, "either a ratio or a size"));
  for (const double ratio : {0.0, -1.0, Limits::quiet_NaN(), Limits::infinity()})
    EXPECT_TRUE(refused(ratio, {}, "expected above 0")) << ratio;
  EXPECT_TRUE(refused(0.09, {}, "host pool: 0 pages of"));
  EXPECT_TRUE(refused({}, 0, "host pool: 0 pages of"));
  EXPECT_TRUE(refused({}, mha().page_bytes() - 1, "host pool: 0 pages of"));
  EXPECT_TRUE(refused(1e300, {}, "expected 1 to 2^32"));
  EXPECT_TRUE(refused({}, SIZE_MAX, "expected 1 to 2^32"));
  EXPECT_EQ(arena.num_asked(), 0u);
}

TEST(HostPool, RefusesMoreThanMemoryCanBe) {
  alignas(4)
      std::byte nowhere{};  // a device pool over an engine's buffers, which nobody touches here
  const Geometry wide = state_geometry(1, {{"row", 1u << 16, 1u << 16, DType::fp32}});
  const std::size_t num_pages = std::size_t{1} << 32;
  const auto device = *KvPool::adopt(wide, num_pages, {{{&nowhere}, 4, 4, 4}}, MemoryKind::host);
  FailingArena arena({});
  EXPECT_TRUE(fails(HostPool::create({.ratio = 1}, *device, arena), ErrorCode::out_of_capacity,
                    "4294967295 pages of 17179869184 bytes (16.0 GiB) are more than memory can"));
  EXPECT_EQ(arena.num_asked(), 0u);
}

TEST(HostPool, KeepsAsMuchMemoryFreeAsItIsTold) {
  const TestPool device(PoolKind::layer_first, mha(), 11);
  const std::size_t needed = 10 * mha().page_bytes();
  FailingArena arena({}, needed + 100);
  HostPoolOptions options{.ratio = 1, .keep_free_bytes = 101};
  const auto refused = HostPool::create(options, *device.pool, arena);
  EXPECT_TRUE(fails(refused, ErrorCode::out_of_capacity, "host pool of 10 pages (layers 0+3"));
  EXPECT_TRUE(fails(refused, ErrorCode::out_of_capacity, "needs " + std::to_string(needed)));
  EXPECT_TRUE(fails(refused, ErrorCode::out_of_capacity, "101 bytes of it must stay free"));
  EXPECT_EQ(arena.num_asked(), 0u);
  options.keep_free_bytes = 100;
  EXPECT_TRUE(HostPool::create(options, *device.pool, arena).ok());
}

TEST(HostPool, TakesMemoryOfTheHostAlone) {
  const TestPool device(PoolKind::layer_first, mha(), 11);
  const HostPoolOptions options{.ratio = 0.1, .keep_free_bytes = 0};
  alignas(4096) static std::byte memory[8192];
  ASSERT_LE(mha().page_bytes(), sizeof(memory));
  const auto cuda = make_user_arena(memory, MemoryKind::cuda);
  EXPECT_TRUE(fails(HostPool::create(options, *device.pool, *cuda), kInvalid,
                    "arena \"user memory\" is a GPU's memory; expected the host's"));
  const auto pinned = make_user_arena(memory, MemoryKind::pinned);
  const auto pool = *HostPool::create(options, *device.pool, *pinned);
  EXPECT_EQ(pool->memory_kind(), MemoryKind::pinned);
  EXPECT_EQ(pool->planes()[0].layers[0], memory);
}

TEST(HostPool, AnArenaThatFailsLeavesNothingBehind) {
  const TestPool device(PoolKind::layer_first, mha(), 11);
  FailingArena arena(0);
  const HostPoolOptions options{.ratio = 1, .keep_free_bytes = 0};
  EXPECT_TRUE(fails(HostPool::create(options, *device.pool, arena), ErrorCode::out_of_capacity,
                    "host pool of 10 pages"));
  EXPECT_EQ(arena.live_blocks(), 0u);
  EXPECT_TRUE(HostPool::create(options, *device.pool, arena).ok()) << "the second time";
}

TEST(HostPool, PagesComeBackAsTheyWereLoaded) {
  for_each_layout_and_family([](HostLayout layout, const Geometry& geometry) {
    const TestHostPool host(geometry, 5, layout);
    ASSERT_EQ(host->page_bytes(), geometry.page_bytes());
    Pages pages(5);
    host->alloc(pages).value();
    host->protect_write(pages);
    for (const HostPageId page : pages)
      ASSERT_TRUE(host->load_page(page, random_bytes(host->page_bytes(), index_of(page))).ok());
    host->complete_write(pages);
    for (const HostPageId page : pages) {
      Bytes bytes(host->page_bytes());
      ASSERT_TRUE(host->page_bytes(page, bytes).ok());
      EXPECT_EQ(bytes, random_bytes(bytes.size(), index_of(page)));
    }
  });
}

/// Where a head is in the flat bytes of a page's share of its plane, in units of a head.
std::size_t flat_index(HostLayout layout, const Geometry& g, std::size_t heads, std::size_t layer,
                       std::size_t token, std::size_t head) {
  if (layout == HostLayout::page_first) return (token * g.num_layers + layer) * heads + head;
  if (layout == HostLayout::page_head) return (head * g.page_size + token) * g.num_layers + layer;
  return (layer * g.page_size + token) * heads + head;  // layer_first and page_first_direct
}

TEST(HostPool, FlatPagesArePlanesInTheOrderOfTheLayout) {
  for_each_layout_and_family([](HostLayout layout, const Geometry& g) {
    const TestHostPool host(g, 3, layout);
    host.page_in(reserved);
    const HostPageId page = host.page_in(writing);
    const Bytes flat = random_bytes(g.page_bytes(), 3);
    ASSERT_TRUE(host->load_page(page, flat).ok());
    std::size_t begin = 0;
    for (std::size_t i = 0; i < g.planes.size(); ++i) {
      const std::size_t size = g.planes[i].head_bytes(), heads = g.planes[i].heads;
      for (std::size_t layer = 0; layer < g.num_layers; ++layer)
        for (std::size_t token = 0; token < g.page_size; ++token)
          for (std::size_t head = 0; head < heads; ++head) {
            const std::size_t slot = index_of(page) * g.page_size + token;
            const std::byte* stored =
                row_address(host->planes()[i], g.page_size, layer, slot, head);
            const std::size_t index = flat_index(layout, g, heads, layer, token, head);
            ASSERT_EQ(std::memcmp(stored, flat.data() + begin + index * size, size), 0);
          }
      begin += g.page_bytes(g.planes[i]);
    }
  });
}

TEST(HostPool, RegionsOfAPageAreItsBytesWhereTheyAre) {
  for_each_layout_and_family([](HostLayout layout, const Geometry& geometry) {
    const TestHostPool host(geometry, 3, layout);
    for (std::size_t i = 0; i < 3; ++i) {
      const HostPageId page = host.page_in(synced);
      const std::vector<MemoryRegion> regions = *host->page_regions(page);
      const bool in_one_piece = layout != HostLayout::layer_first;
      EXPECT_EQ(host->pages_are_contiguous(), in_one_piece);
      EXPECT_EQ(regions.size(), geometry.planes.size() * (in_one_piece ? 1 : 3));
      Bytes joined, flat(geometry.page_bytes());
      for (const MemoryRegion& region : regions) {
        EXPECT_EQ(region.item_bytes, region.size_bytes);
        joined.insert(joined.end(), region.address, region.address + region.size_bytes);
      }
      ASSERT_TRUE(host->page_bytes(page, flat).ok());
      EXPECT_EQ(joined, flat);
    }
  });
}

TEST(HostPool, PagesAreReadOnceTheyHoldKvAndWrittenWhileTheyAreFilled) {
  for (const PageState state : kStates) {
    SCOPED_TRACE(to_string(state));
    const TestHostPool host(mha());
    const HostPageId page = host.page_in(state);
    const Bytes before = random_bytes(mha().page_bytes(), 1),
                bytes = random_bytes(before.size(), 2);
    Bytes out = before;
    const Status read = host->page_bytes(page, out), written = host->load_page(page, bytes);
    const std::string is = "page 0 is " + std::string(to_string(state));
    if (state == idle || state == reserved || state == writing) {
      EXPECT_TRUE(fails(read, kInvalid, "page_bytes: " + is));
      EXPECT_EQ(out, before);
    } else {
      EXPECT_TRUE(read.ok());
    }
    if (state == writing)
      EXPECT_TRUE(written.ok());
    else
      EXPECT_TRUE(fails(written, kInvalid, "load_page: " + is));
    EXPECT_EQ(host->state(page), state);
  }
}

TEST(HostPool, RefusesPagesAndSizesItDoesNotHave) {
  const TestHostPool host(mha());
  const HostPageId readable = host.page_in(synced), writable = host.page_in(writing);
  Bytes bytes(mha().page_bytes());
  for (const std::uint32_t page : {5u, UINT32_MAX}) {
    const std::string message = "no page " + std::to_string(page) + "; it has 5";
    EXPECT_TRUE(fails(host->page_regions(HostPageId{page}), kInvalid, message));
    EXPECT_TRUE(fails(host->page_bytes(HostPageId{page}, bytes), kInvalid, message));
    EXPECT_TRUE(fails(host->load_page(HostPageId{page}, bytes), kInvalid, message));
  }
  const std::string expected = "expected exactly " + std::to_string(bytes.size());
  for (const std::size_t size : {std::size_t{0}, bytes.size() - 1, bytes.size() + 1}) {
    Bytes wrong(size);
    EXPECT_TRUE(fails(host->page_bytes(readable, wrong), kInvalid, expected));
    EXPECT_TRUE(fails(host->load_page(writable, wrong), kInvalid, expected));
  }
}

TEST(HostPool, EveryOperationOnStatesArrives) {
  const TestHostPool host(mha());
  Pages pages(2);
  ASSERT_TRUE(host->alloc(pages).ok());
  EXPECT_EQ(pages, (Pages{HostPageId{0}, HostPageId{1}}));
  const auto now = [&](PageState state) {
    return host->count(state) == 2 && host->state(pages[1]) == state && host->check().ok();
  };
  EXPECT_TRUE(now(reserved));
  EXPECT_EQ(host->available_pages(), 3u);
  host->protect_write(pages);
  EXPECT_TRUE(now(writing));
  EXPECT_TRUE(fails(host->clear(), ErrorCode::in_use, "2 are writing"));
  host->abort_write(pages);
  EXPECT_TRUE(now(reserved));
  host->protect_write(pages);
  host->complete_write(pages);
  EXPECT_TRUE(now(synced));
  host->device_gone(pages);
  EXPECT_TRUE(now(backed_up));
  host->device_came(pages);
  EXPECT_TRUE(now(synced));
  host->device_gone(pages);
  host->protect_load(pages);
  EXPECT_TRUE(now(loading));
  host->abort_load(pages);
  EXPECT_TRUE(now(backed_up));
  host->protect_load(pages);
  host->complete_load(pages);
  EXPECT_TRUE(now(synced));
  host->free(pages);
  EXPECT_EQ(host->available_pages(), 5u);
  EXPECT_EQ(host.page_in(backed_up), HostPageId{0});
  EXPECT_EQ(host->count(backed_up), 1u);
  Pages too_many(5);
  EXPECT_TRUE(fails(host->alloc(too_many), ErrorCode::out_of_capacity, "4 of 5 are free"));
  EXPECT_TRUE(host->clear().ok());
  EXPECT_EQ(host->count(idle), 5u);
}

TEST(HostPoolDeathTest, MisuseNamesThePageOrTheTransfers) {
  const TestHostPool host(mha());
  const Pages page = {host.page_in(reserved)};
  EXPECT_DEATH(host->complete_load(page), "complete_load of host page 0: it is reserved");
  EXPECT_DEATH((void)host->state(HostPageId{5}), "page 5: outside \\[0, 5\\)");
  const PoolUse use(*host.pool);
  EXPECT_DEATH(host->~HostPool(), "host pool destroyed while 1 transfers use it");
}

}  // namespace
}  // namespace pando::testing
