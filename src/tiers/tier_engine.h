// SPDX-License-Identifier: Apache-2.0
// The tiers below the device, as every cache uses them: reserves host pages, copies to the host and
// back, puts into a store and fetches from it, gates by cost and agrees with other ranks, over the
// extents of an index (extent.h). The index decides what goes where and keeps what has arrived; the
// engine moves it. The radix tree (cache/tree_tiers.h) and the blocks (blocks/block_tiers.h) are
// two such indexes.
//
//   HostRoom       who gets host pages; claims by owner; caps
//   CopyQueue      copies under way, one queue for each direction (page_copy.h)
//   StorePuts      host -> store      StoreFetches   store -> host      (both in StoreLink)
//   CostGate       load, or compute again?
//   Agreement      what is so on all ranks
//
// Invariant: a host page is free in its pool, kept by the index, or of exactly one copy, load or
// fetch listed here. Both ends of a copy are held until apply() has seen it end. check() proves
// it.
//
// Threads: all calls come from the thread of the cache; copiers and stores have their own, and are
// asked whether they have finished. Once per poll() the cache calls report(), lets the ranks agree
// on the numbers, and calls apply() with what is agreed. Idle, that is two comparisons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pando/tiers.h"
#include "store/open_storage.h"
#include "tiers/agreement.h"
#include "tiers/cost_gate.h"
#include "tiers/host_room.h"
#include "tiers/page_copy.h"
#include "tiers/store_fetches.h"
#include "tiers/store_index.h"
#include "tiers/store_puts.h"

namespace pando {

/// What an index does for the engine.
class TierIndex : public HostKeeper, public StoreIndex {
 public:
  /// A copy to the host has ended: keeps its pages, or frees them, and lets go of the device's.
  virtual void backup_ended(PageCopy& copy, bool copied) = 0;
  /// A load has ended; the oldest that was committed.
  virtual void load_ended(PageCopy& copy, bool loaded) = 0;

 protected:
  ~TierIndex() = default;
};

class TierEngine;

/// A store that is attached, and what is under way to it and from it.
struct StoreLink {
  struct Limits {
    std::size_t max_fetched_tokens = 0;
    std::size_t max_held_pages = 0;  // by puts
  };
  StoreLink(TierEngine& engine, OpenedStorage opened_storage, StorePages store_pages,
            const Limits& limits);

  OpenedStorage opened;
  StorePages pages;
  StorePuts puts;
  StoreFetches fetches;

  void abandon() {
    puts.abandon();
    fetches.abandon();
  }
  bool idle() const { return puts.empty() && fetches.empty(); }
};

class TierEngine {
 public:
  struct Options {
    std::vector<TierPools> pools = {};      // by component; none where both are nullptr
    std::vector<ComponentKind> kinds = {};  // of each, in the names of stored pages
    bool are_groups = false;                // components are groups: their numbers are in names
    Copier* copier = nullptr;
    std::size_t backup_stream = 0;
    std::size_t load_stream = 1;
    std::optional<CostGateOptions> cost_gate = {};
  };
  /// The index must drain() before it goes.
  TierEngine(Options options, Agreement& ranks, TierIndex& index);
  TierEngine(const TierEngine&) = delete;
  TierEngine& operator=(const TierEngine&) = delete;

  const TierPools& pools(std::size_t component) const { return options_.pools[component]; }
  std::size_t num_components() const { return options_.pools.size(); }

  // ---- Copies ----

  std::unique_ptr<PageCopy> new_backup() { return backups_.make(); }
  /// Pages are reserved, and the device's held. Ends in TierIndex::backup_ended.
  void start_backup(std::unique_ptr<PageCopy> copy);
  void recycle(std::unique_ptr<PageCopy> copy) { backups_.recycle(std::move(copy)); }
  /// Copies at once; nobody holds the device's pages meanwhile. True if every byte has arrived on
  /// every rank.
  bool back_up_now(PageCopy& copy);
  /// The pages of a copy that failed, or of a part of it, are free again.
  void free_written(std::size_t component, std::span<const HostPageId> pages);

  /// Whether to load so many bytes behind what is being loaded, or to compute the tokens again.
  bool is_worth_loading(std::size_t size_bytes, std::size_t num_tokens);
  std::unique_ptr<PageCopy> new_load() { return loads_.make(); }
  /// Starts it on this rank. Nothing is under way if it fails.
  Status start_load(PageCopy& copy, LoadOrder order);
  /// It has started on all ranks: the gates of the device pools wait for it. Ends in
  /// TierIndex::load_ended.
  void commit_load(std::unique_ptr<PageCopy> copy);

  // ---- The store ----

  // The calls of the caches. Attaching validates everything first and changes something last; where
  // the same store is attached, it changes policies only. `max_tokens` is what fetches may occupy
  // unless the options say.
  using SetWritePolicy = std::function<void(WritePolicy)>;
  Result<std::string> attach(const StorageOptions& options, std::size_t max_tokens,
                             const SetWritePolicy& set_write_policy);
  /// Calls off what is under way and waits; nothing is held for the store then.
  std::string detach();
  Status clear_store();
  StoreStats store_stats() const { return store_ ? store_->opened.store->stats() : StoreStats{}; }
  bool is_ready(PrefetchId id) const { return !store_ || store_->fetches.is_ready(id); }
  std::size_t end_fetch(PrefetchId id, bool keep) {
    return store_ ? store_->fetches.end(id, keep) : 0;
  }
  /// nullptr: none is attached.
  StoreLink* store() const { return store_.get(); }
  /// The entry has something on the host that the store may lack.
  void put(std::uint64_t entry) {
    if (store_) store_->puts.wait(entry);
  }

  // ---- Polling ----

  /// Appends numbers for everything under way, see Agreement.
  void report(std::vector<std::int64_t>& values);
  /// The same numbers, each the least of all ranks.
  void apply(std::span<const std::int64_t> values, PollResult& result);
  /// Waits for all copies and applies them as they are here: before everything goes.
  void drain();
  bool idle() const { return backups_.empty() && loads_.empty() && (!store_ || store_->idle()); }
  UnderWay under_way() const;
  TierStats tier_stats() const;
  void add_prefill(std::size_t num_tokens, double seconds) {
    gate.prefilled_tokens.add(static_cast<double>(num_tokens), seconds);
  }

  /// What is claimed is what is under way.
  Status check() const;
  /// Calls fn(component, page, state) for each host page of something under way.
  template <typename Fn>
  void for_each_page(Fn&& fn) const {
    const auto pages_of = [&](const CopyQueue& queue, PageState state) {
      for (const auto& copy : queue.list()) {
        copy->for_each([&](std::size_t c, const PageCopy::Pages& pages) {
          for (const HostPageId page : pages.host) fn(c, page, state);
        });
      }
    };
    pages_of(loads_, PageState::loading);
    pages_of(backups_, PageState::writing);
    if (!store_) return;
    store_->fetches.for_each_page(
        [&](std::size_t c, HostPageId page) { fn(c, page, PageState::writing); });
  }

 private:
  friend struct StoreLink;
  Status open(Result<OpenedStorage> opened, std::size_t max_tokens);
  void apply_copies(std::span<const std::int64_t> values, PollResult& result);

  const Options options_;
  Agreement& ranks_;
  TierIndex& index_;

 public:
  HostRoom room;
  CostGate gate;
  TierStats stats;

 private:
  CopyQueue backups_, loads_;
  std::unique_ptr<StoreLink> store_;
};

/// An error unless such a prefill can have been.
Status check_prefill(std::size_t num_tokens, double seconds);

}  // namespace pando
