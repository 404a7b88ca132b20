// SPDX-License-Identifier: Apache-2.0
// The header of a page's file, and keys as names.
#include "store/file/page_file.h"

#include <gtest/gtest.h>

#include <array>

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

}  // namespace
}  // namespace pando::testing
