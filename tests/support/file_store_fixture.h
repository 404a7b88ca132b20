// SPDX-License-Identifier: Apache-2.0
// A file store in a directory of its own, and a look at the files behind its back.
#pragma once

#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "pando/store_backends.h"
#include "store/file/file_store.h"
#include "support/store_pages.h"
#include "support/temp_directory.h"

namespace pando::testing {

namespace fs = std::filesystem;

inline std::unique_ptr<StoreBackend> open_store(const FileStoreOptions& options) {
  auto store = make_file_store(options);
  if (!store) throw std::runtime_error(store.error().message);
  return std::move(*store);
}

inline std::string path_of(const std::string& directory, const std::string& key) {
  return fmt::format("{}/{:02x}/{}", directory, directory_of(key), key);
}

/// Changes numbers in a page's header and makes its checksum right again, as who forges one would.
inline void forge_header(const std::string& path, std::uint64_t page_bytes,
                         std::uint32_t version = 1) {
  std::array<char, kBlockBytes> block;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.read(block.data(), block.size());
  constexpr std::uint64_t kNone = 0;
  std::memcpy(block.data() + 8, &version, sizeof version);
  std::memcpy(block.data() + 16, &page_bytes, sizeof page_bytes);
  std::memcpy(block.data() + 40, &kNone, sizeof kNone);
  const std::uint64_t checksum = XXH3_64bits(block.data(), block.size());
  std::memcpy(block.data() + 40, &checksum, sizeof checksum);
  file.seekp(0);
  file.write(block.data(), block.size());
}

/// XORs one byte.
inline void damage(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(byte);
}

inline std::size_t num_entries(const std::string& directory) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

/// Files being written, or left behind: of all members.
inline std::size_t num_temporaries(const std::string& directory) {
  const fs::recursive_directory_iterator all(directory + "/tmp");
  return static_cast<std::size_t>(
      std::count_if(begin(all), end(all), [](const auto& it) { return it.is_regular_file(); }));
}

/// Of a file store.
inline Status check_index_of(StoreBackend& store) {
  return static_cast<FileStore&>(store).files().member()->index().check();
}

/// Room for so many pages of 8192 bytes.
inline std::uint64_t capacity_for(std::size_t num_pages) { return num_pages * file_bytes(8192); }

class FileStoreTest : public ::testing::Test {
 protected:
  FileStoreTest() {
    options_.directory = temp_ / "store";
    options_.min_free_bytes = 0;
  }
  void open() { store_ = open_store(options_); }
  void reopen() {
    store_.reset();
    open();
  }
  std::string file(const std::string& key) const { return path_of(options_.directory, key); }
  ino_t inode_of(const std::string& key) const {
    struct stat info;
    EXPECT_EQ(::stat(file(key).c_str(), &info), 0);
    return info.st_ino;
  }
  std::size_t num_set_aside() const { return num_entries(options_.directory + "/set_aside"); }
  BackendStats stats() const { return store_->stats(); }
  Status check_index() const { return check_index_of(*store_); }

  TempDirectory temp_;
  FileStoreOptions options_;
  std::unique_ptr<StoreBackend> store_;
};

}  // namespace pando::testing
