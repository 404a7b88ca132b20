// SPDX-License-Identifier: Apache-2.0
// The recorded trace: its lines, what ids say and do not say, files that turn over, a disk that is
// full, threads.
#include "pando/observer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "support/cache_fixture.h"
#include "support/temp_directory.h"

namespace pando::testing {
namespace {

using nlohmann::json;
using Lines = std::vector<json>;

/// Every line of the file; each must be whole.
Lines read(const std::string& path) {
  std::ifstream file(path);
  Lines lines;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(text.empty() || text.back() == '\n') << path;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line, nullptr, false));
    EXPECT_FALSE(lines.back().is_discarded()) << line;
  }
  return lines;
}

class TraceRecorderTest : public ::testing::Test {
 protected:
  TraceRecorderOptions options(std::size_t block_tokens = 4) const {
    return {.path = path, .block_tokens = block_tokens, .key = "secret"};
  }
  /// What is written for one prompt.
  json line_of(const TraceRecorderOptions& o, const Tokens& prompt, std::string_view ns = {}) {
    auto recorder = *TraceRecorder::create(o);
    EXPECT_TRUE(recorder->record({prompt, ns}, 3, std::chrono::steady_clock::now()));
    recorder->flush();
    return read(o.path).at(0);
  }

  TempDirectory directory;
  const std::string path = directory / "trace.jsonl";
};

TEST_F(TraceRecorderTest, WritesARequestWhenItFinishes) {
  auto recorder = *TraceRecorder::create(options());
  TestCache cache(4, {.observer = recorder.get()});
  Request request = *cache->start(tokens(10), {.ns = "tenant"});
  request.append(tokens(4, 11)).value();
  cache->allocate(request).value();
  recorder->flush();
  EXPECT_EQ(recorder->stats().recorded_requests, 0u);
  cache->finish(request).value();
  recorder->flush();
  const Lines lines = read(path);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("input_length"), 10);
  EXPECT_EQ(lines[0].at("output_length"), 4);
  EXPECT_EQ(lines[0].at("hash_ids").size(), 3u);
  EXPECT_GE(lines[0].at("timestamp"), 0);
  EXPECT_EQ(lines[0].at("session").get<std::string>().size(), 16u);
  EXPECT_EQ(lines[0].size(), 5u);
  EXPECT_EQ(recorder->stats().recorded_requests, 1u);
}

TEST_F(TraceRecorderTest, EqualIdsMeanEqualPrefixes) {
  const json a = line_of(options(), tokens(10)).at("hash_ids");
  const json b = line_of(options(), tokens(8) + tokens(4, 90)).at("hash_ids");
  EXPECT_EQ(a[0], b[0]);
  EXPECT_EQ(a[1], b[1]);
  EXPECT_NE(a[2], b[2]);
  const json repeated = line_of(options(), tokens(4) + tokens(4)).at("hash_ids");
  EXPECT_NE(repeated[0], repeated[1]) << "what stands before it counts";
  const json shorter = line_of(options(), tokens(9)).at("hash_ids");
  EXPECT_NE(shorter[2], a[2]) << "a partial block is named by what it has";
}

TEST_F(TraceRecorderTest, NamespacesAndKeysKeepIdsApart) {
  const json plain = line_of(options(), tokens(8));
  const json named = line_of(options(), tokens(8), "ns");
  EXPECT_NE(plain.at("hash_ids")[0], named.at("hash_ids")[0]);
  EXPECT_FALSE(plain.contains("session"));
  EXPECT_EQ(named.at("session"), line_of(options(), tokens(4, 9), "ns").at("session"));
  EXPECT_NE(named.at("session"), line_of(options(), tokens(8), "other").at("session"));
  TraceRecorderOptions other = options();
  other.key = "another";
  EXPECT_NE(plain.at("hash_ids")[0], line_of(other, tokens(8)).at("hash_ids")[0]);
  EXPECT_NE(named.at("session"), line_of(other, tokens(8), "ns").at("session"));
  other.key = {};
  EXPECT_NE(line_of(other, tokens(8)).at("hash_ids"), line_of(other, tokens(8)).at("hash_ids"))
      << "a random key every time";
}

TEST_F(TraceRecorderTest, IdsAreTheDocumentedOnesAndFitADouble) {
  const json ids = line_of(options(), tokens(4000)).at("hash_ids");
  // As docs/formats.md computes them, for tokens that count up from 1 and the key "secret".
  EXPECT_EQ(ids[0], 3839658279421338u);
  EXPECT_EQ(ids[1], 540396775528579u);
  std::set<std::uint64_t> distinct;
  for (const json& id : ids) {
    EXPECT_LT(id.get<std::uint64_t>(), std::uint64_t{1} << 53);
    distinct.insert(id.get<std::uint64_t>());
  }
  EXPECT_EQ(distinct.size(), 1000u);
}

TEST_F(TraceRecorderTest, BadOptionsAreRefused) {
  EXPECT_TRUE(fails(TraceRecorder::create({}), ErrorCode::invalid_argument, "path"));
  TraceRecorderOptions o = options();
  o.block_tokens = 0;
  EXPECT_TRUE(fails(TraceRecorder::create(o), ErrorCode::invalid_argument, "block_tokens"));
  o = options();
  o.path = directory / "no/such";
  EXPECT_TRUE(fails(TraceRecorder::create(o), ErrorCode::io_error, "such"));
}

// ---- Files -------------------------------------------------------------------------------------

TEST_F(TraceRecorderTest, FilesTurnOverAtWholeLines) {
  TraceRecorderOptions o = options();
  o.max_file_bytes = 1000;
  o.max_files = 3;
  auto recorder = *TraceRecorder::create(o);
  for (std::size_t i = 0; i < 100; ++i)
    recorder->record({tokens(8)}, i, std::chrono::steady_clock::now());
  recorder->flush();
  EXPECT_EQ(recorder->stats().recorded_requests, 100u);
  EXPECT_GT(recorder->stats().rotations, 3u);
  // The last ones, without a gap.
  std::vector<std::size_t> outputs;
  for (const std::string& name : {path + ".2", path + ".1", path}) {
    EXPECT_LE(std::filesystem::file_size(name), 1000u);
    for (const json& line : read(name)) outputs.push_back(line.at("output_length"));
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".3"));
  for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(outputs[i], 100 - outputs.size() + i);
}

TEST_F(TraceRecorderTest, WhatWasThereIsPutAside) {
  (void)line_of(options(), tokens(4));
  (void)line_of(options(), tokens(8));
  EXPECT_EQ(read(path).at(0).at("input_length"), 8);
  EXPECT_EQ(read(path + ".1").at(0).at("input_length"), 4);
}

TEST_F(TraceRecorderTest, ALineThatIsTooLongHasAFileOfItsOwn) {
  TraceRecorderOptions o = options();
  o.max_file_bytes = 10;
  auto recorder = *TraceRecorder::create(o);
  for (int i = 0; i < 2; ++i) recorder->record({tokens(8)}, 0, std::chrono::steady_clock::now());
  recorder->flush();
  EXPECT_EQ(read(path).size(), 1u);
  EXPECT_EQ(read(path + ".1").size(), 1u);
}

// As a full disk does: a part of the line goes through, and then nothing more.
TEST_F(TraceRecorderTest, AFullDiskLeavesWholeLinesAndIsReported) {
  auto recorder = *TraceRecorder::create(options());
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old = ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit limit = before;
  limit.rlim_cur = 1000;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (int i = 0; i < 20; ++i) recorder->record({tokens(8)}, 0, std::chrono::steady_clock::now());
  recorder->flush();
  const Status status = recorder->status();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old);
  EXPECT_TRUE(fails(status, ErrorCode::io_error, path));
  const TraceRecorderStats full = recorder->stats();
  EXPECT_GT(full.recorded_requests, 0u);
  EXPECT_EQ(full.recorded_requests + full.failed_requests, 20u);
  EXPECT_EQ(read(path).size(), full.recorded_requests);

  recorder->record({tokens(8)}, 0, std::chrono::steady_clock::now());
  recorder->flush();
  EXPECT_TRUE(recorder->status().ok()) << "there is room again";
  EXPECT_EQ(read(path).size(), full.recorded_requests + 1);
}

// ---- Queue and threads -------------------------------------------------------------------------

TEST_F(TraceRecorderTest, WhatDoesNotFitIsDroppedAndCounted) {
  TraceRecorderOptions o = options();
  o.max_queued_tokens = 100;
  auto recorder = *TraceRecorder::create(o);
  EXPECT_FALSE(recorder->record({tokens(101)}, 0, std::chrono::steady_clock::now()));
  EXPECT_TRUE(recorder->record({tokens(100)}, 0, std::chrono::steady_clock::now()));
  recorder->flush();
  EXPECT_EQ(recorder->stats().dropped_requests, 1u);
  EXPECT_EQ(recorder->stats().recorded_requests, 1u);
  EXPECT_EQ(recorder->stats().queued_tokens, 0u);
}

TEST_F(TraceRecorderTest, ThreadsMayShareARecorderAndTheEndWritesAll) {
  std::uint64_t dropped = 0;
  {
    TraceRecorderOptions o = options();
    o.max_queued_tokens = 4096;
    auto recorder = *TraceRecorder::create(o);
    std::vector<std::thread> threads;
    for (Token t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        TestCache cache(4, {.observer = recorder.get()}, 256);
        for (Token i = 0; i < 200; ++i) {
          Running r(tokens(20, 1000 * t + i));
          r.start(cache).value();
          r.allocate(cache).value();
          r.finish(cache).value();
        }
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        recorder->flush();
        EXPECT_TRUE(recorder->status().ok());
      }
    });
    for (std::thread& thread : threads) thread.join();
    dropped = recorder->stats().dropped_requests;
  }
  EXPECT_EQ(read(path).size() + dropped, 600u);
}

}  // namespace
}  // namespace pando::testing
