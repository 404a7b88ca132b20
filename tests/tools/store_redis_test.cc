// SPDX-License-Identifier: Apache-2.0
// `pando store` on a real Redis server.
#include "support/redis_server.h"

#include "tools/store_fixture.h"

namespace pando::testing {
namespace {

class StoreOnRedis : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (have_redis()) server_ = std::make_unique<RedisServer>();
  }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override {
    PANDO_REQUIRE_REDIS();
    server_->command({"FLUSHALL"});
    server_->command({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
    store_ = make_redis_store({.servers = {server_->address()}}).value();
  }
  static std::string name() { return "redis:" + server_->address(); }
  static CommandResult store(const std::string& verb, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"store", verb, name()});
    return pando_command(std::move(more));
  }
  static nlohmann::json store_json(const std::string& verb, std::vector<std::string> more = {},
                                   int code = 0) {
    more.insert(more.end(), {"--json", "-"});
    const CommandResult done = store(verb, std::move(more));
    EXPECT_EQ(done.code, code) << done.err;
    return done.json();
  }
  static std::string size() { return server_->command({"DBSIZE"}); }

  static inline std::unique_ptr<RedisServer> server_;
  std::unique_ptr<StoreBackend> store_;
  TempDirectory temp_;
};

TEST_F(StoreOnRedis, ListsCountsAndVerifiesWhatAReplayHasStored) {
  fill_by_replay(temp_, name());
  server_->command({"SET", "somebody:else", "value"});
  const nlohmann::json listed = store_json("ls");
  ASSERT_GT(listed["num_pages"].get<int>(), 10);
  EXPECT_EQ(listed["pages"][0]["model"], "replay");
  const nlohmann::json stat = store_json("stat");
  EXPECT_EQ(stat["num_pages"], listed["num_pages"]);
  EXPECT_EQ(stat["size_bytes"], listed["size_bytes"]);
  EXPECT_GT(stat["used_bytes"].get<std::uint64_t>(), stat["kept_bytes"].get<std::uint64_t>());
  EXPECT_FALSE(stat["oldest_s"].is_null());
  const nlohmann::json verified = store_json("verify");
  EXPECT_EQ(verified["good_pages"], listed["num_pages"]);
  EXPECT_EQ(verified["bad"], 0);
}

TEST_F(StoreOnRedis, VerifyFindsDamageAndRemovesItOnlyWhenAsked) {
  const Keys keys = test_keys(0, 5);
  ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
  server_->command({"SETRANGE", "pando:" + keys[0], "100", "damage"});
  server_->command({"SETRANGE", "pando:" + keys[1], "0", "XX"});
  server_->command({"SET", "pando:" + keys[2], "short"});
  server_->command({"SET", "pando:other", server_->get("pando:" + keys[3])});  // ends at a zero
  server_->command({"LPUSH", "pando:a-list", "1"});
  const std::string before = size();
  const nlohmann::json found = store_json("verify", {}, 1);
  EXPECT_EQ(found["good_pages"], 2);
  EXPECT_EQ(found["bad"], 5);
  std::map<std::string, std::string> why;
  for (const nlohmann::json& entry : found["entries"]) why[entry["place"]] = entry["why"];
  EXPECT_NE(why["pando:" + keys[0]].find("checksum"), std::string::npos);
  EXPECT_NE(why["pando:" + keys[1]].find("PNDO"), std::string::npos);
  EXPECT_NE(why["pando:" + keys[2]].find("5 bytes"), std::string::npos);
  EXPECT_NE(why["pando:a-list"].find("WRONGTYPE"), std::string::npos);
  EXPECT_EQ(size(), before);

  EXPECT_EQ(store_json("verify", {"--remove-bad"}, 1)["removed"], 4);
  const nlohmann::json again = store_json("verify", {}, 1);
  EXPECT_EQ(again["bad"], 1);  // what was never ours stays
  EXPECT_EQ(again["entries"][0]["kind"], "foreign");
  EXPECT_TRUE(get_pages(*store_, {keys[3], keys[4]}).bytes_right);
}

TEST_F(StoreOnRedis, GcRemovesPagesAndNothingElse) {
  ASSERT_TRUE(put_pages(*store_, test_keys(0, 300)).all(PageOutcome::done));
  server_->command({"SET", "somebody:else", "value"});
  const std::uint64_t page = 8192 + 32;
  EXPECT_EQ(store_json("gc", {"--older-than", "1h"})["removed_pages"], 0);
  EXPECT_EQ(store_json("gc", {"--to", std::to_string(10 * page), "--dry-run"})["removed_pages"],
            290);
  EXPECT_EQ(store_json("gc", {"--to", std::to_string(10 * page)})["left_bytes"], 10 * page);
  EXPECT_EQ(store_json("stat")["num_pages"], 10);
  EXPECT_EQ(server_->get("somebody:else"), "value");
  server_->command({"CONFIG", "SET", "maxmemory-policy", "allkeys-lfu"});
  const CommandResult unknown = store("gc", {"--older-than", "0s"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_NE(unknown.err.find("does not say when"), std::string::npos) << unknown.err;
  EXPECT_EQ(store_json("gc", {"--to", "0"})["removed_pages"], 10);
}

TEST_F(StoreOnRedis, PagesGoToFilesAndComeBack) {
  const Keys keys = test_keys(0, 20);
  ASSERT_TRUE(put_pages(*store_, keys).all(PageOutcome::done));
  const std::string files = "file:" + (temp_ / "files");
  EXPECT_EQ(store_json("export", {"--to", files})["copied_pages"], 20);
  server_->command({"FLUSHALL"});
  const CommandResult back = pando_command(
      {"store", "export", files, "--to", name(), "--to-key-prefix", "other:", "--quiet"});
  EXPECT_EQ(back.code, 0) << back.err;
  const auto other = make_redis_store({.servers = {server_->address()}, .key_prefix = "other:"});
  EXPECT_TRUE(get_pages(**other, keys).all(PageOutcome::done));
  EXPECT_EQ(store_json("ls")["num_pages"], 0);
  EXPECT_EQ(store_json("ls", {"--key-prefix", "other:"})["num_pages"], 20);
}

TEST_F(StoreOnRedis, AServerThatIsNotThereOrWantsAPassword) {
  RedisServer locked({"--requirepass", "secret"});
  const std::string place = "redis:" + locked.address();
  const CommandResult refused = pando_command({"store", "ls", place});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("NOAUTH"), std::string::npos) << refused.err;
  std::ofstream(temp_ / "password") << "secret\n";
  EXPECT_EQ(pando_command({"store", "ls", place, "--password-file", temp_ / "password"}).code, 0);
  EXPECT_EQ(pando_command({"store", "ls", place, "--password-file", temp_ / "none"}).code, 1);
  locked.kill();
  const CommandResult gone = pando_command({"store", "verify", place});
  EXPECT_EQ(gone.code, 1);
  EXPECT_NE(gone.err.find(locked.address()), std::string::npos) << gone.err;
}

TEST(StoreOnRedisCluster, AllMastersAreLookedAt) {
  PANDO_REQUIRE_REDIS();
  RedisCluster cluster(3, 0);
  const auto store = make_redis_store({.servers = cluster.addresses(), .cluster = true}).value();
  const Keys keys = test_keys(0, 200);
  ASSERT_TRUE(put_pages(*store, keys).all(PageOutcome::done));
  const std::string place = "redis:" + cluster.addresses()[0];
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "store");
    more.insert(more.begin() + 2, place);
    more.insert(more.end(), {"--cluster", "--json", "-"});
    return pando_command(std::move(more)).json();
  };
  EXPECT_EQ(run({"verify"})["good_pages"], 200);
  EXPECT_EQ(run({"gc", "--to", "0"})["removed_pages"], 200);
  EXPECT_EQ(run({"stat"})["num_pages"], 0);
}

}  // namespace
}  // namespace pando::testing
