// SPDX-License-Identifier: Apache-2.0
// A cache with a host tier and real bytes: every row that the "engine" computes says which prefix
// it was computed for, so that a row that comes back can be told right from wrong. Window layers
// and snapshots too, where the options ask for them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "pando/copier.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "pando/pools.h"
#include "support/cache_fixture.h"

namespace pando::testing {

/// Until nothing is under way; what that applied, in sum.
template <typename Cache>
PollResult poll_until_idle(Cache& cache) {
  PollResult all;
  do {
    const PollResult now = cache.poll();
    all.backups += now.backups;
    all.loads += now.loads;
    all.stored += now.stored;
    all.failures += now.failures;
    all.idle = now.idle;
    if (!all.idle) std::this_thread::yield();
  } while (!all.idle);
  return all;
}

struct TierSetup {
  std::size_t page_size = 1;
  CacheOptions cache = {};  ///< `host` is filled in
  WritePolicy write_policy = WritePolicy::write_through;
  std::size_t device_tokens = 64;
  std::size_t window_tokens = 48;
  std::size_t num_states = 8;
  std::size_t host_tokens = 128;
  std::size_t host_window_tokens = 96;
  std::size_t host_states = 16;
  std::size_t load_back_threshold = 1;
  bool reclaim_mirrors_first = false;
  std::optional<CostGateOptions> cost_gate = {};
  HostLayout layout = HostLayout::page_first;
  std::string_view policy = "lru";
  Copier* copier = nullptr;  ///< the CPU's unless given
  std::size_t num_layers = 2;
  /// Slots are an engine's, which may refuse. Not with a window.
  std::function<bool()> engine_refuses = {};
};

class TieredCache {
 public:
  explicit TieredCache(const TierSetup& setup = {}) : setup_(setup) {
    const CacheOptions& o = setup.cache;
    if (setup.copier == nullptr) own_copier_ = *make_cpu_copier({.num_threads = 1});
    CacheOptions options = o;
    HostTierOptions& host = options.host.emplace();
    host.copier = setup.copier != nullptr ? setup.copier : own_copier_.get();
    host.write_policy = setup.write_policy;
    host.load_back_threshold = setup.load_back_threshold;
    host.reclaim_mirrors_first = setup.reclaim_mirrors_first;
    host.cost_gate = setup.cost_gate;
    host.full = full.make(geometry(setup.page_size, setup.num_layers), setup.device_tokens,
                          setup.host_tokens, setup);
    if (o.window) {
      host.window = window.make(geometry(setup.page_size, setup.num_layers), setup.window_tokens,
                                setup.host_window_tokens, setup);
      window_slots = *WindowAllocator::create({.full_tokens = setup.device_tokens,
                                               .window_tokens = setup.window_tokens,
                                               .page_size = setup.page_size});
    } else {
      slots = *PagedAllocator::create(
          {.capacity_tokens = setup.device_tokens, .page_size = setup.page_size});
    }
    if (o.state) {
      host.state = state.make(state_geometry(1, {{"state", 1, 2, DType::fp32}}), setup.num_states,
                              setup.host_states, setup);
      states = *StateAllocator::create(setup.num_states);
    }
    std::unique_ptr<EvictionPolicy> policy = *make_policy(setup.policy);
    if (o.window) {
      cache = *PrefixCache::create(options, *window_slots, std::move(policy), states.get());
    } else if (setup.engine_refuses) {
      cache = *PrefixCache::create(options, engine_slots(), std::move(policy), states.get());
    } else {
      cache = *PrefixCache::create(options, *slots, std::move(policy), states.get());
    }
  }

  PrefixCache* operator->() const { return cache.get(); }

  /// What a row of the token at `position` holds.
  static std::uint64_t row_value(const Tokens& key, std::size_t position, std::string_view ns) {
    std::uint64_t hash = 1469598103934665603u;
    const auto mix = [&](std::uint64_t v) { hash = (hash ^ v) * 1099511628211u + (hash >> 29); };
    for (const char c : ns) mix(static_cast<std::uint64_t>(c) + 1);
    for (std::size_t i = 0; i <= position; ++i) mix(static_cast<std::uint64_t>(key[i]) + 1000);
    return hash;
  }

  /// The engine computes tokens [from, to) into their slots.
  void compute(const Tokens& key, const Slots& at, std::size_t from, std::size_t to,
               std::string_view ns = {}) {
    for (std::size_t i = from; i < to; ++i) full.write(at[i], row_value(key, i, ns));
    if (!window_slots) return;
    Slots translated(at.size());
    window_slots->translate(at, translated);
    for (std::size_t i = from; i < to; ++i) {
      if (index_of(translated[i]) != 0) window.write(translated[i], row_value(key, i, ns));
    }
  }
  StateSlot compute_state(const Tokens& key, std::size_t length, std::string_view ns = {}) {
    const StateSlot slot = *cache->allocate_state();
    state.write(row_of(slot), row_value(key, length - 1, ns));
    return slot;
  }

  /// As an engine would: match, load back, compute the rest, insert all whole pages.
  Inserted put(const Tokens& key, std::string_view ns = {}, bool load = true) {
    Slots at(key.size());
    Match match = *cache->paths().match({key, ns}, at);
    Lease lease = *cache->paths().lock(match);
    std::size_t cached = match.length;
    if (load && match.host_length > 0) cached += cache->paths().load_back(lease, at)->tokens;
    open_gates();
    EXPECT_TRUE(holds(key, at, cached, ns));
    if (!take(at, cached)) {
      ADD_FAILURE() << "no room for " << key.size() - cached << " tokens";
      return {};
    }
    compute(key, at, cached, key.size(), ns);
    return insert(key, at, cached, ns);
  }

  /// Slots for what comes after the `cached` first. An engine evicts as much as it lacks.
  bool take(Slots& at, std::size_t cached) {
    const std::size_t pre = cached, to = at.size();
    const SlotId last = cached == 0 ? SlotId{0} : at[cached - 1];
    const std::span<SlotId> out = std::span(at).subspan(cached);
    if (!setup_.engine_refuses)
      return cache->paths().allocate_extend({&pre, 1}, {&to, 1}, {&last, 1}, out).ok();
    const auto alloc = [&] { return slots->alloc_extend({&pre, 1}, {&to, 1}, {&last, 1}, out); };
    if (alloc().ok()) return true;
    cache->evict(to - cached + setup_.page_size);
    return alloc().ok();
  }

  /// All whole pages of the key, of which the tree has the first `cached` tokens.
  Inserted insert(const Tokens& key, const Slots& at, std::size_t cached,
                  std::string_view ns = {}) {
    const std::size_t page_size = setup_.page_size;
    InsertOptions options{.owned_by_tree = cached / page_size * page_size};
    const std::size_t overlap = setup_.cache.bigram ? 1 : 0;
    const std::size_t whole = (key.size() - overlap) / page_size * page_size;
    if (states) options.snapshot = compute_state(key, whole, ns);
    const Inserted inserted = *cache->paths().insert({key, ns}, at, options);
    if (inserted.length < key.size()) {
      const std::span<const SlotId> tail = std::span(at).subspan(inserted.length);
      window_slots ? window_slots->free(tail) : slots->free(tail);
    }
    return inserted;
  }

  Match match(const Tokens& key, std::string_view ns = {}) {
    return *cache->paths().match({key, ns});
  }

  /// Loads what the host has of the key; the slots of all that is on the device then.
  Slots load(const Tokens& key, std::string_view ns = {}) {
    Slots at(key.size());
    Match found = *cache->paths().match({key, ns}, at);
    Lease lease = *cache->paths().lock(found);
    const LoadBack loaded = *cache->paths().load_back(lease, at);
    open_gates();
    at.resize(found.length + loaded.tokens);
    EXPECT_TRUE(holds(key, at, at.size(), ns));
    return at;
  }

  /// Every row of key[0, n) is what was computed for exactly this prefix; the window as far back as
  /// the next token sees.
  ::testing::AssertionResult holds(const Tokens& key, const Slots& at, std::size_t n,
                                   std::string_view ns = {}) {
    for (std::size_t i = 0; i < n; ++i) {
      if (full.read(at[i]) != row_value(key, i, ns))
        return ::testing::AssertionFailure() << "token " << i << " of " << n << ", slot "
                                             << index_of(at[i]) << " has other bytes";
    }
    if (!window_slots || n == 0) return ::testing::AssertionSuccess();
    Slots translated(n);
    window_slots->translate(std::span(at).first(n), translated);
    const std::size_t reach = std::min(n, *setup_.cache.window);
    for (std::size_t i = n - reach; i < n; ++i) {
      if (index_of(translated[i]) == 0 || window.read(translated[i]) != row_value(key, i, ns))
        return ::testing::AssertionFailure() << "window of token " << i << " of " << n
                                             << ", window slot " << index_of(translated[i]);
    }
    return ::testing::AssertionSuccess();
  }
  /// The snapshot of a match, likewise.
  ::testing::AssertionResult holds_state(const Tokens& key, const Match& match,
                                         std::string_view ns = {}) {
    if (state.read(row_of(match.snapshot)) == row_value(key, match.length - 1, ns))
      return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "snapshot after " << match.length << " tokens";
  }

  PollResult settle() { return poll_until_idle(*cache); }
  /// As engines do before they read.
  void open_gates() {
    for (Side* side : {&full, &window, &state}) {
      if (side->device) (void)side->device->wait_layer(side->device->geometry().num_layers - 1);
    }
  }

  ::testing::AssertionResult closes(std::size_t held = 0) const {
    if (const Status s = cache->check(); !s)
      return ::testing::AssertionFailure() << s.error().message << '\n' << cache->inspect().dump();
    const PagedAllocator& device = window_slots ? window_slots->full() : *slots;
    const std::size_t sum = device.available() + cache->inspect().sizes().total + held;
    if (sum != device.capacity())
      return ::testing::AssertionFailure() << sum << " slots of " << device.capacity();
    if (window_slots) {
      if (const Status s = window_slots->check(); !s)
        return ::testing::AssertionFailure() << s.error().message;
    }
    return ::testing::AssertionSuccess();
  }

  /// Pools of one component, and their rows.
  struct Side {
    std::vector<std::byte> memory;
    std::unique_ptr<Arena> arena;
    std::unique_ptr<KvPool> device;
    std::unique_ptr<HostPool> host;

    TierPools make(const Geometry& geometry, std::size_t device_tokens, std::size_t host_tokens,
                   const TierSetup& setup) {
      memory.resize(
          (device_tokens + host_tokens + 4 * geometry.page_size) * geometry.token_bytes() + 65536);
      arena = make_user_arena(memory, MemoryKind::host);
      device = *KvPool::create({.geometry = geometry, .capacity_tokens = device_tokens}, *arena);
      host = *HostPool::create({.layout = setup.layout,
                                .size_bytes = host_tokens * geometry.token_bytes(),
                                .keep_free_bytes = 0},
                               *device, *arena);
      return {device.get(), host.get()};
    }
    /// A row per layer and plane, each with the value and its place mixed in.
    void write(SlotId slot, std::uint64_t value) {
      for_each_row(slot, [&](std::byte* row, std::uint64_t place) {
        const std::uint64_t mixed = value + place;
        std::memcpy(row, &mixed, sizeof mixed);
      });
    }
    /// What was written, or 0 where the rows disagree.
    std::uint64_t read(SlotId slot) const {
      std::optional<std::uint64_t> value;
      bool agree = true;
      for_each_row(slot, [&](const std::byte* row, std::uint64_t place) {
        std::uint64_t mixed;
        std::memcpy(&mixed, row, sizeof mixed);
        if (!value) value = mixed - place;
        agree = agree && *value == mixed - place;
      });
      return agree ? *value : 0;
    }
    template <typename Fn>
    void for_each_row(SlotId slot, Fn&& fn) const {
      std::uint64_t place = 0;
      const std::size_t page_size = device->geometry().page_size;
      const auto at = static_cast<std::size_t>(index_of(slot));
      for (const PlaneMemory& plane : device->planes()) {
        for (std::byte* layer : plane.layers)
          fn(layer + at / page_size * plane.page_stride + at % page_size * plane.token_stride,
             ++place);
      }
    }
  };

  static Geometry geometry(std::size_t page_size, std::size_t num_layers = 2) {
    return mha_geometry(
        {.layers = {.num_layers = num_layers, .page_size = page_size, .dtype = DType::fp32},
         .heads = 1,
         .head_dim = 2});
  }

  Side full, window, state;
  std::unique_ptr<PagedAllocator> slots;
  std::unique_ptr<WindowAllocator> window_slots;
  std::unique_ptr<StateAllocator> states;

 private:
  EngineSlots engine_slots() {
    EngineSlots engine;
    engine.max_slots = setup_.device_tokens + setup_.page_size;
    engine.page_size = setup_.page_size;
    engine.free = [this](std::span<const SlotId> freed) { slots->free(freed); };
    engine.alloc = [this](std::span<SlotId> out) {
      return !setup_.engine_refuses() && slots->alloc(out).ok();
    };
    return engine;
  }

  const TierSetup setup_;
  std::unique_ptr<Copier> own_copier_;

 public:
  std::unique_ptr<PrefixCache> cache;  // goes first
};

}  // namespace pando::testing
