// SPDX-License-Identifier: Apache-2.0
// The names of calls, and the observer that passes everything on to several.
#include "pando/observer.h"

#include <utility>

#include "base/check.h"
#include "base/named.h"

namespace pando {
namespace {

constexpr Named<CacheCall> kCalls[] = {
    {CacheCall::match, "match"},
    {CacheCall::lock, "lock"},
    {CacheCall::insert, "insert"},
    {CacheCall::evict, "evict"},
    {CacheCall::evict_host, "evict_host"},
    {CacheCall::load_back, "load_back"},
    {CacheCall::prefetch, "prefetch"},
    {CacheCall::end_prefetch, "end_prefetch"},
    {CacheCall::abort_prefetch, "abort_prefetch"},
    {CacheCall::start, "start"},
    {CacheCall::allocate, "allocate"},
    {CacheCall::allocate_state, "allocate_state"},
    {CacheCall::checkpoint, "checkpoint"},
    {CacheCall::finish, "finish"},
    {CacheCall::release_window, "release_window"},
    {CacheCall::poll, "poll"},
    {CacheCall::reset, "reset"},
};
static_assert(std::size(kCalls) == kNumCacheCalls);

}  // namespace

std::string_view to_string(CacheCall call) { return name_of(kCalls, call); }

ObserverFanOut::ObserverFanOut(std::vector<CacheObserver*> observers)
    : observers_(std::move(observers)) {
  for (std::size_t i = 0; i < observers_.size(); ++i)
    PANDO_CHECK(observers_[i] != nullptr, "ObserverFanOut: observer {} is null", i);
}

void ObserverFanOut::on_call(const CallInfo& info) {
  for (CacheObserver* o : observers_) o->on_call(info);
}
void ObserverFanOut::on_match(const Key& asked, const Match& found) {
  for (CacheObserver* o : observers_) o->on_match(asked, found);
}
void ObserverFanOut::on_insert(const Key& key, const Inserted& inserted) {
  for (CacheObserver* o : observers_) o->on_insert(key, inserted);
}
void ObserverFanOut::on_evict(Tier from, const EvictResult& evicted) {
  for (CacheObserver* o : observers_) o->on_evict(from, evicted);
}
void ObserverFanOut::on_load_back(const LoadBack& loaded) {
  for (CacheObserver* o : observers_) o->on_load_back(loaded);
}
void ObserverFanOut::on_prefetch(const Key& key, const Prefetch& prefetch) {
  for (CacheObserver* o : observers_) o->on_prefetch(key, prefetch);
}
void ObserverFanOut::on_prefetched(std::size_t tokens) {
  for (CacheObserver* o : observers_) o->on_prefetched(tokens);
}
void ObserverFanOut::on_poll(const PollResult& result) {
  for (CacheObserver* o : observers_) o->on_poll(result);
}
void ObserverFanOut::on_finish(const FinishedRequest& request) {
  for (CacheObserver* o : observers_) o->on_finish(request);
}

}  // namespace pando
