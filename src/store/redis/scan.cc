// SPDX-License-Identifier: Apache-2.0
// SCAN gives some keys at a time; what is done with them goes out as one pipeline of single-key
// commands, as a cluster takes commands of several keys only where all are of one slot.
#include "store/redis/scan.h"

#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "store/redis/page_value.h"

namespace pando::redis {
namespace {

constexpr int kKeysPerScan = 1000;
// Slots may move while they are scanned; more often than this, something is wrong.
constexpr int kMaxPasses = 5;

std::string escape_glob(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("*?[]^-\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string_view text_of(const redisReply& reply) {
  return reply.str == nullptr ? std::string_view() : std::string_view(reply.str, reply.len);
}

bool is_redirection(const redisReply& reply) {
  return reply.type == REDIS_REPLY_ERROR &&
         (text_of(reply).starts_with("MOVED ") || text_of(reply).starts_with("ASK "));
}

class Scan {
 public:
  Scan(Node& node, const std::string& key_prefix, const Patience& patience)
      : node_(node), pattern_(escape_glob(key_prefix) + '*'), patience_(patience) {}

  bool at_end() const { return at_end_; }

  /// Some keys, or none although more may follow.
  Result<std::vector<std::string>> next() {
    const Command scan = {"SCAN",   cursor_, "MATCH",
                          pattern_, "COUNT", fmt::format("{}", kKeysPerScan)};
    Result<std::vector<ControlReply>> replies = node_.ask({&scan, 1}, patience_);
    if (!replies) return replies.error();
    const redisReply& reply = *replies->front();
    const bool is_scan = reply.type == REDIS_REPLY_ARRAY && reply.elements == 2 &&
                         reply.element[0]->type == REDIS_REPLY_STRING &&
                         reply.element[1]->type == REDIS_REPLY_ARRAY;
    if (!is_scan) {
      return make_error(
          ErrorCode::io_error, "{}: SCAN: {}", node_.name(),
          reply.type == REDIS_REPLY_ERROR ? text_of(reply) : "expected a cursor and keys");
    }
    cursor_ = text_of(*reply.element[0]);
    at_end_ = cursor_ == "0";
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < reply.element[1]->elements; ++i)
      keys.emplace_back(text_of(*reply.element[1]->element[i]));
    return keys;
  }

  /// One command for each key.
  Result<std::vector<ControlReply>> each(std::string_view verb,
                                         const std::vector<std::string>& keys) {
    std::vector<Command> commands;
    for (const std::string& key : keys) commands.push_back({std::string(verb), key});
    if (commands.empty()) return std::vector<ControlReply>();
    return node_.ask(commands, patience_);
  }

 private:
  Node& node_;
  const std::string pattern_;
  const Patience& patience_;
  std::string cursor_ = "0";
  bool at_end_ = false;
};

// True: keys moved away under our hands, so another pass is needed.
Result<bool> clear_node(Node& node, const std::string& key_prefix, const Patience& patience) {
  Scan scan(node, key_prefix, patience);
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
    Scan scan(*node, key_prefix, patience);
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
