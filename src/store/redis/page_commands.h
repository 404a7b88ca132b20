// SPDX-License-Identifier: Apache-2.0
// The commands that pages are asked for and sent with, as RESP text. What they are for each kind of
// call, with and without a time to live, is decided here and nowhere else.
// Any thread; the store has one, and the calls share it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "pando/store.h"
#include "store/redis/page_value.h"
#include "store/redis/send_queue.h"

namespace pando::redis {

class PageCommands {
 public:
  PageCommands(std::string key_prefix, std::optional<std::chrono::milliseconds> ttl);

  std::string key(const StorePage& page) const;

  void add_exists(SendQueue& out, const StorePage& page) const;
  void add_remove(SendQueue& out, const StorePage& page) const;
  /// With a TTL it is one that a read renews, as long as the server knows GETEX.
  void add_get(SendQueue& out, const StorePage& page) const;
  /// To follow a plain GET. False: nothing to renew, or GETEX does it.
  bool add_renew(SendQueue& out, const StorePage& page) const;
  /// Overwrites, which also mends what is damaged and begins a new TTL. The pieces are not copied.
  void add_put(SendQueue& out, const StorePage& page, const PageTag& tag) const;
  void add_asking(SendQueue& out) const;

  /// A server before 6.2: from now on GET and PEXPIRE.
  void forget_getex() { getex_.store(false, std::memory_order_relaxed); }
  bool uses_getex() const { return ttl_ && getex_.load(std::memory_order_relaxed); }

 private:
  const std::string key_prefix_;
  const std::optional<std::string> ttl_;  // milliseconds
  std::atomic<bool> getex_ = true;
};

}  // namespace pando::redis
