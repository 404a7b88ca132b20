// SPDX-License-Identifier: Apache-2.0
// The tier engine under random operations, over an index that could not be simpler: entries by
// number, each with a page of one component and, if it is even, of another. Copies end when the
// test says, or fail, or are refused; the store fails, lies and dawdles. After every step each host
// page has one owner and the state that its owner says, claims and holds add up, caps and the
// limits of puts are kept; every byte that is loaded is what was computed for that entry.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <map>

#include "base/page_hash.h"
#include "base/random.h"
#include "pando/config.h"
#include "pando/store_backends.h"
#include "support/random_ops.h"
#include "support/step_copier.h"
#include "support/tier_fixture.h"
#include "tiers/tier_engine.h"

namespace pando::testing {
namespace {

constexpr std::uint32_t kEntries = 48, kOwners = 3;
constexpr std::array<std::size_t, 2> kHostPages = {16, 8};
constexpr std::size_t kCap = 4;  // of owner 1, in pages of the first component
constexpr std::size_t kMostHeld = (kHostPages[0] + kHostPages[1]) / 4;

struct Entry {
  bool on_device = false;
  bool backing_up = false;
  bool loading = false;
  bool on_host = false;
  bool unstored = false;
  std::array<HostPageId, 2> pages = {};
  std::size_t puts = 0;  // that hold it, and so for loads
  std::size_t loads = 0;
  bool is_held() const { return puts + loads > 0; }
};

class PlainIndex final : public TierIndex {
 public:
  PlainIndex(StepCopier& copier, Agreement& ranks)
      : pools_{sides[0].make(TieredCache::geometry(1), kEntries, kHostPages[0], {}),
               sides[1].make(TieredCache::geometry(1), kEntries, kHostPages[1], {})},
        engine({.pools = {pools_[0], pools_[1]},
                .kinds = {ComponentKind::full, ComponentKind::window},
                .copier = &copier},
               ranks, *this) {}

  static OwnerId owner_of(std::uint32_t e) { return static_cast<OwnerId>(e % kOwners); }
  static std::size_t num_components(std::uint32_t e) { return e % 2 == 0 ? 2 : 1; }
  static PageId device_page(std::uint32_t e) { return PageId{e + 1}; }
  static std::uint64_t value(std::uint32_t e, std::size_t c) { return 1000 + e * 2 + c; }

  // ---- What a cache would do ----

  void compute(std::uint32_t e) {
    Entry& entry = entries[e];
    if (entry.on_device || entry.loading) return;
    for (std::size_t c = 0; c < 2; ++c) sides[c].write(SlotId{e + 1}, value(e, c));
    entry.on_device = true;
  }
  void forget(std::uint32_t e) {
    Entry& entry = entries[e];
    if (!entry.on_device || entry.backing_up) return;
    for (std::size_t c = 0; c < 2; ++c) sides[c].write(SlotId{e + 1}, 1);
    entry.on_device = false;
  }
  /// Entries of one owner from `e` on, until there is no room.
  void back_up(std::uint32_t e, std::size_t n, bool now) {
    std::unique_ptr<PageCopy> copy = engine.new_backup();
    for (; n > 0 && e < kEntries; --n, e += kOwners) {
      Entry& entry = entries[e];
      if (!entry.on_device || entry.on_host || entry.backing_up) continue;
      if (!reserve(e, *copy)) break;
      entry.backing_up = true;
    }
    if (copy->extents.empty()) return engine.recycle(std::move(copy));
    if (!now) return engine.start_backup(std::move(copy));
    const bool copied = engine.back_up_now(*copy);
    copy->unclaim(engine.room);
    backup_ended(*copy, copied);
    engine.recycle(std::move(copy));
  }
  void load(std::uint32_t e) {
    Entry& entry = entries[e];
    if (!entry.on_host || entry.on_device || entry.loading) return;
    std::unique_ptr<PageCopy> copy = engine.new_load();
    for (std::size_t c = 0; c < num_components(e); ++c) {
      copy->of[c].device.push_back(device_page(e));
      copy->of[c].host.push_back(entry.pages[c]);
      engine.room.pool(c).protect_load({&entry.pages[c], 1});
    }
    if (!engine.start_load(*copy, LoadOrder::by_page)) {
      for (std::size_t c = 0; c < num_components(e); ++c)
        engine.room.pool(c).abort_load({&entry.pages[c], 1});
      return;
    }
    copy->extents.push_back({.entry = e});
    entry.loading = true;
    ++entry.loads;
    engine.commit_load(std::move(copy));
  }
  void hit(std::uint32_t e) {
    if (entries[e].on_host && entries[e].unstored) engine.put(e);
  }
  PrefetchId prefetch(std::uint32_t first, std::size_t n) {
    auto fetch = std::make_unique<PlainFetch>();
    fetch->owner = owner_of(first);
    for (std::uint32_t e = first; e < kEntries && n > 0; e += kOwners, --n) {
      if (entries[e].on_host) continue;
      fetch->entries.push_back(e);
      for (std::size_t c = 0; c < num_components(e); ++c) {
        fetch->asked.push_back({static_cast<std::uint32_t>(c), name_of(e)});
        fetch->asked_entries.push_back(e);
      }
    }
    fetch->num_tokens = fetch->entries.size();
    StoreFetches& fetches = engine.store()->fetches;
    if (fetches.may_fetch(fetch->num_tokens) != PrefetchOutcome::started) return {};
    return fetches.begin(std::move(fetch));
  }

  // ---- What must be so ----

  void check() const {
    const Status claims = engine.check();
    if (!claims.ok()) RC_FAIL(claims.error().message);
    std::array<std::map<std::uint32_t, PageState>, 2> expected;
    const auto own = [&](std::size_t c, HostPageId page, PageState state) {
      const auto [at, is_new] = expected[c].try_emplace(index_of(page), state);
      // A page that is loaded is also kept.
      RC_ASSERT(is_new || (state == PageState::backed_up && at->second == PageState::loading));
    };
    engine.for_each_page(own);
    std::array<std::size_t, kOwners> kept = {};
    std::size_t held = 0;
    for (std::uint32_t e = 0; e < kEntries; ++e) {
      const Entry& entry = entries[e];
      RC_ASSERT(entry.on_host || (!entry.is_held() && !entry.unstored));
      held += entry.puts * num_components(e);
      if (!entry.on_host) continue;
      ++kept[owner_of(e)];
      for (std::size_t c = 0; c < num_components(e); ++c)
        own(c, entry.pages[c], PageState::backed_up);
    }
    for (std::size_t c = 0; c < 2; ++c) {
      for (std::uint32_t p = 0; p < kHostPages[c]; ++p) {
        const auto at = expected[c].find(p);
        RC_ASSERT(engine.room.pool(c).state(HostPageId{p}) ==
                  (at == expected[c].end() ? PageState::idle : at->second));
      }
    }
    RC_ASSERT(kept[1] <= kCap);
    RC_ASSERT(held <= kMostHeld);
    if (engine.store() != nullptr) RC_ASSERT(held == engine.store()->puts.num_held_pages());
  }

 private:
  struct PlainFetch final : FetchTarget {
    std::vector<std::uint32_t> entries;
    std::vector<std::uint32_t> asked_entries;  // of each of `asked`
  };

  static PageHash name_of(std::uint32_t e) { return digest_of("entry " + std::to_string(e)); }

  bool reserve(std::uint32_t e, PageCopy& copy) {
    for (std::size_t c = 0; c < num_components(e); ++c) {
      if (!engine.room.reserve(c, 1, owner_of(e), copy.of[c].host, copy.claim)) {
        if (c == 1) {  // nothing of it
          engine.room.unclaim(owner_of(e), 0, 1);
          if (copy.of[0].host.size() == copy.of[0].device.size()) {
            engine.room.pool(0).free({&copy.of[0].host.back(), 1});
            copy.of[0].host.pop_back();
          }
          copy.of[0].device.pop_back();
        }
        return false;
      }
      copy.of[c].device.push_back(device_page(e));
    }
    copy.extents.push_back({.entry = e});
    return true;
  }
  bool is_evictable(std::uint32_t e, std::size_t component) const {
    return entries[e].on_host && !entries[e].is_held() && component < num_components(e);
  }

  Share share(std::size_t component, OwnerId owner) const override {
    Share out{.cap = owner == 1 && component == 0 ? kCap : SIZE_MAX};
    for (std::uint32_t e = owner; e < kEntries; e += kOwners) {
      out.kept += entries[e].on_host && component < num_components(e) ? 1 : 0;
      out.evictable += is_evictable(e, component) ? 1 : 0;
    }
    return out;
  }
  std::size_t kept_pages(std::size_t component) const override {
    std::size_t sum = 0;
    for (OwnerId owner = 0; owner < kOwners; ++owner) sum += share(component, owner).kept;
    return sum;
  }
  std::size_t evictable_for(std::size_t component, OwnerId) const override {
    std::size_t sum = 0;
    for (OwnerId owner = 0; owner < kOwners; ++owner) sum += share(component, owner).evictable;
    return sum;
  }

 public:
  void evict_host(const Shortage& shortage) override {
    std::size_t left = shortage.num_pages;
    for (std::uint32_t e = 0; e < kEntries && left > 0; ++e) {
      if (!is_evictable(e, shortage.component)) continue;
      if (shortage.over_cap && owner_of(e) != shortage.owner) continue;
      for (std::size_t c = 0; c < num_components(e); ++c)
        engine.room.pool(c).free({&entries[e].pages[c], 1});
      entries[e].on_host = entries[e].unstored = false;
      --left;
    }
  }

 private:
  void backup_ended(PageCopy& copy, bool copied) override {
    std::array<std::size_t, 2> at = {};
    for (const Extent& extent : copy.extents) {
      const auto e = static_cast<std::uint32_t>(extent.entry);
      Entry& entry = entries[e];
      entry.backing_up = false;
      const bool keeps = copied && !entry.on_host;  // or a fetch was faster
      for (std::size_t c = 0; c < num_components(e); ++c) {
        if (at[c] >= copy.of[c].host.size()) continue;  // a pool refused it
        const HostPageId page = copy.of[c].host[at[c]++];
        if (keeps) {
          engine.room.pool(c).complete_write({&page, 1}, /*on_device=*/false);
          entry.pages[c] = page;
        } else {
          engine.free_written(c, {&page, 1});
        }
      }
      if (!keeps) continue;
      entry.on_host = entry.unstored = true;
      engine.put(e);
    }
  }
  void load_ended(PageCopy& copy, bool loaded) override {
    const auto e = static_cast<std::uint32_t>(copy.extents[0].entry);
    Entry& entry = entries[e];
    entry.loading = false;
    --entry.loads;
    for (std::size_t c = 0; c < num_components(e); ++c)
      engine.room.pool(c).abort_load({&entry.pages[c], 1});
    if (!loaded) return;
    for (std::size_t c = 0; c < num_components(e); ++c)
      RC_ASSERT(sides[c].read(SlotId{e + 1}) == value(e, c));
    entry.on_device = true;
    if (num_components(e) == 1) sides[1].write(SlotId{e + 1}, value(e, 1));
  }
  void store_attached() override {
    for (std::uint32_t e = 0; e < kEntries; ++e) {
      if (entries[e].on_host) entries[e].unstored = true;
    }
  }
  std::optional<Extent> hold_unstored(std::uint64_t entry, std::vector<NamedPage>& pages) override {
    const auto e = static_cast<std::uint32_t>(entry);
    if (!is_unstored(entry)) return std::nullopt;
    for (std::size_t c = 0; c < num_components(e); ++c)
      pages.push_back({{static_cast<std::uint32_t>(c), name_of(e)}, entries[e].pages[c]});
    entries[e].unstored = false;
    ++entries[e].puts;
    return Extent{.entry = entry, .num_tokens = 1};
  }
  bool is_unstored(std::uint64_t entry) const override {
    return entries[static_cast<std::uint32_t>(entry)].unstored;
  }
  void put_ended(const Extent& extent, bool stored) override {
    Entry& entry = entries[static_cast<std::uint32_t>(extent.entry)];
    --entry.puts;
    entry.unstored = !stored;
  }
  // Entries of which the store has all, each on its own.
  std::size_t choose(FetchTarget& target, const std::function<bool(std::size_t)>& has,
                     std::size_t limit) override {
    const auto& fetch = static_cast<const PlainFetch&>(target);
    target.wanted.clear();
    std::size_t gained = 0;
    for (std::uint32_t at = 0; at < fetch.asked.size();) {
      const std::uint32_t e = fetch.asked_entries[at];
      const auto n = static_cast<std::uint32_t>(num_components(e));
      if (gained < limit && has(at) && (n == 1 || has(at + 1))) {
        ++gained;
        for (std::uint32_t i = 0; i < n; ++i) target.wanted.push_back(at + i);
      }
      at += n;
    }
    return gained;
  }
  std::size_t keep(FetchTarget& target, std::span<FetchedPage> pages) override {
    const auto& fetch = static_cast<const PlainFetch&>(target);
    std::size_t num_tokens = 0;
    for (std::size_t k = 0; k < pages.size();) {
      const std::uint32_t e = fetch.asked_entries[fetch.wanted[k]];
      const std::span<FetchedPage> own = pages.subspan(k, num_components(e));
      k += own.size();
      const bool whole = std::all_of(own.begin(), own.end(), [](auto& p) { return p.arrived; });
      if (!whole || entries[e].on_host) continue;
      for (FetchedPage& page : own) {
        page.kept = true;
        entries[e].pages[page.component] = page.page;
      }
      entries[e].on_host = true;
      ++num_tokens;
    }
    return num_tokens;
  }
  void fetch_ended(FetchTarget&) override {}

 public:
  std::array<Entry, kEntries> entries = {};
  std::array<TieredCache::Side, 2> sides;

 private:
  std::array<TierPools, 2> pools_;

 public:
  TierEngine engine;
};

class EngineOps {
 public:
  EngineOps() : index_(copier_, ranks_) { attach(); }
  ~EngineOps() {
    copier_.at_once(true);
    copier_.run_all();
    index_.engine.detach();
    index_.engine.drain();
  }

  void apply(std::uint64_t number) {
    for (std::uint64_t i = 0; i < 8; ++i) {
      Random random(number, i);
      apply_one(random);
      index_.check();
    }
  }
  /// Everything ends, and nothing is left.
  void finish() {
    for (const PrefetchId id : fetches_) end(id, true);
    copier_.run_all();
    while (!poll().idle) std::this_thread::yield();
    index_.check();
    index_.evict_host({0, SIZE_MAX});
    index_.check();
    RC_ASSERT(index_.engine.room.pool(0).available_pages() == kHostPages[0]);
    RC_ASSERT(index_.engine.room.pool(1).available_pages() == kHostPages[1]);
  }

 private:
  void attach() {
    StorageOptions options;
    options.backend = "engine-model";
    options.options = R"({"prefetch_threshold": 1, "prefetch_max_tokens": 12})";
    RC_ASSERT(index_.engine.attach(options, 12, [](WritePolicy) {}).ok());
  }
  PollResult poll() {
    std::vector<std::int64_t> values;
    index_.engine.report(values);
    PollResult result;
    index_.engine.apply(values, result);
    for (TieredCache::Side& side : index_.sides) side.device->open_gate();
    return result;
  }
  void end(PrefetchId id, bool keep) {
    if (index_.engine.store() != nullptr) (void)index_.engine.store()->fetches.end(id, keep);
  }

  void apply_one(Random& random) {
    const auto e = static_cast<std::uint32_t>(random.below(kEntries));
    switch (random.below(14)) {
      case 0:
      case 1:
        for (std::uint32_t i = e; i < kEntries; i += kOwners) index_.compute(i);
        break;
      case 2:
        index_.forget(e);
        break;
      case 3:
      case 4:
        index_.back_up(e, 1 + random.below(5), /*now=*/false);
        break;
      case 5:
        if (copier_.num_queued(0) > 0) break;  // it would wait behind them
        copier_.at_once(true);
        copier_.fail_at_once(random.below(4) == 0);
        index_.back_up(e, 1 + random.below(3), /*now=*/true);
        copier_.fail_at_once(false);
        copier_.at_once(false);
        break;
      case 6:
        index_.load(e);
        break;
      case 7:
        copier_.step(random.below(2), random.below(6) > 0);
        break;
      case 8:
        if (random.below(4) == 0) copier_.refuse(1);
        index_.hit(e);
        break;
      case 9:
        index_.evict_host({random.below(2), random.below(4)});
        break;
      case 10:
        if (index_.engine.store() == nullptr) break;
        if (const PrefetchId id = index_.prefetch(e, 1 + random.below(6)); id)
          fetches_.push_back(id);
        break;
      case 11:
        if (fetches_.empty()) break;
        for (std::size_t i = random.below(30); i > 0; --i) (void)poll();
        end(fetches_.front(), random.below(4) > 0);
        fetches_.pop_front();
        break;
      case 12:
        if (random.below(8) > 0) break;
        if (index_.engine.store() != nullptr) {
          index_.engine.detach();
          fetches_.clear();
        } else {
          attach();
        }
        break;
      default:
        (void)poll();
    }
  }

  Agreement ranks_{nullptr};
  StepCopier copier_;
  PlainIndex index_;
  std::deque<PrefetchId> fetches_;
};

const bool kRegistered =
    register_store("engine-model", [](const Config&) -> Result<std::unique_ptr<StoreBackend>> {
      return make_faulty_store(*make_memory_store(), {.seed = 3,
                                                      .error = 0.05,
                                                      .short_read = 0.05,
                                                      .flipped_bit = 0.05,
                                                      .stale = 0.05,
                                                      .delay = 0.05,
                                                      .max_delay = std::chrono::milliseconds(1)});
    }).ok();

TEST(TierEngineModel, EveryPageHasOneOwnerAndEveryByteIsItsEntrys) {
  const char* given = std::getenv("PANDO_MODEL_OPS");
  const std::size_t num_ops =
      given != nullptr ? static_cast<std::size_t>(std::atoll(given)) / 8 : 200'000 / 8;
  EXPECT_TRUE(check_random_ops(num_ops, [](const std::vector<std::uint64_t>& ops) {
    EngineOps engine;
    for (const std::uint64_t op : ops) engine.apply(op);
    engine.finish();
  }));
}

}  // namespace
}  // namespace pando::testing
