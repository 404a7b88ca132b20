// SPDX-License-Identifier: Apache-2.0
// Drives a PrefixCache and the reference side by side from a list of plain numbers: each is decoded
// into an operation on whatever state there is, so that any list, and any part of one, is a valid
// test. The model test draws lists at random and shrinks them; the fuzzer mutates them.
//
// cache_model.cc drives and compares, cache_model_keys.cc does the operations on keys and leases,
// cache_model_requests.cc those on running requests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "pando/paths.h"
#include "support/reference_cache.h"

namespace pando::testing {

struct ModelConfig {
  std::size_t page_size = 1;
  bool bigram = false;
  bool events = false;
  bool whole_nodes = false;
  bool own_allocator = true;  // false: the cache stands on an engine's slots
  std::string policy = "lru";
  std::size_t num_pages = 24;
  std::optional<std::size_t> window = {};  // tokens
  std::size_t num_window_pages = 16;
  std::optional<StateOptions> state = {};
  std::size_t num_states = 12;
};

/// What the cache did differs from what it should have done.
struct ModelFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Makes failed checks throw ModelFailure, for all threads.
void throw_on_failed_checks();

class CacheModel {
 public:
  explicit CacheModel(const ModelConfig& config);
  ~CacheModel();

  /// Performs one operation on both, compares, and proves all invariants.
  void apply(std::uint64_t op);
  /// Lets go of everything and empties the cache: nothing may be left.
  void finish();

 private:
  using Freed = ReferenceCache::Freed;

  struct KeyData {
    std::string ns;
    std::vector<Token> tokens;
    Key view() const { return {tokens, ns}; }
  };
  struct HeldPath {
    ReferenceCache::PageKey end;
    std::uint64_t uid = 0;
    std::optional<std::size_t> window_from = {};  // page
    bool snapshot = false;
  };
  struct SavedMatch {
    Match match;
    std::optional<HeldPath> path, partial;
  };
  struct HeldLease {
    Lease lease;
    std::optional<HeldPath> path, partial;
  };
  struct Running {
    KeyData key;
    std::int32_t priority = 0;
    std::size_t room = 0;  // that it will have: its tokens, and some that are never computed
    Request request;
    std::optional<HeldPath> path, partial;

    std::vector<SlotId> slots() const { return {request.slots().begin(), request.slots().end()}; }
    /// Everything that has slots.
    std::size_t computed() const { return request.slots().size(); }
    std::size_t computed_tokens() const { return std::min(computed(), key.tokens.size()); }
  };
  /// What an engine with slots of its own was told in the last operation.
  struct Told {
    std::vector<SlotId> freed, window_freed, moved_from, moved_to;
  };

  class Bits;  // the parts of one operation
  void make_cache();
  EngineSlots engine_slots();
  KeyData make_key(Bits& bits) const;

  SavedMatch do_match(const KeyData& key, std::vector<SlotId>* slots);
  std::optional<HeldPath> named_partial(const Match& match) const;
  void do_lock(const SavedMatch& saved);
  void do_insert(Bits& bits);
  void do_evict(std::size_t num_tokens, std::size_t num_window_tokens, std::size_t num_snapshots);
  void do_release(Bits& bits);
  void do_release_part(Bits& bits);
  void do_probe(Bits& bits);
  void do_reset();
  void do_bad_input(Bits& bits);

  void do_start(Bits& bits);
  void do_extend(Bits& bits);
  void do_snapshot(Bits& bits);
  void do_release_window(Bits& bits);
  void do_checkpoint(Running& running, bool chunked);
  void do_finish(std::size_t which, bool insert);
  /// The computed part of a request's key, and what of it may go to the tree.
  KeyData computed_key(const Running& running) const;
  std::optional<ReferenceCache::InsertSpec> insertable(const Running& running, KeyData& key,
                                                       bool chunked) const;

  void hold_path(std::optional<HeldPath>& path);
  void hold_partial(std::optional<HeldPath>& path, std::size_t from_page);
  void drop_window(HeldPath& path);
  void drop_snapshot(HeldPath& path);
  void drop(std::optional<HeldPath>& path, Freed& freed);

  std::uint32_t page_of(SlotId slot) const;
  std::vector<std::uint32_t> whole_pages(const std::vector<SlotId>& slots, std::size_t n) const;
  std::vector<SlotId> slots_of(const std::vector<std::uint32_t>& pages) const;
  const PagedAllocator& full_side() const;
  std::size_t free_windows() const { return config_.num_window_pages - windows_.size(); }
  /// Evicts in both until `num_pages` are free on both sides; false if that cannot be.
  bool make_room(std::size_t num_pages);
  std::vector<SlotId> take_pages(std::size_t num_pages);
  void note_taken(std::uint32_t page);
  void release_own_window(std::uint32_t page);
  /// A snapshot slot, evicting in both if need be.
  std::optional<StateSlot> take_state();
  void expect(const Freed& freed);
  void expect_told(const Freed& freed);
  void compare();
  void compare_sizes() const;
  void compare_slots() const;
  void replay_events();

  const ModelConfig config_;
  ReferenceCache reference_;
  std::unique_ptr<PagedAllocator> allocator_;          // without a window
  std::unique_ptr<WindowAllocator> window_allocator_;  // with one
  std::unique_ptr<StateAllocator> states_;
  std::set<std::uint32_t> free_;          // pages that should be free
  std::set<std::uint32_t> windows_;       // pages that should have a window side
  std::set<std::uint32_t> taken_states_;  // indices that should be handed out
  Told told_;
  std::unique_ptr<PrefixCache> cache_;
  std::deque<SavedMatch> matches_;
  std::vector<HeldLease> leases_;
  std::deque<Running> running_;
  std::size_t num_compared_ = 0;
  std::set<PageHash> announced_;  // what a reader of the events believes is cached
};

/// Runs a whole list on a fresh model.
void run_model(const ModelConfig& config, const std::vector<std::uint64_t>& ops);

}  // namespace pando::testing
