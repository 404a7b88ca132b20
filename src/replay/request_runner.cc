// SPDX-License-Identifier: Apache-2.0
// The steps of a request, and what is counted of it.
#include "replay/request_runner.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/check.h"
#include "pando/inspect.h"
#include "replay/mix.h"

namespace pando {

RequestRunner::RequestRunner(CacheStack& stack, const ReplayOptions& options,
                             ReplayResults& results)
    : stack_(stack),
      cache_(stack.cache()),
      options_(options),
      block_tokens_(options.block_tokens),
      namespace_per_session_(options.namespace_per_session),
      results_(results) {
  if (!stack.options().geometry) return;
  const std::size_t page_size = stack.options().page_size;
  rows_ = std::make_unique<KvRows>(*stack.device(), page_size);
  if (stack.device_window() != nullptr)
    window_rows_ = std::make_unique<KvRows>(*stack.device_window(), page_size);
}

template <typename Call>
auto RequestRunner::timed(Operation operation, Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = call();
  const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begin;
  results_.nanoseconds[operation].record(static_cast<std::uint64_t>(took.count()));
  return result;
}

// ---- Finding -----------------------------------------------------------------------------------

// Waits for the store, so that what is found does not depend on its speed.
Result<std::size_t> RequestRunner::fetch(const Key& key) {
  return timed(Operation::prefetch, [&]() -> Result<std::size_t> {
    const Result<Prefetch> prefetch = cache_.prefetch(key);
    if (!prefetch) return prefetch.error();
    if (!prefetch->id) return std::size_t{0};
    while (!cache_.prefetch_ready(prefetch->id)) {
      cache_.poll();
      std::this_thread::yield();
    }
    return cache_.end_prefetch(prefetch->id);
  });
}

Result<RequestRunner::Found> RequestRunner::find(RunningRequest& running, SessionId session) {
  std::size_t fetched = 0;
  if (stack_.has_store()) {
    const Result<std::size_t> got = fetch(running.key);
    if (!got) return got.error();
    fetched = *got;
  }
  Result<Request> started = timed(Operation::start, [&] {
    return cache_.start(running.key.tokens,
                        {.ns = std::string(running.key.ns), .session = session, .recompute = 0});
  });
  if (!started) return started.error();
  Request& request = running.request = std::move(*started);
  const Match* const match = &request.found();

  Found found{.agreed = std::max(match->agreed_length, match->length + match->host_length)};
  found.tokens[Tier::device] = match->length;
  if (match->host_length > 0) {
    const Result<LoadBack> loaded =
        timed(Operation::load_back, [&] { return cache_.load_back(request); });
    if (!loaded) return loaded.error();
    found.tokens[Tier::store] = std::min(fetched, loaded->tokens);
    found.tokens[Tier::host] = loaded->tokens - found.tokens[Tier::store];
  }
  return found;
}

// ---- Room --------------------------------------------------------------------------------------

// With a window, in steps that give back what has left it: a long input needs no more window slots
// than a short one.
Status RequestRunner::grow(RunningRequest& running, std::size_t length) {
  Request& request = running.request;
  std::size_t step = length;
  if (stack_.window_slots() != nullptr)
    step = std::max(stack_.options().page_size, stack_.window_slots()->window().capacity() / 4);
  std::size_t from = request.cached_length();
  while (from < length) {
    const std::size_t to = std::min(length, (from / step + 1) * step);
    if (Status s = timed(Operation::allocate, [&] { return cache_.allocate(request, to); }); !s)
      return s;
    compute(running, from, std::min(to, running.input_tokens));
    from = to;
    if (stack_.window_slots() == nullptr || from == length) continue;
    const Result<std::size_t> released =
        cache_.release_window(request, std::min(from, running.input_tokens));
    if (!released) return released.error();
  }
  return {};
}

Key RequestRunner::key_of(RunningRequest& running) const {
  const std::span<const Token> tokens = running.expander.of(running.trace, block_tokens_);
  return {tokens.first(std::min(tokens.size(), stack_.device_tokens())),
          namespace_per_session_ ? std::string_view(running.trace.session) : ""};
}

Result<bool> RequestRunner::begin(RunningRequest& running, std::size_t extra_tokens) {
  const std::size_t page_size = stack_.options().page_size;
  running.key = key_of(running);
  const std::span<const Token> tokens = running.key.tokens;
  const std::size_t room = stack_.device_tokens() - tokens.size() / page_size * page_size;
  running.input_tokens = tokens.size();
  running.request = Request{};
  if (tokens.empty()) {  // nothing to look for, nothing to keep
    count(running, Found{});
    return true;
  }
  if (rows_) rows_->set_key(tokens, running.key.ns);
  if (window_rows_) window_rows_->set_key(tokens, running.key.ns);

  const Result<SessionId> session = declare_session(running);
  if (!session) return session.error();
  const Result<Found> found = find(running, *session);
  if (!found) return found.error();
  if (rows_) {
    if (Status s = verify(running); !s) return s.error();
  }
  const Status grown = grow(running, tokens.size() + std::min(extra_tokens, room));
  if (!grown) {
    cache_.abandon(running.request);
    if (grown.error().code != ErrorCode::out_of_capacity) return grown.error();
    return false;
  }
  count(running, *found);
  return true;
}

// ---- Bytes -------------------------------------------------------------------------------------

Status RequestRunner::verify(const RunningRequest& running) {
  if (stack_.has_tiers() && !stack_.drain())
    return Error{ErrorCode::io_error, "a copy between tiers failed"};
  const std::size_t n = running.request.cached_length();
  std::optional<std::size_t> wrong = rows_->find_wrong(running.request.slots(), 0, n);
  if (!wrong && window_rows_) {
    window_slots_.resize(std::max(window_slots_.size(), n));
    stack_.window_slots()->translate(running.request.slots().first(n),
                                     std::span(window_slots_).first(n));
    wrong = window_rows_->find_wrong(window_slots_, n - std::min(n, *stack_.options().window), n);
  }
  results_.verified_tokens += n;
  if (!wrong) return {};
  return make_error(
      ErrorCode::corrupt,
      "request {}: token {} of {} that were cached has other bytes than were computed",
      results_.requests, *wrong, n);
}

void RequestRunner::compute(const RunningRequest& running, std::size_t from, std::size_t to) {
  if (!rows_ || from >= to) return;
  rows_->write(running.request.slots(), from, to);
  if (!window_rows_) return;
  window_slots_.resize(std::max(window_slots_.size(), to));
  const std::span full = running.request.slots().subspan(from, to - from);
  stack_.window_slots()->translate(full, std::span(window_slots_).subspan(from, to - from));
  window_rows_->write(window_slots_, from, to);
}

// ---- Ending ------------------------------------------------------------------------------------

Status RequestRunner::insert(RunningRequest& running) {
  if (running.input_tokens == 0) return {};
  return timed(Operation::insert,
               [&] { return cache_.checkpoint(running.request, running.input_tokens); });
}

Status RequestRunner::finish(RunningRequest& running, bool insert) {
  if (running.input_tokens == 0) return {};
  const Status finished = timed(Operation::finish, [&]() -> Status {
    if (insert) return cache_.finish(running.request, running.input_tokens);
    cache_.abandon(running.request);
    return {};
  });
  if (!finished) return finished;
  if (Status s = end_session(running); !s) return s;
  if (!stack_.has_tiers()) return {};
  if (!timed(Operation::poll, [&] { return stack_.drain(); })) ++results_.failed_copies;
  return {};
}

// ---- Sessions ----------------------------------------------------------------------------------

Result<SessionId> RequestRunner::declare_session(const RunningRequest& running) {
  const std::string& name = running.trace.session;
  const auto known = options_.sessions.find(name);
  if (known == options_.sessions.end()) return SessionId{};
  const auto [at, is_new] = sessions_.try_emplace(name, OpenSession{{}, known->second});
  if (is_new) {
    const Result<SessionId> opened =
        cache_.retention().open_session({.idle_after = std::chrono::hours(24)});
    if (!opened) return opened.error();
    at->second.id = *opened;
  }
  return at->second.id;
}

Status RequestRunner::end_session(const RunningRequest& running) {
  const auto at = sessions_.find(running.trace.session);
  if (at == sessions_.end() || --at->second.requests_left > 0) return {};
  return cache_.retention().close_session(at->second.id);
}

// ---- Counting ----------------------------------------------------------------------------------

void RequestRunner::count(const RunningRequest& running, const Found& found) {
  const TraceRequest& trace = running.trace;
  ++results_.requests;
  results_.blocks += trace.blocks.size();
  results_.input_tokens += trace.input_length;
  results_.output_tokens += trace.output_length;
  PerTier<std::uint64_t> hit_blocks;
  std::size_t tokens = 0;
  for (const Tier tier : kTiers) {
    const std::size_t before = tokens;
    tokens += found.tokens[tier];
    hit_blocks[tier] = tokens / block_tokens_ - before / block_tokens_;
    results_.hit_blocks[tier] += hit_blocks[tier];
    results_.hit_tokens[tier] +=
        std::min(tokens, trace.input_length) - std::min(before, trace.input_length);
  }
  if (options_.attention_tokens) {
    const auto cost = [&](std::size_t length) {
      const auto n = static_cast<double>(length);
      return n + n * n / (2 * *options_.attention_tokens);
    };
    results_.input_cost += cost(trace.input_length);
    results_.hit_cost += cost(std::min(tokens, trace.input_length));
  }
  count_misses(running, found, tokens / block_tokens_);
  sample(trace, hit_blocks);
}

void RequestRunner::count_misses(const RunningRequest& running, const Found& found,
                                 std::size_t hit_blocks) {
  const std::vector<BlockId>& blocks = running.trace.blocks;
  const std::size_t agreed_blocks = found.agreed / block_tokens_;
  const std::size_t kept_blocks = running.input_tokens / block_tokens_;
  if (kept_blocks < blocks.size()) ++results_.truncated_requests;
  const std::string_view ns = running.key.ns;
  const std::uint64_t seed = XXH3_64bits(ns.data(), ns.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!seen_.is_sampled(blocks[i])) continue;
    const std::uint64_t weight = seen_.weight();
    const bool is_new = seen_.insert(blocks[i]);
    bool is_new_here = is_new;
    if (namespace_per_session_) {
      const BlockId here = mix(seed, blocks[i]);
      is_new_here = !seen_in_namespace_.is_sampled(here) || seen_in_namespace_.insert(here);
    }
    if (i < hit_blocks) continue;
    Miss reason = Miss::evicted;
    if (is_new) {
      reason = Miss::never_seen;
    } else if (i < agreed_blocks) {
      reason = Miss::not_covered;
    } else if (i >= kept_blocks) {
      reason = Miss::no_room;
    } else if (is_new_here) {
      reason = Miss::other_namespace;
    }
    results_.missed_blocks[reason] += weight;
  }
  results_.unique_blocks = seen_.num_seen();
  results_.unique_blocks_estimated = seen_.weight() > 1;
}

void RequestRunner::sample(const TraceRequest& trace, const PerTier<std::uint64_t>& hit_blocks) {
  SeriesPoint point{.end_request = results_.requests, .end_s = trace.arrival_s, .requests = 1};
  point.blocks = trace.blocks.size();
  point.hit_blocks = hit_blocks;
  point.held_tokens[Tier::device] = stack_.device_tokens_used();
  results_.evicted_tokens[Tier::device] = cache_.inspect().stats().evicted_tokens;
  results_.evicted_nodes = cache_.inspect().stats().evicted_nodes;
  if (stack_.has_tiers()) {
    point.held_tokens[Tier::host] = cache_.inspect().host_sizes().total;
    results_.evicted_tokens[Tier::host] = cache_.tiers().stats().host_evicted_tokens;
  }
  if (stack_.has_store()) {
    point.held_tokens[Tier::store] = stack_.store_tokens_held();
    results_.evicted_tokens[Tier::store] = stack_.store_tokens_evicted();
  }
  for (const Tier tier : kTiers) {
    point.evicted_tokens[tier] = results_.evicted_tokens[tier] - evicted_before_[tier];
    results_.peak_tokens[tier] = std::max(results_.peak_tokens[tier], point.held_tokens[tier]);
  }
  evicted_before_ = results_.evicted_tokens;
  series_.add(point);
}

}  // namespace pando
