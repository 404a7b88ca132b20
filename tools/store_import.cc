// SPDX-License-Identifier: Apache-2.0
// `pando store import`: the raw page files of SGLang's file store into a store of Pando. What a
// page holds is on the command line, because such files do not say it.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "pando/store_import.h"
#include "tools/geometry_option.h"
#include "tools/options.h"
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
  std::string from;
  PageShape shape;
  std::string capacity;
  ResultArguments results;
};

std::string text_of(const ImportReport& report, std::uint64_t evicted, std::size_t page_bytes) {
  std::string text = fmt::format(
      "{} pages imported, {} each\n{} files of another model or rank\n{} files refused\n"
      "{} pages failed\n",
      grouped(report.imported_pages), size_text(static_cast<double>(page_bytes)),
      grouped(report.skipped_files), grouped(report.refused_files), grouped(report.failed_pages));
  if (evicted > 0) text += fmt::format("{} pages had to go for them\n", grouped(evicted));
  if (!report.first_problem.empty())
    text += fmt::format("the first problem: {}\n", printable(report.first_problem));
  return text;
}

Status run(const Arguments& a) {
  const Result<ResolvedShape> shape = resolve(a.shape);
  if (!shape) return shape.error();
  std::optional<std::uint64_t> capacity_bytes;
  if (!a.capacity.empty()) {
    const Result<std::uint64_t> size = parse_size(a.capacity);
    if (!size) return size.error();
    capacity_bytes = *size;
  }
  if (std::error_code error; !std::filesystem::is_directory(a.from, error))
    return make_error(ErrorCode::not_found, "there is no directory {} to import from", a.from);
  Result<ResultWriter> writer = ResultWriter::open(a.results);
  if (!writer) return writer.error();
  Result<std::unique_ptr<StoreBackend>> store = open_backend(a.place, capacity_bytes);
  if (!store) return store.error();
  const KeySpace space(shape->scope, shape->geometry, shape->layout, ComponentKind::full);
  const std::size_t page_bytes = shape->geometry.page_bytes();
  const Result<ImportReport> report = import_sglang_pages(a.from, space, page_bytes, **store);
  if (!report) return report.error();
  const std::uint64_t evicted = (*store)->stats().evicted_pages;
  Json json{{"command", "store import"},
            {"store", a.place.text},
            {"from", a.from},
            {"geometry", shape->geometry.describe()},
            {"page_bytes", page_bytes},
            {"imported_pages", report->imported_pages},
            {"skipped_files", report->skipped_files},
            {"refused_files", report->refused_files},
            {"failed_pages", report->failed_pages},
            {"evicted_pages", evicted},
            {"first_problem", report->first_problem}};
  if (Status s = writer->write(std::move(json), text_of(*report, evicted, page_bytes)); !s)
    return s;
  if (report->failed_pages > 0)
    return make_error(ErrorCode::io_error, "{} pages failed: {}", report->failed_pages,
                      printable(report->first_problem));
  if (report->imported_pages == 0)
    return make_error(ErrorCode::not_found, "{} has no pages named *{}.bin of {} bytes", a.from,
                      space.sglang_name({}).substr(64), page_bytes);
  return {};
}

}  // namespace

Command add_store_import(CLI::App& store) {
  const auto arguments = std::make_shared<Arguments>();
  Arguments& a = *arguments;
  CLI::App* app =
      store.add_subcommand("import", "Put the raw page files of SGLang's file store into a store");
  add_store_place(*app, a.place);
  app->add_option("DIRECTORY", a.from, "Where the raw files are; they stay")
      ->required()
      ->type_name("");
  add_page_shape(*app, a.shape);
  app->add_option("--capacity", a.capacity, "file: old pages go beyond this (default: no limit)")
      ->type_name("SIZE");
  add_json_options(*app, a.results);
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace pando::tools
