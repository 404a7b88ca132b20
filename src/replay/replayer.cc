// SPDX-License-Identifier: Apache-2.0
// The replay loop. While a request runs, its key and slots cover exactly the tokens that have a
// slot, so it can be finished properly at any point: after the last token, or when room runs out.
#include "replay/replayer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace pando {
namespace {

/// The last output token is sampled but never fed back, so its KV is never computed.
std::size_t kv_length(const ReplayRequest& request) {
  return request.output().empty() ? request.prompt_length : request.tokens.size() - 1;
}

bool is_refusal(const Error& error) { return error.code == ErrorCode::out_of_capacity; }

}  // namespace

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::start:
      return "start";
    case Operation::allocate:
      return "allocate";
    case Operation::checkpoint:
      return "checkpoint";
    case Operation::decode:
      return "decode";
    case Operation::finish:
      return "finish";
  }
  return "unknown";
}

Status ReplayOptions::validate() const {
  if (chunk_tokens == 0)
    return make_error(ErrorCode::invalid_argument, "replay: a chunk must hold at least one token");
  if (check_every == 0)
    return make_error(ErrorCode::invalid_argument, "replay: check_every must be at least one");
  return {};
}

double ReplayReport::hit_ratio() const {
  if (prompt_tokens == 0) return 0.0;
  return static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
}

double ReplayReport::cache_seconds() const {
  std::uint64_t total = 0;
  for (const Histogram& histogram : nanoseconds) total += histogram.sum();
  return static_cast<double>(total) * 1e-9;
}

Result<Replayer> Replayer::create(PrefixCache& cache, const PagedAllocator& allocator,
                                  const ReplayOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  return Replayer(cache, allocator, options);
}

Replayer::Replayer(PrefixCache& cache, const PagedAllocator& allocator,
                   const ReplayOptions& options)
    : cache_(&cache), allocator_(&allocator), options_(options) {}

template <typename Call>
auto Replayer::timed(Operation operation, Call&& call) {
  const auto begin = std::chrono::steady_clock::now();
  auto result = call();
  const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - begin;
  report_.nanoseconds[static_cast<std::size_t>(operation)].record(
      static_cast<std::uint64_t>(elapsed.count()));
  return result;
}

Status Replayer::run(Workload& workload, const std::function<void()>& after_each) {
  for (;;) {
    Result<std::optional<ReplayRequest>> request = workload.next();
    if (!request) return request.error();
    if (!*request) return {};
    if (Status served = serve(**request); !served) return served;
    if (after_each) after_each();
  }
}

Status Replayer::serve(const ReplayRequest& request) {
  // What can never fit is turned away at the door, before it pushes everything else out.
  if (kv_length(request) > allocator_->capacity()) {
    ++report_.refused;
    return {};
  }

  slots_.resize(std::max(slots_.size(), request.tokens.size()));
  Request running;
  running.key = {request.prompt(), request.ns};
  running.slots = std::span(slots_).first(request.prompt_length);
  const Result<Match> match = timed(Operation::start, [&] { return cache_->start(running); });
  if (!match) return match.error();
  running.lease.release_partial();  // its rows are computed again here, not copied
  running.key.tokens = request.tokens.first(running.cached_length);
  running.slots = running.slots.first(running.cached_length);

  Status computed = compute(running, request);
  // What was computed before room ran out is worth keeping.
  Status finished = timed(Operation::finish, [&] { return cache_->finish(running); });
  if (!finished) return finished;
  if (computed) {
    count_served(request, *match);
  } else if (is_refusal(computed.error())) {
    ++report_.refused;
  } else {
    return computed;
  }

  const std::uint64_t requests = report_.served + report_.refused;
  if (options_.check_every && requests % *options_.check_every == 0) return cache_->check();
  return {};
}

Status Replayer::compute(Request& running, const ReplayRequest& request) {
  if (Status status = prefill(running, request); !status) return status;
  return decode(running, request);
}

Status Replayer::prefill(Request& running, const ReplayRequest& request) {
  const std::size_t chunk_tokens = options_.chunk_tokens.value_or(request.prompt_length);
  while (running.slots.size() < request.prompt_length) {
    const std::size_t left = request.prompt_length - running.slots.size();
    const std::size_t length = running.slots.size() + std::min(left, chunk_tokens);
    if (Status room = grow(running, request, length, Operation::allocate); !room) return room;
    if (!options_.chunk_tokens) continue;
    // `chunked` for the last chunk too: the request counts as a hit once, when it finishes.
    Status kept =
        timed(Operation::checkpoint, [&] { return cache_->checkpoint(running, /*chunked=*/true); });
    if (!kept) return kept;
  }
  return {};
}

Status Replayer::decode(Request& running, const ReplayRequest& request) {
  const std::size_t end = kv_length(request);
  const std::size_t page_size = allocator_->page_size();
  while (running.slots.size() < end) {
    const std::size_t page_end = (running.slots.size() / page_size + 1) * page_size;
    const std::size_t length = std::min(end, page_end);
    if (Status room = grow(running, request, length, Operation::decode); !room) return room;
  }
  return {};
}

/// Slots for tokens up to `length`; on an error the request is as before.
Status Replayer::grow(Request& running, const ReplayRequest& request, std::size_t length,
                      Operation operation) {
  const CacheStats before = cache_->stats();
  const std::size_t from = running.slots.size();

  running.slots = std::span(slots_).first(length);
  Status room = timed(operation, [&] { return cache_->allocate(running, from); });
  if (!room) running.slots = running.slots.first(from);
  running.key.tokens = request.tokens.first(running.slots.size());

  const CacheStats after = cache_->stats();
  report_.evicted.tokens += after.evicted_tokens - before.evicted_tokens;
  report_.evicted.nodes += after.evicted_nodes - before.evicted_nodes;
  return room;
}

void Replayer::count_served(const ReplayRequest& request, const Match& match) {
  ++report_.served;
  report_.prompt_tokens += request.prompt_length;
  report_.cached_tokens += match.length;
  report_.output_tokens += request.output().size();
  ++report_.match_ends[static_cast<std::size_t>(match.end)];
}

}  // namespace pando
