// SPDX-License-Identifier: Apache-2.0
// Reads the trace once, then makes the curves.
#include "replay/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <thread>

#include "base/check.h"
#include "replay/optimum.h"
#include "replay/replayer.h"
#include "replay/reuse.h"

namespace pando {
namespace {

constexpr double kShares[] = {0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1};

/// Capacities from small to all, evenly spaced by factors; those of interest are among them.
std::vector<std::uint64_t> capacities(std::uint64_t all, std::size_t n,
                                      const std::vector<std::uint64_t>& of_interest) {
  std::vector<std::uint64_t> points;
  for (const double share : kShares)
    points.push_back(static_cast<std::uint64_t>(share * static_cast<double>(all) + 1e-6));
  for (const std::uint64_t blocks : of_interest) points.push_back(std::min(blocks, all));
  for (std::size_t i = 0; i <= n; ++i) {
    // Three decades and a half are what anyone would buy.
    const double share = std::pow(10, -3.5 * static_cast<double>(n - i) / static_cast<double>(n));
    points.push_back(static_cast<std::uint64_t>(share * static_cast<double>(all)));
  }
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  std::erase(points, std::uint64_t{0});
  return points;
}

double hit_ratio(std::uint64_t hits, const CompactTrace& trace) {
  return ratio(hits, trace.num_accesses());
}

PlanCurve lru_curve(const CompactTrace& trace, const std::vector<std::uint64_t>& at) {
  const std::vector<std::uint64_t> hits = lru_hits(trace);
  PlanCurve curve{.policy = "lru", .method = "one pass", .points = {}};
  for (const std::uint64_t c : at)
    curve.points.push_back(
        {c, hit_ratio(hits[std::min(c / trace.weight(), hits.size() - 1)], trace)});
  return curve;
}

double sample_error(const CompactTrace& trace) {
  if (trace.weight() == 1) return 0;
  const CompactTrace first = trace.half(false), second = trace.half(true);
  const std::vector<std::uint64_t> a = lru_hits(first), b = lru_hits(second);
  double apart = 0;
  for (std::size_t i = 0; i <= 1000; ++i)
    apart = std::max(apart, std::abs(hit_ratio(a[i * (a.size() - 1) / 1000], first) -
                                     hit_ratio(b[i * (b.size() - 1) / 1000], second)));
  return apart / 2;
}

/// As the real cache does it: one token per block, so that a page is a block.
Result<double> replayed(const CompactTrace& trace, const std::string& policy,
                        std::uint64_t capacity) {
  ReplayOptions options;
  options.block_tokens = options.stack.page_size = 1;
  options.stack.device_tokens = std::max<std::uint64_t>(capacity, 1);
  options.stack.policy = policy;
  const std::unique_ptr<Trace> requests = trace.replayable();
  const Result<ReplayResults> results = replay(*requests, options);
  if (!results) return results.error();
  return results->hit_ratio_blocks();
}

Result<PlanCurve> replayed_curve(const CompactTrace& trace, const std::string& policy,
                                 const std::vector<std::uint64_t>& at, std::size_t num_threads) {
  PlanCurve curve{.policy = policy, .method = "replays", .points = {}};
  std::vector<std::optional<Result<double>>> ratios(at.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < at.size(); i = next++)
      ratios[i] = replayed(trace, policy, at[i] / trace.weight());
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < at.size(); ++i) {
    if (!*ratios[i]) return ratios[i]->error();
    curve.points.push_back({at[i], **ratios[i]});
  }
  return curve;
}

/// The point furthest above the straight line from the first to the last, by factors of capacity.
std::uint64_t knee(const PlanCurve& curve) {
  const PlanPoint &first = curve.points.front(), &last = curve.points.back();
  const auto place = [](const PlanPoint& p) {
    return std::log(static_cast<double>(p.capacity_blocks));
  };
  double best = -1;
  std::uint64_t blocks = last.capacity_blocks;
  for (const PlanPoint& point : curve.points) {
    const double along = (place(point) - place(first)) / std::max(place(last) - place(first), 1e-9);
    const double line = first.hit_ratio + along * (last.hit_ratio - first.hit_ratio);
    if (point.hit_ratio - line > best + 1e-12) {
      best = point.hit_ratio - line;
      blocks = point.capacity_blocks;
    }
  }
  return blocks;
}

}  // namespace

double PlanCurve::at(std::uint64_t capacity_blocks) const {
  PlanPoint below;  // nothing is hit with nothing
  for (const PlanPoint& point : points) {
    if (point.capacity_blocks < capacity_blocks) {
      below = point;
      continue;
    }
    const auto width = static_cast<double>(point.capacity_blocks - below.capacity_blocks);
    const auto along = static_cast<double>(capacity_blocks - below.capacity_blocks);
    return below.hit_ratio + (point.hit_ratio - below.hit_ratio) * (width > 0 ? along / width : 1);
  }
  return below.hit_ratio;
}

const PlanCurve& Plan::curve(const std::string& policy) const {
  const auto found = std::find_if(curves.begin(), curves.end(),
                                  [&](const PlanCurve& c) { return c.policy == policy; });
  PANDO_CHECK(found != curves.end(), "no curve of {}", policy);
  return *found;
}

Result<Plan> make_plan(Trace& trace, const PlanOptions& options,
                       const std::function<void(double)>& progress) {
  const Result<CompactTrace> read = CompactTrace::read(trace, options.max_blocks, progress);
  if (!read) return read.error();
  const CompactTrace& compact = *read;
  Plan plan{.requests = compact.num_requests(),
            .blocks = compact.total_blocks(),
            .unique_blocks = compact.unique_blocks(),
            .block_tokens = trace.block_tokens(),
            .sample_rate = 1 / static_cast<double>(compact.weight()),
            .sample_error = sample_error(compact),
            .curves = {}};
  if (compact.num_blocks() == 0)
    return Error{ErrorCode::not_found, "the trace has no blocks to plan with"};
  const std::uint64_t all = plan.unique_blocks;
  plan.curves.push_back(lru_curve(compact, capacities(all, 240, options.at_blocks)));
  plan.infinite_hit_ratio = plan.curves[0].points.back().hit_ratio;
  plan.knee_blocks = knee(plan.curves[0]);

  const std::vector<std::uint64_t> few = capacities(all, 24, options.at_blocks);
  for (const std::string& policy : options.policies) {
    if (policy == "lru") continue;
    Result<PlanCurve> curve = replayed_curve(compact, policy, few, options.num_threads);
    if (!curve) return curve.error();
    plan.curves.push_back(std::move(*curve));
  }
  const Optimum optimum(compact);
  for (const auto& [name, rule] :
       {std::pair{"optimum", OptimumRule::same}, {"ceiling", OptimumRule::free}}) {
    PlanCurve curve{.policy = name, .method = "furthest next use", .points = {}};
    for (const std::uint64_t c : few)
      curve.points.push_back({c, hit_ratio(optimum.hits(c / compact.weight(), rule), compact)});
    plan.curves.push_back(std::move(curve));
  }
  return plan;
}

}  // namespace pando
