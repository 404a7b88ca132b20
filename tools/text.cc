// SPDX-License-Identifier: Apache-2.0
// Plain formatting.
#include "tools/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace pando::tools {

std::string grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string duration(double ns) {
  for (const std::string_view unit : {"ns", "us", "ms"}) {
    if (ns < 9.995) return fmt::format("{:.2f} {}", ns, unit);
    if (ns < 99.95) return fmt::format("{:.1f} {}", ns, unit);
    if (ns < 999.5) return fmt::format("{:.0f} {}", ns, unit);
    ns /= 1000;
  }
  return fmt::format("{:.2f} s", ns);
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

std::string size_text(double bytes) {
  for (const std::string_view unit : {"B", "KiB", "MiB", "GiB"}) {
    if (bytes < 1000)
      return fmt::format("{:.{}f} {}", bytes,
                         bytes < 10 && unit != "B"    ? 2
                         : bytes < 100 && unit != "B" ? 1
                                                      : 0,
                         unit);
    bytes /= 1024;
  }
  return fmt::format("{:.2f} TiB", bytes);
}

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

std::string TextTable::text() const {
  std::vector<std::size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line;
    text += '\n';
  }
  return text;
}

}  // namespace pando::tools
