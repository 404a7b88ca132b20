// SPDX-License-Identifier: Apache-2.0
// The model's operations on running requests: start, room, checkpoint, finish.
#include <algorithm>

#include "support/cache_model.h"
#include "support/cache_model_internal.h"

namespace pando::testing {

void CacheModel::do_start(Bits& bits) {
  if (running_.size() >= 3) return;
  Running& running = running_.emplace_back();
  running.key = make_key(bits);
  const std::size_t extra = bits.below(3);
  running.slots.resize(running.key.tokens.size() + extra);
  running.request.key = running.key.view();
  running.request.slots = running.slots;
  running.request.priority = static_cast<std::int32_t>(bits.below(3));
  const Match match = *cache_->start(running.request);

  KeyData key = running.key;
  const std::size_t spare = config_.bigram ? 0 : 1;
  key.tokens.resize(key.tokens.size() - spare);
  if (!key.tokens.empty()) {
    const auto found = reference_.match(key.ns, key.tokens);
    require(match.length == found.num_pages * config_.page_size, "start found {} tokens",
            match.length);
    require(whole_pages(running.slots, found.num_pages) == found.pages, "start wrote wrong slots");
    if (found.last) running.path = {*found.last, found.last_uid};
    if (match.partial_length > 0) {
      const auto page = static_cast<std::uint32_t>(
          static_cast<std::size_t>(index_of(match.partial_slot)) / config_.page_size);
      const auto end = reference_.node_end(page);
      running.partial = {end, reference_.uid(end)};
    }
  }
  hold(running.path, 1);
  hold(running.partial, 1);
  running.computed = match.length;
  require(running.request.cached_length == match.length, "start caches what it matched");
}

// Room for some more tokens of a request, and perhaps a checkpoint.
void CacheModel::do_extend(Bits& bits) {
  if (running_.empty()) return;
  Running& running = running_[bits.below(running_.size())];
  const std::size_t page_size = config_.page_size;
  const std::size_t from = running.computed;
  const std::size_t to = std::min(running.slots.size(), from + 1 + bits.below(3 * page_size));
  if (to <= from) return;
  const std::size_t need = (to + page_size - 1) / page_size - (from + page_size - 1) / page_size;
  if (config_.own_allocator) {
    const std::size_t evictable = reference_.total_pages() - reference_.locked_pages();
    const bool possible = need <= free_.size() + evictable;
    Request view{.key = {}, .slots = std::span(running.slots).first(to)};
    const Status status = cache_->allocate(view, from);
    require(status.ok() == possible, "allocate of {} pages {}", need,
            status.ok() ? "worked" : "failed");
    if (!possible) return;
    if (need > free_.size()) expect_freed(reference_.evict(need - free_.size()));
    for (std::size_t i = from; i < to; ++i) {
      const auto page = static_cast<std::uint32_t>(
          static_cast<std::size_t>(index_of(running.slots[i])) / page_size);
      if (i % page_size == 0) require(free_.erase(page) == 1, "page {} was not free", page);
    }
  } else {
    if (!make_room(need)) return;
    const std::vector<SlotId> taken = take_pages(need);
    std::size_t next = 0;
    for (std::size_t i = from; i < to; ++i) {
      if (i % page_size == 0) {
        running.slots[i] = taken[next];
        next += page_size;
      } else {
        running.slots[i] = SlotId{index_of(running.slots[i - 1]) + 1};
      }
    }
  }
  running.computed = to;
  compare();
  if (bits.chance(2)) do_checkpoint(running, true);
}

void CacheModel::do_checkpoint(Running& running, bool chunked) {
  const std::size_t num_tokens = std::min(running.computed, running.key.tokens.size());
  KeyData key{running.key.ns, running.key.tokens};
  key.tokens.resize(num_tokens);
  const std::size_t num_pages = reference_.num_pages(key.tokens);
  running.request.key = running.key.view();
  running.request.key.tokens = running.request.key.tokens.first(num_tokens);
  running.request.slots = std::span(running.slots).first(running.computed);
  const std::size_t cached = running.request.cached_length;
  sunk_.clear();
  const std::vector<std::uint32_t> before = whole_pages(running.slots, num_pages);
  cache_->checkpoint(running.request, chunked).value();
  if (num_pages == 0 || num_pages * config_.page_size < cached) return;

  expect_freed(reference_.insert(key.ns, key.tokens, before, running.request.priority, chunked));
  const auto found = reference_.look(key.ns, key.tokens);
  require(whole_pages(running.slots, num_pages) == found.pages,
          "checkpoint left slots that are not the tree's");
  require(running.request.cached_length == num_pages * config_.page_size,
          "checkpoint caches every whole page");
  hold(running.path, -1);
  hold(running.partial, -1);
  running.path = {*found.last, found.last_uid};
  running.partial.reset();
  hold(running.path, 1);
}

void CacheModel::do_finish(std::size_t which, bool insert) {
  Running& running = running_[which];
  const std::size_t num_tokens = std::min(running.computed, running.key.tokens.size());
  KeyData key{running.key.ns, running.key.tokens};
  key.tokens.resize(num_tokens);
  running.request.key = running.key.view();
  running.request.key.tokens = running.request.key.tokens.first(num_tokens);
  running.request.slots = std::span(running.slots).first(running.computed);
  std::size_t kept = running.request.cached_length;
  std::vector<std::uint32_t> freed;
  const std::size_t num_pages = reference_.num_pages(key.tokens);
  if (insert && num_pages > 0 && num_pages * config_.page_size >= kept) {
    freed = reference_.insert(key.ns, key.tokens, whole_pages(running.slots, num_pages),
                              running.request.priority, false);
    kept = num_pages * config_.page_size;
  }
  for (std::size_t i = kept; i < running.computed; i += config_.page_size)
    freed.push_back(static_cast<std::uint32_t>(
        static_cast<std::size_t>(index_of(running.slots[i])) / config_.page_size));
  sunk_.clear();
  cache_->finish(running.request, insert).value();
  require(!running.request.lease && running.request.slots.empty(), "finish lets go of everything");
  hold(running.path, -1);
  hold(running.partial, -1);
  expect_freed(freed);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
}

}  // namespace pando::testing
