// SPDX-License-Identifier: Apache-2.0
// The functions that name blocks, against vectors computed with Python's libraries.
#include "pando/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "base/hex.h"
#include "blocks/hash_vectors.h"

namespace pando::testing {
namespace {

std::vector<Token> tokens_of(std::string_view name) {
  if (name == "edges")
    return {0,   1,   22,    23,    24,    25,    254,        255,
            256, 257, 65534, 65535, 65536, 65537, 2147483646, 2147483647};
  std::vector<Token> tokens;
  for (int i = 0; i < 96; ++i) tokens.push_back((i * 7919 + 13) % 151936);
  return tokens;
}

RequestKeys keys_of(std::string_view name) {
  const bool all = name == "all";
  RequestKeys keys;
  if (name == "lora") keys.lora = "adapter/one";
  if (name == "salt") keys.salt = "tenant-7";
  if (all) keys.lora = "l";
  if (all) keys.salt = "s\xc3\xa4lt";
  if (all || name == "items")
    keys.items = {{"image-a", 5, 30}, {"image-b", 40, 8}, {"sound", 48, 16}};
  if (all || name == "embeds") {
    keys.embed_bytes = 6;
    for (int i = 0; i < 120; ++i) keys.prompt_embeds.push_back(static_cast<std::byte>(i * 37 + 5));
  }
  return keys;
}

BlockHasher hasher_of(HashFunction function, std::size_t block_size,
                      std::optional<std::string> seed = {}) {
  return *BlockHasher::create(block_size, {.function = function, .seed = std::move(seed)});
}

std::vector<BlockHash> chain_of(const BlockHasher& hasher, std::span<const Token> tokens,
                                const RequestKeys& keys = {}) {
  std::vector<BlockHash> chain;
  EXPECT_TRUE(hasher.extend(tokens, keys, chain).ok());
  return chain;
}

std::string hex_of(const BlockHash& hash, std::size_t size_bytes) {
  std::string text;
  for (std::size_t i = 0; i < size_bytes; ++i) append_hex(text, hash.value[i]);
  return text;
}

TEST(BlockHash, EveryFunctionGivesTheVectorsOfPython) {
  std::set<std::string> functions;
  for (const HashVector& v : kHashVectors) {
    SCOPED_TRACE(std::string(v.function) + ", " + v.request + ", block " +
                 std::to_string(v.block_size) + ", " + v.tokens);
    functions.insert(v.function);
    const HashFunction function = *parse_hash_function(v.function);
    std::optional<std::string> seed;
    if (function != HashFunction::sglang) seed = v.seed;
    const BlockHasher hasher = hasher_of(function, v.block_size, seed);
    const auto chain = chain_of(hasher, tokens_of(v.tokens), keys_of(v.request));
    ASSERT_GE(chain.size(), v.chain.size());
    for (std::size_t i = 0; i < v.chain.size(); ++i)
      EXPECT_EQ(hex_of(chain[i], hasher.hash_bytes()), v.chain[i]) << "block " << i;
  }
  EXPECT_EQ(functions.size(), 3U);
}

TEST(BlockHash, Sha256StartsFromVllmsTextUnlessSeeded) {
  const auto tokens = tokens_of("tokens");
  const auto unseeded = chain_of(hasher_of(HashFunction::sha256_cbor, 16), tokens);
  const auto named = chain_of(hasher_of(HashFunction::sha256_cbor, 16, "vllm-none-hash"), tokens);
  const auto other = chain_of(hasher_of(HashFunction::sha256_cbor, 16, "1"), tokens);
  EXPECT_EQ(unseeded[5].value, named[5].value);
  EXPECT_NE(unseeded[5].value, other[5].value);
}

TEST(BlockHash, SglangsChainIsThatOfPrefixCache) {
  const auto tokens = tokens_of("tokens");
  const auto chain = chain_of(hasher_of(HashFunction::sglang, 16), tokens);
  const auto pages = hash_pages(tokens, 16);
  ASSERT_EQ(chain.size(), pages->size());
  for (std::size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(chain[i].value, (*pages)[i]);
  const std::string ns = make_namespace({.lora = "a", .salt = "b"});
  const auto apart =
      chain_of(hasher_of(HashFunction::sglang, 16), tokens, {.lora = "a", .salt = "b"});
  EXPECT_EQ(apart[0].value, (*hash_pages(tokens, 16, false, chain_start(ns)))[0]);
}

TEST(BlockHash, KeysOfTheProcessDifferUnlessSeeded) {
  const auto tokens = tokens_of("tokens");
  for (const HashFunction function : {HashFunction::keyed, HashFunction::xxhash_cbor}) {
    EXPECT_NE(chain_of(hasher_of(function, 16), tokens)[0].value,
              chain_of(hasher_of(function, 16), tokens)[0].value);
    const auto a = chain_of(hasher_of(function, 16, "seed"), tokens);
    const auto b = chain_of(hasher_of(function, 16, "seed"), tokens);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].value, b[i].value);
    EXPECT_NE(a[0].check, b[0].check);  // the second hash never leaves the process
  }
}

TEST(BlockHash, AGrowingRequestHashesOnlyNewBlocks) {
  const auto tokens = tokens_of("tokens");
  for (const HashFunction function : {HashFunction::keyed, HashFunction::sha256_cbor,
                                      HashFunction::xxhash_cbor, HashFunction::sglang}) {
    for (const std::string_view name : {"plain", "all"}) {
      const BlockHasher hasher = hasher_of(function, 16);
      const RequestKeys keys = keys_of(name);
      const auto at_once = chain_of(hasher, tokens, keys);
      std::vector<BlockHash> grown;
      std::vector<Token> seen;
      for (const Token token : tokens) {
        seen.push_back(token);
        ASSERT_TRUE(hasher.extend(seen, keys, grown).ok());
        EXPECT_EQ(grown.size(), seen.size() / 16);
        // What has been hashed is not looked at again.
        if (seen.size() % 16 == 0) std::fill(seen.begin(), seen.end(), 0);
      }
      EXPECT_EQ(grown, at_once) << to_string(function) << ", " << name;
    }
  }
}

TEST(BlockHash, WhateverDiffersGivesOtherHashes) {
  const auto tokens = tokens_of("tokens");
  std::vector<RequestKeys> requests(9);
  requests[1].lora = "a";
  requests[2].salt = "a";
  requests[3].items = {{"a", 3, 2}};
  requests[4].items = {{"a", 4, 2}};
  requests[5].items = {{"b", 3, 2}};
  requests[6].embed_bytes = requests[7].embed_bytes = 1;
  requests[6].prompt_embeds.resize(96);
  requests[7].prompt_embeds.resize(96, std::byte{1});
  requests[8].lora = "a", requests[8].salt = "a";
  for (const HashFunction function : {HashFunction::keyed, HashFunction::sha256_cbor,
                                      HashFunction::xxhash_cbor, HashFunction::sglang}) {
    const BlockHasher hasher = hasher_of(function, 16, {});
    std::set<PageHash> values;
    std::set<std::array<std::uint64_t, 2>> checks;
    for (const RequestKeys& keys : requests) {
      const auto chain = chain_of(hasher, tokens, keys);
      for (const BlockHash& hash : chain) {
        values.insert(hash.value);
        checks.insert(hash.check);
      }
    }
    // vLLM's functions take a salt for an adapter's name, in the first block.
    const bool is_vllms =
        function == HashFunction::sha256_cbor || function == HashFunction::xxhash_cbor;
    EXPECT_EQ(values.size(), requests.size() * 6 - (is_vllms ? 1 : 0)) << to_string(function);
    EXPECT_EQ(checks.size(), requests.size() * 6) << to_string(function);
  }
}

TEST(BlockHash, BeforeItsFirstItemARequestIsAsAnyOther) {
  const auto tokens = tokens_of("tokens");
  RequestKeys image;
  image.items = {{"a", 20, 4}};
  for (const HashFunction function : {HashFunction::keyed, HashFunction::sha256_cbor,
                                      HashFunction::xxhash_cbor, HashFunction::sglang}) {
    const BlockHasher hasher = hasher_of(function, 16);
    const auto with = chain_of(hasher, tokens, image), without = chain_of(hasher, tokens);
    EXPECT_EQ(with[0], without[0]) << to_string(function);
    EXPECT_NE(with[1].value, without[1].value) << to_string(function);
    EXPECT_NE(with[2].check, without[2].check) << to_string(function);
  }
}

TEST(BlockHash, ExtraKeysComeInVllmsOrderWithOffsetsFromTheBlock) {
  const RequestKeys keys = keys_of("all");
  const auto first = extra_keys(keys, 0, 16);
  ASSERT_EQ(first.size(), 4U);
  EXPECT_EQ(first[0], ExtraKey(std::string("l")));
  EXPECT_EQ(first[1], ExtraKey(ItemKey{"image-a", 5}));
  EXPECT_EQ(first[2], ExtraKey(std::string("s\xc3\xa4lt")));
  EXPECT_TRUE(std::holds_alternative<PageHash>(first[3]));
  const auto third = extra_keys(keys, 32, 48);
  ASSERT_EQ(third.size(), 4U);
  EXPECT_EQ(third[1], ExtraKey(ItemKey{"image-a", -27}));
  EXPECT_EQ(third[2], ExtraKey(ItemKey{"image-b", 8}));
  EXPECT_EQ(extra_keys(keys, 64, 80).size(), 2U);  // behind all items
  EXPECT_TRUE(extra_keys({}, 0, 16).empty());
}

TEST(BlockHash, BadInputIsNamed) {
  const BlockHasher hasher = hasher_of(HashFunction::keyed, 4);
  std::vector<BlockHash> chain;
  const Status negative = hasher.extend(std::vector<Token>{1, 2, 3, 4, 5, -6, 7, 8}, {}, chain);
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(negative.error().message,
            "block hashes: token -6 at position 5 is negative; expected a vocabulary id");
  EXPECT_TRUE(chain.empty());

  EXPECT_FALSE(BlockHasher::create(0).ok());
  EXPECT_FALSE(BlockHasher::create(4, {.function = HashFunction::sglang, .seed = "x"}).ok());
  EXPECT_EQ(parse_hash_function("md5").error().message,
            "hash function \"md5\": expected keyed, sha256_cbor, xxhash_cbor or sglang");

  RequestKeys keys;
  keys.items = {{"a", 4, 4}, {"b", 6, 4}};
  EXPECT_NE(keys.validate().error().message.find("expected at 8 or later"), std::string::npos);
  keys.items = {{"", 4, 4}};
  EXPECT_FALSE(keys.validate().ok());
  keys.items = {{"a", 4, 0}};
  EXPECT_FALSE(keys.validate().ok());
  keys.items.clear();
  keys.prompt_embeds.resize(5);
  keys.embed_bytes = 2;
  EXPECT_NE(keys.validate().error().message.find("expected whole rows"), std::string::npos);
}

}  // namespace
}  // namespace pando::testing
