// SPDX-License-Identifier: Apache-2.0
// What the ranks that mirror one cache agree on. Everything that depends on local timing or luck
// (has this copy ended, is there room) is a number, larger is better, and what counts is the least
// of all ranks. Alone, it is one's own, and costs nothing.
//
// Every rank makes the same calls in the same order. Once an exchange has failed nothing is agreed
// on any more: every number is 0, so nothing is started or made visible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pando/ranks.h"

namespace pando {

/// How far something is that runs by itself. What has failed on one rank has failed on all.
inline constexpr std::int64_t kUnderWay = 0, kFailed = 1, kDone = 2;

/// A number for each of a list that is applied in order: what comes after one that is under way
/// need not be looked at.
template <typename List, typename Fn>
void report_in_order(const List& list, std::vector<std::int64_t>& values, Fn&& progress) {
  bool look = true;
  for (const auto& item : list) {
    const std::int64_t value = look ? progress(item) : kUnderWay;
    look = value != kUnderWay;
    values.push_back(value);
  }
}

class Agreement {
 public:
  explicit Agreement(Ranks* ranks)
      : ranks_(ranks != nullptr && ranks->size() > 1 ? ranks : nullptr) {}

  bool alone() const { return ranks_ == nullptr; }
  bool lost() const { return lost_; }

  void least(std::span<std::int64_t> values) {
    if (alone() || values.empty()) return;
    if (!lost_) lost_ = !exchange(values);
    if (!lost_) return;
    for (std::int64_t& value : values) value = 0;
  }
  std::int64_t least(std::int64_t value) {
    least({&value, 1});
    return value;
  }
  bool all(bool here) { return least(here ? 1 : 0) != 0; }

 private:
  // Ranks may be a user's, and no exception of theirs passes through the cache.
  bool exchange(std::span<std::int64_t> values) try {
    return ranks_->min(values).ok();
  } catch (...) {
    return false;
  }

  Ranks* ranks_;
  bool lost_ = false;
};

/// Something that must be alike on all ranks.
struct RankSetting {
  const char* name = "";
  std::size_t value = 0;
};
/// When a cache is made: every rank tells the others whether it is ready, and with what; all go on,
/// or none. The settings are the same ones, in the same order, everywhere.
Status agree_on_settings(Agreement& ranks, const Status& here,
                         std::span<const RankSetting> settings);

}  // namespace pando
