// SPDX-License-Identifier: Apache-2.0
// What `pando top` shows, from the metrics of docs/metrics.md: sizes as they are, rates and
// latencies of the time between two scrapes, and shares since the start. A metric that is not there
// is shown as "-". Values only; no terminal.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/exposition.h"

namespace pando::tools {

using Figure = std::optional<double>;

struct TopView {
  struct Tier {
    std::string name;
    Figure used, in_use, capacity;  ///< in_use: by requests, so that it cannot go
    bool is_bytes = false;          ///< else tokens
  };
  struct Rate {
    std::string name;
    Figure per_s;  ///< nothing before the second scrape
    Figure total;  ///< since the start
    bool is_bytes = false;
  };
  struct Call {
    std::string name;
    Figure per_s;
    Figure p50_s, p99_s;  ///< of the interval; since the start, before the second scrape
    Figure total;
  };

  Figure hit_ratio, hit_ratio_total;  ///< of the interval, since the start
  std::vector<Tier> tiers;
  std::vector<Rate> rates;
  std::vector<Call> calls;                             ///< those that ever were made
  std::vector<std::pair<std::string, Figure>> flight;  ///< under way
  std::vector<Rate> failures;                          ///< those that there were
};

/// `before` is the scrape `seconds` ago, or null.
TopView make_view(const Exposition* before, const Exposition& now, double seconds);

nlohmann::ordered_json to_json(const TopView& view);

struct TopStyle {
  bool colour = false;
};
/// Lines of text, each with its end.
std::string to_text(const TopView& view, const TopStyle& style);

}  // namespace pando::tools
