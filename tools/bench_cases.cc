// SPDX-License-Identifier: Apache-2.0
// The cases, one function each. PrefixCache first, then BlockCache.
#include "tools/bench_cases.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "cases/cached_prompt.h"
#include "cases/forest.h"
#include "cases/hash_messages.h"
#include "cases/insert_case.h"
#include "cases/match_visit.h"
#include "cases/tree.h"
#include "pando/block_cache.h"
#include "pando/paths.h"

namespace pando::tools {
namespace {

using namespace bench;

constexpr std::size_t kPage = 64;
constexpr std::size_t kPrompt = 8192;
constexpr std::size_t kBlock = 16;

std::size_t rounds(std::size_t usual, double effort) {
  return std::max<std::size_t>(5, static_cast<std::size_t>(static_cast<double>(usual) * effort));
}

/// A prompt of four edges: three others branch off it.
Tree tree_of_edges(std::span<const Token> tokens) {
  Tree tree(64 * 1024, kPage);
  tree.insert(tokens);
  for (const std::size_t at : {2048, 4096, 6144}) {
    std::vector<Token> other(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(at));
    other.resize(at + kPage, 1);
    tree.insert(other);
  }
  return tree;
}

CaseResult match(double effort) {
  const Sequences sequences(1, kPrompt, 0, 1);
  const Tree tree = tree_of_edges(sequences[0]);
  Visit visit(sequences);
  require(tree.cache->paths().match({sequences[0]}, visit.out)->length == kPrompt,
          "whole key matches");
  const Measured measured = measure(
      rounds(401, effort), 200,
      [&](std::size_t) { keep(tree.cache->paths().match({sequences[0]}, visit.out)->length); },
      [&](std::size_t) { visit.limit(0); }, [] {});
  return {measured, kPrompt};
}

CaseResult match_wide(std::size_t leaves, double effort) {
  constexpr std::size_t kLength = 640;
  const Sequences sequences(leaves, kLength, 128, 100);
  Tree tree(leaves * kLength, kPage);
  for (std::size_t i = 0; i < leaves; ++i) tree.insert(sequences[i]);
  Visit visit(sequences);
  const auto order = shuffled(leaves, 1), limit_order = shuffled(leaves, 2);
  for (const std::size_t i : order)
    require(tree.cache->paths().match({sequences[i]}, visit.out)->length == kLength,
            "whole key matches");
  std::size_t w = 0, l = 0;
  const Measured measured = measure(
      rounds(101, effort), 500,
      [&](std::size_t) {
        keep(tree.cache->paths().match({sequences[order[w++ % leaves]]}, visit.out)->length);
      },
      [&](std::size_t) { visit.limit(limit_order[l++ % leaves]); }, [] {});
  return {measured, kLength};
}

CaseResult probe(double effort) {
  const Sequences sequences(1, kPrompt, 0, 1);
  const Tree tree = tree_of_edges(sequences[0]);
  require(tree.cache->paths().probe({sequences[0]}) == kPrompt, "all of it");
  const std::vector<Token> copy(sequences[0].begin(), sequences[0].end());
  const Measured measured = measure(
      rounds(401, effort), 200,
      [&](std::size_t) { keep(tree.cache->paths().probe({sequences[0]})); },
      [&](std::size_t) {
        keep(std::memcmp(sequences[0].data(), copy.data(), kPrompt * sizeof(Token)));
      },
      [] {});
  return {measured, kPrompt};
}

CaseResult insert(double effort) {
  InsertCase inserts;
  const Measured measured = measure(
      rounds(101, effort), InsertCase::kBatch, [&](std::size_t i) { inserts.work(i); },
      [&](std::size_t i) { inserts.limit(i); }, [&] { inserts.prepare(); });
  inserts.give_back_from(0);
  return {measured, InsertCase::kLength};
}

CaseResult allocate(double effort) {
  constexpr std::size_t kBatch = 64;
  const Sequences sequences(1, kPrompt, 0, 1);
  Tree tree((kBatch + 1) * kPrompt, kPage);
  std::vector<std::vector<SlotId>> slots(kBatch, std::vector<SlotId>(kPrompt));
  const auto work = [&](std::size_t i) { tree.extend(slots[i], 0); };
  const auto give_back = [&] {
    for (const auto& taken : slots) tree.allocator->free(taken);
  };
  const std::size_t before = tree.allocator->available();
  for (std::size_t i = 0; i < kBatch; ++i) work(i);
  require(tree.allocator->available() + kBatch * kPrompt == before, "each has slots of its own");
  give_back();
  std::vector<SlotId> copy(kPrompt);
  const Measured measured = measure(
      rounds(101, effort), kBatch, work,
      [&](std::size_t i) {
        std::memcpy(copy.data(), slots[i].data(), kPrompt * sizeof(SlotId));
        keep(copy.data());
      },
      give_back);
  return {measured, kPrompt};
}

CaseResult evict(std::size_t leaves, double effort) {
  constexpr std::size_t kBatch = 400;
  Forest small(1000, {}), large(leaves, {});
  require(small.whole() && large.whole(), "all leaves are there");
  std::vector<double> ns, base, ratios;
  for (std::size_t round = 0; round < rounds(40, effort); ++round) {
    if (large.spare() < kBatch) large.fill();
    ns.push_back(large.evict(kBatch));
    small.fill();
    base.push_back(small.evict(kBatch));
    ratios.push_back(ns.back() / base.back());
  }
  return {{median(ns), median(base), median(ratios)}, 1};
}

CaseResult hash(HashFunction function, double effort) {
  const std::vector<Token> tokens = prompt(kPrompt);
  const BlockHasher hasher = *BlockHasher::create(kBlock, {.function = function});
  std::vector<BlockHash> chain;
  chain.reserve(kPrompt / kBlock);
  const auto work = [&](std::size_t) {
    chain.clear();
    require(hasher.extend(tokens, {}, chain).ok(), "hashes");
    keep(chain.data());
  };
  work(0);
  HashMessages messages(function, tokens, kBlock, chain);
  const Measured measured = measure(
      rounds(21, effort), 20, work, [&](std::size_t) { messages.hash(false); }, [] {});
  return {measured, static_cast<double>(messages.size())};
}

CaseResult take_free(double effort) {
  constexpr std::size_t kTaken = 1000;
  BlockPoolOptions options;
  options.num_blocks = 100'001;
  const auto pool = std::move(*BlockPool::create(options));
  std::vector<PageId> blocks(kTaken), copy(kTaken);
  const auto work = [&](std::size_t) {
    require(pool->take(blocks).ok(), "room");
    std::reverse(blocks.begin(), blocks.end());
    pool->free(blocks);
  };
  for (int i = 0; i < 300; ++i) work(0);  // every block has been through
  require(pool->num_free() == options.num_blocks - 1 && pool->check().ok(), "all back");
  const Measured measured = measure(
      rounds(101, effort), 10, work,
      [&](std::size_t) {
        std::memcpy(copy.data(), blocks.data(), kTaken * sizeof(PageId));
        keep(copy.data());
      },
      [] {});
  return {measured, kTaken};
}

CaseResult find_blocks(double effort) {
  CachedPrompt cached;
  const Measured measured = measure(
      rounds(21, effort), 10, [&](std::size_t) { cached.find(); },
      [&](std::size_t) { cached.limit(); }, [] {});
  return {measured, static_cast<double>(CachedPrompt::kLength / kBlock)};
}

}  // namespace

double token_limit_ns() {
  const Sequences sequences(1, kPrompt, 0, 1);
  Visit visit(sequences);
  std::vector<double> ns;
  for (int i = 0; i < 21; ++i) ns.push_back(time_each(200, [&](std::size_t) { visit.limit(0); }));
  return median(ns) / kPrompt;
}

std::vector<BenchCase> bench_cases(bool quick) {
  const std::size_t leaves = quick ? 2'000 : 20'000, victims = quick ? 5'000 : 100'000;
  const char* const compare_copy = "memcmp of tokens, memcpy of slots";
  return {
      {"match", "match 8192 cached tokens", "tokens", compare_copy, match},
      {"match_wide", "match 640 tokens, one of " + std::to_string(leaves) + " leaves", "tokens",
       compare_copy, [=](double effort) { return match_wide(leaves, effort); }},
      {"probe", "probe 8192 cached tokens", "tokens", "memcmp of tokens", probe},
      {"insert", "insert 8192 tokens, 6144 there", "tokens",
       "memcmp of the shared, memcpy of the new", insert},
      {"allocate", "allocate 8192 tokens", "tokens", "memcpy of slots", allocate},
      {"evict", "evict one leaf of " + std::to_string(victims), "leaves",
       "the same in a tree of 1000", [=](double effort) { return evict(victims, effort); }},
      {"hash_sha256", "name 512 blocks, vLLM's SHA-256", "blocks", "the messages by libcrypto",
       [](double effort) { return hash(HashFunction::sha256_cbor, effort); }},
      {"hash_xxhash", "name 512 blocks, vLLM's xxHash", "blocks", "the messages by xxHash",
       [](double effort) { return hash(HashFunction::xxhash_cbor, effort); }},
      {"take_free", "take and free 1000 blocks", "blocks", "memcpy of their ids", take_free},
      {"find_blocks", "hash and find 2048 cached blocks", "blocks", "memcpy, memcmp of the tokens",
       find_blocks},
  };
}

}  // namespace pando::tools
