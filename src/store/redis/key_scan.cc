// SPDX-License-Identifier: Apache-2.0
// KeyScan: one SCAN command after the other.
#include "store/redis/key_scan.h"

#include "base/check.h"

namespace pando::redis {
namespace {

constexpr int kKeysPerScan = 1000;

std::string escape_glob(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (std::string_view("*?[]^-\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

KeyScan::KeyScan(Node& node, const std::string& key_prefix, const Patience& patience)
    : node_(node), pattern_(escape_glob(key_prefix) + '*'), patience_(patience) {}

Result<std::vector<std::string>> KeyScan::next() {
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

Result<std::vector<ControlReply>> KeyScan::each(std::string_view verb,
                                                const std::vector<std::string>& keys) {
  std::vector<Command> commands;
  for (const std::string& key : keys) commands.push_back({std::string(verb), key});
  if (commands.empty()) return std::vector<ControlReply>();
  return node_.ask(commands, patience_);
}

}  // namespace pando::redis
