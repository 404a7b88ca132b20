// SPDX-License-Identifier: Apache-2.0
// What handing out and taking back slots costs, for batches of 256 requests at page size 64, beside
// the limit of the same work measured in the same run. Counter `limit_ratio`: median time of a
// batch over the median time of its limit, which alternate. Each benchmark verifies what it got
// before it times anything. Undoing a batch happens outside the timed part.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "limit.h"
#include "pando/allocators.h"

namespace pando {
namespace {

using Slots = std::vector<SlotId>;
using Lengths = std::vector<std::size_t>;

constexpr std::size_t kRequests = 256;
constexpr std::size_t kPageSize = 64;
constexpr SlotId kFirstSlot{kPageSize};  // page 0 is the padding page
constexpr std::size_t kPoolTokens = std::size_t{1} << 20;

std::unique_ptr<PagedAllocator> make_allocator() {
  return PagedAllocator::create({kPoolTokens, kPageSize, ReuseOrder::fifo}).value();
}

Lengths random_lengths(std::size_t lowest, std::size_t highest, std::uint32_t seed) {
  std::mt19937 random(seed);
  Lengths lengths(kRequests);
  for (std::size_t& length : lengths) length = lowest + random() % (highest - lowest + 1);
  return lengths;
}

Lengths sum(const Lengths& a, const Lengths& b) {
  Lengths total(a.size());
  std::transform(a.begin(), a.end(), b.begin(), total.begin(), std::plus<>());
  return total;
}

bool all_different(const Slots& slots) {
  return std::set<SlotId>(slots.begin(), slots.end()).size() == slots.size() &&
         std::all_of(slots.begin(), slots.end(),
                     [](SlotId s) { return index_of(s) >= index_of(kFirstSlot); });
}

// The pages that begin in `slots`: those a growth has opened.
std::vector<PageId> opened_pages(const Slots& slots) {
  std::vector<PageId> pages;
  for (const SlotId slot : slots) {
    const auto index = static_cast<std::uint64_t>(index_of(slot));
    if (index % kPageSize == 0)
      pages.push_back(PageId{static_cast<std::uint32_t>(index / kPageSize)});
  }
  return pages;
}

/// Times of a batch and of its limit, taken in turns.
class Ratio {
 public:
  template <typename Work>
  static double nanoseconds(Work work) {
    return bench::time_each(1, [&](std::size_t) { work(); });
  }

  void add(double work, double limit) {
    work_.push_back(work);
    limit_.push_back(limit);
  }

  void report(benchmark::State& state) {
    if (!work_.empty())
      state.counters["limit_ratio"] = bench::median(work_) / bench::median(limit_);
  }

 private:
  std::vector<double> work_;
  std::vector<double> limit_;
};

/// A batch of requests with open pages, and a growth of 100 to 600 tokens for each.
struct Growth {
  Lengths prefix, seq;
  Slots last, out;

  Growth(PagedAllocator& allocator, std::uint32_t seed) {
    prefix = random_lengths(1, 63, seed);
    seq = sum(prefix, random_lengths(100, 600, seed + 1));
    Slots heads(std::accumulate(prefix.begin(), prefix.end(), std::size_t{0}));
    allocator.alloc_extend(Lengths(kRequests), prefix, Slots(kRequests), heads).value();
    std::size_t end = 0;
    for (const std::size_t length : prefix) last.push_back(heads[(end += length) - 1]);
    out.resize(std::accumulate(seq.begin(), seq.end(), std::size_t{0}) - heads.size());
  }

  void extend(PagedAllocator& allocator) { allocator.alloc_extend(prefix, seq, last, out).value(); }
  void undo(PagedAllocator& allocator) { allocator.free_pages(opened_pages(out)); }
};

// Limit: memcpy of as many slots into the same `out`.
void alloc_extend(benchmark::State& state) {
  constexpr std::size_t kBatch = 4;
  const auto allocator = make_allocator();
  std::vector<Growth> growths;
  for (std::uint32_t i = 0; i < kBatch; ++i) growths.emplace_back(*allocator, 2 * i);

  const std::size_t before = allocator->available_pages();
  std::size_t pages = 0;
  for (Growth& growth : growths) {
    growth.extend(*allocator);
    pages += allocator->pages_for_extend(growth.prefix, growth.seq);
    if (!all_different(growth.out)) return state.SkipWithError("a slot was handed out twice");
  }
  if (allocator->available_pages() + pages != before) {
    return state.SkipWithError("pages taken differ from pages announced");
  }
  std::vector<Slots> sources;
  for (const Growth& growth : growths) sources.push_back(growth.out);

  Ratio ratio;
  while (state.KeepRunningBatch(kBatch)) {
    state.PauseTiming();
    for (Growth& growth : growths) growth.undo(*allocator);
    const double limit = Ratio::nanoseconds([&] {
      for (std::size_t i = 0; i < kBatch; ++i) {
        std::memcpy(growths[i].out.data(), sources[i].data(), sources[i].size() * sizeof(SlotId));
        benchmark::ClobberMemory();
      }
    });
    state.ResumeTiming();
    ratio.add(Ratio::nanoseconds([&] {
                for (Growth& growth : growths) growth.extend(*allocator);
              }),
              limit);
  }
  state.counters["tokens"] = static_cast<double>(growths[0].out.size());
  ratio.report(state);
}

// 64 steps, so that each request opens one page. Limit: memcpy of 256 slots from step to step.
void alloc_decode(benchmark::State& state) {
  constexpr std::size_t kBatch = kPageSize;
  const auto allocator = make_allocator();
  const Growth start(*allocator, 1);
  std::vector<Lengths> seq(kBatch + 1, start.prefix);
  for (std::size_t step = 1; step <= kBatch; ++step) {
    seq[step] = sum(seq[step - 1], Lengths(kRequests, 1));
  }
  std::vector<Slots> out(kBatch + 1, start.last);
  const auto decode = [&] {
    for (std::size_t step = 1; step <= kBatch; ++step) {
      allocator->alloc_decode(seq[step], out[step - 1], out[step]).value();
    }
  };

  decode();
  Slots all;
  for (std::size_t step = 0; step <= kBatch; ++step) {
    all.insert(all.end(), out[step].begin(), out[step].end());
  }
  if (!all_different(all)) return state.SkipWithError("a slot was handed out twice");
  std::vector<Slots> copy = out;

  Ratio ratio;
  while (state.KeepRunningBatch(kBatch)) {
    state.PauseTiming();
    for (std::size_t step = 1; step <= kBatch; ++step) {
      allocator->free_pages(opened_pages(out[step]));
    }
    const double limit = Ratio::nanoseconds([&] {
      for (std::size_t step = 1; step <= kBatch; ++step) {
        std::memcpy(copy[step].data(), out[step - 1].data(), kRequests * sizeof(SlotId));
        benchmark::ClobberMemory();
      }
    });
    state.ResumeTiming();
    ratio.add(Ratio::nanoseconds(decode), limit);
  }
  ratio.report(state);
}

// Limit: one pass that reads the same slots (and adds them up).
void free_tokens(benchmark::State& state) {
  constexpr std::size_t kBatch = 4;
  const auto allocator = make_allocator();
  std::vector<Slots> held;
  std::vector<Lengths> seq;
  for (std::uint32_t i = 0; i < kBatch; ++i) {
    seq.push_back(random_lengths(100, 600, i));
    held.emplace_back(std::accumulate(seq[i].begin(), seq[i].end(), std::size_t{0}));
  }
  const auto hold = [&] {
    for (std::size_t i = 0; i < kBatch; ++i) {
      allocator->alloc_extend(Lengths(kRequests), seq[i], Slots(kRequests), held[i]).value();
    }
  };
  const auto release = [&] {
    for (const Slots& slots : held) allocator->free(slots);
  };

  hold();
  release();
  if (allocator->available() != allocator->capacity() || !allocator->check()) {
    return state.SkipWithError("not every page came back");
  }
  Ratio ratio;
  while (state.KeepRunningBatch(kBatch)) {
    state.PauseTiming();
    hold();
    const double limit = Ratio::nanoseconds([&] {
      for (const Slots& slots : held) {
        std::int64_t total = 0;
        for (const SlotId slot : slots) total += index_of(slot);
        benchmark::DoNotOptimize(total);
      }
    });
    state.ResumeTiming();
    ratio.add(Ratio::nanoseconds(release), limit);
  }
  state.counters["tokens"] = static_cast<double>(held[0].size());
  ratio.report(state);
}

BENCHMARK(alloc_extend)->Name("AllocExtend");
BENCHMARK(alloc_decode)->Name("AllocDecode");
BENCHMARK(free_tokens)->Name("FreeTokens");

}  // namespace
}  // namespace pando
