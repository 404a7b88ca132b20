// SPDX-License-Identifier: Apache-2.0
// Transfers under way: order in a stream and none between streams, layers that arrive one after
// the other, waiting from many threads, cancelling, and a pool's gate. Nothing here waits for time
// to pass; where two outcomes are possible, each must be consistent.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "support/copy_pools.h"

namespace pando::testing {
namespace {

using enum TransferState;
using Pages = std::vector<PageId>;
using HostPages = std::vector<HostPageId>;

std::unique_ptr<Copier> make(std::size_t num_threads, std::size_t num_streams = 3) {
  return *make_cpu_copier({.num_threads = num_threads, .num_streams = num_streams});
}

/// `n` pages of 256 KiB under way from the host to the device, where they arrive in reverse order.
class Load {
 public:
  explicit Load(Copier& copier, std::size_t n = 16)
      : pools(TestPools::big_geometry(), n), num_layers(pools.device->geometry().num_layers) {
    pages = pools.take(n, PageState::writing);
    targets = TestPools::all_pages(n);
    copier.backup(pools.pairs(targets, pages), 0)->wait().value();
    pools.host->complete_write(pages, false);
    pools.host->protect_load(pages);
    std::reverse(targets.begin(), targets.end());
  }
  Transfer submit(Copier& copier) { return *copier.load(pools.pairs(targets, pages), 0); }

  /// Whether a layer is in place on the device, all pages of it.
  bool has_arrived(std::size_t layer) const {
    const std::size_t page_size = pools.device->geometry().page_size;
    for (std::size_t i = 0; i < pages.size(); ++i)
      if (read_layer(*pools.device, layer, index_of(targets[i]) * page_size, page_size) !=
          read_layer(*pools.host, layer, index_of(pages[i]) * page_size, page_size))
        return false;
    return true;
  }

  TestPools pools;
  std::size_t num_layers;
  HostPages pages;
  Pages targets;
};

TEST(Transfer, StatesHaveNames) {
  EXPECT_EQ(to_string(queued), "queued");
  EXPECT_EQ(to_string(running), "running");
  EXPECT_EQ(to_string(done), "done");
  EXPECT_EQ(to_string(cancelled), "cancelled");
  EXPECT_EQ(to_string(failed), "failed");
}

TEST(Transfer, TheLastOfAStreamToWriteAPageWins) {
  TestPools pools;
  const auto copier = make(4);
  const HostPages host = pools.take(1, PageState::writing);
  const Pages device = TestPools::all_pages(16);
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < 1000; ++i)
    transfers.push_back(
        *copier->backup(pools.pairs(std::span(device).subspan(i * 7 % 16, 1), host), 1));
  ASSERT_TRUE(transfers.back().wait().ok());
  for (const Transfer& transfer : transfers) EXPECT_EQ(transfer.state(), done);
  EXPECT_EQ(pools.page(host[0]), pools.page(device[999 * 7 % 16]));
}

TEST(Transfer, AChainOfMovesCarriesTheFirstSlotToTheLast) {
  TestPools pools;
  const auto copier = make(4);
  const Bytes first = read_slots(*pools.device, 4, 1);
  const Slots slots = slot_range(4, 68);
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i + 1 < slots.size(); ++i)
    transfers.push_back(*copier->move(*pools.device, std::span(slots).subspan(i + 1, 1),
                                      std::span(slots).subspan(i, 1), 2));
  ASSERT_TRUE(transfers.back().wait().ok());
  for (std::size_t slot = 4; slot < 68; ++slot)
    EXPECT_EQ(read_slots(*pools.device, slot, 1), first);
}

TEST(Transfer, AStreamDoesNotWaitForAnother) {
  TestPools pools;
  LongTransfers others;
  const auto copier = make(1, 2);
  std::vector<Transfer> longs = others.submit(*copier, 0, 2000);
  const HostPages host = pools.take(1, PageState::writing);
  const Pages device = TestPools::all_pages(1);
  ASSERT_TRUE(copier->backup(pools.pairs(device, host), 1)->wait().ok());
  EXPECT_EQ(pools.page(host[0]), pools.page(device[0]));
  EXPECT_EQ(longs.back().state(), queued);  // behind 16 GiB
  for (auto it = longs.rbegin(); it != longs.rend() && it->cancel(); ++it) continue;
}

/// Both outcomes of cancel() and what must follow from each.
void expect_consistent(bool was_cancelled, const Transfer& transfer, const TestPools& pools,
                       HostPageId host, PageId device) {
  EXPECT_EQ(transfer.wait().ok(), !was_cancelled);
  EXPECT_EQ(to_string(transfer.state()), was_cancelled ? "cancelled" : "done");
  EXPECT_EQ(transfer.layers_ready(), was_cancelled ? 0 : 3u);
  EXPECT_EQ(transfer.signal()->done(), !was_cancelled);
  const Bytes poison(pools.host->page_bytes(), kPoison);
  EXPECT_TRUE(pools.page(host) == (was_cancelled ? poison : pools.page(device)));
}

TEST(Transfer, CancelledInTheQueueItNeverRuns) {
  LongTransfers in_front;
  const auto copier = make(1);
  for (int i = 0; i < 20; ++i) {
    TestPools pools;
    const HostPages host = pools.take(1, PageState::writing);
    const Pages device = TestPools::all_pages(1);
    in_front.submit(*copier, 0);
    Transfer transfer = *copier->backup(pools.pairs(device, host), 0);
    const Transfer copy_of_handle = transfer;
    const bool was_cancelled = transfer.cancel();
    if (was_cancelled) {
      EXPECT_TRUE(fails(transfer.wait(), ErrorCode::unavailable, "cancelled before it began"));
      EXPECT_TRUE(fails(transfer.wait_layer(0), ErrorCode::unavailable, "cancelled"));
    }
    EXPECT_FALSE(transfer.cancel());
    in_front.submit(*copier, 0).wait().value();  // by now it would have run
    expect_consistent(was_cancelled, copy_of_handle, pools, host[0], device[0]);
    EXPECT_FALSE(transfer.cancel());
  }
}

// Workers look for the next transfer at the very time that it is cancelled.
TEST(Transfer, CancelledWhileWorkersReachForItItIsConsistent) {
  TestPools pools(TestPools::small_geometry(), 2);
  const auto copier = make(4, 1);
  const Pages device = TestPools::all_pages(2);
  for (int i = 0; i < 20'000 && !::testing::Test::HasFailure(); ++i) {
    const HostPages host = pools.take(2, PageState::writing);
    const auto submit = [&](std::size_t page) {
      return *copier->backup(
          pools.pairs(std::span(device).subspan(page, 1), std::span(host).subspan(page, 1)), 0);
    };
    const Transfer before = submit(0);
    Transfer transfer = submit(1);
    if (i % 2 == 0) before.wait().value();
    const bool was_cancelled = transfer.cancel();
    submit(0).wait().value();
    expect_consistent(was_cancelled, transfer, pools, host[1], device[1]);
    pools.host->abort_write(host);
    pools.host->free(host);
    for (std::byte& byte : std::span(pools.host->planes()[0].layers[0], pools.host->size_bytes()))
      byte = kPoison;
  }
}

TEST(Transfer, PoolsMayGoAsSoonAsItIsCancelled) {
  LongTransfers in_front;
  const auto copier = make(1);
  const Pages device = TestPools::all_pages(1);
  for (int i = 0; i < 20; ++i) {
    TestPools pools;
    const HostPages host = pools.take(1, PageState::writing);
    in_front.submit(*copier, 0);
    Transfer transfer = *copier->backup(pools.pairs(device, host), 0);
    if (!transfer.cancel()) transfer.wait().value();
  }
  in_front.submit(*copier, 0).wait().value();
}

TEST(Transfer, CancelAfterTheEndChangesNothing) {
  const auto copier = make(2);
  Load load(*copier, 2);
  Transfer transfer = load.submit(*copier);
  transfer.wait().value();
  EXPECT_FALSE(transfer.cancel());
  EXPECT_EQ(transfer.state(), done);
  EXPECT_EQ(transfer.layers_ready(), load.num_layers);
  EXPECT_TRUE(transfer.wait().ok());
}

TEST(Transfer, ALayerIsInPlaceWhenTheWaitForItReturns) {
  const auto copier = make(2);
  Load load(*copier, 64);
  const Transfer transfer = load.submit(*copier);
  std::vector<std::thread> threads;
  for (std::size_t layer = 0; layer < load.num_layers; ++layer)
    threads.emplace_back([&, layer] {
      EXPECT_TRUE(transfer.wait_layer(layer).ok());
      EXPECT_GT(transfer.layers_ready(), layer);
      EXPECT_TRUE(load.has_arrived(layer)) << layer;
    });
  threads.emplace_back([&] {
    for (std::size_t before = 0; !transfer.finished(); std::this_thread::yield()) {
      const std::size_t now = transfer.layers_ready();
      EXPECT_GE(now, before);
      before = now;
    }
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(transfer.wait().ok());
  EXPECT_EQ(transfer.layers_ready(), load.num_layers);
}

TEST(Transfer, ManyThreadsMayWaitForIt) {
  const auto copier = make(2);
  Load load(*copier);
  const Transfer transfer = load.submit(*copier);
  std::atomic<int> arrived = 0;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 16; ++i)
    threads.emplace_back([&, own = transfer] {
      if (own.wait().ok() && own.state() == done) ++arrived;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arrived, 16);
  for (std::size_t layer = 0; layer < load.num_layers; ++layer)
    EXPECT_TRUE(load.has_arrived(layer));
}

TEST(Transfer, AGatedPoolShowsALayerOnceItHasArrived) {
  const auto copier = make(2);
  Load load(*copier, 64);
  const Transfer transfer = load.submit(*copier);
  load.pools.device->gate(transfer.signal());
  std::vector<std::thread> threads;
  for (std::size_t layer = 0; layer < load.num_layers; ++layer)
    threads.emplace_back([&, layer] {
      EXPECT_TRUE(load.pools.device->view(layer, 0).ok());
      EXPECT_TRUE(load.has_arrived(layer)) << layer;
      EXPECT_TRUE(load.pools.device->wait_layer(layer).ok());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(transfer.wait().ok());
}

TEST(Transfer, ACancelledLoadKeepsTheGateShut) {
  const auto copier = make(1);
  LongTransfers in_front;
  Load load(*copier, 2);
  const std::vector<Transfer> longs = in_front.submit(*copier, 0, 20);
  Transfer transfer = load.submit(*copier);
  load.pools.device->gate(transfer.signal());
  if (transfer.cancel()) {
    EXPECT_TRUE(fails(load.pools.device->view(0, 1), ErrorCode::unavailable, "cancelled"));
    EXPECT_TRUE(fails(load.pools.device->wait_layer(3), ErrorCode::unavailable, "cancelled"));
    load.pools.device->open_gate();
  }
  EXPECT_TRUE(load.pools.device->view(0, 1).ok());
  longs.back().wait().value();
}

}  // namespace
}  // namespace pando::testing
