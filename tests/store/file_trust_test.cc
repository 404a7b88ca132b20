// SPDX-License-Identifier: Apache-2.0
// What a file store does not do to others, and lets nobody do to it: links, pipes and folders where
// it expects files of its own, errors that are no damage, callers that are mistaken.
// docs/security.md has the promises.
#include <sys/stat.h>

#include "support/file_store_fixture.h"

namespace pando::testing {
namespace {

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

}  // namespace
}  // namespace pando::testing
