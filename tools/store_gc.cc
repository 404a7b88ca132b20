// SPDX-License-Identifier: Apache-2.0
// `pando store gc`: brings a store down. Of the pages that the options name, those used least
// recently go first, until the store is small enough, or all of them have gone. A file store keeps
// times to within ten minutes; a Redis server says how long a key was idle, unless it counts uses.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/results.h"
#include "tools/store_command.h"
#include "tools/store_pages.h"
#include "tools/store_place.h"
#include "tools/text.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  StorePlace place;
  PageFilter filter;
  std::string to, older_than;
  bool dry_run = false;
  bool list = false;
  ResultArguments results;
};

constexpr std::size_t kAtATime = 256;

struct Limits {
  std::optional<std::uint64_t> to_bytes;
  std::optional<std::int64_t> used_before_ns;
};

Result<Limits> limits_of(const Arguments& a, std::int64_t now) {
  Limits limits;
  if (a.to.empty() && a.older_than.empty() && a.filter.model.empty() && a.filter.prefix.empty())
    return Error{ErrorCode::invalid_argument,
                 "nothing says what goes: expected --to, --older-than, --model or --prefix"};
  if (!a.to.empty()) {
    const Result<std::uint64_t> size = parse_size(a.to);
    if (!size) return size.error();
    limits.to_bytes = *size;
  }
  if (!a.older_than.empty()) {
    const Result<std::int64_t> age = parse_age(a.older_than);
    if (!age) return age.error();
    limits.used_before_ns = now - *age;
  }
  return limits;
}

/// How many of the pages go, counted from the least recently used.
Result<std::size_t> num_to_go(const Collected& found, const Limits& limits) {
  std::uint64_t left = found.all_kept_bytes;
  std::size_t n = 0;
  for (; n < found.pages.size(); ++n) {
    const KeptPage& page = found.pages[n];
    if (limits.used_before_ns && !page.used_ns)
      return Error{ErrorCode::unavailable,
                   "the server does not say when pages were used (an LFU maxmemory-policy?): "
                   "--older-than cannot be told"};
    if (limits.used_before_ns && *page.used_ns >= *limits.used_before_ns) break;
    if (limits.to_bytes && left <= *limits.to_bytes) break;
    left -= page.kept_bytes;
  }
  return n;
}

Status remove(StoreReader& reader, const std::vector<KeptPage>& pages, std::size_t num_pages,
              bool quiet) {
  Progress progress("pages", !quiet);
  for (std::size_t at = 0; at < num_pages; at += kAtATime) {
    std::vector<std::string> keys;
    for (std::size_t i = at; i < std::min(num_pages, at + kAtATime); ++i)
      keys.push_back(pages[i].key);
    if (Status removed = reader.remove(keys); !removed)
      return make_error(removed.error().code, "{} of {} pages have gone, then: {}", at, num_pages,
                        removed.error().message);
    progress.update(static_cast<double>(at) / static_cast<double>(num_pages), at);
  }
  return {};
}

Status run(const Arguments& a) {
  const std::int64_t now = now_ns();
  const Result<Limits> limits = limits_of(a, now);
  if (!limits) return limits.error();
  Result<std::unique_ptr<StoreReader>> reader =
      open_reader(a.place, a.dry_run ? StoreAccess::read : StoreAccess::write);
  if (!reader) return reader.error();
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  const Result<Collected> found = collect_pages(**reader, a.filter, a.results.quiet);
  if (!found) return found.error();
  const Result<std::size_t> num = num_to_go(*found, *limits);
  if (!num) return num.error();
  if (!a.dry_run) {
    if (Status s = remove(**reader, found->pages, *num, a.results.quiet); !s) return s;
  }

  PageGroups gone;
  std::string listed;
  Json keys = Json::array();
  for (std::size_t i = 0; i < *num; ++i) {
    gone.add(found->pages[i]);
    if (!a.list) continue;
    listed += printable(found->pages[i].key) + "\n";
    keys.push_back(found->pages[i].key);
  }
  const std::uint64_t left = found->all_kept_bytes - gone.total().kept_bytes;
  Json json{{"command", "store gc"},
            {"store", a.place.text},
            {"dry_run", a.dry_run},
            {"removed_pages", *num},
            {"removed_bytes", gone.total().kept_bytes},
            {"left_bytes", left},
            {"groups", gone.json()}};
  if (a.list) json["keys"] = std::move(keys);
  std::string text = listed;
  if (*num > 0) text += gone.table(now) + "\n";
  text += fmt::format("{} {} pages, {}; {} left\n", a.dry_run ? "would remove" : "removed",
                      grouped(*num), size_text(static_cast<double>(gone.total().kept_bytes)),
                      size_text(static_cast<double>(left)));
  if (limits->to_bytes && left > *limits->to_bytes)
    text += fmt::format("that is more than {}: nothing else may go\n", a.to);
  return writer->write(std::move(json), text);
}

}  // namespace

Command add_store_gc(CLI::App& store) {
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* app = store.add_subcommand(
      "gc", "Remove pages, least recently used first; several options together name fewer pages");
  add_store_place(*app, a.place);
  app->add_option("--to", a.to, "Until what is kept takes no more than this, such as 64GiB")
      ->type_name("SIZE");
  app->add_option("--older-than", a.older_than, "Pages not used for so long: 90s, 30m, 12h, 7d, 2w")
      ->type_name("AGE");
  add_page_filter(*app, a.filter);
  app->add_flag("--dry-run", a.dry_run, "Only say what would go");
  app->add_flag("--list", a.list, "Say every key that goes");
  add_json_options(*app, a.results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
