// SPDX-License-Identifier: Apache-2.0
// A file store whose disk is full, whose files are changed or removed behind its back, whose
// directory goes away.
#include <sys/mount.h>

#include <thread>

#include "support/file_store_fixture.h"

namespace pando::testing {
namespace {

class FileStoreFault : public FileStoreTest {};

TEST_F(FileStoreFault, ADamagedPageIsSetAsideWhenItIsRead) {
  open();
  const Keys keys = test_keys(0, 4);
  ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
  damage(file(keys[0]), 20);     // header
  damage(file(keys[1]), 12000);  // bytes
  fs::resize_file(file(keys[2]), 10000);
  const Outcomes outcomes = get_pages(*store_, keys);
  EXPECT_EQ(outcomes.pages, (std::vector{PageOutcome::damaged, PageOutcome::damaged,
                                         PageOutcome::damaged, PageOutcome::done}));
  EXPECT_EQ(stats().damaged_pages, 3u);
  EXPECT_EQ(num_set_aside(), 3u);
  EXPECT_TRUE(get_pages(*store_, {keys[0], keys[1], keys[2]}).all(PageOutcome::missing));
  ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, keys).bytes_right);
  EXPECT_EQ(stats().size_bytes, capacity_for(4));
}

TEST_F(FileStoreFault, BytesOfAnotherPageAreDamage) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 2)).all(PageOutcome::done));
  fs::copy_file(file(test_key(1)), file(test_key(0)), fs::copy_options::overwrite_existing);
  EXPECT_TRUE(get_pages(*store_, {test_key(0)}).all(PageOutcome::damaged));
}

TEST_F(FileStoreFault, APageWhoseFileIsGoneIsMissing) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 2)).all(PageOutcome::done));
  fs::remove(file(test_key(0)));
  EXPECT_TRUE(get_pages(*store_, {test_key(0)}).all(PageOutcome::missing));
  EXPECT_EQ(stats().num_pages, 1u);
  ASSERT_TRUE(put_pages(*store_, {test_key(0)}).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, {test_key(0)}).bytes_right);
}

TEST_F(FileStoreFault, APageGoesOverAFileThatIsNoPage) {
  for (const bool named : {false, true}) {
    options_.directory = temp_ / (named ? "named" : "unnamed");
    open();
    if (named) static_cast<FileStore&>(*store_).files().use_named_files();
    ASSERT_TRUE(put_pages(*store_, test_keys(0, 2)).all(PageOutcome::done));
    fs::create_directories(fs::path(file(test_key(2))).parent_path());
    std::ofstream(file(test_key(2))) << "not a page";
    ASSERT_TRUE(put_pages(*store_, test_keys(0, 3)).all(PageOutcome::done));
    EXPECT_TRUE(get_pages(*store_, test_keys(0, 3)).all(PageOutcome::done));
    EXPECT_TRUE(get_pages(*store_, test_keys(0, 3)).bytes_right);
    EXPECT_EQ(num_temporaries(options_.directory), 0u);
  }
}

TEST_F(FileStoreFault, ARemovedDirectoryIsMadeAgain) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 20)).all(PageOutcome::done));
  fs::remove_all(options_.directory);
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 10)).all(PageOutcome::missing));
  ASSERT_TRUE(put_pages(*store_, test_keys(5, 10)).all(PageOutcome::done));
  EXPECT_EQ(stats().num_pages, 10u);
  EXPECT_TRUE(get_pages(*store_, test_keys(5, 10)).bytes_right);
  const auto second = open_store(options_);  // another member finds them, too
  EXPECT_TRUE(get_pages(*second, test_keys(5, 10)).bytes_right);
  reopen();
  EXPECT_EQ(stats().num_pages, 10u);
}

TEST_F(FileStoreFault, AStoreThatIsRemovedInPartIsStillOurs) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 5)).all(PageOutcome::done));
  fs::remove(fs::path(options_.directory) / "pando.lock");
  fs::remove_all(fs::path(options_.directory) / "tmp");
  const Outcomes outcomes = put_pages(*store_, test_keys(5, 5));
  EXPECT_TRUE(outcomes.all(PageOutcome::done)) << outcomes.error;
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 10)).bytes_right);
}

TEST_F(FileStoreFault, ARemovedSubdirectoryIsMadeAgain) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 1)).all(PageOutcome::done));
  fs::remove_all(fs::path(file(test_key(0))).parent_path());
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 1)).all(PageOutcome::missing));
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 1)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 1)).bytes_right);
}

TEST_F(FileStoreFault, ADirectoryThatCannotBeMadeFailsPagesUntilItCan) {
  options_.directory = temp_ / "parent/store";
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 3)).all(PageOutcome::done));
  fs::remove_all(temp_ / "parent");
  std::ofstream(temp_ / "parent") << "a file where a directory was";
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 1)).all(PageOutcome::missing));
  const Outcomes outcomes = put_pages(*store_, test_keys(10, 3));
  EXPECT_TRUE(outcomes.all(PageOutcome::failed));
  EXPECT_NE(outcomes.error.find(options_.directory), std::string::npos) << outcomes.error;
  EXPECT_TRUE(remove_pages(*store_, test_keys(1, 1)).all(PageOutcome::done));
  fs::remove(temp_ / "parent");
  EXPECT_TRUE(put_pages(*store_, test_keys(10, 3)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(10, 3)).bytes_right);
}

TEST_F(FileStoreFault, ADirectoryRemovedWhileThreadsWriteDoesNoHarm) {
  open();
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  std::atomic<bool> right = true;
  for (std::uint64_t t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; !done; ++i) {
        const Keys keys = test_keys(t * 1000 + i % 50, 5);
        put_pages(*store_, keys);
        const Outcomes outcomes = get_pages(*store_, keys);
        if (!outcomes.bytes_right) right = false;
      }
    });
  for (int i = 0; i < 10; ++i) {
    std::error_code ignored;  // files come while they go
    fs::remove_all(options_.directory, ignored);
    put_pages(*store_, test_keys(5000, 1));
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right);
  const Outcomes outcomes = put_pages(*store_, test_keys(9000, 5));
  EXPECT_TRUE(outcomes.all(PageOutcome::done)) << outcomes.error;
  EXPECT_TRUE(check_index().ok());
}

// A file system of 4 MiB.
class FileStoreFullDisk : public FileStoreTest,
                          public ::testing::WithParamInterface<std::pair<bool, bool>> {
 protected:
  void SetUp() override { mount("size=4m,mode=700"); }
  void mount(const char* limits) {
    options_.io_uring = GetParam().first;
    options_.direct = GetParam().second;
    options_.directory = temp_ / "disk";
    fs::create_directories(options_.directory);
    mounted_ = ::mount("tmpfs", options_.directory.c_str(), "tmpfs", 0, limits) == 0;
    if (!mounted_) GTEST_SKIP() << "cannot mount a small file system: " << errno_text(errno);
    open();
  }
  void TearDown() override {
    store_.reset();
    if (mounted_) ::umount2(options_.directory.c_str(), MNT_DETACH);
  }
  static constexpr Shape kShape{1 << 18};  // 15 fit
  bool mounted_ = false;
};

INSTANTIATE_TEST_SUITE_P(EveryWay, FileStoreFullDisk,
                         ::testing::Values(std::pair{true, true}, std::pair{true, false},
                                           std::pair{false, true}, std::pair{false, false}));

TEST_P(FileStoreFullDisk, OldPagesMakeRoom) {
  for (std::uint64_t i = 0; i < 60; i += 3) {
    const Outcomes outcomes = put_pages(*store_, test_keys(i, 3), kShape);
    ASSERT_TRUE(outcomes.all(PageOutcome::done)) << outcomes.error;
    ASSERT_TRUE(get_pages(*store_, test_keys(i, 3), kShape).bytes_right);
  }
  EXPECT_GT(stats().evicted_pages, 40u);
  EXPECT_GE(stats().num_pages, 8u);
  EXPECT_TRUE(pages_exist(*store_, test_keys(57, 3)).all(PageOutcome::done));
  EXPECT_EQ(num_temporaries(options_.directory), 0u);
}

TEST_P(FileStoreFullDisk, FailsWhereSomebodyElseFillsIt) {
  {
    std::ofstream filler(options_.directory + "/filler", std::ios::binary);
    const std::vector<char> block(1 << 16);
    while (filler.write(block.data(), 1 << 16).flush()) continue;
  }
  const Outcomes outcomes = put_pages(*store_, test_keys(0, 4), kShape);
  EXPECT_TRUE(outcomes.all(PageOutcome::failed));
  EXPECT_NE(outcomes.error.find("no room"), std::string::npos) << outcomes.error;
  EXPECT_EQ(stats().size_bytes, 0u);
  fs::remove(options_.directory + "/filler");
  EXPECT_TRUE(put_pages(*store_, test_keys(0, 4), kShape).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 4), kShape).bytes_right);
}

// 60 files and directories.
class FileStoreFullInodes : public FileStoreFullDisk {
 protected:
  void SetUp() override { mount("size=64m,nr_inodes=60,mode=700"); }
};
INSTANTIATE_TEST_SUITE_P(EveryWay, FileStoreFullInodes,
                         ::testing::Values(std::pair{true, true}, std::pair{false, false}));

TEST_P(FileStoreFullInodes, OldPagesMakeRoom) {
  for (int i = 0; i < 100; i += 5) {
    Keys keys;  // in one directory
    for (int k = 0; k < 5; ++k) keys.push_back(fmt::format("00page{}", i + k));
    const Outcomes outcomes = put_pages(*store_, keys);
    ASSERT_TRUE(outcomes.all(PageOutcome::done)) << outcomes.error;
    ASSERT_TRUE(get_pages(*store_, keys).bytes_right);
  }
  EXPECT_GT(stats().evicted_pages, 40u);
  EXPECT_GE(stats().num_pages, 30u);
  EXPECT_TRUE(check_index().ok());
}

TEST_P(FileStoreFullDisk, LeavesTheFreeBytesItIsTold) {
  options_.min_free_bytes = 2 << 20;
  reopen();
  for (std::uint64_t i = 0; i < 30; ++i)
    ASSERT_TRUE(put_pages(*store_, test_keys(i, 1), kShape).all(PageOutcome::done));
  EXPECT_GE(fs::space(options_.directory).available, options_.min_free_bytes);
  EXPECT_GE(stats().num_pages, 5u);
  options_.min_free_bytes = 8 << 20;
  reopen();
  const Outcomes outcomes = put_pages(*store_, test_keys(100, 1), kShape);
  EXPECT_TRUE(outcomes.all(PageOutcome::failed));
  EXPECT_NE(outcomes.error.find("free"), std::string::npos) << outcomes.error;
}

}  // namespace
}  // namespace pando::testing
