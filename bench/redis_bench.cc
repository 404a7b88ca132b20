// SPDX-License-Identifier: Apache-2.0
// The Redis backend beside redis-benchmark: the same server, on loopback, as many keys with values
// of the same size, one connection, as many requests in the pipeline; for a cluster, one connection
// to each of three masters. Ours hash every page as well, and read them into pages of their own.
// Both run in turns; `of_redis_benchmark` is our bytes per second over theirs, the median of the
// rounds.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "limit.h"
#include "pando/store_backends.h"
#include "support/redis_pages.h"
#include "support/redis_server.h"

namespace pando::bench {
namespace {

using Kind = StoreBatch::Kind;

constexpr std::size_t kPageBytes = std::size_t{1} << 20;
constexpr std::size_t kNumPages = 64;
// Depths are not alike: at 8 redis-benchmark's SET falls to a third, at 1 and 2 it sends one buffer
// from the cache. docs/benchmarks.md has all of them.
constexpr std::size_t kPipeline = 4;
constexpr std::size_t kRounds = 9;
constexpr std::size_t kRequests = 512;  // of redis-benchmark in a round, and of ours

// What a test of redis-benchmark says: requests per second.
double requests_per_second(const std::string& command) {
  std::FILE* output = popen(command.c_str(), "r");
  require(output != nullptr, "redis-benchmark starts");
  char line[512] = {};
  double found = 0;
  while (std::fgets(line, sizeof(line), output) != nullptr) {
    double value = 0;
    if (std::sscanf(line, "\"SET\",\"%lf\"", &value) == 1 ||
        std::sscanf(line, "\"GET\",\"%lf\"", &value) == 1)
      found = value;
  }
  pclose(output);
  require(found > 0, "redis-benchmark measures");
  return found;
}

/// Servers, a store, and pages that are in it.
class Setup {
 public:
  explicit Setup(bool cluster)
      : pages_("page", kNumPages, kPageBytes, 4, 1), read_("page", kNumPages, kPageBytes, 4, 2) {
    RedisStoreOptions options{.cluster = cluster, .pipeline_bytes = kPipeline * kPageBytes};
    if (cluster) {
      cluster_ = std::make_unique<testing::RedisCluster>(3, 0);
      options.servers = cluster_->addresses();
    } else {
      server_ = std::make_unique<testing::RedisServer>();
      options.servers = {server_->address()};
    }
    store_ = make_redis_store(options).value();
    command_ =
        fmt::format("redis-benchmark -p {} -d {} -r {} -P {} -n {} -c {} {} --csv 2>/dev/null",
                    cluster ? cluster_->server(0).port() : server_->port(), kPageBytes, kNumPages,
                    kPipeline, kRequests, cluster ? 3 : 1, cluster ? "--cluster --threads 3" : "");
    run(Kind::put);
    run(Kind::get);
    require(read_.same_bytes(pages_), "what was read is what was written");
    (void)theirs(Kind::put);
  }

  void run(Kind kind) {
    const auto batch = testing::call(*store_, kind, kind == Kind::put ? pages_ : read_);
    require(batch->num_leading() == kNumPages, testing::message(*batch).c_str());
  }
  /// Bytes per second.
  double ours(Kind kind) {
    const double ns = time_each(kRequests / kNumPages, [&](std::size_t) { run(kind); });
    return static_cast<double>(kNumPages * kPageBytes) / ns * 1e9;
  }
  double theirs(Kind kind) {
    return requests_per_second(command_ + (kind == Kind::put ? " -t set" : " -t get")) *
           static_cast<double>(kPageBytes);
  }

 private:
  std::unique_ptr<testing::RedisServer> server_;
  std::unique_ptr<testing::RedisCluster> cluster_;
  testing::Pages pages_;
  testing::Pages read_;
  std::unique_ptr<StoreBackend> store_;
  std::string command_;
};

struct Figures {
  double ratio = 0, ours = 0, theirs = 0;
};

Figures measure_both(Setup& setup, Kind kind) {
  std::vector<double> ratios, ours, theirs;
  for (std::size_t round = 0; round < kRounds; ++round) {
    ours.push_back(setup.ours(kind));
    theirs.push_back(setup.theirs(kind));
    ratios.push_back(ours.back() / theirs.back());
  }
  return {median(ratios), median(ours), median(theirs)};
}

// Google Benchmark calls this several times while it looks for the number of iterations; what takes
// long is done once.
void redis(benchmark::State& state, bool cluster, Kind kind) {
  if (!testing::have_redis()) return state.SkipWithError("redis-server is not installed");
  static std::unique_ptr<Setup> setup;
  static std::string measured_name;
  static Figures figures;
  const std::string name = fmt::format("{}{}", cluster, static_cast<int>(kind));
  if (measured_name != name) {
    setup.reset();
    setup = std::make_unique<Setup>(cluster);
    figures = measure_both(*setup, kind);
    measured_name = name;
  }
  for (auto _ : state) setup->run(kind);
  state.counters["of_redis_benchmark"] = figures.ratio;
  state.counters["GB_per_s"] = figures.ours / 1e9;
  state.counters["redis_benchmark_GB_per_s"] = figures.theirs / 1e9;
}

BENCHMARK_CAPTURE(redis, read, false, Kind::get)->Name("RedisRead/size:1MiB");
BENCHMARK_CAPTURE(redis, write, false, Kind::put)->Name("RedisWrite/size:1MiB");
BENCHMARK_CAPTURE(redis, cluster_read, true, Kind::get)->Name("RedisClusterRead/size:1MiB");
BENCHMARK_CAPTURE(redis, cluster_write, true, Kind::put)->Name("RedisClusterWrite/size:1MiB");

}  // namespace
}  // namespace pando::bench
