// SPDX-License-Identifier: Apache-2.0
// The parts of the event publisher without a subscriber: bytes, the mirror against a naive one,
// endpoints, the bounded queue, clients that ask and do not read.
#include "pando/event_publisher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "base/hex.h"
#include "base/random.h"
#include "observe/block_mirror.h"
#include "observe/event_encoder.h"
#include "observe/event_replies.h"
#include "pando/inspect.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_hex(text, static_cast<std::uint8_t>(byte));
  return text;
}

std::vector<KvEvent> events_of(const Tokens& key, std::string_view ns = {}) {
  TestCache cache(4, {.events = true}, key.size() + 8);
  cache.put(key, ns);
  return cache->take_events();
}

// Written by hand from the specification of msgpack.
TEST(EventBytes, OfSglang) {
  EXPECT_EQ(hex(encode_batch(EventDialect::sglang, 1.5, events_of(tokens(4)), 3)),
            "93"                  // [
            "cb3ff8000000000000"  // 1.5
            "91"                  // [
            "97"                  // [
            "ab426c6f636b53746f726564"
            "91d3cf97adeedb59e05b"  // [first 8 bytes of the hash]
            "c0"
            "9401020304"
            "04"
            "c0"
            "a3475055"
            "03");
}

TEST(EventBytes, OfVllm) {
  KvEvent removed;
  removed.kind = KvEvent::Kind::removed;
  removed.tier = Tier::host;
  removed.hashes = {*chain_start("x")};
  removed.hash_bytes = 16;
  std::string id;
  for (std::size_t i = 8; i < 16; ++i) append_hex(id, removed.hashes[0][i]);
  EXPECT_EQ(hex(encode_batch(EventDialect::vllm, 1.5, {&removed, 1}, 0)),
            "93cb3ff80000000000009183"
            "a474797065ac426c6f636b52656d6f766564"
            "ac626c6f636b5f68617368657391cf" +
                id +
                "a66d656469756da3435055"
                "00");
}

// ---- The mirror --------------------------------------------------------------------------------

/// What a listener of stored events knows: by tier and hash, the parent and the tokens.
struct Listener {
  using Place = std::pair<Tier, PageHash>;
  void hear(const KvEvent& e) {
    std::optional<PageHash> parent = e.parent;
    for (std::size_t i = 0; i < e.hashes.size(); ++i) {
      if (parent && !known.contains({e.tier, *parent})) ++orphans;
      const auto from = e.tokens.begin() + static_cast<std::ptrdiff_t>(i * e.block_size);
      const std::size_t overlap = e.tokens.size() - e.hashes.size() * e.block_size;
      known[{e.tier, e.hashes[i]}] = {
          parent, Tokens(from, from + static_cast<std::ptrdiff_t>(e.block_size + overlap))};
      parent = e.hashes[i];
    }
  }
  void apply(const KvEvent& e) {
    if (e.kind == KvEvent::Kind::stored) return hear(e);
    if (e.kind == KvEvent::Kind::cleared) known.clear();
    for (const PageHash& hash : e.hashes) known.erase({e.tier, hash});
  }
  std::map<Place, std::pair<std::optional<PageHash>, Tokens>> known;
  std::size_t orphans = 0;
};

TEST(BlockMirrorTest, TellsWhatTheEventsToldInAnyMixture) {
  for (const bool bigram : {false, true}) {
    TestCache cache(4, {.bigram = bigram, .events = true}, 256);
    BlockMirror mirror;
    Listener truth;
    Random random(bigram ? 4 : 3);
    for (int step = 0; step < 300; ++step) {
      const auto family = static_cast<Token>(1000 * random.below(4));
      const std::size_t length = 5 + random.below(40);
      if (cache.allocator->available() < length + 16) cache->evict(length + 16);
      cache.put(tokens(length, family) + tokens(5, static_cast<Token>(random.below(3))),
                random.below(3) == 0 ? "ns" : "");
      if (random.below(5) == 0) cache->evict(random.below(100));
      if (random.below(100) == 0) cache->reset().value();
      for (const KvEvent& event : cache->take_events()) {
        mirror.apply(event);
        truth.apply(event);
      }
      Listener again, from_cache;
      mirror.state(1 + random.below(8), [&](const KvEvent& event) { again.hear(event); });
      ASSERT_EQ(again.known, truth.known);
      ASSERT_EQ(again.orphans, 0u);
      for (const KvEvent& event : cache->inspect().events_of_all()) from_cache.hear(event);
      ASSERT_EQ(from_cache.known, truth.known);
      ASSERT_EQ(from_cache.orphans, 0u);
    }
  }
}

TEST(BlockMirrorTest, KeepsExtraKeysGroupsAndHashLengths) {
  KvEvent event = events_of(tokens(12), make_namespace({.lora = "a"}))[0];
  event.group = 1;
  event.hash_bytes = 16;
  event.extra_keys = {{"a", ItemKey{"img", -2}}, {}, {"a"}};
  BlockMirror mirror;
  mirror.apply(event);
  std::vector<KvEvent> told;
  mirror.state(100, [&](KvEvent e) { told.push_back(std::move(e)); });
  EXPECT_EQ(told, std::vector{event});
  KvEvent other = event;
  other.kind = KvEvent::Kind::removed;
  other.group = 0;
  mirror.apply(other);
  EXPECT_EQ(mirror.size(), 3u);
  other.group = 1;
  mirror.apply(other);
  EXPECT_EQ(mirror.size(), 0u);
}

// ---- Endpoints ---------------------------------------------------------------------------------

TEST(EventPublisherTest, TakesFreePortsOfLoopback) {
  const auto publisher = *EventPublisher::create();
  EXPECT_TRUE(publisher->endpoint().starts_with("tcp://127.0.0.1:"));
  EXPECT_TRUE(publisher->replay_endpoint().starts_with("tcp://127.0.0.1:"));
  EXPECT_NE(publisher->endpoint(), publisher->replay_endpoint());
  EXPECT_EQ(publisher->endpoint().find('*'), std::string::npos);
}

TEST(EventPublisherTest, RanksHavePortsOfTheirOwn) {
  const auto zero = *EventPublisher::create({.replay_endpoint = ""});
  const std::string taken = zero->endpoint();
  EXPECT_TRUE(fails(EventPublisher::create({.endpoint = taken}), ErrorCode::io_error, taken));
  const int port = std::stoi(taken.substr(taken.rfind(':') + 1));
  const auto two = EventPublisher::create({.data_parallel_rank = 2, .endpoint = taken});
  if (!two.ok()) GTEST_SKIP() << "somebody has it: " << two.error().message;
  EXPECT_EQ((*two)->endpoint(), "tcp://127.0.0.1:" + std::to_string(port + 2));
}

TEST(EventPublisherTest, BadOptionsAreRefused) {
  const auto refused = [](EventPublisherOptions options, std::string_view part) {
    return fails(EventPublisher::create(options), ErrorCode::invalid_argument, part);
  };
  EXPECT_TRUE(refused({.endpoint = ""}, "endpoint"));
  EXPECT_TRUE(refused({.endpoint = "tcp://127.0.0.1:port"}, "port"));
  EXPECT_TRUE(refused({.data_parallel_rank = 9, .endpoint = "tcp://127.0.0.1:65530"}, "65530"));
  EXPECT_TRUE(refused({.max_queued_bytes = 0}, "max_queued_bytes"));
  EXPECT_FALSE(EventPublisher::create({.endpoint = "carrier-pigeon://roof"}).ok());
}

// ---- Queue and clients -------------------------------------------------------------------------

TEST(EventPublisherTest, NoEventsAreNoBatch) {
  const auto publisher = *EventPublisher::create();
  EXPECT_TRUE(publisher->publish({}));
  publisher->flush();
  EXPECT_EQ(publisher->stats().next_sequence, 0u);
}

TEST(EventPublisherTest, DropsLeaveNumbersOut) {
  const auto publisher = *EventPublisher::create({.max_queued_bytes = 1});
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(publisher->publish(events_of(tokens(4))));
  publisher->flush();
  const EventPublisherStats stats = publisher->stats();
  EXPECT_EQ(stats.dropped_batches, 3u);
  EXPECT_GE(stats.published_batches, 1u) << "AllBlocksCleared";
  EXPECT_EQ(stats.next_sequence, 3 + stats.published_batches);
  publisher->restate(events_of(tokens(8)));
  publisher->flush();
  EXPECT_EQ(publisher->stats().mirrored_blocks, 2u);
}

TEST(EventPublisherTest, ClientsThatAskAndNeverReadAreNoTrouble) {
  const auto publisher = *EventPublisher::create();
  EXPECT_TRUE(publisher->publish(events_of(tokens(4000))));
  ZmqContext context;
  std::vector<std::unique_ptr<ZmqSocket>> clients;
  for (int i = 0; i < 100; ++i) {
    auto& client = clients.emplace_back(std::make_unique<ZmqSocket>(context, ZMQ_DEALER));
    client->set(ZMQ_LINGER, 0);
    client->set(ZMQ_RCVHWM, 1);
    ASSERT_EQ(zmq_connect(client->get(), publisher->replay_endpoint().c_str()), 0);
    for (int n = 0; n < 3; ++n) (void)client->send({kSnapshotRequest});
  }
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(publisher->publish(events_of(tokens(4))));
  publisher->flush();
  EXPECT_EQ(publisher->stats().published_batches, 2001u);
}

// The owner publishes while others look and ask; what is queued at the end is sent.
TEST(EventPublisherTest, ThreadsMayLookWhileOnePublishes) {
  const auto publisher = *EventPublisher::create({.max_queued_bytes = 1 << 20});
  std::atomic<bool> done = false;
  std::thread looker([&] {
    while (!done) {
      const EventPublisherStats stats = publisher->stats();
      EXPECT_GE(stats.next_sequence, stats.published_batches);
      publisher->flush();
    }
  });
  std::thread asker([&] {
    ZmqContext context;
    ZmqSocket client(context, ZMQ_DEALER);
    client.set(ZMQ_LINGER, 0);
    ASSERT_EQ(zmq_connect(client.get(), publisher->replay_endpoint().c_str()), 0);
    while (!done) {
      (void)client.send({kSnapshotRequest});
      zmq_pollitem_t item{client.get(), 0, ZMQ_POLLIN, 0};
      zmq_poll(&item, 1, 10);
      while (client.receive()) {
      }
    }
  });
  std::size_t accepted = 0;
  for (Token i = 0; i < 2000; ++i) {
    if (publisher->publish(events_of(tokens(16, i)))) ++accepted;
    if (i % 500 == 0) publisher->restate(events_of(tokens(16, i)));
  }
  publisher->flush();
  done = true;
  looker.join();
  asker.join();
  EXPECT_EQ(accepted + publisher->stats().dropped_batches, 2000u);
}

}  // namespace
}  // namespace pando::testing
