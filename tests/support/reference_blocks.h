// SPDX-License-Identifier: Apache-2.0
// The dumbest BlockCache that is right: contents are texts, the free queue is a list that is
// searched, a hit is the longest of all lengths, tried one by one. No hashes, no tiers.
// Who goes under the hazard policy it cannot tell: it is told, and says whether that is allowed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "pando/block_cache.h"

namespace pando::testing {

class ReferenceBlocks {
 public:
  struct Request {
    std::vector<Token> tokens;
    std::string keys;  // what sets it apart
    std::vector<std::vector<std::uint32_t>> blocks;
    std::vector<std::size_t> cached, released;
    std::size_t computed = 0;
    bool running = false;
  };

  explicit ReferenceBlocks(const BlockCacheOptions& options)
      : options_(options), holders_(options.num_blocks), content_(options.num_blocks) {
    for (std::uint32_t i = 1; i < options.num_blocks; ++i) queue.push_back(i);
    for (const BlockGroup& g : options.groups) align_ = std::lcm(align_, g.block_size);
  }

  Request start(std::vector<Token> tokens, std::string keys) const {
    Request r;
    r.tokens = std::move(tokens);
    r.keys = std::move(keys);
    clear(r);
    return r;
  }

  /// The longest hit, and its blocks by group.
  std::size_t computed(const Request& r,
                       std::vector<std::vector<std::uint32_t>>* blocks = {}) const {
    std::size_t skip = options_.recompute_last_block ? 1 : 0;
    const std::size_t limit = r.tokens.empty() ? 0 : r.tokens.size() - 1;
    std::size_t length = limit / align_ * align_;
    for (; length > 0; length -= align_) {
      if (!is_valid(r, length)) continue;
      if (skip == 0) break;
      skip = 0;
    }
    if (blocks != nullptr) {
      blocks->clear();
      for (std::size_t g = 0; g < options_.groups.size(); ++g) {
        const std::size_t size = options_.groups[g].block_size;
        auto& list = blocks->emplace_back(length / size);
        for (std::size_t i = 0; i < list.size(); ++i)
          list[i] = is_needed(g, length, i) ? find(g, r, i) : 0;
      }
    }
    return length;
  }

  /// `chosen` are the blocks that the request has then, for victims that the model does not choose.
  bool allocate(Request& r, std::size_t num_new, bool with_hit, std::size_t lookahead, bool delay,
                const std::vector<std::vector<std::uint32_t>>& chosen) {
    std::vector<std::vector<std::uint32_t>> hit(options_.groups.size());
    std::size_t start = r.computed;
    if (with_hit) start = computed(r, &hit);
    const std::size_t end = start + num_new;
    std::size_t wanted = 0;
    std::vector<std::vector<bool>> is_new(hit.size());  // of what is added behind the hit
    for (std::size_t g = 0; g < hit.size(); ++g) {
      const BlockGroup& group = options_.groups[g];
      for (const std::uint32_t b : hit[g]) wanted += b != 0 && holders_[b] == 0 ? 1 : 0;
      const std::size_t have = r.blocks[g].size() + hit[g].size();
      for (std::size_t i = have; i * group.block_size < end + lookahead; ++i) {
        const bool between = group.kind == GroupKind::recurrent && !group.every_state &&
                             num_new > 0 && (i + 1) * group.block_size < end;
        is_new[g].push_back(!between);
        wanted += between ? 0 : 1;
      }
    }
    if (wanted > queue.size()) return false;
    for (std::size_t g = 0; g < hit.size(); ++g) {
      for (const std::uint32_t b : hit[g]) {
        if (b != 0 && holders_[b]++ == 0) queue.erase(std::find(queue.begin(), queue.end(), b));
        r.blocks[g].push_back(b);
      }
    }
    for (std::size_t g = 0; g < hit.size(); ++g) {
      for (const bool fresh : is_new[g]) {
        if (!fresh) {
          r.blocks[g].push_back(0);
          continue;
        }
        std::uint32_t next = queue.front();
        if (is_hazard_ && content_[next]) {
          next = chosen[g][r.blocks[g].size()];
          all_allowed = all_allowed && is_allowed(next);
          if (!all_allowed) return true;
        }
        r.blocks[g].push_back(next);
        content_[next].reset();
        holders_[next] = 1;
        queue.erase(std::find(queue.begin(), queue.end(), next));
      }
    }
    r.running = true;
    if (with_hit) {
      r.computed = start;
      for (std::size_t g = 0; g < hit.size(); ++g) r.cached[g] = hit[g].size();
    }
    if (!delay) cache(r, std::min(end, r.tokens.size()), end);
    return true;
  }

  void checkpoint(Request& r, std::size_t computed) {
    r.computed = computed;
    cache(r, computed, computed);
    for (std::size_t g = 0; g < r.blocks.size(); ++g) {
      std::vector<std::uint32_t> unseen;
      for (std::size_t i = r.blocks[g].size(); i > 0; --i) {
        if (i * options_.groups[g].block_size > computed || is_needed(g, computed, i - 1)) continue;
        unseen.push_back(r.blocks[g][i - 1]);
        r.blocks[g][i - 1] = 0;
      }
      free(unseen);
    }
  }

  void let_go(Request& r) {
    if (!r.running) return;
    for (std::size_t g = 0; g < r.blocks.size(); ++g) {
      for (std::size_t i = r.computed / options_.groups[g].block_size;
           i < std::min(r.cached[g], r.blocks[g].size()); ++i)
        content_[r.blocks[g][i]].reset();
    }
    for (auto& blocks : r.blocks) free({blocks.rbegin(), blocks.rend()});
    clear(r);
  }

  void forget(std::uint32_t block) {
    if (!content_[block]) return;
    content_[block].reset();
    const auto at = std::find(queue.begin(), queue.end(), block);
    if (is_hazard_ && at != queue.end()) std::rotate(queue.begin(), at, at + 1);
  }

  std::size_t cached_blocks(std::size_t group) const {
    return static_cast<std::size_t>(std::count_if(
        content_.begin(), content_.end(), [&](const auto& c) { return c && c->group == group; }));
  }
  std::uint32_t holders(std::uint32_t block) const { return holders_[block]; }

  std::vector<std::uint32_t> queue;
  bool all_allowed = true;  ///< every victim so far might go

 private:
  struct Content {
    std::size_t group = 0;
    std::string text;
    std::uint64_t since = 0;         // no two are alike
    std::uint64_t since_before = 0;  // of the block before it; 0: of none
  };

  /// Free, and nothing is behind it: of full attention.
  bool may_go(std::uint32_t block) const {
    if (holders_[block] > 0 || !content_[block]) return false;
    if (options_.groups[content_[block]->group].kind != GroupKind::full) return true;
    return std::none_of(content_.begin(), content_.end(), [&](const auto& c) {
      return c && c->since_before == content_[block]->since;
    });
  }
  /// Where none may go, the one that was freed first does.
  bool is_allowed(std::uint32_t block) const {
    if (may_go(block)) return true;
    return block == queue.front() &&
           std::none_of(queue.begin(), queue.end(), [&](std::uint32_t b) { return may_go(b); });
  }

  void clear(Request& r) const {
    r.blocks.assign(options_.groups.size(), {});
    r.cached.assign(options_.groups.size(), 0);
    r.computed = 0;
    r.running = false;
  }

  /// Whether computing the token at position `length` looks at block i.
  bool is_needed(std::size_t g, std::size_t length, std::size_t i) const {
    const BlockGroup& group = options_.groups[g];
    for (std::size_t t = i * group.block_size; t < (i + 1) * group.block_size && t < length; ++t) {
      switch (group.kind) {
        case GroupKind::full:
          return true;
        case GroupKind::sliding_window:
          if (t + group.span > length) return true;
          break;
        case GroupKind::chunked_local:
          if (t / group.span == length / group.span) return true;
          break;
        case GroupKind::recurrent:
          if (t + 1 == length) return true;
          break;
      }
    }
    // A chunk that begins inside a block needs all of the block's place, computed or not.
    return false;
  }

  bool is_valid(const Request& r, std::size_t length) const {
    for (std::size_t g = 0; g < options_.groups.size(); ++g) {
      for (std::size_t i = 0; i < length / options_.groups[g].block_size; ++i) {
        if (is_needed(g, length, i) && find(g, r, i) == 0) return false;
      }
    }
    return true;
  }

  std::string text_of(std::size_t g, const Request& r, std::size_t i) const {
    std::string text = std::to_string(g) + "/" + r.keys + "/";
    for (std::size_t t = 0; t < (i + 1) * options_.groups[g].block_size; ++t)
      text += std::to_string(r.tokens[t]) + ",";
    return text;
  }

  std::uint32_t find(std::size_t g, const Request& r, std::size_t i) const {
    const std::string text = text_of(g, r, i);
    std::uint32_t best = 0;
    for (std::uint32_t b = 1; b < content_.size(); ++b) {
      if (content_[b] && content_[b]->text == text &&
          (best == 0 || content_[b]->since < content_[best]->since))
        best = b;
    }
    return best;
  }

  void cache(Request& r, std::size_t length, std::size_t step_end) {
    if (!options_.caching) return;
    for (std::size_t g = 0; g < r.blocks.size(); ++g) {
      const BlockGroup& group = options_.groups[g];
      const bool at_ends = group.kind == GroupKind::recurrent && !group.every_state;
      for (std::size_t i = 0; i < r.blocks[g].size() && (i + 1) * group.block_size <= length; ++i) {
        const std::uint32_t b = r.blocks[g][i];
        const bool fits = at_ends ? (i + 1) * group.block_size == step_end : i >= r.cached[g];
        if (b == 0 || content_[b] || !fits) continue;
        if (options_.deduplicate && find(g, r, i) != 0) continue;
        content_[b] = Content{g, text_of(g, r, i), ++clock_, since_before(g, r, i)};
      }
      r.cached[g] = std::max(r.cached[g], std::min(length / group.block_size, r.blocks[g].size()));
    }
  }

  /// The request's own block, unless another has the content in its place.
  std::uint64_t since_before(std::size_t g, const Request& r, std::size_t i) const {
    if (i == 0 || options_.groups[g].kind != GroupKind::full) return 0;
    const std::uint32_t own = r.blocks[g][i - 1];
    const std::uint32_t before = own != 0 && content_[own] ? own : find(g, r, i - 1);
    return before != 0 ? content_[before]->since : 0;
  }

  void free(const std::vector<std::uint32_t>& blocks) {
    std::vector<std::uint32_t> front;
    for (const std::uint32_t b : blocks) {
      if (b == 0 || --holders_[b] > 0) continue;
      (content_[b] ? queue : front).push_back(b);
    }
    queue.insert(queue.begin(), front.begin(), front.end());
  }

  BlockCacheOptions options_;
  const bool is_hazard_ = options_.policy == "hazard";
  std::vector<std::uint32_t> holders_;
  std::vector<std::optional<Content>> content_;
  std::uint64_t clock_ = 0;
  std::size_t align_ = 1;
};

}  // namespace pando::testing
