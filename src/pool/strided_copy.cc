// SPDX-License-Identifier: Apache-2.0
// A nest of three loops (layers, tokens, heads) around one copy, per plane.
#include "pool/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "pool/plane_memory.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace pando {
namespace {

// Below this, what was written is likely to be read from the caches.
constexpr std::size_t kStreamingBytes = std::size_t{4} << 20;

constexpr std::size_t kLine = 64;

// Prefetching goes to the second-level cache: the first has too few buffers for misses.
void prefetch(const std::byte* at) { __builtin_prefetch(at, 0, 2); }

struct Piece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t size_bytes = 0;
};

#if defined(__SSE2__)
// Asks for a line of `next` with every line that it copies.
void streaming_copy(Piece piece, const Piece& next) {
  const auto misaligned = reinterpret_cast<std::uintptr_t>(piece.to) % kLine;
  if (misaligned != 0) {
    const std::size_t head = std::min(kLine - misaligned, piece.size_bytes);
    std::memcpy(piece.to, piece.from, head);
    piece = {piece.to + head, piece.from + head, piece.size_bytes - head};
  }
  const std::size_t whole = piece.size_bytes / kLine * kLine;
  for (std::size_t i = 0; i < whole; i += kLine) {
    if (i < next.size_bytes) prefetch(next.from + i);
    const auto* from = reinterpret_cast<const __m128i*>(piece.from + i);
    auto* to = reinterpret_cast<__m128i*>(piece.to + i);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(piece.to + whole, piece.from + whole, piece.size_bytes - whole);
}
void finish_streaming() { _mm_sfence(); }
#else
void streaming_copy(const Piece& piece, const Piece& /*next*/) {
  std::memcpy(piece.to, piece.from, piece.size_bytes);
}
void finish_streaming() {}
#endif

// Copies pieces a little later than it is told of them, and asks for their bytes meanwhile: pieces
// lie where no hardware prefetcher expects them. Scattered pieces of 2 KiB go at 0.7 of a plain
// memcpy, without at 0.5.
class DelayedCopy {
 public:
  DelayedCopy(std::size_t piece_bytes, bool streaming)
      : distance_(std::clamp<std::size_t>(kAheadBytes / piece_bytes, 1, kMaxPieces)),
        streaming_(streaming) {}
  ~DelayedCopy() {
    for (std::size_t i = count_ - std::min(count_, distance_); i < count_; ++i)
      copy(pieces_[i % distance_], {});
  }
  DelayedCopy(const DelayedCopy&) = delete;
  DelayedCopy& operator=(const DelayedCopy&) = delete;

  void push(const Piece& piece) {
    Piece& place = pieces_[count_ % distance_];
    if (count_ >= distance_)
      copy(place, piece);
    else
      for (std::size_t i = 0; i < std::min(piece.size_bytes, kAheadBytes); i += kLine)
        prefetch(piece.from + i);
    place = piece;
    ++count_;
  }

 private:
  static constexpr std::size_t kAheadBytes = 8192;
  static constexpr std::size_t kMaxPieces = 32;

  void copy(const Piece& piece, const Piece& next) const {
    if (streaming_)
      streaming_copy(piece, next);
    else
      std::memcpy(piece.to, piece.from, piece.size_bytes);
  }

  std::size_t distance_;
  bool streaming_;
  std::size_t count_ = 0;
  std::array<Piece, kMaxPieces> pieces_;
};

class PlaneCopy {
 public:
  PlaneCopy(const CopyPlan& plan, std::size_t plane, LayerSpan layers, Stores stores)
      : dst_((*plan.dst)[plane]),
        src_((*plan.src)[plane]),
        page_size_(plan.geometry->page_size),
        tokens_(plan.tokens),
        streaming_(stores == Stores::streaming) {
    const Plane& shape = plan.geometry->planes[plane];
    piece_ = shape.head_bytes();
    std::size_t heads = shape.heads;
    if (dst_.head_stride == piece_ && src_.head_stride == piece_) {
      piece_ *= heads;
      heads = 1;
      whole_runs_ = dst_.token_stride == piece_ && src_.token_stride == piece_;
    }
    merge_pages_ = whole_runs_ && is_linear(dst_, page_size_) && is_linear(src_, page_size_);
    build_loops(layers, heads);
  }

  void run(std::span<const CopyItem> items) const {
    DelayedCopy out(piece_, streaming_);
    for (std::size_t i = 0; i < items.size();) {
      const CopyItem first = items[i];
      std::size_t n = tokens_;
      for (++i; whole_runs_ && i < items.size() && continues(first, n, items[i]); ++i) n += tokens_;
      copy_run(offset_of(dst_, first.dst), offset_of(src_, first.src), n, out);
    }
  }

 private:
  // Addresses as numbers: layers may be buffers that have nothing to do with each other.
  struct Step {
    std::uintptr_t dst = 0;
    std::uintptr_t src = 0;
  };
  using Loop = std::vector<Step>;

  static Loop even_loop(std::size_t n, std::size_t dst_stride, std::size_t src_stride) {
    Loop loop;
    for (std::size_t i = 0; i < n; ++i) loop.push_back({i * dst_stride, i * src_stride});
    return loop;
  }

  void build_loops(LayerSpan span, std::size_t heads) {
    Loop layers;
    for (std::size_t l = span.first; l < span.first + span.count; ++l)
      layers.push_back({reinterpret_cast<std::uintptr_t>(dst_.layers[l]),
                        reinterpret_cast<std::uintptr_t>(src_.layers[l])});
    loops_ = {layers, even_loop(whole_runs_ ? 1 : tokens_, dst_.token_stride, src_.token_stride),
              even_loop(heads, dst_.head_stride, src_.head_stride)};
    const auto distance = [](const Loop& loop) {
      return loop.size() < 2 ? 0 : static_cast<std::intptr_t>(loop[1].src - loop[0].src);
    };
    std::stable_sort(loops_.begin(), loops_.end(), [&](const Loop& a, const Loop& b) {
      return std::abs(distance(a)) > std::abs(distance(b));
    });
  }

  std::uintptr_t offset_of(const PlaneMemory& memory, std::uint64_t slot) const {
    return slot / page_size_ * memory.page_stride + slot % page_size_ * memory.token_stride;
  }

  // Whether `next` begins at both ends where a run of n tokens from `first` on ends.
  bool continues(const CopyItem& first, std::size_t n, const CopyItem& next) const {
    if (next.dst != first.dst + n || next.src != first.src + n) return false;
    return merge_pages_ || (next.dst % page_size_ != 0 && next.src % page_size_ != 0);
  }

  void copy_run(std::uintptr_t dst, std::uintptr_t src, std::size_t n, DelayedCopy& out) const {
    const std::size_t piece = whole_runs_ ? n * piece_ : piece_;
    for (const Step& i : loops_[0])
      for (const Step& j : loops_[1])
        for (const Step& k : loops_[2])
          out.push({reinterpret_cast<std::byte*>(dst + i.dst + j.dst + k.dst),        // NOLINT
                    reinterpret_cast<const std::byte*>(src + i.src + j.src + k.src),  // NOLINT
                    piece});
  }

  const PlaneMemory& dst_;
  const PlaneMemory& src_;
  std::size_t page_size_;
  std::size_t tokens_;
  bool streaming_;
  bool whole_runs_ = false;    // rows of a run follow each other at both ends
  bool merge_pages_ = false;   // also across ends of pages
  std::size_t piece_ = 0;      // contiguous at both ends: a head or a row
  std::array<Loop, 3> loops_;  // outermost first, by distance in the source
};

}  // namespace

void copy_rows(const CopyPlan& plan, LayerSpan layers, std::span<const CopyItem> items,
               Stores stores) {
  if (layers.count == 0) return;
  for (std::size_t plane = 0; plane < plan.geometry->planes.size(); ++plane)
    PlaneCopy(plan, plane, layers, stores).run(items);
  if (stores == Stores::streaming) finish_streaming();
}

Stores stores_for(std::size_t size_bytes) {
  return size_bytes >= kStreamingBytes ? Stores::streaming : Stores::cached;
}

}  // namespace pando
