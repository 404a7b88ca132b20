// SPDX-License-Identifier: Apache-2.0
// Whole host pages through the copy engines: they alone reach the full speed of the bus, but only
// with long contiguous pieces. So pages travel as they lie in host memory into a ring on the
// device, and a kernel puts their rows where they belong; the reverse for backups. The ring has a
// few buffers; while one crosses the bus the kernel works on another. Its memory is taken when it
// is first used. Belongs to one stream of the copier, and is used by its thread.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <vector>

#include "copy/transfer_plan.h"
#include "pando/result.h"
#include "pool/copy_plan.h"

namespace pando::cuda {

class Staging {
 public:
  Staging(std::size_t size_bytes, std::size_t max_blocks)
      : buffer_bytes_(size_bytes / kBuffers / 256 * 256), max_blocks_(max_blocks) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Pages of this plan that a buffer of the ring holds; with none it cannot go this way.
  std::size_t pages_per_buffer(const CopyPlan& plan) const {
    return buffer_bytes_ / plan.geometry->page_bytes();
  }
  /// What the kernel is to be told instead of the plan's items: the host's page replaced by the
  /// page's place in its buffer.
  std::vector<CopyItem> items(const CopyPlan& plan, Direction direction) const;

  /// Queues a transfer whose host pages are contiguous: kernels on `stream`, copies on streams of
  /// the ring's own, between what was and what will be queued on `stream`. `items` are items() in
  /// memory that the device reads.
  Status queue(const CopyPlan& plan, const CopyItem* items, Direction direction,
               cudaStream_t stream);

 private:
  static constexpr std::size_t kBuffers = 4;
  struct Buffer {
    std::byte* memory = nullptr;
    cudaEvent_t filled = nullptr;
    cudaEvent_t emptied = nullptr;
    cudaStream_t engine = nullptr;
  };

  Status prepare();
  Status queue_buffer(const CopyPlan& plan, const CopyItem* items, std::span<const CopyItem> pages,
                      Direction direction, Buffer& buffer, cudaStream_t stream);
  Status cross_bus(const CopyPlan& plan, std::span<const CopyItem> pages, Direction direction,
                   const std::vector<PlaneMemory>& staged, cudaStream_t engine);
  std::vector<PlaneMemory> planes_in(const Buffer& buffer, const CopyPlan& plan,
                                     Direction direction) const;

  std::size_t buffer_bytes_;
  std::size_t max_blocks_;
  std::byte* memory_ = nullptr;
  std::size_t next_ = 0;
  std::array<Buffer, kBuffers> buffers_ = {};
  std::array<cudaStream_t, 2> engines_ = {};  // in turns: one's copies hide the other's gaps
  cudaEvent_t fence_ = nullptr;               // orders the streams where a transfer begins and ends
};

}  // namespace pando::cuda
