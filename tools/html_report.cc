// SPDX-License-Identifier: Apache-2.0
// Puts title and results into the page. One pass over the page, never over what was put in, so that
// a title that looks like a placeholder stays a title.
#include "tools/html_report.h"

#include <cstddef>

namespace pando::tools {
namespace {

/// Text as the content of an element.
void append_text(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
}

/// JSON as the content of a script element. Only `</script` and `<!--` mean something there. In
/// JSON a `<` is always inside a string, where it may be written by its number.
void append_json(std::string& out, std::string_view json) {
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
}

}  // namespace

std::string html_report(std::string_view results_json, std::string_view title) {
  constexpr std::string_view kTitle = "{{title}}";
  constexpr std::string_view kResults = "{{results}}";
  std::string out;
  out.reserve(kReportPage.size() + results_json.size() + 2 * title.size());
  std::string_view rest = kReportPage;
  while (true) {
    const std::size_t at = rest.find("{{");
    out += rest.substr(0, at);
    if (at == std::string_view::npos) return out;
    rest.remove_prefix(at);
    if (rest.starts_with(kTitle)) {
      append_text(out, title);
      rest.remove_prefix(kTitle.size());
    } else if (rest.starts_with(kResults)) {
      append_json(out, results_json);
      rest.remove_prefix(kResults.size());
    } else {  // braces of the page's own
      out += rest.substr(0, 2);
      rest.remove_prefix(2);
    }
  }
}

}  // namespace pando::tools
