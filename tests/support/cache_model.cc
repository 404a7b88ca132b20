// SPDX-License-Identifier: Apache-2.0
// The model's operations on keys and the comparison after each; requests are in
// cache_model_requests.cc.
#include "support/cache_model.h"

#include <algorithm>

#include "pando/diagnostics.h"
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
      reference_(config.page_size, config.bigram, config.whole_nodes, config.policy) {
  CacheOptions options;
  options.page_size = config.page_size;
  options.bigram = config.bigram;
  options.events = config.events;
  options.evict_whole_nodes = config.whole_nodes;
  options.hash_seed = 7;
  allocator_ = *PagedAllocator::create({.capacity_tokens = config.num_pages * config.page_size,
                                        .page_size = config.page_size,
                                        .order = ReuseOrder::sorted});
  if (config.own_allocator) {
    cache_ = *PrefixCache::create(options, *allocator_, *make_policy(config.policy));
  } else {
    SlotSink sink = [this](std::span<const SlotId> slots) {
      require(sunk_.empty(), "the sink was called twice in one operation");
      sunk_.assign(slots.begin(), slots.end());
    };
    cache_ =
        *PrefixCache::create(options, std::move(sink), (config.num_pages + 1) * config.page_size,
                             *make_policy(config.policy));
  }
  for (std::uint32_t page = 1; page <= config.num_pages; ++page) free_.insert(page);
}

CacheModel::~CacheModel() {
  if (std::uncaught_exceptions() == 0) return;
  // A model that failed cannot be taken apart in order: leave it to the end of the process.
  new std::vector<HeldLease>(std::move(leases_));
  new std::deque<Running>(std::move(running_));
  (void)cache_.release();
  (void)allocator_.release();
}

CacheModel::KeyData CacheModel::make_key(Bits& bits) const {
  static const std::string kNamespaces[] = {"", make_namespace({.lora = "a"}),
                                            make_namespace({.salt = "a"})};
  KeyData key;
  key.ns = kNamespaces[bits.chance(4) ? 1 + bits.below(2) : 0];
  const std::size_t num_pages = bits.below(8);
  for (std::size_t i = 0; i < num_pages; ++i) {
    const std::uint64_t variant = bits.below(4);
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
  sunk_.clear();
  switch (bits.below(16)) {
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
      do_evict(bits.below(4 * config_.page_size + 1));
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
  }
  compare();
}

void CacheModel::finish() {
  while (!leases_.empty()) {
    hold(leases_.back().path, -1);
    hold(leases_.back().partial, -1);
    leases_.pop_back();
  }
  while (!running_.empty()) {
    sunk_.clear();
    do_finish(0, true);
    compare();
  }
  sunk_.clear();
  do_reset();
  compare();
  if (config_.events) replay_events();
  require(free_.size() == config_.num_pages, "{} of {} pages are free at the end", free_.size(),
          config_.num_pages);
}

// ---- Keys --------------------------------------------------------------------------------------

CacheModel::SavedMatch CacheModel::do_match(const KeyData& key, std::vector<SlotId>* slots) {
  std::vector<SlotId> own(key.tokens.size());
  std::vector<SlotId>& out = slots != nullptr ? *slots : own;
  SavedMatch saved;
  saved.match = *cache_->match(key.view(), out);
  const ReferenceCache::Found found = reference_.match(key.ns, key.tokens);
  const Match& match = saved.match;
  require(match.length == found.num_pages * config_.page_size,
          "match of {} pages is {} tokens long", found.num_pages, match.length);
  require(match.end == found.end, "match ends because of {}, expected {}", to_string(match.end),
          to_string(found.end));
  require(whole_pages(out, found.num_pages) == found.pages, "match gives the wrong slots");
  require(match.partial_length == found.partial_length, "{} further tokens, expected {}",
          match.partial_length, found.partial_length);
  if (found.last) saved.path = {*found.last, found.last_uid};
  if (found.partial_length > 0) {
    const auto page = static_cast<std::uint32_t>(
        static_cast<std::size_t>(index_of(match.partial_slot)) / config_.page_size);
    require(found.partial_pages.contains(page), "page {} does not agree longest", page);
    const ReferenceCache::PageKey end = reference_.node_end(page);
    saved.partial = {end, reference_.uid(end)};
  }
  return saved;
}

void CacheModel::hold(const std::optional<HeldPath>& path, int by) {
  if (path) reference_.lock(path->end, by);
}

void CacheModel::do_lock(const SavedMatch& saved) {
  bool stale = false;
  for (const auto& path : {saved.path, saved.partial})
    stale = stale || (path && !reference_.exists(path->end, path->uid));
  Result<Lease> lease = cache_->lock(saved.match);
  require(lease.ok() != stale, "lock of a {} match", stale ? "stale" : "good");
  if (stale) return;
  hold(saved.path, 1);
  hold(saved.partial, 1);
  leases_.push_back({std::move(*lease), saved.path, saved.partial});
}

void CacheModel::do_release(Bits& bits) {
  if (leases_.empty()) return;
  const std::size_t which = bits.below(leases_.size());
  HeldLease& held = leases_[which];
  hold(held.partial, -1);
  held.partial.reset();
  if (bits.chance(4)) {
    held.lease.release_partial();
    return;
  }
  hold(held.path, -1);
  leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(which));
}

void CacheModel::do_insert(Bits& bits) {
  const KeyData key = make_key(bits);
  const std::size_t num_pages = reference_.num_pages(key.tokens);
  const bool chunked = bits.chance(4);
  const bool use_match = bits.chance(2);
  const auto priority = static_cast<std::int32_t>(bits.below(3)) - 1;
  if (num_pages == 0 || !make_room(num_pages)) return;
  std::vector<SlotId> slots(key.tokens.size());
  const std::size_t held = use_match ? do_match(key, &slots).match.length : 0;
  const std::size_t claimed = bits.chance(3) ? 0 : held;  // the tree knows its own slots anyway
  const std::vector<SlotId> taken = take_pages(num_pages - held / config_.page_size);
  std::copy(taken.begin(), taken.end(), slots.begin() + static_cast<std::ptrdiff_t>(held));

  const std::size_t existing = reference_.look(key.ns, key.tokens).num_pages * config_.page_size;
  const std::vector<std::uint32_t> duplicates =
      reference_.insert(key.ns, key.tokens, whole_pages(slots, num_pages), priority, chunked);
  sunk_.clear();
  const Inserted inserted = *cache_->insert(
      key.view(), slots, {.owned_by_tree = claimed, .priority = priority, .chunked = chunked});
  require(inserted.length == num_pages * config_.page_size, "insert took {} tokens",
          inserted.length);
  require(inserted.existing == existing, "{} tokens existed, expected {}", inserted.existing,
          existing);
  require(inserted.freed == duplicates.size() * config_.page_size, "freed {} tokens, expected {}",
          inserted.freed, duplicates.size() * config_.page_size);
  expect_freed(duplicates);
}

void CacheModel::do_evict(std::size_t num_tokens) {
  sunk_.clear();
  const EvictResult result = cache_->evict(num_tokens);
  const auto gone = reference_.evict((num_tokens + config_.page_size - 1) / config_.page_size);
  require(result.tokens == gone.size() * config_.page_size, "evicted {} tokens, expected {}",
          result.tokens, gone.size() * config_.page_size);
  expect_freed(gone);
}

void CacheModel::do_probe(Bits& bits) {
  const std::string before = cache_->dump();
  const KeyData keys[] = {make_key(bits), make_key(bits)};
  const Key views[] = {keys[0].view(), keys[1].view()};
  std::size_t lengths[2];
  cache_->probe(views, lengths);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::size_t expected =
        reference_.look(keys[i].ns, keys[i].tokens).num_pages * config_.page_size;
    require(lengths[i] == expected, "probe gives {}, expected {}", lengths[i], expected);
  }
  require(cache_->dump() == before, "probe changed the tree");
}

void CacheModel::do_reset() {
  bool held = false;
  for (const HeldLease& lease : leases_) held = held || lease.path || lease.partial;
  for (const Running& running : running_) held = held || running.path || running.partial;
  const auto owned = reference_.owned();
  const Status status = cache_->reset();
  require(status.ok() != held, "reset {} while leases are {}held",
          status.ok() ? "worked" : "failed", held ? "" : "not ");
  if (held) return;
  reference_.clear();
  expect_freed({owned.begin(), owned.end()});
}

// ---- Slots -------------------------------------------------------------------------------------

std::vector<std::uint32_t> CacheModel::whole_pages(const std::vector<SlotId>& slots,
                                                   std::size_t n) const {
  std::vector<std::uint32_t> pages;
  for (std::size_t i = 0; i < n; ++i) {
    const auto first = static_cast<std::size_t>(index_of(slots[i * config_.page_size]));
    for (std::size_t j = 0; j < config_.page_size; ++j)
      require(static_cast<std::size_t>(index_of(slots[i * config_.page_size + j])) == first + j,
              "slots of page {} are not in order", i);
    pages.push_back(static_cast<std::uint32_t>(first / config_.page_size));
  }
  return pages;
}

bool CacheModel::make_room(std::size_t num_pages) {
  if (free_.size() < num_pages) {
    do_evict((num_pages - free_.size()) * config_.page_size);
    compare();
  }
  return free_.size() >= num_pages;
}

std::vector<SlotId> CacheModel::take_pages(std::size_t num_pages) {
  std::vector<SlotId> slots(num_pages * config_.page_size);
  allocator_->alloc(slots).value();
  for (const std::uint32_t page : whole_pages(slots, num_pages))
    require(free_.erase(page) == 1, "page {} was not free", page);
  return slots;
}

void CacheModel::expect_freed(const std::vector<std::uint32_t>& pages) {
  for (const std::uint32_t page : pages)
    require(free_.insert(page).second, "page {} freed twice by the reference", page);
  if (config_.own_allocator) return;
  std::set<std::uint32_t> sunk;
  for (const SlotId slot : sunk_)
    sunk.insert(
        static_cast<std::uint32_t>(static_cast<std::size_t>(index_of(slot)) / config_.page_size));
  require(sunk == std::set<std::uint32_t>(pages.begin(), pages.end()),
          "the sink got {} pages, expected {}", sunk.size(), pages.size());
  if (!sunk_.empty()) allocator_->free(sunk_);
  sunk_.clear();
}

// ---- Comparing ---------------------------------------------------------------------------------

void CacheModel::compare() {
  cache_->check().value();
  allocator_->check().value();
  const Sizes sizes = cache_->sizes();
  const std::size_t total = reference_.total_pages();
  const std::size_t locked = reference_.locked_pages();
  require(sizes.total == total * config_.page_size &&
              sizes.protected_tokens == locked * config_.page_size &&
              sizes.evictable == (total - locked) * config_.page_size,
          "sizes {} = {} + {}, expected {} pages of which {} locked", sizes.total, sizes.evictable,
          sizes.protected_tokens, total, locked);
  std::set<std::uint32_t> owned;
  for (const SlotId slot : cache_->all_slots())
    owned.insert(
        static_cast<std::uint32_t>(static_cast<std::size_t>(index_of(slot)) / config_.page_size));
  require(owned == reference_.owned(), "the tree holds other pages than expected");
  require(allocator_->available_pages() == free_.size(), "{} pages free, expected {}",
          allocator_->available_pages(), free_.size());
  for (const std::uint32_t page : free_)
    require(allocator_->is_free(PageId{page}), "page {} should be free", page);
  // Now and then, so that events of several operations merge.
  if (config_.events && ++num_compared_ % 4 == 0) replay_events();
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
          announced_.size(), reference_.total_pages());
}

void CacheModel::do_bad_input(Bits& bits) {
  const std::string before = cache_->dump();
  KeyData key = make_key(bits);
  const std::size_t n = key.tokens.size();
  std::vector<SlotId> slots(n);
  for (std::size_t i = 0; i < n; ++i)
    slots[i] = SlotId{static_cast<std::int64_t>(config_.page_size + i)};
  bool refused = false;
  switch (bits.below(8)) {
    case 0:
      refused = !cache_->match({{}, key.ns});
      break;
    case 1:
      refused = !cache_->insert(key.view(), std::span(slots).first(n - 1));
      break;
    case 2:
      key.tokens.assign(n, -1);
      refused = !cache_->match(key.view());
      break;
    case 3:
      key.tokens.assign(n, -1);
      refused = !cache_->insert(key.view(), slots);
      break;
    case 4:
      refused = !cache_->insert(key.view(), slots, {.owned_by_tree = n + 1});
      break;
    case 5:
      slots.assign(n, SlotId{0});
      refused = !cache_->insert(key.view(), slots);
      break;
    case 6:
      refused = !cache_->lock(Match{.cache = 0});
      break;
    case 7: {  // a request that runs cannot start again
      if (running_.empty() || !running_.front().request.lease) return;
      refused = !cache_->start(running_.front().request);
      break;
    }
  }
  require(refused, "bad input was taken");
  require(cache_->dump() == before, "bad input changed the tree");
}

void run_model(const ModelConfig& config, const std::vector<std::uint64_t>& ops) {
  CacheModel model(config);
  for (const std::uint64_t op : ops) model.apply(op);
  model.finish();
}

}  // namespace pando::testing
