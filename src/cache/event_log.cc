// SPDX-License-Identifier: Apache-2.0
// Recording and merging of KV events.
#include "cache/event_log.h"

#include <iterator>
#include <utility>

#include "base/append.h"

namespace pando {

void EventLog::stored(Tier tier, std::string_view ns, const PageHash* parent,
                      std::span<const PageHash> hashes, std::span<const Token> tokens) {
  if (parent != nullptr && continues_last(tier, ns, *parent, 0)) {
    append(events_.back().hashes, hashes);
    append(events_.back().tokens, tokens.subspan(overlap_));
    return;
  }
  KvEvent& event = events_.emplace_back();
  event.kind = KvEvent::Kind::stored;
  event.tier = tier;
  event.hashes.assign(hashes.begin(), hashes.end());
  if (parent != nullptr) event.parent = *parent;
  event.tokens.assign(tokens.begin(), tokens.end());
  event.block_size = page_size_;
  event.ns = ns;
}

void EventLog::stored(KvEvent event) {
  if (!event.parent || !continues_last(event.tier, event.ns, *event.parent, event.group)) {
    events_.push_back(std::move(event));
    return;
  }
  KvEvent& last = events_.back();
  // Of all blocks or of none.
  if (last.extra_keys.empty() != event.extra_keys.empty()) {
    last.extra_keys.resize(last.hashes.size());
    event.extra_keys.resize(event.hashes.size());
  }
  append(last.hashes, event.hashes);
  append(last.tokens, std::span<const Token>(event.tokens).subspan(overlap_));
  std::move(event.extra_keys.begin(), event.extra_keys.end(), std::back_inserter(last.extra_keys));
}

bool EventLog::continues_last(Tier tier, std::string_view ns, const PageHash& parent,
                              std::uint32_t group) const {
  if (events_.empty()) return false;
  const KvEvent& last = events_.back();
  return last.kind == KvEvent::Kind::stored && last.tier == tier && last.group == group &&
         last.ns == ns && last.hashes.back() == parent;
}

void EventLog::removed(Tier tier, std::span<const PageHash> hashes, std::uint32_t group,
                       std::size_t hash_bytes) {
  if (events_.empty() || events_.back().kind != KvEvent::Kind::removed ||
      events_.back().tier != tier || events_.back().group != group) {
    KvEvent& event = events_.emplace_back();
    event.kind = KvEvent::Kind::removed;
    event.tier = tier;
    event.group = group;
    event.hash_bytes = hash_bytes;
  }
  append(events_.back().hashes, hashes);
}

void EventLog::cleared() {
  events_.emplace_back();
  events_.back().kind = KvEvent::Kind::cleared;
}

}  // namespace pando
