// SPDX-License-Identifier: Apache-2.0
// IdList: its orders, and what it says when it is misused.
#include "base/id_list.h"

#include <gtest/gtest.h>

#include <list>

#include "base/random.h"
#include "pando/types.h"

namespace pando::testing {
namespace {

using Queue = IdList<PageId>;

std::vector<PageId> ids(std::initializer_list<std::uint32_t> numbers) {
  std::vector<PageId> out;
  for (const std::uint32_t n : numbers) out.push_back(PageId{n});
  return out;
}

TEST(IdList, StartsInOrderWithoutIdZero) {
  const Queue queue(5, Queue::Start::all);
  EXPECT_EQ(queue.list(), ids({1, 2, 3, 4}));
  EXPECT_FALSE(Queue(5, Queue::Start::none).has(PageId{1}));
}

TEST(IdList, EveryOperationKeepsTheOrderOfTheRest) {
  Queue queue(9, Queue::Start::all);
  EXPECT_EQ(queue.pop_front(), PageId{1});
  std::vector<PageId> taken(2);
  queue.pop_front(taken);
  EXPECT_EQ(taken, ids({2, 3}));
  queue.remove(PageId{6});
  EXPECT_EQ(queue.list(), ids({4, 5, 7, 8}));
  queue.append(PageId{6});
  queue.append(ids({3, 1}));
  EXPECT_EQ(queue.list(), ids({4, 5, 7, 8, 6, 3, 1}));
  queue.remove(PageId{1});
  queue.prepend(ids({1, 2}));  // in the order given
  EXPECT_EQ(queue.list(), ids({1, 2, 4, 5, 7, 8, 6, 3}));
  queue.append(std::vector<PageId>{});
  queue.prepend(std::vector<PageId>{});
  queue.pop_front(std::span<PageId>{});
  EXPECT_EQ(queue.size(), 8U);
  EXPECT_TRUE(queue.check().ok());
}

TEST(IdList, EmptiesAndFillsAgain) {
  Queue queue(4, Queue::Start::all);
  std::vector<PageId> all(3);
  queue.pop_front(all);
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(queue.list().empty());
  queue.prepend(ids({2}));
  queue.append(ids({3}));
  queue.prepend(ids({1}));
  EXPECT_EQ(queue.list(), ids({1, 2, 3}));
  EXPECT_TRUE(queue.check().ok());
}

TEST(IdList, AgreesWithAListOverRandomOperations) {
  constexpr std::uint32_t kBlocks = 40;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Queue queue(kBlocks, Queue::Start::all);
    std::list<PageId> list;
    for (std::uint32_t i = 1; i < kBlocks; ++i) list.push_back(PageId{i});
    std::vector<PageId> out;  // not queued
    for (int op = 0; op < 3000; ++op) {
      const std::size_t kind = random.below(5);
      if (kind == 0 && !list.empty()) {
        std::vector<PageId> taken(1 + random.below(std::min<std::size_t>(list.size(), 5)));
        queue.pop_front(taken);
        for (const PageId id : taken) {
          ASSERT_EQ(id, list.front());
          list.pop_front();
          out.push_back(id);
        }
      } else if (kind == 1 && !list.empty()) {
        const auto at =
            std::next(list.begin(), static_cast<std::ptrdiff_t>(random.below(list.size())));
        out.push_back(*at);
        queue.remove(*at);
        list.erase(at);
      } else if (kind >= 2 && !out.empty()) {
        std::vector<PageId> back;
        for (std::size_t n = 1 + random.below(3); n > 0 && !out.empty(); --n) {
          const std::size_t i = random.below(out.size());
          back.push_back(out[i]);
          out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
        }
        kind == 2 ? queue.prepend(back) : queue.append(back);
        list.insert(kind == 2 ? list.begin() : list.end(), back.begin(), back.end());
      }
      ASSERT_EQ(queue.list(), std::vector<PageId>(list.begin(), list.end()));
      ASSERT_TRUE(queue.check().ok());
    }
  }
}

TEST(IdListDeathTest, MisuseNamesTheId) {
  Queue queue(4, Queue::Start::all);
  EXPECT_DEATH(queue.append(PageId{2}), "id 2 is in the list already");
  EXPECT_DEATH(queue.append(PageId{0}), "id 0 of a list over \\[1, 4\\)");
  EXPECT_DEATH(queue.append(PageId{9}), "id 9 of a list over");
  queue.remove(PageId{2});
  EXPECT_DEATH(queue.remove(PageId{2}), "id 2 is not in the list");
  std::vector<PageId> more(3);
  EXPECT_DEATH(queue.pop_front(more), "3 ids wanted of a list of 2");
  std::vector<PageId> rest(2);
  queue.pop_front(rest);
  EXPECT_DEATH(queue.pop_front(), "the list is empty");
}

}  // namespace
}  // namespace pando::testing
