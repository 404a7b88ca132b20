// SPDX-License-Identifier: Apache-2.0
// Store: queues and their bound, deadlines, cancelling, the order of clear, and the end of a Store
// with calls under way. A gate holds the backend still; nothing here waits for time to pass.
#include <optional>
#include <thread>

#include "support/store_fixture.h"

namespace pando::testing {
namespace {

using enum PageOutcome;
using Outcomes = std::vector<PageOutcome>;
using std::chrono::milliseconds;
using Log = std::vector<std::string>;

class StoreQueue : public ::testing::Test {
 protected:
  void open(const StoreOptions& options = {}) {
    store_ = *Store::open(std::make_unique<GatedBackend>(control_), options);
  }
  void TearDown() override {
    control_->reads.open();
    control_->writes.open();
  }
  /// A read that holds the only reading thread.
  StoreCall blocked_read() {
    control_->reads.shut();
    const std::size_t before = control_->reads.num_arrived();
    const StoreCall call = *store_->exists({"first"});
    control_->reads.await(before + 1);
    return call;
  }
  StoreCall put(const std::string& key) {
    pages_.push_back(std::make_unique<TestPages>(std::vector{key}));
    return *store_->put(pages_.back()->fill().pages());
  }

  std::vector<std::unique_ptr<TestPages>> pages_;
  std::shared_ptr<GatedBackend::Control> control_ = std::make_shared<GatedBackend::Control>();
  std::unique_ptr<Store> store_;
};

TEST_F(StoreQueue, ACallPastItsDeadlineNeverReachesTheBackend) {
  open();
  const StoreCall first = blocked_read();
  TestPages read({"late"});
  const StoreCall late = *store_->get(read.pages(), milliseconds(0));
  EXPECT_TRUE(fails(late.wait(), ErrorCode::timed_out, "the deadline came before it began"));
  EXPECT_FALSE(first.finished());  // though the one before it still runs
  EXPECT_EQ(outcomes(late), Outcomes{pending});
  const StoreCall polled = *store_->get(read.pages(), milliseconds(-5));
  EXPECT_TRUE(polled.finished());
  control_->reads.open();
  EXPECT_TRUE(first.wait().ok());
  ASSERT_TRUE(store_->exists({"last"})->wait().ok());
  EXPECT_EQ(control_->seen(), (Log{"exists first", "exists last"}));
  EXPECT_EQ(store_->stats().timed_out_calls, 2u);
  EXPECT_EQ(store_->stats().failed_pages, 0u);
}

TEST_F(StoreQueue, ACallThatIsCancelledBeforeItBeginsIsFinishedAtOnce) {
  open();
  const StoreCall first = blocked_read();
  const StoreCall second = *store_->exists({"second"});
  const StoreCall third = *store_->exists({"third"});
  second.cancel();
  EXPECT_TRUE(second.finished());
  EXPECT_TRUE(fails(second.wait(), ErrorCode::cancelled, "called off before it began"));
  EXPECT_FALSE(third.finished());
  control_->reads.open();
  EXPECT_TRUE(third.wait().ok());
  EXPECT_EQ(control_->seen(), (Log{"exists first", "exists third"}));
  EXPECT_EQ(store_->stats().cancelled_calls, 1u);
}

TEST_F(StoreQueue, CancellingWakesWhoeverWaits) {
  open();
  const StoreCall first = blocked_read();
  const StoreCall second = *store_->exists({"second"});
  std::thread waiter(
      [&] { EXPECT_TRUE(fails(second.wait(), ErrorCode::cancelled, "called off")); });
  second.cancel();
  waiter.join();
  EXPECT_FALSE(first.finished());
}

TEST_F(StoreQueue, RefusesWhatIsBeyondItsBound) {
  open({.max_queued_pages = 4});
  const StoreCall running = blocked_read();  // no longer queued
  const StoreCall three = *store_->exists(numbered_keys(3));
  EXPECT_TRUE(fails(store_->exists(numbered_keys(2)), ErrorCode::out_of_capacity,
                    "a call of 2 pages: 3 are queued already; expected at most 4 in all"));
  const StoreCall one = *store_->exists({"one"});
  EXPECT_TRUE(fails(store_->exists({}), ErrorCode::out_of_capacity, "4 are queued already"));
  EXPECT_EQ(store_->stats().refused_calls, 2u);
  ASSERT_TRUE(store_->clear()->wait().ok());  // the other queue has room
  control_->reads.open();
  EXPECT_TRUE(one.wait().ok());
  EXPECT_TRUE(store_->exists(numbered_keys(2))->wait().ok());
}

TEST_F(StoreQueue, ACallLargerThanTheBoundRunsWhenNothingElseIsQueued) {
  open({.max_queued_pages = 4});
  EXPECT_TRUE(store_->exists(numbered_keys(100))->wait().ok());
  const StoreCall running = blocked_read();
  const StoreCall large = *store_->exists(numbered_keys(100));
  EXPECT_TRUE(fails(store_->exists({"one"}), ErrorCode::out_of_capacity, "100 are queued already"));
  control_->reads.open();
  EXPECT_TRUE(large.wait().ok());
}

TEST_F(StoreQueue, StoppedCallsMakeRoom) {
  open({.max_queued_pages = 4});
  const StoreCall running = blocked_read();
  const StoreCall called_off = *store_->exists(numbered_keys(2));
  const StoreCall expired = *store_->exists(numbered_keys(2), milliseconds(0));
  called_off.cancel();
  EXPECT_TRUE(store_->exists(numbered_keys(4)).ok());
  EXPECT_TRUE(expired.finished());
}

TEST_F(StoreQueue, ReadsDoNotWaitForWrites) {
  open();
  control_->writes.shut();
  const StoreCall write = put("slow");
  EXPECT_TRUE(store_->exists({"quick"})->wait().ok());
  EXPECT_FALSE(write.finished());
}

TEST_F(StoreQueue, ClearComesAfterTheWritesBeforeItAndBeforeThoseAfterIt) {
  open({.num_write_threads = 3});
  control_->writes.shut();
  const StoreCall before = put("before");
  control_->writes.await(1);
  const StoreCall clear = *store_->clear();
  const StoreCall after = put("after");
  EXPECT_EQ(control_->seen(), Log{"put before"});
  control_->writes.open();
  ASSERT_TRUE(after.wait().ok());
  EXPECT_TRUE(before.finished() && clear.finished());
  EXPECT_EQ(control_->seen(), (Log{"put before", "clear", "put after"}));
  const StoreCall exists = *store_->exists({"before", "after"});
  ASSERT_TRUE(exists.wait().ok());
  EXPECT_EQ(outcomes(exists), (Outcomes{missing, done}));
}

TEST_F(StoreQueue, AClearThatGivesUpLetsTheNextThrough) {
  open({.num_write_threads = 2});
  control_->writes.shut();
  const StoreCall stuck = put("stuck");
  control_->writes.await(1);
  const StoreCall clear = *store_->clear(milliseconds(20));
  const StoreCall next = put("next");
  EXPECT_TRUE(fails(clear.wait(), ErrorCode::timed_out, "before it began"));
  control_->writes.await(2);
  EXPECT_EQ(control_->seen(), (Log{"put stuck", "put next"}));
}

TEST_F(StoreQueue, TheEndOfAStoreCancelsWhatIsQueuedAndWaitsForWhatRuns) {
  open();
  const StoreCall running = blocked_read();
  const StoreCall queued = *store_->exists({"queued"});
  std::thread ends([&] { store_.reset(); });
  EXPECT_TRUE(fails(queued.wait(), ErrorCode::cancelled, "before it began"));
  EXPECT_FALSE(running.finished());
  control_->reads.open();
  ends.join();
  EXPECT_TRUE(running.finished());
  EXPECT_EQ(control_->seen(), Log{"exists first"});
}

// A backend that goes on until it is told to stop.
std::unique_ptr<Store> endless_store(Gate& entered) {
  return *Store::open(std::make_unique<ScriptedBackend>([&entered](StoreBatch& batch) {
    batch.done(0);
    entered.pass();
    while (!batch.stopped()) std::this_thread::yield();
  }));
}

TEST(RunningCall, StopsWhenItIsCancelled) {
  Gate entered;
  const auto store = endless_store(entered);
  const StoreCall call = *store->exists({"a", "b"});
  entered.await(1);
  EXPECT_FALSE(call.finished());
  call.cancel();
  EXPECT_TRUE(fails(call.wait(), ErrorCode::cancelled, "called off at page 1 of 2"));
  EXPECT_EQ(outcomes(call), (Outcomes{done, pending}));
  EXPECT_EQ(store->stats().cancelled_calls, 1u);
}

TEST(RunningCall, StopsAtItsDeadline) {
  Gate entered;
  const auto store = endless_store(entered);
  const StoreCall call = *store->exists({"a", "b"}, milliseconds(500));
  EXPECT_TRUE(fails(call.wait(), ErrorCode::timed_out, "the deadline came at page 1 of 2"));
  EXPECT_EQ(outcomes(call), (Outcomes{done, pending}));
  EXPECT_EQ(store->stats().timed_out_calls, 1u);
  EXPECT_EQ(store->stats().failed_pages, 0u);
}

TEST(RunningCall, StopsAtTheEndOfTheStoreAndOutlivesIt) {
  Gate entered;
  auto store = endless_store(entered);
  const StoreCall call = *store->exists({"a", "b"}, milliseconds::max());
  entered.await(1);
  store.reset();
  EXPECT_TRUE(call.finished());
  EXPECT_TRUE(fails(call.wait(), ErrorCode::cancelled, "called off"));
}

}  // namespace
}  // namespace pando::testing
