// SPDX-License-Identifier: Apache-2.0
// A Redis store from outside: keys by SCAN on every master, their lengths and idle times in one
// pipeline, values by GET. A store's own reads remove what is damaged; these do not.
//
// How long a key was idle is asked for before anything else touches it, and servers from 7.2 on are
// told not to count us at all. One thread.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <unordered_set>

#include "base/check.h"
#include "store/redis/address.h"
#include "store/redis/key_scan.h"
#include "store/redis/page_value.h"
#include "store/redis/servers.h"
#include "store/store_reader.h"

namespace pando {
namespace {

using namespace redis;

constexpr int kMaxTries = 3;  // a slot may have moved

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Keys that were met, by 128 bits of hash: SCAN may give one more than once.
class SeenKeys {
 public:
  bool insert(std::string_view key) {
    const XXH128_hash_t hash = XXH3_128bits(key.data(), key.size());
    return seen_.insert({hash.low64, hash.high64}).second;
  }

 private:
  using Hash = std::pair<std::uint64_t, std::uint64_t>;
  struct Low {
    std::size_t operator()(const Hash& hash) const { return hash.first; }
  };
  std::unordered_set<Hash, Low> seen_;
};

/// The number behind "name:" in what INFO says.
std::uint64_t info_field(std::string_view info, std::string_view name) {
  const std::size_t at = info.find(fmt::format("\n{}:", name));
  if (at == info.npos) return 0;
  std::uint64_t value = 0;
  const char* begin = info.data() + at + name.size() + 2;
  std::from_chars(begin, info.data() + info.size(), value);
  return value;
}

Status check_value(std::string_view key, const redisReply& reply, std::vector<std::byte>& bytes) {
  if (reply.len < kPrefixBytes)
    return make_error(ErrorCode::corrupt, "the value has {} bytes, that of a page at least {}",
                      reply.len, kPrefixBytes);
  Prefix prefix;
  std::memcpy(prefix.data(), reply.str, prefix.size());
  const std::optional<PageTag> tag = decode_prefix(prefix);
  if (!tag) return make_error(ErrorCode::corrupt, "it does not begin with \"PNDO\" and version 1");
  bytes.resize(reply.len - kPrefixBytes);
  std::memcpy(bytes.data(), reply.str + kPrefixBytes, bytes.size());
  return check_tag(key, bytes, *tag);
}

class RedisReader final : public StoreReader {
 public:
  RedisReader(const RedisStoreOptions& options, std::unique_ptr<StoreBackend> store)
      : options_(options), servers_(options_), store_(std::move(store)) {}

  Status list(const VisitPage& page, const VisitOdd& odd) override {
    if (Status map = servers_.prepare(patience()); !map) return map;
    num_met_ = 0;
    if (Result<std::uint64_t> size = num_keys(); size) num_keys_ = *size;
    SeenKeys seen;
    for (Node* node : servers_.masters()) {
      KeyScan scan(*node, options_.key_prefix, patience());
      while (!scan.at_end()) {
        Result<std::vector<std::string>> keys = scan.next();
        if (!keys) return keys.error();
        std::erase_if(*keys, [&](const std::string& key) {
          return !key.starts_with(options_.key_prefix) || !seen.insert(key);
        });
        const Result<bool> more = look_at(*node, *keys, page, odd);
        if (!more) return more.error();
        if (!*more) return {};
      }
    }
    return {};
  }

  /// Of all keys in the servers: others may be beside ours.
  double progress() const override {
    return num_keys_ == 0 ? 0 : std::min(1.0, double(num_met_) / double(num_keys_));
  }
  std::string place(std::string_view key) const override {
    return fmt::format("{}{}", options_.key_prefix, key);
  }

  Status read(std::string_view key, std::vector<std::byte>& bytes) override {
    const std::string name = place(key);
    if (Status map = servers_.prepare(patience()); !map) return map;
    for (int attempt = 0; attempt < kMaxTries; ++attempt) {
      Node* node = servers_.owner(name);
      if (node == nullptr)
        return make_error(ErrorCode::io_error, "no server has the slot of this key");
      const Command commands[] = {{"CLIENT", "NO-TOUCH", "ON"}, {"GET", name}};
      Result<std::vector<ControlReply>> replies = node->ask(commands, patience());
      if (!replies) return replies.error();
      const redisReply& reply = *replies->back();
      if (reply.type == REDIS_REPLY_NIL)
        return make_error(ErrorCode::not_found, "it is not there any more");
      if (reply.type == REDIS_REPLY_STRING) return check_value(key, reply, bytes);
      if (!is_redirection(reply))
        return make_error(ErrorCode::io_error, "{}: GET: {}", node->name(), text_of(reply));
      if (Status map = servers_.refresh(patience()); !map) return map;
    }
    return make_error(ErrorCode::io_error, "it is moving between servers");
  }

  Result<StoreRoom> room() override {
    if (Status map = servers_.prepare(patience()); !map) return map.error();
    StoreRoom room{.capacity_bytes = 0, .used_bytes = 0};
    for (Node* node : servers_.masters()) {
      const Command info = {"INFO", "memory"};
      Result<std::vector<ControlReply>> replies = node->ask({&info, 1}, patience());
      if (!replies) return replies.error();
      const std::string_view text = text_of(*replies->front());
      *room.used_bytes += info_field(text, "used_memory");
      *room.capacity_bytes += info_field(text, "maxmemory");
    }
    if (*room.capacity_bytes == 0) room.capacity_bytes.reset();
    return room;
  }

  Status remove(const std::vector<std::string>& keys) override {
    std::vector<StorePage> pages;
    for (const std::string& key : keys) pages.push_back({key});
    StoreBatch batch(StoreBatch::Kind::remove, std::move(pages),
                     StoreBatch::Clock::time_point::max());
    store_->remove(batch);
    batch.finish({});
    return batch.status();
  }

  Result<std::string> put_away(const OddEntry& entry) override {
    if (Status removed = remove({entry.place.substr(options_.key_prefix.size())}); !removed)
      return removed.error();
    return std::string("removed");
  }

 private:
  Patience patience() const { return {nullptr, options_.io_timeout}; }

  Result<std::uint64_t> num_keys() {
    std::uint64_t total = 0;
    for (Node* node : servers_.masters()) {
      const Command size = {"DBSIZE"};
      Result<std::vector<ControlReply>> replies = node->ask({&size, 1}, patience());
      if (!replies) return replies.error();
      total += static_cast<std::uint64_t>(std::max(0LL, replies->front()->integer));
    }
    return total;
  }

  /// False: `page` wants no more.
  Result<bool> look_at(Node& node, const std::vector<std::string>& keys, const VisitPage& page,
                       const VisitOdd& odd) {
    std::vector<Command> commands = {{"CLIENT", "NO-TOUCH", "ON"}};
    for (const std::string& key : keys) {
      commands.push_back({"OBJECT", "IDLETIME", key});
      commands.push_back({"STRLEN", key});
    }
    Result<std::vector<ControlReply>> replies = node.ask(commands, patience());
    if (!replies) return replies.error();
    const std::int64_t now = now_ns();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ++num_met_;
      const redisReply& idle = *(*replies)[1 + 2 * i];
      const redisReply& length = *(*replies)[2 + 2 * i];
      const bool is_gone =
          idle.type == REDIS_REPLY_NIL || text_of(idle).starts_with("ERR no such key");
      if (is_gone) continue;
      if (is_redirection(length)) {
        odd({OddEntry::Kind::unreadable, keys[i], "it moved to another server meanwhile"});
      } else if (length.type != REDIS_REPLY_INTEGER) {
        odd({OddEntry::Kind::foreign, keys[i], std::string(text_of(length))});
      } else if (length.integer < static_cast<long long>(kPrefixBytes)) {
        odd({OddEntry::Kind::damaged, keys[i],
             fmt::format("the value has {} bytes, that of a page at least {}", length.integer,
                         kPrefixBytes)});
      } else {
        KeptPage found{.key = keys[i].substr(options_.key_prefix.size()),
                       .size_bytes = static_cast<std::uint64_t>(length.integer) - kPrefixBytes,
                       .kept_bytes = static_cast<std::uint64_t>(length.integer)};
        if (idle.type == REDIS_REPLY_INTEGER)  // not where the server counts uses instead
          found.used_ns = now - idle.integer * 1'000'000'000;
        if (!page(found)) return false;
      }
    }
    return true;
  }

  const RedisStoreOptions options_;
  Servers servers_;
  std::unique_ptr<StoreBackend> store_;  // removes
  std::uint64_t num_met_ = 0, num_keys_ = 0;
};

}  // namespace

Result<std::unique_ptr<StoreReader>> open_redis_reader(const RedisStoreOptions& options) {
  Result<std::unique_ptr<StoreBackend>> store = make_redis_store(options);
  if (!store) return store.error();
  return std::unique_ptr<StoreReader>(std::make_unique<RedisReader>(options, std::move(*store)));
}

}  // namespace pando
