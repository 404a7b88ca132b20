// SPDX-License-Identifier: Apache-2.0
// Serial replay up to the request, then its story.
#include "replay/why.h"

#include <algorithm>

#include "base/check.h"
#include "pando/inspect.h"
#include "replay/request_runner.h"

namespace pando {
namespace {

/// Parts of tokens become stories of blocks. A block that is cached in part tells why not in full.
std::vector<BlockStory> by_blocks(const Explanation& told, std::size_t block_tokens,
                                  std::size_t num_blocks) {
  std::vector<BlockStory> stories;
  const auto is_cached = [](Finding finding) {
    return finding == Finding::on_device || finding == Finding::on_host;
  };
  std::size_t next = 0;  // block without a story
  for (std::size_t i = 0; i < told.parts.size() && next < num_blocks; ++i) {
    const KeyPart& part = told.parts[i];
    // Of what is cached only whole blocks; of what is not, the block where it begins too.
    const std::size_t end = is_cached(part.finding) ? part.to / block_tokens
                                                    : (part.to + block_tokens - 1) / block_tokens;
    if (end <= next) continue;
    stories.push_back({.from = next,
                       .to = std::min(end, num_blocks),
                       .finding = part.finding,
                       .eviction = part.eviction,
                       .ns = part.ns});
    next = stories.back().to;
  }
  if (next < num_blocks)
    stories.push_back(
        {.from = next, .to = num_blocks, .finding = Finding::never_seen, .beyond_device = true});
  return stories;
}

/// What came to the host between two explanations came from the store.
void mark_store(std::vector<BlockStory>& stories, const Explanation& before,
                std::size_t block_tokens) {
  std::size_t here = 0;
  for (const KeyPart& part : before.parts) {
    if (part.finding == Finding::on_device || part.finding == Finding::on_host) here = part.to;
  }
  const std::size_t blocks_here = here / block_tokens;
  for (std::size_t i = 0; i < stories.size(); ++i) {
    BlockStory& story = stories[i];
    if (story.finding != Finding::on_host || story.to <= blocks_here) continue;
    if (story.from < blocks_here) {
      BlockStory first = story;
      first.to = story.from = blocks_here;
      stories.insert(stories.begin() + static_cast<std::ptrdiff_t>(i), first);
      continue;
    }
    story.from_store = true;
  }
}

}  // namespace

Result<RequestStory> explain_request(Trace& trace, const ReplayOptions& options,
                                     std::uint64_t request,
                                     const std::function<void(std::uint64_t)>& progress) {
  if (request == 0) return Error{ErrorCode::invalid_argument, "requests are counted from 1"};
  if (Status s = options.validate(); !s) return s.error();
  Result<std::unique_ptr<CacheStack>> stack = CacheStack::create(options.stack);
  if (!stack) return stack.error();
  ReplayResults results;
  RequestRunner runner(**stack, options, results);
  RunningRequest running;
  for (std::uint64_t i = 1;; ++i) {
    const Result<bool> more = trace.next(running.trace);
    if (!more) return more.error();
    if (!*more)
      return make_error(ErrorCode::not_found, "request {}: the trace has {}", request, i - 1);
    if (i == request) break;
    const Result<bool> begun = runner.begin(running, 0);
    if (!begun) return begun.error();
    if (!*begun) return make_error(ErrorCode::out_of_capacity, "request {} finds no room", i);
    if (Status s = runner.finish(running, /*insert=*/true); !s) return s.error();
    if (progress) progress(i);
  }
  const Key key = runner.key_of(running);
  PrefixCache& cache = (*stack)->cache();
  const Result<Explanation> before = cache.inspect().explain(key);
  if (!before) return before.error();
  Explanation told = *before;
  if ((*stack)->has_store()) {
    if (const Result<std::size_t> fetched = runner.fetch(key); !fetched) return fetched.error();
    told = *cache.inspect().explain(key);
  }
  RequestStory story{.request = request,
                     .arrival_s = running.trace.arrival_s,
                     .session = running.trace.session,
                     .input_length = running.trace.input_length,
                     .num_blocks = running.trace.blocks.size(),
                     .blocks = by_blocks(told, options.block_tokens, running.trace.blocks.size()),
                     .forgetful = told.forgetful};
  if (!told.parts.empty() && told.parts.back().finding == Finding::shorter_than_a_page)
    story.tail_tokens = told.parts.back().to - told.parts.back().from;
  mark_store(story.blocks, *before, options.block_tokens);
  return story;
}

}  // namespace pando
