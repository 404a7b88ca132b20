// SPDX-License-Identifier: Apache-2.0
// KvPool as its reader sees it: how large it is, what it refuses before it takes memory, views and
// regions, engines' own buffers, and the gate that loads close. Writing is in kv_pool_rows_test.cc.
#include "pando/pools.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <map>
#include <semaphore>

#include "pool/pool_use.h"
#include "support/pool_fixture.h"

namespace pando::testing {
namespace {

constexpr LayerRange kLayers{.num_layers = 3, .first_layer = 5, .page_size = 4};
constexpr DeviceLayout kLayouts[] = {DeviceLayout::layer_first, DeviceLayout::page_major};

Geometry mha() {
  return mha_geometry({.layers = kLayers, .heads = 3, .head_dim = 4, .value_dim = 12});
}
Geometry mla() { return mla_geometry({.layers = kLayers, .nope_dim = 20, .rope_dim = 8}); }

using Numbers = std::vector<std::int64_t>;
Numbers shape_of(const TensorView& view) {
  return {view.shape.begin(), view.shape.begin() + static_cast<std::ptrdiff_t>(view.rank)};
}
Numbers strides_of(const TensorView& view) {
  return {view.strides.begin(), view.strides.begin() + static_cast<std::ptrdiff_t>(view.rank)};
}

constexpr std::chrono::seconds kPatience{20};  // what is waited for longer will never come

/// A load whose layers arrive, or will never, when the test says so.
class FakeLoad final : public LayerSignal {
 public:
  Status wait_layer(std::size_t layer) override {
    asked.push_back(layer);
    num_asked.release();
    auto future = arrived[layer].get_future();
    if (future.wait_for(kPatience) == std::future_status::ready) return future.get();
    return Error{ErrorCode::unavailable, "nobody let this layer arrive"};
  }
  Status wait_layer_on(std::size_t layer, void* stream) override {
    streams.push_back(stream);
    return wait_layer(layer);
  }
  bool done() const override { return is_done; }

  std::array<std::promise<Status>, 3> arrived;
  std::vector<std::size_t> asked;
  std::vector<void*> streams;
  std::counting_semaphore<> num_asked{0};
  std::atomic<bool> is_done = false;
};

TEST(KvPool, CapacityIsRoundedDownAndThePaddingPageComesOnTop) {
  CanaryArena arena;
  for (const auto& [tokens, pages] :
       std::map<std::size_t, std::size_t>{{4, 2}, {7, 2}, {8, 3}, {403, 101}}) {
    const auto pool = *KvPool::create({.geometry = mha(), .capacity_tokens = tokens}, arena);
    EXPECT_EQ(pool->num_pages(), pages);
    EXPECT_EQ(pool->size_bytes(), pages * 4 * (3 * 3 * (4 + 12) * 2));
    EXPECT_EQ(pool->geometry(), mha());
    EXPECT_EQ(pool->memory_kind(), MemoryKind::host);
    EXPECT_EQ(arena.live_blocks(), 1u);
  }
  EXPECT_EQ(arena.live_blocks(), 0u);
}

TEST(KvPool, ThePaddingPageStartsAsZeros) {
  for (const DeviceLayout layout : kLayouts) {
    for (const Family& family : all_families(kLayers)) {
      CanaryArena arena;  // whose blocks are not zeros
      const PoolOptions options{
          .geometry = family.geometry, .capacity_tokens = 8, .layout = layout};
      const auto pool = *KvPool::create(options, arena);
      const Image image = image_of(*pool);
      for (std::size_t slot = 0; slot < family.geometry.page_size; ++slot)
        EXPECT_EQ(image[slot], Bytes(family.geometry.token_bytes())) << family.name;
    }
  }
}

TEST(KvPool, RefusesSizesThatCannotBe) {
  FailingArena arena({});
  const auto create = [&](const Geometry& geometry, std::size_t tokens) {
    return KvPool::create({.geometry = geometry, .capacity_tokens = tokens}, arena);
  };
  EXPECT_TRUE(fails(create({}, 64), ErrorCode::invalid_argument, "0 planes"));
  EXPECT_TRUE(fails(create(mha(), 3), ErrorCode::invalid_argument, "3 tokens are 0 pages of 4"));
  EXPECT_TRUE(fails(create(mha(), std::size_t{4} << 32), ErrorCode::invalid_argument,
                    "4294967296 pages of 4; expected 1 to 2^32 - 1"));
  const Geometry wide = state_geometry(1, {{"row", 1u << 20, 1u << 20, DType::fp32}});
  EXPECT_TRUE(fails(create(wide, std::size_t{1} << 30), ErrorCode::out_of_capacity,
                    "1073741825 pages of 4398046511104 bytes are more than memory can be"));
  EXPECT_EQ(arena.num_asked(), 0u);
}

TEST(KvPool, RefusesAGeometryWhoseSizesOverflow) {
  FailingArena arena({});
  const Geometry absurd =
      state_geometry(1, {{"row", 1u << 31, 1u << 31, DType::fp32}, {"more", 1, 64}});
  EXPECT_FALSE(KvPool::create({.geometry = absurd, .capacity_tokens = 2}, arena).ok());
  EXPECT_EQ(arena.num_asked(), 0u);
}

TEST(KvPool, RefusesAPoolThatDoesNotFitWithItsSizes) {
  for (const DeviceLayout layout : kLayouts) {
    const PoolOptions options{.geometry = mha(), .capacity_tokens = 36, .layout = layout};
    const std::size_t needed = *placed_bytes(mha(), layout, 10);
    FailingArena small({}, needed - 1);
    const auto refused = KvPool::create(options, small);
    const auto bytes = [](std::size_t n) { return std::to_string(n) + " bytes ("; };
    EXPECT_TRUE(fails(refused, ErrorCode::out_of_capacity, "kv pool of 10 pages (layers 5+3"));
    EXPECT_TRUE(fails(refused, ErrorCode::out_of_capacity, "needs " + bytes(needed)));
    EXPECT_TRUE(fails(refused, ErrorCode::out_of_capacity,
                      "from arena \"failing\", which has " + bytes(needed - 1)));
    EXPECT_EQ(small.num_asked(), 0u);
    FailingArena exact({}, needed);
    EXPECT_TRUE(KvPool::create(options, exact).ok());
  }
}

TEST(KvPool, AnArenaThatFailsLeavesNothingBehind) {
  FailingArena arena(0);
  const PoolOptions options{.geometry = mha(), .capacity_tokens = 8};
  EXPECT_TRUE(fails(KvPool::create(options, arena), ErrorCode::out_of_capacity,
                    "kv pool of 3 pages (layers 5+3"));
  EXPECT_EQ(arena.live_blocks(), 0u);
  EXPECT_TRUE(KvPool::create(options, arena).ok()) << "the second allocation succeeds";
  EXPECT_EQ(arena.num_asked(), 2u);
}

TEST(KvPool, ViewsOfALayerFirstPoolAreRowsBySlot) {
  const TestPool pool(PoolKind::layer_first, mha(), 6);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const TensorView key = *pool->key(5 + layer);
    EXPECT_EQ(key.data, pool->planes()[0].layers[layer]);
    EXPECT_EQ(key.dtype, DType::bf16);
    EXPECT_EQ(shape_of(key), (Numbers{24, 3, 4}));
    EXPECT_EQ(strides_of(key), (Numbers{24, 8, 2}));
    const TensorView value = *pool->value(5 + layer);
    EXPECT_EQ(value.data, pool->planes()[1].layers[layer]);
    EXPECT_EQ(shape_of(value), (Numbers{24, 3, 12}));
    EXPECT_EQ(strides_of(value), (Numbers{72, 24, 2}));
  }
}

TEST(KvPool, ViewsOfAPageMajorPoolHavePages) {
  const TestPool pool(PoolKind::page_major, mha(), 6);
  const TensorView value = *pool->view(7, 1);
  EXPECT_EQ(shape_of(value), (Numbers{6, 4, 3, 12}));
  EXPECT_EQ(strides_of(value), (Numbers{288, 72, 24, 2}));
  EXPECT_EQ(value.data, pool->planes()[1].layers[2]);
}

TEST(KvPool, TheValueOfALatentIsItsFirstPart) {
  for (const PoolKind kind : kPoolKinds) {
    const TestPool pool(kind, mla(), 6);
    const TensorView key = *pool->key(6), value = *pool->value(6);
    EXPECT_EQ(shape_of(key).back(), 28);
    EXPECT_EQ(shape_of(value).back(), 20);
    EXPECT_EQ(value.data, key.data);
    EXPECT_EQ(strides_of(value), strides_of(key));
  }
}

TEST(KvPool, RefusesLayersAndPlanesItDoesNotHave) {
  const TestPool pool(PoolKind::layer_first, mha(), 2);
  for (const std::size_t layer : {std::size_t{0}, std::size_t{4}, std::size_t{8}, SIZE_MAX}) {
    const std::string message = "no layer " + std::to_string(layer) + "; it has [5, 8)";
    for (const auto& view : {pool->view(layer, 0), pool->key(layer), pool->value(layer)})
      EXPECT_TRUE(fails(view, ErrorCode::invalid_argument, message));
    EXPECT_TRUE(fails(pool->wait_layer(layer), ErrorCode::invalid_argument, message));
    EXPECT_TRUE(fails(pool->wait_layer_on(layer, nullptr), ErrorCode::invalid_argument, message));
  }
  EXPECT_TRUE(fails(pool->view(5, 2), ErrorCode::invalid_argument, "no plane 2; it has 2: layers"));
  const TestPool state(PoolKind::layer_first, state_geometry(1, {{"row", 1, 4}}), 2);
  EXPECT_TRUE(fails(state->value(0), ErrorCode::invalid_argument, "no plane 1"));
}

TEST(KvPool, RegionsCoverEveryPlaneAndLayer) {
  for (const Family& family : all_families(kLayers)) {
    for (const PoolKind kind : {PoolKind::layer_first, PoolKind::page_major}) {
      SCOPED_TRACE(family.name);
      const TestPool pool(kind, family.geometry, 6);
      const std::vector<MemoryRegion> regions = pool->regions();
      ASSERT_EQ(regions.size(), family.geometry.planes.size() * 3);
      std::size_t total = 0;
      for (std::size_t i = 0; i < regions.size(); ++i) {
        const std::size_t row = family.geometry.planes[i / 3].row_bytes();
        const std::size_t page = row * family.geometry.page_size;
        EXPECT_EQ(regions[i].address, pool->planes()[i / 3].layers[i % 3]);
        EXPECT_EQ(regions[i].size_bytes, 6 * page);
        EXPECT_EQ(regions[i].item_bytes, kind == PoolKind::page_major ? page : row);
        total += regions[i].size_bytes;
      }
      EXPECT_EQ(total, pool->size_bytes());
    }
  }
}

TEST(KvPool, RowsAreAlignedToTheirElementsInEveryLayout) {
  const Geometry odd =
      dsa_geometry({.mla = {.layers = {.num_layers = 3}, .nope_dim = 2, .rope_dim = 1},
                    .index_dim = 3,
                    .index_scale = true});
  for (const DeviceLayout layout : kLayouts) {
    CanaryArena arena;
    const auto pool =
        KvPool::create({.geometry = odd, .capacity_tokens = 8, .layout = layout}, arena);
    if (!pool) continue;  // a layout may refuse such a geometry instead
    for (std::size_t i = 0; i < odd.planes.size(); ++i)
      for (const std::byte* layer : (*pool)->planes()[i].layers)
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(layer) % size_of(odd.planes[i].dtype), 0u)
            << odd.planes[i].name << (layout == DeviceLayout::page_major ? " by page" : "");
  }
}

TEST(KvPool, AdoptsBuffersOfAnyStrides) {
  // A buffer per layer, pages 10 bytes further apart than their 4 tokens, which are 40 apart.
  const Geometry geometry = mla_geometry({.layers = kLayers, .nope_dim = 12, .rope_dim = 4});
  std::vector<Bytes> buffers(3, Bytes(6 * 170));
  PlaneMemory memory{.page_stride = 170, .token_stride = 40, .head_stride = 32};
  for (Bytes& buffer : buffers) memory.layers.push_back(buffer.data());
  const auto pool = *KvPool::adopt(geometry, 6, {memory}, MemoryKind::pinned);
  EXPECT_EQ(pool->num_pages(), 6u);
  EXPECT_EQ(pool->size_bytes(), 6 * geometry.page_bytes());
  EXPECT_EQ(pool->memory_kind(), MemoryKind::pinned);
  EXPECT_TRUE(pool->regions().empty());
  const TensorView view = *pool->view(7, 0);
  EXPECT_EQ(view.data, buffers[2].data());
  EXPECT_EQ(shape_of(view), (Numbers{6, 4, 1, 16}));
  EXPECT_EQ(strides_of(view), (Numbers{170, 40, 32, 2}));
}

TEST(KvPool, AdoptRefusesWhatDoesNotMatchTheGeometry) {
  Bytes bytes(6 * mla().page_bytes());
  const auto planes = place(mla(), HostLayout::page_first, 6, bytes.data());
  const auto adopt = [&](const Geometry& geometry, std::size_t num_pages,
                         std::vector<PlaneMemory> memory, MemoryKind kind = MemoryKind::host) {
    return KvPool::adopt(geometry, num_pages, std::move(memory), kind);
  };
  constexpr auto kInvalid = ErrorCode::invalid_argument;
  EXPECT_TRUE(adopt(mla(), 6, planes).ok());
  EXPECT_TRUE(fails(adopt({}, 6, planes), kInvalid, "0 planes"));
  EXPECT_TRUE(fails(adopt(mla(), 6, {}), kInvalid, "0 planes of memory are given"));
  EXPECT_TRUE(fails(adopt(mha(), 6, planes), kInvalid, "1 planes of memory are given; the"));
  EXPECT_TRUE(fails(adopt(mla(), 1, planes), kInvalid, "1 pages, the padding page included"));
  EXPECT_TRUE(fails(adopt(mla(), (std::size_t{1} << 32) + 1, planes), kInvalid, "4294967297"));
  auto spoilt = planes;
  spoilt[0].layers.pop_back();
  EXPECT_TRUE(fails(adopt(mla(), 6, spoilt), kInvalid, "'latent' has memory for 2 layers"));
  spoilt[0].layers.push_back(nullptr);
  EXPECT_TRUE(fails(adopt(mla(), 6, spoilt), kInvalid,
                    "'latent' has a layer at 0x0; expected memory aligned to 2"));
}

TEST(KvPool, AdoptRefusesMemoryThatElementsCannotLieIn) {
  Bytes bytes(6 * mla().page_bytes() + 64);
  auto planes = place(mla(), HostLayout::page_first, 6, bytes.data());
  for (std::byte*& layer : planes[0].layers) ++layer;  // of bf16
  EXPECT_FALSE(KvPool::adopt(mla(), 6, planes, MemoryKind::host).ok());
  planes = place(mla(), HostLayout::page_first, 6, bytes.data());
  ++planes[0].page_stride;
  EXPECT_FALSE(KvPool::adopt(mla(), 6, planes, MemoryKind::host).ok());
}

TEST(KvPoolGate, AViewWaitsForItsOwnLayerAlone) {
  const TestPool pool(PoolKind::layer_first, mha(), 2);
  const auto load = std::make_shared<FakeLoad>();
  pool->gate(load);
  load->arrived[2].set_value({});
  EXPECT_TRUE(pool->view(7, 1).ok()) << "layers 0 and 1 have not arrived";
  ASSERT_TRUE(load->num_asked.try_acquire_for(kPatience));
  auto reader = std::async(std::launch::async, [&] { return pool->key(5).ok(); });
  ASSERT_TRUE(load->num_asked.try_acquire_for(kPatience)) << "the reader did not get here";
  const auto before = reader.wait_for(std::chrono::seconds(0));
  load->arrived[0].set_value({});
  EXPECT_TRUE(reader.get());
  EXPECT_EQ(before, std::future_status::timeout);
  EXPECT_EQ(load->asked, (std::vector<std::size_t>{2, 0}));
}

TEST(KvPoolGate, WaitingOnAStreamIsPassedOn) {
  const TestPool pool(PoolKind::layer_first, mha(), 2);
  const auto load = std::make_shared<FakeLoad>();
  pool->gate(load);
  load->arrived[1].set_value({});
  int stream = 0;
  EXPECT_TRUE(pool->wait_layer_on(6, &stream).ok());
  EXPECT_EQ(load->asked, std::vector<std::size_t>{1});
  EXPECT_EQ(load->streams, std::vector<void*>{&stream});
}

TEST(KvPoolGate, AFailedLoadMakesReadsErrorsUntilTheGateIsOpened) {
  const TestPool pool(PoolKind::layer_first, mha(), 2);
  for (std::size_t attempt = 0; attempt < 2; ++attempt) {
    const auto load = std::make_shared<FakeLoad>();
    pool->gate(load);
    for (auto& layer : load->arrived)
      layer.set_value(Error{ErrorCode::unavailable, "the load was cancelled"});
    EXPECT_TRUE(fails(pool->key(5), ErrorCode::unavailable, "the load was cancelled"));
    EXPECT_TRUE(fails(pool->value(6), ErrorCode::unavailable, "the load was cancelled"));
    EXPECT_TRUE(fails(pool->wait_layer(7), ErrorCode::unavailable, "the load was cancelled"));
    pool->open_gate();
    EXPECT_TRUE(pool->key(5).ok());
    EXPECT_EQ(load->asked, (std::vector<std::size_t>{0, 1, 2}));
    EXPECT_EQ(load.use_count(), 1);
  }
}

TEST(KvPoolGate, ReadsWaitForEveryLoadAndForgetThoseThatAreDone) {
  const TestPool pool(PoolKind::layer_first, mha(), 2);
  const auto first = std::make_shared<FakeLoad>(), second = std::make_shared<FakeLoad>();
  pool->gate(first);
  pool->gate(second);
  for (const auto& load : {first, second}) load->arrived[0].set_value({});
  EXPECT_TRUE(pool->key(5).ok());
  EXPECT_EQ(first->asked.size(), 1u);
  EXPECT_EQ(second->asked.size(), 1u);
  first->is_done = true;
  second->arrived[1].set_value({});
  EXPECT_TRUE(pool->key(6).ok());
  EXPECT_EQ(first->asked.size(), 1u) << "done: not asked again";
  EXPECT_EQ(first.use_count(), 1);
  second->is_done = true;
  pool->gate(first);  // closing drops those that are done as well
  EXPECT_EQ(second.use_count(), 1);
}

TEST(KvPoolDeathTest, StopsWhenItGoesWhileATransferUsesIt) {
  const TestPool pool(PoolKind::adopted, mla(), 2);
  const PoolUse use(*pool.pool);
  EXPECT_DEATH(pool->~KvPool(), "kv pool destroyed while 1 transfers use it");
}

}  // namespace
}  // namespace pando::testing
