// SPDX-License-Identifier: Apache-2.0
// The storage tier at work: what has got a host copy is put into the store, and what the tree lacks
// is fetched from there to the host while a request waits. Made when a store is attached.
//
// Invariant: a node whose pages are being put is held on the host; so is the node below which
// fetched pages will hang. Host pages of a fetch are the fetch's, protected for writing, until they
// are a node's or nobody touches them any more.
//
// Everything that depends on when I/O ends is decided in two steps: report() says what has
// happened here, apply() acts on what is so everywhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/cache_core.h"
#include "cache/host_tier.h"
#include "pando/key_space.h"
#include "pando/store.h"
#include "pando/tiers.h"
#include "store/open_storage.h"

namespace pando {

class StorageTier {
 public:
  /// Fetches occupy at most `max_tokens` on the host.
  StorageTier(CacheCore& core, HostTier& host, OpenedStorage opened, std::size_t max_tokens);
  /// Calls off what is under way, waits until nobody touches a page, and releases everything.
  ~StorageTier();

  /// Calls off what is under way and waits; nothing is held then. The store stays.
  void abandon();

  const std::string& backend() const { return opened_.backend; }
  void set_prefetch_policy(PrefetchPolicy policy) { opened_.prefetch.policy = policy; }
  Store& store() { return *opened_.store; }

  /// The node has just got its host copy.
  void put(NodeIndex node);
  /// The path to this node has been hit: what the store did not take, or was never given, is put.
  void put_unstored(NodeIndex end);

  Result<Prefetch> prefetch(const Key& key);
  bool is_ready(PrefetchId id) const;
  /// Ends a fetch, keeping what has arrived or nothing. Returns the tokens that the host has more.
  std::size_t end(PrefetchId id, bool keep);

  /// Appends numbers for each thing under way: how far it is here.
  void report(std::vector<std::int64_t>& values);
  /// The same numbers, each the least of all ranks.
  void apply(std::span<const std::int64_t> values, PollResult& result);

  bool idle() const { return puts_.empty() && fetches_.empty(); }
  void count(UnderWay& under_way) const {
    under_way.puts = puts_.size();
    under_way.fetches = fetches_.size();
  }
  std::size_t num_host_locks() const { return num_host_locks_; }
  HostTier::Reserved reserved() const;
  HostTier::Claim claimed() const;

 private:
  struct Put {
    NodeId node = {};
    std::uint32_t begin = 0;  // pages from the root; it may be split meanwhile
    std::size_t num_tokens = 0;
    std::vector<std::vector<StorePage>> waiting;  // batches that the queue had no room for
    std::vector<StoreCall> calls;
  };
  /// asking: is it there. reserved: host pages are taken. reading. ready: the policy lets the
  /// request go. ended: given up or put into the tree, but calls may still touch its pages.
  enum class Phase { asking, reserved, reading, ready, ended };
  struct Fetch {
    PrefetchId id = {};
    Phase phase = Phase::asking;
    std::string ns;
    std::vector<Token> tokens;     // of the whole key
    std::vector<PageHash> hashes;  // of pages [from, from + hashes.size())
    NodeId anchor = {};            // ends at page `from`; nothing at the start
    std::size_t from = 0;
    std::size_t limit = SIZE_MAX;  // pages that another rank could fetch at most
    std::size_t num_pages = 0;     // to fetch
    std::size_t window_from = 0;   // of these, the first whose window is fetched too
    std::size_t occupied = 0;      // tokens that count against the limit
    std::chrono::steady_clock::time_point started = {};
    std::chrono::steady_clock::time_point reading_since = {};
    std::optional<StoreCall> question;
    HostTier::Claim claim;
    bool is_probe = false;   // fetched whatever the cost gate says
    bool is_judged = false;  // it said no, and that is counted
    bool is_measured = false;
    bool has_room = false;
    HostTier::Reserved pages;
    std::vector<StoreCall> calls;  // windows and snapshot first, then tokens in order
    std::size_t first_full_call = 0;
  };

  static constexpr std::size_t kBatchPages = 128;

  std::vector<StorePage> pages_of(const KeySpace& space, ComponentKind kind,
                                  std::span<const HostPageId> pages,
                                  std::span<const PageHash> hashes) const;
  static std::vector<std::vector<StorePage>> batches_of(std::vector<StorePage> pages);
  /// Calls fn(host pool, pages) for each component of which there are pages.
  template <typename Fn>
  void for_each_component(HostTier::Reserved& pages, Fn&& fn) const {
    for (const auto& [kind, of] : {std::pair{ComponentKind::full, &pages.full},
                                   {ComponentKind::window, &pages.window},
                                   {ComponentKind::state, &pages.state}}) {
      if (!of->empty()) fn(*host_.pools(kind).host, *of);
    }
  }
  void start_put(Put& put);
  std::int64_t progress(const Put& put) const;
  void finish_put(Put& put, bool taken, PollResult& result);

  void ask(Fetch& fetch);
  std::size_t answer(const Fetch& fetch) const;
  std::size_t wanted(Fetch& fetch);
  double fetch_bytes(std::size_t num_pages) const;
  void measure(Fetch& fetch);
  std::size_t unbroken_window(NodeIndex node) const;
  bool reserve(Fetch& fetch);
  void start_reads(Fetch& fetch);
  std::size_t pages_arrived(const Fetch& fetch) const;
  bool may_end(const Fetch& fetch) const;
  bool is_late(const Fetch& fetch, std::size_t num_pages) const;
  bool is_quiet(const Fetch& fetch) const;
  std::size_t insert(Fetch& fetch, std::size_t num_pages);
  NodeIndex hang(const Fetch& fetch, NodeIndex parent, std::size_t begin, std::size_t end);
  void give(Fetch& fetch, ComponentKind kind, std::vector<HostPageId>& pages, std::size_t begin,
            std::size_t end);
  void let_go(Fetch& fetch);
  void call_off(Fetch& fetch);
  void report(Fetch& fetch, std::vector<std::int64_t>& values);
  bool has_answer(Fetch& fetch);
  std::size_t num_values(const Fetch& fetch) const { return fetch.phase == Phase::asking ? 2 : 1; }
  void advance(Fetch& fetch, std::span<const std::int64_t> values);
  void begin_fetch(Fetch& fetch);

  CacheCore& core_;
  RadixIndex& index_;
  HostTier& host_;
  const std::size_t max_tokens_;
  const KeySpace full_space_;
  std::optional<KeySpace> window_space_, state_space_;
  std::size_t occupied_tokens_ = 0;
  std::deque<Put> puts_;
  std::deque<Fetch> fetches_;
  std::uint64_t last_id_ = 0;
  std::size_t num_host_locks_ = 0;
  OpenedStorage opened_;  // its store goes first: then no thread touches a page
};

}  // namespace pando
