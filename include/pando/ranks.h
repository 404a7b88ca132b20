// SPDX-License-Identifier: Apache-2.0
// Ranks that mirror one cache (tensor and pipeline parallelism) agree on what depends on local
// timing: which transfers have finished, whether everybody has room. Ranks is how they do, over a
// few integers at a time. A plug point: an engine that has a process group of its own implements
// it; one process, threads of one process, and MPI (mpi_ranks.h) are here.
//
// Collective: every rank makes the same calls in the same order, with as many values. Each object
// belongs to one thread at a time. An error means that the ranks may no longer agree.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pando/result.h"

namespace pando {

/// Ranks that mirror one cache agree through this. A plug point.
class Ranks {
 public:
  virtual ~Ranks() = default;

  virtual std::size_t rank() const = 0;  ///< which rank this is, from 0
  virtual std::size_t size() const = 0;  ///< how many ranks there are
  /// Each value becomes the least that any rank gave in its place. On an error they are as before.
  virtual Status min(std::span<std::int64_t> values) = 0;
  /// Each value becomes the greatest that any rank gave in its place. On an error they are as
  /// before.
  virtual Status max(std::span<std::int64_t> values) = 0;
  /// Returns when every rank has come.
  virtual Status barrier() = 0;
};

/// Rank 0 of 1.
std::unique_ptr<Ranks> make_single_rank();

struct ThreadRanksOptions {
  std::size_t num_ranks = 1;
  /// How long the others wait for one that does not come.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);

  Status validate() const;
};
/// One for each of several threads of this process. A rank that does not come in time, or has been
/// destroyed, is an error for the others in that call and in all later ones. Calls that do not
/// match are an error for every rank, and the next ones may match again.
Result<std::vector<std::unique_ptr<Ranks>>> make_thread_ranks(const ThreadRanksOptions& options);

}  // namespace pando
