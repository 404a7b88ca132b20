// SPDX-License-Identifier: Apache-2.0
// `pando store ls`: a line for each page, written as it is met. The JSON is one object, written in
// the same way: a store may have more pages than fit into memory.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/hex.h"
#include "tools/options.h"
#include "tools/output_file.h"
#include "tools/store_command.h"
#include "tools/store_pages.h"
#include "tools/store_place.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  StorePlace place;
  PageFilter filter;
  std::optional<std::size_t> limit;
  ResultArguments results;
};

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json page_json(const KeptPage& page) {
  Json json{{"key", page.key},
            {"size_bytes", page.size_bytes},
            {"kept_bytes", page.kept_bytes},
            {"used_s", used_json(page.used_ns)}};
  const std::optional<ParsedKey> parts = parse_key(page.key);
  if (!parts) return json;
  const auto rank = [](const std::optional<RankOf>& of) -> Json {
    if (!of) return nullptr;
    return {{"rank", of->rank}, {"size", of->size}};
  };
  json["hash"] = page.key.substr(0, kHashDigits);
  json["model"] = parts->model;
  json["tp"] = rank(parts->tp);
  json["pp"] = rank(parts->pp);
  json["component"] = component_name(parts->component);
  json["fingerprint"] = parts->fingerprint;
  return json;
}

std::string page_line(const KeptPage& page, std::int64_t now) {
  const std::optional<ParsedKey> parts = parse_key(page.key);
  const std::string age = age_text(page.used_ns, now);
  if (!parts)
    return fmt::format("{:>12}  {:>8}  {:<9}  {:>7}  {:>7}  {}\n", page.size_bytes, age, "-", "-",
                       "-", printable(page.key));
  return fmt::format("{:>12}  {:>8}  {:<9}  {:>7}  {:>7}  {}  {}\n", page.size_bytes, age,
                     component_name(parts->component), rank_text(parts->tp), rank_text(parts->pp),
                     page.key.substr(0, kHashDigits), printable(parts->model));
}

/// Writes the pages to one place, as text or as JSON.
class Lines {
 public:
  Lines(OutputFile& out, bool as_json) : out_(out), as_json_(as_json), now_(now_ns()) {}

  Status begin(const std::string& store) {
    if (as_json_)
      return out_.write(
          fmt::format("{{\"command\": \"store ls\", \"store\": {}, \"pages\": [", dump(store)));
    return out_.write(fmt::format("{:>12}  {:>8}  {:<9}  {:>7}  {:>7}  {:<64}  {}\n", "BYTES",
                                  "USED", "COMPONENT", "TP", "PP", "PAGE", "MODEL"));
  }
  Status add(const KeptPage& page) {
    if (!as_json_) return out_.write(page_line(page, now_));
    const char* between = is_first_ ? "\n  " : ",\n  ";
    is_first_ = false;
    return out_.write(between + dump(page_json(page)));
  }
  Status end(std::uint64_t num_pages, std::uint64_t size_bytes, std::uint64_t num_odd) {
    if (!as_json_) return out_.commit();
    const Status ended =
        out_.write(fmt::format("\n], \"num_pages\": {}, \"size_bytes\": {}, \"odd_entries\": {}, "
                               "\"version\": {}}}\n",
                               num_pages, size_bytes, num_odd, dump(PANDO_VERSION)));
    return ended ? out_.commit() : ended;
  }

 private:
  OutputFile& out_;
  const bool as_json_;
  const std::int64_t now_;
  bool is_first_ = true;
};

Status run(const Arguments& a) {
  Result<std::unique_ptr<StoreReader>> reader = open_reader(a.place, StoreAccess::read);
  if (!reader) return reader.error();
  const bool as_json = !a.results.json.empty();
  Result<OutputFile> out = OutputFile::create(as_json ? a.results.json : "-");
  if (!out) return out.error();
  Lines lines(*out, as_json);
  if (Status s = lines.begin(a.place.text); !s) return s;
  std::uint64_t num_pages = 0, size_bytes = 0, num_odd = 0;
  Status written;
  const Status listed = (*reader)->list(
      [&](const KeptPage& page) {
        if (a.limit && num_pages >= *a.limit) return false;
        if (!a.filter.takes(page.key)) return true;
        ++num_pages;
        size_bytes += page.size_bytes;
        written = lines.add(page);
        return written.ok();
      },
      [&](const OddEntry& entry) { num_odd += entry.is_beside ? 0 : 1; });
  if (!listed) return listed;
  if (!written) return written;
  if (Status s = lines.end(num_pages, size_bytes, num_odd); !s) return s;
  if (num_odd > 0 && !a.results.quiet)
    fmt::print(stderr, "{} entries are no pages; `pando store verify` says why\n", num_odd);
  return {};
}

}  // namespace

Command add_store_ls(CLI::App& store) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* app =
      store.add_subcommand("ls", "List pages: size, when they were used, and what their keys say");
  add_store_place(*app, arguments->place);
  add_page_filter(*app, arguments->filter);
  add_quantity(*app, "--limit", arguments->limit, "No more pages than these");
  add_json_options(*app, arguments->results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
