// SPDX-License-Identifier: Apache-2.0
// One of several ranks that mirror a cache. All take the same steps, from one seed; when copies and
// store calls end, which fail, and who has room is each rank's own luck, from another. After every
// step the ranks compare digests of their trees, and every row says whose prefix it was computed
// for.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "pando/config.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "pando/ranks.h"
#include "pando/store_backends.h"
#include "support/step_copier.h"
#include "support/tier_fixture.h"

namespace pando::testing {

struct MirrorCase {
  std::string name;
  TierSetup setup = {};
  bool engine_slots = false;  // device pages come from an engine that may refuse
  bool store = false;
  const char* prefetch_policy = "best_effort";
  bool one_writer = false;  // of the tensor ranks, only the first puts pages
};

inline void PrintTo(const MirrorCase& c, std::ostream* out) { *out << c.name; }

inline std::vector<MirrorCase> mirror_cases() {
  TierSetup plain;
  plain.page_size = 2;
  plain.write_policy = WritePolicy::write_through;
  TierSetup hybrid = plain;
  hybrid.cache.window = 4;
  hybrid.cache.state = StateOptions{};
  hybrid.reclaim_mirrors_first = true;
  TierSetup selective = plain;
  selective.write_policy = WritePolicy::write_through_selective;
  selective.cache.bigram = true;
  TierSetup back = plain;
  back.write_policy = WritePolicy::write_back;
  TierSetup hybrid_back = hybrid;
  hybrid_back.write_policy = WritePolicy::write_back;
  TierSetup small_window = plain;
  small_window.cache.window = 1;
  return {
      {"write_through", plain, false, true, "timeout"},
      {"one_writer", plain, false, true, "wait_complete", true},
      {"hybrid", hybrid, false, true, "best_effort"},
      {"window_smaller_than_a_page", small_window, false, true, "wait_complete"},
      {"selective_engine", selective, true, true, "wait_complete"},
      {"write_back", back, false, false},
      {"write_back_engine", back, true, true, "timeout"},
      {"write_back_hybrid", hybrid_back, false, true, "wait_complete"},
  };
}

class MirroredCache {
 public:
  MirroredCache(Ranks& ranks, const MirrorCase& c, std::uint64_t seed)
      : ranks_(ranks),
        waits_in_evict_(c.setup.write_policy == WritePolicy::write_back),
        common_(seed),
        own_(seed * 1000 + ranks.rank()),
        cache_(setup_of(c)) {
    if (!c.store) return;
    StorageOptions options;
    options.backend = "mirror_" + std::to_string(ranks.rank());
    (void)register_store(options.backend, [seed = own_()](const Config&) { return store(seed); });
    options.options = R"({"prefetch_threshold": 2, "prefetch_timeout_base": 0.0005,
                          "prefetch_timeout_per_ki_token": 0})";
    options.prefetch_policy = c.prefetch_policy;
    const auto rank = static_cast<std::uint32_t>(ranks.rank());
    options.scope.tp_rank = rank % 2;
    options.scope.tp_size = 2;
    options.scope.pp_rank = rank / 2;
    options.scope.pp_size = 2;
    options.scope.same_on_all_tp_ranks = c.one_writer;
    cache_->tiers().attach_storage(options).value();
  }
  ~MirroredCache() {
    leases_.clear();
    copier_.at_once(true);
    copier_.run_all();
  }

  /// What is not as it should be here after a step; empty if all is well.
  std::string step() {
    luck();
    act();
    give_back_stolen();
    const ::testing::AssertionResult closes = cache_.closes();
    if (!closes) wrong(closes.message());
    std::int64_t digests[] = {static_cast<std::int64_t>(cache_->inspect().digest()), 0};
    digests[1] = ~digests[0];
    if (!ranks_.min(digests).ok()) wrong("the ranks have lost each other");
    if (digests[0] != ~digests[1])
      wrong("the trees differ; this one is\n" + cache_->inspect().dump());
    return wrong_;
  }
  /// Everything ends; nothing is held or leaks.
  std::string finish() {
    leases_.clear();
    for (const PrefetchId id : fetches_) (void)cache_->end_prefetch(id);
    while (!poll().idle) continue;
    if (cache_->inspect().sizes().protected_tokens != 0) wrong("something is still held");
    if (const Status s = cache_->reset(); !s) wrong(s.error().message);
    if (cache_.full.host->count(PageState::idle) != cache_.full.host->num_pages())
      wrong("host pages have leaked");
    return wrong_;
  }
  TierStats stats() const { return cache_->tiers().stats(); }
  std::size_t num_refused() const { return num_refused_; }

 private:
  TierSetup setup_of(const MirrorCase& c) {
    TierSetup setup = c.setup;
    setup.cache.ranks = &ranks_;
    setup.cache.hash_seed = own_();
    setup.copier = &copier_;
    setup.num_layers = 2 + ranks_.rank() / 2;  // two stages of a pipeline
    setup.host_tokens += 8 * ranks_.rank();
    if (c.engine_slots) setup.engine_refuses = [this] { return count_refusal(chance(0.2)); };
    copier_.at_once(waits_in_evict_);
    return setup;
  }
  static Result<std::unique_ptr<StoreBackend>> store(std::uint64_t seed) {
    return make_faulty_store(*make_memory_store(), {.seed = seed,
                                                    .error = 0.01,
                                                    .short_read = 0.01,
                                                    .flipped_bit = 0.01,
                                                    .stale = 0.01,
                                                    .delay = 0.2,
                                                    .max_delay = std::chrono::milliseconds(1)});
  }

  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = "rank " + std::to_string(ranks_.rank()) + ": " + what;
  }
  std::size_t pick(std::size_t n) { return static_cast<std::size_t>(common_() % n); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(own_) < p; }
  bool count_refusal(bool refuses) {
    num_refused_ += refuses ? 1 : 0;
    return refuses;
  }

  // Of this rank alone: some copies end, somebody else has taken host memory.
  void luck() {
    progress();
    if (chance(0.03)) copier_.refuse(1);
    copier_.fail_at_once(chance(0.05));
    if (!chance(0.1)) return;
    stolen_.resize(cache_.full.host->available_pages());
    cache_.full.host->alloc(stolen_).value();
    count_refusal(true);
  }
  void give_back_stolen() {
    cache_.full.host->free(stolen_);
    stolen_.clear();
  }
  void progress() {
    for (const std::size_t stream : {0u, 1u}) {
      for (std::size_t n = own_() % 3; n > 0; --n) copier_.step(stream, !chance(0.02));
    }
  }
  PollResult poll() {
    progress();
    const PollResult result = cache_->poll();
    loads_ -= result.loads;
    const std::uint64_t failed = cache_->tiers().stats().failed_loads;
    loads_ -= failed - failed_loads_;
    failed_loads_ = failed;
    return result;
  }
  void wait_for_loads() {
    while (loads_ > 0) poll();
    for (auto* side : {&cache_.full, &cache_.window, &cache_.state}) {
      if (side->device) side->device->open_gate();
    }
  }

  void act() {
    switch (pick(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return request();
      case 4:
        cache_->evict(pick(24));
        return;
      case 5:
        cache_->evict({.window_tokens = pick(12), .snapshots = pick(3)});
        return;
      case 6:
        cache_->tiers().evict_host(pick(24));
        return;
      case 7:
        return hold();
      case 8:
        if (!leases_.empty())
          leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(pick(leases_.size())));
        return;
      case 9: {
        key_ = random_key();
        const Prefetch prefetch = *cache_->prefetch({key_});
        if (prefetch.id) fetches_.push_back(prefetch.id);
        return;
      }
      case 10:
        return end_fetch();
      default:
        poll();
    }
  }

  // Keys that share prefixes: a path in a small tree.
  Tokens random_key() {
    const std::size_t a = pick(256);
    Tokens key;
    for (std::size_t i = 0, length = 3 + pick(18); i < length; ++i)
      key.push_back(static_cast<Token>(i * 10 + (i < 4 ? a % 2 : i < 9 ? a / 2 % 3 : a / 6 % 3)));
    return key;
  }

  // Match, load back, compute, insert. What a failed load was to bring is not used.
  void request() {
    wait_for_loads();
    key_ = random_key();
    Slots at(key_.size());
    const Match match = *cache_->paths().match({key_}, at);
    Lease lease = *cache_->paths().lock(match);
    std::size_t cached = match.length;
    const std::uint64_t failed = failed_loads_;
    if (match.host_length > 0) {
      const Result<LoadBack> loaded = cache_->paths().load_back(lease, at);
      if (loaded.ok() && loaded->outcome == LoadOutcome::loaded) ++loads_;
      if (loaded.ok()) cached += loaded->tokens;
    }
    wait_for_loads();
    if (failed_loads_ != failed) return;
    const ::testing::AssertionResult right = cache_.holds(key_, at, cached);
    if (!right) wrong(right.message());
    if (cache_.states && cache_.states->available() == 0 &&
        cache_->inspect().sizes(ComponentKind::state).evictable == 0)
      return;
    if (!cache_.take(at, cached)) return;
    cache_.compute(key_, at, cached, key_.size());
    cache_.insert(key_, at, cached);
  }
  void hold() {
    if (leases_.size() == 3) leases_.erase(leases_.begin());
    key_ = random_key();
    Slots at(key_.size());
    Lease lease = *cache_->paths().lock(*cache_->paths().match({key_}, at));
    if (pick(2) == 0) {
      const Result<LoadBack> loaded = cache_->paths().load_back(lease, at);
      if (loaded.ok() && loaded->outcome == LoadOutcome::loaded) ++loads_;
    }
    if (lease) leases_.push_back(std::move(lease));
  }
  void end_fetch() {
    if (fetches_.empty()) return;
    const PrefetchId id = fetches_.front();
    fetches_.erase(fetches_.begin());
    if (pick(5) == 0) return cache_->abort_prefetch(id);
    for (std::size_t i = pick(40); i > 0 || !cache_->prefetch_ready(id); i -= i > 0 ? 1 : 0) poll();
    (void)cache_->end_prefetch(id);
  }

  Ranks& ranks_;
  const bool waits_in_evict_;
  std::mt19937_64 common_, own_;
  StepCopier copier_;
  TieredCache cache_;
  Tokens key_;
  std::vector<Lease> leases_;
  std::vector<PrefetchId> fetches_;
  std::vector<HostPageId> stolen_;
  std::uint64_t loads_ = 0;  // under way
  std::uint64_t failed_loads_ = 0;
  std::size_t num_refused_ = 0;
  std::string wrong_;
};

}  // namespace pando::testing
