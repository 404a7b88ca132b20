// SPDX-License-Identifier: Apache-2.0
// Learns from a stream of requests when blocks come back, and ranks blocks by it: hits to be had
// per unit of time that one has to wait for them. Whoever evicts asks index() and takes the
// smallest. Knows nothing of trees, of capacity, or of what is cached, so what it learns does not
// depend on what it caused.
//
// Time is counted in blocks of requests; ages fall into logarithmic buckets, two per doubling. The
// time from one access of a block to its next is a lifetime, of the class that the block had at its
// beginning. A sample of lifetimes is followed: each passes buckets until it ends with a hit in
// one. From the sums of both come the base hazard of each bucket (the chance that a block which
// reached it is hit in it), a factor for each class, and from these the table of indices, which is
// made anew every 32 requests. With nothing learned the index falls with age: it starts as lru.
//
// For each request: begin_request(), then access() for every block of it; their last access is then
// now(). Room for the request is best made behind begin_request(), when ages are those at which its
// blocks count as hit (before it: up to 0.7 point less on a trace of agents); access() can wait.
//
// Structure: lifetimes lie in a ring in order of their starts, so those that have passed a bucket
// are the ones before one place of the ring, for each bucket. Costs: a lifetime takes one step per
// bucket passed; an access that is not sampled takes a multiplication; index() takes one lookup in
// 8 KB; a new table 2000 divisions. At most 4 MB, which grow with use.
//
// Deterministic: no random numbers, no clock, no function of the C library. Belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/id_map.h"

namespace pando {

class ReuseHazard {
 public:
  static constexpr std::size_t kMaxLifetimes = 65536;
  static constexpr std::uint64_t kRequestsPerTable = 32;

  /// At most so many lifetimes, a power of two, are followed: the latest.
  explicit ReuseHazard(std::size_t max_lifetimes = kMaxLifetimes);

  /// What a block's next hit may depend on, apart from its age.
  using Class = std::uint8_t;
  static constexpr std::size_t kNewBins = 4;  // 0-1, 2-6, 7-21, 22 and more
  static constexpr std::size_t kHitBins = 6;  // 0, 1, 2-3, 4-7, 8-15, 16 and more
  static constexpr std::size_t kClasses = kNewBins * kHitBins * 2;
  /// Of a block at an access: `hits` counts the accesses behind its first, this one included, be it
  /// cached or only remembered; `new_blocks` those of the request behind its leading ones that had
  /// been seen before; `is_last`: it is the request's last block.
  static Class class_of(std::size_t new_blocks, std::uint32_t hits, bool is_last);

  /// The blocks of all requests so far.
  std::uint64_t now() const { return now_; }

  /// A request of so many blocks: time advances by them, lifetimes pass buckets, and every 32nd
  /// time the table is made anew.
  void begin_request(std::size_t num_blocks);

  /// The block at `depth` of that request was accessed and has this class now. `id` is 64
  /// well-mixed bits; whether they are below a bound decides whether the block is sampled.
  void access(std::uint64_t id, std::size_t depth, Class cls) {
    if ((id >> 32) * (depth + 1) < kSampledDepth << 32) track(id, depth, cls);
  }

  /// Hits per unit of remaining time of a block last accessed at `last`: the smallest goes first.
  /// `ahead` blocks later than now.
  float index(Class cls, std::uint64_t last, std::uint64_t ahead = 0) const {
    return table_[cls][bucket_of(now_ + ahead - last)];
  }

  static constexpr std::size_t kBuckets = 41;
  static constexpr std::uint64_t kFirstAge = 16;  // where bucket 1 begins; a power of two
  static constexpr std::size_t bucket_of(std::uint64_t age) {
    age = std::max(age, kFirstAge - 1);  // which is in the upper half of the doubling before
    const int zeros = std::countl_zero(age);
    const int doublings = std::countl_zero(kFirstAge) - zeros;
    const int upper_half = (age << zeros) > kSqrt2 ? 1 : 0;
    return static_cast<std::size_t>(
        std::min(1 + 2 * doublings + upper_half, static_cast<int>(kBuckets) - 1));
  }
  /// The smallest age in a bucket.
  static constexpr std::uint64_t age_of(std::size_t bucket) {
    if (bucket == 0) return 0;
    const std::size_t doublings = (bucket - 1) / 2;
    if (bucket % 2 == 1) return kFirstAge << doublings;
    return (kSqrt2 >> (static_cast<std::size_t>(std::countl_zero(kFirstAge)) - doublings)) + 1;
  }

  /// Everything that the table is made of, in units of requests.
  struct Learned {
    std::array<double, kBuckets> hits{};       // of lifetimes that ended in a bucket
    std::array<double, kBuckets> exposures{};  // of those and of lifetimes that passed it
    std::array<double, kBuckets> hazard{};     // the base hazard
    std::array<double, kClasses> observed{};   // hits of a class
    std::array<double, kClasses> expected{};   // the hits it would have had at the base hazard
    std::array<double, kClasses> factor{};     // on the base hazard
  };
  const Learned& learned() const { return learned_; }
  float index_at(Class cls, std::size_t bucket) const { return table_[cls][bucket]; }

  std::size_t num_tracked() const { return live_.size(); }
  std::size_t memory_bytes() const;

 private:
  static constexpr std::uint64_t kSqrt2 = 0xb504f333f9de6484;  // 2^63 times it, rounded down
  static constexpr std::uint64_t kSampledDepth = 4;            // all above, 4 / (depth + 1) below

  struct Lifetime {
    std::uint64_t id;
    std::uint64_t start;
    float weight;  // 0: it has ended, and passes buckets without a trace
    Class cls;
  };

  Lifetime& lifetime(std::uint64_t number) { return ring_[number & (max_lifetimes_ - 1)]; }
  std::uint64_t oldest() const { return next_ - ring_.size(); }
  void track(std::uint64_t id, std::size_t depth, Class cls);
  void end(Lifetime& lifetime);
  void start(const Lifetime& lifetime);
  void pass_buckets();
  void decay();
  void learn();
  void make_table();

  std::uint64_t now_ = 0;
  std::uint64_t num_requests_ = 0;
  double request_weight_ = 0;  // of each of the running request's blocks

  const std::size_t max_lifetimes_;
  std::vector<Lifetime> ring_;                        // lifetime i is at i modulo its limit
  std::uint64_t next_ = 0;                            // the number of the next lifetime
  IdMap live_;                                        // from block to place in the ring
  std::array<std::uint64_t, kBuckets - 1> passed_{};  // the first lifetime not beyond the bucket

  Learned learned_;
  std::array<std::array<float, kBuckets>, kClasses> table_;
};

}  // namespace pando
