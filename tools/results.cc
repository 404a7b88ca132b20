// SPDX-License-Identifier: Apache-2.0
// Writes everything, then puts everything in its place.
#include "tools/results.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tools/html_report.h"

namespace pando::tools {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Result<ResultWriter> ResultWriter::open(const ResultArguments& arguments) {
  ResultWriter writer(arguments);
  for (const auto& [path, file] :
       {std::pair{&arguments.json, &writer.json_}, {&arguments.report, &writer.report_}}) {
    if (path->empty()) continue;
    Result<OutputFile> opened = OutputFile::create(*path);
    if (!opened) return opened.error();
    file->emplace(std::move(*opened));
  }
  return writer;
}

Status ResultWriter::write(nlohmann::ordered_json results, std::string_view table) {
  results["version"] = PANDO_VERSION;
  if (json_) {
    if (Status s = json_->write(results.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
        !s)
      return s;
  }
  if (report_) {
    const std::string title = fmt::format("pando {}", results.value("command", ""));
    if (Status s = report_->write(
            html_report(results.dump(-1, ' ', false, Json::error_handler_t::replace), title));
        !s)
      return s;
  }
  for (std::optional<OutputFile>* file : {&json_, &report_}) {
    if (!*file) continue;
    if (Status s = (*file)->commit(); !s) return s;
  }
  if (arguments_.quiet || arguments_.json == "-") return {};
  Result<OutputFile> out = OutputFile::create("-");
  if (Status s = out->write(table); !s) return s;
  return out->commit();
}

}  // namespace pando::tools
