// SPDX-License-Identifier: Apache-2.0
// What `pando bench` measures: single operations, each beside the limit of the same work in the
// same run, by the workloads of src/cases/. Every case checks what it does before it times it, and
// ends the program if that is wrong.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cases/measure.h"

namespace pando::tools {

struct CaseResult {
  bench::Measured measured;
  double units = 1;  ///< of an operation
};

struct BenchCase {
  std::string name;   ///< short, for JSON
  std::string what;   ///< for people
  std::string unit;   ///< what an operation has several of: tokens, blocks, leaves
  std::string limit;  ///< what it is beside
  /// `effort` scales how long it runs; 1 is usual.
  std::function<CaseResult(double effort)> run;
};

/// With `quick`, smaller trees.
std::vector<BenchCase> bench_cases(bool quick);

/// Nanoseconds to compare a token with another and to copy a slot: what a cached token costs at
/// least.
double token_limit_ns();

}  // namespace pando::tools
