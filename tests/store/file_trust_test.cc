// SPDX-License-Identifier: Apache-2.0
// What a file store does not do to others, and lets nobody do to it: links, pipes and folders where
// it expects files of its own, errors that are no damage, callers that are mistaken.
// docs/security.md has the promises.
#include <sys/resource.h>
#include <sys/stat.h>

#include "support/file_store_fixture.h"
#include "support/in_child.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kNobody = 65534;

class FileTrust : public FileStoreTest {
 protected:
  std::string victim_ = temp_ / "victim";

  void make_victim(const std::string& name = "precious") {
    fs::create_directories(victim_);
    std::ofstream(victim_ + "/" + name) << "precious";
  }
  bool victim_is_whole(const std::string& name = "precious") const {
    std::ifstream in(victim_ + "/" + name);
    std::string text;
    return std::getline(in, text) && text == "precious" && num_entries(victim_) == 1;
  }
  std::string in_store(const std::string& name) const { return options_.directory + "/" + name; }
  /// What opening the store says; "": it opened.
  std::string refusal() {
    auto opened = make_file_store(options_);
    return opened ? "" : opened.error().message;
  }
  void make_store(const Keys& keys) {
    open();
    ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
    store_.reset();
  }
};

bool says(const std::string& message, std::string_view what) {
  return message.find(what) != std::string::npos;
}

// ---- Links.

TEST_F(FileTrust, ALinkInThePlaceOfADirectoryIsRefusedAndNotFollowed) {
  for (const char* name : {"tmp", "set_aside", "00", "03", "ff"}) {
    SCOPED_TRACE(name);
    fs::remove_all(options_.directory);
    fs::remove_all(victim_);
    make_store(test_keys(0, 8));
    make_victim();
    fs::remove_all(in_store(name));
    fs::create_directory_symlink(victim_, in_store(name));
    const std::string why = refusal();
    EXPECT_TRUE(says(why, in_store(name))) << why;
    EXPECT_TRUE(says(why, "expected")) << why;
    EXPECT_TRUE(victim_is_whole());
  }
}

TEST_F(FileTrust, ALinkInThePlaceOfTheLockIsRefusedAndNotFollowed) {
  make_victim();
  fs::create_directories(options_.directory);
  fs::create_symlink(victim_ + "/precious", in_store("pando.lock"));
  std::string why = refusal();
  EXPECT_TRUE(says(why, in_store("pando.lock"))) << why;
  EXPECT_TRUE(victim_is_whole());
  fs::remove(in_store("pando.lock"));
  fs::create_hard_link(victim_ + "/precious", in_store("pando.lock"));
  why = refusal();
  EXPECT_TRUE(says(why, in_store("pando.lock"))) << why;
  EXPECT_TRUE(victim_is_whole());
}

TEST_F(FileTrust, ALinkToAFileThatIsNoLockIsNotWrittenTo) {
  make_store(test_keys(0, 1));
  std::ofstream(in_store("pando.lock")) << "a text much longer than the number of a process";
  const std::string why = refusal();
  EXPECT_TRUE(says(why, in_store("pando.lock"))) << why;
  EXPECT_EQ(fs::file_size(in_store("pando.lock")), 47u);
}

TEST_F(FileTrust, ALinkAmongTheTemporariesIsNotFollowed) {
  make_store(test_keys(0, 1));
  make_victim("17");
  fs::create_directory_symlink(victim_, in_store("tmp/member-5-00000000"));
  open();
  EXPECT_TRUE(victim_is_whole("17"));
}

TEST_F(FileTrust, ALinkThatComesWhileTheStoreIsOpenIsNotFollowed) {
  open();
  const std::string key = test_key(3);
  ASSERT_TRUE(put_pages(*store_, {key}).all(PageOutcome::done));
  make_victim(key);
  fs::remove_all(in_store("03"));
  fs::create_directory_symlink(victim_, in_store("03"));
  get_pages(*store_, {key});
  EXPECT_TRUE(victim_is_whole(key));
  remove_pages(*store_, {key});
  EXPECT_TRUE(victim_is_whole(key));
  EXPECT_TRUE(put_pages(*store_, {key, test_key(11)}).all(PageOutcome::failed));
  EXPECT_TRUE(victim_is_whole(key));
  fs::remove(in_store("03"));
  EXPECT_TRUE(put_pages(*store_, {key}).all(PageOutcome::done));
  EXPECT_TRUE(get_pages(*store_, {key}).bytes_right);
}

TEST_F(FileTrust, AFolderOfTemporariesThatWasNeverAStoresIsLeftAlone) {
  fs::create_directories(in_store("tmp"));
  std::ofstream(in_store("tmp/mine")) << "precious";
  EXPECT_TRUE(says(refusal(), options_.directory));
  EXPECT_TRUE(fs::exists(in_store("tmp/mine")));
  fs::remove_all(in_store("tmp"));
  make_store(test_keys(0, 1));
  std::ofstream(in_store("tmp/mine")) << "precious";
  open();  // a store, but this is not one of its names
  EXPECT_TRUE(fs::exists(in_store("tmp/mine")));
}

TEST_F(FileTrust, ADirectoryThatOthersMayChangeIsRefused) {
  make_store(test_keys(0, 1));
  for (const mode_t mode : {0775, 0757, 0777, 01777}) {
    ASSERT_EQ(::chmod(options_.directory.c_str(), mode), 0);
    const std::string why = refusal();
    EXPECT_TRUE(says(why, options_.directory)) << why;
    EXPECT_TRUE(says(why, fmt::format("{:04o}", mode))) << why;
    EXPECT_TRUE(says(why, "expected")) << why;
  }
  ASSERT_EQ(::chmod(options_.directory.c_str(), 0755), 0);
  EXPECT_EQ(refusal(), "");
}

TEST_F(FileTrust, ADirectoryOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  make_store(test_keys(0, 1));
  ASSERT_EQ(::chown(options_.directory.c_str(), kNobody, kNobody), 0);
  const std::string why = refusal();
  EXPECT_TRUE(says(why, "65534")) << why;
  EXPECT_TRUE(says(why, "expected")) << why;
}

// ---- Errors that are no damage.

TEST_F(FileTrust, TooFewFileDescriptorsAreNoDamage) {
  make_store(test_keys(0, 600));
  const std::string failure = failure_in_child([&] {
    rlimit limit;
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = 14;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    auto opened = make_file_store(options_);
    limit.rlim_cur = before;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (num_set_aside() != 0) return false;
    if (!opened) return true;  // it says so; what matters is that nothing was touched
    for (int i = 0; i < 100 && (*opened)->stats().num_pages < 600; ++i) {
      std::this_thread::sleep_for(100ms);
      pages_exist(**opened, {test_key(0)});
    }
    return (*opened)->stats().num_pages == 600 &&
           get_pages(**opened, test_keys(0, 600)).all(PageOutcome::done);
  });
  EXPECT_EQ(failure, "");
  EXPECT_EQ(num_set_aside(), 0u);
  open();
  EXPECT_TRUE(get_pages(*store_, test_keys(0, 600)).all(PageOutcome::done));
}

TEST_F(FileTrust, AFileThatMayNotBeReadIsNoDamage) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  make_store(test_keys(0, 8));
  for (const auto& entry : fs::recursive_directory_iterator(temp_.path()))
    ASSERT_EQ(::chown(entry.path().c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(::chown(temp_.path().c_str(), kNobody, kNobody), 0);
  ASSERT_EQ(::chmod(file(test_key(2)).c_str(), 0), 0);
  ASSERT_EQ(::chmod(in_store("05").c_str(), 0), 0);
  const std::string failure = failure_in_child([&] {
    if (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0) return false;
    const auto store = open_store(options_);
    if (store->stats().damaged_pages != 0 || store->stats().num_pages != 6) return false;
    if (!pages_exist(*store, {test_key(2)}).all(PageOutcome::missing)) return false;
    ::chmod(file(test_key(2)).c_str(), 0600);
    ::chmod(in_store("05").c_str(), 0700);
    for (int i = 0; i < 100 && store->stats().num_pages < 8; ++i) {
      std::this_thread::sleep_for(100ms);
      pages_exist(*store, {test_key(0)});
    }
    const Outcomes outcomes = get_pages(*store, test_keys(0, 8));
    return outcomes.all(PageOutcome::done) && outcomes.bytes_right && check_index_of(*store).ok();
  });
  EXPECT_EQ(failure, "");
  EXPECT_EQ(num_set_aside(), 0u);
}

TEST_F(FileTrust, WhatIsSetAsideHasAShareOfTheCapacity) {
  options_.capacity_bytes = capacity_for(64);  // of which set_aside/ has four files
  open();
  const auto set_aside_bytes = [&] {
    std::uint64_t sum = 0;
    for (const auto& entry : fs::directory_iterator(in_store("set_aside")))
      sum += entry.file_size();
    return sum;
  };
  for (std::uint64_t i = 0; i < 200; i += 20) {
    ASSERT_TRUE(put_pages(*store_, test_keys(i, 20)).all(PageOutcome::done));
    for (const std::string& key : test_keys(i, 20)) damage(file(key), 6000);
    ASSERT_TRUE(get_pages(*store_, test_keys(i, 20)).all(PageOutcome::damaged));
    EXPECT_LE(set_aside_bytes(), options_.capacity_bytes / 16);
    EXPECT_GE(num_set_aside(), 3u);
  }
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 40)).all(PageOutcome::done));
  for (const std::string& key : test_keys(0, 40)) damage(file(key), 60);
  reopen();
  EXPECT_EQ(stats().damaged_pages, 40u);
  EXPECT_LE(set_aside_bytes(), options_.capacity_bytes / 16);
}

TEST_F(FileTrust, OtherThingsAmongThePagesAreLeftWhereTheyAre) {
  make_store(test_keys(0, 2));
  fs::create_directories(in_store("ab"));
  std::ofstream(in_store("ab/.hidden")) << "x";
  std::ofstream(in_store("ab/cd-in-the-wrong-place")) << "x";
  fs::create_directories(in_store("ab/abfolder"));
  fs::create_symlink("/etc/passwd", in_store("ab/ablink"));
  ASSERT_EQ(::mkfifo(in_store("ab/abpipe").c_str(), 0600), 0);
  open();
  EXPECT_EQ(stats().foreign_files, 5u);
  EXPECT_EQ(num_set_aside(), 0u);
  EXPECT_EQ(num_entries(in_store("ab")), 5u);
  EXPECT_EQ(stats().num_pages, 2u);
}

// ---- Something else in the place of a page.

TEST_F(FileTrust, APageThatCannotBeOpenedIsPutAgain) {
  for (const char* what : {"dangling link", "link", "folder", "pipe"}) {
    SCOPED_TRACE(what);
    fs::remove_all(victim_);
    make_victim();
    const auto store = open_store(options_);
    const std::string key = test_key(0);
    ASSERT_TRUE(put_pages(*store, {key}).all(PageOutcome::done));
    fs::remove(file(key));
    if (what == std::string_view("dangling link")) fs::create_symlink("nowhere", file(key));
    if (what == std::string_view("link")) fs::create_symlink(victim_ + "/precious", file(key));
    if (what == std::string_view("folder")) {
      fs::create_directories(file(key));
      std::ofstream(file(key) + "/inside") << "precious";
    }
    if (what == std::string_view("pipe")) {
      ASSERT_EQ(::mkfifo(file(key).c_str(), 0600), 0);
    }
    EXPECT_EQ(failure_in_child([&] {  // a process of its own: it may hang
                const auto own = open_store(options_);
                return get_pages(*own, {key}).all(PageOutcome::missing) &&
                       pages_exist(*own, {key}).all(PageOutcome::missing) &&
                       put_pages(*own, {key}).all(PageOutcome::done);
              }),
              "");
    EXPECT_TRUE(get_pages(*store, {key}).all(PageOutcome::done));
    EXPECT_TRUE(get_pages(*store, {key}).bytes_right);
    EXPECT_TRUE(victim_is_whole());
    EXPECT_TRUE(check_index_of(*store).ok());
    remove_pages(*store, {key});
  }
  ASSERT_EQ(num_set_aside(), 1u);  // the folder, with what is in it
  for (const auto& entry : fs::directory_iterator(in_store("set_aside")))
    EXPECT_TRUE(fs::exists(entry.path() / "inside"));
}

TEST_F(FileTrust, APipeInThePlaceOfAFileHangsNobody) {
  options_.capacity_bytes = capacity_for(2);
  make_store(test_keys(0, 2));
  EXPECT_EQ(failure_in_child(
                [&] {  // read, and evicted with its file to be written over
                  const auto backend = open_store(options_);
                  fs::remove(file(test_key(0)));
                  if (::mkfifo(file(test_key(0)).c_str(), 0600) != 0) return false;
                  if (!put_pages(*backend, test_keys(8, 1)).all(PageOutcome::done)) return false;
                  fs::remove(file(test_key(1)));
                  if (::mkfifo(file(test_key(1)).c_str(), 0600) != 0) return false;
                  return get_pages(*backend, {test_key(1)}).all(PageOutcome::missing);
                },
                5s),
            "");
  fs::remove(in_store("pando.lock"));
  ASSERT_EQ(::mkfifo(in_store("pando.lock").c_str(), 0600), 0);
  EXPECT_EQ(failure_in_child([&] { return says(refusal(), in_store("pando.lock")); }, 5s), "");
}

TEST_F(FileTrust, APipeDoesNotKeepAStoreFromEnding) {
  make_store(test_keys(0, 1));
  EXPECT_EQ(failure_in_child(
                [&] {
                  auto opened = Store::open(open_store(options_));
                  fs::remove(file(test_key(0)));
                  if (::mkfifo(file(test_key(0)).c_str(), 0600) != 0) return false;
                  TestPages memory({test_key(0)}, {});
                  const auto call = (*opened)->get(memory.pages, 200ms);
                  const bool in_time = call->wait().ok();
                  opened->reset();
                  return in_time && call->outcome(0) == PageOutcome::missing;
                },
                5s),
            "");
}

// ---- Callers that are mistaken.

TEST_F(FileTrust, AGetOfAnotherSizeIsAMissAndCostsNobodyThePage) {
  open();
  ASSERT_TRUE(put_pages(*store_, {test_key(0)}, {8192}).all(PageOutcome::done));
  for (const std::size_t size_bytes : {8191, 8193, 1, 1 << 20})
    EXPECT_TRUE(get_pages(*store_, {test_key(0)}, {size_bytes}).all(PageOutcome::missing));
  EXPECT_EQ(stats().damaged_pages, 0u);
  EXPECT_EQ(num_set_aside(), 0u);
  const Outcomes outcomes = get_pages(*store_, {test_key(0)}, {8192});
  EXPECT_TRUE(outcomes.all(PageOutcome::done));
  EXPECT_TRUE(outcomes.bytes_right);
}

TEST_F(FileTrust, APutOfAnotherSizeReplacesThePage) {
  for (const bool named : {false, true}) {
    fs::remove_all(options_.directory);
    open();
    if (named) static_cast<FileStore&>(*store_).files().use_named_files();
    ASSERT_TRUE(put_pages(*store_, {test_key(0)}, {8192}).all(PageOutcome::done));
    ASSERT_TRUE(put_pages(*store_, {test_key(0)}, {50'000}).all(PageOutcome::done));
    EXPECT_TRUE(get_pages(*store_, {test_key(0)}, {8192}).all(PageOutcome::missing));
    EXPECT_TRUE(get_pages(*store_, {test_key(0)}, {50'000}).all(PageOutcome::done));
    EXPECT_TRUE(get_pages(*store_, {test_key(0)}, {50'000}).bytes_right);
    EXPECT_EQ(stats().num_pages, 1u);
    EXPECT_EQ(stats().size_bytes, file_bytes(50'000));
    EXPECT_TRUE(check_index().ok());
    store_.reset();
  }
}

}  // namespace
}  // namespace pando::testing
