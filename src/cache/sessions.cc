// SPDX-License-Identifier: Apache-2.0
// Sessions: what their requests have inserted is kept above the rest while they are in use, and
// goes at once, as far as nobody else has used it, when they are closed.
//
// Invariant: the ends of a session are those of its requests that no other one continues. They are
// active in the index exactly while the session is.
#include <algorithm>

#include "base/check.h"
#include "cache/prefix_cache_impl.h"

namespace pando {

Result<SessionId> Retention::open_session(const SessionOptions& session) {
  if (session.idle_after.count() <= 0)
    return make_error(ErrorCode::invalid_argument,
                      "open_session: idle_after is {} ms; expected more than 0",
                      session.idle_after.count());
  const SessionId id{cache_.next_id()};
  cache_.index.retention().keep_sessions();
  cache_.sessions[id.value].idle_after = session.idle_after;
  cache_.use_session(id, {});
  return id;
}

Status PrefixCacheImpl::refuse_session(SessionId id, const char* caller) const {
  if (sessions.contains(id.value)) return {};
  return make_error(ErrorCode::stale_handle,
                    "{}: there is no session {}; it has been closed, or never was opened", caller,
                    id.value);
}

// Its timer goes off when it may have become idle; then it is looked at again.
void PrefixCacheImpl::use_session(SessionId id, NodeIndex end) {
  const auto at = sessions.find(id.value);
  if (at == sessions.end()) return;
  OpenSession& session = at->second;
  session.idle_at = after(session.idle_after);
  if (!session.has_timer) timers.push({.at = session.idle_at, .session = id});
  session.has_timer = true;
  if (!session.active) {
    session.active = true;
    for (const EndIndex known : session.ends) index.retention().set_active(known, true);
  }
  if (end == kNoNode) return;
  std::erase_if(session.ends, [&](EndIndex known) {
    const NodeIndex node = index.retention().node_of(known);
    const bool continued = node == kNoNode || index.tree().is_on_path(node, end);
    if (continued) index.retention().remove_end(known);
    return continued;
  });
  session.ends.push_back(index.retention().add_end(end));
}

void PrefixCacheImpl::session_due(SessionId id) {
  const auto at = sessions.find(id.value);
  if (at == sessions.end()) return;
  OpenSession& session = at->second;
  session.has_timer = session.idle_at > agreed_time;
  if (session.has_timer) {
    timers.push({.at = session.idle_at, .session = id});
    return;
  }
  session.active = false;
  for (const EndIndex end : session.ends) index.retention().set_active(end, false);
}

Status Retention::touch(SessionId id) {
  if (Status s = cache_.refuse_session(id, "touch"); !s) return s;
  cache_.use_session(id, {});
  return {};
}

Status Retention::close_session(SessionId id) {
  if (Status s = cache_.refuse_session(id, "close_session"); !s) return s;
  const auto at = cache_.sessions.find(id.value);
  const std::vector<EndIndex> ends = std::move(at->second.ends);
  cache_.sessions.erase(at);
  for (const EndIndex end : ends) {
    const NodeIndex node = cache_.index.retention().node_of(end);
    cache_.index.retention().remove_end(end);
    if (node != kNoNode) cache_.closing.push_back(cache_.index.id(node));
  }
  cache_.release_closed();
  cache_.give_back();
  cache_.ledger.flush();
  return {};
}

// What somebody still holds, a copy under way for one, is tried again by poll().
void PrefixCacheImpl::release_closed() {
  if (closing.empty()) return;
  const CauseScope cause(*this, Pressure::session_closed, 0);
  Evicted evicted;
  std::erase_if(closing, [&](NodeId id) {
    const NodeIndex node = index.resolve(id);
    return node == kNoNode || index.evictor().release_private(node, released, evicted);
  });
  stats.evicted_tokens += evicted.pages * index.page_size();
  stats.evicted_nodes += evicted.nodes;
  stats.evicted_window_tokens += evicted.window_pages * index.page_size();
  stats.evicted_snapshots += evicted.snapshots;
  if (tier) tier->engine.stats.host_evicted_tokens += evicted.host_pages * index.page_size();
}

std::vector<Session> Retention::sessions() const {
  std::vector<Session> all;
  for (const auto& [id, session] : cache_.sessions) {
    Session& told = all.emplace_back(Session{.id = SessionId{id}, .active = session.active});
    for (const EndIndex end : session.ends) {
      const NodeIndex node = cache_.index.retention().node_of(end);
      if (node == kNoNode) continue;
      told.tokens =
          std::max(told.tokens, cache_.index.node(node).end_pages * cache_.index.page_size());
    }
  }
  return all;
}

}  // namespace pando
