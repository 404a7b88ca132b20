// SPDX-License-Identifier: Apache-2.0
// `pando store stat`: how much there is, of what, how old, and what lies among it that is no page.
// Looks at headers, not at the bytes of pages: `verify` does.
#include <CLI/CLI.hpp>
#include <array>
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
  ResultArguments results;
};

struct Found {
  PageGroups pages;
  std::uint64_t num_damaged = 0, num_foreign = 0, num_unreadable = 0;
  StoreRoom room;
};

std::string sized(std::uint64_t bytes) { return size_text(static_cast<double>(bytes)); }

std::string text_of(const Found& found, const std::string& store, std::int64_t now) {
  const PageGroups::Total& all = found.pages.total();
  std::string text = fmt::format("{}: {} pages, {}, which take {}\n", store, grouped(all.num_pages),
                                 sized(all.size_bytes), sized(all.kept_bytes));
  if (all.oldest_ns)
    text += fmt::format("last used between {} and {} ago\n", age_text(all.newest_ns, now),
                        age_text(all.oldest_ns, now));
  const StoreRoom& room = found.room;
  if (room.used_bytes)
    text += fmt::format("servers use {} of {}\n", sized(*room.used_bytes),
                        room.capacity_bytes ? sized(*room.capacity_bytes) : "no limit");
  if (room.free_bytes) text += fmt::format("{} free on the file system\n", sized(*room.free_bytes));
  if (all.num_pages > 0) text += "\n" + found.pages.table(now);
  const std::array<std::pair<std::uint64_t, const char*>, 3> odd = {{
      {found.num_damaged, "damaged"},
      {found.num_foreign, "foreign"},
      {found.num_unreadable, "unreadable"},
  }};
  for (const auto& [count, name] : odd)
    if (count > 0) text += fmt::format("\n{} {}: `pando store verify` says which\n", count, name);
  if (room.num_set_aside > 0)
    text += fmt::format("\nset aside: {}, {}\n", grouped(room.num_set_aside),
                        sized(room.set_aside_bytes));
  if (room.num_unfinished > 0)
    text += fmt::format("\nunfinished, of a process that was killed: {}, {}\n",
                        grouped(room.num_unfinished), sized(room.unfinished_bytes));
  return text;
}

Json to_json(const Found& found, const std::string& store) {
  const PageGroups::Total& all = found.pages.total();
  const StoreRoom& room = found.room;
  const auto given = [](const std::optional<std::uint64_t>& bytes) -> Json {
    return bytes ? Json(*bytes) : Json(nullptr);
  };
  return {{"command", "store stat"},
          {"store", store},
          {"num_pages", all.num_pages},
          {"size_bytes", all.size_bytes},
          {"kept_bytes", all.kept_bytes},
          {"capacity_bytes", given(room.capacity_bytes)},
          {"used_bytes", given(room.used_bytes)},
          {"free_bytes", given(room.free_bytes)},
          {"oldest_s", used_json(all.oldest_ns)},
          {"newest_s", used_json(all.newest_ns)},
          {"damaged", found.num_damaged},
          {"foreign", found.num_foreign},
          {"unreadable", found.num_unreadable},
          {"set_aside", {{"num", room.num_set_aside}, {"size_bytes", room.set_aside_bytes}}},
          {"unfinished", {{"num", room.num_unfinished}, {"size_bytes", room.unfinished_bytes}}},
          {"groups", found.pages.json()}};
}

Result<Found> look(StoreReader& reader, bool quiet) {
  Found found;
  Progress progress("pages", !quiet);
  const Status listed = reader.list(
      [&](const KeptPage& page) {
        found.pages.add(page);
        progress.update(reader.progress(), found.pages.total().num_pages);
        return true;
      },
      [&](const OddEntry& entry) {
        ++(entry.kind == OddEntry::Kind::damaged   ? found.num_damaged
           : entry.kind == OddEntry::Kind::foreign ? found.num_foreign
                                                   : found.num_unreadable);
      });
  if (!listed) return listed.error();
  Result<StoreRoom> room = reader.room();
  if (!room) return room.error();
  found.room = *room;
  return found;
}

Status run(const Arguments& a) {
  Result<std::unique_ptr<StoreReader>> reader = open_reader(a.place, StoreAccess::read);
  if (!reader) return reader.error();
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  const Result<Found> found = look(**reader, a.results.quiet);
  if (!found) return found.error();
  return writer->write(to_json(*found, a.place.text), text_of(*found, a.place.text, now_ns()));
}

}  // namespace

Command add_store_stat(CLI::App& store) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* app = store.add_subcommand(
      "stat", "Pages, bytes and ages by model and component; damaged and foreign entries");
  add_store_place(*app, arguments->place);
  add_json_options(*app, arguments->results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
