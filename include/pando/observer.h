// SPDX-License-Identifier: Apache-2.0
// CacheObserver: whoever wants to see what a cache does as it does it. Metrics (metrics.h) and
// TraceRecorder (trace_recorder.h) are two; ObserverFanOut gives a cache several. PrefixCache tells
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
#include <optional>
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

}  // namespace pando
