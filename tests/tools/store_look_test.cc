// SPDX-License-Identifier: Apache-2.0
// `pando store ls`, `stat` and `verify` on file stores: what they say, and that they change
// nothing.
#include <set>

#include "store/store_reader.h"
#include "tools/store_fixture.h"

namespace pando::testing {
namespace {

TEST_F(StoreCommand, ListsWhatAReplayHasStored) {
  fill_by_replay(temp_, name());
  const nlohmann::json all = store_json("ls");
  const std::size_t num_pages = all["num_pages"];
  ASSERT_GT(num_pages, 10u);
  ASSERT_EQ(all["pages"].size(), num_pages);
  std::set<std::string> keys;
  for (const nlohmann::json& page : all["pages"]) {
    EXPECT_EQ(page["model"], "replay");
    EXPECT_EQ(page["component"], "full");
    EXPECT_EQ(page["tp"]["size"], 1);
    EXPECT_TRUE(page["pp"].is_null());
    EXPECT_EQ(page["kept_bytes"], file_bytes(page["size_bytes"]));
    EXPECT_TRUE(page["key"].get<std::string>().starts_with(page["hash"].get<std::string>()));
    keys.insert(page["key"]);
  }
  EXPECT_EQ(keys.size(), num_pages);

  const CommandResult text = store("ls");
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.out.begin(), text.out.end(), '\n')),
            num_pages + 1);
  EXPECT_EQ(store_json("ls", {"--limit", "3"})["pages"].size(), 3u);
  const std::string first = keys.begin()->substr(0, 8);
  EXPECT_EQ(store_json("ls", {"--prefix", first})["pages"].size(), 1u);
  EXPECT_EQ(store_json("ls", {"--model", "other"})["pages"].size(), 0u);

  const nlohmann::json stat = store_json("stat");
  EXPECT_EQ(stat["num_pages"], num_pages);
  EXPECT_EQ(stat["size_bytes"], all["size_bytes"]);
  EXPECT_EQ(stat["groups"].size(), 1u);
  EXPECT_EQ(stat["groups"][0]["model"], "replay");
  EXPECT_GT(stat["oldest_s"].get<double>(), 1.6e9);
  EXPECT_EQ(stat["damaged"].get<int>() + stat["foreign"].get<int>(), 0);

  const nlohmann::json verified = store_json("verify");
  EXPECT_EQ(verified["good_pages"], num_pages);
  EXPECT_EQ(verified["good_bytes"], all["size_bytes"]);
  EXPECT_EQ(verified["bad"], 0);
}

TEST_F(StoreCommand, VerifyNamesAForgedHeaderAndGoesOn) {
  const Keys keys = test_keys(0, 4);
  put(keys);
  forge_header(file(keys[1]), UINT64_MAX);
  fs::resize_file(file(keys[1]), kBlockBytes);
  const nlohmann::json found = store_json("verify", {}, 1);
  EXPECT_EQ(found["good_pages"], 3);
  EXPECT_EQ(found["bad"], 1);
  ASSERT_EQ(found["entries"].size(), 1u);
  EXPECT_EQ(found["entries"][0]["place"], file(keys[1]));
}

TEST_F(StoreCommand, JsonGoesToAFileAsAWhole) {
  put(test_keys(0, 3));
  const std::string file = temp_ / "ls.json";
  ASSERT_EQ(store("ls", {"--json", file}).code, 0);
  EXPECT_EQ(nlohmann::json::parse(read_text(file))["num_pages"], 3);
  EXPECT_EQ(store("ls", {"--json", temp_ / "no/such/place"}).code, 1);
}

TEST_F(StoreCommand, VerifyTellsEveryBadPageWithItsFileAndWhy) {
  const Keys keys = test_keys(0, 8);
  put(keys);
  damage(file(keys[0]), 5000);  // a byte of the page
  damage(file(keys[1]), 60);    // of the key in the header
  fs::resize_file(file(keys[2]), 4096);
  fs::resize_file(file(keys[3]), 10);
  std::string other = keys[4];
  other.back() = 'e';
  fs::copy_file(file(keys[4]), file(other));
  std::ofstream(directory() + "/00/.hidden") << "x";
  std::ofstream(directory() + "/README") << "beside";
  const auto before = everything_in(directory());
  const nlohmann::json found = store_json("verify", {}, 1);
  EXPECT_EQ(found["good_pages"], 4);
  EXPECT_EQ(found["bad"], 6);
  EXPECT_EQ(found["removed"], 0);
  EXPECT_EQ(found["beside"], 1);
  std::map<std::string, std::string> why;
  for (const nlohmann::json& entry : found["entries"]) why[entry["place"]] = entry["why"];
  EXPECT_NE(why[file(keys[0])].find("checksum of the page"), std::string::npos);
  EXPECT_NE(why[file(keys[1])].find("checksum of its header"), std::string::npos);
  EXPECT_NE(why[file(keys[2])].find("4096 bytes, expected 12288"), std::string::npos);
  EXPECT_NE(why[file(keys[3])].find("10 bytes"), std::string::npos);
  EXPECT_NE(why[file(other)].find(keys[4]), std::string::npos);
  EXPECT_NE(why[directory() + "/00/.hidden"].find("not named like a page"), std::string::npos);

  const CommandResult text = store("verify");
  EXPECT_EQ(text.code, 1);
  EXPECT_NE(text.out.find("damaged: " + file(keys[0])), std::string::npos) << text.out;
  EXPECT_NE(text.err.find("6 bad"), std::string::npos) << text.err;

  const nlohmann::json stat = store_json("stat");  // by headers alone
  EXPECT_EQ(stat["damaged"], 4);
  EXPECT_EQ(stat["foreign"], 2);
  EXPECT_EQ(stat["num_pages"], 5);
  EXPECT_EQ(store_json("ls")["odd_entries"], 5);
  EXPECT_EQ(everything_in(directory()), before);
}

TEST_F(StoreCommand, RemoveBadPutsThemAwayAndLeavesTheRest) {
  const Keys keys = test_keys(0, 5);
  put(keys);
  damage(file(keys[0]), 5000);
  fs::resize_file(file(keys[1]), 10);
  std::ofstream(directory() + "/README") << "beside";
  const nlohmann::json found = store_json("verify", {"--remove-bad"}, 1);
  EXPECT_EQ(found["bad"], 2);
  EXPECT_EQ(found["removed"], 2);
  for (const nlohmann::json& entry : found["entries"])
    EXPECT_NE(entry["fate"].get<std::string>().find("/set_aside/"), std::string::npos);
  EXPECT_EQ(num_entries(directory() + "/set_aside"), 2u);
  EXPECT_TRUE(fs::exists(directory() + "/README"));
  EXPECT_EQ(store_json("verify")["good_pages"], 3);
  EXPECT_EQ(store_json("stat")["set_aside"]["num"], 2);
  const auto opened = open_store(options_);
  EXPECT_TRUE(get_pages(*opened, Keys(keys.begin() + 2, keys.end())).bytes_right);
}

TEST_F(StoreCommand, NothingIsMadeWhereThereIsNoStore) {
  for (const std::string verb : {"ls", "stat", "verify"}) {
    const CommandResult done = store(verb);
    EXPECT_EQ(done.code, 1);
    EXPECT_NE(done.err.find("no file store in " + directory()), std::string::npos) << done.err;
    EXPECT_FALSE(fs::exists(directory()));
  }
  EXPECT_EQ(store("gc", {"--to", "1GiB"}).code, 1);
  EXPECT_EQ(store("verify", {"--remove-bad"}).code, 1);
  EXPECT_EQ(store("export", {temp_ / "out"}).code, 1);
  EXPECT_FALSE(fs::exists(directory()) || fs::exists(temp_ / "out"));
  fs::create_directories(directory());
  EXPECT_EQ(store("verify", {"--remove-bad"}).code, 1);
  EXPECT_EQ(num_entries(directory()), 0u);
}

TEST_F(StoreCommand, AStoreThatAProcessHasOpenIsLookedAtButNotChanged) {
  put(test_keys(0, 2));
  const auto opened = open_store(options_);
  for (const std::string verb : {"ls", "stat", "verify"}) EXPECT_EQ(store(verb).code, 0) << verb;
  for (const std::vector<std::string>& verb :
       std::vector<std::vector<std::string>>{{"verify", "--remove-bad"}, {"gc", "--to", "0"}}) {
    const CommandResult done =
        store(verb[0], std::vector<std::string>(verb.begin() + 1, verb.end()));
    EXPECT_EQ(done.code, 1);
    EXPECT_NE(done.err.find("open already (the last process to open it was " +
                            std::to_string(::getpid())),
              std::string::npos)
        << done.err;
  }
  EXPECT_TRUE(get_pages(*opened, test_keys(0, 2)).all(PageOutcome::done));
}

TEST_F(StoreCommand, ReadersExcludeNobodyButWhoChangesFiles) {
  put(test_keys(0, 2));
  const auto reader = open_file_reader(directory(), StoreAccess::read);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(store("verify").code, 0);
  EXPECT_EQ(store("gc", {"--to", "0"}).code, 1);
  EXPECT_TRUE(make_file_store(options_).ok());
}

TEST_F(StoreCommand, BadUsageIsExitTwo) {
  put(test_keys(0, 1));
  EXPECT_EQ(pando_command({"store"}).code, 2);
  EXPECT_EQ(pando_command({"store", "ls"}).code, 2);
  EXPECT_EQ(pando_command({"store", "ls", "nonsense"}).code, 2);
  EXPECT_EQ(pando_command({"store", "ls", "file:"}).code, 2);
  EXPECT_EQ(pando_command({"store", "ls", "redis:nowhere"}).code, 2);
  EXPECT_EQ(store("ls", {"--limit", "many"}).code, 2);
  EXPECT_EQ(store("gc").code, 2);
  EXPECT_EQ(store("gc", {"--to", "big"}).code, 2);
  EXPECT_EQ(store("gc", {"--older-than", "5"}).code, 2);
  EXPECT_EQ(store("export").code, 2);
  EXPECT_EQ(store("export", {"--to", name()}).code, 2);
  EXPECT_EQ(pando_command({"store", "--help"}).code, 0);
}

}  // namespace
}  // namespace pando::testing
