// SPDX-License-Identifier: Apache-2.0
// The model's operations on running requests: start, room, snapshots, windows, checkpoint, finish.
#include <algorithm>

#include "support/cache_model.h"
#include "support/cache_model_internal.h"

namespace pando::testing {

void CacheModel::do_start(Bits& bits) {
  if (running_.size() >= 3) return;
  Running& running = running_.emplace_back();
  running.key = make_key(bits);
  running.room = running.key.tokens.size() + bits.below(3);
  running.priority = static_cast<std::int32_t>(bits.below(3));
  running.request =
      *cache_->start(running.key.tokens, {.ns = running.key.ns, .priority = running.priority});
  const Match match = running.request.found();

  KeyData key = running.key;
  const std::size_t spare = config_.bigram ? 0 : 1;
  key.tokens.resize(key.tokens.size() - spare);
  if (!key.tokens.empty()) {
    auto found = reference_.match(key.ns, key.tokens);
    require(match.length == found.num_pages * config_.page_size, "start found {} tokens",
            match.length);
    found.pages.resize(found.num_pages);
    require(whole_pages(running.slots(), found.num_pages) == found.pages,
            "start wrote wrong slots");
    if (found.last) running.path = {*found.last, reference_.uid(*found.last)};
    running.partial = named_partial(match);
    hold_path(running.path);
    hold_partial(running.partial, found.num_pages);
  }
  require(running.request.cached_length() == match.length && running.computed() == match.length,
          "start caches what it matched");
}

// Room for some more tokens of a request, and perhaps a checkpoint.
void CacheModel::do_extend(Bits& bits) {
  if (running_.empty()) return;
  Running& running = running_[bits.below(running_.size())];
  const std::size_t page_size = config_.page_size;
  const std::size_t from = running.computed();
  const std::size_t to = std::min(running.room, from + 1 + bits.below(3 * page_size));
  if (to <= from) return;
  const std::size_t need = (to + page_size - 1) / page_size - (from + page_size - 1) / page_size;
  if (config_.own_allocator) {
    const auto evictable = [&](ComponentKind kind) {
      return reference_.count(kind).total - reference_.count(kind).locked;
    };
    const std::size_t windows = config_.window ? free_windows() : need;
    const bool possible = need <= free_.size() + evictable(ComponentKind::full) &&
                          need <= windows + evictable(ComponentKind::window);
    const Status status = cache_->allocate(running.request, to);
    require(status.ok() == possible, "allocate of {} pages {}", need,
            status.ok() ? "worked" : "failed");
    if (!possible) return;
    expect(
        reference_.evict(need - std::min(need, free_.size()), need - std::min(need, windows), 0));
    for (std::size_t i = from; i < to; ++i) {
      if (i % page_size == 0) note_taken(page_of(running.request.slots()[i]));
    }
  } else {
    if (!make_room(need)) return;
    const std::vector<SlotId> taken = take_pages(need);
    std::size_t next = 0;
    std::vector<SlotId> slots = running.slots();
    for (std::size_t i = from; i < to; ++i) {
      if (i % page_size == 0) {
        slots.push_back(taken[next]);
        next += page_size;
      } else {
        slots.push_back(SlotId{index_of(slots.back()) + 1});
      }
    }
    cache_->give_slots(running.request, std::span(slots).subspan(from)).value();
  }
  compare();
  told_ = {};
  if (bits.chance(2)) do_checkpoint(running, true);
}

CacheModel::KeyData CacheModel::computed_key(const Running& running) const {
  KeyData key = running.key;
  key.tokens.resize(running.computed_tokens());
  return key;
}

// A snapshot of the state somewhere behind what is cached, for the next checkpoint or the end.
void CacheModel::do_snapshot(Bits& bits) {
  if (!config_.state || running_.empty()) return;
  Running& running = running_[bits.below(running_.size())];
  const std::size_t cached = running.request.cached_length() / config_.page_size;
  const std::size_t whole = reference_.num_pages(computed_key(running).tokens);
  if (running.request.snapshot() || whole <= cached) return;
  const std::optional<StateSlot> slot = take_state();
  if (!slot) return;
  cache_
      ->set_snapshot(running.request, *slot,
                     (cached + 1 + bits.below(whole - cached)) * config_.page_size)
      .value();
}

// From first principles: of the whole pages, those stay that hold the `window` tokens before the
// end of the last one, or before the snapshot that is to be kept.
void CacheModel::do_release_window(Bits& bits) {
  if (!config_.window || running_.empty()) return;
  Running& running = running_[bits.below(running_.size())];
  Request& request = running.request;
  const std::size_t overlap = config_.bigram && running.computed() > 0 ? 1 : 0;
  std::size_t end = (running.computed() - overlap) / config_.page_size;
  if (request.snapshot()) end = std::min(end, request.snapshot_length() / config_.page_size);
  std::size_t behind = 0;  // pages whose last token is before the first of these
  while ((behind + 1) * config_.page_size + *config_.window <= end * config_.page_size) ++behind;

  Freed freed;
  const std::size_t cached = request.cached_length() / config_.page_size;
  const std::size_t from = std::max(request.window_released() / config_.page_size, cached);
  for (std::size_t i = from; i < behind; ++i)
    freed.window_pages.push_back(page_of(running.request.slots()[i * config_.page_size]));
  if (behind > 0 && behind >= cached && running.path) drop_window(*running.path);
  const std::size_t released = *cache_->release_window(request, running.computed());
  require(released == freed.window_pages.size() * config_.page_size,
          "{} tokens gave back their window, expected {} pages", released,
          freed.window_pages.size());
  expect(freed);
}

std::optional<ReferenceCache::InsertSpec> CacheModel::insertable(const Running& running,
                                                                 KeyData& key, bool chunked) const {
  const Request& request = running.request;
  if (config_.state && !request.snapshot()) return {};
  if (config_.state) key.tokens.resize(request.snapshot_length() + (config_.bigram ? 1 : 0));
  const std::size_t length = reference_.num_pages(key.tokens) * config_.page_size;
  const bool no_window = config_.window && request.window_released() > request.cached_length() &&
                         length < request.window_released() + *config_.window;
  if (length == 0 || length < request.cached_length() || no_window) return {};
  return ReferenceCache::InsertSpec{
      .pages = whole_pages(running.slots(), length / config_.page_size),
      .priority = running.priority,
      .chunked = chunked,
      .released_pages = request.window_released() / config_.page_size,
      .snapshot = config_.state ? request.snapshot().index + 1 : 0};
}

void CacheModel::do_checkpoint(Running& running, bool chunked) {
  KeyData key = computed_key(running);
  const auto spec = insertable(running, key, chunked);
  cache_->checkpoint(running.request, running.computed_tokens(), chunked).value();
  if (!spec) return;

  Freed freed = reference_.insert(key.ns, key.tokens, *spec);
  const std::size_t num_pages = spec->pages.size();
  require(whole_pages(running.slots(), num_pages) == reference_.look(key.ns, key.tokens).pages,
          "checkpoint left slots that are not the tree's");
  require(running.request.cached_length() == num_pages * config_.page_size &&
              !running.request.snapshot(),
          "checkpoint caches every whole page, and takes the snapshot");
  const ReferenceCache::PageKey end = reference_.page_key(key.ns, key.tokens, num_pages - 1);
  std::optional<HeldPath> path = HeldPath{end, reference_.uid(end)};
  hold_path(path);
  drop(running.partial, freed);
  drop(running.path, freed);
  running.path = path;
  expect(freed);
}

void CacheModel::do_finish(std::size_t which, bool insert) {
  Running& running = running_[which];
  KeyData key = computed_key(running);
  std::size_t kept = running.request.cached_length();
  Freed freed;
  const auto spec = insertable(running, key, false);
  if (insert && spec) {
    freed = reference_.insert(key.ns, key.tokens, *spec);
    kept = spec->pages.size() * config_.page_size;
  } else if (running.request.snapshot()) {
    freed.snapshots.push_back(running.request.snapshot().index + 1);
  }
  for (std::size_t i = kept; i < running.computed(); i += config_.page_size)
    freed.pages.push_back(page_of(running.request.slots()[i]));
  if (insert)
    cache_->finish(running.request, running.computed_tokens()).value();
  else
    cache_->abandon(running.request);
  require(!running.request.is_running() && running.request.slots().empty(),
          "finish lets go of everything");
  drop(running.partial, freed);
  drop(running.path, freed);
  expect(freed);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(which));
}

}  // namespace pando::testing
