// SPDX-License-Identifier: Apache-2.0
// From options by name to the fields of a struct; see the header.
#include "store/option_reader.h"

#include <cmath>

#include "base/check.h"

namespace pando {
namespace {

constexpr double kMaxSeconds = 1e9;  // 31 years, and far from the end of any clock

}  // namespace

bool OptionReader::given(std::string_view name) {
  known_.push_back(name);
  return config_.has(name);
}

void OptionReader::fail(Error error) {
  if (!error_) error_ = std::move(error);
}

template <typename T>
bool OptionReader::take(const Result<T>& value) {
  if (!value) fail(value.error());
  return value.ok();
}

void OptionReader::read(std::string_view name, bool& field) {
  if (!given(name)) return;
  if (const auto value = config_.boolean(name, field); take(value)) field = *value;
}

void OptionReader::read(std::string_view name, double& field) {
  if (!given(name)) return;
  if (const auto value = config_.number(name, field); take(value)) field = *value;
}

void OptionReader::read(std::string_view name, std::string& field) {
  if (!given(name)) return;
  if (const auto value = config_.text(name, {}); take(value)) field = *value;
}

void OptionReader::read(std::string_view name, std::vector<std::string>& field) {
  if (!given(name)) return;
  if (const auto value = config_.list(name); take(value)) field = *value;
}

void OptionReader::read(std::string_view name, std::chrono::milliseconds& field) {
  if (!given(name)) return;
  const auto seconds = config_.number(name, 0);
  if (!take(seconds)) return;
  if (!(*seconds >= 0 && *seconds <= kMaxSeconds)) {
    fail(make_error(ErrorCode::invalid_argument, "{} must be seconds from 0 to {}, got {}", name,
                    kMaxSeconds, *seconds));
    return;
  }
  // Upwards, so that a short time does not become none.
  field = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
}

void OptionReader::read(std::string_view name, std::optional<std::chrono::milliseconds>& field) {
  std::chrono::milliseconds value(0);
  read(name, value);
  if (config_.has(name)) field = value;
}

void OptionReader::read_bytes(std::string_view name, std::uint64_t& field) {
  if (!given(name)) return;
  if (const auto value = config_.bytes(name, field); take(value)) field = *value;
}

void OptionReader::read_count(std::string_view name, std::size_t& field) {
  if (!given(name)) return;
  const auto value = config_.integer(name, 0);
  if (!take(value)) return;
  if (*value < 0)
    fail(make_error(ErrorCode::invalid_argument, "{} must be at least 0, got {}", name, *value));
  else
    field = static_cast<std::size_t>(*value);
}

Status OptionReader::finish() const {
  const Status known = config_.refuse_unknown(known_);
  if (!error_ && known.ok()) return {};
  const Error& error = error_ ? *error_ : known.error();
  return make_error(error.code, "{}: {}", what_, error.message);
}

}  // namespace pando
