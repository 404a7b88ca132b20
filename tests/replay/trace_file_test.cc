// SPDX-License-Identifier: Apache-2.0
// Every format of a trace, and every way in which a line can be wrong.
#include "replay/trace_file.h"

#include <gtest/gtest.h>

#include <tuple>

#include "replay/block_tokens.h"
#include "support/temp_directory.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

struct Read {
  std::vector<TraceRequest> requests;
  std::size_t block_tokens = 0;
  std::uint64_t skipped = 0;
  std::string error;
};

Read read(const std::string& text, const TraceOptions& options = {}) {
  TempDirectory directory;
  write_file(directory / "t", text);
  const auto file = *TraceFile::open(directory / "t", options);
  Read all;
  TraceRequest request;
  while (true) {
    const Result<bool> more = file->next(request);
    if (!more) all.error = more.error().message.substr(directory.path().size() + 1);
    if (!more || !*more) break;
    all.requests.push_back(request);
  }
  all.block_tokens = file->block_tokens();
  all.skipped = file->skipped_lines();
  return all;
}

using Ids = std::vector<BlockId>;

TEST(TraceJson, ReadsHashIdsInAnyOrderOfFields) {
  const Read all = read(
      R"({"hash_ids": [5, 6, 18446744073709551615], "timestamp": 1500, "input_length": 1200, "output_length": 7, "session": "s", "other": {"a": [1]}})"
      "\n\n"
      R"({"timestamp": 2.5, "input_length": 512, "hash_ids": [5]})");
  ASSERT_EQ(all.requests.size(), 2u) << all.error;
  EXPECT_EQ(all.block_tokens, 512u);
  EXPECT_EQ(all.requests[0].blocks, (Ids{5, 6, UINT64_MAX}));
  EXPECT_EQ(all.requests[0].arrival_s, 1.5);
  EXPECT_EQ(all.requests[0].input_length, 1200u);
  EXPECT_EQ(all.requests[0].output_length, 7u);
  EXPECT_EQ(all.requests[0].session, "s");
  EXPECT_EQ(all.requests[1].arrival_s, 0.0025);
  EXPECT_EQ(all.requests[1].session, "");
}

TEST(TraceJson, TellsTheSizeOfBlocksFromTheFirstRequest) {
  EXPECT_EQ(read(R"({"input_length": 130, "hash_ids": [1, 2, 3]})").block_tokens, 64u);
  // The partial block at the end may have no id.
  EXPECT_EQ(read(R"({"input_length": 1027, "hash_ids": [1, 2, 3, 4]})").block_tokens, 256u);
  EXPECT_EQ(read(R"({"input_length": 40, "hash_ids": [1]})").block_tokens, 512u);
  EXPECT_EQ(read(R"({"hash_ids": [1, 2]})").requests[0].input_length, 1024u);
  EXPECT_EQ(
      read(R"({"input_length": 40, "hash_ids": [1, 2, 3]})", {.block_tokens = 16}).block_tokens,
      16u);
}

TEST(TraceJson, ReadsTokensAndHashesTheirWholeBlocks) {
  const Read all = read(
      "{\"tokens\": [1, 2, 3, 4, 5]}\n{\"prompt_token_ids\": [1, 2, 3, 4]}\n{\"tokens\": [9, 2, 3, "
      "4]}\n",
      {.block_tokens = 2});
  ASSERT_EQ(all.requests.size(), 3u) << all.error;
  EXPECT_EQ(all.requests[0].tokens, (std::vector<Token>{1, 2, 3, 4, 5}));
  ASSERT_EQ(all.requests[0].blocks.size(), 2u);
  EXPECT_EQ(all.requests[0].blocks, all.requests[1].blocks);
  EXPECT_NE(all.requests[0].blocks[1], all.requests[2].blocks[1]) << "another prefix";
  EXPECT_EQ(all.requests[0].input_length, 5u);
}

TEST(TraceCsv, ReadsLengthsByTheNamesOfColumns) {
  const Read all = read(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 18:17:03.9799600,374,44\n"
      "2023-11-16 18:17:04.4799600,600,109\n");
  ASSERT_EQ(all.requests.size(), 2u) << all.error;
  EXPECT_EQ(all.requests[0].arrival_s, 0.0);
  EXPECT_NEAR(all.requests[1].arrival_s, 0.5, 1e-6);
  EXPECT_EQ(all.requests[0].input_length, 374u);
  EXPECT_EQ(all.requests[1].blocks.size(), 2u);
  EXPECT_NE(all.requests[0].blocks[0], all.requests[1].blocks[0]) << "nothing is shared";
}

TEST(TraceCsv, RequestsOfOneSessionExtendEachOther) {
  const Read all = read("session,input_length\na,600\na,1200\nb,1200\n");
  ASSERT_EQ(all.requests.size(), 3u) << all.error;
  EXPECT_EQ(all.requests[0].blocks[1], all.requests[1].blocks[1]);
  EXPECT_NE(all.requests[1].blocks[0], all.requests[2].blocks[0]);
}

class BadLines : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BadLines, AreReportedWithFileAndLineOrCounted) {
  const auto& [line, reason] = GetParam();
  const std::string good = R"({"input_length": 1500, "hash_ids": [1, 2, 3]})";
  const std::string text = good + "\n" + line + "\n" + good + "\n";
  const Read stopped = read(text);
  EXPECT_EQ(stopped.requests.size(), 1u);
  EXPECT_EQ(stopped.error.substr(0, 5), "t:2: ") << stopped.error;
  EXPECT_NE(stopped.error.find(reason), std::string::npos) << stopped.error;
  const Read skipping = read(text, {.skip_bad = true});
  EXPECT_EQ(skipping.requests.size(), 2u);
  EXPECT_EQ(skipping.skipped, 1u);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadLines,
    ::testing::Values(
        std::pair{R"({"input_length": 1500, "hash_ids": [1, 2)", "not a JSON object"},
        std::pair{R"([1, 2])", "not a JSON object"}, std::pair{"nonsense", "not a JSON object"},
        std::pair{R"({"input_length": 512, "hash_ids": [1]} {"x": 1})", "not a JSON object"},
        std::pair{R"({"input_length": 5})", "expected \"hash_ids\""},
        std::pair{R"({"tokens": [1], "hash_ids": [1]})", "expected \"hash_ids\""},
        std::pair{R"({"input_length": 1500, "hash_ids": [1, -2, 3]})", "item 1 is not a number"},
        std::pair{R"({"input_length": 1500, "hash_ids": [1, 2.5, 3]})", "item 1 is not a number"},
        std::pair{R"({"input_length": 1500, "hash_ids": "x"})", "not a list of ids"},
        std::pair{R"({"input_length": -1, "hash_ids": [1]})", "\"input_length\" is not"},
        std::pair{R"({"input_length": 1500, "hash_ids": [1, 2, 3], "timestamp": -4})",
                  "\"timestamp\" is not"},
        std::pair{R"({"input_length": 1500, "hash_ids": [1, 2, 3], "session": [1]})",
                  "\"session\" is not"},
        std::pair{R"({"input_length": 9000, "hash_ids": [1, 2]})", "expected 18"},
        std::pair{R"({"tokens": [1, 2]})", "the lines before had hash_ids"}));

TEST(TraceFile, WhatIsNeitherJsonNorCsvIsRefused) {
  EXPECT_NE(read("hello\n").error.find("neither a JSON object nor a CSV header"),
            std::string::npos);
  EXPECT_NE(read("input_length\nx\n").error.find("t:2: \"x\": expected the number of input tokens"),
            std::string::npos);
}

TEST(TraceFile, BlockSizesAreValidated) {
  EXPECT_EQ(TraceFile::open("x", {.block_tokens = 48}).error().code, ErrorCode::invalid_argument);
}

TEST(TraceFile, TokensOutOfRangeAreRefused) {
  EXPECT_NE(read(R"({"tokens": [1, 2147483648]})").error.find("item 1 is not a token"),
            std::string::npos);
}

TEST(MergedTrace, IsInOrderOfArrivalAndKeepsBlocksApart) {
  TempDirectory directory;
  write_file(directory / "a",
             "{\"timestamp\": 1, \"input_length\": 1024, \"hash_ids\": [1, 2]}\n"
             "{\"timestamp\": 30, \"input_length\": 1024, \"hash_ids\": [1, 3]}\n");
  write_file(directory / "b",
             "{\"timestamp\": 20, \"input_length\": 1024, \"hash_ids\": [1, 2]}\n");
  const std::vector<std::string> paths{directory / "a", directory / "b"};
  const auto apart = *MergedTrace::open(paths);
  const std::vector<TraceRequest> requests = read_all(*apart);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[1].arrival_s, 0.02);
  EXPECT_EQ(requests[0].blocks[0], requests[2].blocks[0]);
  EXPECT_NE(requests[0].blocks[0], requests[1].blocks[0]);
  const auto same = *MergedTrace::open(paths, {.same_ids = true});
  EXPECT_EQ(read_all(*same)[1].blocks, (Ids{1, 2}));
  EXPECT_EQ(same->block_tokens(), 512u);
}

TEST(ReorderedTrace, PutsRequestsInOrderAsFarAsItLooksAhead) {
  TempDirectory directory;
  std::string text;
  for (const int ms : {30, 10, 20, 50, 40, 60, 5})
    text += "{\"hash_ids\": [1], \"timestamp\": " + std::to_string(ms) + "}\n";
  write_file(directory / "t", text);
  const auto times = [&](std::size_t look_ahead) {
    std::vector<int> ms;
    for (const TraceRequest& request :
         read_all(**MergedTrace::open({directory / "t"}, {.reorder = look_ahead})))
      ms.push_back(static_cast<int>(request.arrival_s * 1000 + 0.5));
    return ms;
  };
  EXPECT_EQ(times(0), (std::vector{30, 10, 20, 50, 40, 60, 5}));
  EXPECT_EQ(times(2), (std::vector{10, 20, 30, 40, 5, 50, 60}));
  EXPECT_EQ(times(100), (std::vector{5, 10, 20, 30, 40, 50, 60}));
}

TEST(MergedTrace, DifferentBlockSizesAreRefused) {
  TempDirectory directory;
  write_file(directory / "a", R"({"input_length": 1500, "hash_ids": [1, 2, 3]})");
  write_file(directory / "b", R"({"input_length": 190, "hash_ids": [1, 2, 3]})");
  TraceRequest request;
  const auto merged = *MergedTrace::open({directory / "a", directory / "b"});
  const Result<bool> more = merged->next(request);
  EXPECT_NE(more.error().message.find("has blocks of 64 tokens"), std::string::npos);
}

TEST(BlockTokens, DifferentIdsHaveDifferentTokensAndEqualOnesTheSame) {
  BlockTokens expander;
  const auto expand = [&](BlockId id, std::size_t size) {
    TraceRequest request;
    request.blocks = {id};
    const auto tokens = expander.of(request, size);
    for (const Token token : tokens) EXPECT_GE(token, 0);
    return std::vector<Token>(tokens.begin(), tokens.end());
  };
  for (const std::size_t size : {3u, 16u, 64u}) {
    EXPECT_EQ(expand(7, size), expand(7, size));
    for (unsigned bit = 0; bit < 64; ++bit)
      EXPECT_NE(expand(7, size), expand(7 ^ (BlockId{1} << bit), size)) << bit;
  }
}

}  // namespace
}  // namespace pando::testing
