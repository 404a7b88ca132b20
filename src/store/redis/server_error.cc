// SPDX-License-Identifier: Apache-2.0
// Error replies begin with a word in capitals; redirections go on with slot and address:
// "MOVED 3999 127.0.0.1:6381".
#include "store/redis/server_error.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "store/redis/key_slot.h"

namespace pando::redis {
namespace {

constexpr std::array<std::string_view, 5> kPassing = {"CLUSTERDOWN", "TRYAGAIN", "LOADING",
                                                      "READONLY", "MASTERDOWN"};

std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// One that cannot be read is fatal: there is nowhere to go.
ServerError parse_redirection(ServerError::Kind kind, std::string_view rest, const Address& from) {
  const std::string_view digits = take_word(rest);
  std::uint16_t slot = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slot);
  if (error != std::errc() || end != digits.data() + digits.size() || slot >= kNumSlots) return {};
  const std::string_view where = take_word(rest);
  Result<Address> address = where.rfind(':') == 0
                                ? parse_address(fmt::format("{}{}", from.host, where))
                                : parse_address(where);
  if (!address) return {};
  return {kind, slot, *address};
}

}  // namespace

ServerError classify_error(std::string_view text, const Address& from) {
  using Kind = ServerError::Kind;
  std::string_view rest = text;
  const std::string_view word = take_word(rest);
  if (word == "MOVED") return parse_redirection(Kind::moved, rest, from);
  if (word == "ASK") return parse_redirection(Kind::ask, rest, from);
  if (std::find(kPassing.begin(), kPassing.end(), word) != kPassing.end())
    return {.kind = Kind::try_again};
  if (rest.substr(0, 15) == "unknown command") return {.kind = Kind::unknown_command};
  return {};
}

}  // namespace pando::redis
