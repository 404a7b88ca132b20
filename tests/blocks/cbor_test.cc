// SPDX-License-Identifier: Apache-2.0
// Canonical CBOR: the examples of RFC 8949 that block hashes can need, and runs of tokens of every
// size against a plain encoder.
#include "blocks/cbor.h"

#include <gtest/gtest.h>

#include <string>

#include "base/hex.h"
#include "base/random.h"

namespace pando::testing {
namespace {

std::string hex_of(const CborWriter& out) {
  std::string text;
  for (std::size_t i = 0; i < out.size(); ++i) append_hex(text, out.data()[i]);
  return text;
}

template <typename Write>
std::string written(Write&& write) {
  CborWriter out;
  out.reserve(64);
  write(out);
  return hex_of(out);
}

TEST(Cbor, IntegersHaveTheirShortestForm) {
  const auto integer = [](std::int64_t value) {
    return written([&](CborWriter& out) { out.integer(value); });
  };
  EXPECT_EQ(integer(0), "00");
  EXPECT_EQ(integer(23), "17");
  EXPECT_EQ(integer(24), "1818");
  EXPECT_EQ(integer(100), "1864");
  EXPECT_EQ(integer(1000), "1903e8");
  EXPECT_EQ(integer(1000000), "1a000f4240");
  EXPECT_EQ(integer(1000000000000), "1b000000e8d4a51000");
  EXPECT_EQ(integer(-1), "20");
  EXPECT_EQ(integer(-10), "29");
  EXPECT_EQ(integer(-100), "3863");
  EXPECT_EQ(integer(-1000), "3903e7");
}

TEST(Cbor, StringsArraysAndNull) {
  EXPECT_EQ(written([](CborWriter& out) { out.text("IETF"); }), "6449455446");
  EXPECT_EQ(written([](CborWriter& out) { out.text(""); }), "60");
  const std::uint8_t bytes[] = {1, 2, 3, 4};
  EXPECT_EQ(written([&](CborWriter& out) { out.bytes(std::span(bytes)); }), "4401020304");
  EXPECT_EQ(written([](CborWriter& out) { out.null(); }), "f6");
  EXPECT_EQ(written([](CborWriter& out) { out.array(25); }), "9819");
}

TEST(Cbor, TokensAreAsIfWrittenOneByOne) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    std::vector<Token> tokens(random.below(70));
    for (Token& t : tokens) {
      const std::size_t bits = 1 + random.below(31);
      t = static_cast<Token>(random.next() & ((std::uint64_t{1} << bits) - 1));
    }
    CborWriter at_once, plain;
    at_once.reserve(16 + 5 * tokens.size());
    at_once.tokens(tokens);
    plain.reserve(16 + 5 * tokens.size());
    plain.array(tokens.size());
    for (const Token t : tokens) plain.integer(t);
    ASSERT_EQ(hex_of(at_once), hex_of(plain)) << "seed " << seed;
  }
}

TEST(Cbor, RoomGrowsAndKeepsWhatWasWritten) {
  CborWriter out;
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    out.reserve(1);
    out.integer(i % 24);
    append_hex(expected, static_cast<std::uint8_t>(i % 24));
  }
  EXPECT_EQ(hex_of(out), expected);
  out.clear();
  EXPECT_EQ(out.size(), 0U);
}

}  // namespace
}  // namespace pando::testing
