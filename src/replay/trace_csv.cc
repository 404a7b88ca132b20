// SPDX-License-Identifier: Apache-2.0
// Lines of CSV that tell lengths alone. Columns by name, in any order; others are passed over.
// Block i of a session is the same block in all its requests: each extends the one before. Without
// a session all blocks of a request are new.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <ctime>

#include "base/check.h"
#include "replay/mix.h"
#include "replay/trace_file.h"

namespace pando {
namespace {

enum Column : std::size_t { kTime, kInput, kOutput, kSession, kNumColumns };

struct Name {
  std::string_view name;
  Column column;
};
constexpr Name kNames[] = {
    {"timestamp", kTime},           {"time", kTime},
    {"arrived_at", kTime},          {"arrival_time", kTime},
    {"input_length", kInput},       {"input_tokens", kInput},
    {"prompt_tokens", kInput},      {"contexttokens", kInput},
    {"num_prefill_tokens", kInput}, {"output_length", kOutput},
    {"output_tokens", kOutput},     {"generatedtokens", kOutput},
    {"num_decode_tokens", kOutput}, {"session", kSession},
    {"session_id", kSession},       {"conversation_id", kSession},
};

std::string_view trim(std::string_view text) {
  const std::size_t from = text.find_first_not_of(" \t\"");
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(" \t\"") - from + 1);
}

/// Calls fn(number, text) for each cell.
template <typename Fn>
void for_each_cell(std::string_view line, Fn&& fn) {
  for (std::size_t i = 0;; ++i) {
    const std::size_t end = line.find(',');
    fn(i, trim(line.substr(0, end)));
    if (end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
  }
}

template <typename T>
std::optional<T> number_in(std::string_view text) {
  T number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Milliseconds, or a date such as 2023-11-16 18:17:03.979.
std::optional<double> seconds_in(std::string_view text) {
  if (const auto ms = number_in<double>(text)) {
    if (*ms >= 0) return *ms / 1000;
    return std::nullopt;
  }
  const std::string date(text.substr(0, 19));
  std::tm parts{};
  const char* end = strptime(date.c_str(), "%Y-%m-%d %H:%M:%S", &parts);
  if (end == nullptr) end = strptime(date.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  double fraction = 0;
  if (text.size() > 19 && text[19] == '.') {
    const std::string_view digits = text.substr(20, text.find_first_of("Z+", 20) - 20);
    if (const auto number = number_in<std::uint64_t>(digits)) {
      fraction = static_cast<double>(*number);
      for (std::size_t i = 0; i < digits.size(); ++i) fraction /= 10;
    }
  }
  return static_cast<double>(timegm(&parts)) + fraction;
}

class CsvParser final : public LineParser {
 public:
  CsvParser(std::array<std::optional<std::size_t>, kNumColumns> columns, std::size_t block_tokens)
      : columns_(columns), block_tokens_(block_tokens) {}

  Status parse(std::string_view line, TraceRequest& request) override {
    std::array<std::string_view, kNumColumns> cells{};
    for_each_cell(line, [&](std::size_t i, std::string_view text) {
      for (std::size_t c = 0; c < kNumColumns; ++c) {
        if (columns_[c] == i) cells[c] = text;
      }
    });
    const auto length = [](std::string_view text) { return number_in<std::uint32_t>(text); };
    const auto input = length(cells[kInput]);
    if (!input) return expected(cells[kInput], "the number of input tokens");
    const auto output =
        columns_[kOutput] ? length(cells[kOutput]) : std::optional<std::uint32_t>(0);
    if (!output) return expected(cells[kOutput], "the number of output tokens");
    const auto time = columns_[kTime] ? seconds_in(cells[kTime]) : std::optional(0.0);
    if (!time) return expected(cells[kTime], "milliseconds or a date");
    if (!first_time_) first_time_ = *time;
    request.arrival_s = std::max(0.0, *time - *first_time_);
    request.input_length = *input;
    request.output_length = *output;
    request.session = cells[kSession];
    request.tokens.clear();
    const std::uint64_t seed = request.session.empty()
                                   ? ++num_alone_
                                   : XXH3_64bits(request.session.data(), request.session.size());
    request.blocks.resize((*input + block_tokens_ - 1) / block_tokens_);
    for (std::size_t i = 0; i < request.blocks.size(); ++i)
      request.blocks[i] = mix(seed, i) >> (block_tokens_ < 3 ? 33 : 0);
    return {};
  }
  std::size_t block_tokens() const override { return block_tokens_; }
  std::string_view format() const override { return "lengths"; }

 private:
  static Error expected(std::string_view text, std::string_view what) {
    return make_error(ErrorCode::invalid_argument, "\"{}\": expected {}", text, what);
  }

  const std::array<std::optional<std::size_t>, kNumColumns> columns_;
  const std::size_t block_tokens_;
  std::optional<double> first_time_;
  std::uint64_t num_alone_ = 0;
};

}  // namespace

Result<std::unique_ptr<LineParser>> make_csv_parser(const TraceOptions& options,
                                                    std::string_view header) {
  std::array<std::optional<std::size_t>, kNumColumns> columns;
  for_each_cell(header, [&](std::size_t i, std::string_view text) {
    std::string name(text);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const Name& known : kNames) {
      if (known.name == name && !columns[known.column]) columns[known.column] = i;
    }
  });
  if (!columns[kInput])
    return make_error(ErrorCode::invalid_argument,
                      "neither a JSON object nor a CSV header with a column \"input_length\"");
  return std::unique_ptr<LineParser>(
      std::make_unique<CsvParser>(columns, options.block_tokens.value_or(512)));
}

}  // namespace pando
