// SPDX-License-Identifier: Apache-2.0
// Drives a PrefixCache with a workload, as an engine's scheduler would, without an engine: one
// request after the other is started, given room, pretended to be computed, decoded and finished.
// The report says how much was found, how much had to go, and how long each operation took.
//
// Invariant: between requests nothing is held, so allocator.available() + cache.sizes().total is
// the capacity. Borrows the cache and the allocator; same thread as theirs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "pando/cache.h"
#include "replay/workload.h"

namespace pando {

/// What is timed, in the order a request goes through it. A figure includes one reading of the
/// clock, 20 to 40 ns.
enum class Operation {
  start,       ///< match, lock, copy out the slots
  allocate,    ///< room for a prompt, or for one chunk of it; evicts what is missing
  checkpoint,  ///< hand a computed chunk to the tree
  decode,      ///< room for the output, up to one page at a time; evicts what is missing
  finish,      ///< hand everything to the tree, free duplicates and the tail
};
inline constexpr std::array kOperations{Operation::start, Operation::allocate,
                                        Operation::checkpoint, Operation::decode,
                                        Operation::finish};
std::string_view to_string(Operation operation);

inline constexpr std::array kMatchEnds{MatchEnd::whole_key,     MatchEnd::no_such_child,
                                       MatchEnd::page_boundary, MatchEnd::namespace_unknown,
                                       MatchEnd::window_gone,   MatchEnd::no_snapshot,
                                       MatchEnd::disabled};
static_assert(static_cast<std::size_t>(MatchEnd::disabled) + 1 == kMatchEnds.size(),
              "every MatchEnd is listed; disabled is the last");

struct ReplayOptions {
  /// Prefill in chunks of this, with a checkpoint after each.
  std::optional<std::size_t> chunk_tokens = {};
  /// Run cache.check() after so many requests. O(tree) each time.
  std::optional<std::size_t> check_every = {};

  Status validate() const;
};

/// Token and match counts are of served requests; a refused one appears in `refused` alone.
struct ReplayReport {
  std::uint64_t served = 0;
  std::uint64_t refused = 0;  ///< there was no room, even after evicting all that is not held

  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  ///< of the prompts, found in the cache
  std::uint64_t output_tokens = 0;
  EvictResult evicted;
  std::array<std::uint64_t, kMatchEnds.size()> match_ends{};

  std::array<Histogram, kOperations.size()> nanoseconds;

  std::uint64_t computed_tokens() const { return prompt_tokens - cached_tokens; }
  double hit_ratio() const;  ///< cached / prompt tokens; 0 before the first request
  std::uint64_t ended(MatchEnd end) const { return match_ends[static_cast<std::size_t>(end)]; }
  const Histogram& latency(Operation operation) const {
    return nanoseconds[static_cast<std::size_t>(operation)];
  }
  double cache_seconds() const;  ///< all operations together
};

class Replayer {
 public:
  /// `allocator` is the one under `cache`. Both must outlive the replayer.
  static Result<Replayer> create(PrefixCache& cache, const PagedAllocator& allocator,
                                 const ReplayOptions& options = {});

  /// One request from start to finish. Being refused is not an error; a broken cache, or a request
  /// the cache calls invalid, is.
  Status serve(const ReplayRequest& request);

  /// Serves the whole workload. `after_each`, if given, is called after every request.
  Status run(Workload& workload, const std::function<void()>& after_each = {});

  const ReplayReport& report() const { return report_; }

 private:
  Replayer(PrefixCache& cache, const PagedAllocator& allocator, const ReplayOptions& options);

  Status compute(Request& running, const ReplayRequest& request);
  Status prefill(Request& running, const ReplayRequest& request);
  Status decode(Request& running, const ReplayRequest& request);
  Status grow(Request& running, const ReplayRequest& request, std::size_t length,
              Operation operation);
  void count_served(const ReplayRequest& request, const Match& match);

  template <typename Call>
  auto timed(Operation operation, Call&& call);

  PrefixCache* cache_;
  const PagedAllocator* allocator_;
  ReplayOptions options_;
  ReplayReport report_;
  std::vector<SlotId> slots_;  // of the running request; kept to keep its memory
};

}  // namespace pando
