// SPDX-License-Identifier: Apache-2.0
// How much more a token costs to compute the further into its prompt it is, as measured: a line
// through the time per token of prefills over how deep, on average, they were. Late reports count
// more: the last few hundred make up most of it.
#pragma once

#include <cstddef>
#include <optional>

namespace pando {

class PrefillCost {
 public:
  /// `num_tokens` behind `cached_tokens` took so many seconds, all above 0 but those cached.
  void add(std::size_t num_tokens, std::size_t cached_tokens, double seconds) {
    const auto n = static_cast<double>(num_tokens);
    const double depth = static_cast<double>(cached_tokens) + n / 2;
    const double per_token = seconds / n;
    for (double* sum : {&weight_, &depth_, &time_, &depth_squared_, &depth_time_}) *sum *= kDecay;
    weight_ += n;
    depth_ += n * depth;
    time_ += n * per_token;
    depth_squared_ += n * depth * depth;
    depth_time_ += n * depth * per_token;
    ++num_reports_;
  }

  /// The depth at which attention costs as much as all the rest; nothing while that is not clear.
  std::optional<double> attention_tokens() const {
    const double variance = depth_squared_ * weight_ - depth_ * depth_;
    if (num_reports_ < kEnoughReports || variance <= 0) return std::nullopt;
    const double slope = (depth_time_ * weight_ - depth_ * time_) / variance;
    const double at_start = (time_ - slope * depth_) / weight_;
    if (slope <= 0 || at_start <= 0) return std::nullopt;
    return at_start / slope;
  }

 private:
  static constexpr double kDecay = 0.995;
  static constexpr std::size_t kEnoughReports = 16;

  double weight_ = 0, depth_ = 0, time_ = 0, depth_squared_ = 0, depth_time_ = 0;
  std::size_t num_reports_ = 0;
};

}  // namespace pando
