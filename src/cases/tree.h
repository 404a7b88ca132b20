// SPDX-License-Identifier: Apache-2.0
// A cache over its own allocator, with a window side where the options say so, and token sequences
// to fill it with, for the benchmarks.
#pragma once

#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "cases/measure.h"
#include "pando/cache.h"
#include "pando/paths.h"

namespace pando::bench {

/// Room behind the first `from` slots of a sequence, by the call for batches.
inline void extend_slots(PrefixCache& cache, std::span<SlotId> slots, std::size_t from) {
  const std::size_t to = slots.size();
  const SlotId last = from == 0 ? SlotId{0} : slots[from - 1];
  require(cache.paths().allocate_extend({&from, 1}, {&to, 1}, {&last, 1}, slots.subspan(from)).ok(),
          "room for the sequence");
}

struct Tree {
  std::unique_ptr<PagedAllocator> allocator;
  std::unique_ptr<WindowAllocator> window_allocator;  // instead, with a window
  std::unique_ptr<PrefixCache> cache;

  Tree(std::size_t capacity_tokens, std::size_t page_size, CacheOptions options = {},
       std::string_view policy = "lru") {
    options.hash_seed = 1;
    if (options.window) {
      window_allocator = *WindowAllocator::create({.full_tokens = capacity_tokens,
                                                   .window_tokens = capacity_tokens,
                                                   .page_size = page_size});
      cache = *PrefixCache::create(options, *window_allocator, *make_policy(policy));
    } else {
      allocator =
          *PagedAllocator::create({.capacity_tokens = capacity_tokens, .page_size = page_size});
      cache = *PrefixCache::create(options, *allocator, *make_policy(policy));
    }
  }

  /// Room behind the first `from` slots of a sequence.
  void extend(std::span<SlotId> slots, std::size_t from) { extend_slots(*cache, slots, from); }

  /// Inserts whole sequences; what is shared takes its slots from the tree. The window before
  /// `window_released` is given back first.
  void insert(std::span<const Token> tokens, std::size_t window_released = 0) {
    insert({tokens}, {.window_released = window_released});
  }
  void insert(const Key& key, InsertOptions options) {
    std::vector<SlotId> slots(key.tokens.size());
    options.owned_by_tree = cache->paths().match(key, slots)->length;
    extend(slots, options.owned_by_tree);
    require(cache->paths().insert(key, slots, options).ok(), "insert");
  }
};

/// Sequence i: tokens [0, shared) are those of its group, the rest are its own.
class Sequences {
 public:
  Sequences(std::size_t count, std::size_t length, std::size_t shared, std::size_t group)
      : length_(length), tokens_(count * length) {
    Random random(42);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t leader = i / group * group * length;
      for (std::size_t j = 0; j < length; ++j)
        tokens_[i * length + j] = j < shared && i % group != 0
                                      ? tokens_[leader + j]
                                      : static_cast<Token>(random.below(128'000));
    }
  }
  std::size_t size() const { return tokens_.size() / length_; }
  std::span<const Token> operator[](std::size_t i) const {
    return {tokens_.data() + i * length_, length_};
  }

 private:
  std::size_t length_;
  std::vector<Token> tokens_;
};

inline std::vector<std::size_t> shuffled(std::size_t n, std::uint64_t seed) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(seed);
  for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace pando::bench
