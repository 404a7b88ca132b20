// SPDX-License-Identifier: Apache-2.0
// A pass over a trace, and a look at its first request.
#include "replay/survey.h"

#include <utility>

#include "replay/block_sample.h"

namespace pando {

Result<Survey> survey(Trace& trace, const std::function<void(double)>& progress) {
  Survey survey;
  BlockSample seen;
  TraceRequest request;
  while (true) {
    const Result<bool> more = trace.next(request);
    if (!more) return more.error();
    if (!*more) break;
    ++survey.requests;
    survey.blocks += request.blocks.size();
    if (!request.session.empty()) ++survey.sessions[request.session];
    for (const BlockId id : request.blocks) {
      if (seen.is_sampled(id)) seen.insert(id);
    }
    if (progress) progress(trace.progress());
  }
  survey.block_tokens = trace.block_tokens();
  survey.unique_blocks = seen.num_seen();
  return survey;
}

Result<std::unique_ptr<PeekedTrace>> PeekedTrace::create(std::unique_ptr<Trace> trace) {
  std::unique_ptr<PeekedTrace> peeked(new PeekedTrace(std::move(trace)));
  const Result<bool> more = peeked->trace_->next(peeked->first_);
  if (!more) return more.error();
  peeked->has_first_ = *more;
  return peeked;
}

Result<bool> PeekedTrace::next(TraceRequest& request) {
  if (!std::exchange(has_first_, false)) return trace_->next(request);
  given_ = true;
  request = first_;
  return true;
}

}  // namespace pando
