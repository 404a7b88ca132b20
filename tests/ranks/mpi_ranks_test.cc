// SPDX-License-Identifier: Apache-2.0
// Run by mpirun as several processes: each checks what the ranks agree on, and says on stderr what
// is not as expected. A plain program, as a test framework would report each case once per rank.
#include <mpi.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "pando/mpi_ranks.h"

namespace {

int num_failures = 0;

void expect(bool condition, const char* what, std::size_t rank) {
  if (condition) return;
  ++num_failures;
  std::fprintf(stderr, "rank %zu: expected %s\n", rank, what);
}

void check(pando::Ranks& ranks, std::size_t rank, std::size_t size) {
  const auto n = static_cast<std::int64_t>(size);
  const auto r = static_cast<std::int64_t>(rank);
  expect(ranks.rank() == rank, "its rank", rank);
  expect(ranks.size() == size, "the number of ranks", rank);
  for (std::int64_t round = 0; round < 100; ++round) {
    std::array<std::int64_t, 4> values = {r, -r, INT64_MIN + r, round};
    expect(ranks.min(values).ok(), "min to succeed", rank);
    expect(values == std::array<std::int64_t, 4>{0, 1 - n, INT64_MIN, round}, "the least", rank);
    values = {r, -r, INT64_MAX - r, round};
    expect(ranks.max(values).ok(), "max to succeed", rank);
    expect(values == std::array<std::int64_t, 4>{n - 1, 0, INT64_MAX, round}, "the most", rank);
  }
  expect(ranks.min({}).ok(), "min of nothing to succeed", rank);
  expect(ranks.barrier().ok(), "the barrier to succeed", rank);
}

}  // namespace

int main(int argc, char** argv) {
  const bool early = pando::make_mpi_ranks().ok();
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const auto world_rank = static_cast<std::size_t>(rank);
  expect(!early, "no ranks before MPI_Init", world_rank);
  {
    const auto world = pando::make_mpi_ranks();
    expect(world.ok(), "ranks of the world", world_rank);
    if (world.ok()) check(**world, world_rank, static_cast<std::size_t>(size));

    MPI_Comm half = MPI_COMM_NULL;  // the odd ones, and the even ones
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    int half_size = 0;
    MPI_Comm_size(half, &half_size);
    const auto ranks = pando::make_mpi_ranks(MPI_Comm_c2f(half));
    MPI_Comm_free(&half);  // they have their own
    expect(ranks.ok(), "ranks of a half", world_rank);
    if (ranks.ok()) check(**ranks, world_rank / 2, static_cast<std::size_t>(half_size));

    expect(!pando::make_mpi_ranks(MPI_Comm_c2f(MPI_COMM_NULL)).ok(), "no ranks of no communicator",
           world_rank);
  }
  int total = 0;
  MPI_Allreduce(&num_failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return total == 0 && size > 1 ? 0 : 1;
}
