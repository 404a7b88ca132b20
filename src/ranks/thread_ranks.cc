// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process. They meet in rounds: each adds its values to those of the round,
// the last to come ends it and opens the next, and each takes the result with it.
//
// The result of a round stays until all have taken it: the next cannot end without them. A rank
// that fails to come breaks the meeting for good, as nobody knows which round it is in.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "base/check.h"
#include "pando/ranks.h"

namespace pando {
namespace {

// Added to the clock, it stays within what the clock can tell.
constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);

enum class Operation { min, max, barrier };

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::min:
      return "min";
    case Operation::max:
      return "max";
    case Operation::barrier:
      return "barrier";
  }
  return "unknown";
}

class Meeting {
 public:
  explicit Meeting(const ThreadRanksOptions& options)
      : timeout_(std::min(options.timeout, kLongest)), came_(options.num_ranks) {}

  std::size_t size() const { return came_.size(); }

  Status join(std::size_t rank, Operation operation, std::span<std::int64_t> values) {
    std::unique_lock lock(mutex_);
    if (broken_) return *broken_;
    PANDO_CHECK(!came_[rank], "rank {} comes to {} while it waits in another call", rank,
                to_string(operation));
    add(rank, operation, values);
    const std::uint64_t round = round_;
    if (num_came_ == size()) end_round();
    const bool ended =
        changed_.wait_for(lock, timeout_, [&] { return round_ != round || broken_; });
    if (!ended) give_up(rank, operation);
    if (round_ == round) return *broken_;
    if (result_error_) return *result_error_;
    std::copy(result_.begin(), result_.end(), values.begin());
    return {};
  }

  /// For good. Those who wait for it stop waiting.
  void leave(std::size_t rank) {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = make_error(ErrorCode::cancelled, "rank {} of {} has gone", rank, size());
    changed_.notify_all();
  }

 private:
  void add(std::size_t rank, Operation operation, std::span<const std::int64_t> values) {
    came_[rank] = true;
    if (num_came_++ == 0) {
      operation_ = operation;
      first_ = rank;
      combined_.assign(values.begin(), values.end());
      return;
    }
    if (operation != operation_ || values.size() != combined_.size()) {
      if (!error_)
        error_ = make_error(ErrorCode::invalid_argument,
                            "rank {} came to {} of {} values and rank {} to {} of {}; expected "
                            "the same call of all {} ranks",
                            first_, to_string(operation_), combined_.size(), rank,
                            to_string(operation), values.size(), size());
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i)
      combined_[i] = operation == Operation::min ? std::min(combined_[i], values[i])
                                                 : std::max(combined_[i], values[i]);
  }

  void end_round() {
    result_.swap(combined_);
    result_error_ = std::exchange(error_, std::nullopt);
    std::fill(came_.begin(), came_.end(), false);
    num_came_ = 0;
    ++round_;
    changed_.notify_all();
  }

  void give_up(std::size_t rank, Operation operation) {
    std::string absent;
    for (std::size_t r = 0; r < size(); ++r) {
      if (came_[r]) continue;
      if (!absent.empty()) absent += ", ";
      absent += fmt::format("{}", r);
    }
    broken_ = make_error(
        ErrorCode::timed_out, "rank {} waited {} ms in {} for {} of {} ranks: {} did not come",
        rank, timeout_.count(), to_string(operation), size() - num_came_, size(), absent);
    changed_.notify_all();
  }

  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::optional<Error> broken_;
  // The round that is open.
  std::vector<bool> came_;
  std::size_t num_came_ = 0;
  Operation operation_ = Operation::barrier;
  std::size_t first_ = 0;  // the rank whose call is the measure
  std::vector<std::int64_t> combined_;
  std::optional<Error> error_;
  // The one before it.
  std::vector<std::int64_t> result_;
  std::optional<Error> result_error_;
};

class ThreadRank final : public Ranks {
 public:
  ThreadRank(std::shared_ptr<Meeting> meeting, std::size_t rank)
      : meeting_(std::move(meeting)), rank_(rank) {}
  ~ThreadRank() override { meeting_->leave(rank_); }

  std::size_t rank() const override { return rank_; }
  std::size_t size() const override { return meeting_->size(); }
  Status min(std::span<std::int64_t> values) override {
    return meeting_->join(rank_, Operation::min, values);
  }
  Status max(std::span<std::int64_t> values) override {
    return meeting_->join(rank_, Operation::max, values);
  }
  Status barrier() override { return meeting_->join(rank_, Operation::barrier, {}); }

 private:
  const std::shared_ptr<Meeting> meeting_;
  const std::size_t rank_;
};

}  // namespace

Status ThreadRanksOptions::validate() const {
  if (num_ranks > 0 && timeout > std::chrono::milliseconds(0)) return {};
  return make_error(ErrorCode::invalid_argument,
                    "{} thread ranks with a timeout of {} ms; expected at least one of each",
                    num_ranks, timeout.count());
}

Result<std::vector<std::unique_ptr<Ranks>>> make_thread_ranks(const ThreadRanksOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  const auto meeting = std::make_shared<Meeting>(options);
  std::vector<std::unique_ptr<Ranks>> ranks;
  for (std::size_t rank = 0; rank < options.num_ranks; ++rank)
    ranks.push_back(std::make_unique<ThreadRank>(meeting, rank));
  return ranks;
}

}  // namespace pando
