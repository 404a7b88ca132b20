// SPDX-License-Identifier: Apache-2.0
// SlotCache: checks what callers say and keeps SlotMap in step with the allocator. Copies are in
// slot_cache_copy.cc.
#include "pando/slot_cache.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "base/tokens.h"
#include "cache/cache_core.h"
#include "cache/slot_cache_impl.h"

namespace pando {
namespace {

using Slot = SlotMap::Slot;

constexpr std::size_t kMaxTokens = std::size_t{1} << 31;
constexpr std::size_t kMaxSlots = UINT32_MAX - 1;

Status validate_pool(const SlotCacheOptions& options, std::size_t num_slots) {
  if (options.pool == nullptr) return {};
  const KvPool& pool = *options.pool;
  if (pool.geometry().page_size != options.slot_tokens)
    return make_error(ErrorCode::invalid_argument,
                      "slot cache: the pool's pages have {} tokens, slots {}; expected the same",
                      pool.geometry().page_size, options.slot_tokens);
  if (pool.num_pages() < num_slots + 1)
    return make_error(ErrorCode::invalid_argument,
                      "slot cache: the pool has {} pages; expected {}: one per slot and the "
                      "padding",
                      pool.num_pages(), num_slots + 1);
  if (options.copy_stream >= options.copier->num_streams())
    return make_error(ErrorCode::invalid_argument, "slot cache: copy_stream {} of {} streams",
                      options.copy_stream, options.copier->num_streams());
  return {};
}

}  // namespace

Status SlotCacheOptions::validate() const {
  if (slot_tokens == 0 || slot_tokens > kMaxTokens)
    return make_error(ErrorCode::invalid_argument, "slot_tokens is {}, expected 1 to {}",
                      slot_tokens, kMaxTokens);
  if (max_nodes < 2)
    return make_error(ErrorCode::invalid_argument,
                      "max_nodes is {}, expected 2 at least: a namespace and a sequence in it",
                      max_nodes);
  if ((pool == nullptr) != (copier == nullptr))
    return make_error(ErrorCode::invalid_argument,
                      "slot cache: a pool and a copier come together; only the {} is given",
                      pool != nullptr ? "pool" : "copier");
  return {};
}

SlotCache::Impl::Impl(const SlotCacheOptions& o, SlotAllocator& s)
    : options(o), slots(s), map(s.size(), o.max_nodes, o.hash_seed.value_or(random_seed())) {
  for (Slot slot = 0; slot < slots.size(); ++slot) {
    if (!slots.is_free(slot)) map.set_taken(slot, true);
  }
  slots.watch(this);
}

Status SlotCache::Impl::check_key(const Key& key, const char* caller) const {
  if (key.tokens.empty())
    return make_error(ErrorCode::invalid_argument, "{}: the key has no tokens", caller);
  return refuse_negative(key.tokens, 0, key.tokens.size(), caller);
}

Status SlotCache::Impl::check_slot(std::size_t slot, const char* caller) const {
  if (slot < slots.size()) return {};
  return make_error(ErrorCode::invalid_argument, "{}: slot {} is outside [0, {})", caller, slot,
                    slots.size());
}

bool SlotCache::Impl::can_occupy(Slot slot, std::size_t length) const {
  return slots.is_free(slot) && map.can_shorten(slot, length) && !is_read(slot, length);
}

std::optional<SlotMatch> SlotCache::Impl::match(const SlotMap::Found& found) const {
  if (found.length == 0) return std::nullopt;
  const Slot slot = map.pick(found.node);
  return SlotMatch{.length = found.length,
                   .slot = slot,
                   .version = slots.version(slot),
                   .edition = map.edition(slot),
                   .free = can_occupy(slot, found.length)};
}

// ---- Making ------------------------------------------------------------------------------------

Result<std::unique_ptr<SlotCache>> SlotCache::create(const SlotCacheOptions& options,
                                                     SlotAllocator& slots) {
  if (Status s = options.validate(); !s) return s.error();
  if (slots.size() > kMaxSlots)
    return make_error(ErrorCode::invalid_argument, "slot cache over {} slots, expected {} at most",
                      slots.size(), kMaxSlots);
  if (slots.is_watched())
    return make_error(ErrorCode::in_use, "slot cache: its allocator has a cache already");
  if (Status s = validate_pool(options, slots.size()); !s) return s.error();
  return std::unique_ptr<SlotCache>(new SlotCache(std::make_unique<Impl>(options, slots)));
}

SlotCache::SlotCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SlotCache::~SlotCache() = default;

// ---- Knowing and finding -----------------------------------------------------------------------

Status SlotCache::insert(const Key& key, std::size_t slot) {
  if (Status s = impl_->check_key(key, "insert"); !s) return s;
  if (Status s = impl_->check_slot(slot, "insert"); !s) return s;
  if (key.tokens.size() > impl_->options.slot_tokens)
    return make_error(ErrorCode::invalid_argument, "insert: {} tokens, a slot holds {}",
                      key.tokens.size(), impl_->options.slot_tokens);
  if (impl_->slots.is_free(slot) && impl_->slots.version(slot) == 0)
    return make_error(ErrorCode::invalid_argument,
                      "insert: slot {} has never been handed out; expected one that was written",
                      slot);
  impl_->poll();
  if (impl_->is_written(slot))
    return make_error(ErrorCode::in_use,
                      "insert: a copy into slot {} is under way; wait for its transfer", slot);
  impl_->map.learn(key, static_cast<Slot>(slot));
  return {};
}

Result<std::optional<SlotMatch>> SlotCache::find(const Key& key) {
  if (Status s = impl_->check_key(key, "find"); !s) return s.error();
  impl_->poll();
  const SlotMap::Found found = impl_->map.find(key);
  const std::optional<SlotMatch> match = impl_->match(found);
  if (match) {
    impl_->map.touch(found.node);
    impl_->map.use(static_cast<Slot>(match->slot));
  }
  return match;
}

Result<std::optional<SlotMatch>> SlotCache::probe(const Key& key) const {
  if (Status s = impl_->check_key(key, "probe"); !s) return s.error();
  return impl_->match(impl_->map.find(key));
}

// ---- Having ------------------------------------------------------------------------------------

std::optional<std::size_t> SlotCache::take() {
  impl_->poll();
  const std::optional<Slot> slot = impl_->map.next_to_give();
  if (!slot) return std::nullopt;
  impl_->slots.alloc_at(*slot);
  return *slot;
}

Status SlotCache::occupy(const SlotMatch& match) {
  if (Status s = impl_->check_slot(match.slot, "occupy"); !s) return s;
  if (match.length == 0)
    return make_error(ErrorCode::invalid_argument, "occupy: the match is empty; take() a slot");
  impl_->poll();
  const auto slot = static_cast<Slot>(match.slot);
  if (match.version != impl_->slots.version(slot) || match.edition != impl_->map.edition(slot))
    return make_error(ErrorCode::stale_handle,
                      "occupy: slot {} is at version {}, edition {}; the match is of version {}, "
                      "edition {}",
                      slot, impl_->slots.version(slot), impl_->map.edition(slot), match.version,
                      match.edition);
  if (!impl_->slots.is_free(slot))
    return make_error(ErrorCode::in_use, "occupy: slot {} is taken", slot);
  if (!impl_->can_occupy(slot, match.length))
    return make_error(ErrorCode::in_use,
                      "occupy: a pin or a copy needs more of slot {} than {} tokens", slot,
                      match.length);
  impl_->map.shorten(slot, match.length);
  impl_->occupying = slot;
  impl_->slots.occupy(slot);
  impl_->occupying.reset();
  return {};
}

void SlotCache::free(std::size_t slot) { impl_->slots.free(slot); }

Status SlotCache::pin(const Key& key) {
  if (Status s = impl_->check_key(key, "pin"); !s) return s;
  impl_->poll();
  return impl_->map.pin(key);
}

Status SlotCache::release(const Key& key) {
  if (Status s = impl_->check_key(key, "release"); !s) return s;
  impl_->poll();
  return impl_->map.release(key);
}

Status SlotCache::clear() {
  impl_->poll();
  if (impl_->map.num_pinned() > 0)
    return make_error(ErrorCode::in_use, "clear: {} prefixes are pinned", impl_->map.num_pinned());
  for (Slot slot = 0; slot < impl_->slots.size(); ++slot) impl_->map.forget(slot);
  return {};
}

// ---- Telling -----------------------------------------------------------------------------------

SlotCacheStats SlotCache::stats() const {
  const std::size_t nodes = impl_->map.num_nodes();
  return {.num_nodes = nodes,
          .num_sequences = impl_->map.num_known(),
          .num_pinned = impl_->map.num_pinned(),
          .num_copies = impl_->copies.size(),
          .evictions = impl_->map.num_evictions(),
          .nodes_over = nodes - std::min(nodes, impl_->options.max_nodes)};
}

std::size_t SlotCache::memory_bytes() const {
  return sizeof(Impl) - sizeof(SlotMap) + impl_->map.memory_bytes() +
         impl_->copies.size() * sizeof(Impl::SlotCopy);
}

std::string SlotCache::dump() const { return impl_->map.dump(); }

Status SlotCache::check() const {
  for (Slot slot = 0; slot < impl_->slots.size(); ++slot) {
    if (impl_->map.is_taken(slot) == impl_->slots.is_free(slot))
      return make_error(ErrorCode::corrupt, "slot {} is {} for the allocator, not for the cache",
                        slot, impl_->slots.is_free(slot) ? "free" : "taken");
    if (impl_->map.length(slot) > impl_->options.slot_tokens)
      return make_error(ErrorCode::corrupt, "slot {} is said to hold {} tokens, has room for {}",
                        slot, impl_->map.length(slot), impl_->options.slot_tokens);
  }
  return impl_->map.check();
}

}  // namespace pando
