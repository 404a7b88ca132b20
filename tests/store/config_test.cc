// SPDX-License-Identifier: Apache-2.0
// Config: what an option may be read as, and what the errors say.
#include "pando/config.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>

#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

using List = std::vector<std::string>;

Config one(Config::Value value) {
  Config config;
  config.set("x", std::move(value));
  return config;
}

TEST(Config, WhatIsNotGivenIsAsOtherwise) {
  const Config config;
  EXPECT_FALSE(config.has("x"));
  EXPECT_EQ(*config.boolean("x", true), true);
  EXPECT_EQ(*config.integer("x", 5), 5);
  EXPECT_EQ(*config.number("x", 2.5), 2.5);
  EXPECT_EQ(*config.text("x", "none"), "none");
  EXPECT_EQ(*config.list("x"), List());
  EXPECT_EQ(*config.bytes("x", 7), 7u);
}

TEST(Config, NumbersAreTakenAsTheOtherKindWhereNothingIsLost) {
  EXPECT_EQ(*one(3.0).integer("x", 0), 3);
  EXPECT_EQ(*one(-9223372036854775808.0).integer("x", 0), INT64_MIN);
  EXPECT_EQ(*one(std::int64_t{3}).number("x", 0), 3.0);
  EXPECT_EQ(*one(2048.0).bytes("x", 0), 2048u);
  EXPECT_TRUE(fails(one(2.5).integer("x", 0), ErrorCode::invalid_argument,
                    "x must be an integer, got 2.5"));
  EXPECT_TRUE(fails(one(9223372036854775808.0).integer("x", 0), ErrorCode::invalid_argument,
                    "x must be an integer, got 9.2"));
  EXPECT_FALSE(one(std::numeric_limits<double>::quiet_NaN()).integer("x", 0).ok());
  EXPECT_TRUE(fails(one((std::int64_t{1} << 53) + 1).number("x", 0), ErrorCode::invalid_argument,
                    "x must be a number of at most 53 bits, got 9007199254740993"));
  EXPECT_FALSE(one(INT64_MAX).number("x", 0).ok());
}

TEST(Config, AnotherTypeIsAnErrorThatNamesTheOptionAndBoth) {
  const auto error = ErrorCode::invalid_argument;
  EXPECT_TRUE(fails(one("7").integer("x", 0), error, "x must be an integer, got text"));
  EXPECT_TRUE(fails(one(true).integer("x", 0), error, "x must be an integer, got a boolean"));
  EXPECT_TRUE(fails(one(List{"a"}).number("x", 0), error, "x must be a number, got a list"));
  EXPECT_TRUE(fails(one(std::int64_t{1}).boolean("x", false), error,
                    "x must be a boolean, got an integer"));
  EXPECT_TRUE(fails(one(1.5).text("x", ""), error, "x must be text, got a fraction"));
  EXPECT_TRUE(fails(one(false).list("x"), error, "x must be a list of text, got a boolean"));
}

TEST(Config, OneTextIsAListOfOne) {
  EXPECT_EQ(*one("a").list("x"), List{"a"});
  EXPECT_EQ(*one(List{"a", "b"}).list("x"), (List{"a", "b"}));
}

TEST(Config, SizesHaveUnits) {
  EXPECT_EQ(*one(std::int64_t{5}).bytes("x", 0), 5u);
  EXPECT_EQ(*one("4096").bytes("x", 0), 4096u);
  EXPECT_EQ(*one("10B").bytes("x", 0), 10u);
  EXPECT_EQ(*one("64GiB").bytes("x", 0), std::uint64_t{64} << 30);
  EXPECT_EQ(*one("64G").bytes("x", 0), std::uint64_t{64} << 30);
  EXPECT_EQ(*one("500 MB").bytes("x", 0), 500'000'000u);
  EXPECT_EQ(*one("3kB").bytes("x", 0), 3000u);
  EXPECT_EQ(*one("18446744073709551615").bytes("x", 0), UINT64_MAX);
  for (const char* bad : {"", "GiB", "-1", "1.5G", "1 QB", "1 gib", "18446744073709551616",
                          "16777216TiB", "1G1", "0x10"}) {
    EXPECT_TRUE(fails(one(bad).bytes("x", 0), ErrorCode::invalid_argument,
                      "x must be a size such as 4096, \"500MB\" or \"64GiB\", got \""))
        << bad;
  }
  EXPECT_TRUE(fails(one(std::int64_t{-1}).bytes("x", 0), ErrorCode::invalid_argument, "got -1"));
  EXPECT_FALSE(one(0.5).bytes("x", 0).ok());
}

TEST(Config, ExtractTakesOptionsOutForAnotherReader) {
  Config config;
  config.set("a", true);
  config.set("b", "text");
  config.set("c", 1.5);
  const Config taken = config.extract(std::array<std::string_view, 3>{"a", "c", "missing"});
  EXPECT_TRUE(taken.has("a") && taken.has("c"));
  EXPECT_FALSE(taken.has("b") || taken.has("missing"));
  EXPECT_EQ(config, [] {
    Config rest;
    rest.set("b", "text");
    return rest;
  }());
}

TEST(Config, UnknownOptionsAreListed) {
  Config config;
  config.set("size", true);
  config.set("colour", "red");
  config.set("taste", "sour");
  EXPECT_TRUE(fails(config.refuse_unknown(std::array<std::string_view, 2>{"size", "speed"}),
                    ErrorCode::invalid_argument,
                    "unknown options colour, taste; expected some of size, speed"));
  EXPECT_TRUE(
      config.refuse_unknown(std::array<std::string_view, 3>{"size", "colour", "taste"}).ok());
  EXPECT_TRUE(fails(config.refuse_unknown({}), ErrorCode::invalid_argument, "some of none"));
}

}  // namespace
}  // namespace pando::testing
