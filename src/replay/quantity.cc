// SPDX-License-Identifier: Apache-2.0
// Reads "64k" and the like, with std::from_chars: no locale, no sign, no silent wrap.
#include "replay/quantity.h"

#include <charconv>
#include <limits>
#include <optional>
#include <system_error>

#include "base/check.h"

namespace pando {
namespace {

std::optional<std::uint64_t> factor_of(std::string_view suffix) {
  if (suffix.empty()) return 1;
  if (suffix == "k" || suffix == "K") return 1'000;
  if (suffix == "M") return 1'000'000;
  if (suffix == "G") return 1'000'000'000;
  return std::nullopt;
}

}  // namespace

Result<std::uint64_t> parse_quantity(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::invalid_argument)
    return make_error(ErrorCode::invalid_argument,
                      "'{}' is not a quantity, expected a number such as 4096, 64k or 1M", text);

  const std::string_view suffix = text.substr(static_cast<std::size_t>(rest - text.data()));
  const std::optional<std::uint64_t> factor = factor_of(suffix);
  if (!factor)
    return make_error(ErrorCode::invalid_argument,
                      "'{}' ends in '{}', expected nothing or one of k, M, G", text, suffix);
  if (error == std::errc::result_out_of_range ||
      number > std::numeric_limits<std::uint64_t>::max() / *factor)
    return make_error(ErrorCode::invalid_argument, "'{}' is too large, expected below 2^64", text);
  return number * *factor;
}

}  // namespace pando
