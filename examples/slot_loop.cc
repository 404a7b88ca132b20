// SPDX-License-Identifier: Apache-2.0
// A small engine with one contiguous slot per sequence: a conversation goes on in the slot that
// holds it, a new one that begins like another gets a copy of what they share, with real bytes.
#include <cstdio>
#include <numeric>
#include <vector>

#include "pando/slot_cache.h"

namespace {

using namespace pando;

constexpr std::size_t kSlotTokens = 64;
constexpr std::size_t kSlots = 4;

/// Members go in reverse: the cache before what it works on.
struct Engine {
  /// Returns the slot, which stays taken until the sequence is done.
  std::size_t serve(const std::vector<Token>& tokens) {
    const auto match = cache->find({tokens}).value();
    const std::size_t length = match ? match->length : 0;
    std::size_t slot = 0;
    if (match && match->free && cache->occupy(*match).ok()) {
      slot = match->slot;  // go on where the sequence is
    } else {
      slot = cache->take().value();
      if (length > 0) cache->copy_kv({std::span(tokens).first(length)}, slot)->wait().value();
    }
    // ... the engine computes tokens [length, tokens.size()) into the slot ...
    cache->insert({tokens}, slot).value();
    std::printf("slot %zu: %zu of %zu tokens reused%s\n", slot, length, tokens.size(),
                length > 0 && slot != match->slot ? ", copied" : "");
    return slot;
  }

  std::unique_ptr<Arena> arena = make_malloc_arena();
  std::unique_ptr<KvPool> pool = *KvPool::create(
      {.geometry = mha_geometry(
           {.layers = {.num_layers = 2, .page_size = kSlotTokens}, .heads = 2, .head_dim = 16}),
       .capacity_tokens = kSlots * kSlotTokens},
      *arena);
  std::unique_ptr<Copier> copier = *make_cpu_copier();
  std::unique_ptr<SlotAllocator> slots = *SlotAllocator::create(kSlots);
  std::unique_ptr<SlotCache> cache = *SlotCache::create(
      {.slot_tokens = kSlotTokens, .pool = pool.get(), .copier = copier.get()}, *slots);
};

}  // namespace

int main() {
  Engine engine;
  std::vector<Token> chat(30);
  std::iota(chat.begin(), chat.end(), 1);
  const std::size_t first = engine.serve(chat);
  std::vector<Token> other(chat.begin(), chat.begin() + 20);  // the same system prompt
  other.push_back(999);
  engine.cache->free(engine.serve(other));  // while the first is in use
  engine.cache->free(first);
  for (Token t = 100; t < 110; ++t) chat.push_back(t);  // the next turn
  engine.cache->free(engine.serve(chat));
  return engine.cache->check().ok() ? 0 : 1;
}
