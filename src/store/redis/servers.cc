// SPDX-License-Identifier: Apache-2.0
// Servers: the map of slots and how it is kept. One thread at a time asks for a new one; the mutex
// is not held while it waits for a server.
#include "store/redis/servers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "store/redis/key_slot.h"

namespace pando::redis {

Servers::Servers(const RedisStoreOptions& options) : options_(options) {
  for (const std::string& server : options.servers) node_at(parse_address(server).value());
}

Node& Servers::node_at(const Address& address) {
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Node>& node : nodes_)
    if (node->address() == address) return *node;
  return *nodes_.emplace_back(std::make_unique<Node>(address, options_, reconnects_));
}

Node* Servers::owner(std::string_view key) {
  const std::lock_guard lock(mutex_);
  if (!is_cluster()) return nodes_.front().get();
  return map_.empty() ? nullptr : map_[key_slot(key)];
}

std::vector<Node*> Servers::masters() {
  const std::lock_guard lock(mutex_);
  if (!is_cluster()) return {nodes_.front().get()};
  std::vector<Node*> masters = map_;
  std::sort(masters.begin(), masters.end());
  masters.erase(std::unique(masters.begin(), masters.end()), masters.end());
  std::erase(masters, nullptr);
  return masters;
}

void Servers::moved(std::uint16_t slot, Node& node) {
  const std::lock_guard lock(mutex_);
  if (!map_.empty()) map_[slot] = &node;
  is_stale_ = true;
}

// ---- The map.

Status Servers::prepare(const Patience& patience) {
  if (!is_cluster()) return {};
  bool needed = false;
  {
    const std::lock_guard lock(mutex_);
    needed = is_stale_;
  }
  return refresh_if(needed, patience);
}

Status Servers::refresh(const Patience& patience) { return refresh_if(is_cluster(), patience); }

// Fails only where there is no map at all: an old one is right for most slots, and redirections
// mend the rest.
Status Servers::refresh_if(bool needed, const Patience& patience) {
  if (!needed) return {};
  std::unique_lock lock(mutex_);
  while (is_refreshing_ && map_.empty()) {
    if (patience.batch != nullptr && patience.batch->stopped())
      return make_error(ErrorCode::cancelled, "called off while the map of slots was asked for");
    refreshed_.wait_for(lock, kPollInterval);
  }
  const bool too_soon = !map_.empty() && Clock::now() < next_refresh_;
  if (is_refreshing_ || too_soon) return {};
  is_refreshing_ = true;
  lock.unlock();
  Result<SlotMap> map = ask_for_map(patience);
  lock.lock();
  is_refreshing_ = false;
  next_refresh_ = Clock::now() + kRefreshInterval;
  refreshed_.notify_all();
  if (!map) return map_.empty() ? Status(map.error()) : Status();
  map_ = *std::move(map);
  is_stale_ = false;
  return {};
}

// Owners of slots first: the servers of the options may have left the cluster since.
std::vector<Node*> Servers::candidates() {
  std::vector<Node*> candidates = masters();
  const std::lock_guard lock(mutex_);
  for (const std::unique_ptr<Node>& node : nodes_)
    if (std::find(candidates.begin(), candidates.end(), node.get()) == candidates.end())
      candidates.push_back(node.get());
  return candidates;
}

Result<Servers::SlotMap> Servers::ask_for_map(const Patience& patience) {
  const Patience less{patience.batch, std::min(patience.io_timeout, options_.connect_timeout)};
  const Command command = {"CLUSTER", "SLOTS"};
  std::string errors;
  for (Node* node : candidates()) {
    Result<std::vector<ControlReply>> replies = node->ask({&command, 1}, less);
    Result<SlotMap> map =
        replies ? parse_map(*replies->front(), *node) : Result<SlotMap>(replies.error());
    if (map) return map;
    errors += fmt::format("{}{}", errors.empty() ? "" : "; ", map.error().message);
  }
  return make_error(ErrorCode::io_error, "no server tells the map of slots: {}", errors);
}

// [[first, last, [host, port, ...], replicas...], ...]
Result<Servers::SlotMap> Servers::parse_map(const redisReply& reply, const Node& from) {
  const auto nonsense = [&](std::string_view what) {
    return make_error(ErrorCode::io_error, "{}: CLUSTER SLOTS: {}", from.name(), what);
  };
  if (reply.type == REDIS_REPLY_ERROR) return nonsense({reply.str, reply.len});
  if (reply.type != REDIS_REPLY_ARRAY) return nonsense("expected an array");
  SlotMap map(kNumSlots, nullptr);
  for (std::size_t i = 0; i < reply.elements; ++i) {
    const redisReply& range = *reply.element[i];
    const bool has_master = range.type == REDIS_REPLY_ARRAY && range.elements >= 3 &&
                            range.element[0]->type == REDIS_REPLY_INTEGER &&
                            range.element[1]->type == REDIS_REPLY_INTEGER &&
                            range.element[2]->type == REDIS_REPLY_ARRAY &&
                            range.element[2]->elements >= 2 &&
                            range.element[2]->element[1]->type == REDIS_REPLY_INTEGER;
    if (!has_master) return nonsense("expected ranges with their servers");
    const redisReply& host = *range.element[2]->element[0];
    const long long port = range.element[2]->element[1]->integer;
    const long long first = range.element[0]->integer, last = range.element[1]->integer;
    const auto num_slots = static_cast<long long>(kNumSlots);
    if (first < 0 || last < first || last >= num_slots || port < 1 || port > 65535)
      return nonsense(fmt::format("slots {} to {} at port {}", first, last, port));
    const bool names_host = host.type == REDIS_REPLY_STRING && host.len > 0;
    Node& node =
        node_at({.host = names_host ? std::string(host.str, host.len) : from.address().host,
                 .port = static_cast<int>(port)});
    std::fill(map.begin() + first, map.begin() + last + 1, &node);
  }
  return map;
}

}  // namespace pando::redis
