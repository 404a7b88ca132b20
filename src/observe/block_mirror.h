// SPDX-License-Identifier: Apache-2.0
// What is cached where, known from events alone: the blocks of every tier with all that a stored
// event tells of them. state() tells it again, so that who hears it from the start knows the same.
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "pando/events.h"

namespace pando {

class BlockMirror {
 public:
  void apply(const KvEvent& event);
  void clear() { blocks_.clear(); }
  std::size_t size() const { return blocks_.size(); }

  /// Calls visit(event) with stored events of at most `max_blocks` blocks each: every block once,
  /// behind its parent where that is there too.
  void state(std::size_t max_blocks, const std::function<void(KvEvent)>& visit) const;

 private:
  struct Name {
    Tier tier;
    std::uint32_t group;
    PageHash hash;
    friend bool operator==(const Name&, const Name&) = default;
  };
  /// The hash is one already; media and groups are few.
  struct NameHash {
    std::size_t operator()(const Name& name) const {
      std::uint64_t word;
      std::memcpy(&word, name.hash.data(), sizeof word);
      return word + static_cast<std::size_t>(name.tier) + 31 * std::size_t{name.group};
    }
  };
  struct Block {
    std::optional<PageHash> parent;
    std::vector<Token> tokens;
    std::shared_ptr<const std::string> ns;
    std::vector<ExtraKey> extra_keys;
    std::uint32_t block_size = 0;
    std::uint32_t hash_bytes = 0;
  };
  using Blocks = std::unordered_map<Name, Block, NameHash>;
  using Entry = Blocks::value_type;

  static KvEvent event_of(const Entry& entry);
  static bool continues(const KvEvent& event, const Entry& entry);
  static void append(KvEvent& event, const Entry& entry);

  Blocks blocks_;
};

}  // namespace pando
