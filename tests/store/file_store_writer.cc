// SPDX-License-Identifier: Apache-2.0
// Puts pages into the file store of a directory until it is killed. Bytes follow from the key, so
// that whoever opens the store next can tell whether they are right.
//   file_store_writer DIRECTORY FIRST_NUMBER uring|plain
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "pando/store_backends.h"
#include "support/store_pages.h"

int main(int argc, char** argv) {
  using namespace pando;
  using namespace pando::testing;
  if (argc != 4) return 2;
  auto store = make_file_store({.directory = argv[1],
                                .capacity_bytes = std::uint64_t{24} << 20,
                                .min_free_bytes = 0,
                                .io_uring = std::string_view(argv[3]) == "uring"});
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().message.c_str());
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  Random random(std::strtoull(argv[2], nullptr, 10));
  while (true) {
    const Keys keys = test_keys(random.below(400), 12);
    const Outcomes outcomes = put_pages(**store, keys, {1 << 16, 2, random.below(2)});
    if (!outcomes.all(PageOutcome::done)) {
      std::fprintf(stderr, "%s\n", outcomes.error.c_str());
      return 1;
    }
    if (random.below(8) == 0) remove_pages(**store, test_keys(random.below(400), 5));
  }
}
