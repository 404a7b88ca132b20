// SPDX-License-Identifier: Apache-2.0
// Options from text and files: JSON, TOML and YAML say the same, and refuse the same.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "pando/config.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

using List = std::vector<std::string>;

class ConfigFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("pando-config-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<Config> file(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return Config::parse(fmt::format("@{}", (folder_ / name).string()));
  }
  Result<Config> json(std::string_view text) const { return file("a.json", text); }
  Result<Config> toml(std::string_view text) const { return file("a.toml", text); }
  Result<Config> yaml(std::string_view text) const { return file("a.yaml", text); }

  std::filesystem::path folder_;
};

::testing::AssertionResult refused(const Result<Config>& result, std::string_view message) {
  return fails(result, ErrorCode::invalid_argument, message);
}

Config expected() {
  Config config;
  config.set("direct", true);
  config.set("sync", false);
  config.set("depth", std::int64_t{16});
  config.set("lowest", INT64_MIN);
  config.set("ttl", 2.5);
  config.set("directory", "/var/pando ü");
  config.set("servers", List{"a:1", "b:2"});
  config.set("none", List{});
  return config;
}

TEST_F(ConfigFiles, NothingIsAConfigWithoutOptions) {
  for (const char* text : {"", "  \n", "{}", " { } "}) {
    const auto config = Config::parse(text);
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(*config, Config());
  }
  for (const auto& config :
       {toml(""), toml("# nothing\n"), yaml(""), yaml("# nothing\n"), yaml("---\n")}) {
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(*config, Config());
  }
}

TEST_F(ConfigFiles, AllNotationsSayTheSame) {
  const std::string_view text = R"({"direct": true, "sync": false, "depth": 16,
      "lowest": -9223372036854775808, "ttl": 2.5, "directory": "/var/pando \u00fc",
      "servers": ["a:1", "b:2"], "none": []})";
  for (const auto& config : {Config::parse(text), json(text), toml(R"(
direct = true
sync = false
depth = 0x10
lowest = -9223372036854775808
ttl = 2.5
directory = "/var/pando ü"
servers = ["a:1", 'b:2']
none = []
)"),
                             yaml(R"(
direct: true
sync: False
depth: 0x10
lowest: -9223372036854775808
ttl: 2.5
directory: /var/pando ü
servers: ["a:1", b:2]
none: []
)"),
                             file("a.yml", R"(
direct: TRUE
sync: false
depth: 0o20
lowest: -9223372036854775808
ttl: +.25e1
directory: '/var/pando ü'
servers:
  - a:1
  - "b:2"
none: []
)")}) {
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(*config, expected());
  }
}

TEST_F(ConfigFiles, NestedThingsAreErrorsThatNameTheOption) {
  constexpr std::string_view kMust = "x must be a boolean, a number, text or a list of text, got ";
  const auto must = [&](std::string_view found) { return std::string(kMust).append(found); };
  EXPECT_TRUE(refused(Config::parse(R"({"x": {"y": 1}})"), "options: " + must("an object")));
  EXPECT_TRUE(refused(Config::parse(R"({"x": null})"), must("null")));
  EXPECT_TRUE(refused(toml("a = 1\n[x]\ny = 1"), "a.toml:2: " + must("a table")));
  EXPECT_TRUE(refused(toml("x.y = 1"), must("a table")));
  EXPECT_TRUE(refused(toml("x = 1979-05-27"), must("a date")));
  EXPECT_TRUE(refused(yaml("a: 1\nx:\n  y: 1"), "a.yaml:2: " + must("a mapping")));
  EXPECT_TRUE(refused(yaml("x:"), must("null")));
  EXPECT_TRUE(refused(yaml("x: ~"), must("null")));
  EXPECT_TRUE(refused(yaml("x: !!binary aGk="), must("a value with the tag")));
}

TEST_F(ConfigFiles, ListsHaveNothingButText) {
  constexpr std::string_view kMust = "x must be a list of text, got one with ";
  const auto must = [&](std::string_view found) { return std::string(kMust).append(found); };
  EXPECT_TRUE(refused(json(R"({"x": ["a", 1]})"), must("an integer in it")));
  EXPECT_TRUE(refused(json(R"({"x": ["a", ["b"]]})"), must("a list in it")));
  EXPECT_TRUE(refused(json(R"({"x": [{}]})"), must("an object in it")));
  EXPECT_TRUE(refused(json(R"({"x": [18446744073709551616]})"), must("an integer in it")));
  EXPECT_TRUE(refused(toml("x = ['a', true]"), must("a boolean in it")));
  EXPECT_TRUE(refused(toml("x = [['a']]"), must("a list in it")));
  EXPECT_TRUE(refused(yaml("x: [a, 5]"), must("5, which is not text unless quoted")));
  EXPECT_TRUE(refused(yaml("x: [[a]]"), must("more than text in it")));
  EXPECT_TRUE(refused(yaml("x:\n  - a\n  -"), must("null in it")));
}

TEST_F(ConfigFiles, IntegersThatDoNotFitAreErrors) {
  constexpr std::string_view kMust = "x must fit 64 bits with a sign, got ";
  for (const char* text :
       {"9223372036854775808", "99999999999999999999999", "-9223372036854775809"}) {
    const std::string message = std::string(kMust).append(text);
    EXPECT_TRUE(refused(json(std::string(R"({"x": )").append(text).append("}")), message));
    EXPECT_TRUE(refused(yaml(std::string("x: ").append(text)), message));
    EXPECT_TRUE(refused(toml(std::string("x = ").append(text)), "a.toml:1: "));
  }
  EXPECT_TRUE(refused(yaml("x: 0xffffffffffffffff"), kMust));
}

TEST_F(ConfigFiles, NumbersAreFinite) {
  EXPECT_TRUE(refused(json(R"({"x": 1e999})"), "number overflow"));
  EXPECT_TRUE(refused(toml("x = inf"), "a.toml:1: x must be finite, got inf"));
  EXPECT_TRUE(refused(toml("x = nan"), "x must be finite"));
  EXPECT_TRUE(refused(yaml("x: -.inf"), "a.yaml:1: x must be finite, got -inf"));
  EXPECT_TRUE(refused(yaml("x: .nan"), "x must be finite, got nan"));
  EXPECT_TRUE(refused(yaml("x: 1e999"), "x must be in the range of a double, got 1e999"));
}

TEST_F(ConfigFiles, AnOptionIsGivenOnce) {
  EXPECT_TRUE(refused(Config::parse(R"({"x": 1, "y": 2, "x": 1})"), "options: x is given twice"));
  EXPECT_TRUE(refused(yaml("x: 1\ny: 2\nx: 3"), "a.yaml:3: x is given twice"));
  EXPECT_TRUE(refused(toml("x = 1\ny = 2\nx = 3"), "a.toml:3: "));
  EXPECT_TRUE(refused(json(R"({"": 1})"), "an option has no name"));
}

TEST_F(ConfigFiles, ErrorsSayTheFileAndTheLine) {
  EXPECT_TRUE(refused(json("{\"x\": 1,\n\"y\": }"), "a.json: parse error at line 2"));
  EXPECT_TRUE(refused(json("{\"x\": 1} trailing"), "parse error at line 1"));
  EXPECT_TRUE(refused(json("[1]"), "a.json: expected an object, got a list"));
  EXPECT_TRUE(refused(json("17"), "a.json: expected an object, got an integer"));
  EXPECT_TRUE(refused(json(""), "a.json: parse error"));
  EXPECT_TRUE(refused(json("{\"x\": \"\xff\"}"), "ill-formed UTF-8"));
  EXPECT_TRUE(refused(toml("a = 1\n\nb = = 2"), "a.toml:3: "));
  EXPECT_TRUE(refused(yaml("a: 1\nb: [1"), "a.yaml:"));
  EXPECT_TRUE(refused(yaml("- a\n- b"), "a.yaml:1: expected a mapping, got a list"));
  EXPECT_TRUE(refused(yaml("just text"), "expected a mapping, got a scalar"));
  EXPECT_TRUE(refused(yaml("a: 1\n---\nb: 2"), "a second document; expected one"));
  EXPECT_TRUE(refused(yaml("[a]: 1"), "the name of an option must be text"));
}

TEST_F(ConfigFiles, YamlIsReadByTheCoreSchema) {
  const auto config = yaml(R"(
norway: no
on: off
time: 1:30
version: 1.2.3
dot: .
minus: -.
exponent: 1e
hex: 0xg
number: "5"
tagged: !!str 5
null_text: "null"
empty: ""
point: 5.
negative: -7
plus: +7
leading: 010
million: 1e6
)");
  ASSERT_TRUE(config.ok()) << config.error().message;
  for (const auto& [name, text] :
       std::vector<std::pair<const char*, const char*>>{{"norway", "no"},
                                                        {"on", "off"},
                                                        {"time", "1:30"},
                                                        {"version", "1.2.3"},
                                                        {"dot", "."},
                                                        {"minus", "-."},
                                                        {"exponent", "1e"},
                                                        {"hex", "0xg"},
                                                        {"number", "5"},
                                                        {"tagged", "5"},
                                                        {"null_text", "null"},
                                                        {"empty", ""}}) {
    EXPECT_EQ(*config->text(name, "not given"), text) << name;
  }
  EXPECT_EQ(*config->number("point", 0), 5.0);
  EXPECT_EQ(*config->integer("negative", 0), -7);
  EXPECT_EQ(*config->integer("plus", 0), 7);
  EXPECT_EQ(*config->integer("leading", 0), 10);
  EXPECT_EQ(*config->integer("million", 0), 1'000'000);
}

TEST_F(ConfigFiles, WhatIsNoTextAndNoFileSaysSo) {
  EXPECT_TRUE(refused(Config::parse("store.toml"),
                      "'store.toml' is neither a JSON object nor @ and the name of a file"));
  EXPECT_TRUE(refused(Config::parse("[1]"), "neither a JSON object"));
  EXPECT_TRUE(refused(Config::parse("@/tmp/x.ini"), "ends in .json, .toml, .yaml or .yml"));
  EXPECT_TRUE(refused(Config::parse("@"), "options file ''"));
  EXPECT_TRUE(fails(Config::parse("@/nowhere/x.toml"), ErrorCode::not_found,
                    "cannot open options file '/nowhere/x.toml': No such file"));
  std::filesystem::create_directories(folder_ / "folder.json");
  EXPECT_TRUE(fails(Config::parse(fmt::format("@{}", (folder_ / "folder.json").string())),
                    ErrorCode::io_error, "cannot read options file"));
  EXPECT_TRUE(refused(json(std::string((1 << 20) + 1, ' ')), "more than 1048576 bytes"));
}

TEST_F(ConfigFiles, DeepNestingIsAnErrorAndNoCrash) {
  const std::string deep(100000, '[');
  EXPECT_FALSE(json(fmt::format("{{\"x\": {}", deep)).ok());
  EXPECT_FALSE(toml(fmt::format("x = {}", deep)).ok());
  EXPECT_FALSE(yaml(fmt::format("x: {}", deep)).ok());
}

}  // namespace
}  // namespace pando::testing
