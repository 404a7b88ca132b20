// SPDX-License-Identifier: Apache-2.0
#include "pool/convert.h"
#include "pool/cuda/row_kernels.h"

namespace pando::cuda {
namespace {

/// The quotient; `n` becomes the remainder.
__device__ std::uint32_t split(const Divider& by, std::uint32_t& n) {
  const auto quotient =
      static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * by.factor) >> by.shift);
  n -= quotient * by.divisor;
  return quotient;
}

template <typename Word>
__device__ Word load_once(const Word* from) {
  return __ldcs(from);
}
// Past the first-level cache: what comes over the bus is read once.
template <>
__device__ uint4 load_once(const uint4* from) {
  uint4 out;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from));
  return out;
}

template <typename Word>
__device__ std::byte* address(const StridedPlane& plane, std::uint64_t slot,
                              std::uint32_t page_shift, std::int64_t offset, std::uint32_t word) {
  const std::uint64_t in_page = slot & ((1u << page_shift) - 1);
  return plane.base + (slot >> page_shift) * plane.page_stride + in_page * plane.token_stride +
         offset + word * sizeof(Word);
}

template <typename Word, bool over_bus>
__device__ void copy_plane(const CopyArgs& args) {
  // Each warp takes kUnroll runs of one word per thread that follow each other.
  constexpr std::uint32_t kWarp = 32;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x * kUnroll;
  for (std::uint64_t first = thread / kWarp * kWarp * kUnroll + thread % kWarp;
       first < args.num_words; first += step) {
    Word words[kUnroll];
    std::byte* to[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint64_t index = first + kWarp * u;
      to[u] = nullptr;
      if (index >= args.num_words) continue;
      auto rest = static_cast<std::uint32_t>(index);
      const CopyItem item = args.items[split(args.words_per_item, rest)];
      std::int64_t dst = 0;
      std::int64_t src = 0;
#pragma unroll
      for (int l = 0; l < 3; ++l) {
        const std::int64_t i = split(args.words_per_step[l], rest);
        dst += i * args.loops[l].dst_step;
        src += i * args.loops[l].src_step;
      }
      const auto* from = reinterpret_cast<const Word*>(
          address<Word>(args.src, item.src, args.page_shift, src, rest));
      words[u] = over_bus ? load_once(from) : *from;
      to[u] = address<Word>(args.dst, item.dst, args.page_shift, dst, rest);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (to[u] == nullptr) continue;
      if constexpr (over_bus)
        __stcs(reinterpret_cast<Word*>(to[u]), words[u]);
      else
        *reinterpret_cast<Word*>(to[u]) = words[u];
    }
  }
}

template <typename Word, bool over_bus>
__global__ void copy_planes(const __grid_constant__ CopyBatch batch) {
  for (std::uint32_t i = 0; i < batch.num_planes; ++i) copy_plane<Word, over_bus>(batch.planes[i]);
}

template <typename Word>
void launch_words(const CopyBatch& batch, const LaunchShape& shape, cudaStream_t stream) {
  if (shape.over_bus)
    copy_planes<Word, true><<<shape.blocks, shape.threads, 0, stream>>>(batch);
  else
    copy_planes<Word, false><<<shape.blocks, shape.threads, 0, stream>>>(batch);
}

__global__ void write_elements(const WriteArgs args) {
  const std::size_t per_slot = args.heads * args.count;
  const std::size_t total = args.num_slots * per_slot;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  const bool as_is = args.rows.dtype == args.dtype && args.rows.scale == 1.0F;
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < total; i += step) {
    const std::size_t row = i / per_slot;
    const std::size_t head = i % per_slot / args.count;
    const std::size_t column = i % args.count;
    const auto slot = static_cast<std::size_t>(args.slots[row]);
    std::byte* to = args.layer + slot / args.page_size * args.page_stride +
                    slot % args.page_size * args.token_stride + head * args.head_stride +
                    args.first * args.element;
    const auto* from = static_cast<const std::byte*>(args.rows.data) +
                       row * args.rows.stride_bytes + head * args.count * args.source_element;
    if (as_is) {
      for (std::size_t b = 0; b < args.element; ++b)
        to[column * args.element + b] = from[column * args.element + b];
      continue;
    }
    const float value = numeric::load_element(from, args.rows.dtype, column);
    numeric::store_element(to, args.dtype, column, numeric::scaled(value, args.rows.scale));
  }
}

}  // namespace

cudaError_t launch_copy(const CopyBatch& batch, const LaunchShape& shape, cudaStream_t stream) {
  switch (shape.word_bytes) {
    case 16:
      launch_words<uint4>(batch, shape, stream);
      break;
    case 8:
      launch_words<uint2>(batch, shape, stream);
      break;
    case 4:
      launch_words<unsigned>(batch, shape, stream);
      break;
    case 2:
      launch_words<unsigned short>(batch, shape, stream);
      break;
    default:
      launch_words<unsigned char>(batch, shape, stream);
  }
  return cudaGetLastError();
}

cudaError_t launch_write(const WriteArgs& args, unsigned blocks, cudaStream_t stream) {
  constexpr unsigned kThreads = 256;
  write_elements<<<blocks, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace pando::cuda
