// SPDX-License-Identifier: Apache-2.0
// Random operations on a cache with a host tier and a store, over every combination of components
// and write policies, with a copier that ends, fails and refuses when told, and a store that fails,
// lies and dawdles. The reference is in the bytes: every row that a match or a load gives says for
// which prefix it was computed. After each step the cache proves itself, every slot and host page
// has one owner, and what is pinned is where it was promised to be. Sessions come and go, and one
// namespace is a tenant's.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <iostream>

#include "pando/config.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "pando/store_backends.h"
#include "support/random_ops.h"
#include "support/step_copier.h"
#include "support/tier_fixture.h"

namespace pando::testing {
namespace {

struct Case {
  std::string name;
  TierSetup setup;
  bool faults = false;
  bool store = false;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

enum class Window { none, pages, part_of_a_page };
constexpr const char* kWindowNames[] = {"", "_window", "_small_window"};

// The options that are not in the name take turns.
Case make_case(std::size_t turn, WritePolicy write, Window window, bool state, bool faults) {
  const char* const policies[] = {"lru", "hazard", "lfu", "fifo", "priority", "hazard", "slru"};
  TierSetup setup;
  setup.write_policy = write;
  setup.page_size = turn % 3 == 0 ? 1 : 2;
  setup.cache.bigram = turn % 4 == 1;
  setup.cache.events = turn % 5 == 2;
  setup.cache.evict_whole_nodes = turn % 7 == 3;
  setup.cache.hash_seed = 1;
  if (window == Window::pages) setup.cache.window = 4;
  if (window == Window::part_of_a_page) {
    setup.page_size = turn % 4 == 0 ? 2 : 4;
    setup.cache.window = 1 + turn % (setup.page_size - 1);
  }
  if (state) setup.cache.state = StateOptions{.snapshot_interval = turn % 2 * 4};
  setup.reclaim_mirrors_first = turn % 3 == 1;
  setup.policy = policies[turn % std::size(policies)];
  setup.cache.retention.tenants = {{.name = "t",
                                    .device_floor = turn % 3 * 8,
                                    .host_floor = turn % 2 * 12,
                                    .device_cap = turn % 4 == 0 ? 24 : SIZE_MAX,
                                    .host_cap = turn % 5 == 0 ? 32 : SIZE_MAX}};
  return {std::string(to_string(write)) + kWindowNames[static_cast<std::size_t>(window)] +
              (state ? "_state" : "") + (faults ? "_faults" : ""),
          setup, faults, turn % 2 == 1 || turn % 5 == 0};
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const WritePolicy write :
       {WritePolicy::write_through, WritePolicy::write_through_selective, WritePolicy::write_back})
    for (const Window window : {Window::none, Window::pages, Window::part_of_a_page})
      for (const bool state : {false, true})
        for (const bool faults : {false, true})
          cases.push_back(make_case(cases.size(), write, window, state, faults));
  return cases;
}

class TierModel {
 public:
  explicit TierModel(const Case& c)
      : faults_(c.faults), bigram_(c.setup.cache.bigram), cache_(with_copier(c.setup)) {
    cache_->retention().assign_namespace("other", "t").value();
    if (!c.store) return;
    StorageOptions options;
    options.backend = faults_ ? "faulty_memory" : "memory";
    options.options = R"({"prefetch_threshold": 1})";
    cache_->tiers().attach_storage(options).value();
  }

  ~TierModel() {
    held_.clear();
    copier_.run_all();
  }

  void step(std::uint8_t op, std::uint8_t a, std::uint8_t b) {
    switch (op % 18) {
      case 0:
      case 1:
      case 2:
        request(a, b);
        break;
      case 3:
        look(a, b);
        break;
      case 4:
        cache_->evict(a % 24);
        break;
      case 5:
        cache_->evict({.window_tokens = a % 12u, .snapshots = b % 3u});
        break;
      case 6:
        cache_->tiers().evict_host(a % 24);
        break;
      case 7:
        copier_.step(0, !faults_ || b % 4 != 0);
        break;
      case 8:
        copier_.step(1, !faults_ || b % 4 != 0);
        break;
      case 9:
        poll();
        break;
      case 10:
        if (held_.size() < 3) hold(a, b);
        break;
      case 11:
        if (faults_ && b % 5 == 0) copier_.refuse(1);
        if (!held_.empty()) held_.erase(held_.begin() + a % static_cast<int>(held_.size()));
        break;
      case 12: {
        const Tokens key = key_of(a, b);
        if (const Prefetch p = *cache_->prefetch({key, ns_of(a)}); p.id) fetches_.push_back(p.id);
        break;
      }
      case 13:
        if (fetches_.empty()) break;
        // Some wait for the store a while, some end at once.
        for (int i = 0; i < b % 4 * 50 && !cache_->poll().idle; ++i) std::this_thread::yield();
        if (a % 4 == 0) {
          cache_->abort_prefetch(fetches_.front());
        } else {
          (void)cache_->end_prefetch(fetches_.front());
        }
        fetches_.erase(fetches_.begin());
        break;
      case 14:
        if (pins_.size() < 3) pin(a, b);
        break;
      case 15:
        if (!pins_.empty()) unpin(a % pins_.size());
        break;
      case 16:
        if (sessions_.size() < 2) sessions_.push_back(*cache_->retention().open_session());
        break;
      case 17:
        if (sessions_.empty() || a % 3 > 0) break;
        cache_->retention().close_session(sessions_.front()).value();
        sessions_.erase(sessions_.begin());
        break;
    }
    for (const auto& [id, held] : pins_) expect_pinned(id, held);
    // A write-back waits for its copies inside evict().
    const ::testing::AssertionResult closes = cache_.closes();
    if (!closes) RC_FAIL(std::string(closes.message()));
    RC_ASSERT(!::testing::Test::HasFailure());
  }

  void finish() {
    held_.clear();
    while (!pins_.empty()) unpin(0);
    for (const PrefetchId id : fetches_) (void)cache_->end_prefetch(id);
    copier_.run_all();
    while (!cache_->poll().idle) std::this_thread::yield();
    open_gates();
    RC_ASSERT(cache_->inspect().sizes().protected_tokens == 0u);
    RC_ASSERT(cache_->reset().ok());
    RC_ASSERT(cache_.full.host->count(PageState::idle) == cache_.full.host->num_pages());
  }

 private:
  TierSetup with_copier(TierSetup setup) {
    setup.copier = &copier_;
    // What the device evicts to the host is waited for, so it must not wait for a step.
    copier_.at_once(setup.write_policy == WritePolicy::write_back);
    return setup;
  }

  // Keys that share prefixes: a path in a small tree.
  Tokens key_of(std::uint8_t a, std::uint8_t b) const {
    Tokens key;
    const std::size_t length = 2 + b % 19;
    for (std::size_t i = 0; i < length; ++i)
      key.push_back(static_cast<Token>(i * 10 + (i < 4 ? a % 2 : i < 9 ? a / 2 % 3 : a / 6 % 3)));
    return key;
  }
  std::string_view ns_of(std::uint8_t a) const { return a % 16 > 12 ? "other" : ""; }

  struct HeldPin {
    Tokens key;
    std::string_view ns;
    PinKind kind;
    std::size_t length;
  };
  void pin(std::uint8_t a, std::uint8_t b) {
    HeldPin held{key_of(a, b), ns_of(a), b % 3 == 0 ? PinKind::hard : PinKind::soft, 0};
    const Result<Pinned> pinned = cache_->retention().pin({held.key, held.ns}, {.kind = held.kind});
    if (!pinned) return;
    held.length = pinned->length;
    pins_.emplace_back(pinned->id, held);
  }
  bool is_listed(PinId id) const {
    const std::vector<Pin> pins = cache_->retention().pins();
    return std::any_of(pins.begin(), pins.end(), [id](const Pin& pin) { return pin.id == id; });
  }
  void unpin(std::size_t i) {
    RC_ASSERT(cache_->retention().unpin(pins_[i].first).ok() ||
              faults_);  // a failed load ends pins
    pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // On the device, or found by a match in both tiers together.
  void expect_pinned(PinId id, const HeldPin& held) {
    if (!is_listed(id)) {
      RC_ASSERT(faults_);
      return;
    }
    if (held.kind == PinKind::hard) {
      RC_ASSERT(cache_->paths().probe({held.key, held.ns}) >= held.length);
    } else {
      const Match match = *cache_->paths().match({held.key, held.ns});
      RC_ASSERT(match.length + match.host_length >= held.length);
    }
  }

  void poll() {
    // Not before every failed load has been seen: until then its gate is what warns an engine.
    if (cache_->poll().idle) open_gates();
  }
  void open_gates() {
    for (auto* side : {&cache_.full, &cache_.window, &cache_.state}) {
      if (side->device) side->device->open_gate();
    }
  }
  // Everything on the load stream ends, well or badly. False: some failed, as an engine learns from
  // the gates.
  bool end_loads(bool succeed) {
    while (copier_.num_queued(1) > 0) copier_.step(1, succeed);
    const bool intact = !gate_failed();
    poll();
    return intact;
  }

  // Match, load back, compute, insert: a whole request. If its load fails it gives up.
  void request(std::uint8_t a, std::uint8_t b) {
    const Tokens key = key_of(a, b);
    const std::string_view ns = ns_of(a);
    RequestOptions options{.ns = std::string(ns)};
    if (b % 5 == 1 && !sessions_.empty()) options.session = sessions_[a % sessions_.size()];
    if (b % 7 == 2) options.retention = {{.from = a % key.size(), .priority = b % 5 - 1}};
    const bool fails = faults_ && b % 8 == 7;
    copier_.fail_at_once(fails);
    Result<Request> started = cache_->start(key, options);
    if (!started) return;
    Request& request = *started;
    const Result<LoadBack> loaded = cache_->load_back(request);
    copier_.fail_at_once(false);
    const bool intact = end_loads(!fails);
    bool go_on = loaded.ok() && intact;
    if (go_on) {
      const ::testing::AssertionResult right =
          cache_.holds(key, slots_of(request), request.cached_length(), ns);
      if (!right) RC_FAIL(std::string(right.message()));
    }
    go_on = go_on && cache_->allocate(request).ok();
    if (!go_on) {
      open_gates();
      cache_->abandon(request);
      poll();
      return;
    }
    cache_.compute(key, slots_of(request), request.cached_length(), key.size(), ns);
    if (cache_.states) {
      const std::size_t units = key.size() - (bigram_ ? 1 : 0);
      const std::size_t page_size = cache_->page_size();
      const std::size_t length = units / page_size * page_size;
      if (length >= request.cached_length() && length > 0) {
        const Result<StateSlot> slot = cache_->allocate_state();
        if (slot.ok()) {
          cache_.state.write(row_of(*slot), TieredCache::row_value(key, length - 1, ns));
          RC_ASSERT(cache_->set_snapshot(request, *slot, length).ok());
        }
      }
    }
    if (cache_.window_slots && a % 5 < 2)
      RC_ASSERT(cache_->release_window(request, key.size()).ok());
    if (b % 3 == 0) RC_ASSERT(cache_->checkpoint(request, {}, b % 2 == 0).ok());
    if (a % 13 == 5)
      cache_->abandon(request);
    else
      RC_ASSERT(cache_->finish(request).ok());
  }
  bool gate_failed() {
    bool failed = false;
    for (auto* side : {&cache_.full, &cache_.window, &cache_.state}) {
      if (side->device && !side->device->wait_layer(side->device->geometry().num_layers - 1))
        failed = true;
    }
    if (failed) open_gates();
    return failed;
  }

  void look(std::uint8_t a, std::uint8_t b) {
    if (copier_.num_queued(1) > 0) return;  // what is loading is there, but not yet to be read
    poll();                                 // nor what a failed load was to bring
    const Tokens key = key_of(a, b);
    Slots at(key.size());
    const Match match = *cache_->paths().match({key, ns_of(a)}, at);
    RC_ASSERT(match.length <= match.agreed_length);
    const ::testing::AssertionResult right = cache_.holds(key, at, match.length, ns_of(a));
    if (!right) RC_FAIL(std::string(right.message()));
    if (match.snapshot) RC_ASSERT(cache_.holds_state(key, match, ns_of(a)));
  }

  // A lease that stays, on both tiers; some of them begin a load that ends later.
  void hold(std::uint8_t a, std::uint8_t b) {
    const Tokens key = key_of(a, b);
    Slots at(key.size());
    const Match match = *cache_->paths().match({key, ns_of(a)}, at);
    Lease lease = *cache_->paths().lock(match);
    if (b % 2 == 0) (void)cache_->paths().load_back(lease, at);
    if (lease) held_.push_back(std::move(lease));
  }

  const bool faults_;
  const bool bigram_;
  StepCopier copier_;
  TieredCache cache_;
  std::vector<Lease> held_;
  std::vector<PrefetchId> fetches_;
  std::vector<std::pair<PinId, HeldPin>> pins_;
  std::vector<SessionId> sessions_;
};

class TierModelTest : public ::testing::TestWithParam<Case> {};

std::size_t ops_per_case() {
  const char* text = std::getenv("PANDO_MODEL_OPS");
  const std::size_t total = text != nullptr ? std::strtoull(text, nullptr, 10) / 8 : 200'000;
  return total / all_cases().size() + 1;
}

TEST_P(TierModelTest, EveryRowIsItsPrefixsAndEveryPageHasOneOwner) {
  ASSERT_TRUE(check_random_ops(ops_per_case(), [](const auto& ops) {
    TierModel model(GetParam());
    for (const std::uint64_t op : ops)
      model.step(static_cast<std::uint8_t>(op >> 56), static_cast<std::uint8_t>(op),
                 static_cast<std::uint8_t>(op >> 8));
    model.finish();
  }));
}

const bool kRegistered =
    register_store("faulty_memory", [](const Config&) -> Result<std::unique_ptr<StoreBackend>> {
      return make_faulty_store(*make_memory_store(), {.seed = 1,
                                                      .error = 0.05,
                                                      .short_read = 0.05,
                                                      .flipped_bit = 0.05,
                                                      .stale = 0.05,
                                                      .delay = 0.02,
                                                      .max_delay = std::chrono::milliseconds(1)});
    }).ok();

INSTANTIATE_TEST_SUITE_P(Tiers, TierModelTest, ::testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pando::testing
