// SPDX-License-Identifier: Apache-2.0
// The storage tier: pages by key, on disk or on other machines. Store is what a cache talks to: it
// queues calls, runs them on threads of its own, checks every byte that comes back, and gives each
// call a deadline and a way to cancel. StoreBackend is what keeps the bytes: in memory, in files,
// in Redis (store_backends.h), or your own, registered by name.
//
// A store may fail, lie, be slow or be gone: a page is either returned as it was put, under exactly
// this key, or it is a miss. Keys come from KeySpace (key_space.h).
//
// Calls on a Store may come from any thread. The memory of a page belongs to the call until
// StoreCall::finished().
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"

namespace pando {

class Config;

/// A page on its way to or from a store: its bytes are `pieces`, one after the other.
struct StorePage {
  std::string key;                                ///< from a KeySpace
  std::vector<std::span<std::byte>> pieces = {};  ///< its bytes

  std::size_t size_bytes() const;  ///< bytes of all pieces
};

/// Kept by a backend with the bytes of a page, so that the reader can tell that they are this
/// page's: a hash of the bytes that begins with the key.
struct PageTag {
  std::uint64_t size_bytes = 0;     ///< bytes of the page
  std::uint64_t checksum_low = 0;   ///< the hash: its lower 64 bits
  std::uint64_t checksum_high = 0;  ///< the hash: its upper 64 bits

  friend bool operator==(const PageTag&, const PageTag&) = default;
};
PageTag make_page_tag(const StorePage& page);  ///< the tag of a page: of its key and its bytes

/// What became of one page of a call.
enum class PageOutcome : std::uint8_t {
  pending,  ///< not processed: still pending, or the call was stopped before this page
  done,     ///< found, read and verified, written or removed, as was asked
  missing,  ///< the store does not have it
  damaged,  ///< what the store has is not what was put; it has been set aside
  failed,   ///< see StoreCall::status
};
std::string_view to_string(PageOutcome outcome);

/// The pages of one call, as the backend works through them. It reports each page once, in any
/// order, from any thread; pages it does not report when it returns have failed.
class StoreBatch {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Kind : std::uint8_t { exists, get, put, remove, clear };

  /// With `part_of`, a backend's own call on another backend: called off when that one is.
  StoreBatch(Kind kind, std::vector<StorePage> pages, Clock::time_point deadline,
             const StoreBatch* part_of = nullptr);

  Kind kind() const { return kind_; }
  std::size_t size() const { return pages_.size(); }
  const StorePage& page(std::size_t i) const { return pages_[i]; }
  /// Of a put: what to keep with the bytes. Reads them all, so ask when the page is next, while
  /// earlier ones are on their way.
  PageTag tag(std::size_t i) const { return make_page_tag(pages_[i]); }

  /// exists: it is there. put: it will be found from now on. remove: it is gone, or never was.
  void done(std::size_t i);
  /// get: all pieces are filled, and this was kept with them. False: they are not what was put;
  /// the page counts as damaged, and the backend should not keep it.
  bool arrived(std::size_t i, const PageTag& tag);
  void missing(std::size_t i);
  void damaged(std::size_t i);
  void failed(std::size_t i, std::string_view why);

  /// Called off or past its deadline: return soon and leave the rest.
  bool stopped() const { return cancelled() || Clock::now() >= deadline_; }
  Clock::time_point deadline() const { return deadline_; }

  // For the Store and the holders of a StoreCall.
  bool cancelled() const {
    return cancelled_.load(std::memory_order_acquire) ||
           (part_of_ != nullptr && part_of_->cancelled());
  }
  void cancel() { cancelled_.store(true, std::memory_order_release); }
  PageOutcome outcome(std::size_t i) const { return outcomes_[i].load(std::memory_order_acquire); }
  /// Pages done, counted from the first up to one that is not.
  std::size_t num_leading() const { return leading_.load(std::memory_order_acquire); }
  bool finished() const { return finished_.load(std::memory_order_acquire); }
  /// True for the first who asks: it runs the call, and finishes it.
  bool begin() { return !begun_.exchange(true, std::memory_order_acq_rel); }
  /// Finishes a call that is stopped and that nobody has begun; else does nothing. So the deadline
  /// of a queued call holds however long the one before it takes.
  void abandon();
  /// What finish() calls when all outcomes stand, before those who wait go on. Set it before
  /// others know of the call.
  void on_settled(std::function<void(const StoreBatch&)> hook) { settled_ = std::move(hook); }
  /// Once, when nobody touches the pages any more. Pages without a report have failed, or stay
  /// pending where the call was stopped.
  void finish(Status status);
  void wait();
  bool wait_until(Clock::time_point time);
  /// The first error; only when finished.
  const Status& status() const { return status_; }

 private:
  void report(std::size_t i, PageOutcome outcome);

  const Kind kind_;
  const std::vector<StorePage> pages_;
  const Clock::time_point deadline_;
  const StoreBatch* const part_of_;
  std::function<void(const StoreBatch&)> settled_;
  std::unique_ptr<std::atomic<PageOutcome>[]> outcomes_;
  std::atomic<std::size_t> leading_ = 0;
  std::atomic<bool> begun_ = false;
  std::atomic<bool> cancelled_ = false;
  std::atomic<bool> finished_ = false;
  Status status_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

/// What a backend tells of itself.
struct BackendStats {
  std::uint64_t num_pages = 0;       ///< pages held now, as far as it knows
  std::uint64_t size_bytes = 0;      ///< bytes of these
  std::uint64_t capacity_bytes = 0;  ///< 0: no limit of its own
  /// Pages that went to stay within the capacity, since it was opened.
  std::uint64_t evicted_pages = 0;
  std::uint64_t damaged_pages = 0;  ///< pages found damaged and set aside
  std::uint64_t foreign_files = 0;  ///< files found beside its own, and left alone
  std::uint64_t reconnects = 0;     ///< connections to servers that had to be made again
};

/// A page that a store has.
struct StoredPage {
  std::string key;               ///< what it is found by
  std::uint64_t size_bytes = 0;  ///< bytes of the page
};

/// What keeps the bytes of a Store. A plug point. Calls come from several threads at once, but each
/// from one that may block. They return soon after StoreBatch::stopped(), and touch no page after
/// they have returned.
class StoreBackend {
 public:
  virtual ~StoreBackend() = default;
  virtual std::string_view name() const = 0;  ///< what it is called in messages

  virtual void exists(StoreBatch& batch) = 0;  ///< whether the pages are there
  virtual void get(StoreBatch& batch) = 0;     ///< reads pages
  /// Writes pages. One that is there already may be kept as it is.
  virtual void put(StoreBatch& batch) = 0;
  virtual void remove(StoreBatch& batch) = 0;  ///< removes pages
  virtual Status clear() = 0;  ///< removes everything that this store has put, by whichever process
  /// All pages, in any order, until `visit` returns false.
  virtual Status list(const std::function<bool(const StoredPage&)>& visit) = 0;
  virtual BackendStats stats() const = 0;  ///< what it tells of itself
};

struct StoreOptions {
  std::size_t num_read_threads = 1;  ///< exists and get
  std::size_t num_write_threads = 1;
  std::size_t max_queued_pages = 16384;  ///< in each of the two queues; a call beyond is refused
  std::chrono::milliseconds timeout = std::chrono::seconds(30);  ///< of calls that give none

  Status validate() const;
};

/// Totals since the store was opened. Pages of calls that were stopped are in neither column.
struct StoreStats {
  std::uint64_t read_pages = 0;           ///< pages that get() has read
  std::uint64_t read_bytes = 0;           ///< bytes that get() has read
  std::uint64_t written_pages = 0;        ///< pages that put() has written
  std::uint64_t written_bytes = 0;        ///< bytes that put() has written
  std::uint64_t missing_pages = 0;        ///< pages that get() did not find
  std::uint64_t damaged_pages = 0;        ///< pages that get() found to be not what was put
  std::uint64_t failed_pages = 0;         ///< pages that failed
  std::uint64_t timed_out_calls = 0;      ///< calls whose deadline came first
  std::uint64_t cancelled_calls = 0;      ///< calls that were cancelled
  std::uint64_t refused_calls = 0;        ///< calls for which the queue had no room
  std::uint64_t read_ns = 0;              ///< nanoseconds inside get() of the backend
  std::uint64_t write_ns = 0;             ///< nanoseconds inside put() of the backend
  std::uint64_t pending_read_pages = 0;   ///< pages of reads that wait or run now
  std::uint64_t pending_write_pages = 0;  ///< pages of writes that wait or run now
  BackendStats backend;                   ///< what the backend tells of itself
};

/// A call under way, see Store. Copies name the same call; dropping them does not stop it.
class StoreCall {
 public:
  explicit StoreCall(std::shared_ptr<StoreBatch> batch) : batch_(std::move(batch)) {}

  bool finished() const;  ///< whether nobody touches the pages any more
  /// Blocks until finished. An error is the first one, `timed_out` or `cancelled` among them;
  /// missing and damaged pages are no error.
  Status wait() const;
  /// A call that has not begun is finished at once. Else the backend stops soon, and the call is
  /// finished then.
  void cancel() const;
  std::size_t size() const { return batch_->size(); }
  /// What became of page i.
  PageOutcome outcome(std::size_t i) const { return batch_->outcome(i); }
  /// Pages done, counted from the first up to one that is not; grows while the call runs.
  std::size_t num_leading() const { return batch_->num_leading(); }

 private:
  std::shared_ptr<StoreBatch> batch_;
};

/// What a cache talks to: queues calls on a backend, runs them on threads of its own, checks every
/// byte that comes back, and gives each call a deadline and a way to cancel. Calls may come from
/// any thread.
class Store {
 public:
  static Result<std::unique_ptr<Store>> open(std::unique_ptr<StoreBackend> backend,
                                             const StoreOptions& options = {});
  /// Cancels what is queued and waits for what runs.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  using Timeout = std::optional<std::chrono::milliseconds>;
  /// Whether the pages are there: `done` or `missing`.
  Result<StoreCall> exists(std::vector<std::string> keys, Timeout timeout = {});
  /// Reads pages into memory of the caller, which belongs to the call until it has finished.
  Result<StoreCall> get(std::vector<StorePage> pages, Timeout timeout = {});
  /// Writes pages from memory of the caller, which must stay as it is until the call has finished.
  Result<StoreCall> put(std::vector<StorePage> pages, Timeout timeout = {});
  Result<StoreCall> remove(std::vector<std::string> keys, Timeout timeout = {});  ///< removes pages
  /// Removes all pages, after the writes that were asked for before it, and before those asked for
  /// after it.
  Result<StoreCall> clear(Timeout timeout = {});

  StoreStats stats() const;  ///< totals since it was opened
  StoreBackend& backend();

 private:
  struct Impl;
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Makes a backend from its options.
using StoreFactory = std::function<Result<std::unique_ptr<StoreBackend>>(const Config&)>;

/// Makes a backend known by name. Names are unique; "memory", "file" and "redis" are there from the
/// start. From any thread.
Status register_store(std::string name, StoreFactory factory);
std::vector<std::string> registered_stores();  ///< the names that make_store_backend() knows
/// A backend by name, with its options by name.
Result<std::unique_ptr<StoreBackend>> make_store_backend(std::string_view name,
                                                         const Config& config);

}  // namespace pando
