// SPDX-License-Identifier: Apache-2.0
// Recording and merging of KV events.
#include "cache/event_log.h"

#include "base/append.h"

namespace pando {

void EventLog::stored(Medium medium, std::string_view ns, const PageHash* parent,
                      std::span<const PageHash> hashes, std::span<const Token> tokens) {
  if (!events_.empty() && parent != nullptr) {
    KvEvent& last = events_.back();
    if (last.kind == KvEvent::Kind::stored && last.medium == medium && last.ns == ns &&
        last.hashes.back() == *parent) {
      append(last.hashes, hashes);
      append(last.tokens, tokens.subspan(overlap_));
      return;
    }
  }
  KvEvent& event = events_.emplace_back();
  event.kind = KvEvent::Kind::stored;
  event.medium = medium;
  event.hashes.assign(hashes.begin(), hashes.end());
  if (parent != nullptr) event.parent = *parent;
  event.tokens.assign(tokens.begin(), tokens.end());
  event.block_size = page_size_;
  event.ns = ns;
}

void EventLog::removed(Medium medium, std::span<const PageHash> hashes) {
  if (events_.empty() || events_.back().kind != KvEvent::Kind::removed ||
      events_.back().medium != medium) {
    KvEvent& event = events_.emplace_back();
    event.kind = KvEvent::Kind::removed;
    event.medium = medium;
  }
  append(events_.back().hashes, hashes);
}

void EventLog::cleared() {
  events_.emplace_back();
  events_.back().kind = KvEvent::Kind::cleared;
}

}  // namespace pando
