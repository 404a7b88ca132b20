// SPDX-License-Identifier: Apache-2.0
// An engine's main loop over three tiers, with the model left out: a device that is too small for
// its prompts, host memory behind it, and a directory behind that. Prompts come back from the host,
// and after a restart from the directory.
// usage: tiered_loop [DIRECTORY]; without one the third tier is memory too, and there is no
// restart.
#include <cstdio>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "pando/cache.h"

namespace {

using namespace pando;

constexpr std::size_t kPage = 16;
constexpr std::size_t kDeviceTokens = 512;

std::vector<Token> prompt(int number) {
  std::vector<Token> tokens(400);
  std::iota(tokens.begin(), tokens.end(), number * 1000);
  return tokens;
}

/// One engine process. Members go in reverse: the cache before what it works on.
struct Engine {
  explicit Engine(const std::string& directory) {
    CacheOptions options;
    HostTierOptions& host_tier = options.host.emplace();
    host_tier.full = {device.get(), host.get()};
    host_tier.copier = copier.get();
    host_tier.write_policy = WritePolicy::write_through;
    cache = *PrefixCache::create(options, *slots);

    StorageOptions storage;
    storage.backend = directory.empty() ? "memory" : "file";
    if (!directory.empty()) storage.options = R"({"directory": ")" + directory + R"("})";
    storage.scope.model = "example/model";
    storage.prefetch_policy = "wait_complete";
    std::printf("%s\n", cache->tiers().attach_storage(storage)->c_str());
  }

  /// Returns how many tokens came from the store.
  std::size_t serve(int number) {
    const std::vector<Token> tokens = prompt(number);
    // While the request waits its turn, what only the store has comes to the host.
    const Prefetch prefetch = *cache->prefetch({tokens});
    while (!cache->prefetch_ready(prefetch.id)) step();
    const std::size_t fetched = cache->end_prefetch(prefetch.id);

    Request request = *cache->start(tokens);
    const Match match = request.found();
    const LoadBack loaded = *cache->load_back(request);
    cache->allocate(request).value();
    // ... compute the rest; each layer's KvPool::key() waits for what is being loaded of it ...
    cache->finish(request).value();
    while (!cache->poll().idle) std::this_thread::yield();
    std::printf(
        "prompt %d: %3zu tokens fetched from the store to the host; %3zu found on the "
        "device, %3zu loaded from the host, %3zu computed\n",
        number, fetched, match.length, loaded.tokens, tokens.size() - match.length - loaded.tokens);
    return fetched;
  }

  /// What an engine does between two of its own steps.
  void step() {
    (void)cache->poll();
    std::this_thread::yield();
  }

  std::unique_ptr<Arena> memory = make_malloc_arena();
  std::unique_ptr<PagedAllocator> slots =
      *PagedAllocator::create({.capacity_tokens = kDeviceTokens, .page_size = kPage});
  std::unique_ptr<KvPool> device = *KvPool::create(
      {.geometry =
           mha_geometry({.layers = {.num_layers = 4, .page_size = kPage, .dtype = DType::bf16},
                         .heads = 2,
                         .head_dim = 64}),
       .capacity_tokens = kDeviceTokens},
      *memory);
  std::unique_ptr<HostPool> host = *HostPool::create(
      {.layout = HostLayout::page_first, .ratio = 8.0, .keep_free_bytes = 0}, *device, *memory);
  std::unique_ptr<Copier> copier = *make_cpu_copier();
  std::unique_ptr<PrefixCache> cache;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string directory = argc > 1 ? argv[1] : "";
  {
    Engine engine(directory);
    for (const int number : {1, 2, 1, 2}) engine.serve(number);
  }
  if (directory.empty()) return 0;
  std::printf("the engine starts again\n");
  Engine engine(directory);
  const bool found = engine.serve(2) > 0;
  return found && engine.cache->check().ok() ? 0 : 1;
}
