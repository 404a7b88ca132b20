// SPDX-License-Identifier: Apache-2.0
// What a lease holds and how it lets go: the path, of the window what the next token sees, the
// snapshot; and of a partly matched page its path and its window.
#include <utility>

#include "base/check.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"

namespace pando {

Lease::Lease(Lease&& other) noexcept
    : cache_(other.cache_),
      path_(std::exchange(other.path_, {})),
      partial_(std::exchange(other.partial_, {})),
      host_node_(std::exchange(other.host_node_, {})) {}

Lease& Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    release();
    cache_ = other.cache_;
    path_ = std::exchange(other.path_, {});
    partial_ = std::exchange(other.partial_, {});
    host_node_ = std::exchange(other.host_node_, {});
  }
  return *this;
}

void Lease::release() {
  Hold* const holds[] = {&partial_, &path_};
  if (*this) cache_->unlock(holds, &host_node_);
}

void Lease::release_partial() {
  Hold* const holds[] = {&partial_};
  if (partial_.node) cache_->unlock(holds, nullptr);
}

Status Lease::release_window() {
  if (!path_.window_from)
    return make_error(ErrorCode::invalid_argument,
                      "release_window: this lease holds no window, or has released it already");
  cache_->release_hold_window(path_);
  return {};
}

Status Lease::release_snapshot() {
  if (!path_.snapshot)
    return make_error(ErrorCode::invalid_argument,
                      "release_snapshot: this lease holds no snapshot, or has released it already");
  cache_->release_hold_snapshot(path_);
  return {};
}

// As much of the window as there is: lock() has made sure that it is all, or the caller knows.
Lease::Hold PrefixCacheImpl::hold_path(NodeIndex node) {
  Lease::Hold hold{.node = index.id(node)};
  index.holds().lock(node);
  ++num_locks;
  if (options.window) hold.window_from = index.holds().lock_window(node);
  if (index.residency().has_snapshot(node)) {
    index.holds().lock_state(node);
    ++num_snapshot_locks;
    hold.snapshot = true;
  }
  return hold;
}

// Its rows are in the page `page` of the path to the node. No snapshot: a state cannot be entered
// inside a page.
Lease::Hold PrefixCacheImpl::hold_partial(NodeIndex node, std::uint32_t page) {
  Lease::Hold hold{.node = index.id(node)};
  index.holds().lock(node);
  ++num_locks;
  if (options.window) {
    index.holds().lock_window(node, page);
    hold.window_from = page;
  }
  return hold;
}

void PrefixCacheImpl::release_hold_window(Lease::Hold& hold) {
  if (!hold.window_from) return;
  index.holds().unlock_window(index.resolve(hold.node), *hold.window_from);
  hold.window_from.reset();
}

void PrefixCacheImpl::release_hold_snapshot(Lease::Hold& hold) {
  if (!hold.snapshot) return;
  index.holds().unlock_state(index.resolve(hold.node));
  --num_snapshot_locks;
  hold.snapshot = false;
}

void PrefixCacheImpl::release_hold(Lease::Hold& hold) {
  const NodeIndex node = index.resolve(hold.node);
  PANDO_CHECK(node != kNoNode, "lease on node {}, which has gone", hold.node.index);
  release_hold_window(hold);
  release_hold_snapshot(hold);
  index.unlock(node, released);
  hold = {};
  --num_locks;
}

void PrefixCacheImpl::hold_host(Lease& lease, NodeIndex node) {
  index.holds().lock_host(node);
  ++num_host_locks;
  lease.host_node_ = index.id(node);
}

void PrefixCacheImpl::release_host(NodeId& node) {
  if (!node) return;
  index.unlock_host(index.resolve(std::exchange(node, {})), released);
  --num_host_locks;
}

void PrefixCacheImpl::unlock(std::span<Lease::Hold* const> holds, NodeId* host_node) {
  if (host_node != nullptr) release_host(*host_node);
  for (Lease::Hold* hold : holds) {
    if (hold->node) release_hold(*hold);
  }
  give_back();
  ledger.flush();
}

Result<Lease> PrefixCacheImpl::lock(const Match& match) {
  if (match.cache != cache_id)
    return make_error(ErrorCode::stale_handle, "lock: the match is from another cache");
  const NodeIndex node = index.resolve(match.node);
  const NodeIndex partial = index.resolve(match.partial_node);
  const NodeIndex host = index.resolve(match.host_node);
  for (const auto& [id, resolved] :
       {std::pair{match.node, node}, {match.partial_node, partial}, {match.host_node, host}}) {
    if (id && (resolved == kNoNode || index.node(resolved).cut_off))
      return make_error(ErrorCode::stale_handle,
                        "lock: node {} of this match has been evicted since; match again",
                        id.index);
  }
  const auto page = static_cast<std::uint32_t>(match.length / index.page_size());
  if ((node != kNoNode && !index.matcher().is_valid_end(node, Matcher::Reach::device)) ||
      (partial != kNoNode &&
       (!index.node(partial).on_device() || !index.matcher().has_window(partial, page))) ||
      (host != kNoNode && !index.matcher().is_valid_end(host, Matcher::Reach::host)))
    return make_error(ErrorCode::stale_handle,
                      "lock: a part of this match, its window or its snapshot has been evicted "
                      "since; match again");
  Lease lease;
  lease.cache_ = this;
  if (node != kNoNode) lease.path_ = hold_path(node);
  if (partial != kNoNode) lease.partial_ = hold_partial(partial, page);
  if (host != kNoNode) hold_host(lease, host);
  return lease;
}

}  // namespace pando
