// SPDX-License-Identifier: Apache-2.0
// The text that a Prometheus endpoint answers with (format 0.0.4), read into samples, and the few
// questions that `pando top` asks of them. Values only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"

namespace pando::tools {

using Labels = std::map<std::string, std::string, std::less<>>;

struct Sample {
  std::string name;
  Labels labels = {};
  double value = 0;

  friend bool operator==(const Sample&, const Sample&) = default;
};

/// Cumulative counts by upper bound, the last of which is +Inf.
using Buckets = std::map<double, double>;

class Exposition {
 public:
  /// corrupt, with the line, where it is no such text.
  static Result<Exposition> parse(std::string_view text);

  const std::vector<Sample>& samples() const { return samples_; }
  /// Of all samples of this name that have these labels, among others. Nothing: there is none.
  /// Those that are no number are left out.
  std::optional<double> sum(std::string_view name, const Labels& labels = {}) const;
  /// Different values that a label of this name has, sorted.
  std::vector<std::string> values_of(std::string_view name, std::string_view label) const;
  /// Of the histogram `name`, those with these labels added up.
  Buckets buckets(std::string_view name, const Labels& labels = {}) const;

 private:
  std::vector<Sample> samples_;
};

/// What came since `before`. A histogram that began anew counts from zero.
Buckets buckets_since(const Buckets& before, const Buckets& now);

/// As Prometheus estimates it: linear inside a bucket; in the last, its lower bound. Nothing: there
/// is nothing in it.
std::optional<double> quantile(const Buckets& buckets, double share);

}  // namespace pando::tools
