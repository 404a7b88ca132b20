// SPDX-License-Identifier: Apache-2.0
// Windows of running requests: what decode gives back, with the tree and without it, what finish
// and checkpoint make of it, a model without full-attention layers, and an engine's own slots.
#include <gtest/gtest.h>

#include <algorithm>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/hybrid_fixture.h"

namespace pando::testing {
namespace {

constexpr std::size_t kPage = 16;
constexpr std::size_t kWindow = 32;

HybridCache window_cache(std::size_t page_size = kPage, std::size_t window = kWindow) {
  return HybridCache(page_size, {.window = window});
}

// A request of which all tokens are computed.
struct Computed : Running {
  Computed(HybridCache& cache, Tokens prompt) : Running(std::move(prompt)) {
    start(cache).value();
    allocate(cache).value();
  }
};

// ---- With the tree -----------------------------------------------------------------------------

TEST(WindowRelease, GivesBackWholePagesBehindTheWindowOnce) {
  HybridCache cache = window_cache();
  Computed r(cache, tokens(100));
  EXPECT_EQ(*cache->release_window(r.request, 47), 0u);
  EXPECT_EQ(*cache->release_window(r.request, 48), 16u);  // [0, 48) ends a page; 32 before it stay
  EXPECT_EQ(*cache->release_window(r.request, 48), 0u);
  EXPECT_EQ(*cache->release_window(r.request, 63), 0u);
  EXPECT_EQ(*cache->release_window(r.request, 100), 48u);
  EXPECT_EQ(r.request.window_released(), 64u);
  Slots windows(100);
  cache.window->translate(r.slots(), windows);
  EXPECT_EQ(std::count(windows.begin(), windows.end(), SlotId{0}), 64);
  EXPECT_TRUE(cache.closes({.full = 112, .windows = 48}));
  r.finish(cache).value();
  EXPECT_TRUE(cache.closes());
}

TEST(WindowRelease, LeavesAnEndThatCanBeMatched) {
  for (std::size_t n = 33; n < 200; n += 7) {
    HybridCache cache = window_cache();
    Computed r(cache, tokens(n));
    cache->release_window(r.request, n).value();
    r.finish(cache).value();
    EXPECT_EQ(cache.probe(tokens(n)), n / kPage * kPage) << n;
    EXPECT_LE(cache.window_sizes().total, kWindow) << n;
    EXPECT_TRUE(cache.closes());
  }
}

TEST(WindowRelease, DoesNotTouchWhatTheTreeHas) {
  HybridCache cache = window_cache();
  cache.put(tokens(64));
  Computed r(cache, tokens(160));
  ASSERT_EQ(r.request.cached_length(), 64u);
  EXPECT_EQ(*cache->release_window(r.request, 96), 0u);
  EXPECT_EQ(cache.window_sizes().total, 64u);
  EXPECT_EQ(*cache->release_window(r.request, 112), 16u);
  EXPECT_TRUE(cache.closes({.full = 96, .windows = 80}));
  r.finish(cache).value();
  EXPECT_TRUE(cache.closes());
}

TEST(WindowRelease, LetsGoOfTheLeasesWindowOnceItLiesBehind) {
  HybridCache cache = window_cache();
  cache.put(tokens(64));
  Computed r(cache, tokens(160));
  cache->release_window(r.request, 95).value();
  EXPECT_EQ(cache.window_sizes().protected_tokens, 32u);
  cache->release_window(r.request, 96).value();
  EXPECT_EQ(cache.window_sizes().protected_tokens, 0u);
  EXPECT_EQ(cache.full_sizes().protected_tokens, 64u);
  // The tree may take it now; the request goes on, and gives the path a whole end again.
  EXPECT_EQ(cache.evict_window(1000), 64u);
  r.finish(cache).value();
  EXPECT_EQ(cache.probe(tokens(160)), 160u);
  EXPECT_EQ(cache.probe(tokens(64)), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowRelease, WorksForABatchOrNotAtAll) {
  HybridCache cache = window_cache();
  Computed a(cache, tokens(64, 1000));
  Computed b(cache, tokens(64, 2000));
  Request* const requests[] = {&a.request, &b.request};
  const std::size_t too_far[] = {64, 65};
  EXPECT_TRUE(fails(cache->release_window(requests, too_far), ErrorCode::invalid_argument,
                    "request 1 has 64 slots, 65 tokens"));
  EXPECT_EQ(a.request.window_released(), 0u);
  const std::size_t lengths[] = {64, 48};
  EXPECT_EQ(*cache->release_window(requests, lengths), 48u);
  a.finish(cache).value();
  b.finish(cache).value();
  EXPECT_TRUE(cache.closes());
}

TEST(WindowRelease, OfABigramKeyCountsPairs) {
  HybridCache cache(kPage, {.bigram = true, .window = kWindow});
  Computed r(cache, tokens(65));
  EXPECT_EQ(*cache->release_window(r.request, 48), 0u);  // 47 pairs
  EXPECT_EQ(*cache->release_window(r.request, 49), 16u);
  EXPECT_EQ(*cache->release_window(r.request, 65), 16u);
  r.finish(cache).value();
  EXPECT_EQ(cache.probe(tokens(65)), 64u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowCheckpoint, AfterAReleaseKeepsTheTailAndHoldsIt) {
  HybridCache cache = window_cache();
  Computed r(cache, tokens(128));
  r.computed(96);
  cache->release_window(r.request, 96).value();
  r.checkpoint(cache, true).value();
  EXPECT_EQ(cache.full_sizes(), (Sizes{0, 96, 96}));
  EXPECT_EQ(cache.window_sizes(), (Sizes{0, 32, 32}));
  r.computed(128);
  r.checkpoint(cache).value();
  EXPECT_EQ(cache.window_sizes(), (Sizes{32, 32, 64}));
  r.finish(cache).value();
  EXPECT_EQ(cache.probe(tokens(128)), 128u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowCheckpoint, GivesTheRequestTheTreesSlotsButItsOwnOverATombstone) {
  HybridCache cache = window_cache();
  cache.put(tokens(64));
  cache.put_rest(tokens(64) + tokens(64, 500));
  ASSERT_EQ(cache.evict_window(1), 64u);
  Computed r(cache, tokens(64) + tokens(16, 900));
  ASSERT_EQ(r.request.cached_length(), 0u);  // the window before 64 has gone
  const Slots own = r.slots();
  r.checkpoint(cache).value();
  EXPECT_EQ(r.slots(), own);
  EXPECT_EQ(cache.slots_of(tokens(64)), Slots(own.begin(), own.begin() + 64));
  r.finish(cache).value();
  EXPECT_TRUE(cache.closes());
}

TEST(WindowFinish, OfARequestThatWasRolledBackKeepsNothingWithoutAWindow) {
  HybridCache cache = window_cache();
  Computed r(cache, tokens(160));
  cache->release_window(r.request, 160).value();
  r.computed(140);  // 20 speculated tokens were wrong
  r.finish(cache).value();
  EXPECT_EQ(cache.full_sizes().total, 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(WindowFinish, InsertsNothingThatItsLeaseAloneKept) {
  HybridCache cache = window_cache();
  cache.put(tokens(64));
  Computed r(cache, tokens(160));
  cache->release_window(r.request, 160).value();
  cache.evict_window(1000);
  r.abandon(cache).value();
  EXPECT_EQ(cache.full_sizes().total, 0u);  // a tombstone that nobody holds any more
  EXPECT_TRUE(cache.closes());
}

// ---- A window smaller than a page --------------------------------------------------------------

TEST(Window, SmallerThanAPageIsGivenBackInWholePages) {
  for (const std::size_t w : {1, 4, 15, 16}) {
    HybridCache cache = window_cache(kPage, w);
    Computed r(cache, tokens(100));
    EXPECT_EQ(*cache->release_window(r.request, 31), 0u) << w;
    EXPECT_EQ(*cache->release_window(r.request, 32), 16u) << w;  // a match of 32 needs [16, 32)
    EXPECT_EQ(*cache->release_window(r.request, 47), 0u) << w;   // so does one of 47
    EXPECT_EQ(*cache->release_window(r.request, 100), 64u) << w;
    EXPECT_EQ(r.request.window_released(), 80u) << w;
    EXPECT_TRUE(cache.closes({.full = 112, .windows = 32})) << w;
    r.finish(cache).value();
    EXPECT_EQ(cache.probe(tokens(100)), 96u) << w;
    EXPECT_EQ(cache.window_sizes().total, 16u) << w;
    EXPECT_TRUE(cache.closes()) << w;
  }
}

TEST(Window, SmallerThanAPageLeavesAnEndThatCanBeMatched) {
  for (std::size_t w = 1; w < kPage; w += 7) {
    for (std::size_t n = 1; n < 100; n += 3) {
      HybridCache cache = window_cache(kPage, w);
      Computed r(cache, tokens(n));
      for (std::size_t computed = 1; computed <= n; ++computed)
        cache->release_window(r.request, computed).value();
      r.finish(cache).value();
      EXPECT_EQ(cache.probe(tokens(n)), n / kPage * kPage) << n << ", window " << w;
      EXPECT_LE(cache.window_sizes().total, kPage) << n << ", window " << w;
      EXPECT_TRUE(cache.closes());
    }
  }
}

TEST(Window, SmallerThanAPageIsHeldUntilAWholePageLiesBehindTheLease) {
  HybridCache cache = window_cache(kPage, 4);
  cache.put(tokens(64));
  Computed r(cache, tokens(160));
  ASSERT_EQ(r.request.cached_length(), 64u);
  cache->release_window(r.request, 79).value();  // sees [75, 79), but what is cached ends at 64
  EXPECT_EQ(cache.window_sizes().protected_tokens, 16u);
  cache->release_window(r.request, 80).value();
  EXPECT_EQ(cache.window_sizes().protected_tokens, 0u);
  EXPECT_EQ(cache.evict_window(1000), 64u);
  r.computed(80);
  r.checkpoint(cache, true).value();
  EXPECT_EQ(r.request.cached_length(), 80u);
  EXPECT_EQ(cache.window_sizes(), (Sizes{0, 16, 16}));
  r.computed(160);
  r.finish(cache).value();
  EXPECT_EQ(cache.probe(tokens(160)), 160u);
  EXPECT_EQ(cache.probe(tokens(64)), 0u);
  EXPECT_TRUE(cache.closes());
}

TEST(Window, SmallerThanAPageKeepsThePageBeforeASnapshot) {
  HybridCache cache(kPage, {.window = 1, .state = StateOptions{}});
  Computed r(cache, tokens(100));
  cache->set_snapshot(r.request, *cache->allocate_state(), 48).value();
  EXPECT_EQ(*cache->release_window(r.request, 100), 32u);
  r.finish(cache).value();
  EXPECT_EQ(cache.probe(tokens(100)), 48u);
  EXPECT_TRUE(cache.closes());
}

TEST(Window, SmallerThanAPageWithoutATreeKeepsWhatTheNextTokenSees) {
  auto allocator =
      *WindowAllocator::create({.full_tokens = 256, .window_tokens = 128, .page_size = kPage});
  auto cache = *PrefixCache::create({.disabled = true, .window = 4}, *allocator);
  Running r(tokens(100));
  r.start(cache).value();
  r.allocate(cache).value();
  EXPECT_EQ(*cache->release_window(r.request, 19), 0u);  // sees [15, 19)
  EXPECT_EQ(*cache->release_window(r.request, 20), 16u);
  EXPECT_EQ(*cache->release_window(r.request, 100), 80u);
  EXPECT_EQ(allocator->window().available(), 128u - 16u);
  r.finish(cache).value();
  EXPECT_EQ(allocator->window().available(), 128u);
}

// ---- Without the tree --------------------------------------------------------------------------

TEST(WindowWithoutReuse, GivesBackAllThatNoTokenToComeSees) {
  auto allocator =
      *WindowAllocator::create({.full_tokens = 256, .window_tokens = 128, .page_size = kPage});
  auto cache = *PrefixCache::create({.disabled = true, .window = kWindow}, *allocator);
  Running r(tokens(100));
  r.start(cache).value();
  r.allocate(cache).value();
  EXPECT_EQ(*cache->release_window(r.request, 47), 0u);
  EXPECT_EQ(*cache->release_window(r.request, 100), 64u);
  EXPECT_EQ(*cache->release_window(r.request, 100), 0u);
  EXPECT_EQ(allocator->window().available(), 128u - 48u);
  EXPECT_EQ(allocator->full().available(), 256u - 112u);
  r.finish(cache).value();
  EXPECT_EQ(allocator->window().available(), 128u);
  EXPECT_EQ(allocator->full().available(), 256u);
}

// ---- No full-attention layer -------------------------------------------------------------------

// The full slots are names without bytes, so there can be many; the window pool is all the memory.
void serve_long_conversations(std::size_t window) {
  auto allocator =
      *WindowAllocator::create({.full_tokens = 4096, .window_tokens = 128, .page_size = kPage});
  auto cache = *PrefixCache::create({.window = window}, *allocator);
  Tokens conversation = tokens(64);
  for (int turn = 0; turn < 8; ++turn) {
    Running r(conversation);
    r.start(cache).value();
    if (turn > 0) {
      EXPECT_GE(r.request.cached_length(), conversation.size() - 64 - kPage) << turn;
    }
    for (std::size_t n = r.request.cached_length(); n < conversation.size();) {  // chunks of a page
      const std::size_t next = std::min(n + kPage, conversation.size());
      cache->allocate(r.request, next).value();
      n = next;
      cache->release_window(r.request, n).value();
    }
    r.finish(cache).value();
    cache->check().value();
    EXPECT_LE(cache->inspect().sizes(ComponentKind::window).total, 128u);
    conversation = conversation + tokens(64, 1000 * (turn + 1));
  }
  EXPECT_GT(cache->inspect().sizes().total, 500u);  // names of more tokens than there is memory for
  cache->reset().value();
  EXPECT_EQ(allocator->window().available(), 128u);
}

TEST(PureWindowModel, ServesConversationsLongerThanItsMemory) { serve_long_conversations(kWindow); }
TEST(PureWindowModel, ServesThemWithAWindowSmallerThanAPage) { serve_long_conversations(3); }

// ---- An engine's own slots ---------------------------------------------------------------------

TEST(WindowEngineSlots, AreGivenBackBySideAndMovedWhereSomeoneReads) {
  std::vector<std::string> calls;
  Slots freed, window_freed, from, to;
  const auto copy = [](std::span<const SlotId> slots) { return Slots(slots.begin(), slots.end()); };
  EngineSlots slots{.max_slots = 100,
                    .free =
                        [&](std::span<const SlotId> s) {
                          calls.push_back("free");
                          freed = copy(s);
                        },
                    .free_window =
                        [&](std::span<const SlotId> s) {
                          calls.push_back("free_window");
                          window_freed = copy(s);
                        },
                    .move_window =
                        [&](std::span<const SlotId> a, std::span<const SlotId> b) {
                          calls.push_back("move_window");
                          from = copy(a);
                          to = copy(b);
                        }};
  auto cache = *PrefixCache::create({.window = 4}, slots);
  const Tokens key = tokens(8) + tokens(4, 50);
  cache->paths().insert({tokens(8)}, slot_range(1, 9)).value();
  cache->paths().insert({key}, slot_range(1, 9) + slot_range(9, 13), {.owned_by_tree = 8}).value();
  EXPECT_EQ(cache->evict({.window_tokens = 1}).window_tokens, 8u);
  EXPECT_EQ(calls, (std::vector<std::string>{"free_window"}));
  EXPECT_EQ(window_freed, slot_range(1, 9));

  Lease reader = *cache->paths().lock(*cache->paths().match({key}));
  calls.clear();
  cache->paths().insert({tokens(8)}, slot_range(20, 28)).value();
  EXPECT_EQ(calls, (std::vector<std::string>{"move_window", "free"}));
  EXPECT_EQ(from, slot_range(20, 28));
  EXPECT_EQ(to, slot_range(1, 9));
  std::sort(freed.begin(), freed.end());
  EXPECT_EQ(freed, slot_range(20, 28));
  EXPECT_EQ(cache->paths().probe({tokens(8)}), 8u);
  cache->check().value();
  reader.release();
  cache->reset().value();
}

}  // namespace
}  // namespace pando::testing
