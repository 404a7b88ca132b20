// SPDX-License-Identifier: Apache-2.0
// A line is a comment, or name{label="value",...} value [timestamp]. In values of labels \\, \" and
// \n stand for a backslash, a quote and a line's end.
#include "tools/exposition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "base/check.h"

namespace pando::tools {
namespace {

bool is_name(char c, bool is_first) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
  return is_letter || (!is_first && c >= '0' && c <= '9');
}

/// Reads one line from left to right; false where it makes no sense.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  bool read(Sample& sample) {
    if (!name(sample.name)) return false;
    skip_blanks();
    if (take('{') && !labels(sample.labels)) return false;
    if (!number(sample.value)) return false;
    skip_blanks();
    if (rest_.empty()) return true;
    double timestamp = 0;
    return number(timestamp) && (skip_blanks(), rest_.empty());
  }

 private:
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool name(std::string& out) {
    std::size_t n = 0;
    while (n < rest_.size() && is_name(rest_[n], n == 0)) ++n;
    out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return n > 0;
  }
  bool labels(Labels& out) {
    while (true) {
      skip_blanks();
      if (take('}')) return true;
      std::string label, value;
      if (!name(label)) return false;
      skip_blanks();
      if (!take('=')) return false;
      skip_blanks();
      if (!take('"') || !text(value) || !out.emplace(std::move(label), std::move(value)).second)
        return false;
      skip_blanks();
      if (!take(',') && (rest_.empty() || rest_.front() != '}')) return false;
    }
  }
  bool text(std::string& out) {
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (c != '\\') {
        out += c;
      } else if (take('n')) {
        out += '\n';
      } else if (take('"')) {
        out += '"';
      } else if (take('\\')) {
        out += '\\';
      } else {
        return false;
      }
    }
    return false;
  }
  bool number(double& out) {
    skip_blanks();
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t"));
    rest_.remove_prefix(word.size());
    // from_chars knows no plus sign; "inf" and "nan" it knows in any case.
    const std::string_view digits =
        word.starts_with('+') && !word.starts_with("+-") ? word.substr(1) : word;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), out);
    return error == std::errc() && !digits.empty() && end == digits.end();
  }

  std::string_view rest_;
};

bool has(const Sample& sample, std::string_view name, const Labels& labels) {
  if (sample.name != name) return false;
  return std::all_of(labels.begin(), labels.end(), [&](const auto& wanted) {
    const auto found = sample.labels.find(wanted.first);
    return found != sample.labels.end() && found->second == wanted.second;
  });
}

}  // namespace

Result<Exposition> Exposition::parse(std::string_view text) {
  Exposition exposition;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == line.npos || line[begin] == '#') continue;
    Sample sample;
    if (!LineReader(line.substr(begin)).read(sample))
      return make_error(ErrorCode::corrupt, "not Prometheus text: line {} is '{}'", number,
                        line.substr(0, 60));
    exposition.samples_.push_back(std::move(sample));
  }
  return exposition;
}

std::optional<double> Exposition::sum(std::string_view name, const Labels& labels) const {
  std::optional<double> total;
  for (const Sample& sample : samples_) {
    if (!has(sample, name, labels) || !std::isfinite(sample.value)) continue;
    total = total.value_or(0) + sample.value;
  }
  return total;
}

std::vector<std::string> Exposition::values_of(std::string_view name,
                                               std::string_view label) const {
  std::set<std::string> values;
  for (const Sample& sample : samples_) {
    if (sample.name != name) continue;
    if (const auto found = sample.labels.find(label); found != sample.labels.end())
      values.insert(found->second);
  }
  return {values.begin(), values.end()};
}

Buckets Exposition::buckets(std::string_view name, const Labels& labels) const {
  Buckets buckets;
  const std::string series = std::string(name) + "_bucket";
  for (const Sample& sample : samples_) {
    if (!has(sample, series, labels) || !std::isfinite(sample.value)) continue;
    const auto le = sample.labels.find("le");
    if (le == sample.labels.end()) continue;
    const std::string_view text = le->second;
    const std::string_view digits = text.starts_with('+') ? text.substr(1) : text;
    double bound = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), bound);
    if (error == std::errc() && end == digits.end() && !std::isnan(bound))
      buckets[bound] += sample.value;
  }
  return buckets;
}

Buckets buckets_since(const Buckets& before, const Buckets& now) {
  Buckets since;
  for (const auto& [bound, count] : now) {
    const auto was = before.find(bound);
    const double earlier = was == before.end() ? 0 : was->second;
    if (count < earlier) return now;
    since[bound] = count - earlier;
  }
  return since;
}

std::optional<double> quantile(const Buckets& buckets, double share) {
  if (buckets.empty() || !(buckets.rbegin()->second > 0)) return std::nullopt;
  const double rank = share * buckets.rbegin()->second;
  double lower = 0, below = 0;
  for (const auto& [bound, count] : buckets) {
    if (count >= rank && count > below) {
      if (std::isinf(bound)) return lower;
      const double from = std::min(lower, bound);  // the first bucket may end below zero
      return from + (bound - from) * (rank - below) / (count - below);
    }
    lower = bound;
    below = count;
  }
  return lower;
}

}  // namespace pando::tools
