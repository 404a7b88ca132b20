// SPDX-License-Identifier: Apache-2.0
// Run by mpirun as four processes, which mirror one cache: two tensor ranks on each of two pipeline
// stages. usage: mpi_cache_test STEPS SEED. Ends all of them as soon as one has gone wrong.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>

#include "pando/mpi_ranks.h"
#include "support/mirrored_cache.h"

namespace pando::testing {
namespace {

void stop(const MirrorCase& c, std::size_t step, std::uint64_t seed, const std::string& wrong) {
  std::fprintf(stderr, "%s, seed %llu, step %zu: %s\n", c.name.c_str(),
               static_cast<unsigned long long>(seed), step, wrong.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

void run(Ranks& ranks, const MirrorCase& c, std::size_t num_steps, std::uint64_t seed) {
  MirroredCache mirror(ranks, c, seed);
  for (std::size_t i = 0; i < num_steps; ++i) {
    if (const std::string wrong = mirror.step(); !wrong.empty()) stop(c, i, seed, wrong);
  }
  if (const std::string wrong = mirror.finish(); !wrong.empty()) stop(c, num_steps, seed, wrong);
  if (ranks.rank() == 0) std::printf("%s: %zu steps alike\n", c.name.c_str(), num_steps);
}

}  // namespace
}  // namespace pando::testing

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: mpi_cache_test STEPS SEED\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  {
    const auto ranks = pando::make_mpi_ranks();
    for (const pando::testing::MirrorCase& c : pando::testing::mirror_cases())
      pando::testing::run(**ranks, c, std::strtoull(argv[1], nullptr, 10),
                          std::strtoull(argv[2], nullptr, 10));
  }
  MPI_Finalize();
  return 0;
}
