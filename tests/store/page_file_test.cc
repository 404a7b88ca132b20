// SPDX-License-Identifier: Apache-2.0
// The header of a page's file, keys as names, and keys in the index.
#include "store/file/page_file.h"

#include <gtest/gtest.h>

#include <array>

#include "store/file/file_index.h"
#include "store/file/packed_key.h"
#include "support/store_pages.h"

namespace pando::testing {
namespace {

std::array<std::byte, kBlockBytes> header_of(const std::string& key, const PageTag& tag) {
  std::array<std::byte, kBlockBytes> block;
  block.fill(std::byte{0x55});
  encode(key, tag, block);
  return block;
}

TEST(PageFile, HeaderComesBackAsItWasWritten) {
  for (const std::string& key : {test_key(1), std::string("x"), std::string(255, 'k')}) {
    const PageTag tag{12345, 0x1122334455667788, 0x99aabbccddeeff00};
    const auto header = decode(header_of(key, tag));
    ASSERT_TRUE(header.ok()) << header.error().message;
    EXPECT_EQ(header->key, key);
    EXPECT_EQ(header->tag, tag);
  }
}

// The first bytes are a promise to files already written (docs/formats.md).
TEST(PageFile, HeaderHasTheDocumentedBytes) {
  const auto block = header_of("ab", {3, 1, 2});
  const std::string_view begin(reinterpret_cast<const char*>(block.data()), 40);
  EXPECT_EQ(begin, std::string_view("PandoPag\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0"
                                    "\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0",
                                    40));
  std::uint64_t checksum;
  std::memcpy(&checksum, block.data() + 40, 8);
  EXPECT_EQ(checksum, 0x3ceeedb9ca5f3a02) << std::hex << checksum;
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(block.data()) + 48, 3),
            std::string_view("ab\0", 3));
}

TEST(PageFile, AnyChangedByteOfAHeaderIsFound) {
  auto block = header_of(test_key(2), {8192, 1, 2});
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] ^= std::byte{1};
    EXPECT_FALSE(decode(block).ok()) << "byte " << i;
    block[i] ^= std::byte{1};
  }
  EXPECT_TRUE(decode(block).ok());
}

TEST(PageFile, FilesAreWholeBlocks) {
  EXPECT_EQ(file_bytes(0), 4096u);
  EXPECT_EQ(file_bytes(1), 8192u);
  EXPECT_EQ(file_bytes(4096), 8192u);
  EXPECT_EQ(file_bytes(4097), 12288u);
}

TEST(PageFile, KeysThatAreNoNamesAreRefused) {
  EXPECT_TRUE(check_key(test_key(1)).ok());
  EXPECT_TRUE(check_key("a.b").ok());
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string(".hidden"),
        std::string("a/b"), std::string("a\0b", 3), std::string(256, 'a')})
    EXPECT_FALSE(check_key(bad).ok()) << bad;
  EXPECT_NE(check_key("ab/c").error().message.find("0x2f at 2"), std::string::npos)
      << check_key("ab/c").error().message;
}

TEST(PageFile, DirectoriesAreTheFirstTwoDigits) {
  EXPECT_EQ(directory_of("00ff"), 0);
  EXPECT_EQ(directory_of("a7"), 0xa7);
  EXPECT_EQ(directory_of("A7x"), directory_of("A7x"));
  EXPECT_NE(directory_of("Z1"), directory_of("Z3"));  // by hash, which spreads
}

TEST(PackedKey, TextComesBack) {
  KeyTails tails;
  const std::string head(64, '3');
  const Keys keys = {test_key(1),
                     test_key(2),
                     head,
                     "plain",
                     "",
                     head + "_x",
                     std::string(64, 'G'),
                     "_test-model_0_1_f0123456789abcdef"};
  std::vector<PackedKey> packed;
  for (const std::string& key : keys) packed.push_back(tails.hold(key));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(tails.text(packed[i]), keys[i]);
    EXPECT_EQ(tails.find(keys[i]), packed[i]);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(packed[i], packed[j]);
  }
  EXPECT_EQ(packed[0].tail, packed[1].tail);
}

TEST(PackedKey, TailsGoWithTheirLastKey) {
  KeyTails tails;
  const PackedKey a = tails.hold(test_key(1));
  const PackedKey b = tails.hold(test_key(2));
  tails.release(a);
  EXPECT_EQ(tails.size(), 1u);
  EXPECT_EQ(tails.text(b), test_key(2));
  tails.release(b);
  EXPECT_EQ(tails.size(), 0u);
  EXPECT_EQ(tails.find(test_key(1)), std::nullopt);
}

TEST(FileIndex, OldestIsTheOneNotTouched) {
  FileIndex index(1 << 20);
  for (std::uint64_t i = 0; i < 1000; ++i) index.insert(test_key(i), 100, 0);
  EXPECT_EQ(index.oldest(), test_key(0));
  EXPECT_TRUE(index.touch(test_key(0), 0).has_value());
  EXPECT_EQ(index.oldest(), test_key(1));
  EXPECT_EQ(index.erase(test_key(1)), 100u);
  EXPECT_EQ(index.erase(test_key(1)), std::nullopt);
  EXPECT_EQ(index.oldest(), test_key(2));
  EXPECT_EQ(index.num_pages(), 999u);
  EXPECT_TRUE(index.check().ok());
}

TEST(FileIndex, ReservedBytesCount) {
  FileIndex index(3 * file_bytes(100));
  EXPECT_TRUE(index.reserve(2 * file_bytes(100)));
  EXPECT_FALSE(index.reserve(2 * file_bytes(100)));
  index.insert_reserved("a", 100, 0);
  index.release(file_bytes(100));
  EXPECT_TRUE(index.reserve(2 * file_bytes(100)));
  EXPECT_FALSE(index.reserve(1));
}

TEST(FileIndex, StampsGetOldAfterTenMinutes) {
  FileIndex index(1 << 20);
  index.insert("a", 100, 1000);
  EXPECT_FALSE(index.touch("a", 1599)->restamp);
  EXPECT_TRUE(index.touch("a", 1600)->restamp);
  EXPECT_FALSE(index.touch("a", 1601)->restamp);
}

TEST(FileIndex, ListsEveryPageOnce) {
  FileIndex index(std::uint64_t{1} << 40);
  for (std::uint64_t i = 0; i < 1000; ++i) index.insert(test_key(i), i, 0);
  for (std::uint64_t i = 0; i < 1000; i += 3) index.erase(test_key(i));
  std::size_t cursor = 0;
  std::map<std::string, std::uint64_t> listed;
  for (auto some = index.list_some(cursor); !some.empty(); some = index.list_some(cursor))
    for (const StoredPage& page : some)
      EXPECT_TRUE(listed.emplace(page.key, page.size_bytes).second);
  EXPECT_EQ(listed.size(), index.num_pages());
  EXPECT_EQ(listed.at(test_key(7)), 7u);
}

}  // namespace
}  // namespace pando::testing
