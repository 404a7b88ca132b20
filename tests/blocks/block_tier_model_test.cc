// SPDX-License-Identifier: Apache-2.0
// A BlockCache with all its tiers and real bytes under random operations: copies end when they
// like, or fail; the store loses, damages and swaps pages. Whatever is found is byte for byte what
// was computed for exactly that prefix, and after every operation every block and page has its
// holders.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>

#include "base/random.h"
#include "pando/config.h"
#include "pando/store_backends.h"
#include "support/random_ops.h"
#include "support/step_copier.h"
#include "support/tiered_blocks.h"

namespace pando::testing {
namespace {

struct TierCase {
  std::vector<BlockGroup> groups;
  WritePolicy write_policy = WritePolicy::write_through;
  std::size_t num_blocks = 30;
  std::size_t host_pages = 24;
  bool with_store = true;
  std::string policy = "lru";
};

class TierOps {
 public:
  explicit TierOps(const TierCase& c) : cache_(setup_of(c, copier_)) {
    if (!c.with_store) return;
    StorageOptions options;
    options.backend = store_name();
    options.options = R"({"prefetch_threshold": 1, "prefetch_max_tokens": 1000})";
    options.scope.model = "m";
    options.prefetch_policy = "wait_complete";
    cache_->tiers().attach_storage(options).value();
  }
  ~TierOps() {
    copier_.at_once(true);
    copier_.run_all();
  }

  /// Eight operations from one number: what the tiers do needs some time to show.
  void apply(std::uint64_t number) {
    for (std::uint64_t i = 0; i < 8; ++i) apply_one(Random(number, i));
  }

 private:
  void apply_one(Random random) {
    switch (random.below(13)) {
      case 0:
      case 1:
        if (requests_.size() < 6) requests_.push_back(start(random));
        break;
      case 2:
      case 3:
      case 4:
        if (!requests_.empty()) step(requests_[random.below(requests_.size())], random);
        break;
      case 5:
        if (!requests_.empty()) {
          std::swap(requests_[random.below(requests_.size())], requests_.back());
          requests_.pop_back();
        }
        break;
      case 6:
      case 7:
        copier_.step(random.below(2), random.below(8) > 0);
        break;
      case 8:
        if (!requests_.empty()) prefetch(requests_[random.below(requests_.size())], random);
        break;
      case 9:
        copier_.refuse(random.below(10) == 0 ? 1 : 0);
        break;
      case 10:
        if (random.below(3) == 0) {
          const PageId any{
              static_cast<std::uint32_t>(1 + random.below(cache_->pool().num_blocks() - 1))};
          cache_->forget({&any, 1});
          break;
        }
        [[fallthrough]];
      case 11:
        if (random.below(4) == 0) (void)cache_->tiers().evict_host(random.below(12));
        [[fallthrough]];
      default:
        (void)cache_->poll();
        break;
    }
    const Status sound = cache_->check();
    if (!sound.ok()) RC_FAIL(sound.error().message);
  }

  struct Running {
    BlockRequest request;
    std::size_t loading = 0;  // tokens that were being loaded when it began
    PrefetchId prefetch = {};
  };

  static BlockTierSetup setup_of(const TierCase& c, StepCopier& copier) {
    BlockTierSetup setup;
    setup.cache = block_options(c.groups, c.num_blocks);
    setup.cache.hash.function = HashFunction::sha256_cbor;
    setup.cache.events = true;
    setup.cache.policy = c.policy;
    setup.write_policy = c.write_policy;
    setup.host_pages = c.host_pages;
    setup.copier = &copier;
    if (c.write_policy == WritePolicy::write_back) copier.at_once(true);  // it waits for them
    return setup;
  }
  // One store for all runs: what earlier ones left is found again.
  static const std::string& store_name() {
    static const std::string name = [] {
      static const std::unique_ptr<StoreBackend> inner = *make_memory_store();
      const auto make = [](const Config&) -> Result<std::unique_ptr<StoreBackend>> {
        class Shared final : public StoreBackend {
         public:
          std::string_view name() const override { return "shared"; }
          void exists(StoreBatch& batch) override { inner->exists(batch); }
          void get(StoreBatch& batch) override { inner->get(batch); }
          void put(StoreBatch& batch) override { inner->put(batch); }
          void remove(StoreBatch& batch) override { inner->remove(batch); }
          Status clear() override { return inner->clear(); }
          Status list(const std::function<bool(const StoredPage&)>& visit) override {
            return inner->list(visit);
          }
          BackendStats stats() const override { return inner->stats(); }
        };
        StoreFaults faults;
        faults.seed = 7;
        faults.error = faults.short_read = faults.flipped_bit = faults.stale = 0.05;
        return make_faulty_store(std::make_unique<Shared>(), faults);
      };
      register_store("tier-model", make).value();
      return std::string("tier-model");
    }();
    return name;
  }

  Running start(Random& random) {
    Tokens key = tokens(1 + random.below(40));
    const std::size_t from = random.below(48);
    for (std::size_t i = from; i < key.size(); ++i)
      key[i] += static_cast<Token>(1000 * random.below(2));
    RequestKeys keys;
    if (random.below(6) == 0) (random.below(2) == 0 ? keys.lora : keys.salt) = "x";
    return {*cache_->start(key, keys)};
  }

  void step(Running& r, Random& random) {
    BlockRequest& request = r.request;
    if (request.is_broken() || random.below(10) == 0) {
      cache_->preempt(request);
      open_gates();
      return;
    }
    const bool is_new = request.blocks(0).empty();
    const std::size_t total = request.tokens().size();
    std::size_t length = request.num_computed();
    if (!is_new && length == total) {
      RC_ASSERT(request.append(tokens(1 + random.below(4), 7)).ok());
      return;
    }
    const std::size_t left = total - length;
    if (is_new) {
      const BlockMatch found = cache_->match(request);
      AllocateOptions options{.match = &found};
      options.load_back = random.below(5) > 0;
      options.delay_caching = random.below(3) == 0;
      length = found.length + (options.load_back ? found.host_length : 0);
      if (!cache_->allocate(request, total - length, options).ok()) return;
      RC_ASSERT(request.num_computed() == length);
      // What is being loaded is looked at when it has arrived.
      if (length > found.length && !copier_.num_queued(1)) open_gates();
      const bool arrived = length == found.length || copier_.num_queued(1) == 0;
      if (arrived) (void)cache_->poll();
      if (arrived && !request.is_broken()) RC_ASSERT(bool(cache_.holds(request, length)));
      r.loading = arrived ? 0 : length;
      if (request.is_broken()) return;
    } else if (!cache_->allocate(request, left).ok()) {
      return;
    }
    cache_.compute(request, length, total);
    RC_ASSERT(cache_->checkpoint(request, total).ok());
    if (r.loading == 0) RC_ASSERT(bool(cache_.holds(request, total)));
  }

  // Left to itself, or waited for.
  void prefetch(Running& r, Random& random) {
    if (!r.prefetch) r.prefetch = cache_->prefetch(r.request)->id;
    if (!r.prefetch || random.below(3) == 0) return;
    while (!cache_->prefetch_ready(r.prefetch)) (void)cache_->poll();
    if (random.below(5) == 0) {
      cache_->abort_prefetch(r.prefetch);
    } else {
      (void)cache_->end_prefetch(r.prefetch);
    }
    r.prefetch = {};
  }

  // The engine has seen that a load failed.
  void open_gates() {
    for (TieredCache::Side& side : cache_.sides) side.device->open_gate();
  }

  StepCopier copier_;
  TieredBlocks cache_;
  std::vector<Running> requests_;
};

class BlockTierModel : public ::testing::TestWithParam<std::string> {
 protected:
  static void run(TierCase c);
};

void BlockTierModel::run(TierCase c) {
  c.policy = GetParam();
  constexpr std::size_t kCases = 12;  // that share 400 000 operations
  const char* given = std::getenv("PANDO_MODEL_OPS");
  const std::size_t num_ops =
      given != nullptr ? static_cast<std::size_t>(std::atoll(given)) : 400'000 / 8 / kCases;
  EXPECT_TRUE(check_random_ops(num_ops, [&](const std::vector<std::uint64_t>& ops) {
    TierOps tiers(c);
    for (const std::uint64_t op : ops) tiers.apply(op);
  }));
}

TEST_P(BlockTierModel, WriteThrough) { run({.groups = {full_group(4)}}); }
TEST_P(BlockTierModel, Selective) {
  run({.groups = {full_group(4)}, .write_policy = WritePolicy::write_through_selective});
}
TEST_P(BlockTierModel, WriteBack) {
  run({.groups = {full_group(4)}, .write_policy = WritePolicy::write_back, .host_pages = 10});
}
TEST_P(BlockTierModel, HybridGroups) {
  run({.groups = {full_group(4), window_group(4, 6), recurrent_group(4)}, .num_blocks = 60});
}
TEST_P(BlockTierModel, WindowsSmallerThanABlock) {
  run({.groups = {full_group(4), window_group(4, 2), window_group(4, 1)}, .num_blocks = 80});
}
TEST_P(BlockTierModel, BlockSizesThatDiffer) {
  run({.groups = {window_group(2, 7), chunked_group(4, 8), recurrent_group(8, true)},
       .num_blocks = 80,
       .with_store = false});
}

INSTANTIATE_TEST_SUITE_P(Policies, BlockTierModel, ::testing::Values("lru", "hazard"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace pando::testing
