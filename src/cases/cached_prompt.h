// SPDX-License-Identifier: Apache-2.0
// A prompt that a BlockCache has as a whole, found again (start hashes it, match finds it),
// and its limit: copying the tokens and comparing them.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cases/hash_messages.h"
#include "cases/measure.h"
#include "pando/block_cache.h"

namespace pando::bench {

class CachedPrompt {
 public:
  static constexpr std::size_t kLength = 32768;

  CachedPrompt() : tokens_(prompt(kLength + 1)), copy_(tokens_.size()) {
    BlockCacheOptions options;
    options.num_blocks = 65537;
    cache_ = std::move(*BlockCache::create(options));
    {
      BlockRequest first = *cache_->start(tokens_);
      require(cache_->allocate(first, tokens_.size()).ok(), "room");
      require(cache_->checkpoint(first, tokens_.size()).ok(), "computed");
    }
    find();
    require(found_ == kLength, "all of it");
  }

  void find() {
    const BlockRequest request = *cache_->start(tokens_);
    found_ += cache_->match(request).length;
  }
  void limit() {
    std::memcpy(copy_.data(), tokens_.data(), tokens_.size() * sizeof(Token));
    keep(std::memcmp(copy_.data(), tokens_.data(), kLength * sizeof(Token)));
  }

 private:
  const std::vector<Token> tokens_;
  std::vector<Token> copy_;
  std::unique_ptr<BlockCache> cache_;
  std::size_t found_ = 0;
};

}  // namespace pando::bench
