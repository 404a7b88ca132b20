// SPDX-License-Identifier: Apache-2.0
// A process that puts pages is killed at a random moment, and the store opened: every page that is
// there is whole, and nothing is damaged. PANDO_KILLS says how often (10).
#include <sys/wait.h>

#include <csignal>
#include <thread>

#include "support/file_store_fixture.h"

namespace pando::testing {
namespace {

constexpr Shape kShape{1 << 16};

class Child {
 public:
  Child(const std::string& directory, int round) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    const std::string number = std::to_string(round);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::execl(PANDO_WRITER, PANDO_WRITER, directory.c_str(), number.c_str(),
              round % 2 == 0 ? "uring" : "plain", nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    char ready = 0;
    ready_ = ::read(ends[0], &ready, 1) == 1;
    ::close(ends[0]);
  }
  bool ready() const { return ready_; }
  /// Whether it ran until then.
  bool kill() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    return ::waitpid(pid_, &status, 0) == pid_ && WIFSIGNALED(status);
  }

 private:
  pid_t pid_ = 0;
  bool ready_ = false;
};

TEST(FileStoreKill, NothingIsDamagedByAKillAtAnyMoment) {
  const char* kills = std::getenv("PANDO_KILLS");
  const int num_kills = kills ? std::atoi(kills) : 10;
  const TempDirectory temp;
  const FileStoreOptions options{.directory = temp / "store", .min_free_bytes = 0};
  Random random(static_cast<std::uint64_t>(num_kills));
  std::size_t num_read = 0;
  for (int round = 0; round < num_kills; ++round) {
    Child child(options.directory, round);
    ASSERT_TRUE(child.ready()) << "round " << round;
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(60'000)));
    ASSERT_TRUE(child.kill()) << "round " << round;

    const auto store = open_store(options);
    Keys keys;
    ASSERT_TRUE(store
                    ->list([&](const StoredPage& page) {
                      keys.push_back(page.key);
                      return true;
                    })
                    .ok());
    const Outcomes outcomes = get_pages(*store, keys, kShape);
    ASSERT_TRUE(outcomes.all(PageOutcome::done)) << "round " << round << ": " << outcomes.error;
    ASSERT_TRUE(outcomes.bytes_right) << "round " << round;
    ASSERT_EQ(store->stats().damaged_pages, 0u) << "round " << round;
    ASSERT_EQ(store->stats().foreign_files, 0u) << "round " << round;
    ASSERT_EQ(num_temporaries(options.directory), 0u);
    num_read += keys.size();
  }
  EXPECT_GT(num_read, static_cast<std::size_t>(num_kills));
}

}  // namespace
}  // namespace pando::testing
