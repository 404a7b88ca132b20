// SPDX-License-Identifier: Apache-2.0
// `pando store gc`, `import` and `export` on file stores.
#include "pando/key_space.h"
#include "tools/store_fixture.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;

/// The key of page `number` with other words behind its hash.
std::string key_of(const std::string& model, std::uint64_t number) {
  return fmt::format("{}_{}_0_1_f0123456789abcdef", test_key(number).substr(0, 64), model);
}

class StoreGc : public StoreCommand {
 protected:
  void set_age(const std::string& key, std::chrono::hours age) {
    fs::last_write_time(file(key), fs::file_time_type::clock::now() - age);
  }
  bool has(const std::string& key) const { return fs::exists(file(key)); }
};

TEST_F(StoreGc, BringsAStoreDownLeastRecentlyUsedFirst) {
  const Keys keys = test_keys(0, 6);
  put(keys);
  for (std::size_t i = 0; i < keys.size(); ++i)
    set_age(keys[i], std::chrono::hours(i % 2 == 0 ? 20 + i : 1 + i));
  const auto before = everything_in(directory());
  const std::string to = std::to_string(4 * file_bytes(8192));
  const nlohmann::json dry = store_json("gc", {"--to", to, "--dry-run", "--list"});
  EXPECT_EQ(dry["removed_pages"], 2);
  EXPECT_EQ(dry["keys"], nlohmann::json({keys[4], keys[2]}));
  EXPECT_EQ(everything_in(directory()), before);
  const nlohmann::json done = store_json("gc", {"--to", to, "--list"});
  EXPECT_EQ(done["keys"], dry["keys"]);
  EXPECT_EQ(done["left_bytes"], 4 * file_bytes(8192));
  EXPECT_FALSE(has(keys[2]) || has(keys[4]));
  EXPECT_TRUE(has(keys[0]) && has(keys[1]) && has(keys[3]) && has(keys[5]));
  EXPECT_EQ(store_json("gc", {"--to", to})["removed_pages"], 0);
  EXPECT_EQ(store_json("verify")["good_pages"], 4);
}

TEST_F(StoreGc, OldPagesGo) {
  const Keys keys = test_keys(0, 3);
  put(keys);
  set_age(keys[1], 30h);
  const CommandResult done = store("gc", {"--older-than", "1d"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("removed 1 pages"), std::string::npos) << done.out;
  EXPECT_TRUE(has(keys[0]) && !has(keys[1]) && has(keys[2]));
}

TEST_F(StoreGc, OneModelGoesAndSeveralOptionsNameFewerPages) {
  put({key_of("org-a", 1), key_of("org-a", 2), key_of("org-b", 3)});
  set_age(key_of("org-a", 1), 30h);
  set_age(key_of("org-b", 3), 30h);
  EXPECT_EQ(store_json("gc", {"--model", "org/a", "--older-than", "1d"})["removed_pages"], 1);
  EXPECT_EQ(store_json("gc", {"--model", "org/a"})["groups"][0]["model"], "org-a");
  EXPECT_TRUE(has(key_of("org-b", 3)));
  EXPECT_EQ(store_json("stat")["num_pages"], 1);
}

class StoreCopy : public StoreCommand {
 protected:
  std::string out() const { return temp_ / "out"; }
};

TEST_F(StoreCopy, ExportedFilesHaveTheBytesOfPages) {
  const Keys keys = test_keys(0, 4);
  put(keys, 5000);
  damage(file(keys[3]), 4100);
  const nlohmann::json done = store_json("export", {out()}, 1);
  EXPECT_EQ(done["copied_pages"], 3);
  EXPECT_EQ(done["bad"], 1);
  EXPECT_EQ(num_entries(out()), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string text = read_text(out() + "/" + keys[i] + ".bin");
    const std::vector<std::byte> bytes = test_bytes(keys[i], 5000);
    EXPECT_EQ(text, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  EXPECT_TRUE(fs::exists(file(keys[3])));  // where it was
}

TEST_F(StoreCopy, AnotherStoreGetsAllPagesInTheOrderOfUse) {
  fill_by_replay(temp_, name());
  const std::string to = "file:" + out();
  ASSERT_EQ(store_json("export", {"--to", to})["bad"], 0);
  const nlohmann::json from = store_json("stat");
  const CommandResult other = pando_command({"store", "verify", to, "--json", "-"});
  EXPECT_EQ(other.code, 0);
  EXPECT_EQ(other.json()["good_pages"], from["num_pages"]);
  const auto by_use = [](const nlohmann::json& listed) {
    std::vector<std::pair<double, std::string>> pages;
    for (const nlohmann::json& page : listed["pages"])
      pages.emplace_back(page["used_s"], page["key"]);
    std::sort(pages.begin(), pages.end());
    return pages;
  };
  // Times are told in milliseconds: the first and the last are surely apart.
  const auto was = by_use(store_json("ls"));
  const auto is = by_use(pando_command({"store", "ls", to, "--json", "-"}).json());
  ASSERT_EQ(was.size(), is.size());
  const auto at = [](const auto& pages, const std::string& key) {
    return std::find_if(pages.begin(), pages.end(),
                        [&](const auto& p) { return p.second == key; }) -
           pages.begin();
  };
  EXPECT_LT(at(is, was.front().second), at(is, was.back().second));
}

TEST_F(StoreCopy, RawFilesOfSglangComeInAndGoOutAgain) {
  const Geometry geometry =
      mha_geometry({.layers = {.num_layers = 2, .page_size = 4}, .heads = 1, .head_dim = 16});
  const KeySpace space({.model = "org/m", .tp_rank = 1, .tp_size = 2}, geometry,
                       HostLayout::page_first, ComponentKind::full);
  const std::string from = temp_ / "sglang";
  fs::create_directories(from);
  const auto write = [&](std::uint8_t number, std::size_t size_bytes) {
    PageHash hash{};
    hash.fill(number);
    const std::vector<std::byte> bytes = test_bytes(space.key(hash), size_bytes);
    std::ofstream(from + "/" + space.sglang_name(hash) + ".bin", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), std::streamsize(size_bytes));
    return space.key(hash);
  };
  const Keys keys = {write(1, geometry.page_bytes()), write(2, geometry.page_bytes())};
  write(3, 77);
  const std::vector<std::string> shape = {from,   "--model",   "org/m", "--geometry",
                                          "tiny", "--page",    "4",     "--tp-rank",
                                          "1",    "--tp-size", "2"};
  const nlohmann::json done = store_json("import", shape);
  EXPECT_EQ(done["imported_pages"], 2);
  EXPECT_EQ(done["refused_files"], 1);
  EXPECT_EQ(done["page_bytes"], geometry.page_bytes());
  {
    const auto opened = open_store(options_);
    EXPECT_TRUE(get_pages(*opened, keys, {geometry.page_bytes()}).bytes_right);
    EXPECT_TRUE(pages_exist(*opened, keys).all(PageOutcome::done));
  }
  ASSERT_EQ(store("export", {out(), "--names", "sglang"}).code, 0);
  for (const std::string& key : keys) {
    const std::string name = fmt::format("/{}.bin", key.substr(0, key.size() - 18));
    EXPECT_EQ(read_text(out() + name), read_text(from + name));
    EXPECT_FALSE(read_text(out() + name).empty());
  }
}

TEST_F(StoreCopy, AnImportOfNothingSaysSo) {
  const std::string from = temp_ / "sglang";
  const std::vector<std::string> shape = {
      from, "--model", "m", "--geometry", "mha:layers=2,heads=1,dim=16", "--page", "4"};
  EXPECT_EQ(store("import", shape).code, 1);
  EXPECT_FALSE(fs::exists(directory()));
  fs::create_directories(from);
  const CommandResult none = store("import", shape);
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("no pages named *_m_0_1.bin of 512 bytes"), std::string::npos)
      << none.err;
  for (const std::string bad : {"mha:layers=2", "mha:layers=2,heads=x,dim=4", "nosuchmodel",
                                "mla:layers=2,nope=4,rope=2,wings=1"})
    EXPECT_EQ(store("import", {from, "--model", "m", "--geometry", bad, "--page", "4"}).code, 2);
}

}  // namespace
}  // namespace pando::testing
