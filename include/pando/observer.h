// SPDX-License-Identifier: Apache-2.0
// CacheObserver: whoever wants to see what a cache does as it does it. Metrics (metrics.h) and
// TraceRecorder (observer.h) are two; ObserverFanOut gives a cache several. PrefixCache tells
// all of this; BlockCache its calls, matches, prefetches, polls and finished requests.
//
// Two kinds of news. A *call* is told once, when the engine's own call returns, with the time it
// took: start() is one call, though it matches and locks inside. A *fact* (a match, an insert, an
// eviction, ...) is told whenever it happens, inside whichever call: an allocate() that must evict
// tells of the eviction first, and then of the call. So times add up without being counted twice,
// and facts add up to the cache's own stats().
//
// Everything is told on the thread of the cache, in order. An observer must not call back into the
// cache and must not throw; what it does is time that the cache's caller waits for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"
#include "pando/paths.h"
#include "pando/result.h"
#include "pando/tiers.h"
#include "pando/types.h"

namespace pando {

/// The calls of a cache that observers are told of, of PrefixCache and of BlockCache. probe(), what
/// only reads, append() and BlockCache's preempt() and forget() are not.
enum class CacheCall : std::uint8_t {
  match,
  lock,
  insert,
  evict,
  evict_host,
  load_back,
  prefetch,
  end_prefetch,
  abort_prefetch,
  start,
  allocate,  ///< allocate, allocate_extend and allocate_decode
  allocate_state,
  checkpoint,
  finish,
  release_window,
  poll,
  reset,
};
inline constexpr std::size_t kNumCacheCalls = static_cast<std::size_t>(CacheCall::reset) + 1;
std::string_view to_string(CacheCall call);

/// A call that has returned.
struct CallInfo {
  CacheCall call = CacheCall::match;    ///< which one
  std::chrono::nanoseconds took{0};     ///< how long it took
  std::optional<ErrorCode> error = {};  ///< `std::nullopt`: it succeeded
};

/// A request that went from start() to finish().
struct FinishedRequest {
  Key key;                        ///< all tokens: the prompt, and what was computed behind it
  std::size_t prompt_length = 0;  ///< tokens that start() was given
  std::chrono::steady_clock::time_point started = {};  ///< when start() was called
};

/// A plug point: each method may be left out. Must outlive the cache.
class CacheObserver {
 public:
  virtual ~CacheObserver() = default;

  /// After every call of the engine, failed ones too.
  virtual void on_call(const CallInfo&) {}
  /// By match() and start(). `asked` is the whole key: start() never looks for its last token.
  virtual void on_match(const Key& /*asked*/, const Match& /*found*/) {}
  /// By insert(), checkpoint() and finish(), where the tree was given something.
  virtual void on_insert(const Key&, const Inserted&) {}
  /// Whoever needed the room. `from` is the device or the host; of the host, `tokens` are those
  /// that it alone had or that it gave up a copy of.
  virtual void on_evict(Tier /*from*/, const EvictResult&) {}
  virtual void on_load_back(const LoadBack&) {}
  virtual void on_prefetch(const Key&, const Prefetch&) {}
  /// Of a prefetch that was ended, not aborted: tokens that the host has more.
  virtual void on_prefetched(std::size_t /*tokens*/) {}
  virtual void on_poll(const PollResult&) {}
  /// Only of requests that were started while there was an observer.
  virtual void on_finish(const FinishedRequest&) {}
};

/// Tells several, in the order given. They must outlive it.
class ObserverFanOut final : public CacheObserver {
 public:
  explicit ObserverFanOut(std::vector<CacheObserver*> observers);

  void on_call(const CallInfo& info) override;
  void on_match(const Key& asked, const Match& found) override;
  void on_insert(const Key& key, const Inserted& inserted) override;
  void on_evict(Tier from, const EvictResult& evicted) override;
  void on_load_back(const LoadBack& loaded) override;
  void on_prefetch(const Key& key, const Prefetch& prefetch) override;
  void on_prefetched(std::size_t tokens) override;
  void on_poll(const PollResult& result) override;
  void on_finish(const FinishedRequest& request) override;

 private:
  std::vector<CacheObserver*> observers_;
};

// ---- Trace recorder
// ------------------------------------------------------------------------------ TraceRecorder: an
// observer that writes the requests a cache sees as a trace, one JSON object a line, in the form of
// Mooncake's traces (docs/formats.md), to be replayed elsewhere. No prompt can be read from it:
// blocks of tokens are named by a keyed hash, namespaces too.
//
// A line is written when its request finishes: only then is the length of its output known. So
// lines are in the order of finishing, and a reader sorts them by timestamp. Requests that never
// finish are not in the trace. Hashing and writing happen on a thread of the recorder; on_finish()
// copies the prompt into a bounded queue, and what does not fit is dropped and counted.
//
// on_finish() and record() may come from several threads: caches may share a recorder.

struct TraceRecorderOptions {
  std::string path;
  std::size_t block_tokens = 512;  ///< tokens that share an id; the last block may have fewer
  /// Ids are alike where keys and block_tokens are. Random unless given; whoever knows it can test
  /// guesses of prompts against a trace.
  std::optional<std::string> key = {};
  /// A file that would grow beyond this becomes path.1, that one path.2, and so on.
  std::size_t max_file_bytes = std::size_t{256} << 20;
  std::size_t max_files = 8;  ///< then the oldest goes
  std::size_t max_queued_tokens = std::size_t{16} << 20;

  Status validate() const;
};

/// Totals of a TraceRecorder.
struct TraceRecorderStats {
  std::uint64_t recorded_requests = 0;  ///< lines written
  std::uint64_t dropped_requests = 0;   ///< requests for which the queue had no room
  std::uint64_t failed_requests = 0;    ///< requests that could not be written
  std::uint64_t written_bytes = 0;      ///< bytes of all lines
  std::uint64_t rotations = 0;          ///< files that were full and were put aside
  std::uint64_t queued_tokens = 0;      ///< tokens of requests that wait to be written now
};

/// An observer that writes the requests a cache sees as a trace, to be replayed elsewhere. No
/// prompt can be read from it: blocks of tokens are named by a keyed hash. Several caches may share
/// one.
class TraceRecorder final : public CacheObserver {
 public:
  /// A file that is there already is put aside as if it were full. An error if none can be opened.
  static Result<std::unique_ptr<TraceRecorder>> create(const TraceRecorderOptions& options);
  /// Writes what is queued.
  ~TraceRecorder() override;
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;

  void on_finish(const FinishedRequest& request) override;
  /// Writes a request, for engines that do not start and finish requests through a cache. False:
  /// dropped.
  bool record(const Key& prompt, std::size_t output_length,
              std::chrono::steady_clock::time_point started);

  void flush();  ///< blocks until all that came before is written, or has failed
  TraceRecorderStats stats() const;  ///< totals since it was made
  /// The last error of the file; success after a line that could be written again.
  Status status() const;

 private:
  struct Impl;
  explicit TraceRecorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
