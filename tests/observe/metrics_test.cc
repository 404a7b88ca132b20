// SPDX-License-Identifier: Apache-2.0
// Metrics: what they count, that documents name what is exported, and that a scrape from another
// thread, over HTTP or not, sees whole numbers while the cache works.
#include "pando/metrics.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include <nlohmann/json.hpp>

#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/shared_store.h"

namespace pando::testing {
namespace {

/// The value of the series that begins like this; -1 if there is none.
double value_of(const std::string& text, const std::string& series) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(series + " ")) return std::stod(line.substr(series.size() + 1));
  }
  return -1;
}

std::set<std::string> names_in(const std::string& text, const std::string& pattern) {
  std::set<std::string> names;
  const std::regex re(pattern);
  for (std::sregex_iterator i(text.begin(), text.end(), re), end; i != end; ++i)
    names.insert((*i)[1]);
  return names;
}

std::string read_doc(const std::string& name) {
  std::ifstream file(std::string(PANDO_SOURCE_DIR) + "/docs/" + name);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Everything that there is, errors and tenants included.
std::set<std::string> exported_names() {
  auto metrics = *Metrics::create({.max_tenants = 1});
  TestCache cache(1, {.observer = metrics.get()});
  (void)cache->paths().match({});
  cache.put(tokens(4), "a");
  (void)cache.match(tokens(4), "a");
  metrics->collect(*cache.cache);
  return names_in(metrics->text(), "# TYPE (\\w+) ");
}

TEST(Metrics, CountHitsMissesAndReasons) {
  auto metrics = *Metrics::create();
  TestCache cache(4, {.observer = metrics.get()});
  cache.put(tokens(8));
  (void)cache.match(tokens(8) + tokens(5, 90));
  const std::string text = metrics->text();
  EXPECT_EQ(value_of(text, "pando_hit_tokens_total{tier=\"device\"}"), 8);
  EXPECT_EQ(value_of(text, "pando_missed_tokens_total{end=\"no_such_child\"}"), 5);
  EXPECT_EQ(value_of(text, "pando_lookups_total{end=\"no_such_child\"}"), 1);
  EXPECT_EQ(value_of(text, "pando_lookups_total{end=\"whole_key\"}"), 0);
  EXPECT_EQ(value_of(text, "pando_inserted_tokens_total{kind=\"new\"}"), 8);
  EXPECT_EQ(value_of(text, "pando_call_duration_seconds_count{call=\"match\"}"), 1);
  EXPECT_GT(value_of(text, "pando_call_duration_seconds_sum{call=\"match\"}"), 0);
}

TEST(Metrics, CountErrorsByCallAndCode) {
  auto metrics = *Metrics::create();
  TestCache cache(1, {.observer = metrics.get()});
  (void)cache->paths().match({});
  EXPECT_EQ(value_of(metrics->text(),
                     "pando_call_errors_total{call=\"match\",error=\"invalid_argument\"}"),
            1);
}

TEST(Metrics, TotalsGoOnAfterAReset) {
  auto metrics = *Metrics::create();
  TieredCache cache({.page_size = 4, .cache = {.observer = metrics.get()}});
  for (int i = 0; i < 2; ++i) {
    cache.put(tokens(8));
    cache.settle();
    metrics->collect(*cache.cache);
    metrics->collect(*cache.cache);
    cache->reset().value();
  }
  const std::string text = metrics->text();
  EXPECT_EQ(value_of(text, "pando_backed_up_tokens_total"), 16);
  EXPECT_EQ(value_of(text, "pando_transfers_total{kind=\"backup\"}"), 2);
}

using MetricsOfTiers = StorageTierTest;

TEST_F(MetricsOfTiers, MirrorSizesAndTheStore) {
  auto metrics = *Metrics::create({.labels = {{"rank", "3"}}});
  TieredCache cache({.page_size = 4, .cache = {.observer = metrics.get()}});
  attach(cache);
  cache.put(tokens(16));
  cache.settle();
  cache->evict(8);
  const Lease lease = *cache->paths().lock(cache.match(tokens(8)));
  metrics->collect(*cache.cache);
  const std::string text = metrics->text();
  const auto tokens_of = [&](const char* tier, const char* state) {
    return value_of(text, "pando_cached_tokens{rank=\"3\",component=\"full\",state=\"" +
                              std::string(state) + "\",tier=\"" + tier + "\"}");
  };
  EXPECT_EQ(tokens_of("device", "held"), 8);
  EXPECT_EQ(tokens_of("device", "evictable"), 0);
  EXPECT_EQ(tokens_of("host", "evictable") + tokens_of("host", "held"), 16);
  EXPECT_EQ(value_of(text, "pando_demoted_tokens_total{rank=\"3\"}"), 8);
  EXPECT_EQ(value_of(text, "pando_store_written_pages_total{rank=\"3\"}"), 4);
  EXPECT_EQ(value_of(text, "pando_store_pages{rank=\"3\"}"), 4);
  EXPECT_EQ(value_of(text, "pando_store_pending_write_pages{rank=\"3\"}"), 0);
}

TEST(Metrics, TenantsAreBounded) {
  auto metrics = *Metrics::create({.max_tenants = 2});
  TestCache cache(1, {.observer = metrics.get()});
  for (const char* tenant : {"a", "b", "c", "d"})
    cache.put(tokens(4), make_namespace({.tenant = tenant, .salt = "secret"}));
  const std::string text = metrics->text();
  EXPECT_EQ(value_of(text, "pando_tenant_inserted_tokens_total{tenant=\"a\"}"), 4);
  EXPECT_EQ(value_of(text, "pando_tenant_inserted_tokens_total{tenant=\"other\"}"), 8);
  EXPECT_EQ(value_of(text, "pando_tenant_inserted_tokens_total{tenant=\"c\"}"), -1);
  EXPECT_EQ(text.find("secret"), text.npos);
}

TEST(Metrics, ATenantNamedOtherIsNoTrouble) {
  auto metrics = *Metrics::create({.max_tenants = 2});
  TestCache cache(1, {.observer = metrics.get()});
  for (const char* ns : {"other", "b\n\xff", "c"}) cache.put(tokens(4), ns);
  EXPECT_EQ(value_of(metrics->text(), "pando_tenant_inserted_tokens_total{tenant=\"other\"}"), 8);
  EXPECT_EQ(value_of(metrics->text(), "pando_tenant_inserted_tokens_total{tenant=\"b\?\?\"}"), 4);
}

TEST(Metrics, OfABlockCache) {
  auto metrics = *Metrics::create();
  auto cache = *BlockCache::create(
      {.num_blocks = 16, .groups = {{.block_size = 4}}, .observer = metrics.get()});
  BlockRequest request = *cache->start(tokens(9));
  cache->allocate(request, 9).value();
  cache->checkpoint(request, 9).value();
  metrics->collect(*cache);
  EXPECT_EQ(value_of(metrics->text(), "pando_blocks_cached_total"), 2);
  cache->finish(request);
  metrics->collect(*cache);
  EXPECT_EQ(value_of(metrics->text(), "pando_request_tokens_total{kind=\"prompt\"}"), 9);
}

TEST(Metrics, BadLabelsAreRefused) {
  EXPECT_TRUE(
      fails(Metrics::create({.labels = {{"a b", "c"}}}), ErrorCode::invalid_argument, "a b"));
  EXPECT_TRUE(fails(Metrics::create({.labels = {{"a", "b"}, {"a", "c"}}}),
                    ErrorCode::invalid_argument, "twice"));
}

// ---- Documents ---------------------------------------------------------------------------------

TEST(MetricsDocs, ListExactlyWhatIsExported) {
  EXPECT_EQ(names_in(read_doc("metrics.md"), "\\| `(pando_\\w+)` \\|"), exported_names());
}

TEST(MetricsDocs, TheDashboardAsksForWhatThereIs) {
  const nlohmann::json board = nlohmann::json::parse(read_doc("grafana-dashboard.json"));
  const std::set<std::string> exported = exported_names();
  std::size_t num_asked = 0;
  for (const auto& panel : board.at("panels")) {
    for (const auto& target : panel.at("targets")) {
      for (std::string name : names_in(target.at("expr").get<std::string>(), "(pando_\\w+)")) {
        name = std::regex_replace(name, std::regex("_(bucket|count|sum)$"), "");
        EXPECT_TRUE(exported.contains(name)) << name << " in " << panel.at("title");
        ++num_asked;
      }
    }
  }
  EXPECT_GT(num_asked, 20u);
}

// ---- Over HTTP ---------------------------------------------------------------------------------

std::string get(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string reply;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0) {
    const std::string ask = "GET /metrics HTTP/1.0\r\n\r\n";
    (void)!::write(fd, ask.data(), ask.size());
    char part[4096];
    for (ssize_t n; (n = ::read(fd, part, sizeof part)) > 0;)
      reply.append(part, static_cast<std::size_t>(n));
  }
  ::close(fd);
  return reply;
}

TEST(MetricsHttp, AnswersAtTheGivenPort) {
  auto metrics = *Metrics::create();
  TestCache cache(1, {.observer = metrics.get()});
  cache.put(tokens(8));
  const std::uint16_t port = *metrics->serve();
  const std::string reply = get(port);
  EXPECT_TRUE(reply.starts_with("HTTP/1.")) << reply.substr(0, 100);
  EXPECT_NE(reply.find("pando_inserted_tokens_total{kind=\"new\"} 8"), reply.npos);
  EXPECT_TRUE(fails(metrics->serve(), ErrorCode::in_use, std::to_string(port)));
}

TEST(MetricsHttp, APortThatIsTakenIsAnError) {
  auto first = *Metrics::create();
  auto second = *Metrics::create();
  const std::uint16_t port = *first->serve();
  EXPECT_TRUE(fails(second->serve({.port = port}), ErrorCode::io_error, std::to_string(port)));
  EXPECT_NE(*second->serve(), port);
}

TEST(MetricsHttp, ScrapesRunWhileTheCacheWorks) {
  auto metrics = *Metrics::create({.max_tenants = 2});
  const std::uint16_t port = *metrics->serve();
  TestCache cache(4, {.observer = metrics.get()}, 256);
  std::atomic<bool> done = false;
  std::size_t num_scrapes = 0;
  double last = 0;
  std::thread scraper([&] {
    do {
      const std::string reply = ++num_scrapes % 2 == 0 ? get(port) : metrics->text();
      const double now = value_of(reply, "pando_inserted_tokens_total{kind=\"new\"}");
      EXPECT_GE(now, last);
      last = now;
    } while (!done);
  });
  for (Token i = 0; i < 2000; ++i) {
    Running r(tokens(24, 10 * (i % 50)), i % 3 == 0 ? "a" : "b");
    r.start(cache).value();
    r.allocate(cache).value();
    r.finish(cache).value();
    metrics->collect(*cache.cache);
  }
  done = true;
  scraper.join();
  EXPECT_GT(num_scrapes, 0u);
  EXPECT_EQ(value_of(metrics->text(), "pando_inserted_tokens_total{kind=\"new\"}"),
            static_cast<double>(cache->inspect().stats().inserted_tokens));
  EXPECT_EQ(value_of(metrics->text(), "pando_request_duration_seconds_count"), 2000);
}

}  // namespace
}  // namespace pando::testing
