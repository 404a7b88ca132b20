// SPDX-License-Identifier: Apache-2.0
// The event publisher and real subscribers, in Python: both dialects field by field, one that comes
// late, one that loses messages, one that never reads.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "observe/event_encoder.h"
#include "pando/block_cache.h"
#include "pando/event_publisher.h"
#include "pando/inspect.h"
#include "support/python_child.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

using nlohmann::json;

class EventRouter : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!python_has("zmq, msgpack"))
      GTEST_SKIP() << kPython << " has no zmq or msgpack (python3-zmq, python3-msgpack)";
  }

  void open(EventPublisherOptions options = {}) {
    options.topic = "kv";
    dialect = options.dialect;
    publisher = *EventPublisher::create(options);
  }
  std::unique_ptr<PythonChild> router(bool connected = true) const {
    auto child = std::make_unique<PythonChild>(
        PANDO_SOURCE_DIR "/tests/observe/event_router.py",
        std::vector<std::string>{dialect == EventDialect::vllm ? "vllm" : "sglang",
                                 publisher->endpoint(), publisher->replay_endpoint(), "kv"});
    if (connected) child->ask("connect");
    return child;
  }

  /// Publishes, and applies the events to what a router should know.
  void publish(std::vector<KvEvent> events) {
    for (const KvEvent& event : events) apply(event);
    ASSERT_TRUE(publisher->publish(std::move(events)));
  }
  void apply(const KvEvent& e) {
    if (e.kind == KvEvent::Kind::cleared) return expected.clear();
    const std::string tier = e.tier == Tier::device          ? "GPU"
                             : dialect == EventDialect::vllm ? "CPU"
                                                             : "CPU_PINNED";
    const auto id = [&](const PageHash& hash) {
      return dialect == EventDialect::vllm ? json(vllm_block_id(hash, e.hash_bytes))
                                           : json(sglang_block_id(hash));
    };
    std::span<const Token> rest = e.tokens;
    json parent = e.parent ? id(*e.parent) : json(nullptr);
    for (const PageHash& hash : e.hashes) {
      if (e.kind == KvEvent::Kind::removed) {
        expected.erase({tier, id(hash)});
        continue;
      }
      const auto own = rest.first(e.block_size);
      expected[{tier, id(hash)}] = {parent, Tokens(own.begin(), own.end())};
      rest = rest.subspan(e.block_size);
      parent = id(hash);
    }
  }
  json expected_state() const {
    json state = json::array();
    for (const auto& [place, block] : expected)
      state.push_back({place.first, place.second, block.first, block.second});
    return state;
  }
  std::uint64_t end() const {
    publisher->flush();
    return publisher->stats().next_sequence;
  }
  json until_end(PythonChild& child) { return child.ask("until " + std::to_string(end())); }

  /// A few requests on a small device and host; their events.
  std::vector<KvEvent> work(TieredCache& cache, std::size_t num_puts) {
    for (std::size_t i = 0; i < num_puts; ++i) {
      const auto family = static_cast<Token>(1000 * random.below(5));
      cache.put(tokens(4 * (1 + random.below(6)), family) +
                    tokens(4 * random.below(3), 500 + family + static_cast<Token>(random.below(3))),
                random.below(4) == 0 ? make_namespace({.salt = "s"}) : "");
      if (random.below(3) == 0) cache->evict(random.below(24));
      cache.settle();
    }
    return cache->take_events();
  }

  EventDialect dialect = EventDialect::sglang;
  std::unique_ptr<EventPublisher> publisher;
  std::map<std::pair<std::string, json>, std::pair<json, Tokens>> expected;
  Random random{7};
};

const TierSetup kEvents{.page_size = 4, .cache = {.events = true}};

// ---- Field by field ----------------------------------------------------------------------------

TEST_F(EventRouter, ReadsTheDialectOfSglang) {
  open({.dialect = EventDialect::sglang, .data_parallel_rank = 2});
  const auto child = router();
  TestCache cache(4, {.events = true});
  cache.put(tokens(8));
  publish(cache->take_events());
  cache.put(tokens(8) + tokens(4, 50));
  cache.put(tokens(4), make_namespace({.salt = "abc"}));
  publish(cache->take_events());
  cache->evict(4);
  publish(cache->take_events());
  cache->reset().value();
  publish(cache->take_events());
  const json batches = child->ask("record " + std::to_string(end())).at("batches");
  ASSERT_EQ(batches.size(), 4u);
  for (const json& batch : batches) EXPECT_EQ(batch.at("rank"), 2);
  // The ids are those of docs/formats.md.
  const std::int64_t first = -3488128144981237669, second = 5674439469042975057;
  EXPECT_EQ(batches[0].at("events"),
            json::array({{"BlockStored", {first, second}, nullptr, tokens(8), 4, nullptr, "GPU"}}));
  const std::int64_t third = block_id((*hash_pages(tokens(8) + tokens(4, 50), 4))[2]);
  const std::int64_t salted = -5098450832388590940;
  EXPECT_EQ(batches[1].at("events"),
            json::array({{"BlockStored", {third}, second, tokens(4, 50), 4, nullptr, "GPU"},
                         {"BlockStored",
                          {salted},
                          nullptr,
                          tokens(4),
                          4,
                          nullptr,
                          "GPU",
                          {{"cache_salt", "abc"}}}}));
  EXPECT_EQ(batches[2].at("events"), json::array({{"BlockRemoved", {third}, "GPU"}}));
  EXPECT_EQ(batches[3].at("events"), json::array({json::array({"AllBlocksCleared"})}));
}

TEST_F(EventRouter, ReadsTheDialectOfVllm) {
  open({.dialect = EventDialect::vllm});
  const auto child = router();
  auto cache = *BlockCache::create({.num_blocks = 4,
                                    .groups = {{.block_size = 4}},
                                    .hash = {.function = HashFunction::sha256_cbor},
                                    .events = true});
  const auto run = [&](const Tokens& prompt, RequestKeys keys = {}) {
    BlockRequest request = *cache->start(prompt, std::move(keys));
    cache->allocate(request, prompt.size()).value();
    cache->checkpoint(request, prompt.size()).value();
    cache->finish(request);
    publish(cache->take_events());
  };
  run(tokens(8));
  run(tokens(4, 50), {.lora = "sql", .salt = "s"});
  run(tokens(12, 70));
  const json batches = child->ask("record " + std::to_string(end())).at("batches");
  ASSERT_EQ(batches.size(), 3u);
  // The first block's hash is that of docs/formats.md.
  const std::uint64_t first = 0x84b146b151d55111;
  const json& stored = batches[0].at("events").at(0);
  ASSERT_EQ(stored.at("block_hashes").size(), 2u);
  const json expected_stored{{"type", "BlockStored"},
                             {"block_hashes", {first, stored.at("block_hashes").at(1)}},
                             {"parent_block_hash", nullptr},
                             {"token_ids", tokens(8)},
                             {"block_size", 4},
                             {"lora_id", nullptr},
                             {"medium", "GPU"},
                             {"lora_name", nullptr}};
  EXPECT_EQ(stored, expected_stored);
  const json& keyed = batches[1].at("events").back();
  EXPECT_EQ(keyed.at("lora_name"), "sql");
  EXPECT_EQ(keyed.at("extra_keys"), json::array({{"sql", "s"}}));
  const json& removed = batches[2].at("events").at(0);
  EXPECT_EQ(removed.at("type"), "BlockRemoved");
  EXPECT_EQ(removed.at("medium"), "GPU");
  EXPECT_EQ(removed.size(), 3u);
}

// ---- Keeping track -----------------------------------------------------------------------------

TEST_F(EventRouter, KnowsExactlyWhatIsCachedOnBothTiers) {
  for (const EventDialect each : {EventDialect::sglang, EventDialect::vllm}) {
    expected.clear();
    open({.dialect = each});
    const auto child = router();
    TieredCache cache(kEvents);
    for (int i = 0; i < 20; ++i) publish(work(cache, 5));
    const json told = until_end(*child);
    EXPECT_EQ(told.at("state"), expected_state());
    EXPECT_EQ(told.at("orphans"), 0);
    EXPECT_GT(expected.size(), 10u);
    EXPECT_EQ(publisher->stats().mirrored_blocks, expected.size());
  }
}

TEST_F(EventRouter, ThatComesLateIsRightAfterASnapshot) {
  open({.max_replay_batches = 2});
  TieredCache cache(kEvents);
  for (int i = 0; i < 10; ++i) publish(work(cache, 5));
  const auto child = router();
  // Live events come before, while and after the snapshot is made.
  publish(work(cache, 1));
  child->tell("snapshot");
  publish(work(cache, 1));
  EXPECT_GE(child->answer().at("next"), 10);
  for (int i = 0; i < 10; ++i) publish(work(cache, 5));
  const json told = until_end(*child);
  EXPECT_EQ(told.at("state"), expected_state());
  EXPECT_EQ(told.at("orphans"), 0) << "parents come first";
  EXPECT_GT(expected.size(), 10u);
}

TEST_F(EventRouter, SnapshotsOfNothingAndOfMuchAreWhole) {
  open();
  const auto child = router(/*connected=*/false);
  json told = child->ask("snapshot");
  EXPECT_EQ(told.at("next"), 0);
  EXPECT_EQ(told.at("batches"), 1);
  TestCache cache(1, {.events = true}, 40000);
  for (Token i = 0; i < 40; ++i)
    cache.put(tokens(400 + 10 * static_cast<std::size_t>(i), 1000 * i));
  publish(cache->take_events());
  publisher->flush();
  told = child->ask("snapshot");
  EXPECT_EQ(told.at("next"), 1);
  EXPECT_GT(told.at("batches"), 2);
  told = child->ask("until 1");
  EXPECT_EQ(told.at("state"), expected_state());
  EXPECT_EQ(told.at("orphans"), 0);
}

TEST_F(EventRouter, ThatLosesMessagesGetsThemAgain) {
  open();
  const auto child = router();
  TieredCache cache(kEvents);
  publish(work(cache, 5));
  (void)until_end(*child);
  child->ask("lose 3");
  for (int i = 0; i < 8; ++i) publish(work(cache, 5));
  const json told = until_end(*child);
  EXPECT_EQ(told.at("state"), expected_state());
  EXPECT_EQ(told.at("lost"), 3);
  EXPECT_GE(told.at("replays"), 1);
  EXPECT_EQ(told.at("snapshots"), 0);
}

TEST_F(EventRouter, ThatLosesMoreThanIsKeptTakesASnapshot) {
  open({.max_replay_batches = 2});
  const auto child = router();
  TieredCache cache(kEvents);
  publish(work(cache, 5));
  (void)until_end(*child);
  child->ask("lose 6");
  for (int i = 0; i < 8; ++i) publish(work(cache, 5));
  const json told = until_end(*child);
  EXPECT_EQ(told.at("state"), expected_state());
  EXPECT_GE(told.at("snapshots"), 1);
}

TEST_F(EventRouter, IsToldAgainWhatADropHasCost) {
  open({.max_queued_bytes = 4096});
  const auto child = router();
  TieredCache cache(kEvents);
  publish(work(cache, 1));
  (void)until_end(*child);
  (void)work(cache, 50);  // never published
  std::vector<KvEvent> large = cache->inspect().events_of_all();
  for (int i = 0; i < 3; ++i) large.insert(large.end(), large.begin(), large.end());
  EXPECT_FALSE(publisher->publish(large));
  EXPECT_EQ(publisher->stats().dropped_batches, 1u);
  json told = until_end(*child);
  EXPECT_EQ(told.at("state"), json::array()) << "nothing is believed any more";
  EXPECT_GE(told.at("snapshots"), 1) << "the gap was seen, and nobody can fill it";

  std::vector<KvEvent> all = cache->inspect().events_of_all();
  expected.clear();
  for (const KvEvent& event : all) apply(event);
  publisher->restate(std::move(all));
  told = until_end(*child);
  EXPECT_EQ(told.at("state"), expected_state());
  EXPECT_GT(expected.size(), 5u);
  publish(work(cache, 1));
  EXPECT_EQ(until_end(*child).at("state"), expected_state());
}

TEST_F(EventRouter, RequestsThatMakeNoSenseEndAtOnce) {
  open({.snapshots = false});
  const auto child = router(/*connected=*/false);
  TestCache cache(1, {.events = true});
  cache.put(tokens(4));
  publish(cache->take_events());
  publisher->flush();
  EXPECT_EQ(child->ask("raw 00").at("batches"), 0);
  EXPECT_EQ(child->ask("raw 0000000000000000").at("batches"), 1);
  EXPECT_EQ(child->ask("raw ffffffffffffffff").at("batches"), 0);
  EXPECT_EQ(child->ask("raw 70616e646f2d736e617073686f742d7631").at("batches"), 0)
      << "switched off";
  EXPECT_EQ(publisher->stats().refused_requests, 1u);
}

// ---- Not reading -------------------------------------------------------------------------------

/// Seconds for `num` batches of a few blocks.
double publish_many(EventPublisher& publisher, const std::vector<KvEvent>& events, int num) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < num; ++i) {
    EXPECT_TRUE(publisher.publish(events));
    if (i % 256 == 0) publisher.flush();  // the queue stays short: this times the thread too
  }
  publisher.flush();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST_F(EventRouter, ThatNeverReadsSlowsNobodyDown) {
  TestCache cache(4, {.events = true});
  cache.put(tokens(64));
  const std::vector<KvEvent> events = cache->take_events();
  constexpr int kBatches = 20'000;
  open({.max_unsent_batches = 100});
  const double alone = publish_many(*publisher, events, kBatches);

  open({.max_unsent_batches = 100});
  const auto asleep = router();  // subscribes, and reads no more
  publisher->publish(events);
  const double watched = publish_many(*publisher, events, kBatches);
  EXPECT_EQ(publisher->stats().published_batches, kBatches + 1u);
  EXPECT_EQ(publisher->stats().dropped_batches, 0u);
  EXPECT_LT(watched, 10 * alone + 1) << "alone: " << alone << " s";
}

}  // namespace
}  // namespace pando::testing
