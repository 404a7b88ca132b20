// SPDX-License-Identifier: Apache-2.0
// What the verbs of `pando store` say about pages: which of them are meant, how they add up by
// model and component, how old they are, and how a place is written for a terminal.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "pando/key_space.h"
#include "pando/result.h"
#include "store/store_reader.h"

namespace pando::tools {

std::string_view component_name(ComponentKind component);
/// "0/4" for rank 0 of 4, "-" for none.
std::string rank_text(const std::optional<RankOf>& rank);
/// What stands for every byte that a terminal might take as more than a letter.
std::string printable(std::string_view text);

std::int64_t now_ns();
/// "3.5 h", "-" if it is not known.
std::string age_text(const std::optional<std::int64_t>& used_ns, std::int64_t now);
/// 90s, 30m, 12h, 7d, 2w; in nanoseconds.
Result<std::int64_t> parse_age(const std::string& text);
Result<std::uint64_t> parse_size(const std::string& text);

/// --prefix and --model.
struct PageFilter {
  std::string prefix;
  std::string model;

  bool takes(std::string_view key) const;
};
void add_page_filter(CLI::App& app, PageFilter& filter);

/// Pages of one model, rank, component and geometry; all that no KeySpace named are one more.
class PageGroups {
 public:
  void add(const KeptPage& page);

  struct Total {
    std::uint64_t num_pages = 0, size_bytes = 0, kept_bytes = 0;
    std::optional<std::int64_t> oldest_ns = {}, newest_ns = {};

    void add(const KeptPage& page);
  };
  const Total& total() const { return total_; }
  nlohmann::ordered_json json() const;
  std::string table(std::int64_t now) const;

 private:
  // model, tp, pp, component, fingerprint; as texts. Nothing: not a key of a KeySpace.
  using Name = std::tuple<std::string, std::string, std::string, std::string, std::string>;

  Total total_;
  std::map<Name, Total> groups_;
};

/// `used_s`, seconds since 1970, or null.
nlohmann::ordered_json used_json(const std::optional<std::int64_t>& used_ns);
nlohmann::ordered_json odd_json(const OddEntry& entry);

/// All pages that the filter takes, least recently used first; `num_odd` counts what is none.
struct Collected {
  std::vector<KeptPage> pages;
  std::uint64_t num_odd = 0;
  std::uint64_t all_kept_bytes = 0;  ///< of those that it does not take, too
};
Result<Collected> collect_pages(StoreReader& reader, const PageFilter& filter, bool quiet);

}  // namespace pando::tools
