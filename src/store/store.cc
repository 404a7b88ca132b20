// SPDX-License-Identifier: Apache-2.0
// Store: two queues, one of reads and one of writes, each with threads of its own that run calls on
// the backend. So a slow write keeps no read waiting. Whatever a backend does (throw, leave pages
// out, be late), the call is finished once and says so.
//
// Counters are shared with the calls, which may outlive the Store.
#include <algorithm>
#include <array>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "pando/store.h"
#include "store/call_queue.h"
#include "store/dispatch.h"

namespace pando {
namespace {

using Kind = StoreBatch::Kind;
using Clock = StoreBatch::Clock;

constexpr std::size_t kMaxThreads = 256;  // beyond this it is a mistake

struct Counters {
  using Count = std::atomic<std::uint64_t>;
  Count read_pages = 0, read_bytes = 0, written_pages = 0, written_bytes = 0;
  Count missing_pages = 0, damaged_pages = 0, failed_pages = 0;
  Count timed_out_calls = 0, cancelled_calls = 0, refused_calls = 0;
  Count read_ns = 0, write_ns = 0;

  void settled(const StoreBatch& call);
};

void Counters::settled(const StoreBatch& call) {
  std::array<std::uint64_t, 5> pages = {};  // by outcome
  std::uint64_t done_bytes = 0;
  for (std::size_t i = 0; i < call.size(); ++i) {
    ++pages[static_cast<std::size_t>(call.outcome(i))];
    if (call.outcome(i) == PageOutcome::done) done_bytes += call.page(i).size_bytes();
  }
  const auto count = [&](PageOutcome outcome) { return pages[static_cast<std::size_t>(outcome)]; };
  if (call.kind() == Kind::get) {
    read_pages += count(PageOutcome::done);
    read_bytes += done_bytes;
    missing_pages += count(PageOutcome::missing);
  } else if (call.kind() == Kind::put) {
    written_pages += count(PageOutcome::done);
    written_bytes += done_bytes;
  }
  damaged_pages += count(PageOutcome::damaged);
  failed_pages += count(PageOutcome::failed);
  if (call.status().ok()) return;
  if (call.status().error().code == ErrorCode::timed_out) ++timed_out_calls;
  if (call.status().error().code == ErrorCode::cancelled) ++cancelled_calls;
}

Clock::time_point deadline_after(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  const Clock::time_point now = Clock::now();
  const auto most = std::chrono::floor<milliseconds>(Clock::time_point::max() - now);
  return now + std::clamp(timeout, milliseconds(0), most);
}

std::vector<StorePage> pages_of(std::vector<std::string> keys) {
  std::vector<StorePage> pages;
  pages.reserve(keys.size());
  for (std::string& key : keys) pages.push_back({std::move(key)});
  return pages;
}

Status check_pages(Kind kind, const std::vector<StorePage>& pages) {
  const bool has_bytes = kind == Kind::get || kind == Kind::put;
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].key.empty())
      return make_error(ErrorCode::invalid_argument, "page {} of {} has no key", i, pages.size());
    if (has_bytes && pages[i].size_bytes() == 0)
      return make_error(ErrorCode::invalid_argument,
                        "page {} of {} ({}) has 0 bytes; expected at least one", i, pages.size(),
                        pages[i].key);
  }
  return {};
}

// A backend may be a user's, and no exception of theirs ends a thread of ours.
Status run_contained(StoreBackend& backend, StoreBatch& call) try {
  return dispatch(backend, call);
} catch (const std::exception& e) {
  return make_error(ErrorCode::io_error, "the backend threw: {}", e.what());
} catch (...) {
  return make_error(ErrorCode::io_error, "the backend threw something that is no std::exception");
}

BackendStats contained_stats(const StoreBackend& backend) try {
  return backend.stats();
} catch (...) {
  return {};
}

}  // namespace

struct Store::Impl {
  Impl(std::unique_ptr<StoreBackend> backend_in, const StoreOptions& options)
      : backend(std::move(backend_in)),
        timeout(options.timeout),
        reads(options.max_queued_pages),
        writes(options.max_queued_pages) {}
  ~Impl() {
    reads.close();
    writes.close();
    for (std::thread& thread : threads) thread.join();
  }

  void start(CallQueue& queue, std::size_t num_threads) {
    for (std::size_t i = 0; i < num_threads; ++i)
      threads.emplace_back([this, &queue] { work(queue); });
  }

  void work(CallQueue& queue) {
    while (const std::shared_ptr<StoreBatch> call = queue.take()) {
      const Clock::time_point before = Clock::now();
      Status status = run_contained(*backend, *call);
      const auto spent = std::chrono::nanoseconds(Clock::now() - before).count();
      if (call->kind() == Kind::get) counters->read_ns += static_cast<std::uint64_t>(spent);
      if (call->kind() == Kind::put) counters->write_ns += static_cast<std::uint64_t>(spent);
      call->finish(std::move(status));
      queue.release(call);
    }
  }

  Result<StoreCall> submit(Kind kind, std::vector<StorePage> pages, Timeout call_timeout) {
    if (Status valid = check_pages(kind, pages); !valid) return valid.error();
    auto call = std::make_shared<StoreBatch>(kind, std::move(pages),
                                             deadline_after(call_timeout.value_or(timeout)));
    call->on_settled([counters = counters](const StoreBatch& c) { counters->settled(c); });
    const bool reads_only = kind == Kind::exists || kind == Kind::get;
    if (Status queued = (reads_only ? reads : writes).push(call); !queued) {
      ++counters->refused_calls;
      return queued.error();
    }
    return StoreCall(std::move(call));
  }

  const std::unique_ptr<StoreBackend> backend;
  const std::chrono::milliseconds timeout;
  const std::shared_ptr<Counters> counters = std::make_shared<Counters>();
  CallQueue reads;
  CallQueue writes;
  std::vector<std::thread> threads;
};

// ---- StoreCall.

bool StoreCall::finished() const {
  if (!batch_->finished()) batch_->abandon();
  return batch_->finished();
}

Status StoreCall::wait() const {
  if (!batch_->wait_until(batch_->deadline())) {
    batch_->abandon();
    batch_->wait();  // it runs, and its pages are the backend's until that returns
  }
  return batch_->status();
}

void StoreCall::cancel() const {
  batch_->cancel();
  batch_->abandon();
}

// ---- Store.

Status StoreOptions::validate() const {
  const auto is_bad = [](std::size_t threads) { return threads == 0 || threads > kMaxThreads; };
  if (is_bad(num_read_threads) || is_bad(num_write_threads))
    return make_error(ErrorCode::invalid_argument,
                      "store: {} read threads and {} write threads; expected 1 to {} of each",
                      num_read_threads, num_write_threads, kMaxThreads);
  if (max_queued_pages == 0)
    return make_error(ErrorCode::invalid_argument,
                      "store: queues of 0 pages; expected room for at least one");
  if (timeout <= std::chrono::milliseconds(0))
    return make_error(ErrorCode::invalid_argument,
                      "store: a timeout of {} ms; expected more than 0", timeout.count());
  return {};
}

Result<std::unique_ptr<Store>> Store::open(std::unique_ptr<StoreBackend> backend,
                                           const StoreOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  if (backend == nullptr)
    return make_error(ErrorCode::invalid_argument, "store: there is no backend");
  auto impl = std::make_unique<Impl>(std::move(backend), options);
  try {
    impl->start(impl->reads, options.num_read_threads);
    impl->start(impl->writes, options.num_write_threads);
  } catch (const std::system_error& e) {
    return make_error(ErrorCode::out_of_capacity, "store: of {} threads only {} could start: {}",
                      options.num_read_threads + options.num_write_threads, impl->threads.size(),
                      e.what());
  }
  return std::unique_ptr<Store>(new Store(std::move(impl)));
}

Store::Store(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Store::~Store() = default;

Result<StoreCall> Store::exists(std::vector<std::string> keys, Timeout timeout) {
  return impl_->submit(Kind::exists, pages_of(std::move(keys)), timeout);
}
Result<StoreCall> Store::get(std::vector<StorePage> pages, Timeout timeout) {
  return impl_->submit(Kind::get, std::move(pages), timeout);
}
Result<StoreCall> Store::put(std::vector<StorePage> pages, Timeout timeout) {
  return impl_->submit(Kind::put, std::move(pages), timeout);
}
Result<StoreCall> Store::remove(std::vector<std::string> keys, Timeout timeout) {
  return impl_->submit(Kind::remove, pages_of(std::move(keys)), timeout);
}
Result<StoreCall> Store::clear(Timeout timeout) { return impl_->submit(Kind::clear, {}, timeout); }

StoreStats Store::stats() const {
  const Counters& c = *impl_->counters;
  return {.read_pages = c.read_pages,
          .read_bytes = c.read_bytes,
          .written_pages = c.written_pages,
          .written_bytes = c.written_bytes,
          .missing_pages = c.missing_pages,
          .damaged_pages = c.damaged_pages,
          .failed_pages = c.failed_pages,
          .timed_out_calls = c.timed_out_calls,
          .cancelled_calls = c.cancelled_calls,
          .refused_calls = c.refused_calls,
          .read_ns = c.read_ns,
          .write_ns = c.write_ns,
          .pending_read_pages = impl_->reads.pending_pages(),
          .pending_write_pages = impl_->writes.pending_pages(),
          .backend = contained_stats(*impl_->backend)};
}

StoreBackend& Store::backend() { return *impl_->backend; }

}  // namespace pando
