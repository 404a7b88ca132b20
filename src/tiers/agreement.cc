// SPDX-License-Identifier: Apache-2.0
// What ranks compare before they begin; see the header.
#include "tiers/agreement.h"

#include "base/check.h"

namespace pando {

Status agree_on_settings(Agreement& ranks, const Status& here,
                         std::span<const RankSetting> settings) {
  std::vector<std::int64_t> told = {here.ok()};
  for (const RankSetting& setting : settings) {
    told.push_back(static_cast<std::int64_t>(setting.value));
    told.push_back(-told.back());  // the least of these tells the greatest
  }
  ranks.least(told);
  if (!here.ok()) return here;
  if (ranks.lost())
    return make_error(ErrorCode::unavailable, "create: the ranks do not reach each other");
  if (told[0] == 0)
    return make_error(ErrorCode::unavailable, "create: another rank has refused its options");
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const std::int64_t least = told[1 + 2 * i], most = -told[2 + 2 * i];
    if (least != most)
      return make_error(ErrorCode::invalid_argument,
                        "create: {} is {} here, and from {} to {} on all ranks; expected the same "
                        "everywhere",
                        settings[i].name, settings[i].value, least, most);
  }
  return {};
}

}  // namespace pando
