// SPDX-License-Identifier: Apache-2.0
// Bad input to PrefixCache: each is refused with a code and a message that tells what was wrong,
// and nothing changes. Broken contracts stop at a check that names what is broken.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"
#include "support/hybrid_fixture.h"

namespace pando::testing {
namespace {

constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;

/// A cache of page size 4 with one key of two pages, to see that nothing changes.
class BadInput : public ::testing::Test {
 protected:
  BadInput() {
    cache.put(tokens(8));
    before.emplace(cache);
  }
  ~BadInput() override {
    EXPECT_EQ(Snapshot(cache), before);
    EXPECT_TRUE(cache.closes(held));
  }
  /// Slots that the test keeps.
  Slots take(std::size_t n) {
    held += (n + 3) / 4 * 4;
    const Slots slots = cache.take(n);
    before.emplace(cache);
    return slots;
  }

  TestCache cache{4, {}, 64};
  std::optional<Snapshot> before;
  std::size_t held = 0;
};

// ---- Options.

TEST(BadOptions, PoliciesThatNobodyKnows) {
  const auto allocator = *make_token_allocator(64);
  const auto named = make_policy("lur");
  EXPECT_TRUE(
      fails(PrefixCache::create({.policy = "lur"}, *allocator), kInvalid, named.error().message));
  EXPECT_TRUE(PrefixCache::create({.policy = "lur"}, *allocator, *make_policy("fifo")).ok())
      << "a policy that is given wins over the name";
}

TEST(BadOptions, PageSizesThatAreNoPowerOfTwo) {
  const SlotSink sink = [](std::span<const SlotId>) {};
  for (const std::size_t page_size : {0u, 3u, 48u, 1u << 21}) {
    const EngineSlots slots{
        .max_slots = std::size_t{1} << 22, .page_size = page_size, .free = sink};
    EXPECT_TRUE(
        fails(PrefixCache::create({}, slots), kInvalid,
              "EngineSlots::page_size " + std::to_string(page_size) + " is not a power of two"));
  }
}

TEST(BadOptions, ASinkThatIsEmpty) {
  EXPECT_TRUE(fails(PrefixCache::create({}, EngineSlots{.max_slots = 64, .free = {}}), kInvalid,
                    "free is empty"));
}

TEST(BadOptions, ASinkWithoutASinglePage) {
  const SlotSink sink = [](std::span<const SlotId>) {};
  EXPECT_TRUE(
      fails(PrefixCache::create({}, EngineSlots{.max_slots = 31, .page_size = 16, .free = sink}),
            kInvalid, "max_slots 31"));
  EXPECT_TRUE(
      PrefixCache::create({}, EngineSlots{.max_slots = 32, .page_size = 16, .free = sink}).ok());
}

// ---- Keys.

TEST_F(BadInput, MatchOfAnEmptyKey) {
  EXPECT_TRUE(fails(cache->paths().match({}), kInvalid, "the key is empty"));
}

TEST_F(BadInput, MatchIntoABufferThatIsTooSmall) {
  Slots out(7);
  EXPECT_TRUE(fails(cache->paths().match({tokens(8)}, out), kInvalid, "room for 7 slots"));
}

TEST_F(BadInput, InsertOfAnEmptyKey) {
  EXPECT_TRUE(fails(cache->paths().insert({}, {}), kInvalid, "a key of 0 tokens"));
}

TEST_F(BadInput, InsertOfLessThanAPage) {
  const Slots slots = take(3);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(3)}, slots), kInvalid,
                    "3 tokens does not fill a page of 4"));
}

TEST(BadInputBigram, InsertOfAPageWithoutTheTokenAfterIt) {
  TestCache cache(4, {.bigram = true});
  const Slots slots = cache.take(4);
  EXPECT_TRUE(
      fails(cache->paths().insert({tokens(4)}, slots), kInvalid, "does not fill a page of 4"));
  EXPECT_TRUE(cache.closes(4));
}

TEST_F(BadInput, NegativeTokensInAMatch) {
  EXPECT_TRUE(
      fails(cache->paths().match({Tokens{1, 2, -3, 4}}), kInvalid, "token -3 at position 2"));
  EXPECT_TRUE(
      fails(cache->paths().match({tokens(4) + Tokens{5, -6}}), kInvalid, "token -6 at position 5"));
}

TEST_F(BadInput, NegativeTokensInAnInsert) {
  const Slots slots = take(12);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(11) + Tokens{-1}}, slots), kInvalid,
                    "token -1 at position 11"));
}

TEST(BadInputBigram, NegativeTokenInTheLastPair) {
  TestCache cache(4, {.bigram = true});
  cache.put(tokens(5));
  const Slots slots = cache.take(5);
  const Tokens key{1, 2, 3, 4, -5};
  const Snapshot before(cache);
  EXPECT_TRUE(fails(cache->paths().insert({key}, slots), kInvalid, "token -5 at position 4"));
  EXPECT_TRUE(fails(cache->paths().match({key}), kInvalid, "token -5 at position 4"));
  EXPECT_EQ(Snapshot(cache), before);
}

// ---- Slots.

TEST_F(BadInput, SlotsThatDoNotMatchTheKeyLength) {
  const Slots slots = take(8);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(7)}, slots), kInvalid, "8 slots for 7 tokens"));
  EXPECT_TRUE(fails(cache->paths().insert({tokens(9)}, slots), kInvalid, "8 slots for 9 tokens"));
}

TEST_F(BadInput, SlotsThatAreNotWholePages) {
  Slots slots = take(8);
  std::swap(slots[5], slots[6]);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(8, 50)}, slots), kInvalid,
                    "at position 4 does not begin a whole page in order"));
}

TEST_F(BadInput, SlotsOutOfRange) {
  EXPECT_TRUE(fails(cache->paths().insert({tokens(4, 50)}, slot_range(68, 72)), kInvalid,
                    "slot 68 at position 0"));
  EXPECT_TRUE(
      fails(cache->paths().insert({tokens(4, 50)}, slot_range(0, 4)), kInvalid, "out of range"));
  EXPECT_TRUE(
      fails(cache->paths().insert({tokens(4, 50)}, slot_range(-4, 0)), kInvalid, "slot -4"));
}

TEST_F(BadInput, SlotsThatAreFree) {
  EXPECT_TRUE(fails(cache->paths().insert({tokens(4, 50)}, slot_range(40, 44)), kInvalid,
                    "slot 40 at position 0 is free"));
}

TEST_F(BadInput, SlotsThatTheTreeHasAlready) {
  const Slots slots = cache->inspect().all_slots();
  EXPECT_TRUE(
      fails(cache->paths().insert({tokens(8, 50)}, slots), kInvalid, "cannot be inserted twice"));
}

TEST_F(BadInput, OneSlotTwiceInAKey) {
  const Slots slots = take(4);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(8, 50)}, slots + slots), kInvalid,
                    "at position 4 is the tree's already"));
}

TEST_F(BadInput, OneSlotAsDuplicateAndAsNew) {
  const Slots slots = take(4);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(4) + tokens(4, 50)}, slots + slots), kInvalid,
                    "cannot be inserted twice"));
}

TEST_F(BadInput, MoreOwnedByTheTreeThanItHas) {
  const Slots slots = take(12);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(12)}, slots, {.owned_by_tree = 12}), kInvalid,
                    "which holds 8 tokens of this key"));
}

TEST_F(BadInput, OwnedByTheTreeInsideAPage) {
  const Slots slots = take(12);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(12)}, slots, {.owned_by_tree = 6}), kInvalid,
                    "multiple of the page size 4"));
}

TEST_F(BadInput, SlotsSaidToBeTheTreesThatAreNot) {
  const Slots slots = take(12);
  EXPECT_TRUE(fails(cache->paths().insert({tokens(12)}, slots, {.owned_by_tree = 8}), kInvalid,
                    "the tree's"));
}

// ---- Capacity.

TEST_F(BadInput, MoreTokensThanThePool) {
  Request request = *cache->start(tokens(100, 500));
  EXPECT_TRUE(fails(cache->allocate(request), ErrorCode::out_of_capacity, "needs 100 tokens"));
  EXPECT_TRUE(request.slots().empty());
}

// ---- Handles.

TEST_F(BadInput, AForeignMatch) {
  TestCache other;
  other.put(tokens(4));
  EXPECT_TRUE(
      fails(cache->paths().lock(other.match(tokens(4))), ErrorCode::stale_handle, "another cache"));
}

// ---- Requests.

TEST_F(BadInput, MoreComputedThanARequestHasSlotsOrTokensFor) {
  Request request = *cache->start(tokens(8, 50));
  cache->allocate(request, 4).value();
  for (const std::size_t computed : {5u, 9u}) {
    EXPECT_TRUE(fails(cache->checkpoint(request, computed), kInvalid,
                      "are said to be computed; the request has 8 tokens and 4 slots"));
    EXPECT_TRUE(fails(cache->finish(request, computed), kInvalid, "are said to be computed"));
  }
  EXPECT_EQ(request.slots().size(), 4u);
  cache->allocate(request, 12).value();
  EXPECT_TRUE(fails(cache->finish(request, 9), kInvalid, "has 8 tokens and 12 slots"));
}

TEST_F(BadInput, ANegativeToken) {
  const Tokens key{50, 51, -52, 53};
  EXPECT_TRUE(fails(cache->start(key, {.recompute = SIZE_MAX}), kInvalid,
                    "start: token -52 at position 2"));
  Request request = *cache->start(tokens(4, 50));
  EXPECT_TRUE(fails(request.append(Token{-1}), kInvalid, "append: token -1 at position 0"));
  EXPECT_EQ(request.tokens().size(), 4u);
}

TEST_F(BadInput, ARequestThatHasFinishedOrIsAnothers) {
  TestCache other;
  Request request = *other->start(tokens(4));
  EXPECT_TRUE(fails(cache->allocate(request), ErrorCode::stale_handle, "is of another cache"));
  EXPECT_TRUE(fails(cache->finish(request), ErrorCode::stale_handle, "is of another cache"));
  other->allocate(request).value();
  other->finish(request).value();
  EXPECT_TRUE(fails(other->allocate(request), ErrorCode::stale_handle, "has finished"));
  EXPECT_TRUE(fails(other->checkpoint(request), ErrorCode::stale_handle, "has finished"));
  EXPECT_TRUE(fails(other->finish(request), ErrorCode::stale_handle, "has finished"));
  other->abandon(request);  // holds nothing: nothing happens
}

// ---- Broken contracts.

TEST(PrefixCacheDeathTest, DestroyedWhileLeasesAreHeld) {
  TestCache cache;
  cache.put(tokens(4));
  const Lease lease = cache.hold(tokens(4));
  EXPECT_DEATH(cache.cache.reset(), "PrefixCache destroyed while 1 leases are held");
}

TEST(PrefixCacheDeathTest, SlotsOfTheTreeFreedBehindItsBack) {
  EXPECT_DEATH(
      {
        TestCache cache;
        cache.put(tokens(4));
        cache.allocator->free(cache->inspect().all_slots());
        cache->evict(4);
      },
      "free of page [0-9]+: it is already free");
}

TEST(PrefixCacheDeathTest, DuplicatesFreedAgainByTheCaller) {
  TestCache cache(4);
  cache.put(tokens(4));
  const Slots slots = cache.take(4);
  ASSERT_EQ(cache->paths().insert({tokens(4)}, slots)->freed, 4u);
  EXPECT_DEATH(cache.allocator->free(slots), "free of slot 8: its page 2 is already free");
}

TEST(PrefixCacheDeathTest, DestroyedWhileARequestRuns) {
  TestCache cache;
  const Request request = *cache->start(tokens(4));
  EXPECT_DEATH(cache.cache.reset(), "PrefixCache destroyed while 1 requests run");
}

TEST(PrefixCacheDeathTest, ProbeOfABatchWithoutRoomForTheAnswers) {
  TestCache cache;
  const Tokens key = tokens(4);
  const Key keys[] = {{key}, {key}};
  std::size_t lengths[1];
  EXPECT_DEATH(cache->paths().probe(keys, lengths), "2 keys, room for 1 lengths");
}

TEST(PrefixCacheDeathTest, TheValueOfAnErrorNamesTheError) {
  TestCache cache;
  EXPECT_DEATH((void)cache->paths().match({}).value(), "the key is empty \\(invalid argument\\)");
}

// ---- Components --------------------------------------------------------------------------------

TEST(BadComponents, AWindowOfNoTokensIsRefused) {
  for (const std::size_t page_size : {1, 16}) {
    auto allocator = *WindowAllocator::create(
        {.full_tokens = 256, .window_tokens = 128, .page_size = page_size});
    EXPECT_TRUE(
        fails(PrefixCache::create({.window = 0}, *allocator), kInvalid, "a window of 0 tokens"));
    EXPECT_TRUE(fails(PrefixCache::create({.disabled = true, .window = 0}, *allocator), kInvalid,
                      "a window of 0 tokens"));
    EXPECT_TRUE(PrefixCache::create({.window = 1}, *allocator).ok());
  }
}

TEST(BadComponents, AWindowPoolLargerThanTheFullPoolIsRefused) {
  EXPECT_TRUE(fails(WindowAllocator::create({.full_tokens = 64, .window_tokens = 65}), kInvalid,
                    "larger than the full pool"));
}

TEST(BadComponents, OptionsAndAllocatorsMustFitTogether) {
  auto paged = *PagedAllocator::create({.capacity_tokens = 64});
  auto window = *WindowAllocator::create({.full_tokens = 64, .window_tokens = 64});
  auto states = *StateAllocator::create(4);
  EXPECT_TRUE(
      fails(PrefixCache::create({.window = 4}, *paged), kInvalid, "needs a WindowAllocator"));
  EXPECT_TRUE(fails(PrefixCache::create({}, *window), kInvalid, "how long the window is"));
  EXPECT_TRUE(fails(PrefixCache::create({.state = StateOptions{}}, *paged), kInvalid,
                    "only the option is given"));
  EXPECT_TRUE(fails(PrefixCache::create({}, *paged, nullptr, states.get()), kInvalid,
                    "only the pool is given"));
  EXPECT_TRUE(fails(PrefixCache::create({.state = StateOptions{.max_per_path = 0}}, *paged, nullptr,
                                        states.get()),
                    kInvalid, "max_per_path is 0"));
  const EngineSlots no_window{.max_slots = 64, .free = [](std::span<const SlotId>) {}};
  EXPECT_TRUE(fails(PrefixCache::create({.window = 4}, no_window), kInvalid,
                    "needs free_window and move_window"));
}

TEST(BadComponents, AWindowThatIsNotThereIsRefused) {
  HybridCache cache(16, {.window = 32});
  const Slots slots = cache.take(64);
  const auto refused = [&](std::size_t released, std::string_view why) {
    return fails(cache->paths().insert({tokens(64)}, slots, {.window_released = released}),
                 kInvalid, why);
  };
  EXPECT_TRUE(refused(8, "multiple of the page size 16"));
  EXPECT_TRUE(refused(80, "leaves a window at the end of 64 tokens"));
  EXPECT_TRUE(refused(64, "leaves a window at the end of 64 tokens"));
  cache.window->free_window(std::span(slots).first(16));
  EXPECT_TRUE(refused(0, "has given back its window side"));
  EXPECT_EQ(cache->inspect().num_nodes(), 0u);
  EXPECT_TRUE(cache.closes({.full = 64, .windows = 48}));
}

TEST(BadComponents, ReleasingAWindowTwiceOrWhereThereIsNoneIsRefused) {
  HybridCache cache(1, {.window = 4});
  cache.put(tokens(8));
  Lease lease = cache.hold(tokens(8));
  EXPECT_TRUE(lease.release_window().ok());
  EXPECT_TRUE(fails(lease.release_window(), kInvalid, "released it already"));
  EXPECT_TRUE(fails(Lease().release_window(), kInvalid, "holds no window"));
  TestCache plain;
  Running r(tokens(4));
  EXPECT_TRUE(
      fails(plain->release_window(r.request, 4), ErrorCode::unavailable, "no window component"));
  EXPECT_TRUE(fails(plain->paths().insert({tokens(4)}, plain.take(4), {.window_released = 2}),
                    kInvalid, "no window component"));
}

TEST(BadComponents, AStateSlotOfAnotherPoolIsRefused) {
  HybridCache cache(1, {.state = StateOptions{}});
  auto other = *StateAllocator::create(4);
  const Slots slots = cache.take(8);
  const auto refused = [&](StateSlot slot, std::string_view why) {
    return fails(cache->paths().insert({tokens(8)}, slots, {.snapshot = slot}), kInvalid, why);
  };
  EXPECT_TRUE(refused(*other->alloc(), "not one that this cache's pool has handed out"));
  EXPECT_TRUE(refused({}, "expected a snapshot of the state after token 8"));
  const StateSlot mine = cache.take_state();
  cache.states->free(mine);
  EXPECT_TRUE(refused(mine, "not one that this cache's pool has handed out"));
  const StateSlot used = cache.take_state();
  cache.put(tokens(4, 50), {.snapshot = used});
  EXPECT_TRUE(refused(used, "the tree's already"));
  EXPECT_TRUE(cache.closes({.full = 8}));

  TestCache plain;
  EXPECT_TRUE(fails(plain->paths().insert({tokens(4)}, plain.take(4), {.snapshot = used}), kInvalid,
                    "no state component"));
  EXPECT_TRUE(fails(plain->allocate_state(), ErrorCode::unavailable, "no state component"));
}

TEST(BadComponents, ASnapshotOfNoWholePageIsRefused) {
  HybridCache cache(16, {.state = StateOptions{}});
  Running r(tokens(40));
  r.start(cache).value();
  r.allocate(cache).value();
  const StateSlot slot = cache.take_state();
  for (const std::size_t length : {17, 48})
    EXPECT_TRUE(fails(cache->set_snapshot(r.request, slot, length), kInvalid, "at most the 40"));
  cache->set_snapshot(r.request, slot, 32).value();
  EXPECT_TRUE(fails(cache->set_snapshot(r.request, slot, 32), ErrorCode::in_use,
                    "one of 32 tokens that was not taken yet"));
  r.computed(20);
  EXPECT_TRUE(fails(r.checkpoint(cache), kInvalid, "checkpoint: the snapshot"));
  r.computed(40);
  r.finish(cache).value();
  EXPECT_TRUE(cache.closes());
}

}  // namespace
}  // namespace pando::testing
