// SPDX-License-Identifier: Apache-2.0
// A cache over a file store that breaks under it: the disk fills up, the directory goes away, pages
// are damaged, calls hang, the process ends. Requests go on, no row is ever wrong, and what is
// there again is used again.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <atomic>
#include <thread>

#include "pando/config.h"
#include "support/file_store_fixture.h"
#include "support/request_loop.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;
using Clock = RequestLoop::Clock;

class StoreFaultsFile : public ::testing::Test {
 protected:
  StorageOptions storage(const std::string& directory) const {
    StorageOptions o;
    o.backend = "file";
    o.options = fmt::format(
        R"({{"directory": "{}", "min_free_bytes": 0, "prefetch_threshold": 1}})", directory);
    o.scope.model = "test/model";
    o.prefetch_policy = "wait_complete";
    return o;
  }
  void attach(TieredCache& cache, const std::string& directory) {
    cache->tiers().attach_storage(storage(directory)).value();
  }
  void attach(TieredCache& cache) { attach(cache, directory_); }

  TempDirectory temp_;
  const std::string directory_ = temp_ / "store";
};

// ---- The disk is full.

// A file system of 2 MiB; a page takes 8 KiB.
class StoreFaultsFullDisk : public StoreFaultsFile {
 protected:
  void SetUp() override {
    fs::create_directories(directory_);
    mounted_ = ::mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=2m,mode=0700") == 0;
    if (!mounted_) GTEST_SKIP() << "cannot mount a small file system: " << errno_text(errno);
  }
  void TearDown() override {
    if (mounted_) ::umount2(directory_.c_str(), MNT_DETACH);
  }
  /// Somebody else takes what is left.
  void fill() {
    std::ofstream filler(filler_, std::ios::binary);
    const std::vector<char> block(4096);
    while (filler.write(block.data(), 4096).flush()) continue;
  }
  void make_room() { fs::remove(filler_); }

 private:
  const std::string filler_ = directory_ + "/filler";
  bool mounted_ = false;
};

TEST_F(StoreFaultsFullDisk, PutsFailAndNothingElseUntilThereIsRoom) {
  TieredCache cache(loop_setup());
  RequestLoop loop(cache);
  attach(cache);
  fill();
  EXPECT_EQ(loop.serve(0, 16), 0u);
  EXPECT_TRUE(loop.settle());
  const TierStats stats = cache->tiers().stats();
  EXPECT_GT(stats.failed_puts, 0u);
  EXPECT_EQ(stats.stored_tokens, 0u);
  EXPECT_GT(stats.loaded_tokens, 0u) << "the host still serves";

  make_room();
  loop.expect_store_works(100);
  EXPECT_EQ(cache->tiers().stats().failed_puts, stats.failed_puts);
  EXPECT_GT(cache->tiers().stats().stored_tokens, 0u);
  loop.expect_nothing_leaks();
}

TEST_F(StoreFaultsFullDisk, OldPagesGoAndWhatIsFetchedIsRight) {
  TieredCache cache(loop_setup());
  RequestLoop loop(cache);
  attach(cache);
  loop.store(0, 12);
  loop.forget();
  fill();
  for (int round = 0; round < 3; ++round) loop.serve(0, 40);
  EXPECT_TRUE(loop.settle());
  EXPECT_GT(cache->tiers().storage_stats().backend.evicted_pages, 0u);
  EXPECT_GT(cache->tiers().stats().prefetched_tokens, 0u);
  loop.expect_nothing_leaks();
}

// ---- The directory goes away.

TEST_F(StoreFaultsFile, PagesThatGoBetweenAskingAndReadingAreMissing) {
  TieredCache cache(loop_setup());
  RequestLoop loop(cache);
  attach(cache);
  loop.store(0, 6);
  loop.forget();
  fs::remove_all(directory_);
  EXPECT_EQ(loop.serve(RequestLoop::key(0)), 0u);
  EXPECT_EQ(cache->tiers().stats().prefetch_hit_tokens, RequestLoop::kKeyTokens) << "it was said";
  EXPECT_GT(cache->tiers().storage_stats().missing_pages, 0u);
  loop.forget();
  EXPECT_EQ(loop.serve(RequestLoop::key(0)), RequestLoop::kKeyTokens) << "it was put again";
  loop.expect_nothing_leaks();
}

class StoreFaultsDirectory : public StoreFaultsFile,
                             public ::testing::WithParamInterface<LoopCase> {};

INSTANTIATE_TEST_SUITE_P(Every, StoreFaultsDirectory, ::testing::ValuesIn(loop_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(StoreFaultsDirectory, RemovedOverAndOverDoesNoHarm) {
  TieredCache cache(GetParam().setup);
  RequestLoop loop(cache);
  attach(cache);
  std::atomic<bool> done = false;
  std::atomic<int> removals = 0;
  std::thread remover([&] {
    for (; !done; ++removals) {
      std::error_code ignored;  // files come while they go
      fs::remove_all(directory_, ignored);
      std::this_thread::sleep_for(500us);
    }
  });
  const auto num_lost = [&] {
    return cache->tiers().storage_stats().missing_pages + cache->tiers().stats().failed_puts;
  };
  const Clock::time_point end = Clock::now() + RequestLoop::kPatience;
  do loop.serve(0, 16);
  while ((removals < 50 || num_lost() == 0) && Clock::now() < end);
  done = true;
  remover.join();
  EXPECT_GT(num_lost(), 0u);

  loop.expect_store_works(100);
  loop.expect_nothing_leaks();
}

// The store may make it again meanwhile.
void replace_by_file(const std::string& directory) {
  while (!fs::is_regular_file(directory)) {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
    std::ofstream(directory) << "a file where a directory was";
  }
}

TEST_F(StoreFaultsFile, WhatCannotBeMadeAgainIsDetachedAndAnotherAttached) {
  const std::string parent = temp_ / "parent";
  TieredCache cache(loop_setup());
  RequestLoop loop(cache);
  attach(cache, parent + "/store");
  loop.store(0, 8);
  loop.serve(RequestLoop::key(8), [&] { replace_by_file(parent); });
  for (std::size_t i = 9; i < 12; ++i) loop.serve(RequestLoop::key(i));
  EXPECT_TRUE(loop.settle());
  EXPECT_GT(cache->tiers().stats().failed_puts, 0u);
  loop.serve(RequestLoop::key(20));
  (void)cache->prefetch({RequestLoop::key(21)});
  cache->tiers().detach_storage().value();
  EXPECT_TRUE(cache.closes());

  attach(cache);
  loop.expect_store_works(100);
  EXPECT_GE(cache->tiers().storage_stats().backend.num_pages, 2u + 4 * 6);
  loop.expect_nothing_leaks();
}

// ---- Pages are damaged.

struct DamageCase {
  std::string name;
  /// Does it to the file of one page; the other is that of another page.
  void (*damage)(const std::string& file, const std::string& other);
};
void PrintTo(const DamageCase& c, std::ostream* out) { *out << c.name; }

class StoreFaultsDamage : public StoreFaultsFile, public ::testing::WithParamInterface<DamageCase> {
 protected:
  static constexpr std::size_t kPages = RequestLoop::kKeyTokens / 4;

  std::string file(const Tokens& key, std::size_t page) const {
    const KeySpace space(storage({}).scope, TieredCache::geometry(4), HostLayout::page_first,
                         ComponentKind::full);
    return path_of(directory_, space.key((*hash_pages(key, 4))[page]));
  }
  void damage_page(const Tokens& key, std::size_t page) const {
    ASSERT_TRUE(fs::exists(file(key, page)));
    GetParam().damage(file(key, page), file(key, (page + 1) % kPages));
  }
  /// The pages before the damaged one come; the rest is computed, and all is stored again.
  static void expect_leading(TieredCache& cache, std::size_t damaged, std::size_t i) {
    RequestLoop loop(cache);
    EXPECT_EQ(loop.serve(RequestLoop::key(i)), 4 * damaged);
    const StoreStats stats = cache->tiers().storage_stats();
    EXPECT_GT(stats.damaged_pages + stats.backend.damaged_pages, 0u);
    loop.forget();
    EXPECT_EQ(loop.serve(RequestLoop::key(i)), RequestLoop::kKeyTokens);
  }
  // Of keys that share no page.
  static constexpr std::pair<std::size_t, std::size_t> kDamaged[] = {{0, 0}, {4, 5}, {8, 7}};
};

INSTANTIATE_TEST_SUITE_P(
    Every, StoreFaultsDamage,
    ::testing::Values(
        DamageCase{"Header", [](const std::string& f, const std::string&) { damage(f, 20); }},
        DamageCase{"Bytes", [](const std::string& f, const std::string&) { damage(f, 4100); }},
        DamageCase{"Shortened",
                   [](const std::string& f, const std::string&) { fs::resize_file(f, 4200); }},
        DamageCase{"Emptied",
                   [](const std::string& f, const std::string&) { fs::resize_file(f, 0); }},
        DamageCase{"AnotherPage",
                   [](const std::string& f, const std::string& other) {
                     fs::copy_file(other, f, fs::copy_options::overwrite_existing);
                   }}),
    [](const auto& info) { return info.param.name; });

TEST_P(StoreFaultsDamage, UnderACacheEndsWhatItFetches) {
  TieredCache cache(loop_setup());
  RequestLoop loop(cache);
  attach(cache);
  for (const auto& [i, page] : kDamaged) loop.serve(RequestLoop::key(i));
  loop.forget();
  for (const auto& [i, page] : kDamaged) damage_page(RequestLoop::key(i), page);
  for (const auto& [i, page] : kDamaged) expect_leading(cache, page, i);
  loop.expect_nothing_leaks();
}

TEST_P(StoreFaultsDamage, BetweenTwoCachesEndsWhatTheSecondFetches) {
  {
    TieredCache writer(loop_setup());
    RequestLoop loop(writer);
    attach(writer);
    for (const auto& [i, page] : kDamaged) loop.serve(RequestLoop::key(i));
    EXPECT_TRUE(loop.settle());
    writer->tiers().detach_storage().value();
    for (const auto& [i, page] : kDamaged) damage_page(RequestLoop::key(i), page);
    EXPECT_TRUE(writer.closes());
  }
  TieredCache cache(loop_setup());
  attach(cache);
  for (const auto& [i, page] : kDamaged) expect_leading(cache, page, i);
  RequestLoop(cache).expect_nothing_leaks();
}

// ---- The process ends.

struct RestartCase {
  std::string name;
  TierSetup setup;
};
void PrintTo(const RestartCase& c, std::ostream* out) { *out << c.name; }

class StoreFaultsRestart : public StoreFaultsFile,
                           public ::testing::WithParamInterface<RestartCase> {
 protected:
  /// What a cache that was just made has of the key then; its rows have been compared.
  static std::size_t fetch(TieredCache& cache, const Tokens& key) {
    RequestLoop loop(cache);
    const Prefetch prefetch = *cache->prefetch({key});
    EXPECT_TRUE(loop.poll_until([&] { return cache->prefetch_ready(prefetch.id); }));
    (void)cache->end_prefetch(prefetch.id);
    const std::size_t loaded = cache.load(key).size();
    EXPECT_TRUE(loop.settle());
    if (GetParam().setup.cache.state && loaded > 0) {
      EXPECT_TRUE(cache.holds_state(key, cache.match(key)));
    }
    EXPECT_TRUE(cache.closes());
    return loaded;
  }
  static Tokens key(std::size_t i) { return tokens(17, static_cast<Token>(1 + 100 * i)); }
  static constexpr std::size_t kKeys = 5, kWhole = 16;
};

INSTANTIATE_TEST_SUITE_P(
    Every, StoreFaultsRestart,
    ::testing::Values(
        RestartCase{"Plain", {.page_size = 4}},
        RestartCase{"LayerFirst", {.page_size = 4, .layout = HostLayout::layer_first}},
        RestartCase{"Bigram", {.page_size = 4, .cache = {.bigram = true}}},
        RestartCase{"WindowAndState",
                    {.page_size = 4, .cache = {.window = 8, .state = StateOptions{}}}}),
    [](const auto& info) { return info.param.name; });

TEST_P(StoreFaultsRestart, EverythingIsFoundByTheNextCache) {
  {
    TieredCache first(GetParam().setup);
    attach(first);
    for (std::size_t i = 0; i < kKeys; ++i) {
      first.put(key(i));
      EXPECT_TRUE(RequestLoop(first).settle());
    }
    EXPECT_EQ(first->tiers().stats().stored_tokens, kKeys * kWhole);
  }
  TieredCache second(GetParam().setup);
  attach(second);
  for (std::size_t i = 0; i < kKeys; ++i) EXPECT_EQ(fetch(second, key(i)), kWhole);
  EXPECT_EQ(second->tiers().stats().prefetched_tokens, kKeys * kWhole);
  RequestLoop(second).expect_nothing_leaks();
}

TEST_P(StoreFaultsRestart, WhatWasDoneWhenACacheEndedInTheMiddleIsFound) {
  std::size_t stored = 0;
  for (std::size_t round = 0; round < 20; ++round) {
    TieredCache cache(GetParam().setup);
    attach(cache);
    cache.put(key(round % kKeys));
    for (std::size_t polls = 0; polls < 5 * round; ++polls) (void)cache->poll();
    stored += cache->tiers().stats().stored_tokens;
  }
  TieredCache last(GetParam().setup);
  attach(last);
  std::size_t found = 0;
  for (std::size_t i = 0; i < kKeys; ++i) found += fetch(last, key(i));
  EXPECT_GE(found, std::min(stored, kWhole));
  RequestLoop(last).expect_nothing_leaks();
}

TEST_F(StoreFaultsFile, ResetInTheMiddleLeavesNothing) {
  TieredCache cache(loop_setup());
  RequestLoop loop(cache);
  attach(cache);
  for (std::size_t polls = 0; polls < 40; ++polls) {
    cache.put(RequestLoop::key(polls));
    (void)cache->prefetch({RequestLoop::key(polls / 2 + 100)});
    for (std::size_t i = 0; i < polls; ++i) (void)cache->poll();
    ASSERT_TRUE(cache->reset().ok());
    loop.expect_empty();
  }
  loop.expect_nothing_leaks();
}

// ---- Calls hang.

TEST_F(StoreFaultsFile, CallsThatHangPastTheirDeadlinesAreNotWaitedFor) {
  constexpr auto kTimeout = 150ms, kLonger = 50ms;
  static int count = 0;
  StorageOptions o = storage(directory_);
  o.backend = fmt::format("hanging{}", ++count);
  o.prefetch_policy = "timeout";
  o.options = R"({"prefetch_threshold": 1, "prefetch_timeout_base": 0.05})";
  o.queues.timeout = kTimeout;
  register_store(o.backend, [&](const Config&) -> Result<std::unique_ptr<StoreBackend>> {
    Result<std::unique_ptr<StoreBackend>> inner =
        make_file_store({.directory = directory_, .min_free_bytes = 0});
    if (!inner) return inner.error();
    return make_faulty_store(std::move(*inner), {.seed = 7, .hang = 0.3, .max_delay = kLonger});
  }).value();

  TieredCache cache(loop_setup());
  RequestLoop loop(cache, 5s);
  cache->tiers().attach_storage(o).value();
  const auto enough = [&] {
    const StoreStats stats = cache->tiers().storage_stats();
    return stats.timed_out_calls > 0 && stats.cancelled_calls > 0 &&
           cache->tiers().stats().failed_puts > 0 && cache->tiers().stats().prefetched_tokens > 0;
  };
  const Clock::time_point end = Clock::now() + RequestLoop::kPatience;
  while (!enough() && Clock::now() < end) loop.serve(0, 12);
  EXPECT_TRUE(enough());

  // With as much under way as there is room for.
  for (std::size_t i = 200; i < 204; ++i) {
    (void)cache->prefetch({RequestLoop::key(i)});
    (void)cache->poll();
  }
  loop.serve(RequestLoop::key(300));
  const Clock::time_point before = Clock::now();
  cache->tiers().detach_storage().value();
  EXPECT_LT(Clock::now() - before, kTimeout + kLonger + 5s);
  EXPECT_TRUE(cache.closes());
  loop.expect_nothing_leaks();
}

}  // namespace
}  // namespace pando::testing
