// SPDX-License-Identifier: Apache-2.0
// A small random generator whose numbers are the same with every compiler, library and machine.
// Workload generators and tests draw from it. The standard library's distributions are not used:
// each implementation is free to compute them differently. Integer arithmetic only.
//
// Streams with different (seed, stream) are independent for our purposes; it is not for secrets.
#pragma once

#include <cstdint>

namespace pando {

/// splitmix64 (Steele, Lea, Flood 2014): a counter and a mixing function. 8 bytes of state.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0)
      : state_(mix(seed) ^ mix(~stream * kStep)) {}

  std::uint64_t next() { return mix(state_ += kStep); }

  /// A number in [0, bound); bound must be in [1, 2^32]. The multiplication favours some results by
  /// at most bound / 2^32, which no workload can tell from fair.
  std::uint64_t below(std::uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

  static constexpr std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

/// From the system: another number every time, for hashes that outsiders must not foresee.
std::uint64_t random_seed();

}  // namespace pando
