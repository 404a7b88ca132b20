// SPDX-License-Identifier: Apache-2.0
// An engine's main loop around the cache, with the model left out: three users of one system prompt
// and one that comes back. Prints what each request had to compute.
#include <cstdio>
#include <numeric>
#include <vector>

#include "pando/cache.h"
#include "pando/inspect.h"

namespace {

// What a GPU would do for tokens [from, to): write their KV to their slots.
void forward(std::span<const pando::SlotId>, std::size_t, std::size_t) {}

void serve(pando::PrefixCache& cache, const std::vector<pando::Token>& prompt, const char* who) {
  pando::Request request = *cache.start(prompt);  // what is cached is locked, and in its slots
  const pando::Match& match = request.found();
  if (const pando::Status room = cache.allocate(request); !room) {
    std::printf("%-6s refused: %s\n", who, room.error().message.c_str());
    return;  // the request gives back what it holds
  }
  forward(request.slots(), match.length, prompt.size());
  cache.finish(request).value();  // the tree takes whole pages, the rest goes back
  std::printf("%-6s %4zu of %4zu tokens from the cache (%s)\n", who, match.length, prompt.size(),
              std::string(to_string(match.end)).c_str());
}

}  // namespace

int main() {
  auto allocator = *pando::PagedAllocator::create({.capacity_tokens = 4096, .page_size = 16});
  auto cache = *pando::PrefixCache::create({}, *allocator);

  std::vector<pando::Token> system_prompt(1000);
  std::iota(system_prompt.begin(), system_prompt.end(), 1);
  for (const auto& [who, first] : {std::pair{"ada", 5000}, {"ben", 6000}, {"cleo", 7000}}) {
    std::vector<pando::Token> prompt = system_prompt;
    for (int i = 0; i < 200; ++i) prompt.push_back(first + i);
    serve(*cache, prompt, who);
    if (first == 7000) {
      for (int i = 0; i < 100; ++i) prompt.push_back(first + 500 + i);
      serve(*cache, prompt, who);  // the next turn of the same conversation
    }
  }
  std::printf("%s", cache->inspect().dump().c_str());
  return cache->check().ok() ? 0 : 1;
}
