// SPDX-License-Identifier: Apache-2.0
// Where the bytes are: KV of a small model is written by slot, backed up to host memory, dropped,
// and loaded back layer by layer while a reader follows behind. On a GPU the same program takes its
// memory from make_cuda_arena() and make_pinned_arena(), and copies with make_cuda_copier().
#include <cstdio>
#include <numeric>
#include <vector>

#include "pando/allocators.h"
#include "pando/copier.h"

int main() {
  using namespace pando;
  const Geometry geometry =
      mha_geometry({.layers = {.num_layers = 4, .page_size = 16, .dtype = DType::fp8_e4m3},
                    .heads = 2,
                    .head_dim = 64});
  const auto memory = make_malloc_arena();
  const auto slots = *PagedAllocator::create({.capacity_tokens = 256, .page_size = 16});
  const auto device = *KvPool::create({.geometry = geometry, .capacity_tokens = 256}, *memory);
  const auto host = *HostPool::create(
      {.layout = HostLayout::page_first, .ratio = 2.0, .keep_free_bytes = 0}, *device, *memory);
  const auto copier = *make_cpu_copier();

  // A forward pass leaves keys and values of 32 tokens in every layer, in fp32.
  std::vector<SlotId> tokens(32);
  slots->alloc(tokens).value();
  std::vector<float> rows(tokens.size() * 2 * 64);
  std::iota(rows.begin(), rows.end(), 0.0F);
  const Rows written{.data = rows.data(), .dtype = DType::fp32, .scale = 16.0F};
  for (std::size_t layer = 0; layer < 4; ++layer)
    device->set(layer, tokens, std::vector<Rows>{written, written}).value();

  // Their two pages go to host memory.
  const std::vector<PageId> pages{static_cast<PageId>(index_of(tokens[0]) / 16),
                                  static_cast<PageId>(index_of(tokens[16]) / 16)};
  std::vector<HostPageId> host_pages(pages.size());
  host->alloc(host_pages).value();
  host->protect_write(host_pages);
  copier->backup({*device, *host, pages, host_pages}, 0)->wait().value();
  host->complete_write(host_pages);
  host->device_gone(host_pages);  // the device gives the pages to someone else

  // And back, into other pages; whoever reads a layer waits for that layer alone.
  const std::vector<PageId> new_pages{PageId{5}, PageId{9}};
  host->protect_load(host_pages);
  const Transfer load = *copier->load({*device, *host, new_pages, host_pages}, 1);
  device->gate(load.signal());
  for (std::size_t layer = 0; layer < 4; ++layer) {
    const TensorView keys = *device->key(layer);
    const std::byte* row = keys.data + 5 * 16 * keys.strides[0];
    std::printf("layer %zu: keys 16, 32, 48 of slot 80 are fp8 %02x %02x %02x\n", layer,
                static_cast<unsigned>(row[16]), static_cast<unsigned>(row[32]),
                static_cast<unsigned>(row[48]));
  }
  load.wait().value();
  host->complete_load(host_pages);
  std::printf("%zu bytes a page, %zu pages on the device, %zu on the host\n", host->page_bytes(),
              device->num_pages(), host->num_pages());
}
