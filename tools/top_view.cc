// SPDX-License-Identifier: Apache-2.0
// From samples to figures, and from figures to lines.
#include "tools/top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "tools/text.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCalls = "pando_call_duration_seconds";

/// Two scrapes and the time between them.
class Scrapes {
 public:
  Scrapes(const Exposition* before, const Exposition& now, double seconds)
      : before_(before), now_(now), seconds_(seconds) {}

  Figure total(std::string_view name, const Labels& labels = {}) const {
    return now_.sum(name, labels);
  }
  /// A counter that went back has begun anew.
  Figure since(std::string_view name, const Labels& labels = {}) const {
    const Figure now = now_.sum(name, labels);
    if (before_ == nullptr || !now) return std::nullopt;
    const double was = before_->sum(name, labels).value_or(0);
    return *now < was ? *now : *now - was;
  }
  Figure per_s(std::string_view name, const Labels& labels = {}) const {
    const Figure change = since(name, labels);
    if (!change || !(seconds_ > 0)) return std::nullopt;
    return *change / seconds_;
  }
  Buckets buckets(std::string_view name, const Labels& labels) const {
    const Buckets now = now_.buckets(name, labels);
    return before_ == nullptr ? now : buckets_since(before_->buckets(name, labels), now);
  }

 private:
  const Exposition* before_;
  const Exposition& now_;
  const double seconds_;
};

Figure add(const Figure& a, const Figure& b) {
  if (!a || !b) return a ? a : b;
  return *a + *b;
}

Figure share(const Figure& hits, const Figure& misses) {
  if (!hits || !misses || !(*hits + *misses > 0)) return std::nullopt;
  return *hits / (*hits + *misses);
}

std::vector<TopView::Tier> tiers_of(const Scrapes& of) {
  std::vector<TopView::Tier> tiers;
  for (const char* name : {"device", "host"}) {
    const auto tokens = [&](const char* state) {
      return of.total("pando_cached_tokens",
                      {{"tier", name}, {"component", "full"}, {"state", state}});
    };
    const Figure held = tokens("held");
    Figure capacity = of.total("pando_capacity_tokens", {{"tier", name}});
    if (capacity && *capacity <= 0) capacity.reset();  // not known
    tiers.push_back({name, add(held, tokens("evictable")), held, capacity, false});
  }
  Figure capacity = of.total("pando_store_capacity_bytes");
  if (capacity && *capacity <= 0) capacity.reset();  // no limit
  tiers.push_back({"store", of.total("pando_store_bytes"), std::nullopt, capacity, true});
  return tiers;
}

struct Counter {
  const char* shown;
  const char* name;
  Labels labels = {};
  bool is_bytes = false;
};

std::vector<TopView::Rate> rates_of(const Scrapes& of, const std::vector<Counter>& counters,
                                    bool only_above_zero) {
  std::vector<TopView::Rate> rates;
  for (const Counter& counter : counters) {
    const Figure total = of.total(counter.name, counter.labels);
    if (only_above_zero && total.value_or(0) <= 0) continue;
    rates.push_back(
        {counter.shown, of.per_s(counter.name, counter.labels), total, counter.is_bytes});
  }
  return rates;
}

const std::vector<Counter>& rate_counters() {
  static const std::vector<Counter> counters = {
      {"lookups", "pando_lookups_total"},
      {"requests finished", "pando_request_duration_seconds_count"},
      {"prompt tokens", "pando_request_tokens_total", {{"kind", "prompt"}}},
      {"output tokens", "pando_request_tokens_total", {{"kind", "output"}}},
      {"hit tokens, device", "pando_hit_tokens_total", {{"tier", "device"}}},
      {"hit tokens, host", "pando_hit_tokens_total", {{"tier", "host"}}},
      {"missed tokens", "pando_missed_tokens_total"},
      {"evicted tokens, device", "pando_evicted_tokens_total", {{"tier", "device"}}},
      {"evicted tokens, host", "pando_evicted_tokens_total", {{"tier", "host"}}},
      {"blocks evicted", "pando_blocks_evicted_total"},
      {"backed up tokens", "pando_backed_up_tokens_total"},
      {"loaded tokens", "pando_loaded_tokens_total"},
      {"prefetched tokens", "pando_prefetched_tokens_total"},
      {"store read", "pando_store_read_bytes_total", {}, true},
      {"store written", "pando_store_written_bytes_total", {}, true},
  };
  return counters;
}

const std::vector<Counter>& failure_counters() {
  static const std::vector<Counter> counters = {
      {"calls with an error", "pando_call_errors_total"},
      {"transfers", "pando_transfer_failures_total"},
      {"backups", "pando_failed_backups_total"},
      {"loads", "pando_failed_loads_total"},
      {"backups without room", "pando_refused_backups_total"},
      {"puts", "pando_failed_puts_total"},
      {"store pages damaged", "pando_store_damaged_pages_total"},
      {"store pages failed", "pando_store_failed_pages_total"},
      {"store calls timed out", "pando_store_timed_out_calls_total"},
      {"store calls refused", "pando_store_refused_calls_total"},
      {"store reconnects", "pando_store_reconnects_total"},
  };
  return counters;
}

Json figure_json(const Figure& figure) { return figure ? Json(*figure) : Json(nullptr); }

// ---- Text.

std::string number_text(const Figure& figure) {
  if (!figure) return "-";
  if (*figure < 100 && *figure != static_cast<double>(static_cast<std::uint64_t>(*figure)))
    return fmt::format("{:.1f}", *figure);
  return grouped(static_cast<std::uint64_t>(std::max(0.0, *figure) + 0.5));
}
std::string amount_text(const Figure& figure, bool is_bytes) {
  return figure && is_bytes ? size_text(*figure) : number_text(figure);
}
std::string time_text(const Figure& seconds) { return seconds ? duration(1e9 * *seconds) : "-"; }
std::string percent_text(const Figure& ratio) {
  return ratio ? fmt::format("{:.1f} %", 100 * *ratio) : "-";
}

std::string rate_table(const char* heading, const std::vector<TopView::Rate>& rates) {
  TextTable table({heading, "per second", "since start"});
  for (const TopView::Rate& rate : rates) {
    if (!rate.total && !rate.per_s) continue;
    table.add({rate.name, amount_text(rate.per_s, rate.is_bytes),
               amount_text(rate.total, rate.is_bytes)});
  }
  return table.text();
}

/// The first line of a table, in bold.
std::string headed(std::string table, const TopStyle& style, const char* code = "1") {
  if (!style.colour) return table;
  const std::size_t end = table.find('\n');
  return fmt::format("\x1b[{}m{}\x1b[0m{}", code, table.substr(0, end), table.substr(end));
}

}  // namespace

TopView make_view(const Exposition* before, const Exposition& now, double seconds) {
  const Scrapes of(before, now, seconds);
  TopView view;
  view.hit_ratio = share(of.since("pando_hit_tokens_total"), of.since("pando_missed_tokens_total"));
  view.hit_ratio_total =
      share(of.total("pando_hit_tokens_total"), of.total("pando_missed_tokens_total"));
  view.tiers = tiers_of(of);
  view.rates = rates_of(of, rate_counters(), false);
  view.failures = rates_of(of, failure_counters(), true);
  const std::string count = std::string(kCalls) + "_count";
  for (const std::string& name : now.values_of(count, "call")) {
    const Labels labels{{"call", name}};
    const Figure total = of.total(count, labels);
    if (total.value_or(0) <= 0) continue;
    const Buckets buckets = of.buckets(kCalls, labels);
    view.calls.push_back(
        {name, of.per_s(count, labels), quantile(buckets, 0.5), quantile(buckets, 0.99), total});
  }
  view.flight = {{"store reads, pages", of.total("pando_store_pending_read_pages")},
                 {"store writes, pages", of.total("pando_store_pending_write_pages")}};
  return view;
}

Json to_json(const TopView& view) {
  Json json{{"hit_ratio", figure_json(view.hit_ratio)},
            {"hit_ratio_total", figure_json(view.hit_ratio_total)}};
  json["tiers"] = Json::array();
  for (const TopView::Tier& tier : view.tiers)
    json["tiers"].push_back({{"name", tier.name},
                             {"unit", tier.is_bytes ? "bytes" : "tokens"},
                             {"used", figure_json(tier.used)},
                             {"in_use", figure_json(tier.in_use)},
                             {"capacity", figure_json(tier.capacity)}});
  for (const auto& [name, rates] :
       {std::pair{"rates", &view.rates}, {"failures", &view.failures}}) {
    json[name] = Json::array();
    for (const TopView::Rate& rate : *rates)
      json[name].push_back({{"name", rate.name},
                            {"unit", rate.is_bytes ? "bytes" : "count"},
                            {"per_s", figure_json(rate.per_s)},
                            {"total", figure_json(rate.total)}});
  }
  json["calls"] = Json::array();
  for (const TopView::Call& call : view.calls)
    json["calls"].push_back({{"name", call.name},
                             {"per_s", figure_json(call.per_s)},
                             {"p50_s", figure_json(call.p50_s)},
                             {"p99_s", figure_json(call.p99_s)},
                             {"total", figure_json(call.total)}});
  json["in_flight"] = Json::object();
  for (const auto& [name, value] : view.flight) json["in_flight"][name] = figure_json(value);
  return json;
}

std::string to_text(const TopView& view, const TopStyle& style) {
  std::string text = fmt::format("hit ratio  {} now, {} since start\n\n",
                                 percent_text(view.hit_ratio), percent_text(view.hit_ratio_total));
  TextTable tiers({"tier", "used", "held by requests", "capacity"});
  for (const TopView::Tier& tier : view.tiers) {
    if (!tier.used) continue;
    const char* unit = tier.is_bytes ? "" : " tokens";
    const std::string full =
        tier.capacity ? fmt::format(" ({:.0f} %)", 100 * *tier.used / *tier.capacity) : "";
    tiers.add({tier.name, amount_text(tier.used, tier.is_bytes) + unit + full,
               amount_text(tier.in_use, tier.is_bytes), amount_text(tier.capacity, tier.is_bytes)});
  }
  text += headed(tiers.text(), style);
  const auto add_part = [&text](const std::string& part) {
    text += '\n';
    text += part;
  };
  add_part(headed(rate_table("rate", view.rates), style));
  if (!view.calls.empty()) {
    TextTable calls({"call", "per second", "p50", "p99", "since start"});
    for (const TopView::Call& call : view.calls)
      calls.add({call.name, number_text(call.per_s), time_text(call.p50_s), time_text(call.p99_s),
                 number_text(call.total)});
    add_part(headed(calls.text(), style));
  }
  TextTable flight({"under way", "now"});
  bool is_any = false;
  for (const auto& [name, value] : view.flight) {
    if (value) flight.add({name, number_text(value)});
    is_any = is_any || value;
  }
  if (is_any) add_part(headed(flight.text(), style));
  if (!view.failures.empty())
    add_part(headed(rate_table("failures", view.failures), style, "1;31"));
  return text;
}

}  // namespace pando::tools
