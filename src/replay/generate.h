// SPDX-License-Identifier: Apache-2.0
// Workloads from nothing but a seed: the same options give the same trace, on every machine. Memory
// grows with the sessions that go on at once, not with the trace.
//   chat   multi-turn conversations under a few system prompts
//   agent  coding agents: a long prompt that all share, a repository that some share, many turns
//   rag    popular documents (Zipf) in front of a question
//   tree   tree of thought: every thought branches into several, which share what came before
//   batch  one system prompt in front of many unrelated inputs
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "replay/trace.h"

namespace pando {

enum class WorkloadKind { chat, agent, rag, tree, batch };
std::string_view to_string(WorkloadKind kind);
Result<WorkloadKind> parse_workload_kind(std::string_view name);
std::vector<std::string> workload_names();

/// Lengths are means, in tokens; sessions arrive at random, so many per second.
struct WorkloadOptions {
  std::uint64_t seed = 1;
  std::size_t requests = 10'000;
  std::size_t block_tokens = 16;
  double sessions_per_s = 1;
  double think_s = 30;  ///< between an answer and the next turn

  std::size_t system_prompts = 1;
  std::size_t system_tokens = 1000;
  std::size_t contexts = 0;  ///< repositories or the like, behind the system prompt; 0: none
  std::size_t context_tokens = 0;
  std::size_t turns = 1;
  std::size_t user_tokens = 200;
  std::size_t output_tokens = 200;
  std::size_t documents = 0;  ///< rag: to choose from
  std::size_t document_tokens = 0;
  std::size_t documents_per_request = 0;
  double zipf = 1;            ///< how much more popular the first of anything is; 0: all the same
  std::size_t branching = 0;  ///< tree: thoughts that follow each
  std::size_t depth = 0;      ///< tree: thoughts on top of each other

  /// What is usual for a kind.
  static WorkloadOptions of(WorkloadKind kind);
  Status validate() const;
};

Result<std::unique_ptr<Trace>> make_workload(WorkloadKind kind, const WorkloadOptions& options);

/// A line of JSON, as TraceFile reads it.
std::string to_json_line(const TraceRequest& request);

}  // namespace pando
