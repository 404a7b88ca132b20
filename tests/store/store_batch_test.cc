// SPDX-License-Identifier: Apache-2.0
// StoreBatch and page tags: what a reader accepts, and how reports add up.
#include <thread>

#include "support/store_fixture.h"

namespace pando::testing {
namespace {

using enum PageOutcome;
using Kind = StoreBatch::Kind;
using Clock = StoreBatch::Clock;

StoreBatch key_batch(Kind kind, std::size_t n) {
  return StoreBatch(kind, key_pages(numbered_keys(n)), Clock::time_point::max());
}

TEST(PageTag, DependsOnBytesAndKeyAndNotOnPieces) {
  TestPages pages({"a"});
  pages.fill();
  const PageTag tag = make_page_tag(pages.pages(1)[0]);
  EXPECT_EQ(tag.size_bytes, TestPages::kPageBytes);
  EXPECT_EQ(make_page_tag(pages.pages(7)[0]), tag);
  StorePage renamed = pages.pages()[0];
  renamed.key = "b";
  EXPECT_FALSE(make_page_tag(renamed) == tag);
  StorePage shorter = pages.pages()[0];
  shorter.pieces[0] = shorter.pieces[0].first(TestPages::kPageBytes - 1);
  EXPECT_FALSE(make_page_tag(shorter) == tag);
  StorePage changed = pages.pages()[0];
  changed.pieces[0][17] ^= std::byte{4};
  EXPECT_FALSE(make_page_tag(changed) == tag);
}

TEST(StoreBatch, APageThatArrivesIsVerified) {
  TestPages pages({"a", "b"});
  pages.fill();
  StoreBatch batch(Kind::get, pages.pages(), Clock::time_point::max());
  EXPECT_TRUE(batch.arrived(0, batch.tag(0)));
  EXPECT_FALSE(batch.arrived(1, batch.tag(0)));
  batch.finish({});
  EXPECT_EQ(batch.outcome(0), done);
  EXPECT_EQ(batch.outcome(1), damaged);
  EXPECT_TRUE(batch.status().ok());
}

TEST(StoreBatch, LeadingPagesEndAtTheFirstThatIsNotDone) {
  StoreBatch batch = key_batch(Kind::exists, 5);
  batch.done(1);
  EXPECT_EQ(batch.num_leading(), 0u);
  batch.done(0);
  EXPECT_EQ(batch.num_leading(), 2u);
  batch.missing(2);
  batch.done(3);
  batch.done(4);
  EXPECT_EQ(batch.num_leading(), 2u);
}

TEST(StoreBatch, IsStoppedByItsDeadlineOrByWhoeverItIsPartOf) {
  EXPECT_TRUE(StoreBatch(Kind::exists, {}, Clock::now()).stopped());
  StoreBatch whole = key_batch(Kind::exists, 1);
  const StoreBatch part(Kind::exists, {}, whole.deadline(), &whole);
  EXPECT_FALSE(part.stopped());
  whole.cancel();
  EXPECT_TRUE(part.cancelled());
  EXPECT_TRUE(part.stopped());
}

TEST(StoreBatch, OnlyOneBeginsIt) {
  StoreBatch batch = key_batch(Kind::exists, 1);
  EXPECT_TRUE(batch.begin());
  EXPECT_FALSE(batch.begin());
  batch.cancel();
  batch.abandon();  // who began it finishes it
  EXPECT_FALSE(batch.finished());
}

TEST(StoreBatch, IsAbandonedOnlyWhenStopped) {
  StoreBatch batch = key_batch(Kind::exists, 1);
  batch.abandon();
  EXPECT_FALSE(batch.finished());
  batch.cancel();
  batch.abandon();
  EXPECT_TRUE(batch.finished());
  EXPECT_TRUE(fails(batch.status(), ErrorCode::cancelled, "called off before it began"));
}

TEST(StoreBatch, TheHookSeesFinalOutcomesBeforeAnybodyElseGoesOn) {
  StoreBatch batch = key_batch(Kind::exists, 2);
  std::size_t calls = 0;
  batch.on_settled([&](const StoreBatch& settled) {
    ++calls;
    EXPECT_EQ(settled.outcome(1), failed);
    EXPECT_FALSE(settled.status().ok());
    EXPECT_FALSE(settled.finished());
  });
  batch.done(0);
  batch.finish({});
  EXPECT_EQ(calls, 1u);
  EXPECT_TRUE(batch.wait_until(Clock::now()));
}

TEST(StoreBatch, WaitingEndsWithTheCall) {
  StoreBatch batch = key_batch(Kind::exists, 1);
  EXPECT_FALSE(batch.wait_until(Clock::now()));
  std::thread runs([&] {
    batch.done(0);
    batch.finish({});
  });
  batch.wait();
  runs.join();
  EXPECT_TRUE(batch.finished());
}

TEST(StoreBatchDeathTest, ReportsOutsideTheContractStop) {
  StoreBatch batch = key_batch(Kind::exists, 2);
  batch.done(0);
  EXPECT_DEATH(batch.missing(0), "a second report on page 0 \\(key0\\): missing after done");
  EXPECT_DEATH(batch.done(2), "a report on page 2 of 2");
  EXPECT_DEATH(
      {
        batch.finish({});
        batch.finish({});
      },
      "finished twice");
  StoreBatch get = key_batch(Kind::get, 1);
  EXPECT_DEATH(get.done(0), "page 0 of a get is done without its tag");
}

}  // namespace
}  // namespace pando::testing
