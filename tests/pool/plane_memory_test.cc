// SPDX-License-Identifier: Apache-2.0
// Where rows are, against the row-major shapes that the layouts are documented as: each address is
// computed again from its shape, and all of them together cover the block, each byte once.
#include "pool/plane_memory.h"

#include <gtest/gtest.h>

#include "support/pool_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kBufferAlignment = 256;  // of the buffers of a layer-first device pool
constexpr HostLayout kHostLayouts[] = {HostLayout::layer_first, HostLayout::page_first,
                                       HostLayout::page_first_direct, HostLayout::page_head};

std::size_t rounded_up(std::size_t size_bytes) {
  return (size_bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

/// Which head of which row.
struct At {
  std::size_t layer, page, token, head;
};

/// Where it is inside its plane, in units of a head.
std::size_t naive(HostLayout layout, const Geometry& g, const Plane& plane, std::size_t num_pages,
                  const At& at) {
  const std::size_t slot = at.page * g.page_size + at.token;
  switch (layout) {
    case HostLayout::layer_first:
      return (at.layer * num_pages * g.page_size + slot) * plane.heads + at.head;
    case HostLayout::page_first:
      return (slot * g.num_layers + at.layer) * plane.heads + at.head;
    case HostLayout::page_first_direct:
      return ((at.page * g.num_layers + at.layer) * g.page_size + at.token) * plane.heads + at.head;
    case HostLayout::page_head:
      return ((at.page * plane.heads + at.head) * g.page_size + at.token) * g.num_layers + at.layer;
  }
  return 0;
}

/// Calls visit(at) for each head of each row of a plane.
template <typename Visit>
void for_each(const Geometry& g, const Plane& plane, std::size_t num_pages, Visit&& visit) {
  for (std::size_t layer = 0; layer < g.num_layers; ++layer)
    for (std::size_t page = 0; page < num_pages; ++page)
      for (std::size_t token = 0; token < g.page_size; ++token)
        for (std::size_t head = 0; head < plane.heads; ++head) visit(At{layer, page, token, head});
}

/// Compares with where(plane, at), an offset from the block's beginning; counts how often each byte
/// of the block belongs to a row.
template <typename Where>
std::vector<int> expect_placed(const Geometry& g, const std::vector<PlaneMemory>& planes,
                               const Bytes& block, std::size_t num_pages, Where&& where) {
  std::vector<int> uses(block.size());
  EXPECT_EQ(planes.size(), g.planes.size());
  for (std::size_t i = 0; i < planes.size(); ++i) {
    EXPECT_EQ(planes[i].layers.size(), g.num_layers);
    for_each(g, g.planes[i], num_pages, [&](const At& at) {
      const std::byte* address =
          row_address(planes[i], g.page_size, at.layer, at.page * g.page_size + at.token, at.head);
      const std::size_t offset = static_cast<std::size_t>(address - block.data());
      ASSERT_EQ(offset, where(i, at)) << "plane " << i << " layer " << at.layer << " page "
                                      << at.page << " token " << at.token << " head " << at.head;
      for (std::size_t byte = 0; byte < g.planes[i].head_bytes(); ++byte) ++uses.at(offset + byte);
    });
  }
  return uses;
}

/// Each family, page size and element size with each number of pages.
template <typename Visit>
void for_each_case(Visit&& visit) {
  for (const std::size_t page_size : {1u, 2u, 16u})
    for (const DType dtype : {DType::bf16, DType::fp32, DType::int8})
      for (const Family& family :
           all_families({.num_layers = 3, .page_size = page_size, .dtype = dtype}))
        for (const std::size_t num_pages : {1u, 5u}) {
          SCOPED_TRACE(family.name + ": " + family.geometry.describe());
          visit(family.geometry, num_pages);
        }
}

TEST(PlaneMemory, HostLayoutsAreTheShapesTheyAreDocumentedAs) {
  for (const HostLayout layout : kHostLayouts) {
    SCOPED_TRACE(to_string(layout));
    for_each_case([&](const Geometry& g, std::size_t num_pages) {
      Bytes block(placed_bytes(g, layout, num_pages).value());
      EXPECT_EQ(block.size(), num_pages * g.page_bytes());
      const auto uses = expect_placed(
          g, place(g, layout, num_pages, block.data()), block, num_pages,
          [&](std::size_t i, const At& at) {
            std::size_t begin = 0;
            for (std::size_t j = 0; j < i; ++j) begin += num_pages * g.page_bytes(g.planes[j]);
            return begin + naive(layout, g, g.planes[i], num_pages, at) * g.planes[i].head_bytes();
          });
      EXPECT_EQ(uses, std::vector<int>(block.size(), 1));
    });
  }
}

TEST(PlaneMemory, APageMajorPoolIsOneBufferWithoutGaps) {
  for_each_case([](const Geometry& g, std::size_t num_pages) {
    Bytes block(placed_bytes(g, DeviceLayout::page_major, num_pages).value());
    EXPECT_EQ(block.size(), num_pages * g.page_bytes());
    const auto uses = expect_placed(
        g, place(g, DeviceLayout::page_major, num_pages, block.data()), block, num_pages,
        [&](std::size_t i, const At& at) {
          std::size_t begin = 0;  // (layers, pages, page, heads, dim) of each plane
          for (std::size_t j = 0; j < i; ++j) begin += num_pages * g.page_bytes(g.planes[j]);
          const std::size_t row = (at.layer * num_pages + at.page) * g.page_size + at.token;
          return begin + (row * g.planes[i].heads + at.head) * g.planes[i].head_bytes();
        });
    EXPECT_EQ(uses, std::vector<int>(block.size(), 1));
  });
}

TEST(PlaneMemory, ALayerFirstPoolHasAnAlignedBufferPerPlaneAndLayer) {
  for_each_case([](const Geometry& g, std::size_t num_pages) {
    const std::size_t num_slots = num_pages * g.page_size;
    std::size_t total = 0;
    for (const Plane& plane : g.planes)
      total += g.num_layers * rounded_up(num_slots * plane.row_bytes());
    ASSERT_EQ(placed_bytes(g, DeviceLayout::layer_first, num_pages), total);
    Bytes block(total);
    const auto uses = expect_placed(
        g, place(g, DeviceLayout::layer_first, num_pages, block.data()), block, num_pages,
        [&](std::size_t i, const At& at) {
          std::size_t begin = at.layer * rounded_up(num_slots * g.planes[i].row_bytes());
          for (std::size_t j = 0; j < i; ++j)
            begin += g.num_layers * rounded_up(num_slots * g.planes[j].row_bytes());
          const std::size_t slot = at.page * g.page_size + at.token;
          return begin + (slot * g.planes[i].heads + at.head) * g.planes[i].head_bytes();
        });
    EXPECT_LE(*std::max_element(uses.begin(), uses.end()), 1);
    EXPECT_EQ(std::count(uses.begin(), uses.end(), 1),
              static_cast<std::ptrdiff_t>(num_pages * g.page_bytes()));
  });
}

TEST(PlaneMemory, SlotsAreEvenlySpacedExceptWherePagesInterleave) {
  const Geometry g = all_families({.num_layers = 3, .page_size = 4})[0].geometry;
  std::byte base{};
  const auto is_linear_in = [&](auto layout) {
    return is_linear(place(g, layout, 1, &base)[0], g.page_size);
  };
  EXPECT_TRUE(is_linear_in(HostLayout::layer_first));
  EXPECT_TRUE(is_linear_in(HostLayout::page_first));
  EXPECT_FALSE(is_linear_in(HostLayout::page_first_direct));
  EXPECT_FALSE(is_linear_in(HostLayout::page_head));
  EXPECT_TRUE(is_linear_in(DeviceLayout::layer_first));
  EXPECT_TRUE(is_linear_in(DeviceLayout::page_major));
}

TEST(PlaneMemory, SizesBeyond62BitsAreNoSizes) {
  const Geometry g = state_geometry(1, {{"row", 1, 1024, DType::int8}});
  constexpr std::size_t kFits = (std::size_t{1} << 52) - 1;
  for (const HostLayout layout : kHostLayouts) {
    EXPECT_EQ(placed_bytes(g, layout, kFits), kFits * 1024);
    for (const std::size_t num_pages : {kFits + 2, std::size_t{1} << 54, SIZE_MAX})
      EXPECT_EQ(placed_bytes(g, layout, num_pages), std::nullopt) << num_pages;
  }
  for (const DeviceLayout layout : {DeviceLayout::layer_first, DeviceLayout::page_major}) {
    EXPECT_EQ(placed_bytes(g, layout, kFits), kFits * 1024);
    EXPECT_EQ(placed_bytes(g, layout, SIZE_MAX), std::nullopt);
  }
}

TEST(PlaneMemory, SizesOfAPageThatOverflowAreNoSizes) {
  constexpr std::uint32_t kHuge = std::uint32_t{1} << 31;
  const std::vector<Geometry> absurd = {
      state_geometry(1, {{"row", kHuge, kHuge, DType::fp32}, {"more", 1, 64}}),
      state_geometry(std::size_t{1} << 60, {{"row", 1, 17}}),
      {.planes = {{"row", 1, 17}}, .num_layers = 1, .page_size = std::size_t{1} << 60}};
  for (const Geometry& g : absurd) {
    SCOPED_TRACE(g.describe());
    for (const HostLayout layout : kHostLayouts)
      EXPECT_EQ(placed_bytes(g, layout, 2), std::nullopt);
    EXPECT_EQ(placed_bytes(g, DeviceLayout::layer_first, 2), std::nullopt);
    EXPECT_EQ(placed_bytes(g, DeviceLayout::page_major, 2), std::nullopt);
  }
}

}  // namespace
}  // namespace pando::testing
