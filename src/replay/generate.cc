// SPDX-License-Identifier: Apache-2.0
// The workloads. Sessions wait in a queue by the time of their next request; each draws from a
// random stream of its own, so what one does depends on no other.
#include "replay/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/named.h"
#include "base/random.h"
#include "replay/prompt.h"

namespace pando {
namespace {

constexpr Named<WorkloadKind> kKinds[] = {{WorkloadKind::chat, "chat"},
                                          {WorkloadKind::agent, "agent"},
                                          {WorkloadKind::rag, "rag"},
                                          {WorkloadKind::tree, "tree"},
                                          {WorkloadKind::batch, "batch"}};

// Random streams of one seed: session i uses i, the arrivals count down from the top.
constexpr std::uint64_t kArrivalStream = ~std::uint64_t{0};
// Texts that sessions share: a number of their kind, and which.
enum SharedText : std::uint64_t { kSystem = 1, kContext, kDocument };

double uniform(Random& random) { return static_cast<double>(random.next() >> 11) * 0x1p-53; }
double exponential(Random& random, double mean) { return -mean * std::log1p(-uniform(random)); }

/// At least 1. Four times the mean times two fair draws from [0, 1): skewed, with the right mean.
std::size_t draw_length(Random& random, std::size_t mean) {
  if (mean == 0) return 0;
  return 1 + random.below(1 + random.below(4 * mean));
}

/// Geometric, at most eight times the mean.
std::size_t draw_turns(Random& random, std::size_t mean) {
  std::size_t turns = 1;
  while (turns < 8 * mean && random.below(mean) != 0) ++turns;
  return turns;
}

/// Numbers below n, the first ones more often.
class Popularity {
 public:
  Popularity(std::size_t n, double exponent) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      sums_.push_back(sum += std::pow(static_cast<double>(i + 1), -exponent));
  }
  std::size_t draw(Random& random) const {
    const double at = uniform(random) * sums_.back();
    const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
    return std::min(static_cast<std::size_t>(found - sums_.begin()), sums_.size() - 1);
  }

 private:
  std::vector<double> sums_;
};

struct Session {
  std::uint64_t index = 0;
  double next_s = 0;
  Random random{0};
  Prompt prompt{1};
  std::size_t requests_left = 0;
  std::uint64_t num_texts = 0;  // of its own, so far
  // tree: the thoughts that the next one stands on, and the branches that each still has to grow.
  std::vector<std::pair<Prompt, std::size_t>> thoughts{};
};

class Workload final : public Trace {
 public:
  Workload(WorkloadKind kind, const WorkloadOptions& options)
      : kind_(kind),
        options_(options),
        arrivals_(options.seed, kArrivalStream),
        systems_(options.system_prompts, options.zipf),
        contexts_(std::max<std::size_t>(options.contexts, 1), options.zipf),
        documents_(std::max<std::size_t>(options.documents, 1), options.zipf) {
    arrive();
  }

  Result<bool> next(TraceRequest& request) override;
  double progress() const override {
    return static_cast<double>(num_made_) / static_cast<double>(options_.requests);
  }
  std::size_t block_tokens() const override { return options_.block_tokens; }

 private:
  struct Later {
    bool operator()(const Session& a, const Session& b) const {
      return a.next_s != b.next_s ? a.next_s > b.next_s : a.index > b.index;
    }
  };

  void arrive();
  Session take_first();
  void begin(Session& session);
  void append_shared(Prompt& prompt, SharedText kind, std::size_t which, std::size_t mean_tokens);
  std::size_t append_own(Session& session, Prompt& prompt, std::size_t mean_tokens);
  void ask(Session& session, TraceRequest& request);
  void think(Session& session, TraceRequest& request);

  const WorkloadKind kind_;
  const WorkloadOptions options_;
  Random arrivals_;
  const Popularity systems_, contexts_, documents_;
  std::vector<Session> live_;  // a heap
  double next_arrival_s_ = 0;
  std::uint64_t num_sessions_ = 0;
  std::size_t num_made_ = 0;
};

// The next session of all, which has not asked yet.
void Workload::arrive() {
  Session& session = live_.emplace_back();
  session.index = num_sessions_++;
  session.random = Random(options_.seed, session.index);
  next_arrival_s_ += exponential(arrivals_, 1 / options_.sessions_per_s);
  session.next_s = next_arrival_s_;
  begin(session);
  std::push_heap(live_.begin(), live_.end(), Later{});
}

void Workload::append_shared(Prompt& prompt, SharedText kind, std::size_t which,
                             std::size_t mean_tokens) {
  const std::uint64_t text = mix(mix(options_.seed, kind), which);
  Random random(text, kind);
  prompt.append(text, draw_length(random, mean_tokens));
}

std::size_t Workload::append_own(Session& session, Prompt& prompt, std::size_t mean_tokens) {
  const std::size_t length = draw_length(session.random, mean_tokens);
  prompt.append(mix(mix(options_.seed, session.index + 1000), session.num_texts++), length);
  return length;
}

void Workload::begin(Session& session) {
  Random& random = session.random;
  session.prompt = Prompt(options_.block_tokens);
  append_shared(session.prompt, kSystem, systems_.draw(random), options_.system_tokens);
  if (options_.contexts > 0)
    append_shared(session.prompt, kContext, contexts_.draw(random), options_.context_tokens);
  session.requests_left = draw_turns(random, options_.turns);
  if (kind_ != WorkloadKind::tree) return;
  session.requests_left = 0;
  for (std::size_t level = 0, width = 1; level < options_.depth; ++level)
    session.requests_left += width *= options_.branching;
  append_own(session, session.prompt, options_.user_tokens);
  session.thoughts = {{session.prompt, options_.branching}};
}

// A turn: what was said before, and a new message. The answer belongs to the next turn's past.
void Workload::ask(Session& session, TraceRequest& request) {
  for (std::size_t i = 0; i < options_.documents_per_request; ++i)
    append_shared(session.prompt, kDocument, documents_.draw(session.random),
                  options_.document_tokens);
  append_own(session, session.prompt, options_.user_tokens);
  session.prompt.copy_to(request);
  request.output_length = append_own(session, session.prompt, options_.output_tokens);
  session.next_s += exponential(session.random, options_.think_s);
}

// Another branch of the last thought that has one to grow; depth first, so that few are open.
void Workload::think(Session& session, TraceRequest& request) {
  while (session.thoughts.back().second == 0) session.thoughts.pop_back();
  --session.thoughts.back().second;
  Prompt thought = session.thoughts.back().first;
  thought.copy_to(request);
  request.output_length = append_own(session, thought, options_.output_tokens);
  if (session.thoughts.size() < options_.depth)
    session.thoughts.emplace_back(std::move(thought), options_.branching);
  session.next_s += exponential(session.random, options_.think_s);
}

Session Workload::take_first() {
  std::pop_heap(live_.begin(), live_.end(), Later{});
  Session session = std::move(live_.back());
  live_.pop_back();
  return session;
}

Result<bool> Workload::next(TraceRequest& request) {
  if (num_made_ == options_.requests) return false;
  Session session = take_first();
  if (session.index + 1 == num_sessions_ && session.next_s == next_arrival_s_) arrive();
  request.arrival_s = session.next_s;
  request.session = fmt::format("s{}", session.index);
  request.tokens.clear();
  kind_ == WorkloadKind::tree ? think(session, request) : ask(session, request);
  if (--session.requests_left > 0) {
    live_.push_back(std::move(session));
    std::push_heap(live_.begin(), live_.end(), Later{});
  }
  ++num_made_;
  return true;
}

}  // namespace

std::string_view to_string(WorkloadKind kind) { return name_of(kKinds, kind); }

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const auto& [kind, name] : kKinds) names.emplace_back(name);
  return names;
}

Result<WorkloadKind> parse_workload_kind(std::string_view name) {
  if (const auto kind = value_of(kKinds, name)) return *kind;
  return make_error(ErrorCode::invalid_argument,
                    "workload '{}': expected chat, agent, rag, tree or batch", name);
}

WorkloadOptions WorkloadOptions::of(WorkloadKind kind) {
  WorkloadOptions options;
  switch (kind) {
    case WorkloadKind::chat:
      options.system_prompts = 20;
      options.system_tokens = 600;
      options.turns = 6;
      break;
    case WorkloadKind::agent:
      options.sessions_per_s = 0.05;
      options.think_s = 8;
      options.system_tokens = 12'000;
      options.contexts = 10;
      options.context_tokens = 8'000;
      options.turns = 40;
      options.user_tokens = 1'500;
      options.output_tokens = 250;
      options.block_tokens = 64;
      break;
    case WorkloadKind::rag:
      options.system_tokens = 300;
      options.documents = 2'000;
      options.document_tokens = 1'500;
      options.documents_per_request = 3;
      options.user_tokens = 60;
      break;
    case WorkloadKind::tree:
      options.sessions_per_s = 0.2;
      options.think_s = 2;
      options.system_tokens = 400;
      options.user_tokens = 600;
      options.output_tokens = 150;
      options.branching = 3;
      options.depth = 4;
      break;
    case WorkloadKind::batch:
      options.sessions_per_s = 20;
      options.system_tokens = 2'000;
      options.user_tokens = 800;
      break;
  }
  return options;
}

Status WorkloadOptions::validate() const {
  constexpr std::size_t kMax = std::size_t{1} << 28;  // keeps products below 2^32 and 2^64
  const std::array<std::pair<std::string_view, std::size_t>, 10> counts{{
      {"requests", requests},
      {"block tokens", block_tokens},
      {"system prompts", system_prompts},
      {"system tokens", system_tokens},
      {"turns", turns},
      {"user tokens", user_tokens},
      {"output tokens", output_tokens},
      {"contexts", contexts + 1},
      {"documents", documents + 1},
      {"document tokens", document_tokens + 1},
  }};
  for (const auto& [name, value] : counts) {
    if (value == 0 || value > kMax)
      return make_error(ErrorCode::invalid_argument, "{}: expected from 1 to 2^28", name);
  }
  if (!(sessions_per_s > 0) || !(think_s >= 0) || !(zipf >= 0 && zipf <= 10))
    return make_error(ErrorCode::invalid_argument,
                      "{} sessions per second, {} s between turns, zipf {}; expected above 0, from "
                      "0, and from 0 to 10",
                      sessions_per_s, think_s, zipf);
  if (documents_per_request > documents || documents_per_request > 1000)
    return make_error(ErrorCode::invalid_argument, "{} documents per request of {}",
                      documents_per_request, documents);
  if (branching > 64 || depth > 16)
    return make_error(ErrorCode::invalid_argument,
                      "{} branches, {} levels; expected at most 64 and 16", branching, depth);
  return {};
}

Result<std::unique_ptr<Trace>> make_workload(WorkloadKind kind, const WorkloadOptions& options) {
  if (Status s = options.validate(); !s) return s.error();
  if (kind == WorkloadKind::tree && (options.branching == 0 || options.depth == 0))
    return Error{ErrorCode::invalid_argument, "a tree needs branches and depth of at least 1"};
  return std::unique_ptr<Trace>(std::make_unique<Workload>(kind, options));
}

std::string to_json_line(const TraceRequest& request) {
  std::string ids;
  for (const BlockId id : request.blocks) {
    if (!ids.empty()) ids += ',';
    ids += std::to_string(id);
  }
  return fmt::format(
      R"({{"timestamp": {}, "session": "{}", "input_length": {}, "output_length": {}, "hash_ids": [{}]}})",
      static_cast<std::uint64_t>(request.arrival_s * 1000), request.session, request.input_length,
      request.output_length, ids);
}

}  // namespace pando
