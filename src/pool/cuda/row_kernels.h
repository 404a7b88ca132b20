// SPDX-License-Identifier: Apache-2.0
// The kernels, and what they are told. Kept apart from the code that plans them, which the CUDA
// compiler need not see.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "pando/pools.h"
#include "pool/copy_plan.h"

namespace pando::cuda {

/// n / divisor by a multiplication, for n < 2^31 and 0 < divisor <= 2^31.
struct Divider {
  std::uint32_t divisor = 1;
  std::uint32_t factor = 1u << 31;
  std::uint32_t shift = 31;

  Divider() = default;
  explicit Divider(std::uint64_t n)
      : divisor(static_cast<std::uint32_t>(n)),
        shift(31 + static_cast<std::uint32_t>(std::bit_width(n - 1))) {
    factor = static_cast<std::uint32_t>(((std::uint64_t{1} << shift) + n - 1) / n);
  }
};

struct CopyLoop {
  std::uint64_t count = 1;
  std::int64_t dst_step = 0;
  std::int64_t src_step = 0;
};

struct StridedPlane {
  std::byte* base = nullptr;
  std::uint64_t page_stride = 0;
  std::uint64_t token_stride = 0;
};

/// One plane of a copy: num_words words, counted over items, three loops and words of a piece.
struct CopyArgs {
  StridedPlane dst;
  StridedPlane src;
  const CopyItem* items = nullptr;
  std::uint32_t num_words = 0;
  std::uint32_t page_shift = 0;
  Divider words_per_item;
  Divider words_per_step[3];  ///< of each loop, outermost first
  CopyLoop loops[3];
};

/// Planes whose words are as wide, one after the other in one launch.
struct CopyBatch {
  static constexpr std::uint32_t kMaxPlanes = 8;
  CopyArgs planes[kMaxPlanes];
  std::uint32_t num_planes = 0;
};

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = 1;
  bool over_bus = false;  ///< one end is host memory: words are read and written once
  std::size_t word_bytes = 1;
};
/// Words each thread has in flight. Four hide the latency of the bus with few blocks (8 blocks of
/// 1024 threads keep 512 KiB in flight); more did not help.
inline constexpr int kUnroll = 4;

/// What cudaGetLastError() says of the launch.
cudaError_t launch_copy(const CopyBatch& batch, const LaunchShape& shape, cudaStream_t stream);

/// Rows into slots of one plane and layer, converted as convert.h does.
struct WriteArgs {
  std::byte* layer = nullptr;
  std::size_t page_stride = 0;
  std::size_t token_stride = 0;
  std::size_t head_stride = 0;
  std::size_t page_size = 1;
  const std::int64_t* slots = nullptr;
  std::size_t num_slots = 0;
  Rows rows;
  DType dtype = DType::bf16;
  std::size_t element = 1;  ///< bytes of one, in the plane and in the rows
  std::size_t source_element = 1;
  std::size_t heads = 1;
  std::size_t first = 0;
  std::size_t count = 0;
};
cudaError_t launch_write(const WriteArgs& args, unsigned blocks, cudaStream_t stream);

}  // namespace pando::cuda
