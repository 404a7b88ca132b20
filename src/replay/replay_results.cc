// SPDX-License-Identifier: Apache-2.0
// Names, ratios and the series of replay results.
#include "replay/replay_results.h"

#include <utility>

#include "base/named.h"

namespace pando {
namespace {

constexpr Named<Tier> kTierNames[] = {
    {Tier::device, "device"}, {Tier::host, "host"}, {Tier::store, "store"}};
constexpr Named<Operation> kOperationNames[] = {{Operation::prefetch, "prefetch"},
                                                {Operation::start, "start"},
                                                {Operation::load_back, "load_back"},
                                                {Operation::allocate, "allocate"},
                                                {Operation::insert, "insert"},
                                                {Operation::finish, "finish"},
                                                {Operation::poll, "poll"}};
constexpr Named<Miss> kMissNames[] = {{Miss::never_seen, "never_seen"},
                                      {Miss::evicted, "evicted"},
                                      {Miss::other_namespace, "other_namespace"},
                                      {Miss::not_covered, "not_covered"},
                                      {Miss::no_room, "no_room"}};

std::uint64_t sum(const PerTier<std::uint64_t>& of) {
  return of.values[0] + of.values[1] + of.values[2];
}

}  // namespace

double ratio(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string_view to_string(Tier tier) { return name_of(kTierNames, tier); }
std::string_view to_string(Operation operation) { return name_of(kOperationNames, operation); }
std::string_view to_string(Miss miss) { return name_of(kMissNames, miss); }

std::uint64_t ReplayResults::all_hit_blocks() const { return sum(hit_blocks); }
std::uint64_t ReplayResults::all_hit_tokens() const { return sum(hit_tokens); }
double ReplayResults::hit_ratio_blocks() const { return ratio(all_hit_blocks(), blocks); }
double ReplayResults::hit_ratio_tokens() const { return ratio(all_hit_tokens(), input_tokens); }

void ReplaySeries::join(SeriesPoint& to, const SeriesPoint& later) {
  to.end_request = later.end_request;
  to.end_s = later.end_s;
  to.requests += later.requests;
  to.blocks += later.blocks;
  to.held_tokens = later.held_tokens;
  for (const Tier tier : kTiers) {
    to.hit_blocks[tier] += later.hit_blocks[tier];
    to.evicted_tokens[tier] += later.evicted_tokens[tier];
  }
}

void ReplaySeries::add(const SeriesPoint& point) {
  if (!points_.empty() && points_.back().requests < requests_per_point_) {
    join(points_.back(), point);
    return;
  }
  if (points_.size() == kMaxPoints) {
    for (std::size_t i = 0; i < kMaxPoints / 2; ++i) {
      points_[i] = points_[2 * i];
      join(points_[i], points_[2 * i + 1]);
    }
    points_.resize(kMaxPoints / 2);
    requests_per_point_ *= 2;
  }
  points_.push_back(point);
}

std::vector<SeriesPoint> ReplaySeries::take() { return std::move(points_); }

}  // namespace pando
