// SPDX-License-Identifier: Apache-2.0
// Drives a PrefixCache and the reference side by side from a list of plain numbers: each is decoded
// into an operation on whatever state there is, so that any list, and any part of one, is a valid
// test. The model test draws lists at random and shrinks them; the fuzzer mutates them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "pando/cache.h"
#include "support/reference_cache.h"

namespace pando::testing {

struct ModelConfig {
  std::size_t page_size = 1;
  bool bigram = false;
  bool events = false;
  bool whole_nodes = false;
  bool own_allocator = true;  // false: the cache stands on a sink
  std::string policy = "lru";
  std::size_t num_pages = 24;
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
  struct KeyData {
    std::string ns;
    std::vector<Token> tokens;
    Key view() const { return {tokens, ns}; }
  };
  struct HeldPath {
    ReferenceCache::PageKey end;
    std::uint64_t uid = 0;
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
    std::vector<SlotId> slots;  // whole length; [0, computed) are valid
    std::size_t computed = 0;
    Request request;
    std::optional<HeldPath> path, partial;
  };

  class Bits;  // the parts of one operation
  KeyData make_key(Bits& bits) const;
  SavedMatch do_match(const KeyData& key, std::vector<SlotId>* slots);
  void do_lock(const SavedMatch& saved);
  void do_insert(Bits& bits);
  void do_evict(std::size_t num_tokens);
  void do_start(Bits& bits);
  void do_extend(Bits& bits);
  void do_checkpoint(Running& running, bool chunked);
  void do_finish(std::size_t which, bool insert);
  void do_release(Bits& bits);
  void do_probe(Bits& bits);
  void do_reset();
  void do_bad_input(Bits& bits);

  void hold(const std::optional<HeldPath>& path, int by);
  std::vector<std::uint32_t> whole_pages(const std::vector<SlotId>& slots, std::size_t n) const;
  /// Evicts in both until `num_pages` are free; false if that cannot be.
  bool make_room(std::size_t num_pages);
  std::vector<SlotId> take_pages(std::size_t num_pages);
  void expect_freed(const std::vector<std::uint32_t>& pages);
  void compare();
  void replay_events();

  const ModelConfig config_;
  ReferenceCache reference_;
  std::unique_ptr<PagedAllocator> allocator_;
  std::set<std::uint32_t> free_;  // pages that should be free
  std::vector<SlotId> sunk_;      // what the sink got in the last operation
  std::unique_ptr<PrefixCache> cache_;
  std::deque<SavedMatch> matches_;
  std::vector<HeldLease> leases_;
  std::deque<Running> running_;  // a deque: requests hold views of their own fields
  std::size_t num_compared_ = 0;
  std::set<PageHash> announced_;  // what a reader of the events believes is cached
};

/// Runs a whole list on a fresh model.
void run_model(const ModelConfig& config, const std::vector<std::uint64_t>& ops);

}  // namespace pando::testing
