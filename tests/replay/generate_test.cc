// SPDX-License-Identifier: Apache-2.0
// Generated workloads: the same for the same seed, readable, and shared as their kind says.
#include "replay/generate.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "replay/trace_file.h"
#include "support/temp_directory.h"
#include "support/trace_fixture.h"

namespace pando::testing {
namespace {

std::vector<TraceRequest> made(WorkloadKind kind, std::size_t requests, std::uint64_t seed = 1) {
  WorkloadOptions options = WorkloadOptions::of(kind);
  options.requests = requests;
  options.seed = seed;
  return read_all(**make_workload(kind, options));
}

class Kinds : public ::testing::TestWithParam<WorkloadKind> {};
INSTANTIATE_TEST_SUITE_P(All, Kinds,
                         ::testing::Values(WorkloadKind::chat, WorkloadKind::agent,
                                           WorkloadKind::rag, WorkloadKind::tree,
                                           WorkloadKind::batch),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST_P(Kinds, TheSameSeedGivesTheSameTrace) {
  const auto once = made(GetParam(), 200), again = made(GetParam(), 200);
  const auto other = made(GetParam(), 200, 2);
  ASSERT_EQ(once.size(), 200u);
  bool differs = false;
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(to_json_line(once[i]), to_json_line(again[i]));
    differs = differs || to_json_line(once[i]) != to_json_line(other[i]);
  }
  EXPECT_TRUE(differs);
}

TEST_P(Kinds, LongerTracesBeginAsShorterOnes) {
  const auto few = made(GetParam(), 50), many = made(GetParam(), 100);
  for (std::size_t i = 0; i < few.size(); ++i)
    EXPECT_EQ(to_json_line(few[i]), to_json_line(many[i]));
}

TEST_P(Kinds, IsReadBackAsItWasWritten) {
  TempDirectory directory;
  std::string text;
  const auto requests = made(GetParam(), 100);
  for (const TraceRequest& request : requests) text += to_json_line(request) + "\n";
  write_file(directory / "t", text);
  const auto file = *TraceFile::open(directory / "t");
  const auto back = read_all(*file);
  ASSERT_EQ(back.size(), requests.size());
  for (std::size_t i = 0; i < back.size(); ++i) {
    EXPECT_EQ(back[i].blocks, requests[i].blocks);
    EXPECT_EQ(back[i].input_length, requests[i].input_length);
    EXPECT_EQ(back[i].session, requests[i].session);
  }
  EXPECT_EQ(file->block_tokens(), WorkloadOptions::of(GetParam()).block_tokens);
}

TEST_P(Kinds, AnIdMeansOnePrefix) {
  std::map<BlockId, BlockId> parent;
  double last = 0;
  for (const TraceRequest& request : made(GetParam(), 500)) {
    EXPECT_GE(request.arrival_s, last);
    last = request.arrival_s;
    const std::size_t size = WorkloadOptions::of(GetParam()).block_tokens;
    EXPECT_EQ(request.blocks.size(), (request.input_length + size - 1) / size);
    BlockId before = 0;
    for (const BlockId id : request.blocks) {
      EXPECT_EQ(parent.emplace(id, before).first->second, before);
      EXPECT_LT(id, BlockId{1} << 53);
      before = id;
    }
  }
}

double shared_share(const std::vector<TraceRequest>& requests) {
  std::set<BlockId> seen;
  std::size_t shared = 0, all = 0;
  for (const TraceRequest& request : requests) {
    for (const BlockId id : request.blocks) shared += seen.insert(id).second ? 0 : 1;
    all += request.blocks.size();
  }
  return static_cast<double>(shared) / static_cast<double>(all);
}

TEST(Workloads, ShareAsMuchAsTheirKindDoes) {
  EXPECT_GT(shared_share(made(WorkloadKind::agent, 1000)), 0.9);
  EXPECT_GT(shared_share(made(WorkloadKind::chat, 2000)), 0.6);
  EXPECT_GT(shared_share(made(WorkloadKind::tree, 1000)), 0.8);
  const double rag = shared_share(made(WorkloadKind::rag, 1000));
  EXPECT_GT(rag, 0.1);
  EXPECT_LT(rag, 0.7);
}

TEST(Workloads, TurnsOfASessionExtendEachOther) {
  std::map<std::string, TraceRequest> last;
  std::size_t turns = 0;
  for (const TraceRequest& request : made(WorkloadKind::chat, 500)) {
    const auto before = last.find(request.session);
    if (before != last.end()) {
      ++turns;
      const std::size_t whole = before->second.input_length / 16;
      ASSERT_GT(request.blocks.size(), whole);
      for (std::size_t i = 0; i < whole; ++i)
        EXPECT_EQ(request.blocks[i], before->second.blocks[i]);
    }
    last[request.session] = request;
  }
  EXPECT_GT(turns, 100u);
}

TEST(Workloads, ATreeHasAllItsThoughts) {
  WorkloadOptions options = WorkloadOptions::of(WorkloadKind::tree);
  options.branching = 2;
  options.depth = 3;
  options.requests = 14;  // 2 + 4 + 8
  options.sessions_per_s = 1e-6;
  const auto requests = read_all(**make_workload(WorkloadKind::tree, options));
  std::map<std::size_t, std::size_t> by_length;
  for (const TraceRequest& request : requests) {
    EXPECT_EQ(request.session, "s0");
    ++by_length[request.input_length];
  }
  ASSERT_EQ(by_length.size(), 7u) << "every thought but the last level's is asked from";
  for (const auto& [length, count] : by_length) EXPECT_EQ(count, 2u);
}

TEST(Workloads, OptionsThatMakeNoSenseAreRefused) {
  for (const auto& change : std::vector<void (*)(WorkloadOptions&)>{
           [](WorkloadOptions& o) { o.requests = 0; }, [](WorkloadOptions& o) { o.turns = 0; },
           [](WorkloadOptions& o) { o.sessions_per_s = 0; },
           [](WorkloadOptions& o) { o.think_s = -1; }, [](WorkloadOptions& o) { o.zipf = 99; },
           [](WorkloadOptions& o) { o.documents_per_request = 5; }}) {
    WorkloadOptions options = WorkloadOptions::of(WorkloadKind::chat);
    change(options);
    EXPECT_EQ(make_workload(WorkloadKind::chat, options).error().code, ErrorCode::invalid_argument);
  }
  EXPECT_FALSE(parse_workload_kind("nonsense").ok());
}

}  // namespace
}  // namespace pando::testing
