// SPDX-License-Identifier: Apache-2.0
// Measures an operation beside its limit: the same bytes compared, copied or scanned by the plain C
// library. Both run in turns, in short batches, so that drift of a shared machine hits both alike;
// the figure is the median of the batches' ratios. For the benchmarks, and for `pando bench`.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace pando::bench {

/// The compiler may not leave out what the value was made from, nor writes to memory before this.
template <typename T>
inline void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

/// A benchmark that does not do what it says ends here.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "benchmark verification failed: %s\n", what);
  std::abort();
}

struct Measured {
  double work_ns = 0;   // per operation, median over batches
  double limit_ns = 0;  // likewise
  double ratio = 0;     // median of work / limit
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Nanoseconds per call of fn(i) over `n` calls.
template <typename Fn>
double time_each(std::size_t n, Fn&& fn) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < n; ++i) fn(i);
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / static_cast<double>(n);
}

/// `between` restores the state after each batch of work, outside the clock.
template <typename Work, typename Limit, typename Between>
Measured measure(std::size_t rounds, std::size_t batch, Work&& work, Limit&& limit,
                 Between&& between) {
  std::vector<double> work_ns, limit_ns, ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    work_ns.push_back(time_each(batch, work));
    between();
    limit_ns.push_back(time_each(batch, limit));
    ratios.push_back(work_ns.back() / limit_ns.back());
  }
  return {median(work_ns), median(limit_ns), median(ratios)};
}

}  // namespace pando::bench
