// SPDX-License-Identifier: Apache-2.0
// Keys in 36 bytes. A key of a KeySpace is 64 hexadecimal digits and a tail that all keys of the
// space share: the digits are kept as 32 bytes and the tail as a number. Any other key is all tail.
// Belongs to whoever locks the index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pando {

struct PackedKey {
  std::array<std::uint8_t, 32> head = {};  // zero where there is none
  std::uint32_t tail = 0;                  // of a KeyTails

  friend bool operator==(const PackedKey&, const PackedKey&) = default;
};

/// The tails in use, each with the number of keys that hold it; it goes with the last.
class KeyTails {
 public:
  /// Nothing: no key held has this tail.
  std::optional<PackedKey> find(std::string_view key) const;
  /// Holds the key's tail once more.
  PackedKey hold(std::string_view key);
  void release(const PackedKey& key);
  std::string text(const PackedKey& key) const;
  std::size_t size() const { return numbers_.size(); }

 private:
  struct Tail {
    std::string_view text;  // of the map's key, which stays where it is
    bool has_head = false;
    std::size_t num_keys = 0;
  };

  std::map<std::string, std::uint32_t, std::less<>> numbers_;  // by '+' or '-' (a head?) and text
  std::vector<Tail> tails_;
  std::vector<std::uint32_t> free_;
};

}  // namespace pando
