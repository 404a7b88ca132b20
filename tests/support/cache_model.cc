// SPDX-License-Identifier: Apache-2.0
// Decodes operations and compares the two caches after each.
#include "support/cache_model.h"

#include <algorithm>

#include "pando/inspect.h"
#include "pando/result.h"
#include "support/cache_model_internal.h"

namespace pando::testing {
namespace {

// Four kinds of page that agree for different lengths, so that partial matches happen.
Token page_token(std::uint64_t variant, std::size_t j, std::size_t page_size) {
  switch (variant) {
    case 0:
      return 1;
    case 1:
      return j + 1 == page_size ? 2 : 1;
    case 2:
      return j == 0 ? 3 : 1;
    default:
      return j == page_size / 2 ? 4 : 1;
  }
}

}  // namespace

void throw_on_failed_checks() {
  set_check_handler([](std::string_view message) { throw ModelFailure(std::string(message)); });
}

CacheModel::CacheModel(const ModelConfig& config)
    : config_(config),
      reference_({.page_size = config.page_size,
                  .bigram = config.bigram,
                  .whole_nodes = config.whole_nodes,
                  .policy = config.policy,
                  .window = config.window,
                  .state = config.state}) {
  const std::size_t tokens = config.num_pages * config.page_size;
  if (config.window) {
    window_allocator_ =
        *WindowAllocator::create({.full_tokens = tokens,
                                  .window_tokens = config.num_window_pages * config.page_size,
                                  .page_size = config.page_size,
                                  .order = ReuseOrder::sorted});
  } else {
    allocator_ = *PagedAllocator::create(
        {.capacity_tokens = tokens, .page_size = config.page_size, .order = ReuseOrder::sorted});
  }
  if (config.state) states_ = *StateAllocator::create(config.num_states);
  for (std::uint32_t page = 1; page <= config.num_pages; ++page) free_.insert(page);
  make_cache();
}

void CacheModel::make_cache() {
  CacheOptions options;
  options.bigram = config_.bigram;
  options.events = config_.events;
  options.evict_whole_nodes = config_.whole_nodes;
  options.hash_seed = 7;
  options.window = config_.window;
  options.state = config_.state;
  auto policy = *make_policy(config_.policy);
  if (!config_.own_allocator) {
    cache_ = *PrefixCache::create(options, engine_slots(), std::move(policy), states_.get());
  } else if (config_.window) {
    cache_ = *PrefixCache::create(options, *window_allocator_, std::move(policy), states_.get());
  } else {
    cache_ = *PrefixCache::create(options, *allocator_, std::move(policy), states_.get());
  }
}

EngineSlots CacheModel::engine_slots() {
  const auto record = [](std::vector<SlotId>& to, std::span<const SlotId> slots) {
    require(to.empty(), "the engine was told the same twice in one operation");
    to.assign(slots.begin(), slots.end());
  };
  return {.max_slots = (config_.num_pages + 1) * config_.page_size,
          .page_size = config_.page_size,
          .free = [=, this](std::span<const SlotId> slots) { record(told_.freed, slots); },
          .free_window =
              [=, this](std::span<const SlotId> slots) { record(told_.window_freed, slots); },
          .move_window =
              [=, this](std::span<const SlotId> from, std::span<const SlotId> to) {
                record(told_.moved_from, from);
                record(told_.moved_to, to);
              }};
}

CacheModel::~CacheModel() {
  if (std::uncaught_exceptions() == 0) return;
  // A model that failed cannot be taken apart in order: leave it to the end of the process.
  new std::vector<HeldLease>(std::move(leases_));
  new std::deque<Running>(std::move(running_));
  (void)cache_.release();
  (void)allocator_.release();
  (void)window_allocator_.release();
  (void)states_.release();
}

CacheModel::KeyData CacheModel::make_key(Bits& bits) const {
  static const std::string kNamespaces[] = {"", make_namespace({.lora = "a"}),
                                            make_namespace({.salt = "a"})};
  KeyData key;
  key.ns = kNamespaces[bits.chance(4) ? 1 + bits.below(2) : 0];
  const std::size_t num_pages = bits.below(8);
  for (std::size_t i = 0; i < num_pages; ++i) {
    const std::uint64_t variant = bits.below(6) % 4;  // some more often: keys share longer prefixes
    for (std::size_t j = 0; j < config_.page_size; ++j)
      key.tokens.push_back(page_token(variant, j, config_.page_size));
  }
  const std::size_t tail = bits.below(config_.page_size) + (config_.bigram ? 1 : 0);
  const std::uint64_t variant = bits.below(4);
  for (std::size_t j = 0; j < tail; ++j)
    key.tokens.push_back(page_token(variant, j, config_.page_size));
  if (key.tokens.empty()) key.tokens.push_back(1);
  return key;
}

void CacheModel::apply(std::uint64_t op) {
  Bits bits(op);
  told_ = {};
  switch (bits.below(20)) {
    case 0:
    case 1:
      do_insert(bits);
      break;
    case 2:
      matches_.push_back(do_match(make_key(bits), nullptr));
      if (matches_.size() > 4) matches_.pop_front();
      break;
    case 3:
      if (leases_.size() < 4) do_lock(do_match(make_key(bits), nullptr));
      break;
    case 4:
      if (!matches_.empty() && leases_.size() < 4) do_lock(matches_[bits.below(matches_.size())]);
      break;
    case 5:
    case 6:
      do_release(bits);
      break;
    case 7:
      do_evict(bits.below(4 * config_.page_size + 1), 0, 0);
      break;
    case 8:
      do_start(bits);
      break;
    case 9:
    case 10:
      do_extend(bits);
      break;
    case 11:
      if (!running_.empty()) do_checkpoint(running_[bits.below(running_.size())], bits.chance(2));
      break;
    case 12:
    case 13:
      if (!running_.empty()) do_finish(bits.below(running_.size()), !bits.chance(4));
      break;
    case 14:
      do_probe(bits);
      break;
    case 15:
      bits.chance(16) ? do_reset() : do_bad_input(bits);
      break;
    case 16:
      do_evict(bits.below(2 * config_.page_size + 1), bits.below(4 * config_.page_size + 1),
               bits.below(3));
      break;
    case 17:
      do_release_part(bits);
      break;
    case 18:
      do_snapshot(bits);
      break;
    case 19:
      do_release_window(bits);
      break;
  }
  compare();
}

void CacheModel::finish() {
  while (!leases_.empty()) {
    told_ = {};
    Freed freed;
    drop(leases_.back().partial, freed);
    drop(leases_.back().path, freed);
    leases_.pop_back();
    expect(freed);
  }
  while (!running_.empty()) {
    told_ = {};
    do_finish(0, true);
    compare();
  }
  told_ = {};
  do_reset();
  compare();
  if (config_.events) replay_events();
  require(free_.size() == config_.num_pages, "{} of {} pages are free at the end", free_.size(),
          config_.num_pages);
  require(windows_.empty() && taken_states_.empty(),
          "{} windows and {} snapshots are left at the end", windows_.size(), taken_states_.size());
}

// ---- Slots -------------------------------------------------------------------------------------

const PagedAllocator& CacheModel::full_side() const {
  return config_.window ? window_allocator_->full() : *allocator_;
}

std::uint32_t CacheModel::page_of(SlotId slot) const {
  return static_cast<std::uint32_t>(static_cast<std::size_t>(index_of(slot)) / config_.page_size);
}

std::vector<std::uint32_t> CacheModel::whole_pages(const std::vector<SlotId>& slots,
                                                   std::size_t n) const {
  std::vector<std::uint32_t> pages;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t first = index_of(slots[i * config_.page_size]);
    for (std::size_t j = 0; j < config_.page_size; ++j)
      require(index_of(slots[i * config_.page_size + j]) == first + static_cast<std::int64_t>(j),
              "slots of page {} are not in order", i);
    pages.push_back(page_of(SlotId{first}));
  }
  return pages;
}

std::vector<SlotId> CacheModel::slots_of(const std::vector<std::uint32_t>& pages) const {
  std::vector<SlotId> slots;
  for (const std::uint32_t page : pages) {
    for (std::size_t j = 0; j < config_.page_size; ++j)
      slots.push_back(SlotId{static_cast<std::int64_t>(page * config_.page_size + j)});
  }
  return slots;
}

bool CacheModel::make_room(std::size_t num_pages) {
  const auto missing = [&](std::size_t free) { return num_pages - std::min(num_pages, free); };
  const std::size_t full = missing(free_.size());
  const std::size_t window = config_.window ? missing(free_windows()) : 0;
  if (full > 0 || window > 0) {
    do_evict(full * config_.page_size, window * config_.page_size, 0);
    compare();
  }
  return free_.size() >= num_pages && (!config_.window || free_windows() >= num_pages);
}

void CacheModel::note_taken(std::uint32_t page) {
  require(free_.erase(page) == 1, "page {} was not free", page);
  if (config_.window) windows_.insert(page);
}

std::vector<SlotId> CacheModel::take_pages(std::size_t num_pages) {
  std::vector<SlotId> slots(num_pages * config_.page_size);
  (config_.window ? window_allocator_->alloc(slots) : allocator_->alloc(slots)).value();
  for (const std::uint32_t page : whole_pages(slots, num_pages)) note_taken(page);
  return slots;
}

void CacheModel::release_own_window(std::uint32_t page) {
  window_allocator_->free_window(slots_of({page}));
  windows_.erase(page);
}

std::optional<StateSlot> CacheModel::take_state() {
  const bool possible =
      states_->available() > 0 ||
      reference_.count(ComponentKind::state).locked < reference_.count(ComponentKind::state).total;
  told_ = {};
  const bool evicts = states_->available() == 0;
  const Result<StateSlot> slot = cache_->allocate_state();
  require(slot.ok() == possible, "allocate_state {}", slot.ok() ? "worked" : "failed");
  if (!possible) return {};
  if (evicts) expect(reference_.evict(0, 0, 1));
  require(taken_states_.insert(slot->index).second, "state slot {} was not free", slot->index);
  compare();
  return *slot;
}

void CacheModel::expect(const Freed& freed) {
  if (!config_.own_allocator) expect_told(freed);
  for (const auto& [from, to] : freed.moved) {
    require(windows_.erase(from) == 1, "page {} has no window to move", from);
    require(windows_.insert(to).second, "page {} had a window", to);
  }
  for (const std::uint32_t page : freed.window_pages) windows_.erase(page);
  for (const std::uint32_t page : freed.pages) {
    require(free_.insert(page).second, "page {} freed twice by the reference", page);
    windows_.erase(page);
  }
  for (const std::uint32_t snapshot : freed.snapshots)
    require(taken_states_.erase(snapshot - 1) == 1, "state slot {} freed twice", snapshot - 1);
}

// The engine was told exactly this; and now does it.
void CacheModel::expect_told(const Freed& freed) {
  const auto same = [&](const std::vector<SlotId>& told, const std::vector<std::uint32_t>& pages) {
    std::set<std::uint32_t> told_pages;
    for (const SlotId slot : told) told_pages.insert(page_of(slot));
    return told_pages == std::set<std::uint32_t>(pages.begin(), pages.end());
  };
  std::vector<std::uint32_t> windows;
  for (const std::uint32_t page : freed.window_pages) {
    if (windows_.contains(page)) windows.push_back(page);
  }
  require(same(told_.freed, freed.pages), "the engine got {} slots, expected {} pages",
          told_.freed.size(), freed.pages.size());
  require(same(told_.window_freed, windows), "the engine got {} window slots, expected {} pages",
          told_.window_freed.size(), windows.size());
  std::set<std::pair<std::uint32_t, std::uint32_t>> moved;
  for (std::size_t i = 0; i < told_.moved_from.size(); ++i)
    moved.emplace(page_of(told_.moved_from[i]), page_of(told_.moved_to[i]));
  require(moved == decltype(moved)(freed.moved.begin(), freed.moved.end()),
          "{} windows were moved, expected {}", moved.size(), freed.moved.size());
  for (const auto& [from, to] : moved) window_allocator_->move_window(PageId{from}, PageId{to});
  if (!told_.window_freed.empty()) window_allocator_->free_window(told_.window_freed);
  if (!told_.freed.empty()) {
    config_.window ? window_allocator_->free(told_.freed) : allocator_->free(told_.freed);
  }
  told_ = {};
}

// ---- Comparing ---------------------------------------------------------------------------------

void CacheModel::compare() {
  cache_->check().value();
  compare_sizes();
  compare_slots();
  // Now and then, so that events of several operations merge.
  if (config_.events && ++num_compared_ % 4 == 0) replay_events();
}

void CacheModel::compare_sizes() const {
  for (const auto kind : {ComponentKind::full, ComponentKind::window, ComponentKind::state}) {
    const Sizes sizes = cache_->inspect().sizes(kind);
    const auto [total, locked] = reference_.count(kind);
    const std::size_t unit = kind == ComponentKind::state ? 1 : config_.page_size;
    require(sizes.total == total * unit && sizes.protected_tokens == locked * unit &&
                sizes.evictable == (total - locked) * unit,
            "sizes of component {}: {} = {} + {}, expected {} of which {} locked",
            static_cast<int>(kind), sizes.total, sizes.evictable, sizes.protected_tokens, total,
            locked);
  }
}

void CacheModel::compare_slots() const {
  (config_.window ? window_allocator_->check() : allocator_->check()).value();
  std::set<std::uint32_t> owned;
  for (const SlotId slot : cache_->inspect().all_slots()) owned.insert(page_of(slot));
  require(owned == reference_.owned(), "the tree holds other pages than expected");
  require(full_side().available_pages() == free_.size(), "{} pages free, expected {}",
          full_side().available_pages(), free_.size());
  for (const std::uint32_t page : free_)
    require(full_side().is_free(PageId{page}), "page {} should be free", page);
  if (config_.window) {
    require(window_allocator_->window().available_pages() == free_windows(),
            "{} window pages free, expected {}", window_allocator_->window().available_pages(),
            free_windows());
    for (std::uint32_t page = 1; page <= config_.num_pages; ++page) {
      if (free_.contains(page)) continue;
      require(window_allocator_->has_window(PageId{page}) == windows_.contains(page),
              "page {} should {}have a window", page, windows_.contains(page) ? "" : "not ");
    }
    for (const std::uint32_t page : reference_.owned_windows())
      require(windows_.contains(page), "page {} of the tree has no window", page);
  }
  if (config_.state) {
    require(states_->available() == config_.num_states - taken_states_.size(),
            "{} state slots free, {} should be taken", states_->available(), taken_states_.size());
    for (const std::uint32_t snapshot : reference_.owned_snapshots())
      require(taken_states_.contains(snapshot - 1), "state slot {} of the tree is free", snapshot);
  }
}

void CacheModel::replay_events() {
  for (const KvEvent& event : cache_->take_events()) {
    if (event.kind == KvEvent::Kind::cleared) announced_.clear();
    if (event.kind == KvEvent::Kind::stored) {
      const auto expected = hash_pages(event.tokens, event.block_size, config_.bigram,
                                       event.parent ? event.parent : chain_start(event.ns));
      require(*expected == event.hashes, "stored hashes do not follow from parent and tokens");
      require(!event.parent || announced_.contains(*event.parent),
              "stored below a page that is not there");
    }
    for (const PageHash& hash : event.hashes) {
      const bool changed = event.kind == KvEvent::Kind::stored ? announced_.insert(hash).second
                                                               : announced_.erase(hash) == 1;
      require(changed, "a page was stored or removed twice");
    }
  }
  require(announced_ == reference_.hashes(), "events tell of {} pages, expected {}",
          announced_.size(), reference_.count(ComponentKind::full).total);
}

void run_model(const ModelConfig& config, const std::vector<std::uint64_t>& ops) {
  CacheModel model(config);
  for (const std::uint64_t op : ops) model.apply(op);
  model.finish();
}

}  // namespace pando::testing
