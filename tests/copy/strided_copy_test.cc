// SPDX-License-Identifier: Apache-2.0
// copy_rows beside a loop over every head of every token, for memory as an engine may have it: any
// order of the dimensions, gaps after each of them, layers in buffers of their own, addresses of no
// alignment. All bytes of the destination are compared, those in the gaps too.
#include "pool/strided_copy.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "support/copy_pools.h"

namespace pando::testing {
namespace {

/// How the memory of one plane is made.
struct Style {
  bool any_order = false;     // of the dimensions; else layer, page, token, head
  bool layers_apart = false;  // in a buffer each
};

/// The memory of one plane on one side. Buffers keep their addresses when this is moved.
class PlaneBuffers {
 public:
  PlaneBuffers(const Geometry& geometry, const Plane& plane, std::size_t num_pages, Style style,
               Random& random)
      : page_size_(geometry.page_size) {
    enum { kLayer, kPage, kToken, kHead };
    const std::array<std::size_t, 4> extents{style.layers_apart ? 1 : geometry.num_layers,
                                             num_pages, page_size_, plane.heads};
    std::array<std::size_t, 4> strides{};
    // Most are 0, so that often only some of the dimensions are contiguous.
    const auto gap = [&] { return random.below(3) == 0 ? random.below(20) : 0; };
    auto order = shuffled(0, 4, random);
    if (!style.any_order) std::sort(order.begin(), order.end());
    std::size_t size = plane.head_bytes() + gap();
    for (std::size_t i = 4; i-- > 0;) {
      strides[order[i]] = size;
      size = size * extents[order[i]] + gap();
    }
    const std::size_t num_buffers = style.layers_apart ? geometry.num_layers : 1;
    for (std::size_t i = 0; i < num_buffers; ++i) {
      starts_.push_back(random.below(70));
      buffers.push_back(random_bytes(starts_[i] + size, random.next()));
    }
    layer_stride_ = strides[kLayer];
    memory = {.page_stride = strides[kPage],
              .token_stride = strides[kToken],
              .head_stride = strides[kHead]};
    for (std::size_t layer = 0; layer < geometry.num_layers; ++layer)
      memory.layers.push_back(at(buffers, layer, 0, 0));
  }

  /// A head in these buffers or in a copy of them.
  std::byte* at(std::vector<Bytes>& in, std::size_t layer, std::size_t slot,
                std::size_t head) const {
    const std::size_t within = slot / page_size_ * memory.page_stride +
                               slot % page_size_ * memory.token_stride + head * memory.head_stride;
    if (in.size() > 1) return in[layer].data() + starts_[layer] + within;
    return in[0].data() + starts_[0] + layer * layer_stride_ + within;
  }

  std::vector<Bytes> buffers;
  PlaneMemory memory;

 private:
  std::size_t page_size_;
  std::size_t layer_stride_ = 0;
  std::vector<std::size_t> starts_;
};

constexpr std::size_t kPages = 7;

Geometry random_geometry(Random& random) {
  Geometry geometry{.planes = {},
                    .num_layers = 1 + random.below(4),
                    .page_size = std::size_t{1} << random.below(4)};
  const std::size_t num_planes = 1 + random.below(3);
  const std::size_t longest = random.below(8) == 0 ? 3000 : 90;
  for (std::size_t i = 0; i < num_planes; ++i)
    geometry.planes.push_back({.name = std::to_string(i),
                               .heads = static_cast<std::uint32_t>(1 + random.below(4)),
                               .dim = static_cast<std::uint32_t>(1 + random.below(longest)),
                               .dtype = static_cast<DType>(random.below(6))});
  return geometry;
}

/// Runs of neighbours, in some order, that write no slot twice. In units of `tokens` slots.
std::vector<CopyItem> random_items(std::size_t num_units, std::size_t tokens, Random& random) {
  std::vector<CopyItem> items;
  std::set<std::uint64_t> written;
  const std::size_t num_runs = 1 + random.below(6);
  for (std::size_t run = 0; run < num_runs; ++run) {
    std::uint64_t dst = random.below(num_units);
    std::uint64_t src = random.below(num_units);
    const std::size_t length = 1 + random.below(6);
    for (std::size_t i = 0; i < length && dst < num_units && src < num_units; ++i, ++dst, ++src)
      if (written.insert(dst).second) items.push_back({dst * tokens, src * tokens});
  }
  return items;
}

/// One random copy, of everything or of some layers and items.
void copy_and_compare(std::uint64_t seed, Stores stores) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  const Geometry geometry = random_geometry(random);
  std::vector<PlaneBuffers> to, from;
  std::vector<PlaneMemory> dst, src;
  for (const Plane& plane : geometry.planes) {
    for (auto* side : {&to, &from}) {
      const Style style{.any_order = random.below(3) == 0, .layers_apart = random.below(2) == 0};
      side->emplace_back(geometry, plane, kPages, style, random);
    }
    dst.push_back(to.back().memory);
    src.push_back(from.back().memory);
  }
  const std::size_t tokens = random.below(2) == 0 ? 1 : geometry.page_size;
  const CopyPlan plan{.geometry = &geometry,
                      .dst = &dst,
                      .src = &src,
                      .tokens = tokens,
                      .items = random_items(kPages * geometry.page_size / tokens, tokens, random)};
  const LayerSpan layers{.first = random.below(geometry.num_layers),
                         .count = random.below(geometry.num_layers + 1)};
  const LayerSpan within{layers.first, std::min(layers.count, geometry.num_layers - layers.first)};
  const auto items = std::span(plan.items).subspan(random.below(plan.items.size()));

  std::vector<std::vector<Bytes>> expected;
  for (std::size_t p = 0; p < geometry.planes.size(); ++p) {
    expected.push_back(to[p].buffers);
    for (const CopyItem& item : items)
      for (std::size_t l = within.first; l < within.first + within.count; ++l)
        for (std::size_t token = 0; token < tokens; ++token)
          for (std::size_t head = 0; head < geometry.planes[p].heads; ++head)
            std::copy_n(from[p].at(from[p].buffers, l, item.src + token, head),
                        geometry.planes[p].head_bytes(),
                        to[p].at(expected[p], l, item.dst + token, head));
  }
  copy_rows(plan, within, items, stores);
  for (std::size_t p = 0; p < geometry.planes.size(); ++p)
    EXPECT_TRUE(to[p].buffers == expected[p]) << "plane " << p << " of " << geometry.describe();
}

TEST(StridedCopy, EqualsTheNaiveLoopForAnyStrides) {
  for (std::uint64_t seed = 0; seed < 1500 && !HasFailure(); ++seed)
    copy_and_compare(seed, Stores::cached);
}

TEST(StridedCopy, EqualsTheNaiveLoopPastTheCaches) {
  for (std::uint64_t seed = 10'000; seed < 11'500 && !HasFailure(); ++seed)
    copy_and_compare(seed, Stores::streaming);
}

TEST(StridedCopy, NothingToCopyTouchesNothing) {
  const Geometry geometry = TestPools::small_geometry();
  TestPools pools;
  const Bytes before = pools.memory;
  const CopyPlan plan{.geometry = &geometry,
                      .dst = &pools.host->planes(),
                      .src = &pools.device->planes(),
                      .tokens = 4,
                      .items = {{0, 4}}};
  copy_rows(plan, {0, 3}, {}, Stores::cached);
  copy_rows(plan, {3, 0}, plan.items, Stores::cached);
  copy_rows(plan, {0, 0}, plan.items, Stores::streaming);
  EXPECT_EQ(pools.memory, before);
  EXPECT_EQ(plan.size_bytes(), geometry.page_bytes());
}

// Pages that are neighbours in number but not in memory, in the middle of a list that merges.
TEST(StridedCopy, PagesWithGapsBetweenThemDoNotMerge) {
  const Geometry geometry = mla_geometry({{1, 0, 2, DType::int8}, 3, 2});
  const std::size_t page = geometry.page_bytes();
  Bytes from = random_bytes(4 * (page + 1), 1), to(4 * page, kPoison);
  const std::vector<PlaneMemory> src{{{from.data()}, page + 1, page / 2, 5}};
  const std::vector<PlaneMemory> dst{{{to.data()}, page, page / 2, 5}};
  const CopyPlan plan{.geometry = &geometry,
                      .dst = &dst,
                      .src = &src,
                      .tokens = 2,
                      .items = {{0, 0}, {2, 2}, {4, 4}}};
  copy_rows(plan, {0, 1}, plan.items, Stores::cached);
  Bytes expected(4 * page, kPoison);
  for (std::size_t i = 0; i < 3; ++i)
    std::copy_n(from.data() + i * (page + 1), page, expected.data() + i * page);
  EXPECT_EQ(to, expected);
}

TEST(StridedCopy, StreamsOnlyWhatTheCachesWouldNotHold) {
  EXPECT_EQ(stores_for(1), Stores::cached);
  EXPECT_EQ(stores_for(std::size_t{1} << 30), Stores::streaming);
}

}  // namespace
}  // namespace pando::testing
