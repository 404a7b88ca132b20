// SPDX-License-Identifier: Apache-2.0
// Four processes on one directory against a list of pages in order of use. One of them does one
// thing at a time, and any of them is asked what it sees; now and then one is killed, closed or
// started. PANDO_MODEL_SEED runs one seed, PANDO_MODEL_ROUNDS says how many (8).
#include <algorithm>
#include <list>

#include "support/child_member.h"

namespace pando::testing {
namespace {

constexpr std::size_t kMembers = 4;
constexpr std::uint64_t kKeys = 30;

class Walk {
 public:
  explicit Walk(std::uint64_t seed) : random_(seed) {
    capacity_pages_ = 5 + random_.below(30);
    for (std::size_t i = 0; i < kMembers; ++i) start(i);
  }

  void step() {
    const std::size_t who = random_.below(kMembers);
    const std::uint64_t what = random_.below(100);
    if (what < 4) {
      kill_or_close(who);
      if (alive() == 0) forget_order();  // the next finds the pages in order of writing
    } else if (!members_[who]) {
      start(who);
    } else if (what < 45) {
      put(*members_[who], random_.below(kKeys), 1 + random_.below(4));
    } else if (what < 80) {
      get(*members_[who], random_.below(kKeys));
    } else if (what < 90) {
      const std::uint64_t number = random_.below(kKeys);
      ASSERT_EQ(members_[who]->ask("remove", number, 1), "d");
      pages_.remove(number);
    }
    compare();
  }

 private:
  std::size_t alive() const {
    return static_cast<std::size_t>(std::count_if(members_.begin(), members_.end(),
                                                  [](const auto& m) { return m != nullptr; }));
  }
  void start(std::size_t who) {
    members_[who] = std::make_unique<ChildMember>(temp_ / "store", member_capacity(capacity_pages_),
                                                  random_.below(2) == 0);
    ASSERT_EQ(members_[who]->first_line(), "ready");
  }
  void kill_or_close(std::size_t who) {
    if (!members_[who]) return;
    if (random_.below(2) == 0) {
      EXPECT_TRUE(members_[who]->kill());
    } else {
      EXPECT_EQ(members_[who]->quit(), 0);
    }
    members_[who].reset();
  }
  void forget_order() {
    pages_.sort([&](std::uint64_t a, std::uint64_t b) { return written_[a] < written_[b]; });
  }

  void put(ChildMember& member, std::uint64_t first, std::uint64_t num) {
    // One page at a time: io_uring finishes those of one call in any order.
    for (std::uint64_t number = first; number < first + num; ++number) {
      ASSERT_EQ(member.ask("put", number, 1), "d");
      const bool is_new = std::find(pages_.begin(), pages_.end(), number) == pages_.end();
      pages_.remove(number);
      while (pages_.size() >= capacity_pages_) pages_.pop_front();
      pages_.push_back(number);
      if (is_new) written_[number] = ++num_writes_;
    }
  }

  void get(ChildMember& member, std::uint64_t number) {
    const bool there = std::find(pages_.begin(), pages_.end(), number) != pages_.end();
    ASSERT_EQ(member.ask("get", number, 1), there ? "d" : "m");
    if (!there) return;
    pages_.remove(number);
    pages_.push_back(number);
  }

  void compare() {
    const std::size_t who = random_.below(kMembers);
    if (!members_[who]) return;
    ChildMember& member = *members_[who];
    std::string expected;
    for (std::uint64_t number = 0; number < kKeys + 4; ++number)
      expected += std::find(pages_.begin(), pages_.end(), number) != pages_.end() ? 'd' : 'm';
    ASSERT_EQ(member.ask("exists", 0, kKeys + 4), expected);
    ASSERT_EQ(member.ask("stats"),
              fmt::format("{} {} 0", pages_.size(), member_capacity(pages_.size())));
    ASSERT_EQ(member.ask("check"), "ok");
    ASSERT_LE(disk_bytes(temp_ / "store"), member_capacity(capacity_pages_));
    ASSERT_EQ(disk_bytes(temp_ / "store"), member_capacity(pages_.size()));
  }

  TempDirectory temp_;
  Random random_;
  std::size_t capacity_pages_ = 0;
  std::array<std::unique_ptr<ChildMember>, kMembers> members_;
  std::list<std::uint64_t> pages_;  // least recently used first
  std::map<std::uint64_t, std::uint64_t> written_;
  std::uint64_t num_writes_ = 0;
};

TEST(FileSharingModel, FourProcessesAgreeWithAListInOrderOfUse) {
  const char* seed = std::getenv("PANDO_MODEL_SEED");
  const char* rounds = std::getenv("PANDO_MODEL_ROUNDS");
  const std::uint64_t first = seed ? std::strtoull(seed, nullptr, 10) : 1;
  const std::uint64_t num = seed ? 1 : rounds ? std::strtoull(rounds, nullptr, 10) : 8;
  for (std::uint64_t i = first; i < first + num; ++i) {
    SCOPED_TRACE(fmt::format("PANDO_MODEL_SEED={}", i));
    Walk walk(i);
    for (int op = 0; op < 300 && !HasFatalFailure() && !HasNonfatalFailure(); ++op) walk.step();
    if (HasFailure()) {
      std::printf("failed with PANDO_MODEL_SEED=%llu\n", static_cast<unsigned long long>(i));
      return;
    }
  }
}

}  // namespace
}  // namespace pando::testing
