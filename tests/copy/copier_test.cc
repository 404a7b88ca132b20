// SPDX-License-Identifier: Apache-2.0
// The CPU copier by example: what it refuses and why, what it says without CUDA, and whose memory
// may go when. How transfers run is in transfer_test.cc, what they copy in round_trip_test.cc.
#include "pando/copier.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "support/copy_pools.h"

namespace pando::testing {
namespace {

using enum PageState;
using Pages = std::vector<PageId>;
using HostPages = std::vector<HostPageId>;
constexpr std::array kStates{idle, reserved, writing, backed_up, synced, loading};

enum class Way { backup, load };
constexpr PageState state_for(Way way) { return way == Way::backup ? writing : loading; }

Pages device_pages(std::initializer_list<std::uint32_t> numbers) {
  Pages out;
  for (const std::uint32_t number : numbers) out.push_back(PageId{number});
  return out;
}
Slots slots(std::initializer_list<std::int64_t> numbers) {
  Slots out;
  for (const std::int64_t number : numbers) out.push_back(SlotId{number});
  return out;
}

/// 16 device pages and their padding, 16 host pages.
class CpuCopier : public ::testing::Test {
 protected:
  Result<Transfer> copy(Way way, const PagePairs& pairs, std::size_t stream = 0) {
    return way == Way::backup ? copier_->backup(pairs, stream) : copier_->load(pairs, stream);
  }
  Result<Transfer> copy(Way way, const Pages& device, const HostPages& host) {
    return copy(way, pools_.pairs(device, host));
  }
  /// Whether `call` is refused for a reason that has `part` in it, and leaves bytes, states and
  /// pools as they were.
  template <typename Call>
  ::testing::AssertionResult refused(Call&& call, std::string_view part) {
    const Bytes memory = pools_.memory;
    const auto states = states_now();
    const Result<Transfer> result = call();
    if (pools_.memory != memory) return ::testing::AssertionFailure() << "bytes have changed";
    if (states_now() != states) return ::testing::AssertionFailure() << "states have changed";
    return fails(result, ErrorCode::invalid_argument, part);
  }
  std::vector<PageState> states_now() const {
    std::vector<PageState> out;
    for (std::uint32_t i = 0; i < pools_.host->num_pages(); ++i)
      out.push_back(pools_.host->state(HostPageId{i}));
    return out;
  }

  TestPools pools_;
  std::unique_ptr<Copier> copier_ = *make_cpu_copier();
};

TEST(CpuCopierOptions, NeedAThreadAndAStream) {
  EXPECT_TRUE(CpuCopierOptions{}.validate().ok());
  EXPECT_TRUE(fails(make_cpu_copier({.num_threads = 0, .num_streams = 2}),
                    ErrorCode::invalid_argument, "0 threads and 2 streams"));
  EXPECT_TRUE(fails(make_cpu_copier({.num_threads = 1, .num_streams = 0}),
                    ErrorCode::invalid_argument, "1 threads and 0 streams"));
  EXPECT_EQ((*make_cpu_copier({.num_threads = 1, .num_streams = 7}))->num_streams(), 7u);
}

TEST_F(CpuCopier, HasNoCudaStreamsToWaitFor) {
  EXPECT_TRUE(
      fails(copier_->wait_for_stream(nullptr, 0), ErrorCode::unavailable, "no CUDA streams"));
  EXPECT_TRUE(fails(copier_->wait_for_stream(nullptr, 9), ErrorCode::invalid_argument, "stream"));
}

TEST_F(CpuCopier, RefusesPagesThatAreNotThere) {
  for (const Way way : {Way::backup, Way::load}) {
    const HostPages host = pools_.take(2, state_for(way));
    const auto call = [&](const Pages& device, const HostPages& pages) {
      return [&, device, pages] { return copy(way, device, pages); };
    };
    EXPECT_TRUE(refused(call(device_pages({1, 2, 3}), host), "3 device pages and 2 host pages"));
    EXPECT_TRUE(refused(call(device_pages({}), host), "0 device pages and 2 host pages"));
    EXPECT_TRUE(refused(call(device_pages({1, 0}), host), "device page 0 is not in [1, 17)"));
    EXPECT_TRUE(refused(call(device_pages({1, 17}), host), "device page 17 is not in [1, 17)"));
    EXPECT_TRUE(refused(call(device_pages({1, 2}), {host[0], HostPageId{16}}),
                        "host page 16 is not in [0, 16)"));
    EXPECT_TRUE(refused(call(device_pages({1, 2}), {HostPageId{0xffffffff}, host[0]}),
                        "host page 4294967295 is not in [0, 16)"));
  }
}

TEST_F(CpuCopier, RefusesHostPagesInAnyOtherState) {
  HostPages pages(kStates.size());
  pools_.host->alloc(pages).value();
  const auto from = [&](std::size_t first) { return std::span(pages).subspan(first); };
  pools_.host->protect_write(from(2));  // page i becomes kStates[i]
  pools_.host->complete_write(from(3), false);
  pools_.host->device_came(from(4).first(1));
  pools_.host->protect_load(from(5));
  pools_.host->free(std::span(pages).first(1));
  for (const Way way : {Way::backup, Way::load})
    for (std::size_t i = 0; i < kStates.size(); ++i) {
      ASSERT_EQ(pools_.host->state(pages[i]), kStates[i]);
      if (kStates[i] == state_for(way)) continue;
      const std::string why = "host page " + std::to_string(i) + " is " +
                              std::string(to_string(kStates[i])) + "; expected it " +
                              std::string(to_string(state_for(way)));
      const HostPages good_and_bad{pages[way == Way::backup ? 2 : 5], pages[i]};
      EXPECT_TRUE(refused([&] { return copy(way, device_pages({1, 2}), good_and_bad); }, why));
    }
}

TEST_F(CpuCopier, RefusesToWriteAPageTwice) {
  const HostPages to = pools_.take(2, writing);
  EXPECT_TRUE(refused(
      [&] {
        return copy(Way::backup, device_pages({1, 2, 3}), {to[1], to[0], to[1]});
      },
      "backup: host page 1 is written twice"));
  const HostPages from = pools_.take(3, loading);
  EXPECT_TRUE(refused(
      [&] {
        return copy(Way::load, device_pages({5, 4, 5}), from);
      },
      "load: device page 5 is written twice"));
}

TEST_F(CpuCopier, OnePageMayBeReadForMany) {
  const HostPages to = pools_.take(3, writing);
  ASSERT_TRUE(copy(Way::backup, device_pages({3, 3, 7}), to)->wait().ok());
  EXPECT_EQ(pools_.page(to[0]), pools_.page(PageId{3}));
  EXPECT_EQ(pools_.page(to[1]), pools_.page(PageId{3}));
  EXPECT_EQ(pools_.page(to[2]), pools_.page(PageId{7}));
  pools_.host->complete_write(to, false);
  pools_.host->protect_load(to);
  ASSERT_TRUE(copy(Way::load, device_pages({9, 8}), {to[2], to[2]})->wait().ok());
  EXPECT_EQ(pools_.page(PageId{8}), pools_.page(PageId{7}));
  EXPECT_EQ(pools_.page(PageId{9}), pools_.page(PageId{7}));
}

TEST_F(CpuCopier, RefusesPoolsOfOtherGeometry) {
  Geometry later_stage = TestPools::small_geometry();
  later_stage.first_layer += 3;
  TestPools other(later_stage);
  const Bytes before = other.memory;
  for (const Way way : {Way::backup, Way::load}) {
    const HostPages pages = other.take(1, state_for(way));
    const Pages device = device_pages({1});
    EXPECT_TRUE(refused(
        [&] {
          return copy(way, {*pools_.device, *other.host, device, pages});
        },
        "the device pool has layers 5+3, page 4"));
    EXPECT_TRUE(refused(
        [&] {
          return copy(way, {*pools_.device, *other.host, device, pages});
        },
        "the host pool has layers 8+3, page 4"));
  }
  EXPECT_EQ(other.memory, before);
}

TEST_F(CpuCopier, RefusesStreamsThatItDoesNotHave) {
  constexpr std::string_view kWhy = "no stream 3; it has 3";
  EXPECT_TRUE(refused([&] { return copy(Way::backup, pools_.pairs({}, {}), 3); }, kWhy));
  EXPECT_TRUE(refused([&] { return copy(Way::load, pools_.pairs({}, {}), 3); }, kWhy));
  EXPECT_TRUE(refused([&] { return copier_->move(*pools_.device, {}, {}, 3); }, kWhy));
}

TEST_F(CpuCopier, RefusesMovesThatOverlapOrLeaveThePool) {
  const auto move = [&](const Slots& dst, const Slots& src) {
    return [&, dst, src] { return copier_->move(*pools_.device, dst, src, 0); };
  };
  constexpr auto kFar = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(refused(move(slots({4}), slots({5, 6})), "2 slots to 1 slots"));
  EXPECT_TRUE(refused(move(slots({4, 3}), slots({8, 9})), "slot 9 to slot 3; expected [0, 68)"));
  EXPECT_TRUE(refused(move(slots({68}), slots({4})), "slot 4 to slot 68"));
  EXPECT_TRUE(refused(move(slots({4}), slots({68})), "slot 68 to slot 4"));
  EXPECT_TRUE(refused(move(slots({4}), slots({-1})), "slot -1 to slot 4"));
  EXPECT_TRUE(refused(move(slots({kFar}), slots({4})), "to slot 9223372036854775807"));
  EXPECT_TRUE(refused(move(slots({7, 4, 7}), slots({8, 9, 10})), "slot 7 is written twice"));
  EXPECT_TRUE(refused(move(slots({7, 8}), slots({8, 9})), "slot 8 is both read and written"));
  EXPECT_TRUE(refused(move(slots({7}), slots({7})), "slot 7 is both read and written"));
  ASSERT_TRUE(move(slots({4, 67}), slots({0, 0}))()->wait().ok());  // padding may be read
  EXPECT_EQ(read_slots(*pools_.device, 67, 1), read_slots(*pools_.device, 0, 1));
}

TEST_F(CpuCopier, NothingToCopyIsDoneAtOnce) {
  for (Transfer transfer :
       {*copier_->backup(pools_.pairs({}, {}), 0), *copier_->load(pools_.pairs({}, {}), 1),
        *copier_->move(*pools_.device, {}, {}, 2)}) {
    EXPECT_EQ(transfer.state(), TransferState::done);
    EXPECT_TRUE(transfer.finished());
    EXPECT_EQ(transfer.size_bytes(), 0u);
    EXPECT_EQ(transfer.layers_ready(), 3u);
    EXPECT_TRUE(transfer.wait().ok());
    EXPECT_TRUE(transfer.wait_layer(2).ok());
    EXPECT_TRUE(transfer.signal()->done());
    EXPECT_FALSE(transfer.cancel());
  }
}

TEST_F(CpuCopier, PinnedMemoryIsTheHostsToo) {
  TestPools pools(TestPools::small_geometry(), 4, MemoryKind::pinned);
  ASSERT_EQ(pools.device->memory_kind(), MemoryKind::pinned);
  const Pages device = device_pages({2});
  const HostPages host = pools.take(1, writing);
  ASSERT_TRUE(copy(Way::backup, pools.pairs(device, host))->wait().ok());
  EXPECT_EQ(pools.page(host[0]), pools.page(device[0]));
}

TEST_F(CpuCopier, RefusesPoolsInAGpusMemory) {
  const auto gpu = KvPool::adopt(pools_.device->geometry(), pools_.device->num_pages(),
                                 pools_.device->planes(), MemoryKind::cuda);
  if (!gpu) {
    EXPECT_EQ(gpu.error().code, ErrorCode::unavailable);
    GTEST_SKIP() << "no pool in a GPU's memory: " << gpu.error().message;
  }
  const Pages device = device_pages({1});
  for (const Way way : {Way::backup, Way::load}) {
    const HostPages host = pools_.take(1, state_for(way));
    EXPECT_TRUE(refused(
        [&] {
          return copy(way, {**gpu, *pools_.host, device, host});
        },
        "a pool is in a GPU's memory"));
  }
  EXPECT_TRUE(refused([&] { return copier_->move(**gpu, slots({4}), slots({5}), 0); },
                      "a pool is in a GPU's memory"));
}

TEST(WithoutCuda, WhatNeedsAGpuSaysSo) {
  if (make_cuda_arena().ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_TRUE(fails(make_cuda_arena(), ErrorCode::unavailable, "CUDA"));
  EXPECT_TRUE(fails(make_pinned_arena(), ErrorCode::unavailable, "CUDA"));
  EXPECT_TRUE(fails(make_cuda_copier(), ErrorCode::unavailable, "CUDA"));
}

TEST_F(CpuCopier, PoolsMayGoAsSoonAsTheTransferHasEnded) {
  for (int i = 0; i < 200; ++i) {
    TestPools pools(TestPools::small_geometry(), 4);
    const HostPages host = pools.take(2, writing);
    const Pages device = device_pages({1, 3});
    ASSERT_TRUE(copy(Way::backup, pools.pairs(device, host))->wait().ok());
  }
}

TEST(CpuCopierEnd, RunningTransfersFinishAndQueuedOnesNeverBegin) {
  constexpr std::size_t kSmall = 16;
  TestPools pools;
  LongTransfers in_front;
  const HostPages host = pools.take(kSmall, writing);
  const Pages device = TestPools::all_pages(kSmall);
  auto copier = *make_cpu_copier({.num_threads = 1, .num_streams = 1});
  std::vector<Transfer> longs, smalls;
  for (std::size_t i = 0; i < kSmall; ++i) {
    for (const Transfer& transfer : in_front.submit(*copier, 0, 128)) longs.push_back(transfer);
    smalls.push_back(*copier->backup(
        pools.pairs(std::span(device).subspan(i, 1), std::span(host).subspan(i, 1)), 0));
  }
  ASSERT_TRUE(longs[0].wait_layer(0).ok());  // it has begun
  copier.reset();
  EXPECT_EQ(longs[0].state(), TransferState::done);
  EXPECT_EQ(smalls.back().state(), TransferState::cancelled);  // behind 16 GiB
  bool cancelled = false;
  for (const Transfer& transfer : longs) {
    ASSERT_TRUE(transfer.finished());
    EXPECT_TRUE(!cancelled || transfer.state() == TransferState::cancelled);  // a tail of them
    cancelled = transfer.state() == TransferState::cancelled;
  }
  for (std::size_t i = 0; i < kSmall; ++i) {
    const bool done = smalls[i].wait().ok();
    const Bytes poison(pools.host->page_bytes(), kPoison);
    EXPECT_EQ(pools.page(host[i]), done ? pools.page(device[i]) : poison);
  }
}

// The children stop at the check long before the queue is worked off.
class CpuCopierDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  static void drop_pool(bool host) {
    TestPools pools;
    LongTransfers in_front;
    const HostPages pages = pools.take(1, writing);
    const Pages device = device_pages({1});
    auto copier = *make_cpu_copier({.num_threads = 1, .num_streams = 1});
    in_front.submit(*copier, 0, 2000);
    const Transfer transfer = *copier->backup(pools.pairs(device, pages), 0);
    host ? pools.host.reset() : pools.device.reset();
  }
};

TEST_F(CpuCopierDeathTest, PoolsStayAsLongAsATransferUsesThem) {
  EXPECT_DEATH(drop_pool(false), "kv pool destroyed while 1 transfers use it");
  EXPECT_DEATH(drop_pool(true), "host pool destroyed while 1 transfers use it");
}

}  // namespace
}  // namespace pando::testing
