// SPDX-License-Identifier: Apache-2.0
// WindowPool over a real WindowAllocator: which layer is where, which slot a row of a window layer
// goes to, and what is refused before memory is taken.
#include "pando/pools.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "support/pool_fixture.h"

namespace pando::testing {
namespace {

constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
constexpr std::size_t kPageSize = 4;
constexpr std::size_t kFullTokens = 40;
constexpr std::size_t kWindowTokens = 16;

using Layers = std::vector<std::size_t>;

WindowPoolOptions options_of(Layers full, Layers window) {
  return {.geometry =
              mha_geometry({.layers = {.num_layers = 99, .first_layer = 9, .page_size = kPageSize},
                            .heads = 2,
                            .head_dim = 6}),
          .full_layers = std::move(full),
          .window_layers = std::move(window)};
}

/// Bytes of one side with so many layers.
std::size_t side_bytes(std::size_t num_layers, std::size_t num_tokens) {
  Geometry geometry = options_of({}, {}).geometry;
  geometry.num_layers = num_layers;
  return *placed_bytes(geometry, DeviceLayout::layer_first, num_tokens / kPageSize + 1);
}

class WindowPoolTest : public ::testing::Test {
 protected:
  /// A pool whose rows are all zeros.
  std::unique_ptr<WindowPool> make(const WindowPoolOptions& options) {
    auto pool = *WindowPool::create(options, *slots_, arena_);
    for (const MemoryRegion& region : pool->regions())
      std::memset(region.address, 0, region.size_bytes);
    return pool;
  }
  Slots take(std::size_t num_tokens) {
    Slots out(num_tokens);
    slots_->alloc(out).value();
    return out;
  }
  Slots window_of(const Slots& full) const {
    Slots out(full.size());
    slots_->translate(full, out);
    return out;
  }
  /// Row i of the key and of the value, for each of n slots.
  std::array<Rows, 2> rows() const {
    return {Rows{.data = data_.data()}, Rows{.data = data_.data() + data_.size() / 2}};
  }
  /// Does to an image what a set of rows() does to the pool.
  void set_naively(Image& image, const Geometry& geometry, std::size_t layer,
                   const Slots& slots) const {
    const std::size_t row = geometry.planes[0].row_bytes();
    for (std::size_t i = 0; i < slots.size(); ++i)
      for (std::size_t plane = 0; plane < 2; ++plane)
        std::memcpy(at(image, slots[i]).data() + row_offset(geometry, plane, layer),
                    static_cast<const std::byte*>(rows()[plane].data) + i * row, row);
  }

  CanaryArena arena_;
  const Bytes data_ = random_bytes(4096, 11);
  const std::unique_ptr<WindowAllocator> slots_ = *WindowAllocator::create(
      {.full_tokens = kFullTokens, .window_tokens = kWindowTokens, .page_size = kPageSize});
};

TEST_F(WindowPoolTest, EachSideIsSizedAsTheAllocatorsAndNumbersItsLayersAnew) {
  const auto pool = make(options_of({0, 7}, {3, 1, 2}));
  EXPECT_EQ(pool->full()->num_pages(), kFullTokens / kPageSize + 1);
  EXPECT_EQ(pool->full()->geometry().num_layers, 2u);
  EXPECT_EQ(pool->window()->num_pages(), kWindowTokens / kPageSize + 1);
  EXPECT_EQ(pool->window()->geometry().num_layers, 3u);
  EXPECT_EQ(pool->size_bytes(), pool->full()->size_bytes() + pool->window()->size_bytes());
  EXPECT_EQ(pool->size_bytes(), (44u * 2 + 20u * 3) * 48);
}

TEST_F(WindowPoolTest, ALayerIdLeadsToItsPool) {
  const auto pool = make(options_of({0, 7}, {3, 1, 2}));
  const std::vector<std::pair<KvPool*, Layers>> sides = {{pool->full(), {0, 7}},
                                                         {pool->window(), {3, 1, 2}}};
  for (const auto& [side, layers] : sides)
    for (std::size_t i = 0; i < layers.size(); ++i) {
      EXPECT_EQ(pool->key(layers[i])->data, side->planes()[0].layers[i]);
      EXPECT_EQ(pool->value(layers[i])->data, side->planes()[1].layers[i]);
      EXPECT_EQ(pool->key(layers[i])->shape, side->key(i)->shape);
    }
  for (const std::size_t layer : {std::size_t{4}, std::size_t{8}, SIZE_MAX}) {
    const std::string message = "no layer " + std::to_string(layer);
    EXPECT_TRUE(fails(pool->key(layer), kInvalid, message));
    EXPECT_TRUE(fails(pool->value(layer), kInvalid, message));
    EXPECT_TRUE(fails(pool->set(layer, take(4), rows()), kInvalid, message));
  }
}

TEST_F(WindowPoolTest, RegionsAreThoseOfBothSides) {
  const auto pool = make(options_of({0, 7}, {3, 1, 2}));
  const auto regions = pool->regions(), full = pool->full()->regions();
  ASSERT_EQ(regions.size(), 2u * 5);
  EXPECT_EQ(regions.front().address, full.front().address);
  EXPECT_EQ(regions[full.size()].address, pool->window()->regions().front().address);
}

TEST_F(WindowPoolTest, RowsAreWrittenAtFullSlotsOrTheirWindowSlots) {
  const auto pool = make(options_of({0, 7}, {3, 1}));
  take(8);
  slots_->free(slot_range(4, 8));  // so that full and window pages have different numbers
  slots_->free_window(slot_range(8, 12));
  Slots slots = take(12);
  std::reverse(slots.begin() + 2, slots.end());
  ASSERT_NE(window_of(slots), slots);
  Image full = image_of(*pool->full()), window = image_of(*pool->window());
  set_naively(full, pool->full()->geometry(), 1, slots);
  set_naively(window, pool->window()->geometry(), 0, window_of(slots));
  ASSERT_TRUE(pool->set(7, slots, rows()).ok());
  ASSERT_TRUE(pool->set(3, slots, rows()).ok());
  EXPECT_EQ(image_of(*pool->full()), full);
  EXPECT_EQ(image_of(*pool->window()), window);
}

TEST_F(WindowPoolTest, RowsOfSlotsWithoutAWindowGoToThePaddingSlot) {
  const auto pool = make(options_of({0}, {1}));
  const Slots slots = take(8);
  slots_->free_window(slot_range(4, 8));
  ASSERT_EQ(window_of(slots)[3], SlotId{0});
  Image window = image_of(*pool->window());
  set_naively(window, pool->window()->geometry(), 0, window_of(slots));
  ASSERT_TRUE(pool->set(1, slots, rows()).ok());
  EXPECT_EQ(image_of(*pool->window()), window);
  EXPECT_EQ(window[1], Bytes(48)) << "one slot of the padding page is enough";
}

TEST_F(WindowPoolTest, RefusesSlotsThatTheAllocatorDoesNotHave) {
  const auto pool = make(options_of({0}, {1}));
  const Image full = image_of(*pool->full()), window = image_of(*pool->window());
  const Slots good = take(4);
  for (const std::int64_t slot : {std::int64_t{-1}, std::int64_t{44}, INT64_MAX, INT64_MIN}) {
    const std::string message = "slot " + std::to_string(slot) + " is not in [0, 44)";
    const Slots bad = {good[0], SlotId{slot}}, two = {good[1], good[2]};
    for (const std::size_t layer : {0u, 1u})
      EXPECT_TRUE(fails(pool->set(layer, bad, rows()), kInvalid, message));
    EXPECT_TRUE(fails(pool->move(two, bad), kInvalid, message));
    EXPECT_TRUE(fails(pool->move(bad, two), kInvalid, message));
  }
  EXPECT_TRUE(fails(pool->move(slot_range(4, 6), slot_range(6, 7)), kInvalid, "1 slots to 2"));
  EXPECT_EQ(image_of(*pool->full()), full);
  EXPECT_EQ(image_of(*pool->window()), window);
}

TEST_F(WindowPoolTest, MovesInBothKindsOfLayersWhereBothSlotsHaveAWindow) {
  const auto pool = make(options_of({0, 2}, {1}));
  const Slots slots = take(16);
  for (const std::size_t layer : {0u, 1u, 2u}) ASSERT_TRUE(pool->set(layer, slots, rows()).ok());
  slots_->free_window(slot_range(8, 12));  // page 2
  const Slots dst = {SlotId{4}, SlotId{5}, SlotId{9}, SlotId{16}};
  const Slots src = {SlotId{13}, SlotId{10}, SlotId{14}, SlotId{4}};
  const Slots window_dst = window_of(dst), window_src = window_of(src);
  const Image full = image_of(*pool->full()), window = image_of(*pool->window());
  Image full_after = full, window_after = window;
  for (std::size_t i = 0; i < dst.size(); ++i) {
    at(full_after, dst[i]) = at(full, src[i]);
    if (i == 0 || i == 3) at(window_after, window_dst[i]) = at(window, window_src[i]);
  }
  ASSERT_TRUE(pool->move(dst, src).ok());
  EXPECT_EQ(image_of(*pool->full()), full_after);
  EXPECT_EQ(image_of(*pool->window()), window_after);
  EXPECT_TRUE(fails(pool->move({{SlotId{4}, SlotId{4}}}, {{SlotId{5}, SlotId{6}}}), kInvalid,
                    "slot 4 is written twice"));
  EXPECT_TRUE(fails(pool->move({{SlotId{3}}}, {{SlotId{5}}}), kInvalid,
                    "move to slot 3, which is padding"));
  EXPECT_EQ(image_of(*pool->window()), window_after);
}

TEST_F(WindowPoolTest, ASideWithoutLayersHasNoPool) {
  const auto window_only = make(options_of({}, {1, 0}));
  EXPECT_EQ(window_only->full(), nullptr);
  EXPECT_EQ(window_only->size_bytes(), window_only->window()->size_bytes());
  EXPECT_EQ(window_only->regions().size(), 4u);
  const Slots slots = take(8);
  EXPECT_TRUE(window_only->set(0, slots, rows()).ok());
  EXPECT_TRUE(window_only->move({{slots[0]}}, {{slots[5]}}).ok());
  const Image image = image_of(*window_only->window());
  EXPECT_EQ(at(image, window_of(slots)[0]), at(image, window_of(slots)[5]));

  const auto full_only = make(options_of({1, 0}, {}));
  EXPECT_EQ(full_only->window(), nullptr);
  EXPECT_TRUE(full_only->set(0, slots, rows()).ok());
  EXPECT_TRUE(full_only->move({{slots[0]}}, {{slots[5]}}).ok());
  EXPECT_EQ(image_of(*full_only->full())[4], image_of(*full_only->full())[9]);
}

TEST_F(WindowPoolTest, RefusesOptionsThatDoNotMatch) {
  const auto create = [&](const WindowPoolOptions& options) {
    return WindowPool::create(options, *slots_, arena_);
  };
  EXPECT_TRUE(fails(create(options_of({}, {})), kInvalid, "no layers"));
  EXPECT_TRUE(fails(create(options_of({0, 1, 0}, {2})), kInvalid, "layer 0 is named twice"));
  EXPECT_TRUE(fails(create(options_of({0, 1}, {2, 2})), kInvalid, "layer 2 is named twice"));
  EXPECT_TRUE(fails(create(options_of({0, 1}, {2, 1})), kInvalid, "layer 1 is named twice"));
  WindowPoolOptions other = options_of({0}, {1});
  other.geometry.page_size = 8;
  EXPECT_TRUE(fails(create(other), kInvalid, "pages of 8 tokens; the allocator's have 4"));
  other = options_of({0}, {1});
  other.geometry.planes.clear();
  EXPECT_TRUE(fails(create(other), kInvalid, "0 planes"));
  EXPECT_EQ(arena_.live_blocks(), 0u);
}

TEST_F(WindowPoolTest, RefusesBeforeItAllocatesWhenOnlyOneSideFits) {
  const std::size_t both = side_bytes(2, kFullTokens) + side_bytes(3, kWindowTokens);
  const WindowPoolOptions options = options_of({0, 7}, {3, 1, 2});
  FailingArena enough({}, both);
  EXPECT_TRUE(WindowPool::create(options, *slots_, enough).ok());
  FailingArena half({}, side_bytes(2, kFullTokens) + 100);
  EXPECT_TRUE(fails(WindowPool::create(options, *slots_, half), ErrorCode::out_of_capacity,
                    "window pool of 40 full and 16 window tokens needs"));
  EXPECT_EQ(half.num_asked(), 0u);
}

TEST_F(WindowPoolTest, CountsGapsBetweenBuffersBeforeItAllocates) {
  FailingArena arena({}, side_bytes(2, kFullTokens) + side_bytes(3, kWindowTokens) - 1);
  EXPECT_FALSE(WindowPool::create(options_of({0, 7}, {3, 1, 2}), *slots_, arena).ok());
  EXPECT_EQ(arena.num_asked(), 0u);
}

TEST_F(WindowPoolTest, AnArenaThatFailsLeavesNothingBehind) {
  for (const std::size_t fail_at : {0u, 1u}) {
    FailingArena arena(fail_at);
    EXPECT_TRUE(fails(WindowPool::create(options_of({0}, {1}), *slots_, arena),
                      ErrorCode::out_of_capacity, "failed on purpose"));
    EXPECT_EQ(arena.num_asked(), fail_at + 1);
    EXPECT_EQ(arena.live_blocks(), 0u);
  }
}

}  // namespace
}  // namespace pando::testing
