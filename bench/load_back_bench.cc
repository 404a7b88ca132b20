// SPDX-License-Identifier: Apache-2.0
// A prefix of 8192 tokens comes back from the host to the device, both in memory of the CPU: the
// whole of load_back, the copies and the poll that acknowledges them, beside a plain memcpy of as
// many bytes by as many threads.
#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "cases/tree.h"
#include "limit.h"
#include "pando/copier.h"
#include "pando/paths.h"
#include "plain_copy.h"

namespace pando::bench {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::size_t kPage = 64;
constexpr std::size_t kLength = 8192;
constexpr std::size_t kTurn = 512;

// MHA of 8 layers, 8 heads of 128, bf16: 32 KiB a token. Two conversations took turns, so that the
// pages of one lie between those of the other on both tiers. The second one stays on the device.
class Conversations {
 public:
  Conversations()
      : arena(make_huge_page_arena()),
        device(*KvPool::create(
            {.geometry = mha_geometry(
                 {.layers = {.num_layers = 8, .page_size = kPage}, .heads = 8, .head_dim = 128}),
             .capacity_tokens = 2 * kLength},
            *arena)),
        host(*HostPool::create({.layout = HostLayout::page_first, .ratio = 1.0}, *device, *arena)),
        copier_(*make_cpu_copier({.num_threads = kThreads})),
        sequences_(2, kLength, 0, 1),
        tree_(2 * kLength, kPage,
              {.host = HostTierOptions{.full = {device.get(), host.get()},
                                       .copier = copier_.get(),
                                       .write_policy = WritePolicy::write_through}}),
        slots_(kLength) {
    // Different bytes everywhere, so that verify() can tell.
    auto* words = reinterpret_cast<std::uint64_t*>(device->planes()[0].layers[0]);
    Random random(4);
    for (std::size_t i = 0; i < device->size_bytes() / 8; ++i) words[i] = random.next();
    for (std::size_t end = kTurn; end <= kLength; end += kTurn) {
      for (std::size_t i = 0; i < 2; ++i) tree_.insert(sequences_[i].first(end));
      settle();
    }
    const Match other = *tree_.cache->paths().match({sequences_[1]});
    other_ = *tree_.cache->paths().lock(other);
    require(tree_.cache->paths().match({sequences_[0]}, slots_)->length == kLength,
            "all is cached");
    written_ = fingerprint();
  }

  /// The first one leaves the device, and is matched again.
  void demote() {
    lease_.release();
    tree_.cache->evict(kLength);
    const Match match = *tree_.cache->paths().match({sequences_[0]}, slots_);
    require(match.length == 0 && match.host_length == kLength, "all is on the host");
    lease_ = *tree_.cache->paths().lock(match);
  }
  void load_back() {
    const auto loaded = tree_.cache->paths().load_back(lease_, slots_);
    require(loaded.ok() && loaded->tokens == kLength, "all is loaded");
  }
  /// Sleeps until the last layer has arrived.
  void wait() {
    require(device->wait_layer(device->geometry().num_layers - 1).ok(), "load");
    settle();
  }
  void settle() {
    while (!tree_.cache->poll().idle) continue;
  }
  void verify() {
    require(fingerprint() == written_, "the bytes that were backed up have come back");
    require(tree_.cache->check().ok(), "tree and pools agree");
  }
  std::size_t bytes() const { return kLength * device->geometry().token_bytes(); }

  std::unique_ptr<Arena> arena;
  std::unique_ptr<KvPool> device;
  std::unique_ptr<HostPool> host;

 private:
  // Of each row of the first conversation, a word that moves through the row.
  std::uint64_t fingerprint() const {
    std::uint64_t sum = 0;
    std::size_t word = 0;
    for (const PlaneMemory& plane : device->planes()) {
      for (const std::byte* layer : plane.layers) {
        for (const SlotId slot : slots_) {
          const auto at = static_cast<std::size_t>(index_of(slot));
          const std::byte* row =
              layer + at / kPage * plane.page_stride + at % kPage * plane.token_stride;
          std::uint64_t value;
          std::memcpy(&value, row + word++ % 256 * sizeof value, sizeof value);
          sum = sum * 31 + value;
        }
      }
    }
    return sum;
  }

  std::unique_ptr<Copier> copier_;
  Sequences sequences_;
  Tree tree_;
  std::vector<SlotId> slots_;
  Lease lease_, other_;
  std::uint64_t written_ = 0;
};

void load_back(benchmark::State& state) {
  Conversations all;
  PlainCopy plain(*all.arena, all.bytes(), kThreads);
  const auto load = [&](std::size_t = 0) {
    all.load_back();
    all.wait();
  };
  for (std::size_t i = 0; i < 2; ++i) {
    all.demote();
    load();
    all.verify();
    plain.run();
  }
  all.demote();
  const Measured measured = measure(
      15, 1, load, [&](std::size_t) { plain.run(); }, [&] { all.demote(); });
  // The library counts this thread's processor time: one that sleeps would copy for minutes.
  for (auto _ : state) {
    all.load_back();
    all.settle();
    state.PauseTiming();
    all.demote();
    state.ResumeTiming();
  }
  const auto bytes = static_cast<double>(all.bytes());
  state.counters["of_memcpy"] = 1 / measured.ratio;
  state.counters["GB_per_s"] = bytes / measured.work_ns;
  state.counters["memcpy_GB_per_s"] = bytes / measured.limit_ns;
}

const int registered = [] {
  benchmark::RegisterBenchmark("LoadBack/tokens:8192", load_back)->Unit(benchmark::kMillisecond);
  return 0;
}();

}  // namespace
}  // namespace pando::bench
