// SPDX-License-Identifier: Apache-2.0
// SlotCache::copy_kv over real pools: the right bytes arrive in all layers and no others change;
// what is kept while a copy runs; copiers that refuse, fail, or take their time.
#include <gtest/gtest.h>

#include <deque>

#include "copy/transfer_plan.h"
#include "copy/transfer_task.h"
#include "support/copy_pools.h"
#include "support/slot_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kSlotTokens = 16;
constexpr std::size_t kSlots = 4;

Geometry geometry() {
  return mha_geometry({{.num_layers = 3, .first_layer = 5, .page_size = kSlotTokens}, 2, 20});
}

/// Copies when it is told to; refuses or fails when it is told to.
class SlowCopier final : public Copier {
 public:
  Result<Transfer> backup(const PagePairs&, std::size_t) override { return unexpected(); }
  Result<Transfer> load(const PagePairs&, std::size_t, LoadOrder) override { return unexpected(); }
  Result<Transfer> move(KvPool& pool, std::span<const SlotId> dst, std::span<const SlotId> src,
                        std::size_t) override {
    if (refuse) return Error{ErrorCode::io_error, "the copier refuses"};
    Result<CopyPlan> plan = plan_move(pool, dst, src);
    if (!plan) return plan.error();
    queue.push_back({std::make_shared<TransferTask>(std::move(*plan), hold(pool)),
                     &pool,
                     {dst.begin(), dst.end()},
                     {src.begin(), src.end()}});
    return Transfer(queue.back().task);
  }
  Status wait_for_stream(void*, std::size_t) override { return unexpected(); }
  std::size_t num_streams() const override { return 1; }

  void step(bool succeed = true) {
    Job job = std::move(queue.front());
    queue.pop_front();
    if (!job.task->begin()) return;
    if (!succeed) return job.task->fail({ErrorCode::io_error, "the copier fails"});
    job.pool->move(job.dst, job.src).value();
    job.task->finish();
  }

  bool refuse = false;
  struct Job {
    std::shared_ptr<TransferTask> task;
    KvPool* pool;
    std::vector<SlotId> dst, src;
  };
  std::deque<Job> queue;

 private:
  static Error unexpected() { return {ErrorCode::unavailable, "not expected here"}; }
};

class SlotCacheCopy : public ::testing::Test {
 protected:
  Bytes rows(std::size_t slot, std::size_t first, std::size_t n) const {
    return read_slots(*pools.device, (slot + 1) * kSlotTokens + first, n);
  }

  TestPools pools{geometry(), kSlots};
  SlowCopier copier;
  TestSlots slots{kSlots,
                  {.slot_tokens = kSlotTokens, .pool = pools.device.get(), .copier = &copier}};
};

TEST_F(SlotCacheCopy, CopiesTheRowsOfTheKeyInAllLayersAndNoOthers) {
  const std::unique_ptr<Copier> cpu = *make_cpu_copier();
  TestSlots real{kSlots,
                 {.slot_tokens = kSlotTokens,
                  .pool = pools.device.get(),
                  .copier = cpu.get(),
                  .copy_stream = 2}};
  real.fill(tokens(4, 700));
  const std::size_t source = real.leave(tokens(12));
  const std::size_t target = real.take();
  const Bytes wanted = rows(source, 0, 9);
  const Bytes rest = rows(target, 9, kSlotTokens - 9);
  std::vector<Bytes> others;
  for (std::size_t s = 0; s < kSlots; ++s) others.push_back(rows(s, 0, kSlotTokens));

  const Transfer transfer = *real->copy_kv({tokens(9)}, target);
  ASSERT_TRUE(transfer.wait().ok());
  EXPECT_EQ(transfer.size_bytes(), wanted.size());
  EXPECT_EQ(rows(target, 0, 9), wanted);
  EXPECT_EQ(rows(target, 9, kSlotTokens - 9), rest);
  for (std::size_t s = 0; s < kSlots; ++s) {
    if (s == target) continue;
    EXPECT_EQ(rows(s, 0, kSlotTokens), others[s]) << "slot " << s;
  }
  ASSERT_TRUE(real->insert({tokens(9)}, target).ok());
  EXPECT_EQ(real->stats().num_copies, 0u);
  real.prove();
}

TEST_F(SlotCacheCopy, KeepsTheSourceUntilItHasFinished) {
  const std::size_t source = slots.leave(tokens(12));
  const std::size_t target = slots.take();
  slots.take();
  slots.take();
  ASSERT_TRUE(slots->copy_kv({tokens(12)}, target).ok());
  slots.prove();
  EXPECT_EQ(slots->stats().num_copies, 1u);
  EXPECT_EQ(slots->take(), std::nullopt);
  const SlotMatch shorter = slots.find(tokens(8));
  EXPECT_FALSE(shorter.free);
  EXPECT_TRUE(fails(slots->occupy(shorter), ErrorCode::in_use, "a pin or a copy needs more"));
  copier.step();
  EXPECT_EQ(slots.take(), source);
}

TEST_F(SlotCacheCopy, ASourceMayBeContinuedBehindWhatIsCopied) {
  const std::size_t source = slots.leave(tokens(12));
  const std::size_t target = slots.take();
  ASSERT_TRUE(slots->copy_kv({tokens(8)}, target).ok());
  const SlotMatch match = slots.find(tokens(8) + tokens(1, 99));
  EXPECT_TRUE(match.free);
  EXPECT_TRUE(slots.occupy(match));
  copier.step();
  EXPECT_EQ(rows(target, 0, 8), rows(source, 0, 8));
}

TEST_F(SlotCacheCopy, ForgetsWhatTheTargetHeld) {
  slots.fill(tokens(12));
  const std::size_t target = slots.fill(tokens(12, 100));
  ASSERT_TRUE(slots->copy_kv({tokens(4)}, target).ok());
  slots.prove();
  EXPECT_EQ(slots.length(tokens(12, 100)), 0u);
  EXPECT_TRUE(fails(slots->insert({tokens(4)}, target), ErrorCode::in_use,
                    "a copy into slot 1 is under way"));
  copier.step();
  EXPECT_TRUE(slots->insert({tokens(4)}, target).ok());
}

TEST_F(SlotCacheCopy, ATargetGivenBackEarlyIsNotHandedOutMeanwhile) {
  slots.fill(tokens(12));
  const std::size_t target = slots.take();
  slots.take();
  slots.take();
  ASSERT_TRUE(slots->copy_kv({tokens(12)}, target).ok());
  slots.free(target);
  EXPECT_EQ(slots->take(), std::nullopt);
  copier.step();
  EXPECT_EQ(slots.take(), target);
}

TEST_F(SlotCacheCopy, ACopierThatRefusesChangesNothing) {
  slots.leave(tokens(12));
  const std::size_t target = slots.fill(tokens(12, 100));
  const std::string before = slots->dump();
  copier.refuse = true;
  EXPECT_TRUE(fails(slots->copy_kv({tokens(12)}, target), ErrorCode::io_error, "refuses"));
  EXPECT_EQ(slots->dump(), before);
  EXPECT_EQ(slots->stats().num_copies, 0u);
  slots.prove();
}

TEST_F(SlotCacheCopy, ACopyThatFailsLeavesTheTargetUnknownAndTheSourceFindable) {
  const std::size_t source = slots.leave(tokens(12));
  const std::size_t target = slots.take();
  const Transfer transfer = *slots->copy_kv({tokens(12)}, target);
  copier.step(false);
  EXPECT_TRUE(fails(transfer.wait(), ErrorCode::io_error, "fails"));
  EXPECT_EQ(slots.find(tokens(12)).slot, source);
  EXPECT_TRUE(slots.find(tokens(12)).free);
  EXPECT_EQ(slots->stats().num_copies, 0u);
}

TEST_F(SlotCacheCopy, ACancelledCopyKeepsNothing) {
  const std::size_t source = slots.leave(tokens(12));
  const std::size_t target = slots.take();
  Transfer transfer = *slots->copy_kv({tokens(12)}, target);
  EXPECT_TRUE(transfer.cancel());
  EXPECT_TRUE(slots.occupy(slots.find(tokens(12))));
  EXPECT_FALSE(slots.allocator->is_free(source));
}

TEST_F(SlotCacheCopy, TheTargetItselfIsNoSource) {
  const std::size_t target = slots.fill(tokens(12));
  EXPECT_TRUE(fails(slots->copy_kv({tokens(12)}, target), ErrorCode::not_found, "but the target"));
  EXPECT_EQ(slots.length(tokens(12)), 12u);
  const std::size_t other = slots.fill(tokens(14));
  ASSERT_TRUE(slots->copy_kv({tokens(12)}, target).ok());
  copier.step();
  EXPECT_EQ(rows(target, 0, 12), rows(other, 0, 12));
}

TEST_F(SlotCacheCopy, BadTargetsAndUnknownKeysAreRefused) {
  const std::size_t source = slots.fill(tokens(12));
  const std::size_t target = slots.fill(tokens(12, 100));
  EXPECT_TRUE(
      fails(slots->copy_kv({tokens(12)}, 2), ErrorCode::invalid_argument, "slot 2 is not taken"));
  EXPECT_TRUE(
      fails(slots->copy_kv({tokens(12)}, 9), ErrorCode::invalid_argument, "slot 9 is outside"));
  EXPECT_TRUE(fails(slots->copy_kv({tokens(13)}, target), ErrorCode::not_found,
                    "all 13 tokens, of which slots hold 12"));
  ASSERT_TRUE(slots->pin({tokens(4, 100)}).ok());
  EXPECT_TRUE(fails(slots->copy_kv({tokens(12)}, target), ErrorCode::in_use, "is pinned"));
  ASSERT_TRUE(slots->release({tokens(4, 100)}).ok());
  ASSERT_TRUE(slots->copy_kv({tokens(12)}, target).ok());
  EXPECT_TRUE(fails(slots->copy_kv({tokens(12)}, target), ErrorCode::in_use, "running copy"));
  slots.fill(tokens(3, 500));
  EXPECT_TRUE(fails(slots->copy_kv({tokens(3, 500)}, source), ErrorCode::in_use, "running copy"));
  copier.step();
}

TEST_F(SlotCacheCopy, APoolThatDoesNotFitIsRefused) {
  auto allocator = *SlotAllocator::create(kSlots);
  const auto make = [&](const SlotCacheOptions& options) {
    return SlotCache::create(options, *allocator);
  };
  KvPool* const pool = pools.device.get();
  EXPECT_TRUE(fails(make({.slot_tokens = 8, .pool = pool, .copier = &copier}),
                    ErrorCode::invalid_argument, "pages have 16 tokens, slots 8"));
  EXPECT_TRUE(fails(make({.slot_tokens = kSlotTokens, .pool = pool}), ErrorCode::invalid_argument,
                    "only the pool is given"));
  EXPECT_TRUE(fails(make({.slot_tokens = kSlotTokens, .copier = &copier}),
                    ErrorCode::invalid_argument, "only the copier is given"));
  EXPECT_TRUE(
      fails(make({.slot_tokens = kSlotTokens, .pool = pool, .copier = &copier, .copy_stream = 1}),
            ErrorCode::invalid_argument, "copy_stream 1 of 1"));
  auto more = *SlotAllocator::create(kSlots + 1);
  EXPECT_TRUE(
      fails(SlotCache::create({.slot_tokens = kSlotTokens, .pool = pool, .copier = &copier}, *more),
            ErrorCode::invalid_argument, "the pool has 5 pages; expected 6"));
}

}  // namespace
}  // namespace pando::testing
