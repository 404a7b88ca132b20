// SPDX-License-Identifier: Apache-2.0
// The hash chain over pages, against digests computed by another program (Python's hashlib) from
// the description of the bytes in docs/formats.md.
#include "base/page_hash.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace pando {
namespace {

using Tokens = std::vector<Token>;
using Hex = std::vector<std::string>;

std::string hex(const PageHash& hash) {
  std::string text;
  for (const std::uint8_t byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

Hex hex(const std::vector<PageHash>& hashes) {
  Hex out;
  for (const PageHash& hash : hashes) out.push_back(hex(hash));
  return out;
}

constexpr const char* kPage1234 =
    "cf97adeedb59e05bfd73a2b4c2a8885708c4f4f70c84c64b27120e72ab733b72";

TEST(PageHash, OfOnePage) {
  const auto hashes = *hash_pages(Tokens{1, 2, 3, 4}, 4);
  EXPECT_EQ(hex(hashes), Hex{kPage1234});
  EXPECT_EQ(block_id(hashes[0]), -3488128144981237669);
}

TEST(PageHash, ChainsOverPages) {
  const auto hashes = *hash_pages(Tokens{1, 2, 3, 4, 5, 6, 7, 8}, 4);
  EXPECT_EQ(hex(hashes),
            (Hex{kPage1234, "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"}));
  EXPECT_EQ(block_id(hashes[1]), 5674439469042975057);
}

TEST(PageHash, ChainsOverPagesOfOneToken) {
  EXPECT_EQ(hex(*hash_pages(Tokens{1, 2}, 1)),
            (Hex{"67abdd721024f0ff4e0b3f4c2fc13bc5bad42d0b7851d456d88d203d15aaa450",
                 "e95092c4b38d42d1363b9e9b06bc5d6377af1cd06651a9fedac8b36dc9e56114"}));
}

TEST(PageHash, TakesTheLargestToken) {
  EXPECT_EQ(hex(*hash_pages(Tokens{std::numeric_limits<Token>::max()}, 1)),
            Hex{"a2c70538651a7e9296b097e8c3dfc1b195a945802ffe45aa471868fba6f1042e"});
}

TEST(PageHash, ContinuesAChainFromAParent) {
  const auto whole = *hash_pages(Tokens{1, 2, 3, 4, 5, 6, 7, 8}, 4);
  const auto rest = *hash_pages(Tokens{5, 6, 7, 8}, 4, false, whole[0]);
  EXPECT_EQ(rest, std::vector<PageHash>{whole[1]});
}

TEST(PageHash, LeavesTheUnalignedTailOut) {
  EXPECT_EQ(hex(*hash_pages(Tokens{1, 2, 3, 4, 5}, 4)), Hex{kPage1234});
  EXPECT_TRUE(hash_pages(Tokens{1, 2, 3}, 4)->empty());
  EXPECT_TRUE(hash_pages(Tokens{}, 4)->empty());
}

TEST(PageHash, FeedsBothTokensOfAPair) {
  EXPECT_EQ(hex(*hash_pages(Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9}, 4, true)),
            (Hex{"f721fe42aac11dcbfd1a17f24cc5765a0d5b6bc264d1c0b6581d775a7344c11f",
                 "c35ad698917936a474f7e55f3a4855eaee20585cd0bf156b1ae3a62666ba7220"}));
}

TEST(PageHash, FeedsPairsOfALongPageWithoutAGap) {
  Tokens tokens(257);
  std::iota(tokens.begin(), tokens.end(), 0);
  EXPECT_EQ(hex(*hash_pages(tokens, 256, true)),
            Hex{"8db9dd6df3e79fd4125dc3f870817c0bd3d6007d55beab54e8724e2853c84d0f"});
}

TEST(PageHash, ABigramPageNeedsOneTokenMore) {
  EXPECT_TRUE(hash_pages(Tokens{1, 2, 3, 4}, 4, true)->empty());
  EXPECT_TRUE(hash_pages(Tokens{}, 1, true)->empty());
}

TEST(PageHash, NegativeTokensAreRefusedByPosition) {
  const auto result = hash_pages(Tokens{1, 2, -3, 4}, 4);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(result.error().message.find("token -3 at position 2"), std::string::npos);
}

TEST(PageHash, APageSizeOfZeroIsRefused) {
  EXPECT_EQ(hash_pages(Tokens{1}, 0).error().code, ErrorCode::invalid_argument);
}

TEST(ChainStart, OfTheEmptyNamespaceIsNone) { EXPECT_EQ(chain_start(""), std::nullopt); }

TEST(ChainStart, OfASaltIsTheSaltedDigest) {
  const auto start = chain_start(make_namespace({.salt = "pepper"}));
  EXPECT_EQ(hex(start.value()), "3b99c108d100c8c3882dc93dd5f34b80ed26b2db19829cb6fe3a51df3987a122");
  EXPECT_EQ(hex(*hash_pages(Tokens{1, 2, 3, 4}, 4, false, start)),
            Hex{"0f63ba192b23e1a1dc923f6b5b419351019069f4d50aa0a10d29893483913faf"});
}

TEST(ChainStart, OfAnAdapterIsADigestOfTheNamespace) {
  const auto start = chain_start(make_namespace({.lora = "adapter-1"}));
  EXPECT_EQ(hex(start.value()), "416379c63ca0666511fdc52824c473ecf426768aa7072e53433a2c3a923ccd14");
  EXPECT_EQ(hex(*hash_pages(Tokens{1, 2, 3, 4}, 4, false, start)),
            Hex{"0aa10bb43de6a8e6b6f51d5f8e4ea4a584d65101b5f31ff7e3a9df3c6b074c45"});
}

TEST(ChainStart, OfASaltAmongOtherPartsIsADigestOfTheNamespace) {
  EXPECT_EQ(hex(chain_start(make_namespace({.tenant = "acme", .salt = "pepper"})).value()),
            "ab00d5e6ce097a0fc4c47697dbbc40381fc8201a5d43d8e13b9f485bff84e96e");
}

TEST(ChainStart, OfAPlainNameIsADigestOfIt) {
  EXPECT_EQ(hex(chain_start("s-plain").value()),
            "36f9ec858936c01434398d0c6785a9bb3359e13b0296a6669d184aa250537c65");
}

TEST(ChainStart, DiffersForNamesThatOnlyLookLikeASalt) {
  const std::string salted = make_namespace({.salt = "pepper"});
  for (const std::string_view other : {"s7:pepper", "s6:peppers", "s06:pepper", "s:", "s6pepper"})
    EXPECT_NE(chain_start(other), chain_start(salted)) << other;
}

}  // namespace
}  // namespace pando
