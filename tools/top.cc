// SPDX-License-Identifier: Apache-2.0
// `pando top`: a running cache, live, from its metrics endpoint. On a terminal one screen that is
// drawn again; elsewhere one text per interval. An endpoint that never answered is an error; one
// that did is asked again until it comes back.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "tools/command.h"
#include "tools/http_get.h"
#include "tools/options.h"
#include "tools/results.h"
#include "tools/screen.h"
#include "tools/top_view.h"

namespace pando::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string url;
  double interval_s = 2;
  double timeout_s = 5;
  std::optional<std::size_t> count;
  bool once = false;
  bool no_colour = false;
  ResultArguments results;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds));
}

struct Scrape {
  Exposition metrics;
  Clock::time_point at;
};

Result<Scrape> scrape(const Url& url, const Arguments& a) {
  const Result<std::string> text = http_get(url, {.timeout = milliseconds(a.timeout_s)});
  if (!text) return text.error();
  Result<Exposition> metrics = Exposition::parse(*text);
  if (!metrics) return metrics.error();
  const auto& samples = metrics->samples();
  const bool is_ours = std::any_of(samples.begin(), samples.end(), [](const Sample& sample) {
    return sample.name.starts_with("pando_");
  });
  if (!is_ours)
    return make_error(ErrorCode::not_found,
                      "{} metrics, but none of Pando's: none begins with pando_", samples.size());
  return Scrape{std::move(*metrics), Clock::now()};
}

Status once(const Url& url, const Arguments& a) {
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  const Result<Scrape> now = scrape(url, a);
  if (!now) return now.error();
  const TopView view = make_view(nullptr, now->metrics, 0);
  Json json = to_json(view);
  json["command"] = "top";
  json["url"] = a.url;
  return writer->write(std::move(json), to_text(view, {}));
}

std::string clock_text() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[16];
  return {text, std::strftime(text, sizeof text, "%H:%M:%S", &local)};
}

Status watch(const Url& url, const Arguments& a) {
  const char* const no_colour = std::getenv("NO_COLOR");
  std::optional<Scrape> last = std::nullopt;
  {
    Result<Scrape> first = scrape(url, a);
    if (!first) return first.error();
    last = std::move(*first);
  }
  Screen screen(true);
  const bool colour =
      screen.is_terminal() && !a.no_colour && (no_colour == nullptr || *no_colour == 0);
  std::string shown = to_text(make_view(nullptr, last->metrics, 0), {colour});
  std::string trouble;
  for (std::size_t drawn = 1;; ++drawn) {
    const std::string text =
        fmt::format("pando top  {}  {}  every {:g} s{}\n\n{}{}", a.url, clock_text(), a.interval_s,
                    trouble.empty() ? "" : "\n" + trouble, shown, screen.is_terminal() ? "" : "\n");
    if (!screen.draw(text)) return Error{ErrorCode::io_error, "cannot write to standard output"};
    if (a.count && drawn >= *a.count) return {};
    screen.wait(milliseconds(a.interval_s));
    if (Screen::stopped()) return {};
    Result<Scrape> now = scrape(url, a);
    if (Screen::stopped()) return {};
    trouble =
        now ? ""
            : fmt::format("not reachable, these are the last figures: {}", now.error().message);
    if (!now) continue;
    const std::chrono::duration<double> between = now->at - last->at;
    shown = to_text(make_view(&last->metrics, now->metrics, between.count()), {colour});
    last = std::move(*now);
  }
}

Status run(const Arguments& a) {
  const Result<Url> url = parse_url(a.url);
  if (!url) return url.error();
  if (!(a.interval_s >= 0.05 && a.interval_s <= 86400) || !(a.timeout_s > 0 && a.timeout_s <= 3600))
    return Error{ErrorCode::invalid_argument,
                 "expected an interval of 0.05 s to a day, and a timeout of up to an hour"};
  if (!a.results.json.empty() && !a.once)
    return Error{ErrorCode::invalid_argument, "--json goes with --once"};
  return a.once ? once(*url, a) : watch(*url, a);
}

}  // namespace

Command add_top_command(CLI::App& root) {
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* app = root.add_subcommand(
      "top", "Watch a running cache by its Prometheus endpoint: tiers, hits, rates, latencies");
  app->add_option("URL", a.url, "http://HOST:PORT/metrics; HOST:PORT is enough")
      ->required()
      ->type_name("");
  app->add_option("--interval", a.interval_s, "Seconds between two looks")
      ->type_name("S")
      ->capture_default_str();
  app->add_option("--timeout", a.timeout_s, "Seconds to wait for an answer")
      ->type_name("S")
      ->capture_default_str();
  add_quantity(*app, "--count", a.count, "End after so many looks (default: Ctrl-C)");
  app->add_flag("--once", a.once, "One look, figures since the start, and end");
  app->add_flag("--no-color", a.no_colour, "Plain text; so does NO_COLOR in the environment");
  add_json_options(*app, a.results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
