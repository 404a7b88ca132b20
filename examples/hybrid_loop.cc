// SPDX-License-Identifier: Apache-2.0
// An engine's main loop for a model that mixes full-attention, sliding-window and recurrent layers,
// with the model left out: one conversation of four turns. Each turn takes up the snapshot of the
// last, computes its new tokens chunk by chunk, gives back windows as it goes, and leaves a
// snapshot.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

#include "pando/cache.h"
#include "pando/inspect.h"

namespace {

constexpr std::size_t kPage = 16;
constexpr std::size_t kChunk = 64;

void serve(pando::PrefixCache& cache, std::span<const pando::Token> prompt) {
  pando::Request request = *cache.start(prompt);
  const pando::Match match = request.found();
  if (match.snapshot) {
    // ... copy the snapshot's state to the request's own ...
    request.release_snapshot().value();
  }
  for (std::size_t done = match.length; done < prompt.size();) {
    const std::size_t next = std::min(done + kChunk, prompt.size());
    cache.allocate(request, next).value();
    // ... compute tokens [done, next); window layers write to WindowAllocator::translate(slots) ...
    done = next;
    cache.release_window(request, done).value();
  }
  const pando::StateSlot snapshot = *cache.allocate_state();
  // ... the state after the last whole page goes to that slot ...
  cache.set_snapshot(request, snapshot, prompt.size() / kPage * kPage).value();
  cache.finish(request).value();
  std::printf(
      "%4zu of %4zu tokens from the cache; now %zu tokens, %zu with a window, %zu snapshots\n",
      match.length, prompt.size(), cache.inspect().sizes().total,
      cache.inspect().sizes(pando::ComponentKind::window).total,
      cache.inspect().sizes(pando::ComponentKind::state).total);
}

}  // namespace

int main() {
  auto slots = *pando::WindowAllocator::create(
      {.full_tokens = 4096, .window_tokens = 512, .page_size = kPage});
  auto states = *pando::StateAllocator::create(8);
  pando::CacheOptions options;
  options.window = 128;
  options.state = pando::StateOptions{.snapshot_interval = 256};
  auto cache = *pando::PrefixCache::create(options, *slots, {}, states.get());

  std::vector<pando::Token> conversation(1600);
  std::iota(conversation.begin(), conversation.end(), 1);
  for (const std::size_t length : {1000, 1150, 1400, 1600})
    serve(*cache, std::span(conversation).first(length));
  std::printf("%s", cache->inspect().dump().c_str());
  return cache->check().ok() ? 0 : 1;
}
