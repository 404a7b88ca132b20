// SPDX-License-Identifier: Apache-2.0
// Four processes put, read and remove the same and different pages of one directory, and one of
// them is killed at a random moment, over and over. PANDO_KILLS says how often (15).
//
// At every step all of them are stopped, and what their files take on the disk is counted: never
// more than the capacity. In the end every page is whole and, where there was room for all, every
// page that anybody was told is there is there.
#include <map>
#include <thread>

#include "support/child_member.h"

namespace pando::testing {
namespace {

constexpr std::size_t kMembers = 4;
constexpr std::uint64_t kSharedKeys = 60;

int num_kills() {
  const char* kills = std::getenv("PANDO_KILLS");
  return kills ? std::atoi(kills) : 15;
}

class Storm {
 public:
  explicit Storm(std::size_t capacity_pages) : capacity_bytes_(member_capacity(capacity_pages)) {
    for (std::size_t i = 0; i < kMembers; ++i) start(i);
  }

  void start(std::size_t i) {
    members_[i] = std::make_unique<ChildMember>(
        directory(), capacity_bytes_, num_started_ % 2 == 0,
        std::vector<std::string>{"storm", std::to_string(++num_started_),
                                 std::to_string(kSharedKeys)});
    ASSERT_EQ(members_[i]->first_line(), "ready");
    listeners_[i] = std::thread([member = members_[i].get(), &lines = said_[i]] {
      for (std::string line = member->line(); !line.empty(); line = member->line())
        lines.push_back(line);
    });
  }
  void kill(std::size_t i) {
    EXPECT_TRUE(members_[i]->kill()) << "it had ended: a page was wrong, see above";
    listeners_[i].join();
    for (const std::string& line : said_[i]) hear(line);
    said_[i].clear();
  }
  /// Looks at the disk while nobody moves.
  void check_disk() {
    for (auto& member : members_) member->stop();
    EXPECT_LE(disk_bytes(directory()), capacity_bytes_);
    for (auto& member : members_) {
      EXPECT_FALSE(member->has_ended());
      member->go_on();
    }
  }
  std::string directory() const { return temp_ / "store"; }
  std::uint64_t capacity_bytes() const { return capacity_bytes_; }
  bool was_removed(std::uint64_t number) const { return removed_.contains(number); }
  const std::set<std::uint64_t>& put() const { return put_; }

 private:
  void hear(const std::string& line) {
    if (line.size() < 2) return;
    const std::uint64_t number = std::strtoull(line.c_str() + 1, nullptr, 10);
    (line[0] == '+' ? put_ : removed_).insert(number);
  }

  TempDirectory temp_;
  const std::uint64_t capacity_bytes_;
  std::uint64_t num_started_ = 0;
  std::array<std::unique_ptr<ChildMember>, kMembers> members_;
  std::array<std::thread, kMembers> listeners_;
  std::array<std::vector<std::string>, kMembers> said_;
  std::set<std::uint64_t> put_, removed_;
};

void run(std::size_t capacity_pages, bool all_fit) {
  const std::uint64_t seed = static_cast<std::uint64_t>(num_kills());
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  Storm storm(capacity_pages);
  const auto watcher = open_store({.directory = storm.directory(),
                                   .capacity_bytes = storm.capacity_bytes(),
                                   .min_free_bytes = 0});
  for (int round = 0; round < num_kills() && !::testing::Test::HasFailure(); ++round) {
    SCOPED_TRACE(fmt::format("round {}", round));
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(60'000)));
    const std::size_t who = random.below(kMembers);
    storm.kill(who);
    storm.start(who);
    storm.check_disk();
    const Status checked = check_index_of(*watcher);
    EXPECT_TRUE(checked.ok()) << checked.error().message;
    EXPECT_LE(watcher->stats().size_bytes, storm.capacity_bytes());
  }
  for (std::size_t i = 0; i < kMembers; ++i) storm.kill(i);
  static_cast<FileStore&>(*watcher).files().member()->clean_up();
  EXPECT_EQ(num_temporaries(storm.directory()), 0u);
  EXPECT_TRUE(check_index_of(*watcher).ok());

  Keys keys;
  ASSERT_TRUE(watcher
                  ->list([&](const StoredPage& page) {
                    keys.push_back(page.key);
                    return true;
                  })
                  .ok());
  EXPECT_EQ(disk_bytes(storm.directory()), member_capacity(keys.size()));
  EXPECT_EQ(watcher->stats().size_bytes, member_capacity(keys.size()));
  const Outcomes outcomes = get_pages(*watcher, keys, kMemberShape);
  EXPECT_TRUE(outcomes.all(PageOutcome::done)) << outcomes.error;
  EXPECT_TRUE(outcomes.bytes_right);
  EXPECT_EQ(num_entries(storm.directory() + "/set_aside"), 0u);
  EXPECT_EQ(watcher->stats().damaged_pages, 0u);
  EXPECT_GT(storm.put().size(), 10u);
  if (!all_fit) return;
  std::size_t num_kept = 0;
  std::vector<std::uint64_t> lost;
  for (const std::uint64_t number : storm.put()) {
    if (storm.was_removed(number)) continue;
    ++num_kept;
    if (!pages_exist(*watcher, {test_key(number)}).all(PageOutcome::done)) lost.push_back(number);
  }
  EXPECT_TRUE(lost.empty()) << lost.size() << " of " << num_kept << ", page " << lost.front();
  std::printf("%zu pages were put and never removed\n", num_kept);
}

TEST(FileSharingKill, NoPageIsLostOrDamaged) {
  // Those that all have, and 28 of each process that was started.
  run(kSharedKeys + 8 + 28 * (kMembers + static_cast<std::size_t>(num_kills())), true);
}
// More than they have under way at once: 8 each, and those of the dead.
TEST(FileSharingKill, TheCapacityHoldsAndNoPageIsDamaged) { run(50, false); }

}  // namespace
}  // namespace pando::testing
