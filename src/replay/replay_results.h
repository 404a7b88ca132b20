// SPDX-License-Identifier: Apache-2.0
// What a replay found: totals, per tier, over time, and how long each operation took. Replayers
// fill it; replay_json.cc and tools/ tell it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "pando/types.h"

namespace pando {

constexpr std::array kTiers{Tier::device, Tier::host, Tier::store};
std::string_view to_string(Tier tier);

/// 0 of nothing.
double ratio(std::uint64_t part, std::uint64_t whole);

/// What is measured: calls on the cache. Waiting for a store is in `prefetch`.
enum class Operation : std::uint8_t { prefetch, start, load_back, allocate, insert, finish, poll };
constexpr std::array kOperations{Operation::prefetch, Operation::start,  Operation::load_back,
                                 Operation::allocate, Operation::insert, Operation::finish,
                                 Operation::poll};
std::string_view to_string(Operation operation);

/// Why a block of an input had to be computed.
enum class Miss : std::uint8_t {
  never_seen,
  evicted,          ///< seen before, and gone from every tier
  other_namespace,  ///< seen before, but only in another namespace
  not_covered,      ///< in the tree, but its window is gone
  no_room,          ///< beyond what the device can hold of one request
};
constexpr std::array kMisses{Miss::never_seen, Miss::evicted, Miss::other_namespace,
                             Miss::not_covered, Miss::no_room};
std::string_view to_string(Miss miss);

template <typename Enum, typename T, std::size_t N>
struct PerEnum {
  std::array<T, N> values{};
  T& operator[](Enum e) { return values[static_cast<std::size_t>(e)]; }
  const T& operator[](Enum e) const { return values[static_cast<std::size_t>(e)]; }
};
template <typename T>
using PerTier = PerEnum<Tier, T, kTiers.size()>;

/// A stretch of the trace.
struct SeriesPoint {
  std::uint64_t end_request = 0;
  double end_s = 0;  ///< arrival of its last request
  std::uint64_t requests = 0;
  std::uint64_t blocks = 0;
  PerTier<std::uint64_t> hit_blocks = {};
  PerTier<std::uint64_t> held_tokens = {};     ///< at its end
  PerTier<std::uint64_t> evicted_tokens = {};  ///< in it
};

/// What a replay found.
struct ReplayResults {
  std::uint64_t requests = 0;  ///< requests of the trace
  /// Requests too long for the device: only their beginning is kept.
  std::uint64_t truncated_requests = 0;
  std::uint64_t blocks = 0;                ///< blocks of all inputs
  std::uint64_t unique_blocks = 0;         ///< different blocks among them
  bool unique_blocks_estimated = false;    ///< whether `unique_blocks` is an estimate
  std::uint64_t input_tokens = 0;          ///< tokens of all inputs
  std::uint64_t output_tokens = 0;         ///< tokens of all outputs
  PerTier<std::uint64_t> hit_blocks;       ///< by tier: blocks that inputs found there
  PerTier<std::uint64_t> hit_tokens;       ///< by tier: tokens that inputs found there
  PerTier<std::uint64_t> capacity_tokens;  ///< by tier: what fits in
  PerTier<std::uint64_t> peak_tokens;      ///< by tier: the most that was in it
  PerTier<std::uint64_t> evicted_tokens;   ///< by tier: what left it
  std::uint64_t evicted_nodes = 0;         ///< nodes of the tree that went
  /// Of all inputs and of what was found, where attention is said to cost something: in tokens that
  /// cost what the first one does.
  double input_cost = 0, hit_cost = 0;
  std::uint64_t backed_up_tokens = 0;  ///< copied from device to host
  std::uint64_t loaded_tokens = 0;     ///< copied from host to device
  std::uint64_t stored_tokens = 0;     ///< copied from host to store
  std::uint64_t fetched_tokens = 0;    ///< copied from store to host
  std::uint64_t failed_copies = 0;     ///< copies between tiers that failed
  std::size_t token_bytes = 0;         ///< 0: unknown
  std::uint64_t verified_tokens = 0;   ///< with bytes: tokens whose KV was compared
  PerEnum<Miss, std::uint64_t, kMisses.size()> missed_blocks;
  PerEnum<Operation, Histogram, kOperations.size()> nanoseconds;
  std::vector<SeriesPoint> series;  ///< over the trace, in at most 256 stretches

  // Timed replays.
  bool is_timed = false;
  double last_finish_s = 0;  ///< when the last request ended, in seconds of the trace
  std::uint64_t max_running = 0;
  Histogram queue_us, first_token_us;

  std::size_t index_bytes = 0;  ///< bytes of the cache's bookkeeping
  std::size_t num_nodes = 0;    ///< nodes of the tree at the end
  std::uint64_t peak_rss_bytes = 0;
  double wall_seconds = 0;  ///< how long the replay took

  std::uint64_t all_hit_blocks() const;
  std::uint64_t all_hit_tokens() const;
  double hit_ratio_blocks() const;  ///< share of the inputs' blocks that was cached, in any tier
  double hit_ratio_tokens() const;  ///< share of the inputs' tokens that was cached, in any tier
};

/// Keeps a series of at most 256 points, whatever the length of the trace: when it is full, pairs
/// of points become one.
class ReplaySeries {
 public:
  /// `point` tells of one request.
  void add(const SeriesPoint& point);
  std::vector<SeriesPoint> take();

 private:
  static constexpr std::size_t kMaxPoints = 256;
  static void join(SeriesPoint& to, const SeriesPoint& later);

  std::vector<SeriesPoint> points_;
  std::uint64_t requests_per_point_ = 1;
};

}  // namespace pando
