// SPDX-License-Identifier: Apache-2.0
// One decode step for 256 requests with a sliding window: what has left the window is given back.
// At page 64 that is four pages a step; the rest of the work is to see that nothing is due. The
// limit is to give back just those pages, known in advance, in one call.
#include <memory>
#include <vector>

#include "cases/tree.h"
#include "limit.h"

namespace pando::bench {
namespace {

constexpr std::size_t kPage = 64;
constexpr std::size_t kWindow = 1024;
constexpr std::size_t kRequests = 256;
constexpr std::size_t kLength = 8192;

// Requests with all slots they will need; request i has computed kStart + i tokens.
class Batch {
 public:
  static constexpr std::size_t kStart = kWindow + kPage;
  static constexpr std::size_t kSteps = kLength - kStart - kRequests;

  Batch() : tree_(kRequests * kLength, kPage, {.window = kWindow}) {
    const std::vector<Token> prompt = {1};
    for (std::size_t i = 0; i < kRequests; ++i) {
      requests_.push_back(*tree_.cache->start(prompt));
      require(tree_.cache->allocate(requests_.back(), kLength).ok(), "room for all requests");
      lengths_.push_back(kStart + i);
    }
    for (Request& request : requests_) pointers_.push_back(&request);
    require(step() > 0, "what is behind the window at first is given back");
  }
  ~Batch() {
    for (Request& request : requests_) tree_.cache->abandon(request);
  }

  std::size_t step() {
    for (std::size_t& length : lengths_) ++length;
    return *tree_.cache->release_window(pointers_, lengths_);
  }

  /// The slots that a step gives back, by the same lengths.
  std::vector<SlotId> due(std::size_t step) const {
    std::vector<SlotId> out;
    for (std::size_t i = 0; i < kRequests; ++i) {
      const std::size_t length = kStart + i + 1 + step;
      if (length % kPage != 0) continue;
      const auto page = requests_[i].slots().subspan(length - kWindow - kPage, kPage);
      out.insert(out.end(), page.begin(), page.end());
    }
    return out;
  }
  void free_window(std::span<const SlotId> slots) { tree_.window_allocator->free_window(slots); }

 private:
  Tree tree_;
  std::vector<Request> requests_;
  std::vector<Request*> pointers_;
  std::vector<std::size_t> lengths_;
};

void window_release(benchmark::State& state) {
  Batch work, limit;
  std::vector<std::vector<SlotId>> due(Batch::kSteps);
  for (std::size_t i = 1; i < due.size(); ++i) due[i] = limit.due(i);
  constexpr std::size_t kBatch = 64;
  std::size_t next = 1;
  std::size_t released = 0;
  std::size_t expected = 0;
  const Measured measured = measure(
      Batch::kSteps / kBatch - 1, kBatch, [&](std::size_t) { released += work.step(); },
      [&](std::size_t) {
        expected += due[next].size();
        limit.free_window(due[next++]);
      },
      [] {});
  require(released == expected && released > 0, "both gave back the same");
  auto again = std::make_unique<Batch>();
  for (std::size_t step = 0; auto _ : state) {
    if (++step == Batch::kSteps) {
      state.PauseTiming();
      again = std::make_unique<Batch>();
      step = 0;
      state.ResumeTiming();
    }
    benchmark::DoNotOptimize(again->step());
  }
  report(state, measured);
  state.counters["ns_per_request"] = measured.work_ns / kRequests;
}

const int registered = [] {
  benchmark::RegisterBenchmark("WindowRelease/requests:256", window_release);
  return 0;
}();

}  // namespace
}  // namespace pando::bench
