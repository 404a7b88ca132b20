// SPDX-License-Identifier: Apache-2.0
// A process with a file store open, for tests of several on one directory.
//   file_store_member DIRECTORY CAPACITY_BYTES uring|plain              commands, one a line
//   file_store_member DIRECTORY CAPACITY_BYTES uring|plain storm SEED NUM_KEYS
//
// Commands answer with one line each: "put FIRST NUM", "get FIRST NUM", "exists FIRST NUM" and
// "remove FIRST NUM" with a letter per page (d done, m missing, x damaged, f failed, w wrong
// bytes), "stats" with pages, bytes and evictions, "check", "clean"; "quit" ends it. All have two
// numbers.
//
// A storm puts, reads and now and then removes pages until it is killed: those that all storms
// have, and some of its own. It writes "+N" for each page number that was put, "-N" before one that
// it removes, and ends with 1 when a page is not as it should be. Bytes follow from the key. All
// pages have kPageBytes.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "support/file_store_fixture.h"

namespace {

using namespace pando;
using namespace pando::testing;

constexpr Shape kShape{40'000, 2, 0};
constexpr std::uint64_t kRemovedKeys = 10;  // the first of them are removed by storms

std::string letters(const Outcomes& outcomes) {
  if (!outcomes.bytes_right) return "w";
  std::string text;
  for (const PageOutcome outcome : outcomes.pages) text += "pdmxf"[static_cast<int>(outcome)];
  return text.empty() ? "-" : text;
}

std::string answer(StoreBackend& store, const std::string& verb, const Keys& keys) {
  if (verb == "put") return letters(put_pages(store, keys, kShape));
  if (verb == "get") return letters(get_pages(store, keys, kShape));
  if (verb == "exists") return letters(pages_exist(store, keys));
  if (verb == "remove") return letters(remove_pages(store, keys));
  if (verb == "stats") {
    const BackendStats stats = store.stats();
    return fmt::format("{} {} {}", stats.num_pages, stats.size_bytes, stats.damaged_pages);
  }
  if (verb == "check") {
    const Status checked = check_index_of(store);
    return checked ? "ok" : checked.error().message;
  }
  if (verb == "clean") {
    static_cast<FileStore&>(store).files().member()->clean_up();
    return "ok";
  }
  return "what?";
}

int obey(StoreBackend& store) {
  char verb[16];
  unsigned long long first, num;
  while (std::scanf("%15s %llu %llu", verb, &first, &num) == 3 && std::strcmp(verb, "quit") != 0)
    std::printf("%s\n", answer(store, verb, test_keys(first, num)).c_str());
  return 0;
}

void say(const char* sign, std::uint64_t number) {
  // One write each, so that what was said has been said when it is killed.
  const std::string line = fmt::format("{}{}\n", sign, number);
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::exit(3);
}

int storm(StoreBackend& store, std::uint64_t seed, std::uint64_t num_keys) {
  Random random(seed);
  while (true) {
    const bool own = random.below(4) == 0;
    const std::uint64_t first = own ? 1000 * seed + random.below(20) : random.below(num_keys);
    const Keys keys = test_keys(first, 1 + random.below(8));
    const std::uint64_t what = random.below(20);
    if (what == 0) {
      const std::uint64_t number = random.below(kRemovedKeys);
      say("-", number);
      remove_pages(store, {test_key(number)});
    } else if (what < 10) {
      const Outcomes outcomes = put_pages(store, keys, kShape);
      if (!outcomes.all(PageOutcome::done)) {
        std::fprintf(stderr, "put: %s %s\n", letters(outcomes).c_str(), outcomes.error.c_str());
        return 1;
      }
      for (std::size_t i = 0; i < keys.size(); ++i) say("+", first + i);
    } else {
      const Outcomes outcomes = get_pages(store, keys, kShape);
      for (const PageOutcome outcome : outcomes.pages)
        if (!outcomes.bytes_right ||
            (outcome != PageOutcome::done && outcome != PageOutcome::missing)) {
          std::fprintf(stderr, "get: %s %s\n", letters(outcomes).c_str(), outcomes.error.c_str());
          return 1;
        }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 4096);
  auto store = make_file_store({.directory = argv[1],
                                .capacity_bytes = std::strtoull(argv[2], nullptr, 10),
                                .min_free_bytes = 0,
                                .io_uring = std::string_view(argv[3]) == "uring"});
  if (!store) {
    std::printf("%s\n", store.error().message.c_str());
    return 1;
  }
  std::puts("ready");
  if (argc == 4) return obey(**store);
  return storm(**store, std::strtoull(argv[5], nullptr, 10), std::strtoull(argv[6], nullptr, 10));
}
