// SPDX-License-Identifier: Apache-2.0
// That nothing in title or results can leave its place in the page. How the page looks and works is
// tested in a browser, by run.py.
#include "tools/html_report.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace pando::tools {
namespace {

/// What stands between the first `from` and the next `to` behind it.
std::string between(const std::string& page, std::string_view from, std::string_view to) {
  const std::size_t begin = page.find(from);
  if (begin == std::string::npos) return "no " + std::string(from);
  const std::size_t end = page.find(to, begin + from.size());
  return page.substr(begin + from.size(), end - begin - from.size());
}

std::string results_of(const std::string& page) {
  return between(page, R"(<script type="application/json" id="results">)", "</script>");
}

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(HtmlReport, PutsResultsAndTitleIntoThePage) {
  const std::string page = html_report(R"({"command": "replay"})", "Mooncake, 64 GiB");
  EXPECT_EQ(results_of(page), R"({"command": "replay"})");
  EXPECT_EQ(between(page, "<title>", "</title>"), "Mooncake, 64 GiB");
  EXPECT_EQ(between(page, "<h1>", "</h1>"), "Mooncake, 64 GiB");
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

TEST(HtmlReport, StringsOfResultsCannotEndTheirElement) {
  const std::string page = html_report(
      R"({"a": "</script><script>x()</script>", "b": "<!-- <script", "c": "1 < 2 > 0"})", "t");
  EXPECT_EQ(
      results_of(page),
      R"({"a": "\u003c/script>\u003cscript>x()\u003c/script>", "b": "\u003c!-- \u003cscript", )"
      R"("c": "1 \u003c 2 > 0"})");
  EXPECT_EQ(count(page, "</script>"), 2u);  // of the results, and of the page's own
}

TEST(HtmlReport, TitleIsText) {
  const std::string page = html_report("{}", R"--(</title><img src=x onerror="x()"> & 'more')--");
  EXPECT_EQ(between(page, "<title>", "</title>"),
            "&lt;/title&gt;&lt;img src=x onerror=&quot;x()&quot;&gt; &amp; &#39;more&#39;");
  EXPECT_EQ(count(page, "<img"), 0u);
}

TEST(HtmlReport, PlaceholdersInWhatIsPutInStayAsTheyAre) {
  const std::string page = html_report(R"({"a": "{{title}}"})", "{{results}} {{title}}");
  EXPECT_EQ(between(page, "<h1>", "</h1>"), "{{results}} {{title}}");
  EXPECT_EQ(results_of(page), R"({"a": "{{title}}"})");
}

TEST(HtmlReport, ThePageHasNoPlaceholderLeftAndNamesNoOtherHost) {
  const std::string page = html_report("{}", "t");
  for (const std::string_view name :
       {"title", "results", "style", "script", "style_hash", "script_hash"})
    EXPECT_EQ(count(page, "{{" + std::string(name) + "}}"), 0u) << name;
  EXPECT_EQ(count(page, "://"), 1u);  // the name of SVG, which nobody fetches
  EXPECT_EQ(count(page, "http://www.w3.org/2000/svg"), 1u);
  EXPECT_EQ(count(page, "'sha256-"), 2u);
  EXPECT_EQ(between(page, "script-src 'sha256-", "'").size(), 44u);
}

TEST(HtmlReport, EmptyArgumentsGiveAPage) {
  const std::string page = html_report("", "");
  EXPECT_EQ(results_of(page), "");
  EXPECT_EQ(between(page, "<h1>", "</h1>"), "");
}

}  // namespace
}  // namespace pando::tools
