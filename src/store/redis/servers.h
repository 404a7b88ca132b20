// SPDX-License-Identifier: Apache-2.0
// The servers of a store and which of them has a key: the only one there is, or by the cluster's
// map of slots. The map comes from CLUSTER SLOTS when first needed; it is asked for again after a
// redirection or a lost server, at most every kRefreshInterval, and while it is, others go on with
// the map they have.
//
// Nodes live as long as this does, so that pointers to them stay good. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "pando/store_backends.h"
#include "store/redis/node.h"

namespace pando::redis {

class Servers {
 public:
  static constexpr std::chrono::milliseconds kRefreshInterval{100};

  /// The options are valid and outlive this.
  explicit Servers(const RedisStoreOptions& options);

  bool is_cluster() const { return options_.cluster; }
  Node& node_at(const Address& address);
  /// Null: no server has the slot of this key, as far as the map says.
  Node* owner(std::string_view key);
  /// All that own slots; or the only server.
  std::vector<Node*> masters();

  /// A server redirected us: true at once for this slot, and the map is asked for soon.
  void moved(std::uint16_t slot, Node& node);
  /// Before a call: the map is there, and is asked for if a redirection said that it is old.
  Status prepare(const Patience& patience);
  /// The map may be wrong, as its server cannot be reached.
  Status refresh(const Patience& patience);

  std::uint64_t reconnects() const { return reconnects_.load(std::memory_order_relaxed); }

 private:
  using SlotMap = std::vector<Node*>;  // one per slot, or empty: none yet

  Status refresh_if(bool needed, const Patience& patience);
  Result<SlotMap> ask_for_map(const Patience& patience);
  Result<SlotMap> parse_map(const redisReply& reply, const Node& from);
  std::vector<Node*> candidates();

  const RedisStoreOptions& options_;
  std::atomic<std::uint64_t> reconnects_ = 0;

  std::mutex mutex_;
  std::condition_variable refreshed_;
  std::vector<std::unique_ptr<Node>> nodes_;  // the servers of the options first
  SlotMap map_;
  bool is_stale_ = true;
  bool is_refreshing_ = false;
  Clock::time_point next_refresh_ = {};
};

}  // namespace pando::redis
