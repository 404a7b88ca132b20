// SPDX-License-Identifier: Apache-2.0
// Results as one HTML page that needs nothing else: no network, no files beside it. The commands
// give it the JSON that they would print; the page's script (tools/report/) draws what it finds in
// there.
#pragma once

#include <string>
#include <string_view>

namespace pando::tools {

/// The page for `results_json`, which should be one JSON value; if it is none, the page says so.
/// Nothing in either argument can end its element or run: both are escaped.
std::string html_report(std::string_view results_json, std::string_view title);

/// The page with {{title}} and {{results}} where those go. Made by tools/report/embed.cmake.
extern const std::string_view kReportPage;

}  // namespace pando::tools
