// SPDX-License-Identifier: Apache-2.0
// Reads capacities with std::from_chars: no locale, no sign, no silent wrap.
#include "replay/capacity.h"

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace pando {
namespace {

struct Suffix {
  std::string_view text;
  Capacity::Unit unit;
  double factor;
};
constexpr Suffix kSuffixes[] = {
    {"tok", Capacity::Unit::tokens, 1},        {"ktok", Capacity::Unit::tokens, 1e3},
    {"Mtok", Capacity::Unit::tokens, 1e6},     {"Gtok", Capacity::Unit::tokens, 1e9},
    {"B", Capacity::Unit::bytes, 1},           {"KiB", Capacity::Unit::bytes, 1024},
    {"MiB", Capacity::Unit::bytes, 1 << 20},   {"GiB", Capacity::Unit::bytes, 1 << 30},
    {"TiB", Capacity::Unit::bytes, 1LL << 40}, {"kB", Capacity::Unit::bytes, 1e3},
    {"MB", Capacity::Unit::bytes, 1e6},        {"GB", Capacity::Unit::bytes, 1e9},
    {"TB", Capacity::Unit::bytes, 1e12},       {"blocks", Capacity::Unit::blocks, 1},
    {"%", Capacity::Unit::share, 0.01},
};

}  // namespace

Result<Capacity> parse_capacity(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(rest - text.data()));
  if (error == std::errc() && std::isfinite(number) && number >= 0) {
    for (const Suffix& known : kSuffixes) {
      if (known.text == suffix)
        return Capacity{known.unit, number * known.factor, std::string(text)};
    }
  }
  return make_error(ErrorCode::invalid_argument,
                    "'{}' is not a capacity; expected tokens (3000000tok, 3Mtok), bytes (64GiB), "
                    "blocks (9139blocks) or a share of the different blocks (5%)",
                    text);
}

Result<std::uint64_t> parse_quantity(std::string_view text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(rest - text.data()));
  std::uint64_t factor = 0;
  if (suffix.empty()) factor = 1;
  if (suffix == "k") factor = 1'000;
  if (suffix == "M") factor = 1'000'000;
  if (suffix == "G") factor = 1'000'000'000;
  if (error != std::errc() || factor == 0 || number > UINT64_MAX / factor)
    return make_error(ErrorCode::invalid_argument,
                      "'{}' is not a quantity; expected a number such as 4096, 64k or 1M", text);
  return number * factor;
}

Result<std::size_t> to_tokens(const Capacity& capacity, const Measures& measures) {
  double tokens = capacity.value;
  switch (capacity.unit) {
    case Capacity::Unit::tokens:
      break;
    case Capacity::Unit::blocks:
      tokens *= static_cast<double>(measures.block_tokens);
      break;
    case Capacity::Unit::bytes:
      if (!measures.token_bytes)
        return make_error(ErrorCode::invalid_argument,
                          "{}: bytes need a model that says what a token takes", capacity.text);
      tokens /= static_cast<double>(*measures.token_bytes);
      break;
    case Capacity::Unit::share: {
      if (!measures.unique_blocks)
        return make_error(ErrorCode::invalid_argument,
                          "{}: a share needs a trace that can be read twice, to count its blocks",
                          capacity.text);
      // Whole blocks; a little more than a whole number is one that was divided inexactly.
      const double blocks =
          std::floor(tokens * static_cast<double>(*measures.unique_blocks) + 1e-6);
      tokens = blocks * static_cast<double>(measures.block_tokens);
      break;
    }
  }
  if (tokens >= 0x1p40)
    return make_error(ErrorCode::invalid_argument,
                      "{} is too large: {} tokens, expected below 2^40", capacity.text, tokens);
  return static_cast<std::size_t>(tokens);
}

}  // namespace pando
