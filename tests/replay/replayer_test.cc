// SPDX-License-Identifier: Apache-2.0
// The replayer over a real cache: totals add up, nothing stays held, refusals do not stop it.
#include "replay/replayer.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "replay/chat_workload.h"

namespace pando {
namespace {

/// A pool, a cache over it, and what must hold whenever no request is running.
struct Rig {
  Rig(std::size_t capacity_tokens, std::size_t page_size, bool disabled = false)
      : allocator(
            PagedAllocator::create({.capacity_tokens = capacity_tokens, .page_size = page_size})
                .value()) {
    CacheOptions options;
    options.page_size = page_size;
    options.disabled = disabled;
    cache = PrefixCache::create(options, *allocator).value();
  }

  void expect_at_rest() const {
    const Status checked = cache->check();
    EXPECT_TRUE(checked.ok()) << checked.error().message;
    EXPECT_EQ(cache->sizes().protected_tokens, 0u);
    EXPECT_EQ(allocator->available() + cache->sizes().total, allocator->capacity());
  }

  std::unique_ptr<PagedAllocator> allocator;
  std::unique_ptr<PrefixCache> cache;
};

ChatOptions small_chat() {
  ChatOptions options;
  options.conversations = 60;
  options.concurrency = 10;
  options.system_prompts = 3;
  options.system_tokens = 120;
  options.user_tokens = 30;
  options.assistant_tokens = 50;
  return options;
}

ReplayReport replay_chat(Rig& rig, const ReplayOptions& options = {}) {
  ChatWorkload chat = ChatWorkload::create(small_chat()).value();
  Replayer replayer = Replayer::create(*rig.cache, *rig.allocator, options).value();
  const Status done = replayer.run(chat);
  EXPECT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(replayer.report().served + replayer.report().refused, chat.num_requests());
  return replayer.report();
}

std::uint64_t sum_of_ends(const ReplayReport& report) {
  return std::accumulate(report.match_ends.begin(), report.match_ends.end(), std::uint64_t{0});
}

std::vector<Token> counting(std::size_t length, Token first = 0) {
  std::vector<Token> tokens(length);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class ReplayerPages : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(PageSizes, ReplayerPages, testing::Values(1, 4, 16, 64));

TEST_P(ReplayerPages, TotalsAddUpAndNothingStaysHeld) {
  Rig rig(4'096, GetParam());
  const ReplayReport report = replay_chat(rig, {.check_every = 1});
  EXPECT_EQ(report.refused, 0u);
  EXPECT_EQ(report.cached_tokens + report.computed_tokens(), report.prompt_tokens);
  EXPECT_GT(report.hit_ratio(), 0.1);
  EXPECT_LT(report.hit_ratio(), 0.95);
  EXPECT_GT(report.evicted.tokens, 0u);
  EXPECT_EQ(report.evicted.tokens % GetParam(), 0u);
  EXPECT_EQ(sum_of_ends(report), report.served);
  rig.expect_at_rest();
}

TEST_P(ReplayerPages, WhatWasInsertedIsHeldOrWasEvicted) {
  Rig rig(4'096, GetParam());
  const ReplayReport report = replay_chat(rig);
  ASSERT_EQ(report.refused, 0u);
  ChatWorkload again = ChatWorkload::create(small_chat()).value();
  std::uint64_t whole_pages_tokens = 0;
  while (const auto request = again.next().value())
    whole_pages_tokens += (request->tokens.size() - 1) / GetParam() * GetParam();
  EXPECT_EQ(whole_pages_tokens - report.cached_tokens,
            rig.cache->sizes().total + report.evicted.tokens);
}

TEST_P(ReplayerPages, ChunksEndInTheSameHitsWhereNothingIsEvicted) {
  Rig whole(1'000'000, GetParam());
  Rig chunked(1'000'000, GetParam());
  const ReplayReport expected = replay_chat(whole);
  const ReplayReport report = replay_chat(chunked, {.chunk_tokens = 37, .check_every = 10});
  EXPECT_EQ(report.cached_tokens, expected.cached_tokens);
  EXPECT_EQ(report.evicted.tokens, 0u);
  EXPECT_EQ(chunked.cache->sizes(), whole.cache->sizes());
  EXPECT_GT(report.latency(Operation::checkpoint).count(), report.served);
  EXPECT_EQ(expected.latency(Operation::checkpoint).count(), 0u);
  chunked.expect_at_rest();
}

TEST(Replayer, SameWorkloadGivesTheSameReport) {
  Rig first(4'096, 16);
  Rig second(4'096, 16);
  const ReplayReport a = replay_chat(first);
  const ReplayReport b = replay_chat(second);
  EXPECT_EQ(a.cached_tokens, b.cached_tokens);
  EXPECT_EQ(a.evicted.tokens, b.evicted.tokens);
  EXPECT_EQ(a.evicted.nodes, b.evicted.nodes);
  EXPECT_EQ(a.match_ends, b.match_ends);
  EXPECT_EQ(first.cache->dump(), second.cache->dump());
}

TEST(Replayer, TimesEveryOperationOfARequest) {
  Rig rig(1'024, 16);
  Replayer replayer = Replayer::create(*rig.cache, *rig.allocator, {.chunk_tokens = 64}).value();
  const std::vector<Token> tokens = counting(100 + 30);
  ASSERT_TRUE(replayer.serve({.tokens = tokens, .prompt_length = 100}).ok());
  const ReplayReport& report = replayer.report();
  EXPECT_EQ(report.latency(Operation::start).count(), 1u);
  EXPECT_EQ(report.latency(Operation::allocate).count(), 2u);  // 64 + 36 tokens
  EXPECT_EQ(report.latency(Operation::checkpoint).count(), 2u);
  EXPECT_EQ(report.latency(Operation::decode).count(), 3u);  // up to 112, 128, 129
  EXPECT_EQ(report.latency(Operation::finish).count(), 1u);
  EXPECT_GT(report.cache_seconds(), 0.0);
}

TEST(Replayer, KeepsTheOutputExceptItsLastToken) {
  Rig rig(1'024, 1);
  Replayer replayer = Replayer::create(*rig.cache, *rig.allocator).value();
  const std::vector<Token> tokens = counting(20);
  ASSERT_TRUE(replayer.serve({.tokens = tokens, .prompt_length = 12}).ok());
  EXPECT_EQ(rig.cache->probe({tokens}), 19u);
  ASSERT_TRUE(replayer.serve({.tokens = tokens, .prompt_length = 20}).ok());  // no output at all
  EXPECT_EQ(replayer.report().cached_tokens, 19u);
  EXPECT_EQ(replayer.report().output_tokens, 8u);
  EXPECT_EQ(rig.cache->probe({tokens}), 20u);
}

TEST(Replayer, NamespacesDoNotShare) {
  Rig rig(1'024, 16);
  Replayer replayer = Replayer::create(*rig.cache, *rig.allocator).value();
  const std::vector<Token> tokens = counting(64);
  for (const char* ns : {"a", "b", "a"})
    ASSERT_TRUE(replayer.serve({.tokens = tokens, .prompt_length = 60, .ns = ns}).ok());
  EXPECT_EQ(replayer.report().cached_tokens, 48u);
  EXPECT_EQ(replayer.report().ended(MatchEnd::namespace_unknown), 2u);
}

TEST(Replayer, WhatCanNeverFitIsRefusedAndPushesNothingOut) {
  Rig rig(256, 16);
  for (const ReplayOptions& options : {ReplayOptions{}, ReplayOptions{.chunk_tokens = 32}}) {
    Replayer replayer = Replayer::create(*rig.cache, *rig.allocator, options).value();
    const std::vector<Token> fits = counting(200);
    const std::vector<Token> too_long = counting(300, 1'000);
    ASSERT_TRUE(replayer.serve({.tokens = fits, .prompt_length = 190}).ok());
    ASSERT_TRUE(replayer.serve({.tokens = too_long, .prompt_length = 300}).ok());
    ASSERT_TRUE(replayer.serve({.tokens = too_long, .prompt_length = 200}).ok());
    EXPECT_EQ(replayer.report().served, 1u);
    EXPECT_EQ(replayer.report().refused, 2u);
    EXPECT_EQ(replayer.report().prompt_tokens, 190u);
    EXPECT_EQ(replayer.report().evicted.tokens, 0u);
    rig.expect_at_rest();
  }
}

TEST(Replayer, RunningOutOfRoomHalfwayIsRefusedAndGivesBack) {
  Rig rig(256, 16);
  const std::vector<Token> held = counting(128);
  Replayer replayer = Replayer::create(*rig.cache, *rig.allocator).value();
  ASSERT_TRUE(replayer.serve({.tokens = held, .prompt_length = 128}).ok());
  {
    const Match match = rig.cache->match({held}).value();
    const Lease lease = rig.cache->lock(match).value();
    const std::vector<Token> other = counting(200, 1'000);
    ASSERT_TRUE(replayer.serve({.tokens = other, .prompt_length = 190}).ok());  // at its prompt
    ASSERT_TRUE(replayer.serve({.tokens = other, .prompt_length = 100}).ok());  // at its output
    EXPECT_EQ(replayer.report().refused, 2u);
    EXPECT_EQ(rig.cache->probe({held}), 128u);
    ASSERT_TRUE(replayer.serve({.tokens = held, .prompt_length = 100}).ok());
  }
  EXPECT_EQ(replayer.report().served, 2u);
  rig.expect_at_rest();
}

TEST(Replayer, CacheThatKeepsNothingFindsNothing) {
  Rig rig(4'096, 16, /*disabled=*/true);
  const ReplayReport report = replay_chat(rig);
  EXPECT_EQ(report.hit_ratio(), 0.0);
  EXPECT_EQ(report.ended(MatchEnd::disabled), report.served);
  EXPECT_EQ(rig.allocator->available(), rig.allocator->capacity());
}

TEST(Replayer, RefusesOptionsThatMakeNoSense) {
  Rig rig(256, 16);
  for (const ReplayOptions& options :
       {ReplayOptions{.chunk_tokens = 0}, ReplayOptions{.check_every = 0}}) {
    const auto replayer = Replayer::create(*rig.cache, *rig.allocator, options);
    ASSERT_FALSE(replayer.ok());
    EXPECT_EQ(replayer.error().code, ErrorCode::invalid_argument);
  }
}

TEST(Replayer, EveryOperationAndMatchEndHasAName) {
  for (const Operation operation : kOperations) EXPECT_NE(to_string(operation), "unknown");
  for (const MatchEnd end : kMatchEnds) EXPECT_NE(to_string(end), "unknown");
}

}  // namespace
}  // namespace pando
