// SPDX-License-Identifier: Apache-2.0
// Sizes as people say them, and models that say what a token takes.
#include "replay/capacity.h"

#include <gtest/gtest.h>

#include "replay/models.h"
#include "support/temp_directory.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

const Measures kMeasures{.block_tokens = 512, .unique_blocks = 182'790, .token_bytes = 131'072};

std::size_t tokens_of(const char* text) { return *to_tokens(*parse_capacity(text), kMeasures); }

TEST(Capacity, IsReadInTokensBytesBlocksAndShares) {
  EXPECT_EQ(tokens_of("3000000tok"), 3'000'000u);
  EXPECT_EQ(tokens_of("3Mtok"), 3'000'000u);
  EXPECT_EQ(tokens_of("1.5ktok"), 1500u);
  EXPECT_EQ(tokens_of("64GiB"), 524'288u);
  EXPECT_EQ(tokens_of("131072B"), 1u);
  EXPECT_EQ(tokens_of("10blocks"), 5120u);
  EXPECT_EQ(tokens_of("5%"), 9139u * 512);
  EXPECT_EQ(tokens_of("100%"), 182'790u * 512);
}

TEST(Capacity, WhatMakesNoSenseIsRefusedWithWhatIsExpected) {
  for (const char* text : {"", "tok", "-5tok", "12", "5 GiB", "nanGiB", "1e999tok", "5%%"}) {
    const Result<Capacity> capacity = parse_capacity(text);
    ASSERT_FALSE(capacity.ok()) << text;
    EXPECT_NE(capacity.error().message.find("expected tokens"), std::string::npos);
  }
  EXPECT_FALSE(to_tokens(*parse_capacity("1e15tok"), kMeasures).ok());
}

TEST(Capacity, SaysWhichMeasureIsMissing) {
  const Measures none{.block_tokens = 512};
  EXPECT_NE(to_tokens(*parse_capacity("1GiB"), none).error().message.find("model"),
            std::string::npos);
  EXPECT_NE(to_tokens(*parse_capacity("1%"), none).error().message.find("read twice"),
            std::string::npos);
}

TEST(Quantity, ReadsSuffixesAndRefusesTheRest) {
  EXPECT_EQ(*parse_quantity("4096"), 4096u);
  EXPECT_EQ(*parse_quantity("64k"), 64'000u);
  EXPECT_EQ(*parse_quantity("2G"), 2'000'000'000u);
  for (const char* text :
       {"", "k", "-1", "1.5k", "64kk", "99999999999999999999", "18446744073709551615k"})
    EXPECT_FALSE(parse_quantity(text).ok()) << text;
}

TEST(Models, OfTheTableHaveTheSizesTheyAreKnownFor) {
  EXPECT_EQ(find_model("llama-3.1-8b")->geometry.token_bytes(), 131'072u);
  EXPECT_EQ(find_model("llama-3.1-70b")->geometry.token_bytes(), 327'680u);
  EXPECT_EQ(find_model("deepseek-v3")->geometry.token_bytes(), 61u * 576 * 2);
  for (const std::string& name : model_names())
    EXPECT_TRUE(find_model(name)->geometry.validate().ok()) << name;
}

TEST(Models, AreReadFromConfigFiles) {
  TempDirectory directory;
  write_file(directory / "config.json",
             R"({"num_hidden_layers": 2, "num_attention_heads": 8, "num_key_value_heads": 4,
                 "hidden_size": 512, "torch_dtype": "float16"})");
  EXPECT_EQ(find_model(directory / "config.json")->geometry.token_bytes(), 2u * 2 * 4 * 64 * 2);
  EXPECT_EQ(parse_model_config(R"({"text_config": {"num_hidden_layers": 3, "kv_lora_rank": 512,
                                   "qk_rope_head_dim": 64}})",
                               "x")
                ->token_bytes(),
            3u * 576 * 2);
}

TEST(Models, BadConfigsSayWhatIsMissing) {
  EXPECT_NE(parse_model_config("{", "c").error().message.find("c: not a JSON object"),
            std::string::npos);
  EXPECT_NE(parse_model_config("{}", "c").error().message.find("num_hidden_layers"),
            std::string::npos);
  EXPECT_NE(parse_model_config(R"({"num_hidden_layers": 3})", "c").error().message.find("head_dim"),
            std::string::npos);
  EXPECT_NE(find_model("no-such-model").error().message.find("llama-3.1-8b"), std::string::npos);
}

}  // namespace
}  // namespace pando::testing
