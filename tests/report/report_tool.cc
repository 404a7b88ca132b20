// SPDX-License-Identifier: Apache-2.0
// Makes a report from results that are in a file, for tests of the page and for a look at it:
//   report_tool RESULTS.json PAGE.html TITLE
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "tools/html_report.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: report_tool RESULTS.json PAGE.html TITLE\n");
    return 2;
  }
  std::ifstream in(argv[1], std::ios::binary);
  const std::string json{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::ofstream out(argv[2], std::ios::binary);
  out << pando::tools::html_report(json, argv[3]);
  out.close();
  if (in && out) return 0;
  std::fprintf(stderr, "report_tool: cannot read %s or write %s\n", argv[1], argv[2]);
  return 1;
}
