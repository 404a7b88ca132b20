// SPDX-License-Identifier: Apache-2.0
#include "pool/cuda/row_copy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>
#include <vector>

#include "pool/cuda/cuda_status.h"
#include "pool/cuda/row_kernels.h"
#include "pool/plane_memory.h"

namespace pando::cuda {
namespace {

// Few blocks are large, so that they have as much in flight as they can.
constexpr std::size_t kFewBlocks = 32;
constexpr std::uint64_t kMaxWords = std::uint64_t{1} << 31;

// The step from layer to layer if it is the same everywhere: else layers go one by one.
bool even_layers(const PlaneMemory& memory, LayerSpan layers) {
  const auto at = [&](std::size_t l) {
    return reinterpret_cast<std::intptr_t>(memory.layers[layers.first + l]);
  };
  for (std::size_t l = 2; l < layers.count; ++l)
    if (at(l) - at(l - 1) != at(1) - at(0)) return false;
  return true;
}

std::int64_t layer_step(const PlaneMemory& memory, LayerSpan layers) {
  if (layers.count < 2) return 0;
  return reinterpret_cast<std::intptr_t>(memory.layers[layers.first + 1]) -
         reinterpret_cast<std::intptr_t>(memory.layers[layers.first]);
}

struct PlannedPlane {
  CopyArgs args;
  std::size_t word_bytes = 1;
  std::uint64_t words_per_item = 0;
};

PlannedPlane plan_plane(const RowCopy& copy, std::size_t plane, LayerSpan layers) {
  const CopyPlan& plan = *copy.plan;
  const Plane& shape = plan.geometry->planes[plane];
  const PlaneMemory& dst = (*plan.dst)[plane];
  const PlaneMemory& src = (*plan.src)[plane];
  std::size_t piece = shape.head_bytes();
  const auto step = [](std::size_t stride) { return static_cast<std::int64_t>(stride); };
  CopyLoop by_layer{layers.count, layer_step(dst, layers), layer_step(src, layers)};
  CopyLoop by_token{plan.tokens, step(dst.token_stride), step(src.token_stride)};
  CopyLoop by_head{shape.heads, step(dst.head_stride), step(src.head_stride)};
  // What is contiguous at both ends becomes part of the piece.
  if (dst.head_stride == piece && src.head_stride == piece) {
    piece *= by_head.count;
    by_head.count = 1;
    if (dst.token_stride == piece && src.token_stride == piece) {
      piece *= by_token.count;
      by_token.count = 1;
    }
  }
  PlannedPlane out;
  CopyArgs& args = out.args;
  std::array loops{by_layer, by_token, by_head};
  const bool host_is_src = copy.bus == Bus::from_host;
  std::stable_sort(loops.begin(), loops.end(), [&](const CopyLoop& a, const CopyLoop& b) {
    const auto reach = [&](const CopyLoop& loop) {
      return loop.count < 2 ? 0 : std::abs(host_is_src ? loop.src_step : loop.dst_step);
    };
    return reach(a) > reach(b);
  });
  std::copy(loops.begin(), loops.end(), args.loops);
  args.dst = {dst.layers[layers.first], dst.page_stride, dst.token_stride};
  args.src = {src.layers[layers.first], src.page_stride, src.token_stride};
  args.page_shift = static_cast<std::uint32_t>(std::countr_zero(plan.geometry->page_size));
  // The widest word that divides every address and length.
  std::uint64_t bits = piece | 16;
  for (const PlaneMemory* end : {&dst, &src}) {
    bits |= reinterpret_cast<std::uintptr_t>(end->layers[layers.first]) | end->page_stride;
    if (plan.tokens < plan.geometry->page_size) bits |= end->token_stride;
  }
  for (const CopyLoop& loop : args.loops)
    if (loop.count > 1) bits |= static_cast<std::uint64_t>(loop.dst_step | loop.src_step);
  out.word_bytes = std::size_t{1} << std::countr_zero(bits);
  std::uint64_t words = piece / out.word_bytes;
  for (std::size_t l = 3; l-- > 0;) {
    args.words_per_step[l] = Divider(words);
    words *= args.loops[l].count;
  }
  args.words_per_item = Divider(words);
  out.words_per_item = words;
  return out;
}

Status launch_planes(const RowCopy& copy, std::span<PlannedPlane> planes, cudaStream_t stream) {
  std::uint64_t most_words = 0;  // of an item in one plane
  for (const PlannedPlane& plane : planes) most_words = std::max(most_words, plane.words_per_item);
  const std::size_t items_per_launch = (kMaxWords - 1) / most_words;
  if (items_per_launch == 0)
    return make_error(ErrorCode::invalid_argument,
                      "copy: a page of {} words of {} bytes; expected below 2^31", most_words,
                      planes[0].word_bytes);
  LaunchShape shape{.threads = copy.max_blocks <= kFewBlocks ? 1024u : 512u,
                    .over_bus = copy.bus != Bus::none,
                    .word_bytes = planes[0].word_bytes};
  const std::uint64_t words_per_block = std::uint64_t{shape.threads} * kUnroll;
  for (std::size_t first = 0; first < copy.num_items; first += items_per_launch) {
    const std::size_t n = std::min(items_per_launch, copy.num_items - first);
    CopyBatch batch;
    for (const PlannedPlane& plane : planes) {
      CopyArgs& args = batch.planes[batch.num_planes++];
      args = plane.args;
      args.items = copy.items + first;
      args.num_words = static_cast<std::uint32_t>(n * plane.words_per_item);
    }
    const std::uint64_t useful = (n * most_words + words_per_block - 1) / words_per_block;
    shape.blocks = static_cast<unsigned>(std::min<std::uint64_t>(useful, copy.max_blocks));
    if (Status launched = status_of(launch_copy(batch, shape, stream), "launch a copy"); !launched)
      return launched;
  }
  return {};
}

// One launch for all planes of these layers whose words are as wide.
Status queue_layers(const RowCopy& copy, LayerSpan layers, cudaStream_t stream) {
  std::vector<PlannedPlane> planes;
  for (std::size_t i = 0; i < copy.plan->geometry->planes.size(); ++i)
    planes.push_back(plan_plane(copy, i, layers));
  std::stable_sort(planes.begin(), planes.end(), [](const PlannedPlane& a, const PlannedPlane& b) {
    return a.word_bytes > b.word_bytes;
  });
  for (std::size_t first = 0; first < planes.size();) {
    std::size_t n = 1;
    while (first + n < planes.size() && n < CopyBatch::kMaxPlanes &&
           planes[first + n].word_bytes == planes[first].word_bytes)
      ++n;
    if (Status launched = launch_planes(copy, std::span(planes).subspan(first, n), stream);
        !launched)
      return launched;
    first += n;
  }
  return {};
}

}  // namespace

Status queue_copy(const RowCopy& copy, cudaStream_t stream) {
  bool even = true;
  for (const auto* end : {copy.plan->dst, copy.plan->src})
    for (const PlaneMemory& memory : *end) even = even && even_layers(memory, copy.layers);
  const std::size_t at_once = even ? copy.layers.count : 1;
  for (std::size_t l = 0; l < copy.layers.count; l += at_once)
    if (Status queued = queue_layers(copy, {copy.layers.first + l, at_once}, stream); !queued)
      return queued;
  return {};
}

}  // namespace pando::cuda
