// SPDX-License-Identifier: Apache-2.0
// What a file store promises, with every kind of I/O: through io_uring or not, past the page cache
// or not.
#include <thread>

#include "support/file_store_fixture.h"

namespace pando::testing {
namespace {

struct Io {
  bool uring;
  bool direct;
};

class FileStoreIo : public FileStoreTest, public ::testing::WithParamInterface<Io> {
 protected:
  FileStoreIo() {
    options_.io_uring = GetParam().uring;
    options_.direct = GetParam().direct;
  }
};

INSTANTIATE_TEST_SUITE_P(EveryWay, FileStoreIo,
                         ::testing::Values(Io{true, true}, Io{true, false}, Io{false, true},
                                           Io{false, false}),
                         [](const auto& info) {
                           return std::string(info.param.uring ? "Uring" : "Plain") +
                                  (info.param.direct ? "Direct" : "Cached");
                         });

TEST_P(FileStoreIo, PagesComeBackInEveryShape) {
  open();
  std::uint64_t first = 0;
  for (const std::size_t size_bytes : {0, 1, 512, 4096, 12800, 70000, 1 << 19})
    for (const std::size_t num_pieces : {1, 3})
      for (const std::size_t offset : {0, 1, 512}) {
        const Shape shape{size_bytes, num_pieces, offset};
        const Keys keys = test_keys(first += 20, 20);
        const std::string what =
            fmt::format("{} bytes, {} pieces, {}", size_bytes, num_pieces, offset);
        ASSERT_TRUE(put_pages(*store_, keys, shape).all(PageOutcome::done)) << what;
        const Outcomes outcomes = get_pages(*store_, keys, shape);
        ASSERT_TRUE(outcomes.all(PageOutcome::done)) << what;
        ASSERT_TRUE(outcomes.bytes_right) << what;
      }
  EXPECT_TRUE(check_index().ok());
}

TEST_P(FileStoreIo, ShapesOfPutAndGetMayDiffer) {
  open();
  const Keys keys = test_keys(0, 20);
  ASSERT_TRUE(put_pages(*store_, keys, {24576, 2, 0}).all(PageOutcome::done));
  for (const Shape& shape : {Shape{24576, 1, 0}, Shape{24576, 7, 3}, Shape{24576, 2000, 0}}) {
    const Outcomes outcomes = get_pages(*store_, keys, shape);
    EXPECT_TRUE(outcomes.all(PageOutcome::done));
    EXPECT_TRUE(outcomes.bytes_right);
  }
}

TEST_P(FileStoreIo, PagesAreFoundAfterARestart) {
  open();
  const Keys keys = test_keys(0, 300);
  ASSERT_TRUE(put_pages(*store_, keys, {5000}).all(PageOutcome::done));
  reopen();
  EXPECT_EQ(stats().num_pages, 300u);
  EXPECT_EQ(stats().size_bytes, 300 * file_bytes(5000));
  EXPECT_EQ(stats().damaged_pages, 0u);
  const Outcomes outcomes = get_pages(*store_, keys, {5000});
  EXPECT_TRUE(outcomes.all(PageOutcome::done));
  EXPECT_TRUE(outcomes.bytes_right);
}

TEST_P(FileStoreIo, AMixOfPagesReportsEachOne) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 10)).all(PageOutcome::done));
  Keys keys;
  for (std::uint64_t i = 0; i < 40; ++i) keys.push_back(test_key(i));
  damage(file(test_key(3)), 100);
  damage(file(test_key(4)), 5000);
  const Outcomes outcomes = get_pages(*store_, keys);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const PageOutcome expected = i >= 10            ? PageOutcome::missing
                                 : i == 3 || i == 4 ? PageOutcome::damaged
                                                    : PageOutcome::done;
    EXPECT_EQ(outcomes.pages[i], expected) << i;
  }
  EXPECT_TRUE(outcomes.bytes_right);
  EXPECT_EQ(outcomes.error, "");
}

TEST_P(FileStoreIo, AStoppedPutLeavesWholePagesOnly) {
  open();
  const Keys keys = test_keys(0, 100);
  TestPages memory(keys, {1 << 16});
  memory.fill();
  StoreBatch batch(StoreBatch::Kind::put, memory.pages,
                   StoreBatch::Clock::now() + std::chrono::milliseconds(2));
  store_->put(batch);
  const Outcomes outcomes = outcomes_of(batch);
  reopen();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const PageOutcome found = pages_exist(*store_, {keys[i]}).pages[0];
    EXPECT_EQ(found == PageOutcome::done, outcomes.pages[i] == PageOutcome::done) << i;
  }
  EXPECT_EQ(num_temporaries(options_.directory), 0u);
}

TEST_P(FileStoreIo, ACancelledGetStartsNothing) {
  open();
  const Keys keys = test_keys(0, 50);
  ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
  TestPages memory(keys, {});
  StoreBatch batch(StoreBatch::Kind::get, memory.pages, no_deadline());
  batch.cancel();
  store_->get(batch);
  EXPECT_TRUE(outcomes_of(batch).all(PageOutcome::pending));
}

TEST_P(FileStoreIo, CallsMayComeFromSeveralThreads) {
  options_.capacity_bytes = capacity_for(60);
  open();
  std::vector<std::thread> threads;
  std::atomic<bool> right = true;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Random random(t);
      for (int round = 0; round < 30; ++round) {
        const Keys keys = test_keys(random.below(80), 10);
        const Shape shape{8192, 1 + t, t % 2};
        if (!put_pages(*store_, keys, shape).error.empty()) right = false;
        const Outcomes outcomes = get_pages(*store_, keys, shape);
        if (!outcomes.bytes_right || !outcomes.error.empty()) right = false;
        for (const PageOutcome outcome : outcomes.pages)
          if (outcome == PageOutcome::damaged || outcome == PageOutcome::failed) right = false;
        if (round % 10 == 9) remove_pages(*store_, keys);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(right);
  EXPECT_LE(stats().size_bytes, options_.capacity_bytes);
  const Status check = check_index();
  EXPECT_TRUE(check.ok()) << check.error().message;
  const std::uint64_t held = stats().num_pages;
  reopen();
  EXPECT_EQ(stats().num_pages, held);
  EXPECT_EQ(stats().damaged_pages, 0u);
}

TEST_P(FileStoreIo, SyncedPagesAreReportedAndFound) {
  options_.sync = true;
  open();
  const Keys keys = test_keys(0, 20);
  ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, keys).bytes_right);
}

// ---- What does not depend on the I/O.

TEST_F(FileStoreTest, DirectIoIsUsedWhereItIsSupported) {
  open();
  const IoMode& mode = static_cast<FileStore&>(*store_).mode();
  EXPECT_EQ(mode.direct_alignment,
            StoreDirectory::probe_direct(Directory::at(options_.directory), "probe"));
  options_.direct = false;
  options_.io_uring = false;
  reopen();
  const IoMode& plain = static_cast<FileStore&>(*store_).mode();
  EXPECT_EQ(plain.direct_alignment, std::nullopt);
  EXPECT_FALSE(plain.uring);
}

TEST_F(FileStoreTest, APageThatIsThereIsKept) {
  open();
  ASSERT_TRUE(put_pages(*store_, {test_key(1)}).all(PageOutcome::done));
  const auto before = inode_of(test_key(1));
  ASSERT_TRUE(put_pages(*store_, {test_key(1), test_key(1)}).all(PageOutcome::done));
  EXPECT_EQ(inode_of(test_key(1)), before);
  EXPECT_EQ(stats().num_pages, 1u);
}

TEST_F(FileStoreTest, ExistsAndRemoveSayWhatIsThere) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 3)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, test_keys(0, 3)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, test_keys(3, 3)).all(PageOutcome::missing));
  EXPECT_TRUE(remove_pages(*store_, test_keys(1, 4)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, {test_key(0)}).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, test_keys(1, 2)).all(PageOutcome::missing));
  EXPECT_FALSE(fs::exists(file(test_key(1))));
}

TEST_F(FileStoreTest, ListAndClearCoverEverything) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 600), {100}).all(PageOutcome::done));
  std::set<std::string> listed;
  ASSERT_TRUE(store_
                  ->list([&](const StoredPage& page) {
                    EXPECT_EQ(page.size_bytes, 100u);
                    return listed.insert(page.key).second;
                  })
                  .ok());
  EXPECT_EQ(listed.size(), 600u);
  ASSERT_TRUE(store_->clear().ok());
  EXPECT_EQ(stats().num_pages, 0u);
  EXPECT_EQ(stats().size_bytes, 0u);
  reopen();
  EXPECT_EQ(stats().num_pages, 0u);
}

TEST_F(FileStoreTest, ListStopsWhenTold) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 20)).all(PageOutcome::done));
  int visited = 0;
  ASSERT_TRUE(store_->list([&](const StoredPage&) { return ++visited < 5; }).ok());
  EXPECT_EQ(visited, 5);
}

TEST_F(FileStoreTest, LeastRecentlyUsedPagesGoFirst) {
  options_.capacity_bytes = capacity_for(4);
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 4)).all(PageOutcome::done));
  get_pages(*store_, {test_key(0)});
  put_pages(*store_, {test_key(1)});  // it is there: used again
  ASSERT_TRUE(put_pages(*store_, test_keys(4, 2)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, test_keys(2, 2)).all(PageOutcome::missing));
  EXPECT_TRUE(pages_exist(*store_, test_keys(0, 2)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, test_keys(4, 2)).all(PageOutcome::done));
  EXPECT_EQ(stats().evicted_pages, 2u);
  EXPECT_EQ(stats().size_bytes, capacity_for(4));
}

TEST_F(FileStoreTest, AFullStoreWritesOverTheFilesOfEvictedPages) {
  options_.io_uring = false;  // pages are finished in order
  options_.capacity_bytes = capacity_for(2);
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 2)).all(PageOutcome::done));
  const auto first = inode_of(test_key(0));
  fs::create_hard_link(file(test_key(1)), temp_ / "kept");  // somebody holds on to this one
  const auto second = inode_of(test_key(1));
  ASSERT_TRUE(put_pages(*store_, {test_key(2)}).all(PageOutcome::done));
  EXPECT_EQ(inode_of(test_key(2)), first);
  ASSERT_TRUE(put_pages(*store_, {test_key(3)}).all(PageOutcome::done));
  EXPECT_NE(inode_of(test_key(3)), second);
  EXPECT_TRUE(get_pages(*store_, test_keys(2, 2)).bytes_right);
  std::ifstream kept(temp_ / "kept", std::ios::binary);
  kept.seekg(kBlockBytes);
  std::vector<std::byte> bytes(8192);
  kept.read(reinterpret_cast<char*>(bytes.data()), 8192);
  EXPECT_EQ(bytes, test_bytes(test_key(1), 8192));
}

TEST_F(FileStoreTest, PagesOfOtherSizesTakeFilesOfTheirOwn) {
  options_.capacity_bytes = 20 * kBlockBytes;
  open();
  for (std::uint64_t i = 0; i < 60; ++i) {
    const Shape shape{4096 * (1 + i % 5) - i % 3};
    ASSERT_TRUE(put_pages(*store_, {test_key(i)}, shape).all(PageOutcome::done));
    ASSERT_TRUE(get_pages(*store_, {test_key(i)}, shape).bytes_right);
    ASSERT_EQ(num_temporaries(options_.directory), 0u);
  }
  reopen();
  EXPECT_EQ(stats().damaged_pages, 0u);
  EXPECT_EQ(num_temporaries(options_.directory), 0u);
}

TEST_F(FileStoreTest, APageLargerThanTheCapacityFailsAndTakesNothingAway) {
  options_.capacity_bytes = capacity_for(4);
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 4)).all(PageOutcome::done));
  const Outcomes outcomes = put_pages(*store_, {test_key(9)}, {1 << 20});
  EXPECT_TRUE(outcomes.all(PageOutcome::failed));
  EXPECT_NE(outcomes.error.find("capacity"), std::string::npos) << outcomes.error;
  EXPECT_EQ(stats().num_pages, 4u);
}

TEST_F(FileStoreTest, KeysThatAreNoFileNamesFailWithAReason) {
  open();
  for (const std::string& key : {std::string("a/b"), std::string("../x"), std::string(".x"),
                                 std::string("a\0b", 3), std::string(256, 'a'), std::string()}) {
    const Outcomes put = put_pages(*store_, {key});
    EXPECT_TRUE(put.all(PageOutcome::failed));
    EXPECT_NE(put.error.find("the key"), std::string::npos) << put.error;
    EXPECT_TRUE(get_pages(*store_, {key}).all(PageOutcome::failed));
    EXPECT_TRUE(pages_exist(*store_, {key}).all(PageOutcome::failed));
    EXPECT_TRUE(remove_pages(*store_, {key}).all(PageOutcome::failed));
  }
  EXPECT_TRUE(put_pages(*store_, {std::string(255, 'a'), "A", "Zz"}).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, {std::string(255, 'a'), "A", "Zz"}).bytes_right);
}

TEST_F(FileStoreTest, OptionsThatCannotWorkAreRefused) {
  EXPECT_FALSE(make_file_store({.directory = ""}).ok());
  EXPECT_FALSE(make_file_store({.directory = options_.directory, .capacity_bytes = 100}).ok());
  EXPECT_FALSE(make_file_store({.directory = options_.directory, .depth = 0}).ok());
  EXPECT_FALSE(make_file_store({.directory = options_.directory, .depth = 100000}).ok());
  EXPECT_FALSE(make_file_store({.directory = "/proc/no/such"}).ok());
}

}  // namespace
}  // namespace pando::testing
