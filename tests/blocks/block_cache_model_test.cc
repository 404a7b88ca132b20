// SPDX-License-Identifier: Apache-2.0
// BlockCache against a reference without hashes: random requests over a few shared prompts, every
// kind of group alone and together, under both policies, a million operations in all. After each,
// the two agree on every block of every request and on the order of all free ones.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <deque>

#include "base/random.h"
#include "pando/block_cache.h"
#include "support/block_fixture.h"
#include "support/random_ops.h"
#include "support/reference_blocks.h"

namespace pando::testing {
namespace {

/// Both caches side by side. An operation is made of one random number.
class Twins {
 public:
  explicit Twins(const BlockCacheOptions& options)
      : options_(options), cache_(std::move(*BlockCache::create(options))), model_(options) {}

  void apply(std::uint64_t op) {
    Random random(op);
    const std::size_t kind = random.below(16);
    if (kind < 4 || pairs_.empty()) {
      start(random);
    } else {
      Pair& pair = pairs_[random.below(pairs_.size())];
      if (kind < 7) {
        begin(pair, random);
      } else if (kind < 12) {
        step(pair, random);
      } else if (kind == 12) {
        random.below(3) == 0 ? forget(random) : preempt(pair);
      } else {
        finish(static_cast<std::size_t>(&pair - pairs_.data()), kind == 13);
      }
    }
    compare();
  }

 private:
  struct Pair {
    BlockRequest real;
    ReferenceBlocks::Request model;
    std::size_t scheduled = 0;  // tokens that allocate() made room for
  };

  // Prompts that share much: each is a path in a narrow tree.
  std::vector<Token> prompt(Random& random) {
    std::vector<Token> tokens(1 + random.below(60));
    const auto branch = static_cast<Token>(random.below(3));
    const std::size_t from = random.below(64);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<Token>(i * 3) + (i >= from ? branch * 1000 : 0);
    return tokens;
  }

  void start(Random& random) {
    if (pairs_.size() >= 8) return;
    const std::vector<Token> tokens = prompt(random);
    RequestKeys keys;
    std::string text;
    switch (random.below(8)) {
      case 0:
        keys.lora = "x";
        text = "lora x";
        break;
      case 1:
        keys.salt = "x";
        text = "salt x";
        break;
      default:
        break;
    }
    pairs_.push_back({*cache_->start(tokens, keys), model_.start(tokens, text)});
  }

  void begin(Pair& pair, Random& random) {
    if (pair.model.running) return step(pair, random);
    const BlockMatch found = cache_->match(pair.real);
    std::vector<std::vector<std::uint32_t>> blocks;
    RC_ASSERT(found.length == model_.computed(pair.model, &blocks));
    for (std::size_t g = 0; g < blocks.size(); ++g)
      RC_ASSERT(numbers(found.blocks[g]) == blocks[g]);
    const bool with_hit = random.below(5) > 0;
    AllocateOptions options = how(random);
    if (with_hit) options.match = &found;
    const std::size_t from = with_hit ? found.length : 0;
    allocate(pair, random, from, options);
  }

  AllocateOptions how(Random& random) {
    AllocateOptions options;
    options.delay_caching = random.below(4) == 0;
    if (random.below(4) == 0) options.lookahead_tokens = random.below(6);
    return options;
  }

  void allocate(Pair& pair, Random& random, std::size_t from, const AllocateOptions& options) {
    const std::size_t left = pair.model.tokens.size() - from;
    // A chunk, all that is left, or some drafts more.
    std::size_t num_new = random.below(2) == 0 ? left : random.below(left + 1);
    if (random.below(6) == 0) num_new += random.below(4);
    const Status done = cache_->allocate(pair.real, num_new, options);
    std::vector<BlockNumbers> chosen;
    for (std::size_t g = 0; g < options_.groups.size(); ++g)
      chosen.push_back(numbers(pair.real.blocks(g)));
    const bool expected = model_.allocate(pair.model, num_new, options.match != nullptr,
                                          options.lookahead_tokens, options.delay_caching, chosen);
    RC_ASSERT(model_.all_allowed);
    RC_ASSERT(done.ok() == expected);
    if (expected) pair.scheduled = from + num_new;
    if (!expected) RC_ASSERT(done.error().code == ErrorCode::out_of_capacity);
  }

  void step(Pair& pair, Random& random) {
    if (!pair.model.running) return;
    if (random.below(8) > 0) {  // the forward pass is done, perhaps with drafts rejected
      std::size_t to = std::min(pair.scheduled, pair.model.tokens.size());
      if (random.below(6) == 0 && to > pair.model.computed)
        to = pair.model.computed + random.below(to - pair.model.computed + 1);
      to = std::max(to, pair.model.computed);
      if (has_places(pair, to)) {
        RC_ASSERT(cache_->checkpoint(pair.real, to).ok());
        model_.checkpoint(pair.model, to);
      } else {
        RC_ASSERT(!cache_->checkpoint(pair.real, to).ok());
      }
    }
    if (pair.model.tokens.size() < 70 && random.below(2) == 0) {
      std::vector<Token> more(1 + random.below(5));
      for (Token& t : more) t = static_cast<Token>(random.below(2));
      RC_ASSERT(pair.real.append(more).ok());
      pair.model.tokens.insert(pair.model.tokens.end(), more.begin(), more.end());
    }
    allocate(pair, random, pair.model.computed, how(random));
  }

  // A state between two steps has no place.
  bool has_places(const Pair& pair, std::size_t to) const {
    for (std::size_t g = 0; g < options_.groups.size() && to > pair.model.computed; ++g) {
      const BlockGroup& group = options_.groups[g];
      if (group.kind == GroupKind::recurrent &&
          pair.model.blocks[g][(to - 1) / group.block_size] == 0)
        return false;
    }
    return true;
  }

  void preempt(Pair& pair) {
    cache_->preempt(pair.real);
    model_.let_go(pair.model);
  }

  void forget(Random& random) {
    const auto block = static_cast<std::uint32_t>(1 + random.below(options_.num_blocks - 1));
    const PageId id{block};
    cache_->forget({&id, 1});
    model_.forget(block);
  }

  void finish(std::size_t i, bool by_call) {
    if (by_call) cache_->finish(pairs_[i].real);
    model_.let_go(pairs_[i].model);
    if (i + 1 < pairs_.size()) std::swap(pairs_[i], pairs_.back());
    pairs_.pop_back();
  }

  void compare() {
    const Status sound = cache_->check();
    if (!sound.ok()) RC_FAIL(sound.error().message);
    RC_ASSERT(numbers(cache_->pool().free_blocks()) == model_.queue);
    std::size_t running = 0;
    for (const Pair& pair : pairs_) {
      running += pair.model.running ? 1 : 0;
      RC_ASSERT(pair.real.num_computed() == pair.model.computed);
      for (std::size_t g = 0; g < options_.groups.size(); ++g)
        RC_ASSERT(numbers(pair.real.blocks(g)) == pair.model.blocks[g]);
    }
    RC_ASSERT(cache_->num_requests() == running);
    for (std::size_t g = 0; g < options_.groups.size(); ++g)
      RC_ASSERT(cache_->sizes(g).total == model_.cached_blocks(g) * options_.groups[g].block_size);
    RC_ASSERT(cache_->pool().collisions() == 0U);
    if (running > 0) compare_common_prefix(running);
  }

  void compare_common_prefix(std::size_t running) {
    const auto any =
        std::find_if(pairs_.begin(), pairs_.end(), [](const Pair& p) { return p.model.running; });
    const auto shared = cache_->common_prefix_blocks(any->real);
    for (std::size_t g = 0; g < options_.groups.size(); ++g) {
      std::size_t n = 0;
      if (options_.groups[g].kind == GroupKind::full) {
        const auto same_in_all = [&](std::size_t i) {
          return std::count_if(pairs_.begin(), pairs_.end(), [&](const Pair& p) {
                   return p.model.running && i < p.model.blocks[g].size() &&
                          p.model.blocks[g][i] == any->model.blocks[g][i];
                 }) == static_cast<std::ptrdiff_t>(running);
        };
        while (n < any->model.blocks[g].size() && same_in_all(n)) ++n;
      }
      RC_ASSERT(shared[g] == n);
    }
  }

  BlockCacheOptions options_;
  std::unique_ptr<BlockCache> cache_;
  ReferenceBlocks model_;
  std::vector<Pair> pairs_;
};

class BlockCacheModel : public ::testing::TestWithParam<std::string> {
 protected:
  static void run(BlockCacheOptions options);
};

void BlockCacheModel::run(BlockCacheOptions options) {
  options.policy = GetParam();
  constexpr std::size_t kCases = 30;  // that share a million operations
  const char* given = std::getenv("PANDO_MODEL_OPS");
  const std::size_t num_ops =
      given != nullptr ? static_cast<std::size_t>(std::atoll(given)) : 1'000'000 / kCases;
  EXPECT_TRUE(check_random_ops(num_ops, [&](const std::vector<std::uint64_t>& ops) {
    Twins twins(options);
    for (const std::uint64_t op : ops) twins.apply(op);
  }));
}

TEST_P(BlockCacheModel, FullAttention) { run(block_options({full_group(4)}, 40)); }
TEST_P(BlockCacheModel, BlocksOfOneToken) { run(block_options({full_group(1)}, 150)); }
TEST_P(BlockCacheModel, SlidingWindow) { run(block_options({window_group(4, 10)}, 40)); }
TEST_P(BlockCacheModel, WindowOfItsOwnTokenOnly) { run(block_options({window_group(4, 1)}, 40)); }
TEST_P(BlockCacheModel, WindowSmallerThanABlock) { run(block_options({window_group(4, 3)}, 40)); }
TEST_P(BlockCacheModel, FullAndWindowsSmallerThanABlock) {
  run(block_options({full_group(4), window_group(4, 2), window_group(8, 5)}, 90));
}
TEST_P(BlockCacheModel, ChunkedLocal) { run(block_options({chunked_group(4, 12)}, 40)); }
TEST_P(BlockCacheModel, RecurrentAtStepEnds) { run(block_options({recurrent_group(4)}, 24)); }
TEST_P(BlockCacheModel, RecurrentAtEveryBlock) {
  run(block_options({recurrent_group(4, true)}, 40));
}
TEST_P(BlockCacheModel, FullAndWindow) {
  run(block_options({full_group(4), window_group(4, 9)}, 60));
}
TEST_P(BlockCacheModel, GroupsOfDifferentBlockSizes) {
  run(block_options({full_group(4), window_group(2, 7), chunked_group(6, 12)}, 90));
}
TEST_P(BlockCacheModel, AllKindsTogether) {
  run(block_options(
      {window_group(4, 8), full_group(2), chunked_group(4, 16), recurrent_group(4), full_group(4)},
      110));
}
TEST_P(BlockCacheModel, Deduplicated) {
  BlockCacheOptions options = block_options({full_group(4), window_group(4, 12)}, 60);
  options.deduplicate = true;
  run(options);
}
TEST_P(BlockCacheModel, LastBlockIsRecomputed) {
  BlockCacheOptions options = block_options({full_group(4), recurrent_group(8, true)}, 60);
  options.recompute_last_block = true;
  options.keep_tokens = false;
  run(options);
}
TEST_P(BlockCacheModel, HashesOfVllm) {
  BlockCacheOptions options = block_options({full_group(4), window_group(4, 5)}, 50);
  options.hash.function = HashFunction::sha256_cbor;
  run(options);
}

INSTANTIATE_TEST_SUITE_P(Policies, BlockCacheModel, ::testing::Values("lru", "hazard"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace pando::testing
