// SPDX-License-Identifier: Apache-2.0
// The model's operations on keys and leases.
#include <algorithm>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_model.h"
#include "support/cache_model_internal.h"

namespace pando::testing {

// ---- Matching and holding ----------------------------------------------------------------------

CacheModel::SavedMatch CacheModel::do_match(const KeyData& key, std::vector<SlotId>* slots) {
  std::vector<SlotId> own(key.tokens.size());
  std::vector<SlotId>& out = slots != nullptr ? *slots : own;
  SavedMatch saved;
  saved.match = *cache_->paths().match(key.view(), out);
  ReferenceCache::Found found = reference_.match(key.ns, key.tokens);
  const Match& match = saved.match;
  require(match.length == found.num_pages * config_.page_size,
          "match of {} pages is {} tokens long", found.num_pages, match.length);
  require(match.agreed_length == found.agreed * config_.page_size,
          "{} pages agree, the match says {} tokens", found.agreed, match.agreed_length);
  require(match.end == found.end, "match ends because of {}, expected {}", to_string(match.end),
          to_string(found.end));
  found.pages.resize(found.num_pages);
  require(whole_pages(out, found.num_pages) == found.pages, "match gives the wrong slots");
  if (config_.state && found.num_pages > 0)
    require(match.snapshot.index + 1 == found.snapshot, "match gives the wrong snapshot");
  const bool none_is_fine = found.partial_without_window && match.partial_length == 0;
  require(match.partial_length == found.partial_length || none_is_fine,
          "{} further tokens, expected {}", match.partial_length, found.partial_length);
  if (found.last) saved.path = {*found.last, reference_.uid(*found.last)};
  if (match.partial_length > 0)
    require(found.partial_pages.contains(page_of(match.partial_slot)),
            "page {} does not agree longest", page_of(match.partial_slot));
  saved.partial = named_partial(match);
  return saved;
}

std::optional<CacheModel::HeldPath> CacheModel::named_partial(const Match& match) const {
  if (match.partial_length == 0) return {};
  const ReferenceCache::PageKey end = reference_.node_end(page_of(match.partial_slot));
  return HeldPath{end, reference_.uid(end)};
}

void CacheModel::hold_path(std::optional<HeldPath>& path) {
  if (!path) return;
  reference_.lock(path->end, 1);
  if (config_.window) {
    path->window_from = reference_.window_hold(path->end);
    reference_.lock_window(path->end, *path->window_from, 1);
  }
  path->snapshot = config_.state && reference_.has_snapshot(path->end);
  if (path->snapshot) reference_.lock_snapshot(path->end, 1);
}

void CacheModel::hold_partial(std::optional<HeldPath>& path, std::size_t from_page) {
  if (!path) return;
  reference_.lock(path->end, 1);
  if (!config_.window) return;
  path->window_from = from_page;
  reference_.lock_window(path->end, from_page, 1);
}

void CacheModel::drop_window(HeldPath& path) {
  if (path.window_from) reference_.lock_window(path.end, *path.window_from, -1);
  path.window_from.reset();
}

void CacheModel::drop_snapshot(HeldPath& path) {
  if (path.snapshot) reference_.lock_snapshot(path.end, -1);
  path.snapshot = false;
}

void CacheModel::drop(std::optional<HeldPath>& path, Freed& freed) {
  if (!path) return;
  drop_window(*path);
  drop_snapshot(*path);
  append(freed, reference_.lock(path->end, -1));
  path.reset();
}

void CacheModel::do_lock(const SavedMatch& saved) {
  const std::size_t num_pages = saved.match.length / config_.page_size;
  bool stale = false;
  for (const auto& path : {saved.path, saved.partial})
    stale = stale || (path && !reference_.exists(path->end, path->uid));
  if (!stale) {
    stale =
        (saved.path && !reference_.is_valid_end(saved.path->end)) ||
        (saved.partial && config_.window && !reference_.has_window(saved.partial->end, num_pages));
  }
  Result<Lease> lease = cache_->paths().lock(saved.match);
  require(lease.ok() != stale, "lock of a {} match", stale ? "stale" : "good");
  if (stale) return;
  leases_.push_back({std::move(*lease), saved.path, saved.partial});
  HeldLease& held = leases_.back();
  hold_path(held.path);
  hold_partial(held.partial, num_pages);
}

void CacheModel::do_release(Bits& bits) {
  if (leases_.empty()) return;
  const std::size_t which = bits.below(leases_.size());
  HeldLease& held = leases_[which];
  Freed freed;
  drop(held.partial, freed);
  if (bits.chance(4)) {
    held.lease.release_partial();
  } else {
    drop(held.path, freed);
    leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(which));
  }
  expect(freed);
}

// The window or the snapshot of a lease alone; a second time is refused.
void CacheModel::do_release_part(Bits& bits) {
  if (leases_.empty()) return;
  HeldLease& held = leases_[bits.below(leases_.size())];
  const bool window = bits.chance(2);
  const bool has = held.path && (window ? held.path->window_from.has_value() : held.path->snapshot);
  const Status status = window ? held.lease.release_window() : held.lease.release_snapshot();
  require(status.ok() == has, "a lease that {} it let go of its {}", has ? "has" : "has not",
          window ? "window" : "snapshot");
  if (!has) return;
  window ? drop_window(*held.path) : drop_snapshot(*held.path);
}

// ---- Inserting and evicting --------------------------------------------------------------------

void CacheModel::do_insert(Bits& bits) {
  const KeyData key = make_key(bits);
  const std::size_t num_pages = reference_.num_pages(key.tokens);
  ReferenceCache::InsertSpec spec;
  spec.chunked = bits.chance(4);
  const bool use_match = bits.chance(2);
  spec.priority = static_cast<std::int32_t>(bits.below(3)) - 1;
  if (num_pages == 0 || !make_room(num_pages)) return;
  InsertOptions options{.priority = spec.priority, .chunked = spec.chunked};
  if (config_.state) {
    const std::optional<StateSlot> slot = take_state();
    if (!slot) return;
    options.snapshot = *slot;
    spec.snapshot = slot->index + 1;
  }
  told_ = {};
  std::vector<SlotId> slots(key.tokens.size());
  const Match match = use_match ? do_match(key, &slots).match : Match{};
  const std::size_t held = match.length;
  options.owned_by_tree = bits.chance(3) ? 0 : held;  // the tree knows its own slots anyway
  const std::vector<SlotId> taken = take_pages(num_pages - held / config_.page_size);
  std::copy(taken.begin(), taken.end(), slots.begin() + static_cast<std::ptrdiff_t>(held));
  spec.pages = whole_pages(slots, num_pages);
  if (config_.window && bits.chance(2)) spec.released_pages = bits.below(num_pages);
  options.window_released = spec.released_pages * config_.page_size;
  // Pando's own allocator gives back what the caller only said it had.
  const bool pretend = config_.own_allocator && bits.chance(4);
  for (std::size_t i = held / config_.page_size; i < spec.released_pages && !pretend; ++i)
    release_own_window(spec.pages[i]);

  const std::size_t existing = reference_.look(key.ns, key.tokens).agreed * config_.page_size;
  const Freed freed = reference_.insert(key.ns, key.tokens, spec);
  // Behind a lease, what it holds is not looked at: garbage will do. (A lease changes what becomes
  // of tombstones and snapshots on its path, so not where there may be some.)
  KeyData given = key;
  Lease lease;
  if (options.owned_by_tree > 0 && !config_.window && !config_.state && bits.chance(2)) {
    lease = *cache_->paths().lock(match);
    options.held = &lease;
    std::fill_n(given.tokens.begin(), held, Token{-7});
    std::fill_n(slots.begin(), held, SlotId{-9});
  }
  const Inserted inserted = *cache_->paths().insert(given.view(), slots, options);
  lease.release();
  require(inserted.length == num_pages * config_.page_size, "insert took {} tokens",
          inserted.length);
  require(inserted.existing == existing, "{} tokens existed, expected {}", inserted.existing,
          existing);
  require(inserted.freed == freed.pages.size() * config_.page_size, "freed {} tokens, expected {}",
          inserted.freed, freed.pages.size() * config_.page_size);
  expect(freed);
}

void CacheModel::do_evict(std::size_t num_tokens, std::size_t num_window_tokens,
                          std::size_t num_snapshots) {
  told_ = {};
  const EvictResult result = cache_->evict(
      {.tokens = num_tokens, .window_tokens = num_window_tokens, .snapshots = num_snapshots});
  const auto pages = [&](std::size_t n) { return (n + config_.page_size - 1) / config_.page_size; };
  const Freed gone = reference_.evict(pages(num_tokens), pages(num_window_tokens), num_snapshots);
  require(result.tokens == gone.pages.size() * config_.page_size, "evicted {} tokens, expected {}",
          result.tokens, gone.pages.size() * config_.page_size);
  require(result.window_tokens == gone.num_window_pages * config_.page_size,
          "evicted {} window tokens, expected {} pages", result.window_tokens,
          gone.num_window_pages);
  require(result.snapshots == gone.snapshots.size(), "evicted {} snapshots, expected {}",
          result.snapshots, gone.snapshots.size());
  expect(gone);
}

void CacheModel::do_probe(Bits& bits) {
  const std::string before = cache_->inspect().dump();
  const KeyData keys[] = {make_key(bits), make_key(bits)};
  const Key views[] = {keys[0].view(), keys[1].view()};
  std::size_t lengths[2];
  cache_->paths().probe(views, lengths);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t expected =
        reference_.look(keys[i].ns, keys[i].tokens).num_pages * config_.page_size;
    require(lengths[i] == expected, "probe gives {}, expected {}", lengths[i], expected);
  }
  require(cache_->inspect().dump() == before, "probe changed the tree");
}

void CacheModel::do_reset() {
  bool held = false;
  for (const HeldLease& lease : leases_) held = held || lease.path || lease.partial;
  for (const Running& running : running_) held = held || running.path || running.partial;
  const Status status = cache_->reset();
  require(status.ok() != held, "reset {} while leases are {}held",
          status.ok() ? "worked" : "failed", held ? "" : "not ");
  if (held) return;
  Freed freed;
  const auto pages = reference_.owned();
  const auto snapshots = reference_.owned_snapshots();
  freed.pages.assign(pages.begin(), pages.end());
  freed.snapshots.assign(snapshots.begin(), snapshots.end());
  reference_.clear();
  expect(freed);
}

// ---- Refusing ----------------------------------------------------------------------------------

void CacheModel::do_bad_input(Bits& bits) {
  const std::string before = cache_->inspect().dump();
  KeyData key = make_key(bits);
  const std::size_t n = key.tokens.size();
  std::vector<SlotId> slots(n);
  for (std::size_t i = 0; i < n; ++i)
    slots[i] = SlotId{static_cast<std::int64_t>(config_.page_size + i)};
  bool refused = false;
  switch (bits.below(11)) {
    case 0:
      refused = !cache_->paths().match({{}, key.ns});
      break;
    case 1:
      refused = !cache_->paths().insert(key.view(), std::span(slots).first(n - 1));
      break;
    case 2:
      key.tokens.assign(n, -1);
      refused = !cache_->paths().match(key.view());
      break;
    case 3:
      key.tokens.assign(n, -1);
      refused = !cache_->paths().insert(key.view(), slots);
      break;
    case 4:
      refused = !cache_->paths().insert(key.view(), slots, {.owned_by_tree = n + 1});
      break;
    case 5:
      slots.assign(n, SlotId{0});
      refused = !cache_->paths().insert(key.view(), slots);
      break;
    case 6:
      refused = !cache_->paths().lock(Match{.cache = 0});
      break;
    case 8:  // not whole pages, beyond the key, or no window at all
      refused = !cache_->paths().insert(key.view(), slots, {.window_released = n + 1});
      break;
    case 9:  // of another pool
      refused = !cache_->paths().insert(key.view(), slots, {.snapshot = {0, 1'000'000}});
      break;
    case 10: {  // a request that does not run
      Request request;
      refused = !cache_->release_window(request, 1) && !cache_->allocate(request) &&
                !cache_->finish(request);
      break;
    }
    case 7: {  // more tokens than slots
      if (running_.empty()) return;
      Running& running = running_.front();
      refused = !cache_->checkpoint(running.request, running.computed() + 1) &&
                !cache_->finish(running.request, running.computed() + 1);
      break;
    }
  }
  require(refused, "bad input was taken");
  require(cache_->inspect().dump() == before, "bad input changed the tree");
}

}  // namespace pando::testing
