// SPDX-License-Identifier: Apache-2.0
// Several stores on one directory, in one process and in several: what one puts the others find,
// one capacity holds for all, and what a dead one leaves is cleaned up.
#include <sys/file.h>

#include <thread>

#include "store/file/unnamed_file.h"
#include "support/child_member.h"

namespace pando::testing {
namespace {

class FileSharing : public FileStoreTest {
 protected:
  std::string index_path() const { return options_.directory + "/pando.index"; }
  PageFiles& files() const { return static_cast<FileStore&>(*store_).files(); }
};

TEST_F(FileSharing, TwoStoresOfOneProcessFindEachOthersPages) {
  open();
  const auto second = open_store(options_);
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 20)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*second, test_keys(0, 20)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*second, test_keys(0, 20)).bytes_right);
  EXPECT_TRUE(get_pages(*second, test_keys(0, 20)).all(PageOutcome::done));
  EXPECT_TRUE(remove_pages(*second, test_keys(0, 10)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 10)).all(PageOutcome::missing));
  EXPECT_EQ(stats().num_pages, 10u);
  EXPECT_EQ(second->stats().size_bytes, capacity_for(10));
  store_.reset();
  EXPECT_TRUE(get_pages(*second, test_keys(10, 10)).all(PageOutcome::done));
  EXPECT_TRUE(check_index_of(*second).ok());
}

TEST_F(FileSharing, OneCapacityAndOneOrderHoldForAll) {
  options_.io_uring = false;  // pages are finished in order
  options_.capacity_bytes = capacity_for(10);
  open();
  const auto second = open_store(options_);
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 6)).all(PageOutcome::done));
  ASSERT_TRUE(put_pages(*second, test_keys(6, 4)).all(PageOutcome::done));
  get_pages(*second, {test_key(0)});
  ASSERT_TRUE(put_pages(*second, test_keys(10, 3)).all(PageOutcome::done));
  EXPECT_TRUE(pages_exist(*store_, test_keys(1, 3)).all(PageOutcome::missing));
  EXPECT_TRUE(pages_exist(*store_, {test_key(0), test_key(4)}).all(PageOutcome::done));
  EXPECT_EQ(stats().num_pages, 10u);
  EXPECT_LE(disk_bytes(options_.directory), options_.capacity_bytes);
  EXPECT_EQ(stats().evicted_pages, 0u);  // each counts its own
  EXPECT_EQ(second->stats().evicted_pages, 3u);
}

TEST_F(FileSharing, ACapacityMustAgreeWhileOthersHaveItOpen) {
  open();
  options_.capacity_bytes = capacity_for(50);
  const auto refused = make_file_store(options_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  for (const std::uint64_t bytes : {capacity_for(50), std::uint64_t{64} << 30})
    EXPECT_NE(refused.error().message.find(std::to_string(bytes)), std::string::npos)
        << refused.error().message;
  store_.reset();
  open();  // alone it may be another
  EXPECT_EQ(stats().capacity_bytes, capacity_for(50));
}

TEST_F(FileSharing, AFileThatIsReadElsewhereIsNotWrittenOver) {
  options_.io_uring = false;  // pages are finished in order
  options_.capacity_bytes = capacity_for(2);
  open();
  const auto second = open_store(options_);
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 2)).all(PageOutcome::done));
  PageFiles& reader = static_cast<FileStore&>(*second).files();
  PageRead read = reader.open_page(test_key(0), 0);
  ASSERT_TRUE(read.file.ok());
  const auto inode = inode_of(test_key(0));
  ASSERT_TRUE(put_pages(*store_, {test_key(2)}).all(PageOutcome::done));  // instead of page 0
  EXPECT_NE(inode_of(test_key(2)), inode);
  std::vector<std::byte> bytes(8192);
  ASSERT_EQ(::pread(read.file.get(), bytes.data(), bytes.size(), kBlockBytes), 8192);
  EXPECT_EQ(bytes, test_bytes(test_key(0), 8192));
  reader.done_reading(read, test_key(0));
  const auto second_inode = inode_of(test_key(1));
  ASSERT_TRUE(put_pages(*store_, {test_key(3)}).all(PageOutcome::done));  // instead of page 1
  EXPECT_EQ(inode_of(test_key(3)), second_inode);
}

TEST_F(FileSharing, FilesOfTheLivingAreLeftAlone) {
  open();
  files().use_named_files();
  Result<PageWrite> write = files().begin_write(test_key(0), 8192, 0);
  ASSERT_TRUE(write.ok());
  ChildMember child(options_.directory, options_.capacity_bytes, false);
  ASSERT_EQ(child.first_line(), "ready");
  EXPECT_EQ(child.ask("clean"), "ok");
  EXPECT_EQ(num_temporaries(options_.directory), 1u);
  EXPECT_EQ(stats().size_bytes, capacity_for(1));
  EXPECT_EQ(child.ask("stats"), fmt::format("0 {} 0", capacity_for(1)));
  files().abandon(*write);
  EXPECT_EQ(num_temporaries(options_.directory), 0u);
  EXPECT_EQ(child.quit(), 0);
  EXPECT_EQ(num_entries(options_.directory + "/tmp"), 1u);  // our own
}

// ---- Death.

TEST_F(FileSharing, AFileWithoutANameGoesWithItsWriter) {
  options_.capacity_bytes = member_capacity(100);
  open();
  const pid_t child = ::fork();
  if (child == 0) {  // dies with a file half written, and one named but not yet a page
    const auto own = open_store(options_);
    PageFiles& theirs = static_cast<FileStore&>(*own).files();
    auto half = theirs.begin_write(test_key(0), 8192, 0);
    auto named = theirs.begin_write(test_key(1), 8192, 0);
    if (!half->name.empty()) std::_Exit(0);
    fs::create_directories(fs::path(file(test_key(1))).parent_path());
    give_name(named->file, Directory::here(), file(test_key(1)));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status)) GTEST_SKIP() << "this file system has no files without names";
  EXPECT_EQ(num_temporaries(options_.directory), 0u);
  EXPECT_TRUE(fs::exists(file(test_key(1))));
  EXPECT_EQ(stats().size_bytes, capacity_for(2));
  files().member()->clean_up();
  EXPECT_EQ(stats().size_bytes, 0u);
  EXPECT_FALSE(fs::exists(file(test_key(1))));
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 2)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 2)).bytes_right);
}

TEST_F(FileSharing, WhatADeadOneLeftIsCleanedUpByAnother) {
  options_.capacity_bytes = member_capacity(100);
  open();
  const pid_t child = ::fork();
  if (child ==
      0) {  // dies with a file half written, one renamed but not yet a page, and one removed
    const auto own = open_store(options_);
    PageFiles& theirs = static_cast<FileStore&>(*own).files();
    theirs.use_named_files();
    put_pages(*own, {test_key(2)});
    auto half = theirs.begin_write(test_key(0), 8192, 0);
    auto renamed = theirs.begin_write(test_key(1), 8192, 0);
    fs::create_directories(fs::path(file(test_key(1))).parent_path());
    fs::rename(theirs.member()->temporaries_path() + "/" + renamed->name, file(test_key(1)));
    const auto member = theirs.member();
    const Membership::KeyLock lock(*member, test_key(2));
    member->index().begin_remove(test_key(2));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(stats().size_bytes, capacity_for(3));
  files().member()->clean_up();
  EXPECT_EQ(stats().size_bytes, 0u);
  EXPECT_EQ(num_temporaries(options_.directory), 0u);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_FALSE(fs::exists(file(test_key(i)))) << i;
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 3)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 3)).bytes_right);
  EXPECT_TRUE(check_index().ok());
}

TEST_F(FileSharing, CleaningIsTakenOverFromADeadCleaner) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 1)).all(PageOutcome::done));
  ChildMember leaves(options_.directory, options_.capacity_bytes, true, {"storm", "1", "50"});
  leaves.line();
  leaves.kill();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t cleaner = ::fork();
  if (cleaner == 0) {  // has the role, and dies with it
    const StoreDirectory directory = std::move(*StoreDirectory::open(options_.directory));
    LockFile lock = std::move(*LockFile::open(directory, LockFile::Mode::shared, false));
    const char got = lock.try_lock_cleaning() ? 'y' : 'n';
    static_cast<void>(!::write(ends[1], &got, 1));
    ::pause();
  }
  char got = 0;
  ASSERT_EQ(::read(ends[0], &got, 1), 1);
  ASSERT_EQ(got, 'y');
  Status before = check_index();
  EXPECT_TRUE(before.ok());
  for (const auto& entry : fs::directory_iterator(options_.directory + "/tmp"))
    std::ofstream(entry.path() / "9999") << "left by the dead, and one of ours";
  files().member()->clean_up();  // somebody else does it
  EXPECT_GE(num_temporaries(options_.directory), 2u);
  ::kill(cleaner, SIGKILL);
  ::waitpid(cleaner, nullptr, 0);
  files().member()->clean_up();
  EXPECT_EQ(num_temporaries(options_.directory), 1u);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(FileSharing, ARoomThatADeadOneHeldIsHadAgain) {
  options_.capacity_bytes = capacity_for(2);
  open();
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = open_store(options_);
    PageFiles& theirs = static_cast<FileStore&>(*own).files();
    for (std::uint64_t i = 0; i < 2; ++i)
      static_cast<void>(theirs.begin_write(test_key(i), 8192, 0)->record);
    ::kill(::getpid(), SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(put_pages(*store_, test_keys(10, 2)).all(PageOutcome::done));
  EXPECT_TRUE(check_index().ok());
  EXPECT_LE(disk_bytes(options_.directory), options_.capacity_bytes);
}

// ---- The index file.

TEST_F(FileSharing, WhateverTheIndexFileWasItIsMadeAnew) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 30)).all(PageOutcome::done));
  const auto kinds = {0, 1, 2, 3, 4};
  for (const int kind : kinds) {
    SCOPED_TRACE(kind);
    store_.reset();
    if (kind == 0) fs::remove(index_path());
    if (kind == 1) std::ofstream(index_path()) << "foreign";
    if (kind == 2) fs::resize_file(index_path(), fs::file_size(index_path()) / 2);
    if (kind == 3) std::ofstream(index_path()) << std::string(1 << 20, '\xff');
    if (kind == 4) {
      std::fstream scribble(index_path(), std::ios::in | std::ios::out | std::ios::binary);
      scribble.seekp(4096);
      scribble << std::string(200'000, '\x7f');
    }
    open();
    EXPECT_EQ(stats().num_pages, 30u);
    EXPECT_TRUE(get_pages(*store_, test_keys(0, 30)).bytes_right);
    EXPECT_EQ(stats().foreign_files, 0u);
    EXPECT_TRUE(check_index().ok());
  }
}

TEST_F(FileSharing, NonsenseInTheIndexOfTheLivingIsFoundAndItIsMadeAnew) {
  open();
  const auto second = open_store(options_);
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 30)).all(PageOutcome::done));
  {
    auto scribble =
        std::move(*IndexMapping::attach({Directory::here(), index_path(), index_path()}));
    for (UnitId id = 1; id < 60; ++id) scribble->unit(id).page.next = 0xffff'fff0 + id;
  }
  for (int round = 0; round < 3; ++round)  // finds nothing, or the right bytes
    EXPECT_TRUE(get_pages(*store_, test_keys(0, 30)).bytes_right);
  for (StoreBackend* store : {store_.get(), second.get()}) {
    pages_exist(*store, {test_key(0)});
    EXPECT_TRUE(get_pages(*store, test_keys(0, 30)).all(PageOutcome::done));
    EXPECT_EQ(store->stats().num_pages, 30u);
    EXPECT_TRUE(check_index_of(*store).ok());
  }
  ASSERT_TRUE(put_pages(*store_, test_keys(100, 5)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*second, test_keys(100, 5)).all(PageOutcome::done));
}

TEST_F(FileSharing, AnIndexFileReplacedMeanwhileIsMadeAnewByTheNextToJoin) {
  open();
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 10)).all(PageOutcome::done));
  fs::remove(index_path());
  std::ofstream(index_path()) << "not an index";
  const auto second = open_store(options_);
  EXPECT_TRUE(get_pages(*second, test_keys(0, 10)).all(PageOutcome::done));
  EXPECT_TRUE(files().member()->is_stale());
  ASSERT_TRUE(put_pages(*second, test_keys(20, 5)).all(PageOutcome::done));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // looked at once a second
  EXPECT_TRUE(get_pages(*store_, test_keys(20, 5)).all(PageOutcome::done));
  EXPECT_FALSE(files().member()->is_stale());
}

TEST_F(FileSharing, ADirectoryRemovedMeanwhileIsSharedAgain) {
  open();
  const auto second = open_store(options_);
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 10)).all(PageOutcome::done));
  fs::remove_all(options_.directory);
  ASSERT_TRUE(put_pages(*second, test_keys(20, 5)).all(PageOutcome::done));
  ASSERT_TRUE(put_pages(*store_, test_keys(30, 5)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(20, 5)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*second, test_keys(30, 5)).all(PageOutcome::done));
  EXPECT_EQ(stats().num_pages, 10u);
}

// ---- Other versions, other places.

TEST_F(FileSharing, AStoreOfTheVersionBeforeIsOpened) {
  // As Pando wrote it when one process had a directory: a lock, pages, numbered temporaries.
  const std::string& root = options_.directory;
  fs::create_directories(root + "/tmp");
  fs::create_directories(root + "/set_aside");
  std::ofstream(root + "/pando.lock") << "12345";
  std::ofstream(root + "/tmp/17") << "half a page";
  std::ofstream(root + "/set_aside/0.bad") << "kept";
  for (const std::string& key : test_keys(0, 5)) {
    const std::vector<std::byte> bytes = test_bytes(key, 8192);
    TestPages memory({key}, {});
    memory.fill();
    std::array<std::byte, kBlockBytes> header;
    encode(key, make_page_tag(memory.pages[0]), header);
    fs::create_directories(fs::path(file(key)).parent_path());
    std::ofstream out(file(key), std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()), kBlockBytes);
    out.write(reinterpret_cast<const char*>(bytes.data()), 8192);
  }
  open();
  EXPECT_EQ(stats().num_pages, 5u);
  EXPECT_EQ(stats().foreign_files, 0u);
  EXPECT_EQ(num_temporaries(root), 0u);
  EXPECT_EQ(num_set_aside(), 1u);
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 5)).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 5)).bytes_right);
}

TEST_F(FileSharing, TheVersionBeforeAndThisOneRefuseEachOther) {
  open();
  const Fd theirs = Fd::open(options_.directory + "/pando.lock", O_RDWR);
  EXPECT_NE(::flock(theirs.get(), LOCK_EX | LOCK_NB), 0);  // what that version does
  store_.reset();
  ASSERT_EQ(::flock(theirs.get(), LOCK_EX | LOCK_NB), 0);
  const auto refused = make_file_store(options_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::in_use);
  EXPECT_NE(refused.error().message.find("older version"), std::string::npos);
}

}  // namespace
}  // namespace pando::testing
