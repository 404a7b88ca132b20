// SPDX-License-Identifier: Apache-2.0
// Prometheus's text, as it should be and as it should not; quantiles; what `top` makes of it.
#include "tools/exposition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/top_view.h"

namespace pando::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Exposition parsed(std::string_view text) {
  Result<Exposition> exposition = Exposition::parse(text);
  EXPECT_TRUE(exposition.ok()) << exposition.error().message;
  return exposition ? *exposition : Exposition();
}

TEST(Exposition, ReadsNamesLabelsValuesAndComments) {
  const Exposition read = parsed(
      "# HELP a_total What \\n it is\n# TYPE a_total counter\n"
      "a_total 3\n"
      "a_total{tier=\"device\",rank=\"0\"} 1.5e3 1395066363000\n"
      "  b { x = \"1\" , } -2\r\n\n#\n"
      "c:d{} +7\n"
      "e 1");
  const std::vector<Sample> expected = {{"a_total", {}, 3},
                                        {"a_total", {{"tier", "device"}, {"rank", "0"}}, 1500},
                                        {"b", {{"x", "1"}}, -2},
                                        {"c:d", {}, 7},
                                        {"e", {}, 1}};
  EXPECT_EQ(read.samples(), expected);
  EXPECT_TRUE(parsed("").samples().empty());
}

TEST(Exposition, EscapesInLabels) {
  const Exposition read =
      parsed("a{path=\"C:\\\\DIR\\\\\",say=\"\\\"hi\\\"\\nthere\",x=\"},=\"} 1\n");
  ASSERT_EQ(read.samples().size(), 1u);
  const Labels& labels = read.samples()[0].labels;
  EXPECT_EQ(labels.find("path")->second, "C:\\DIR\\");
  EXPECT_EQ(labels.find("say")->second, "\"hi\"\nthere");
  EXPECT_EQ(labels.find("x")->second, "},=");
}

TEST(Exposition, NumbersThatAreNone) {
  const Exposition read = parsed("a NaN\na +Inf\na -Inf\na{x=\"1\"} 2\nb NaN\n");
  EXPECT_TRUE(std::isnan(read.samples()[0].value));
  EXPECT_EQ(read.samples()[1].value, kInfinity);
  EXPECT_EQ(read.samples()[2].value, -kInfinity);
  EXPECT_EQ(read.sum("a"), 2);
  EXPECT_EQ(read.sum("b"), std::nullopt);
  EXPECT_EQ(read.sum("c"), std::nullopt);
}

TEST(Exposition, OtherTextsAreRefusedWithTheirLine) {
  for (const char* bad :
       {"<html>", "a", "a b", "a 1 2 3", "a{x} 1", "a{x=1} 1", "a{x=\"1\" 1", "a{x=\"1\"y=\"2\"} 1",
        "a{x=\"\\q\"} 1", "a{x=\"1\",x=\"2\"} 1", "1a 2", "a +-1", "a 1x", "a{x=\"unended"}) {
    const Result<Exposition> read = Exposition::parse(std::string("ok 1\n") + bad + "\n");
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
    EXPECT_NE(read.error().message.find("line 2"), std::string::npos) << read.error().message;
  }
}

TEST(Exposition, BucketsAndQuantiles) {
  const Exposition read = parsed(
      "t_bucket{call=\"a\",le=\"0.001\"} 10\nt_bucket{call=\"a\",le=\"0.01\"} 90\n"
      "t_bucket{call=\"a\",le=\"+Inf\"} 100\nt_bucket{call=\"b\",le=\"+Inf\"} 5\n"
      "t_sum{call=\"a\"} 1\nt_count{call=\"a\"} 100\n");
  const Buckets buckets = read.buckets("t", {{"call", "a"}});
  EXPECT_EQ(buckets, (Buckets{{0.001, 10}, {0.01, 90}, {kInfinity, 100}}));
  EXPECT_NEAR(*quantile(buckets, 0.5), 0.001 + 0.009 * 40 / 80, 1e-12);
  EXPECT_NEAR(*quantile(buckets, 0.05), 0.0005, 1e-12);
  EXPECT_EQ(quantile(buckets, 0.99), 0.01);  // beyond the last bound
  EXPECT_EQ(quantile({}, 0.5), std::nullopt);
  EXPECT_EQ(quantile({{1, 0}, {kInfinity, 0}}, 0.5), std::nullopt);
  EXPECT_EQ(buckets_since({{0.001, 5}, {0.01, 50}, {kInfinity, 60}}, buckets),
            (Buckets{{0.001, 5}, {0.01, 40}, {kInfinity, 40}}));
  EXPECT_EQ(buckets_since({{kInfinity, 1000}}, buckets), buckets);  // it began anew
}

const char* const kFirst =
    "pando_hit_tokens_total{tier=\"device\"} 100\npando_hit_tokens_total{tier=\"host\"} 0\n"
    "pando_missed_tokens_total{end=\"whole_key\"} 0\n"
    "pando_missed_tokens_total{end=\"no_such_child\"} 100\n"
    "pando_cached_tokens{tier=\"device\",component=\"full\",state=\"held\"} 64\n"
    "pando_cached_tokens{tier=\"device\",component=\"full\",state=\"evictable\"} 936\n"
    "pando_call_duration_seconds_count{call=\"match\"} 10\n"
    "pando_call_duration_seconds_bucket{call=\"match\",le=\"1e-06\"} 10\n"
    "pando_call_duration_seconds_bucket{call=\"match\",le=\"+Inf\"} 10\n"
    "pando_call_duration_seconds_count{call=\"evict\"} 0\n"
    "pando_store_bytes 500\npando_store_capacity_bytes 1000\n"
    "pando_transfer_failures_total 0\n";

TEST(TopView, OneScrapeGivesTotalsAndNoRates) {
  const TopView view = make_view(nullptr, parsed(kFirst), 0);
  EXPECT_EQ(view.hit_ratio, std::nullopt);
  EXPECT_EQ(view.hit_ratio_total, 0.5);
  EXPECT_EQ(view.tiers[0].used, 1000);
  EXPECT_EQ(view.tiers[0].in_use, 64);
  EXPECT_EQ(view.tiers[1].used, std::nullopt);
  EXPECT_EQ(view.tiers[2].capacity, 1000);
  ASSERT_EQ(view.calls.size(), 1u);
  EXPECT_EQ(view.calls[0].per_s, std::nullopt);
  EXPECT_TRUE(view.failures.empty());
  EXPECT_TRUE(to_json(view)["hit_ratio"].is_null());
}

TEST(TopView, TwoScrapesGiveWhatCameBetweenThem) {
  const Exposition first = parsed(kFirst);
  const Exposition second = parsed(
      "pando_hit_tokens_total{tier=\"device\"} 400\npando_missed_tokens_total{end=\"x\"} 200\n"
      "pando_call_duration_seconds_count{call=\"match\"} 30\n"
      "pando_call_duration_seconds_bucket{call=\"match\",le=\"1e-06\"} 10\n"
      "pando_call_duration_seconds_bucket{call=\"match\",le=\"4e-06\"} 30\n"
      "pando_call_duration_seconds_bucket{call=\"match\",le=\"+Inf\"} 30\n"
      "pando_transfer_failures_total 4\n");
  const TopView view = make_view(&first, second, 2);
  EXPECT_EQ(view.hit_ratio, 0.75);
  EXPECT_NEAR(*view.hit_ratio_total, 2.0 / 3, 1e-9);
  ASSERT_EQ(view.calls.size(), 1u);
  EXPECT_EQ(view.calls[0].per_s, 10);
  EXPECT_GT(*view.calls[0].p50_s, 1e-6);
  ASSERT_EQ(view.failures.size(), 1u);
  EXPECT_EQ(view.failures[0].per_s, 2);
  const std::string text = to_text(view, {.colour = false});
  EXPECT_NE(text.find("75.0 % now"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(to_text(view, {.colour = true}).find("\x1b[1;31m"), std::string::npos);
  // After a restart of the engine counters begin anew.
  EXPECT_EQ(make_view(&second, first, 2).rates[4].per_s, 50);
}

TEST(TopView, NothingKnownIsShownAsNothing) {
  const TopView view = make_view(nullptr, parsed("other 1\n"), 0);
  EXPECT_NE(to_text(view, {}).find("- now, - since start"), std::string::npos);
}

}  // namespace
}  // namespace pando::tools
