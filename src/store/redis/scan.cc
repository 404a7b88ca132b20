// SPDX-License-Identifier: Apache-2.0
// What is done with the keys that a KeyScan gives.
#include "store/redis/scan.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/redis/key_scan.h"
#include "store/redis/page_value.h"

namespace pando::redis {
namespace {

// Slots may move while they are scanned; more often than this, something is wrong.
constexpr int kMaxPasses = 5;

// True: keys moved away under our hands, so another pass is needed.
Result<bool> clear_node(Node& node, const std::string& key_prefix, const Patience& patience) {
  KeyScan scan(node, key_prefix, patience);
  bool again = false;
  while (!scan.at_end()) {
    Result<std::vector<std::string>> keys = scan.next();
    if (!keys) return keys.error();
    Result<std::vector<ControlReply>> replies = scan.each("UNLINK", *keys);
    if (!replies) return replies.error();
    for (const ControlReply& reply : *replies) {
      if (is_redirection(*reply)) {
        again = true;
      } else if (reply->type != REDIS_REPLY_INTEGER) {
        return make_error(ErrorCode::io_error, "{}: UNLINK: {}", node.name(), text_of(*reply));
      }
    }
  }
  return again;
}

}  // namespace

Status clear_pages(Servers& servers, const std::string& key_prefix, const Patience& patience) {
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    Status map = pass == 0 ? servers.prepare(patience) : servers.refresh(patience);
    if (!map) return map;
    bool again = false;
    for (Node* node : servers.masters()) {
      Result<bool> moved = clear_node(*node, key_prefix, patience);
      if (!moved) return moved.error();
      again = again || *moved;
    }
    if (!again) return {};
  }
  return make_error(ErrorCode::io_error, "clear: keys moved between servers in {} passes",
                    kMaxPasses);
}

Status list_pages(Servers& servers, const std::string& key_prefix, const Patience& patience,
                  const std::function<bool(const StoredPage&)>& visit) {
  if (Status map = servers.prepare(patience); !map) return map;
  std::unordered_set<std::string> seen;  // SCAN may give a key more than once
  for (Node* node : servers.masters()) {
    KeyScan scan(*node, key_prefix, patience);
    while (!scan.at_end()) {
      Result<std::vector<std::string>> keys = scan.next();
      if (!keys) return keys.error();
      Result<std::vector<ControlReply>> sizes = scan.each("STRLEN", *keys);
      if (!sizes) return sizes.error();
      for (std::size_t i = 0; i < keys->size(); ++i) {
        const redisReply& size = *(*sizes)[i];
        const auto prefix_bytes = static_cast<long long>(kPrefixBytes);
        const bool is_page = size.type == REDIS_REPLY_INTEGER && size.integer >= prefix_bytes &&
                             (*keys)[i].starts_with(key_prefix);
        if (!is_page || !seen.insert((*keys)[i]).second) continue;
        const StoredPage page{(*keys)[i].substr(key_prefix.size()),
                              static_cast<std::uint64_t>(size.integer - prefix_bytes)};
        if (!visit(page)) return {};
      }
    }
  }
  return {};
}

}  // namespace pando::redis
