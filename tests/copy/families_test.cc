// SPDX-License-Identifier: Apache-2.0
// The two families that are more than a geometry: layers with and without a sliding window, whose
// two sides travel on their own, and snapshots of recurrent state, whose slots come from a
// StateAllocator. Written by slot, backed up, wiped, loaded back.
#include <gtest/gtest.h>

#include <cstring>

#include "pando/allocators.h"
#include "pando/copier.h"
#include "pando/pools.h"

namespace pando::testing {
namespace {

constexpr std::size_t kPage = 4;

/// A row of floats that says which layer, slot and plane it was written for.
std::vector<float> row_for(std::size_t layer, SlotId slot, float plane, std::size_t n) {
  return std::vector<float>(
      n, static_cast<float>(1000 * layer + static_cast<std::size_t>(index_of(slot))) + plane);
}

float first_of(const TensorView& view, SlotId slot) {
  float out = 0;
  std::memcpy(&out, view.data + index_of(slot) * view.strides[0], sizeof(out));
  return out;
}

/// Moves these pages of `pool` to host memory, wipes them and brings them back.
void round_trip(KvPool& pool, const std::vector<PageId>& pages, Copier& copier, Arena& arena) {
  const auto host = *HostPool::create(
      {.layout = HostLayout::page_head, .ratio = 1.0, .keep_free_bytes = 0}, pool, arena);
  std::vector<HostPageId> host_pages(pages.size());
  host->alloc(host_pages).value();
  host->protect_write(host_pages);
  copier.backup({pool, *host, pages, host_pages}, 0)->wait().value();
  host->complete_write(host_pages);
  host->device_gone(host_pages);
  for (const MemoryRegion& region : pool.regions())
    std::memset(region.address, 0xee, region.size_bytes);
  host->protect_load(host_pages);
  copier.load({pool, *host, pages, host_pages}, 1)->wait().value();
  host->complete_load(host_pages);
}

TEST(Families, BothSidesOfAWindowPairComeBack) {
  const auto arena = make_malloc_arena();
  const auto copier = *make_cpu_copier();
  const auto slots =
      *WindowAllocator::create({.full_tokens = 64, .window_tokens = 32, .page_size = kPage});
  const auto pool = *WindowPool::create(
      {.geometry =
           mha_geometry({.layers = {.num_layers = 1, .page_size = kPage, .dtype = DType::fp32},
                         .heads = 2,
                         .head_dim = 3}),
       .full_layers = {0, 2},
       .window_layers = {1, 3, 4}},
      *slots, *arena);
  std::vector<SlotId> tokens(16);
  slots->alloc(tokens).value();
  slots->free_window(std::span(tokens).first(8));  // they have left the window
  for (std::size_t layer = 0; layer < 5; ++layer)
    for (const SlotId slot : tokens) {
      const auto key = row_for(layer, slot, 0, 6), value = row_for(layer, slot, 0.5F, 6);
      const std::vector<Rows> rows{{.data = key.data(), .dtype = DType::fp32},
                                   {.data = value.data(), .dtype = DType::fp32}};
      ASSERT_TRUE(pool->set(layer, std::span(&slot, 1), rows).ok());
    }

  std::vector<SlotId> window_slots(tokens.size());
  slots->translate(tokens, window_slots);
  std::vector<PageId> full_pages, window_pages;
  for (std::size_t i = 0; i < tokens.size(); i += kPage) {
    full_pages.push_back(static_cast<PageId>(index_of(tokens[i]) / kPage));
    if (index_of(window_slots[i]) != 0)
      window_pages.push_back(static_cast<PageId>(index_of(window_slots[i]) / kPage));
  }
  ASSERT_EQ(window_pages.size(), 2u);
  round_trip(*pool->full(), full_pages, *copier, *arena);
  round_trip(*pool->window(), window_pages, *copier, *arena);

  for (const std::size_t layer : {0, 1, 2, 3, 4}) {
    const bool windowed = layer == 1 || layer == 3 || layer == 4;
    for (std::size_t i = windowed ? 8 : 0; i < tokens.size(); ++i) {
      const SlotId at = windowed ? window_slots[i] : tokens[i];
      EXPECT_EQ(first_of(*pool->key(layer), at), row_for(layer, tokens[i], 0, 1)[0]);
      EXPECT_EQ(first_of(*pool->value(layer), at), row_for(layer, tokens[i], 0.5F, 1)[0]);
    }
  }
}

TEST(Families, SnapshotsComeBackWhereTheAllocatorPutThem) {
  const auto arena = make_malloc_arena();
  const auto copier = *make_cpu_copier();
  const auto slots = *StateAllocator::create(4);
  const auto pool = *KvPool::create(
      {.geometry = state_geometry(3, {{"conv", 1, 12, DType::fp32}, {"ssm", 4, 8, DType::fp32}}),
       .capacity_tokens = slots->capacity()},
      *arena);
  std::vector<SlotId> rows;
  std::vector<PageId> pages;
  for (std::size_t i = 0; i < 4; ++i) {
    rows.push_back(row_of(*slots->alloc()));
    pages.push_back(static_cast<PageId>(index_of(rows.back())));
  }
  for (std::size_t layer = 0; layer < 3; ++layer)
    for (const SlotId slot : rows) {
      const auto conv = row_for(layer, slot, 0, 12), ssm = row_for(layer, slot, 0.5F, 32);
      const std::vector<Rows> both{{.data = conv.data(), .dtype = DType::fp32},
                                   {.data = ssm.data(), .dtype = DType::fp32}};
      ASSERT_TRUE(pool->set(layer, std::span(&slot, 1), both).ok());
    }
  round_trip(*pool, pages, *copier, *arena);
  for (std::size_t layer = 0; layer < 3; ++layer)
    for (const SlotId slot : rows) {
      EXPECT_EQ(first_of(*pool->view(layer, 0), slot), row_for(layer, slot, 0, 1)[0]);
      EXPECT_EQ(first_of(*pool->view(layer, 1), slot), row_for(layer, slot, 0.5F, 1)[0]);
    }
}

}  // namespace
}  // namespace pando::testing
