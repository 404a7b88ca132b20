// SPDX-License-Identifier: Apache-2.0
// Load, or compute again? Compares what both would take by what they have taken lately. What has
// never been measured is loaded; so is one in so many that would be turned down, or a tier that was
// slow once would never be measured again.
#pragma once

#include <cstddef>
#include <optional>

#include "pando/tiers.h"

namespace pando {

/// Work per second, over about the last ten measurements.
class Rate {
 public:
  void add(double amount, double seconds) {
    amount_ = amount_ * kKept + amount;
    seconds_ = seconds_ * kKept + seconds;
  }
  bool is_known() const { return seconds_ > 0; }
  double per_second() const { return is_known() ? amount_ / seconds_ : 0; }

 private:
  static constexpr double kKept = 0.9;
  double amount_ = 0;
  double seconds_ = 0;
};

class CostGate {
 public:
  explicit CostGate(const std::optional<CostGateOptions>& options) : options_(options) {}

  Rate loaded_bytes, fetched_bytes, prefilled_tokens;

  bool is_on() const { return options_.has_value(); }
  /// To be asked once for each load or fetch: ranks count alike.
  bool next_is_probe() {
    return is_on() && options_->probe_every != 0 && ++num_asked_ % options_->probe_every == 0;
  }
  bool is_worth(double bytes_to_load, double bytes_to_fetch, std::size_t num_tokens) const {
    if (!is_on() || !prefilled_tokens.is_known() || !loaded_bytes.is_known()) return true;
    double seconds = bytes_to_load / loaded_bytes.per_second();
    if (bytes_to_fetch > 0) {
      if (!fetched_bytes.is_known()) return true;
      seconds += bytes_to_fetch / fetched_bytes.per_second();  // endless if nothing ever came
    }
    const double computing = static_cast<double>(num_tokens) / prefilled_tokens.per_second();
    return seconds <= options_->max_ratio * computing;
  }

 private:
  std::optional<CostGateOptions> options_;
  std::size_t num_asked_ = 0;
};

}  // namespace pando
