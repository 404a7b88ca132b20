// SPDX-License-Identifier: Apache-2.0
// Looking a key up: match, which the request's start() and Paths share, and probe. Both look
// (Tree::descend); match then splits and touches. lock is in leases.cc, insert in insert.cc, and
// what tells the observer of them in observed.cc.
#include <algorithm>

#include "base/check.h"
#include "base/tokens.h"
#include "cache/prefix_cache_impl.h"
#include "pando/paths.h"

namespace pando {

std::string_view to_string(MatchEnd end) {
  switch (end) {
    case MatchEnd::whole_key:
      return "whole key";
    case MatchEnd::no_such_child:
      return "no such child";
    case MatchEnd::page_boundary:
      return "page boundary";
    case MatchEnd::namespace_unknown:
      return "namespace unknown";
    case MatchEnd::window_gone:
      return "window gone";
    case MatchEnd::no_snapshot:
      return "no snapshot";
    case MatchEnd::disabled:
      return "disabled";
  }
  return "unknown";
}

Result<Match> PrefixCacheImpl::match(const Key& key, std::span<SlotId> slots, SessionId session) {
  if (key.tokens.empty()) return make_error(ErrorCode::invalid_argument, "match: the key is empty");
  const std::size_t page_size = index.page_size();
  const std::size_t num_pages = index.tree().shape().num_pages(key);
  if (!slots.empty() && slots.size() < num_pages * page_size)
    return make_error(ErrorCode::invalid_argument,
                      "match: room for {} slots, but {} tokens may match", slots.size(),
                      num_pages * page_size);
  if (session) {
    if (Status s = refuse_session(session, "match"); !s) return s.error();
  }
  Match found;
  found.cache = cache_id;
  found.end = MatchEnd::disabled;
  if (options.disabled) return found;
  if (record) record->matched();

  const Tree::Cursor walked = index.tree().descend(key, slots.empty() ? nullptr : slots.data());
  found.agreed_length = walked.pages * page_size;
  // Tokens beyond the first page that does not agree are not looked at.
  const std::size_t looked_at =
      std::min(key.tokens.size(), found.agreed_length + page_size + (options.bigram ? 1 : 0));
  if (Status s = refuse_negative(key.tokens, found.agreed_length, looked_at, "match"); !s)
    return s.error();
  const Tree::Cursor cursor = index.matcher().valid_end(walked, Matcher::Reach::device);
  const Tree::Cursor reached =
      tier ? index.matcher().valid_end(walked, Matcher::Reach::host) : cursor;
  found.length = cursor.pages * page_size;
  found.host_length = (reached.pages - cursor.pages) * page_size;
  found.end = match_end(key, walked, reached);
  if (cursor.node == kNoNode) return found;
  Matcher::Partial partial;
  if (options.partial_pages && !options.state && cursor.pages == walked.pages)
    partial = index.matcher().partial(key, cursor);
  const NodeIndex end = index.tree().split_at(reached);  // if it is further, both are ends of nodes
  const NodeIndex device_end = found.host_length > 0 ? cursor.node : end;
  if (cursor.pages > 0) {
    found.node = index.id(device_end);
    if (options.state) found.snapshot = index.residency().snapshot(device_end);
  }
  if (found.host_length > 0) found.host_node = index.id(end);
  if (partial.length > 0) {
    found.partial_length = partial.length;
    found.partial_slot = SlotId{static_cast<std::int64_t>(partial.page * page_size)};
    found.partial_node = index.id(partial.node);
  }
  index.touch(end);
  if (!session) index.retention().note_common_use(end);
  return found;
}

// Why a walk of this key, of which `valid` can be used, gives no more.
MatchEnd PrefixCacheImpl::match_end(const Key& key, const Tree::Cursor& walked,
                                    const Tree::Cursor& valid) const {
  const std::size_t num_pages = index.tree().shape().num_pages(key);
  if (walked.node == kNoNode) return MatchEnd::namespace_unknown;
  if (valid.pages < walked.pages) {
    const bool window_reaches =
        index.matcher().valid_end(walked, Matcher::Reach::host, /*with_state=*/false).pages ==
        walked.pages;
    return window_reaches ? MatchEnd::no_snapshot : MatchEnd::window_gone;
  }
  if (walked.pages < num_pages) return MatchEnd::no_such_child;
  const bool whole =
      num_pages > 0 && num_pages * index.page_size() == index.tree().shape().num_units(key);
  return whole ? MatchEnd::whole_key : MatchEnd::page_boundary;
}

std::size_t Paths::probe(const Key& key) const {
  const RadixIndex& index = cache_.index;
  if (cache_.options.disabled) return 0;
  return index.matcher()
             .valid_end(index.tree().descend(key, nullptr), Matcher::Reach::device)
             .pages *
         index.page_size();
}

void Paths::probe(std::span<const Key> keys, std::span<std::size_t> lengths) const {
  PANDO_CHECK(lengths.size() == keys.size(), "probe: {} keys, room for {} lengths", keys.size(),
              lengths.size());
  for (std::size_t i = 0; i < keys.size(); ++i) lengths[i] = probe(keys[i]);
}

}  // namespace pando
