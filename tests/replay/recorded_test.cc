// SPDX-License-Identifier: Apache-2.0
// From production to a question: what a cache records is what a replay of it sees.
#include <gtest/gtest.h>

#include <set>

#include "base/random.h"
#include "pando/observer.h"
#include "replay/replayer.h"
#include "replay/trace_file.h"
#include "support/cache_fixture.h"
#include "support/temp_directory.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

/// Prompts that share beginnings, in two namespaces.
struct Prompt {
  Tokens tokens;
  std::string ns;
};
std::vector<Prompt> prompts() {
  Random random(7);
  std::vector<Prompt> all;
  for (int i = 0; i < 200; ++i) {
    Prompt& prompt = all.emplace_back();
    const auto topic = static_cast<Token>(random.below(5));
    const std::size_t length = 1 + random.below(100);
    for (std::size_t t = 0; t < length; ++t)
      prompt.tokens.push_back(t < 40 ? topic * 1000 + static_cast<Token>(t)
                                     : static_cast<Token>(random.below(50'000)));
    if (random.below(3) == 0) prompt.ns = "tenant";
  }
  return all;
}

TEST(RecordedTrace, IsReplayedAsItWasServed) {
  TempDirectory directory;
  std::uint64_t hit_tokens = 0;
  std::set<std::pair<std::string, Tokens>> different;
  {
    const auto recorder =
        *TraceRecorder::create({.path = directory / "trace.jsonl", .block_tokens = 8});
    const auto allocator = *PagedAllocator::create({.capacity_tokens = 1 << 16, .page_size = 8});
    CacheOptions options;
    options.observer = recorder.get();
    const auto cache = *PrefixCache::create(options, *allocator);
    for (const Prompt& prompt : prompts()) {
      Request request = *cache->start(prompt.tokens, {.ns = prompt.ns});
      hit_tokens += request.cached_length();
      ASSERT_TRUE(cache->allocate(request).ok());
      ASSERT_TRUE(cache->finish(request).ok());
      for (std::size_t end = 8; end <= prompt.tokens.size(); end += 8)
        different.emplace(prompt.ns,
                          Tokens(prompt.tokens.begin(),
                                 prompt.tokens.begin() + static_cast<std::ptrdiff_t>(end)));
    }
  }
  const auto read = [&] {
    return *MergedTrace::open({directory / "trace.jsonl"}, {.block_tokens = 8, .reorder = 10});
  };
  const auto requests = read_all(*read());
  ASSERT_EQ(requests.size(), 200u);
  std::set<BlockId> whole;
  for (const TraceRequest& request : requests) {
    for (std::size_t i = 0; i < request.input_length / 8; ++i) whole.insert(request.blocks[i]);
  }
  EXPECT_EQ(whole.size(), different.size()) << "an id for each prefix of each namespace";

  ReplayOptions options;
  options.block_tokens = options.stack.page_size = 8;
  options.stack.device_tokens = 1 << 16;
  const ReplayResults results = *replay(*read(), options);
  EXPECT_EQ(results.requests, 200u);
  // An engine leaves the last token to compute, and partial blocks are nobody's here.
  EXPECT_GE(results.all_hit_tokens(), hit_tokens);
  EXPECT_LE(results.all_hit_tokens(), hit_tokens + 200 * 8);
}

}  // namespace
}  // namespace pando::testing
