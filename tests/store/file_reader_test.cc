// SPDX-License-Identifier: Apache-2.0
// A file store from outside: everything is seen, nothing is touched unless that was asked for.
#include <sys/resource.h>

#include <set>

#include "store/store_reader.h"
#include "support/file_store_fixture.h"
#include "support/in_child.h"

namespace pando::testing {
namespace {

class FileReaderTest : public FileStoreTest {
 protected:
  void put_and_close(const Keys& keys) {
    open();
    ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
    store_.reset();
  }
  std::unique_ptr<StoreReader> reader(StoreAccess access = StoreAccess::read) {
    auto opened = open_file_reader(options_.directory, access);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return std::move(*opened);
  }
  static std::vector<KeptPage> pages_of(StoreReader& from) {
    std::vector<KeptPage> pages;
    const auto page = [&](const KeptPage& found) {
      pages.push_back(found);
      return true;
    };
    EXPECT_TRUE(from.list(page, [](const OddEntry& odd) { ADD_FAILURE() << odd.place; }).ok());
    return pages;
  }
};

TEST_F(FileReaderTest, ListsEveryPageOnceSortedWithItsTime) {
  const Keys keys = test_keys(0, 50);
  put_and_close(keys);
  const auto from = reader();
  const std::vector<KeptPage> pages = pages_of(*from);
  ASSERT_EQ(pages.size(), keys.size());
  EXPECT_EQ(from->progress(), 1);
  std::set<std::string> seen;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    seen.insert(pages[i].key);
    EXPECT_EQ(pages[i].size_bytes, 8192u);
    EXPECT_EQ(pages[i].kept_bytes, file_bytes(8192));
    EXPECT_GT(pages[i].used_ns.value_or(0), 0);
    EXPECT_TRUE(i == 0 || pages[i - 1].key < pages[i].key);
  }
  EXPECT_EQ(seen, std::set<std::string>(keys.begin(), keys.end()));
  std::size_t num = 0;
  EXPECT_TRUE(from->list([&](const KeptPage&) { return ++num < 3; }, [](const OddEntry&) {}).ok());
  EXPECT_EQ(num, 3u);
}

TEST_F(FileReaderTest, ReadsWhatWasPutAndSaysWhatIsWrong) {
  const Keys keys = test_keys(0, 3);
  put_and_close(keys);
  const auto time = fs::last_write_time(file(keys[0]));
  damage(file(keys[1]), 4096);
  const auto from = reader();
  std::vector<std::byte> bytes;
  ASSERT_TRUE(from->read(keys[0], bytes).ok());
  EXPECT_EQ(bytes, test_bytes(keys[0], 8192));
  EXPECT_EQ(fs::last_write_time(file(keys[0])), time);
  EXPECT_EQ(from->read(keys[1], bytes).error().code, ErrorCode::corrupt);
  EXPECT_EQ(from->read(test_key(99), bytes).error().code, ErrorCode::not_found);
  EXPECT_FALSE(from->read("../escape", bytes).ok());
  EXPECT_TRUE(fs::exists(file(keys[1])));
}

TEST_F(FileReaderTest, ASizeThatWrapsIsDamageAndStopsNothing) {
  const Keys keys = test_keys(0, 4);
  put_and_close(keys);
  // With header and padding the first two are as many bytes as the file has, in 64 bits.
  forge_header(file(keys[0]), UINT64_MAX);
  fs::resize_file(file(keys[0]), kBlockBytes);
  forge_header(file(keys[1]), UINT64_MAX - kBlockBytes + 2);
  fs::resize_file(file(keys[1]), kBlockBytes);
  forge_header(file(keys[2]), std::uint64_t{1} << 62);
  const auto from = reader();
  std::set<std::string> pages, odd;
  ASSERT_TRUE(from->list(
                      [&](const KeptPage& page) {
                        pages.insert(page.key);
                        return true;
                      },
                      [&](const OddEntry& entry) { odd.insert(entry.place); })
                  .ok());
  EXPECT_EQ(pages, (std::set<std::string>{keys[3]}));
  EXPECT_EQ(odd, (std::set<std::string>{file(keys[0]), file(keys[1]), file(keys[2])}));
  std::vector<std::byte> bytes;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(from->read(keys[static_cast<std::size_t>(i)], bytes).error().code,
              ErrorCode::corrupt);
  open();
  EXPECT_EQ(stats().damaged_pages, 3u);
  EXPECT_EQ(stats().size_bytes, capacity_for(1));
}

TEST_F(FileReaderTest, APageThatTakesMoreThanThereIsMemoryIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than this test leaves";
#endif
  put_and_close(test_keys(0, 1));
  const std::uint64_t huge = kMaxPageBytes;  // in a file that takes no room
  forge_header(file(test_key(0)), huge);
  fs::resize_file(file(test_key(0)), file_bytes(huge));
  const auto from = reader();
  EXPECT_EQ(failure_in_child([&] {
              const rlimit limit{std::uint64_t{1} << 32, std::uint64_t{1} << 32};
              ::setrlimit(RLIMIT_AS, &limit);
              std::vector<std::byte> bytes;
              const Status read = from->read(test_key(0), bytes);
              return !read && read.error().code == ErrorCode::out_of_capacity;
            }),
            "");
}

TEST_F(FileReaderTest, APageOfANewerVersionIsLeftAlone) {
  put_and_close(test_keys(0, 2));
  forge_header(file(test_key(0)), 8192, 99);
  open();
  EXPECT_EQ(stats().damaged_pages, 0u);
  EXPECT_EQ(num_set_aside(), 0u);
  EXPECT_TRUE(pages_exist(*store_, {test_key(0)}).all(PageOutcome::missing));
  EXPECT_TRUE(fs::exists(file(test_key(0))));
}

TEST_F(FileReaderTest, EmptyPagesAreReadToo) {
  open();
  ASSERT_TRUE(put_pages(*store_, {test_key(0)}, {0}).all(PageOutcome::done));
  store_.reset();
  std::vector<std::byte> bytes(10);
  EXPECT_TRUE(reader()->read(test_key(0), bytes).ok());
  EXPECT_TRUE(bytes.empty());
}

TEST_F(FileReaderTest, RemovesAndPutsAwayWhenOpenedForThat) {
  const Keys keys = test_keys(0, 3);
  put_and_close(keys);
  {
    const auto from = reader(StoreAccess::write);
    EXPECT_TRUE(from->remove({keys[0], test_key(99)}).ok());
    const auto fate = from->put_away({OddEntry::Kind::damaged, file(keys[1]), "for a test"});
    ASSERT_TRUE(fate.ok());
    EXPECT_NE(fate->find("set_aside"), std::string::npos);
    EXPECT_EQ(from->room()->num_set_aside, 1u);
    EXPECT_EQ(open_file_reader(options_.directory, StoreAccess::read).error().code,
              ErrorCode::in_use);
  }
  open();
  EXPECT_TRUE(pages_exist(*store_, {keys[2]}).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, {keys[0], keys[1]}).all(PageOutcome::missing));
  EXPECT_EQ(num_set_aside(), 1u);
}

TEST_F(FileReaderTest, AStoreCanBeLookedAtWhileProcessesHaveItOpen) {
  options_.capacity_bytes = capacity_for(20);
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 20)).all(PageOutcome::done));
  const auto from = reader();
  EXPECT_EQ(pages_of(*from).size(), 20u);
  std::vector<std::byte> bytes;
  EXPECT_TRUE(from->read(test_key(7), bytes).ok());
  EXPECT_EQ(bytes, test_bytes(test_key(7), 8192));
  // Pages go meanwhile, and their files become those of others.
  ASSERT_TRUE(put_pages(*store_, test_keys(100, 20)).all(PageOutcome::done));
  EXPECT_EQ(from->read(test_key(7), bytes).error().code, ErrorCode::not_found);
  const auto second = open_store(options_);
  EXPECT_TRUE(get_pages(*second, test_keys(100, 20)).bytes_right);
}

TEST_F(FileReaderTest, OnlyAStoreThatNobodyHasOpenIsChangedFromOutside) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 1)).all(PageOutcome::done));
  const auto refused = open_file_reader(options_.directory, StoreAccess::write);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::in_use);
  EXPECT_NE(refused.error().message.find(std::to_string(::getpid())), std::string::npos)
      << refused.error().message;
  store_.reset();
  const auto from = reader(StoreAccess::write);
  const auto opened = make_file_store(options_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::in_use);
  EXPECT_NE(opened.error().message.find(options_.directory), std::string::npos);
}

TEST_F(FileReaderTest, NoStoreIsNotFoundAndNotMade) {
  EXPECT_EQ(open_file_reader(options_.directory, StoreAccess::read).error().code,
            ErrorCode::not_found);
  EXPECT_EQ(open_file_reader(options_.directory, StoreAccess::write).error().code,
            ErrorCode::not_found);
  EXPECT_FALSE(fs::exists(options_.directory));
}

}  // namespace
}  // namespace pando::testing
