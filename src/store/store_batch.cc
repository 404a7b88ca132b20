// SPDX-License-Identifier: Apache-2.0
// The pages of one call and what became of each: written by the thread that runs the backend, read
// by whoever waits.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "base/check.h"
#include "pando/store.h"

namespace pando {

std::size_t StorePage::size_bytes() const {
  std::size_t total = 0;
  for (const std::span<std::byte>& piece : pieces) total += piece.size();
  return total;
}

// The key goes in as the seed: bytes that were put under another key do not pass for this one's.
PageTag make_page_tag(const StorePage& page) {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  thread_local const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  PANDO_CHECK(state != nullptr, "no memory for the state of a hash");
  XXH3_128bits_reset_withSeed(state.get(), XXH3_64bits(page.key.data(), page.key.size()));
  for (const std::span<std::byte>& piece : page.pieces)
    XXH3_128bits_update(state.get(), piece.data(), piece.size());
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return {page.size_bytes(), hash.low64, hash.high64};
}

std::string_view to_string(PageOutcome outcome) {
  switch (outcome) {
    case PageOutcome::pending:
      return "pending";
    case PageOutcome::done:
      return "done";
    case PageOutcome::missing:
      return "missing";
    case PageOutcome::damaged:
      return "damaged";
    case PageOutcome::failed:
      return "failed";
  }
  return "unknown";
}

StoreBatch::StoreBatch(Kind kind, std::vector<StorePage> pages, Clock::time_point deadline,
                       const StoreBatch* part_of)
    : kind_(kind),
      pages_(std::move(pages)),
      deadline_(deadline),
      part_of_(part_of),
      outcomes_(std::make_unique<std::atomic<PageOutcome>[]>(pages_.size())) {}

void StoreBatch::report(std::size_t i, PageOutcome outcome) {
  const std::lock_guard lock(mutex_);
  PANDO_CHECK(i < pages_.size(), "a report on page {} of {}", i, pages_.size());
  PANDO_CHECK(outcomes_[i].load(std::memory_order_relaxed) == PageOutcome::pending,
              "a second report on page {} ({}): {} after {}", i, pages_[i].key, to_string(outcome),
              to_string(outcomes_[i].load(std::memory_order_relaxed)));
  outcomes_[i].store(outcome, std::memory_order_release);
  std::size_t leading = leading_.load(std::memory_order_relaxed);
  if (i != leading || outcome != PageOutcome::done) return;
  while (leading < pages_.size() &&
         outcomes_[leading].load(std::memory_order_relaxed) == PageOutcome::done)
    ++leading;
  leading_.store(leading, std::memory_order_release);
}

void StoreBatch::done(std::size_t i) {
  PANDO_CHECK(kind_ != Kind::get, "page {} of a get is done without its tag", i);
  report(i, PageOutcome::done);
}

bool StoreBatch::arrived(std::size_t i, const PageTag& tag) {
  const bool intact = tag == make_page_tag(pages_[i]);
  report(i, intact ? PageOutcome::done : PageOutcome::damaged);
  return intact;
}

void StoreBatch::missing(std::size_t i) { report(i, PageOutcome::missing); }
void StoreBatch::damaged(std::size_t i) { report(i, PageOutcome::damaged); }

void StoreBatch::failed(std::size_t i, std::string_view why) {
  {
    const std::lock_guard lock(mutex_);
    if (status_.ok())
      status_ = make_error(ErrorCode::io_error, "page {} ({}): {}", i, pages_[i].key, why);
  }
  report(i, PageOutcome::failed);
}

void StoreBatch::abandon() {
  if (begun_.load(std::memory_order_acquire) || !stopped() || !begin()) return;
  finish(cancelled() ? make_error(ErrorCode::cancelled, "called off before it began")
                     : make_error(ErrorCode::timed_out, "the deadline came before it began"));
}

void StoreBatch::finish(Status status) {
  PANDO_CHECK(!finished(), "a call of {} pages is finished twice", pages_.size());
  if (status_.ok()) status_ = std::move(status);
  const bool was_stopped = stopped();
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    if (outcome(i) != PageOutcome::pending) continue;
    if (!was_stopped) {
      failed(i, "the backend returned without saying what became of it");
    } else if (status_.ok()) {
      status_ = cancelled() ? make_error(ErrorCode::cancelled, "called off at page {} of {}", i,
                                         pages_.size())
                            : make_error(ErrorCode::timed_out, "the deadline came at page {} of {}",
                                         i, pages_.size());
    }
  }
  if (settled_) settled_(*this);
  // Notified under the lock: who waits may drop the call as soon as it is finished.
  const std::lock_guard lock(mutex_);
  finished_.store(true, std::memory_order_release);
  changed_.notify_all();
}

void StoreBatch::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return finished(); });
}

bool StoreBatch::wait_until(Clock::time_point time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, time, [this] { return finished(); });
}

}  // namespace pando
