// SPDX-License-Identifier: Apache-2.0
// BlockHistory by example, and against a deque of evictions with a map beside it.
#include "index/block_history.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <ostream>
#include <vector>

#include "base/random.h"

namespace pando {
namespace {

TEST(BlockHistory, RemembersHitsUntilTaken) {
  BlockHistory history(8);
  history.add(11, 3);
  EXPECT_EQ(history.find(11), 3u);
  EXPECT_EQ(history.find(12), std::nullopt);
  EXPECT_EQ(history.take(11), 3u);
  EXPECT_EQ(history.take(11), std::nullopt);
  EXPECT_EQ(history.size(), 0u);
}

TEST(BlockHistory, ForgetsTheOldestEvictionFirst) {
  BlockHistory history(3);
  for (std::uint32_t id = 1; id <= 4; ++id) history.add(id, id);
  EXPECT_EQ(history.find(1), std::nullopt);
  for (std::uint32_t id = 2; id <= 4; ++id) EXPECT_EQ(history.find(id), id);
  EXPECT_EQ(history.size(), 3u);
}

TEST(BlockHistory, ABlockEvictedAgainIsRememberedByItsLastTime) {
  BlockHistory history(3);
  history.add(1, 0);
  EXPECT_EQ(history.take(1), 0u);
  history.add(2, 0);
  history.add(1, 5);
  history.add(3, 0);
  EXPECT_EQ(history.find(2), 0u);  // what came back in between does not count
  history.add(4, 0);
  EXPECT_EQ(history.find(2), std::nullopt);
  EXPECT_EQ(history.find(1), 5u);
  history.add(5, 0);
  EXPECT_EQ(history.find(1), std::nullopt);
}

TEST(BlockHistory, LimitIsFourTimesTheCacheOrItsMinimum) {
  EXPECT_EQ(BlockHistory::limit_for(0), 32768u);
  EXPECT_EQ(BlockHistory::limit_for(8192), 32768u);
  EXPECT_EQ(BlockHistory::limit_for(8193), 32772u);
}

TEST(BlockHistory, MemoryGrowsWithUseUpToTheLimit) {
  BlockHistory history(1 << 12);
  EXPECT_EQ(history.memory_bytes(), 0u);
  Random ids(1);
  for (int i = 0; i < 10; ++i) history.add(ids.next(), 0);
  EXPECT_LE(history.memory_bytes(), 4096u);
  for (int i = 0; i < 1 << 16; ++i) history.add(ids.next(), 0);
  EXPECT_EQ(history.size(), history.limit());
  EXPECT_LE(history.memory_bytes(), history.limit() * (24 + 43));
}

TEST(BlockHistoryDeathTest, NeedsALimit) { EXPECT_DEATH(BlockHistory{0}, "a history of 0 blocks"); }

/// The last `limit` evictions that did not come back, oldest first.
class Model {
 public:
  explicit Model(std::size_t limit) : limit_(limit) {}

  void add(std::uint64_t id, std::uint32_t hits) {
    take(id);
    evictions_.push_back(id);
    if (evictions_.size() > limit_) {
      hits_.erase(evictions_.front());
      evictions_.pop_front();
    }
    hits_[id] = hits;
  }
  std::optional<std::uint32_t> take(std::uint64_t id) {
    const auto found = find(id);
    std::erase(evictions_, id);
    hits_.erase(id);
    return found;
  }
  std::optional<std::uint32_t> find(std::uint64_t id) const {
    const auto found = hits_.find(id);
    if (found == hits_.end()) return std::nullopt;
    return found->second;
  }
  std::size_t size() const { return hits_.size(); }

 private:
  std::size_t limit_;
  std::deque<std::uint64_t> evictions_;
  std::map<std::uint64_t, std::uint32_t> hits_;
};

constexpr std::uint64_t kIds = 40;

struct Step {
  bool evicted = true;
  std::uint64_t id = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << (step.evicted ? "-" : "+") << step.id;
}

RC_GTEST_PROP(BlockHistoryModel, AgreesWithADequeAndAMap, ()) {
  const auto step =
      rc::gen::build<Step>(rc::gen::set(&Step::evicted, rc::gen::arbitrary<bool>()),
                           rc::gen::set(&Step::id, rc::gen::inRange<std::uint64_t>(0, kIds)));
  const auto steps = *rc::gen::scale(5, rc::gen::container<std::vector<Step>>(step));
  const auto limit = *rc::gen::inRange<std::size_t>(1, 50);
  BlockHistory history(limit);
  Model model(limit);
  std::uint32_t hits = 0;
  for (const Step& s : steps) {
    const std::uint64_t id = Random(s.id).next();
    if (s.evicted) {
      history.add(id, ++hits);
      model.add(id, hits);
    } else {
      RC_ASSERT(history.take(id) == model.take(id));
    }
    RC_ASSERT(history.size() == model.size());
    for (std::uint64_t i = 0; i < kIds; ++i) {
      RC_ASSERT(history.find(Random(i).next()) == model.find(Random(i).next()));
    }
  }
}

}  // namespace
}  // namespace pando
