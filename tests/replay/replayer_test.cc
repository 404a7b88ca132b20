// SPDX-License-Identifier: Apache-2.0
// Replays through every tier, serial and timed: totals add up, bytes come back right, and wrong
// bytes are found.
#include "replay/replayer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "replay/generate.h"
#include "replay/kv_rows.h"
#include "replay/models.h"
#include "replay/replay_json.h"
#include "replay/trace_file.h"
#include "replay/why.h"
#include "support/temp_directory.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

std::unique_ptr<Trace> workload(WorkloadKind kind, std::size_t requests) {
  WorkloadOptions options = WorkloadOptions::of(kind);
  options.requests = requests;
  options.block_tokens = 16;
  options.system_tokens = std::min<std::size_t>(options.system_tokens, 800);
  options.context_tokens = std::min<std::size_t>(options.context_tokens, 800);
  return *make_workload(kind, options);
}

ReplayOptions options_of(std::size_t device, std::size_t host = 0, std::size_t store = 0) {
  ReplayOptions options;
  options.block_tokens = options.stack.page_size = 16;
  options.stack.device_tokens = device;
  options.stack.host_tokens = host;
  options.stack.store_tokens = store;
  options.check_every = 50;
  return options;
}

void expect_adds_up(const ReplayResults& results) {
  std::uint64_t missed = 0;
  for (const Miss miss : kMisses) missed += results.missed_blocks[miss];
  EXPECT_EQ(results.all_hit_blocks() + missed, results.blocks);
  EXPECT_EQ(results.missed_blocks[Miss::never_seen], results.unique_blocks);
  std::uint64_t requests = 0, hits = 0;
  for (const SeriesPoint& point : results.series) {
    requests += point.requests;
    for (const Tier tier : kTiers) hits += point.hit_blocks[tier];
  }
  EXPECT_EQ(requests, results.requests);
  EXPECT_EQ(hits, results.all_hit_blocks());
  for (const Tier tier : kTiers)
    EXPECT_LE(results.peak_tokens[tier], results.capacity_tokens[tier]) << to_string(tier);
}

TEST(Replay, TotalsAddUpOnTheDeviceAlone) {
  const ReplayResults results = *replay(*workload(WorkloadKind::chat, 500), options_of(20'000));
  EXPECT_EQ(results.requests, 500u);
  EXPECT_GT(results.hit_ratio_blocks(), 0.2);
  EXPECT_GT(results.missed_blocks[Miss::evicted], 0u);
  EXPECT_GT(results.evicted_tokens[Tier::device], 0u);
  expect_adds_up(results);
}

TEST(Replay, IsTheSameEveryTime) {
  const auto once = *replay(*workload(WorkloadKind::chat, 300), options_of(9'000, 20'000, 40'000));
  const auto again = *replay(*workload(WorkloadKind::chat, 300), options_of(9'000, 20'000, 40'000));
  for (const Tier tier : kTiers) {
    EXPECT_EQ(once.hit_blocks[tier], again.hit_blocks[tier]);
    EXPECT_EQ(once.evicted_tokens[tier], again.evicted_tokens[tier]);
    EXPECT_GT(once.hit_blocks[tier], 0u) << to_string(tier);
  }
}

TEST(Replay, LowerTiersAddHits) {
  const auto device = *replay(*workload(WorkloadKind::chat, 400), options_of(9'000));
  const auto host = *replay(*workload(WorkloadKind::chat, 400), options_of(9'000, 20'000));
  const auto store = *replay(*workload(WorkloadKind::chat, 400), options_of(9'000, 20'000, 90'000));
  EXPECT_LT(device.all_hit_blocks(), host.all_hit_blocks());
  EXPECT_LT(host.all_hit_blocks(), store.all_hit_blocks());
  for (const auto* results : {&device, &host, &store}) expect_adds_up(*results);
}

// Write policy, and tokens of the window: none, many pages, a part of one.
class ReplayBytes : public ::testing::TestWithParam<std::tuple<WritePolicy, std::size_t>> {};
INSTANTIATE_TEST_SUITE_P(All, ReplayBytes,
                         ::testing::Combine(::testing::Values(WritePolicy::write_through,
                                                              WritePolicy::write_through_selective,
                                                              WritePolicy::write_back),
                                            ::testing::Values(0, 256, 5)),
                         [](const auto& info) {
                           const std::size_t window = std::get<1>(info.param);
                           return std::string(to_string(std::get<0>(info.param))) +
                                  (window > 0 ? "_window" + std::to_string(window) : "");
                         });

TEST_P(ReplayBytes, ComeBackRightThroughEveryTier) {
  const auto& [write_policy, window] = GetParam();
  ReplayOptions options = options_of(9'000, 12'000, 60'000);
  options.stack.write_policy = write_policy;
  if (window > 0) options.stack.window = window;
  options.stack.geometry = find_model("tiny")->geometry;
  const Result<ReplayResults> results = replay(*workload(WorkloadKind::chat, 400), options);
  ASSERT_TRUE(results.ok()) << results.error().message;
  EXPECT_GT(results->hit_tokens[Tier::host] + results->hit_tokens[Tier::store], 0u);
  EXPECT_GT(results->fetched_tokens, 0u);
  EXPECT_GE(results->verified_tokens, results->all_hit_tokens());
  EXPECT_EQ(results->failed_copies, 0u);
  expect_adds_up(*results);
}

TEST(Replay, BytesComeBackRightFromFiles) {
  TempDirectory directory;
  ReplayOptions options = options_of(9'000, 12'000, 60'000);
  options.stack.page_size = 256;
  options.stack.store_at = "file:" + (directory / "store");
  options.stack.geometry = find_model("tiny")->geometry;
  const Result<ReplayResults> results = replay(*workload(WorkloadKind::chat, 200), options);
  ASSERT_TRUE(results.ok()) << results.error().message;
  EXPECT_GT(results->hit_tokens[Tier::store], 0u);
  EXPECT_GE(results->verified_tokens, results->all_hit_tokens());
}

TEST(KvRows, FindTheFirstTokenWithOtherBytes) {
  const auto arena = make_malloc_arena();
  Geometry geometry = find_model("tiny")->geometry;
  geometry.page_size = 4;
  const auto pool = *KvPool::create({.geometry = geometry, .capacity_tokens = 64}, *arena);
  KvRows rows(*pool, 4);
  std::vector<Token> tokens(16);
  std::vector<SlotId> slots;
  for (int i = 0; i < 16; ++i) {
    tokens[static_cast<std::size_t>(i)] = i;
    slots.push_back(SlotId{4 + i});
  }
  rows.set_key(tokens, "");
  rows.write(slots, 0, 16);
  EXPECT_FALSE(rows.find_wrong(slots, 0, 16));
  rows.set_key(tokens, "other");
  EXPECT_EQ(rows.find_wrong(slots, 0, 16), 0u) << "another namespace";
  tokens[9] = 99;
  rows.set_key(tokens, "");
  EXPECT_EQ(rows.find_wrong(slots, 0, 16), 8u) << "another prefix from that page on";
  tokens[9] = 9;
  rows.set_key(tokens, "");
  const PlaneMemory& plane = pool->planes()[1];
  plane.layers[1][3 * plane.page_stride + plane.token_stride + 5] ^= std::byte{1};
  EXPECT_EQ(rows.find_wrong(slots, 0, 16), 9u) << "one bit of one layer";
}

TEST(Replay, RequestsLongerThanTheDeviceKeepTheirBeginning) {
  ListTrace trace({{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}}, 16);
  const ReplayResults results = *replay(trace, options_of(64));
  EXPECT_EQ(results.truncated_requests, 2u);
  EXPECT_EQ(results.all_hit_blocks(), 4u);
  EXPECT_EQ(results.missed_blocks[Miss::no_room], 2u);
}

TEST(Replay, NamespacesShareNothing) {
  class Sessions final : public Trace {
   public:
    Result<bool> next(TraceRequest& request) override {
      if (made_ == 4) return false;
      request = {};
      request.blocks = {1, 2, 3};
      request.input_length = 48;
      request.session = made_ % 2 == 0 ? "a" : "b";
      ++made_;
      return true;
    }
    double progress() const override { return 0; }
    std::size_t block_tokens() const override { return 16; }

   private:
    int made_ = 0;
  };
  Sessions shared, apart;
  ReplayOptions options = options_of(1024);
  EXPECT_EQ(replay(shared, options)->all_hit_blocks(), 9u);
  options.namespace_per_session = true;
  const ReplayResults results = *replay(apart, options);
  EXPECT_EQ(results.all_hit_blocks(), 6u);
  EXPECT_EQ(results.missed_blocks[Miss::other_namespace], 3u);
}

TEST(TimedReplay, RequestsInFlightHoldTheirRoom) {
  ReplayOptions options = options_of(40'000, 40'000);
  options.mode = ReplayMode::timed;
  options.service = {.prefill_tokens_per_s = 2'000, .decode_tokens_per_s = 20, .max_running = 8};
  const Result<ReplayResults> timed = replay(*workload(WorkloadKind::chat, 400), options);
  ASSERT_TRUE(timed.ok()) << timed.error().message;
  EXPECT_EQ(timed->requests, 400u);
  EXPECT_GT(timed->max_running, 1u);
  EXPECT_LE(timed->max_running, 8u);
  EXPECT_EQ(timed->first_token_us.count(), 400u);
  EXPECT_GE(timed->first_token_us.percentile(50), timed->queue_us.percentile(50));
  EXPECT_GT(timed->last_finish_s, 0);
  expect_adds_up(*timed);
}

TEST(TimedReplay, ADeviceThatHoldsOneRequestStillServesAll) {
  ListTrace trace({{1, 2, 3}, {4, 5, 6}, {1, 2, 3}, {7, 8, 9}}, 16);
  ReplayOptions options = options_of(48);
  options.mode = ReplayMode::timed;
  options.service.speed = 1000;
  const ReplayResults results = *replay(trace, options);
  EXPECT_EQ(results.requests, 4u);
  EXPECT_EQ(results.max_running, 1u);
}

TEST(Replay, OptionsThatMakeNoSenseAreRefused) {
  for (const auto& change :
       std::vector<void (*)(ReplayOptions&)>{[](ReplayOptions& o) { o.stack.device_tokens = 8; },
                                             [](ReplayOptions& o) { o.stack.policy = "nonsense"; },
                                             [](ReplayOptions& o) { o.stack.store_tokens = 1000; },
                                             [](ReplayOptions& o) { o.stack.page_size = 12; },
                                             [](ReplayOptions& o) { o.service.speed = 0; },
                                             [](ReplayOptions& o) {
                                               o.stack.host_tokens = o.stack.store_tokens = 1600;
                                               o.stack.store_at = "nowhere:x";
                                             }}) {
    ListTrace trace({{1}}, 16);
    ReplayOptions options = options_of(1600);
    change(options);
    EXPECT_EQ(replay(trace, options).error().code, ErrorCode::invalid_argument);
  }
}

TEST(Replay, StopsWhenTold) {
  std::size_t calls = 0;
  const auto stop_at = [&](const ReplayResults& results) {
    ++calls;
    return results.requests < 10;
  };
  ReplayOptions options = options_of(20'000);
  EXPECT_EQ(replay(*workload(WorkloadKind::chat, 500), options, stop_at)->requests, 10u);
  options.mode = ReplayMode::timed;
  EXPECT_EQ(replay(*workload(WorkloadKind::chat, 500), options, stop_at)->requests, 10u);
  EXPECT_EQ(calls, 20u);
}

TEST(ReplayJson, HasTheResults) {
  const ReplayOptions options = options_of(9'000, 20'000, 40'000);
  const ReplayResults results = *replay(*workload(WorkloadKind::chat, 300), options);
  const auto json = to_json(results, options, {.files = {"x"}, .format = "hash_ids", .model = ""});
  EXPECT_EQ(json["requests"], results.requests);
  EXPECT_EQ(json["unique_blocks"], results.unique_blocks);
  EXPECT_EQ(json["hit_ratio_blocks"], results.hit_ratio_blocks());
  EXPECT_EQ(json["tiers"]["host"]["hit_blocks"], results.hit_blocks[Tier::host]);
  std::uint64_t matches = 0;
  for (const auto& bucket : json["operations"]["start"]["histogram"])
    matches += bucket["count"].get<std::uint64_t>();
  EXPECT_EQ(matches, 300u);
  EXPECT_LE(json["series"].size(), 256u);
}

TEST(Series, HasAtMost256PointsOfEqualLength) {
  ReplaySeries maker;
  for (std::uint64_t i = 1; i <= 10'000; ++i) maker.add({.end_request = i, .requests = 1});
  const std::vector<SeriesPoint> points = maker.take();
  ASSERT_LE(points.size(), 256u);
  ASSERT_GE(points.size(), 128u);
  EXPECT_EQ(points.back().end_request, 10'000u);
  for (std::size_t i = 0; i + 1 < points.size(); ++i)
    EXPECT_EQ(points[i].requests, points[0].requests);
}

TEST(Why, TellsEvictionsBlockByBlock) {
  ListTrace trace({{1, 2, 3}, {4, 5, 6}, {1, 2, 9}}, 16);
  ReplayOptions options = options_of(64);
  options.stack.remember_evicted = 100;
  const RequestStory story = *explain_request(trace, options, 3);
  ASSERT_EQ(story.blocks.size(), 3u);
  EXPECT_EQ(story.blocks[0].finding, Finding::on_device);
  EXPECT_EQ(story.blocks[0].to, 1u);
  EXPECT_EQ(story.blocks[1].finding, Finding::evicted);
  EXPECT_EQ(story.blocks[1].eviction->at_match, 2u);
  EXPECT_EQ(story.blocks[1].eviction->pressure_tokens, 32u);
  EXPECT_EQ(story.blocks[2].finding, Finding::never_seen);
}

TEST(Why, KnowsTheStoreFromTheHost) {
  ListTrace trace({{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}, {1, 2, 3, 4}}, 16);
  ReplayOptions options = options_of(64, 128, 1024);
  options.stack.remember_evicted = 100;
  const RequestStory story = *explain_request(trace, options, 4);
  ASSERT_EQ(story.blocks.size(), 1u);
  EXPECT_EQ(story.blocks[0].finding, Finding::on_host);
  EXPECT_TRUE(story.blocks[0].from_store);
}

TEST(Why, TellsOfATailShorterThanAPage) {
  TempDirectory directory;
  write_file(directory / "t", "{\"tokens\": [1, 2, 3, 4, 5, 6]}\n{\"tokens\": [1, 2]}\n");
  const auto trace = *TraceFile::open(directory / "t", {.block_tokens = 4});
  ReplayOptions options = options_of(64);
  options.block_tokens = options.stack.page_size = 4;
  const RequestStory story = *explain_request(*trace, options, 2);
  EXPECT_TRUE(story.blocks.empty());
  EXPECT_EQ(story.tail_tokens, 2u);
}

TEST(Why, ARequestThatIsNotThereIsAnError) {
  ListTrace trace({{1}}, 16);
  EXPECT_EQ(explain_request(trace, options_of(64), 5).error().code, ErrorCode::not_found);
  EXPECT_EQ(explain_request(trace, options_of(64), 0).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace pando::testing
