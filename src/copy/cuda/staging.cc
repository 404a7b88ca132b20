// SPDX-License-Identifier: Apache-2.0
#include "copy/cuda/staging.h"

#include <algorithm>

#include "pool/cuda/cuda_status.h"
#include "pool/cuda/row_copy.h"

namespace pando::cuda {
namespace {

const std::vector<PlaneMemory>& host_side(const CopyPlan& plan, Direction direction) {
  return direction == Direction::backup ? *plan.dst : *plan.src;
}

std::uint64_t host_page(const CopyPlan& plan, const CopyItem& item, Direction direction) {
  return (direction == Direction::backup ? item.dst : item.src) / plan.geometry->page_size;
}

struct Pieces {
  std::vector<void*> dst = {};
  std::vector<const void*> src = {};
  std::vector<std::size_t> sizes = {};
};

Status copy_pieces(Pieces& pieces, cudaMemcpyKind kind, cudaStream_t stream) {
#if CUDART_VERSION >= 13000
  static_cast<void>(kind);
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t index = 0;
  return status_of(cudaMemcpyBatchAsync(pieces.dst.data(), pieces.src.data(), pieces.sizes.data(),
                                        pieces.sizes.size(), &attributes, &index, 1, stream),
                   "copy pages in a batch");
#else
  for (std::size_t i = 0; i < pieces.sizes.size(); ++i)
    if (Status done =
            status_of(cudaMemcpyAsync(pieces.dst[i], pieces.src[i], pieces.sizes[i], kind, stream),
                      "copy a page");
        !done)
      return done;
  return {};
#endif
}

}  // namespace

Staging::~Staging() {
  for (Buffer& buffer : buffers_) {
    if (buffer.filled != nullptr) cudaEventDestroy(buffer.filled);
    if (buffer.emptied != nullptr) cudaEventDestroy(buffer.emptied);
  }
  if (fence_ != nullptr) cudaEventDestroy(fence_);
  for (cudaStream_t engine : engines_)
    if (engine != nullptr) cudaStreamDestroy(engine);
  if (memory_ != nullptr) cudaFree(memory_);
}

// Memory comes last, so that having it says that all is there; what an earlier failure left behind
// is kept.
Status Staging::prepare() {
  if (memory_ != nullptr) return {};
  for (cudaStream_t& engine : engines_)
    if (engine == nullptr)
      if (Status done = make_stream(engine); !done) return done;
  std::vector<cudaEvent_t*> events{&fence_};
  for (Buffer& buffer : buffers_) {
    events.push_back(&buffer.filled);
    events.push_back(&buffer.emptied);
  }
  for (cudaEvent_t* event : events)
    if (*event == nullptr)
      if (Status done = make_event(*event); !done) return done;
  void* memory = nullptr;
  if (Status done =
          status_of(cudaMalloc(&memory, buffer_bytes_ * kBuffers), "allocate a staging ring");
      !done)
    return done;
  memory_ = static_cast<std::byte*>(memory);
  for (std::size_t i = 0; i < kBuffers; ++i) {
    buffers_[i].memory = memory_ + i * buffer_bytes_;
    buffers_[i].engine = engines_[i % engines_.size()];
  }
  return {};
}

std::vector<CopyItem> Staging::items(const CopyPlan& plan, Direction direction) const {
  std::vector<CopyItem> out = plan.items;
  const std::size_t per_buffer = pages_per_buffer(plan);
  for (std::size_t i = 0; i < out.size(); ++i)
    (direction == Direction::backup ? out[i].dst : out[i].src) = i % per_buffer * plan.tokens;
  return out;
}

Status Staging::queue(const CopyPlan& plan, const CopyItem* items, Direction direction,
                      cudaStream_t stream) {
  if (Status ready = prepare(); !ready) return ready;
  for (cudaStream_t engine : engines_)
    if (Status done = order(stream, fence_, engine); !done) return done;
  const std::size_t per_buffer = pages_per_buffer(plan);
  for (std::size_t first = 0; first < plan.items.size(); first += per_buffer) {
    const std::size_t n = std::min(per_buffer, plan.items.size() - first);
    Buffer& buffer = buffers_[next_++ % kBuffers];
    if (Status done = queue_buffer(plan, items + first, std::span(plan.items).subspan(first, n),
                                   direction, buffer, stream);
        !done)
      return done;
  }
  for (cudaStream_t engine : engines_)
    if (Status done = order(engine, fence_, stream); !done) return done;
  return {};
}

Status Staging::queue_buffer(const CopyPlan& plan, const CopyItem* items,
                             std::span<const CopyItem> pages, Direction direction, Buffer& buffer,
                             cudaStream_t stream) {
  const std::vector<PlaneMemory> staged = planes_in(buffer, plan, direction);
  const bool backup = direction == Direction::backup;
  const CopyPlan on_device{.geometry = plan.geometry,
                           .dst = backup ? &staged : plan.dst,
                           .src = backup ? plan.src : &staged,
                           .tokens = plan.tokens};
  const auto run_kernel = [&] {
    return queue_copy({.plan = &on_device,
                       .items = items,
                       .num_items = pages.size(),
                       .layers = {0, plan.geometry->num_layers},
                       .bus = Bus::none,
                       .max_blocks = max_blocks_},
                      stream);
  };
  const cudaStream_t fills = backup ? stream : buffer.engine;
  const cudaStream_t empties = backup ? buffer.engine : stream;
  if (Status done = status_of(cudaStreamWaitEvent(fills, buffer.emptied), "wait for the ring");
      !done)
    return done;
  if (Status done =
          backup ? run_kernel() : cross_bus(plan, pages, direction, staged, buffer.engine);
      !done)
    return done;
  if (Status done = order(fills, buffer.filled, empties); !done) return done;
  if (Status done =
          backup ? cross_bus(plan, pages, direction, staged, buffer.engine) : run_kernel();
      !done)
    return done;
  return status_of(cudaEventRecord(buffer.emptied, empties), "record an event");
}

Status Staging::cross_bus(const CopyPlan& plan, std::span<const CopyItem> pages,
                          Direction direction, const std::vector<PlaneMemory>& staged,
                          cudaStream_t engine) {
  const bool backup = direction == Direction::backup;
  Pieces pieces;
  for (std::size_t p = 0; p < staged.size(); ++p) {
    const PlaneMemory& host = host_side(plan, direction)[p];
    const std::size_t page_bytes = plan.geometry->page_bytes(plan.geometry->planes[p]);
    for (std::size_t i = 0; i < pages.size();) {  // host pages that follow each other go together
      const std::uint64_t first = host_page(plan, pages[i], direction);
      std::size_t n = 1;
      while (i + n < pages.size() && host_page(plan, pages[i + n], direction) == first + n) ++n;
      std::byte* in_host = host.layers[0] + first * host.page_stride;
      std::byte* in_ring = staged[p].layers[0] + i * page_bytes;
      pieces.dst.push_back(backup ? in_host : in_ring);
      pieces.src.push_back(backup ? in_ring : in_host);
      pieces.sizes.push_back(n * page_bytes);
      i += n;
    }
  }
  return copy_pieces(pieces, backup ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, engine);
}

// The host's layout, page by page, in a buffer of the ring: planes one after the other.
std::vector<PlaneMemory> Staging::planes_in(const Buffer& buffer, const CopyPlan& plan,
                                            Direction direction) const {
  std::vector<PlaneMemory> out = host_side(plan, direction);
  std::byte* base = buffer.memory;
  for (std::size_t p = 0; p < out.size(); ++p) {
    const std::byte* first = out[p].layers[0];
    for (std::byte*& layer : out[p].layers) layer = base + (layer - first);
    base += pages_per_buffer(plan) * plan.geometry->page_bytes(plan.geometry->planes[p]);
  }
  return out;
}

}  // namespace pando::cuda
