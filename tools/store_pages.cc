// SPDX-License-Identifier: Apache-2.0
// Pages in words and figures.
#include "tools/store_pages.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "pando/config.h"
#include "tools/progress.h"
#include "tools/text.h"

namespace pando::tools {

using Json = nlohmann::ordered_json;

std::string_view component_name(ComponentKind component) {
  switch (component) {
    case ComponentKind::full:
      return "full";
    case ComponentKind::window:
      return "window";
    case ComponentKind::state:
      return "state";
  }
  return "unknown";
}

std::string rank_text(const std::optional<RankOf>& rank) {
  return rank ? fmt::format("{}/{}", rank->rank, rank->size) : "-";
}

std::string printable(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string age_text(const std::optional<std::int64_t>& used_ns, std::int64_t now) {
  if (!used_ns) return "-";
  const double seconds = std::max(0.0, static_cast<double>(now - *used_ns) / 1e9);
  if (seconds < 99.5) return fmt::format("{:.0f} s", seconds);
  if (seconds < 99.5 * 60) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.1f} d", seconds / 86400);
}

Result<std::int64_t> parse_age(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const double seconds = unit == "s"   ? 1
                         : unit == "m" ? 60
                         : unit == "h" ? 3600
                         : unit == "d" ? 86400
                         : unit == "w" ? 7 * 86400
                                       : 0;
  const double ns = value * seconds * 1e9;
  if (error != std::errc() || seconds == 0 || !(ns >= 0 && ns < 9e18))
    return make_error(ErrorCode::invalid_argument,
                      "age '{}': expected a number and s, m, h, d or w, such as 12h", text);
  return static_cast<std::int64_t>(ns);
}

Result<std::uint64_t> parse_size(const std::string& text) {
  Config config;
  config.set("size", text);
  Result<std::uint64_t> size = config.bytes("size", 0);
  if (!size)
    return make_error(ErrorCode::invalid_argument,
                      "size '{}': expected bytes such as 64GiB, 500MB or 4096", text);
  return size;
}

bool PageFilter::takes(std::string_view key) const {
  if (!key.starts_with(prefix)) return false;
  if (model.empty()) return true;
  std::string wanted = model;
  std::replace(wanted.begin(), wanted.end(), '/', '-');
  const std::optional<ParsedKey> parts = parse_key(key);
  return parts && parts->model == wanted;
}

void add_page_filter(CLI::App& app, PageFilter& filter) {
  app.add_option("--prefix", filter.prefix, "Pages whose key begins so")->type_name("TEXT");
  app.add_option("--model", filter.model, "Pages of this model")->type_name("NAME");
}

void PageGroups::Total::add(const KeptPage& page) {
  ++num_pages;
  size_bytes += page.size_bytes;
  kept_bytes += page.kept_bytes;
  if (!page.used_ns) return;
  oldest_ns = std::min(oldest_ns.value_or(*page.used_ns), *page.used_ns);
  newest_ns = std::max(newest_ns.value_or(*page.used_ns), *page.used_ns);
}

void PageGroups::add(const KeptPage& page) {
  total_.add(page);
  Name name;
  if (const std::optional<ParsedKey> parts = parse_key(page.key))
    name = {parts->model, rank_text(parts->tp), rank_text(parts->pp),
            std::string(component_name(parts->component)), parts->fingerprint};
  groups_[name].add(page);
}

Json PageGroups::json() const {
  Json groups = Json::array();
  for (const auto& [name, total] : groups_) {
    const auto& [model, tp, pp, component, fingerprint] = name;
    Json group;
    const bool is_named = !component.empty();
    group["model"] = is_named ? Json(model) : Json(nullptr);
    group["tp"] = is_named ? Json(tp) : Json(nullptr);
    group["pp"] = is_named ? Json(pp) : Json(nullptr);
    group["component"] = is_named ? Json(component) : Json(nullptr);
    group["fingerprint"] = is_named ? Json(fingerprint) : Json(nullptr);
    group["num_pages"] = total.num_pages;
    group["size_bytes"] = total.size_bytes;
    group["kept_bytes"] = total.kept_bytes;
    group["oldest_s"] = used_json(total.oldest_ns);
    group["newest_s"] = used_json(total.newest_ns);
    groups.push_back(std::move(group));
  }
  return groups;
}

std::string PageGroups::table(std::int64_t now) const {
  TextTable table({"model", "tp", "pp", "component", "geometry", "pages", "bytes", "takes",
                   "oldest", "newest"});
  for (const auto& [name, total] : groups_) {
    const auto& [model, tp, pp, component, fingerprint] = name;
    const bool is_named = !component.empty();
    table.add({is_named ? printable(model) : "(other keys)", is_named ? tp : "-",
               is_named ? pp : "-", is_named ? component : "-", is_named ? fingerprint : "-",
               grouped(total.num_pages), size_text(static_cast<double>(total.size_bytes)),
               size_text(static_cast<double>(total.kept_bytes)), age_text(total.oldest_ns, now),
               age_text(total.newest_ns, now)});
  }
  return table.text();
}

Json used_json(const std::optional<std::int64_t>& used_ns) {
  if (!used_ns) return nullptr;
  return static_cast<double>(*used_ns / 1'000'000) / 1e3;
}

Json odd_json(const OddEntry& entry) {
  return {{"kind", to_string(entry.kind)}, {"place", entry.place}, {"why", entry.why}};
}

Result<Collected> collect_pages(StoreReader& reader, const PageFilter& filter, bool quiet) {
  Collected collected;
  Progress progress("pages", !quiet);
  std::uint64_t seen = 0;
  const Status listed = reader.list(
      [&](const KeptPage& page) {
        progress.update(reader.progress(), ++seen);
        collected.all_kept_bytes += page.kept_bytes;
        if (filter.takes(page.key)) collected.pages.push_back(page);
        return true;
      },
      [&](const OddEntry& entry) { collected.num_odd += entry.is_beside ? 0 : 1; });
  if (!listed) return listed.error();
  // Those of which nothing is known first; the sort is stable, so these stay as they were listed.
  std::stable_sort(collected.pages.begin(), collected.pages.end(),
                   [](const KeptPage& a, const KeptPage& b) { return a.used_ns < b.used_ns; });
  return collected;
}

}  // namespace pando::tools
