// SPDX-License-Identifier: Apache-2.0
// What the tests of `pando store` share: a store of real pages, made by a replay, and a look at all
// of its directory so that "nothing changed" can be said.
#pragma once

#include <map>

#include "store/file/page_file.h"
#include "support/command.h"
#include "support/file_store_fixture.h"

namespace pando::testing {

/// Replays a small generated trace with the given store behind the cache.
inline void fill_by_replay(const TempDirectory& temp, const std::string& store) {
  const std::string trace = temp / "trace.jsonl";
  ASSERT_EQ(pando_command({"gen", "chat", "--requests", "20", "-o", trace, "--quiet"}).code, 0);
  const CommandResult done =
      pando_command({"replay", trace, "--device", "4096tok", "--host", "8192tok", "--store",
                     "1Mtok", "--store-at", store, "--bytes", "--quiet"});
  ASSERT_EQ(done.code, 0) << done.err;
}

/// Path, size and time of everything in a directory.
inline std::map<std::string, std::pair<std::uintmax_t, fs::file_time_type>> everything_in(
    const std::string& directory) {
  std::map<std::string, std::pair<std::uintmax_t, fs::file_time_type>> found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory))
    found[entry.path().string()] = {entry.is_regular_file() ? entry.file_size() : 0,
                                    entry.last_write_time()};
  return found;
}

class StoreCommand : public ::testing::Test {
 protected:
  StoreCommand() { options_.directory = directory(); }

  std::string directory() const { return temp_ / "store"; }
  std::string name() const { return "file:" + directory(); }
  std::string file(const std::string& key) const { return path_of(directory(), key); }
  void put(const Keys& keys, std::size_t size_bytes = 8192) {
    const auto store = open_store(options_);
    ASSERT_TRUE(put_pages(*store, keys, {size_bytes}).all(PageOutcome::done));
  }
  CommandResult store(const std::string& verb, std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"store", verb, name()});
    return pando_command(std::move(more));
  }
  nlohmann::json store_json(const std::string& verb, std::vector<std::string> more = {},
                            int code = 0) const {
    more.insert(more.end(), {"--json", "-"});
    const CommandResult done = store(verb, std::move(more));
    EXPECT_EQ(done.code, code) << done.err;
    return done.json();
  }

  TempDirectory temp_;
  FileStoreOptions options_;
};

}  // namespace pando::testing
