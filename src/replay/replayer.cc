// SPDX-License-Identifier: Apache-2.0
// The two loops: serial, and timed over a queue of events.
#include "replay/replayer.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <queue>

#include "base/check.h"
#include "pando/inspect.h"
#include "replay/request_runner.h"

namespace pando {
namespace {

std::uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

/// Calls back, and proves the cache every so often. False ends the replay.
class AfterEach {
 public:
  AfterEach(PrefixCache& cache, const ReplayOptions& options, const ReplayProgress& progress)
      : cache_(cache), options_(options), progress_(progress) {}

  Result<bool> operator()(const ReplayResults& results) const {
    if (options_.check_every != 0 && results.requests % options_.check_every == 0) {
      if (Status s = cache_.check(); !s) return s.error();
    }
    return !progress_ || progress_(results);
  }

 private:
  PrefixCache& cache_;
  const ReplayOptions& options_;
  const ReplayProgress& progress_;
};

Status no_room(const ReplayResults& results) {
  return make_error(ErrorCode::out_of_capacity,
                    "request {} finds no room although nothing else runs; the window slots are too "
                    "few for it",
                    results.requests + 1);
}

Status replay_serial(Trace& trace, RequestRunner& runner, ReplayResults& results,
                     const AfterEach& after_each) {
  RunningRequest running;
  while (true) {
    const Result<bool> more = trace.next(running.trace);
    if (!more) return more.error();
    if (!*more) return {};
    const Result<bool> begun = runner.begin(running, 0);
    if (!begun) return begun.error();
    if (!*begun) return no_room(results);
    if (Status s = runner.finish(running, /*insert=*/true); !s) return s;
    const Result<bool> go_on = after_each(results);
    if (!go_on) return go_on.error();
    if (!*go_on) return {};
  }
}

/// A running request has two moments: its prompt is computed, and its answer.
class TimedReplay {
 public:
  TimedReplay(Trace& trace, RequestRunner& runner, const ServiceModel& service,
              ReplayResults& results, const AfterEach& after_each)
      : trace_(trace),
        runner_(runner),
        service_(service),
        results_(results),
        after_each_(after_each) {}

  Status run();

 private:
  struct Job {
    RunningRequest running;
    double arrival_s = 0, first_token_s = 0;
    bool is_computed = false;
  };
  struct Event {
    double time_s;
    std::uint64_t order;  // of equal times, the first that was planned
    Job* job;
    bool operator>(const Event& other) const {
      return time_s != other.time_s ? time_s > other.time_s : order > other.order;
    }
  };

  Result<bool> arrive();
  Result<bool> admit(double now);
  Status happen(const Event& event);
  void plan(double time_s, Job* job) { events_.push({time_s, num_planned_++, job}); }
  std::unique_ptr<Job> new_job();

  Trace& trace_;
  RequestRunner& runner_;
  const ServiceModel& service_;
  ReplayResults& results_;
  const AfterEach& after_each_;

  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_, spare_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t num_planned_ = 0;
  double prefill_free_s_ = 0;
  std::unique_ptr<Job> next_;  // has not arrived yet
};

std::unique_ptr<TimedReplay::Job> TimedReplay::new_job() {
  if (spare_.empty()) return std::make_unique<Job>();
  std::unique_ptr<Job> job = std::move(spare_.back());
  spare_.pop_back();
  return job;
}

// The next of the trace into next_. False after the last.
Result<bool> TimedReplay::arrive() {
  next_ = new_job();
  const Result<bool> more = trace_.next(next_->running.trace);
  if (!more) return more.error();
  next_->arrival_s = next_->running.trace.arrival_s / service_.speed;
  if (!*more) next_.reset();
  return *more;
}

// The first in the queue, if it may run. False: it has to wait.
Result<bool> TimedReplay::admit(double now) {
  if (waiting_.empty() || running_.size() >= service_.max_running) return false;
  Job& job = *waiting_.front();
  std::size_t extra = job.running.trace.output_length;
  const std::uint64_t hits_before = results_.all_hit_tokens();
  const std::uint64_t inputs_before = results_.input_tokens;
  const Result<bool> begun = runner_.begin(job.running, extra);
  if (!begun) return begun.error();
  if (!*begun) {
    if (running_.empty()) return no_room(results_).error();
    return false;
  }
  const std::uint64_t computed =
      (results_.input_tokens - inputs_before) - (results_.all_hit_tokens() - hits_before);
  const double start = std::max(now, prefill_free_s_);
  prefill_free_s_ = start + static_cast<double>(computed) / service_.prefill_tokens_per_s;
  job.is_computed = false;
  job.first_token_s = prefill_free_s_;
  const auto us = [](double seconds) { return static_cast<std::uint64_t>(seconds * 1e6); };
  results_.queue_us.record(us(now - job.arrival_s));
  results_.first_token_us.record(us(job.first_token_s - job.arrival_s));
  plan(job.first_token_s, &job);
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  results_.max_running = std::max<std::uint64_t>(results_.max_running, running_.size());
  return true;
}

Status TimedReplay::happen(const Event& event) {
  Job& job = *event.job;
  if (!job.is_computed) {
    job.is_computed = true;
    if (Status s = runner_.insert(job.running); !s) return s;
    plan(event.time_s +
             static_cast<double>(job.running.trace.output_length) / service_.decode_tokens_per_s,
         &job);
    return {};
  }
  if (Status s = runner_.finish(job.running, /*insert=*/false); !s) return s;
  results_.last_finish_s = event.time_s;
  const auto at = std::find_if(running_.begin(), running_.end(),
                               [&](const auto& other) { return other.get() == &job; });
  spare_.push_back(std::move(*at));
  running_.erase(at);
  return {};
}

Status TimedReplay::run() {
  if (const Result<bool> more = arrive(); !more) return more.error();
  double now = 0;
  while (next_ || !waiting_.empty() || !events_.empty()) {
    if (next_ && (events_.empty() || next_->arrival_s <= events_.top().time_s)) {
      now = std::max(now, next_->arrival_s);
      waiting_.push_back(std::move(next_));
      if (const Result<bool> more = arrive(); !more) return more.error();
    } else {
      const Event event = events_.top();
      events_.pop();
      now = event.time_s;
      if (Status s = happen(event); !s) return s;
    }
    while (true) {
      const Result<bool> admitted = admit(now);
      if (!admitted) return admitted.error();
      if (!*admitted) break;
      const Result<bool> go_on = after_each_(results_);
      if (!go_on) return go_on.error();
      if (!*go_on) {
        for (auto& job : running_) {
          if (Status s = runner_.finish(job->running, /*insert=*/false); !s) return s;
        }
        return {};
      }
    }
  }
  return {};
}

}  // namespace

Status ServiceModel::validate() const {
  if (!(prefill_tokens_per_s > 0) || !(decode_tokens_per_s > 0) || !(speed > 0) || max_running == 0)
    return make_error(ErrorCode::invalid_argument,
                      "service model: prefill {} tok/s, decode {} tok/s, speed {}, {} running; "
                      "expected all above 0",
                      prefill_tokens_per_s, decode_tokens_per_s, speed, max_running);
  return {};
}

Status ReplayOptions::validate() const {
  if (Status s = service.validate(); !s) return s;
  if (stack.device_tokens < stack.page_size)
    return make_error(ErrorCode::invalid_argument,
                      "a device of {} tokens; expected at least a page of {}", stack.device_tokens,
                      stack.page_size);
  return {};
}

Result<ReplayResults> replay(Trace& trace, const ReplayOptions& options,
                             const ReplayProgress& progress) {
  if (Status s = options.validate(); !s) return s.error();
  Result<std::unique_ptr<CacheStack>> stack = CacheStack::create(options.stack);
  if (!stack) return stack.error();
  const auto begin = std::chrono::steady_clock::now();
  ReplayResults results;
  results.capacity_tokens[Tier::device] = (*stack)->device_tokens();
  results.capacity_tokens[Tier::host] = (*stack)->host_tokens();
  results.capacity_tokens[Tier::store] = options.stack.store_tokens;
  results.token_bytes = options.token_bytes;
  results.is_timed = options.mode == ReplayMode::timed;
  RequestRunner runner(**stack, options, results);
  PrefixCache& cache = (*stack)->cache();
  const AfterEach after_each(cache, options, progress);
  const Status done = results.is_timed
                          ? TimedReplay(trace, runner, options.service, results, after_each).run()
                          : replay_serial(trace, runner, results, after_each);
  if (!done) return done.error();
  results.series = runner.take_series();
  const TierStats tiers = cache.tiers().stats();
  results.backed_up_tokens = tiers.backed_up_tokens;
  results.loaded_tokens = tiers.loaded_tokens;
  results.stored_tokens = tiers.stored_tokens;
  results.fetched_tokens = tiers.prefetched_tokens;
  results.index_bytes = cache.inspect().memory_bytes();
  results.num_nodes = cache.inspect().num_nodes();
  results.peak_rss_bytes = peak_rss_bytes();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  results.wall_seconds = took.count();
  return results;
}

}  // namespace pando
