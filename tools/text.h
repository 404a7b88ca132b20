// SPDX-License-Identifier: Apache-2.0
// Figures as people read them: thousands apart, a unit that suits, columns that line up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pando::tools {

/// 1234567 as "1,234,567", whatever the locale.
std::string grouped(std::uint64_t number);
/// Three digits and the unit that suits them, from ns to s.
std::string duration(double ns);
/// Of a share from 0 to 1.
std::string percent(double share);
/// As "1.5 GiB".
std::string size_text(double bytes);
/// Not fmt::join: gcc 12 warns inside fmt 9 about it when it optimizes.
std::string joined(const std::vector<std::string>& parts, std::string_view separator);

/// Rows of cells under a header; the first column is left-aligned, the others right-aligned.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace pando::tools
