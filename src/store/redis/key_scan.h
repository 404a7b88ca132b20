// SPDX-License-Identifier: Apache-2.0
// SCAN over the keys of one server that begin with a prefix, some at a time, by control commands.
// Neither quick nor part of serving requests. What others put meanwhile may or may not be met, and
// a key may come more than once. Belongs to one thread; the node outlives it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "store/redis/node.h"

namespace pando::redis {

inline std::string_view text_of(const redisReply& reply) {
  return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}

/// The key's slot has moved, or is moving.
inline bool is_redirection(const redisReply& reply) {
  return reply.type == REDIS_REPLY_ERROR &&
         (text_of(reply).starts_with("MOVED ") || text_of(reply).starts_with("ASK "));
}

class KeyScan {
 public:
  KeyScan(Node& node, const std::string& key_prefix, const Patience& patience);

  bool at_end() const { return at_end_; }
  /// Some keys, or none although more may follow.
  Result<std::vector<std::string>> next();
  /// One command for each key, as one pipeline: a cluster takes commands of several keys only where
  /// all are of one slot.
  Result<std::vector<ControlReply>> each(std::string_view verb,
                                         const std::vector<std::string>& keys);

 private:
  Node& node_;
  const std::string pattern_;
  const Patience patience_;
  std::string cursor_ = "0";
  bool at_end_ = false;
};

}  // namespace pando::redis
