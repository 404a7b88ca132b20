// SPDX-License-Identifier: Apache-2.0
// SlotCache::copy_kv: which rows go where, and what is kept while they do. Copies are few, so those
// under way are searched from end to end.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "cache/slot_cache_impl.h"

namespace pando {

using Slot = SlotMap::Slot;

bool SlotCache::Impl::is_written(std::size_t slot) const {
  return std::any_of(copies.begin(), copies.end(),
                     [&](const SlotCopy& copy) { return copy.target == slot; });
}

bool SlotCache::Impl::is_read(std::size_t slot, std::size_t beyond) const {
  return std::any_of(copies.begin(), copies.end(), [&](const SlotCopy& copy) {
    return copy.source == slot && copy.length > beyond;
  });
}

void SlotCache::Impl::poll() {
  while (!copies.empty() && copies.front().transfer.finished()) {
    map.unhold(copies.front().source);
    map.unhold(copies.front().target);
    copies.pop_front();
  }
}

Result<Transfer> SlotCache::copy_kv(const Key& key, std::size_t target) {
  if (Status s = impl_->check_key(key, "copy_kv"); !s) return s.error();
  if (Status s = impl_->check_slot(target, "copy_kv"); !s) return s.error();
  const SlotCacheOptions& options = impl_->options;
  if (options.pool == nullptr)
    return make_error(ErrorCode::unavailable, "copy_kv: the cache was made without a pool");
  if (impl_->slots.is_free(target))
    return make_error(ErrorCode::invalid_argument, "copy_kv: slot {} is not taken", target);
  impl_->poll();
  const auto to = static_cast<Slot>(target);
  if (impl_->map.is_pinned(to) || impl_->is_written(to) || impl_->is_read(to, 0))
    return make_error(ErrorCode::in_use, "copy_kv: slot {} is pinned or part of a running copy",
                      target);
  const SlotMap::Found found = impl_->map.find(key);
  const std::optional<Slot> from =
      found.length == key.tokens.size() ? impl_->map.pick_other(found.node, to) : std::nullopt;
  if (!from)
    return make_error(ErrorCode::not_found,
                      "copy_kv: no slot but the target holds all {} tokens, of which slots hold {}",
                      key.tokens.size(), found.length);

  const std::size_t length = found.length;
  std::vector<SlotId> rows(2 * length);
  const auto first_row = [&](Slot slot) { return (std::size_t{slot} + 1) * options.slot_tokens; };
  for (std::size_t i = 0; i < length; ++i) {
    rows[i] = static_cast<SlotId>(first_row(*from) + i);
    rows[length + i] = static_cast<SlotId>(first_row(to) + i);
  }
  const std::span<const SlotId> src(rows.data(), length);
  const std::span<const SlotId> dst(rows.data() + length, length);
  Result<Transfer> transfer = options.copier->move(*options.pool, dst, src, options.copy_stream);
  if (!transfer) return transfer;
  impl_->map.touch(found.node);
  impl_->map.use(*from);
  impl_->map.forget(to);
  impl_->map.hold(*from);
  impl_->map.hold(to);
  impl_->copies.push_back({*from, to, length, *transfer});
  return transfer;
}

}  // namespace pando
