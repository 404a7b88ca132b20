// SPDX-License-Identifier: Apache-2.0
// What a file store finds when it is opened: the pages and their order, leftovers, damage, and
// files of others.
#include <sys/stat.h>

#include "support/file_store_fixture.h"

namespace pando::testing {
namespace {

class FileStoreRestart : public FileStoreTest {
 protected:
  void put_and_close(const Keys& keys) {
    open();
    ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
    store_.reset();
  }
  /// As if it had been used so long ago.
  void age(const std::string& key, std::int64_t seconds) {
    struct stat info;
    ASSERT_EQ(::stat(file(key).c_str(), &info), 0);
    timespec times[] = {info.st_atim, info.st_mtim};
    times[1].tv_sec -= seconds;
    ASSERT_EQ(::utimensat(AT_FDCWD, file(key).c_str(), times, 0), 0);
  }
  std::vector<bool> which_exist(const Keys& keys) {
    std::vector<bool> there;
    for (const PageOutcome outcome : pages_exist(*store_, keys).pages)
      there.push_back(outcome == PageOutcome::done);
    return there;
  }
};

TEST_F(FileStoreRestart, OrderOfWritesSurvives) {
  options_.io_uring = false;  // pages are finished in order
  put_and_close(test_keys(0, 30));
  options_.capacity_bytes = capacity_for(30);
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(100, 10)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, test_keys(0, 10)).all(PageOutcome::missing));
  EXPECT_TRUE(pages_exist(*store_, test_keys(10, 20)).all(PageOutcome::done));
}

TEST_F(FileStoreRestart, UseOfOldPagesSurvives) {
  put_and_close(test_keys(0, 4));
  for (std::uint64_t i = 0; i < 4; ++i) age(test_key(i), 4000 - static_cast<std::int64_t>(i));
  open();
  get_pages(*store_, {test_key(0)});  // more than ten minutes old: the file's time is set
  put_pages(*store_, {test_key(1)});
  options_.capacity_bytes = capacity_for(4);
  reopen();
  ASSERT_TRUE(put_pages(*store_, test_keys(10, 2)).all(PageOutcome::done));
  EXPECT_EQ(which_exist(test_keys(0, 4)), (std::vector<bool>{true, true, false, false}));
}

TEST_F(FileStoreRestart, ASmallerCapacityHoldsFromTheStart) {
  put_and_close(test_keys(0, 10));
  options_.capacity_bytes = capacity_for(3);
  open();
  EXPECT_EQ(stats().num_pages, 3u);
  EXPECT_EQ(stats().evicted_pages, 7u);
}

TEST_F(FileStoreRestart, LeftoverTemporariesAreRemoved) {
  put_and_close(test_keys(0, 1));
  std::ofstream(options_.directory + "/tmp/17") << "half a page";
  open();
  EXPECT_EQ(num_temporaries(options_.directory), 0u);
  EXPECT_EQ(stats().foreign_files, 0u);
}

TEST_F(FileStoreRestart, DamagedFilesAreSetAsideAndCounted) {
  const Keys keys = test_keys(0, 7);
  put_and_close(keys);
  damage(file(keys[0]), 0);   // magic
  damage(file(keys[1]), 60);  // key
  fs::resize_file(file(keys[2]), 9000);
  fs::resize_file(file(keys[3]), 100);
  fs::resize_file(file(keys[4]), 0);
  std::ofstream(file(keys[5]), std::ios::app) << "more";
  open();
  EXPECT_EQ(stats().damaged_pages, 6u);
  EXPECT_EQ(stats().num_pages, 1u);
  EXPECT_EQ(num_set_aside(), 6u);
  EXPECT_TRUE(pages_exist(*store_, Keys(keys.begin(), keys.end() - 1)).all(PageOutcome::missing));
  EXPECT_TRUE(get_pages(*store_, {keys[6]}).bytes_right);
  ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));  // they can come back
  EXPECT_TRUE(get_pages(*store_, keys).bytes_right);
  reopen();
  EXPECT_EQ(stats().damaged_pages, 0u);  // since it was opened
  EXPECT_EQ(num_set_aside(), 6u);
}

TEST_F(FileStoreRestart, AFileUnderAnotherPagesNameIsDamaged) {
  put_and_close({test_key(0)});
  std::string other = test_key(0);
  other.back() = 'e';  // the same directory
  fs::copy_file(file(test_key(0)), file(other));
  open();
  EXPECT_EQ(stats().damaged_pages, 1u);
  EXPECT_TRUE(pages_exist(*store_, {other}).all(PageOutcome::missing));
}

TEST_F(FileStoreRestart, FilesBesideTheStoreAreLeftAlone) {
  put_and_close(test_keys(0, 1));
  std::ofstream(options_.directory + "/README") << "mine";
  fs::create_directories(options_.directory + "/lost+found");
  open();
  EXPECT_EQ(stats().foreign_files, 2u);
  EXPECT_TRUE(fs::exists(options_.directory + "/README"));
  EXPECT_EQ(num_set_aside(), 0u);
}

TEST_F(FileStoreRestart, ADirectoryThatOnlyLooksLikeAStoreIsRefused) {
  fs::create_directories(options_.directory + "/ab");
  std::ofstream(options_.directory + "/ab/object") << "somebody's";
  const auto store = make_file_store(options_);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.error().message.find(options_.directory), std::string::npos);
  EXPECT_TRUE(fs::exists(options_.directory + "/ab/object"));
}

}  // namespace
}  // namespace pando::testing
