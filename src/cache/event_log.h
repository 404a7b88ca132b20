// SPDX-License-Identifier: Apache-2.0
// Collects KV events in order and merges neighbours: a stored run that continues the one before,
// removals one after another. PrefixCache records; take() hands everything over at once.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pando/events.h"
#include "pando/types.h"

namespace pando {

class EventLog {
 public:
  EventLog(std::size_t page_size, std::size_t overlap) : page_size_(page_size), overlap_(overlap) {}

  /// `tokens` are the raw tokens of all pages, overlap included.
  void stored(Tier tier, std::string_view ns, const PageHash* parent,
              std::span<const PageHash> hashes, std::span<const Token> tokens);
  /// As the event says; continues the last one if it does.
  void stored(KvEvent event);
  void removed(Tier tier, std::span<const PageHash> hashes, std::uint32_t group = 0,
               std::size_t hash_bytes = sizeof(PageHash));
  void cleared();

  std::vector<KvEvent> take() { return std::exchange(events_, {}); }

 private:
  bool continues_last(Tier tier, std::string_view ns, const PageHash& parent,
                      std::uint32_t group) const;

  std::size_t page_size_;
  std::size_t overlap_;
  std::vector<KvEvent> events_;
};

}  // namespace pando
