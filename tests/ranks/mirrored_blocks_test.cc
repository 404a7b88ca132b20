// SPDX-License-Identifier: Apache-2.0
// BlockCaches that mirror each other, each on a thread of its own. All take the same steps; when
// copies and store calls end, which fail, and who has room is each rank's own luck. After every
// step the ranks compare what they hold, and every row says whose prefix it was computed for.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "pando/config.h"
#include "pando/ranks.h"
#include "pando/store_backends.h"
#include "support/step_copier.h"
#include "support/tiered_blocks.h"

namespace pando::testing {
namespace {

constexpr std::size_t kRanks = 3;

struct MirrorBlocksCase {
  std::string name;
  std::vector<BlockGroup> groups = {full_group(4)};
  WritePolicy write_policy = WritePolicy::write_through;
};

class MirroredBlocks {
 public:
  MirroredBlocks(Ranks& ranks, const MirrorBlocksCase& c)
      : ranks_(ranks), common_(1), own_(1000 + ranks.rank()), cache_(setup_of(c)) {
    StorageOptions options;
    options.backend = "mirrored_blocks_" + std::to_string(ranks.rank());
    (void)register_store(options.backend, [seed = own_()](const Config&) {
      return make_faulty_store(*make_memory_store(), {.seed = seed,
                                                      .error = 0.02,
                                                      .short_read = 0.02,
                                                      .flipped_bit = 0.02,
                                                      .delay = 0.2,
                                                      .max_delay = std::chrono::milliseconds(1)});
    });
    options.options = R"({"prefetch_threshold": 4, "prefetch_max_tokens": 1000})";
    options.prefetch_policy = "wait_complete";
    cache_->tiers().attach_storage(options).value();
  }
  ~MirroredBlocks() {
    copier_.at_once(true);
    copier_.run_all();
  }

  std::string step() {
    luck();
    act();
    cache_.sides[0].host->free(stolen_);
    stolen_.clear();
    if (const Status s = cache_->check(); !s) wrong(s.error().message);
    compare();
    return wrong_;
  }
  TierStats stats() const { return cache_->tiers().stats(); }
  std::size_t num_refused() const { return num_refused_; }

 private:
  BlockTierSetup setup_of(const MirrorBlocksCase& c) {
    BlockTierSetup setup;
    setup.cache = block_options(c.groups, 24 * c.groups.size());
    setup.cache.hash.function = HashFunction::sha256_cbor;
    setup.cache.ranks = &ranks_;
    setup.write_policy = c.write_policy;
    setup.host_pages = 16 + ranks_.rank();
    setup.copier = &copier_;
    copier_.at_once(c.write_policy == WritePolicy::write_back);  // it waits for them
    return setup;
  }
  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = "rank " + std::to_string(ranks_.rank()) + ": " + what;
  }
  std::size_t pick(std::size_t n) { return static_cast<std::size_t>(common_() % n); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(own_) < p; }

  // Of this rank alone: some copies end, somebody else has taken host memory.
  void luck() {
    progress();
    if (chance(0.03)) copier_.refuse(1);
    copier_.fail_at_once(chance(0.05));
    if (!chance(0.1)) return;
    stolen_.resize(cache_.sides[0].host->available_pages());
    cache_.sides[0].host->alloc(stolen_).value();
    ++num_refused_;
  }
  void progress() {
    for (const std::size_t stream : {0u, 1u}) {
      for (std::size_t n = own_() % 3; n > 0; --n) copier_.step(stream, !chance(0.02));
    }
  }
  void poll() {
    progress();
    (void)cache_->poll();
  }

  void act() {
    switch (pick(8)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return run_request();
      case 4:
        (void)cache_->tiers().evict_host(pick(12));
        return;
      case 5:
        return fetch();
      default:
        poll();
    }
  }
  Tokens random_key() {
    const std::size_t a = pick(64);
    Tokens key;
    for (std::size_t i = 0, length = 5 + pick(28); i < length; ++i)
      key.push_back(static_cast<Token>(i * 10 + (i < 8 ? a % 2 : a % 5)));
    return key;
  }
  void run_request() {
    BlockRequest request = *cache_->start(random_key());
    const BlockMatch found = cache_->match(request);
    const std::size_t length = found.length + found.host_length;
    const std::size_t total = request.tokens().size();
    if (!cache_->allocate(request, total - length, {.match = &found})) return;
    while (cache_->tiers().under_way().loads > 0) poll();
    for (TieredCache::Side& side : cache_.sides) side.device->open_gate();
    if (request.is_broken()) return cache_->preempt(request);
    if (!cache_.holds(request, length)) wrong("a hit has other bytes");
    cache_.compute(request, length, total);
    cache_->checkpoint(request, total).value();
  }
  void fetch() {
    const BlockRequest request = *cache_->start(random_key());
    const Prefetch prefetch = *cache_->prefetch(request);
    if (!prefetch.id) return;
    while (!cache_->prefetch_ready(prefetch.id)) poll();
    if (pick(5) == 0) {
      cache_->abort_prefetch(prefetch.id);
    } else {
      (void)cache_->end_prefetch(prefetch.id);
    }
  }

  void compare() {
    const BlockCacheStats stats = cache_->stats();
    std::vector<std::int64_t> told;
    const auto tell = [&](std::size_t n) {
      told.push_back(static_cast<std::int64_t>(n));
      told.push_back(-told.back());
    };
    tell(stats.hit_tokens);
    tell(stats.host_hit_tokens);
    tell(stats.cached_blocks);
    tell(stats.evicted_blocks);
    tell(cache_->pool().num_free());
    for (std::size_t g = 0; g < cache_.sides.size(); ++g) {
      tell(cache_->host_sizes(g).total);
      tell(cache_->host_sizes(g).evictable);
    }
    if (!ranks_.min(told).ok()) wrong("the ranks have lost each other");
    for (std::size_t i = 0; i < told.size(); i += 2) {
      if (told[i] != -told[i + 1]) wrong("the caches differ in number " + std::to_string(i / 2));
    }
  }

  Ranks& ranks_;
  std::mt19937_64 common_, own_;
  StepCopier copier_;
  TieredBlocks cache_;
  std::vector<HostPageId> stolen_;
  std::size_t num_refused_ = 0;
  std::string wrong_;
};

template <typename Fn>
void on_each_rank(Fn&& fn) {
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<Ranks>> all =
      *make_thread_ranks({.num_ranks = kRanks, .timeout = std::chrono::seconds(30)});
  for (std::unique_ptr<Ranks>& ranks : all)
    threads.emplace_back([&fn, own = std::move(ranks)] { fn(*own); });
  for (std::thread& thread : threads) thread.join();
}

class MirroredBlocksTest : public ::testing::TestWithParam<MirrorBlocksCase> {};

TEST_P(MirroredBlocksTest, CachesStayAlikeWhateverHappensToOneOfThem) {
  std::size_t num_steps = 3000;
  if (const char* text = std::getenv("PANDO_MODEL_OPS"))
    num_steps = std::strtoull(text, nullptr, 10) / 500;
  on_each_rank([&](Ranks& ranks) {
    MirroredBlocks mirror(ranks, GetParam());
    std::string wrong;
    for (std::size_t i = 0; i < num_steps && wrong.empty(); ++i) {
      wrong = mirror.step();
      if (!wrong.empty()) wrong = "step " + std::to_string(i) + ", " + wrong;
    }
    EXPECT_EQ(wrong, "");
    if (num_steps < 3000) return;
    const TierStats stats = mirror.stats();  // it was worth the trouble
    EXPECT_GT(mirror.num_refused(), 50u);
    EXPECT_GT(stats.failed_backups, 10u);
    EXPECT_GT(stats.failed_loads, 0u);
    EXPECT_GT(stats.loaded_tokens, 100u);
    EXPECT_GT(stats.prefetched_tokens, 0u);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, MirroredBlocksTest,
    ::testing::Values(
        MirrorBlocksCase{"write_through"},
        MirrorBlocksCase{.name = "write_back", .write_policy = WritePolicy::write_back},
        MirrorBlocksCase{.name = "hybrid", .groups = {full_group(4), window_group(4, 6)}}),
    [](const auto& info) { return info.param.name; });

TEST(MirroredBlocks, SettingsThatDifferAreNamedOnEveryRank) {
  on_each_rank([](Ranks& ranks) {
    BlockCacheOptions options = block_options({full_group(4)}, ranks.rank() == 1 ? 16 : 17);
    options.ranks = &ranks;
    const auto cache = BlockCache::create(options);
    ASSERT_FALSE(cache.ok());
    EXPECT_NE(cache.error().message.find("num_blocks"), std::string::npos) << cache.error().message;
  });
}

TEST(MirroredBlocks, PagesThatAreDrawnByNumberAreRefused) {
  on_each_rank([](Ranks& ranks) {
    TieredBlocks alone;
    BlockCacheOptions options = alone->options();
    options.ranks = &ranks;
    options.policy = "hazard";
    const auto cache = BlockCache::create(options);
    ASSERT_FALSE(cache.ok());
    EXPECT_NE(cache.error().message.find("hazard"), std::string::npos) << cache.error().message;
  });
}

}  // namespace
}  // namespace pando::testing
