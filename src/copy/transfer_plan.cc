// SPDX-License-Identifier: Apache-2.0
#include "copy/transfer_plan.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/check.h"

namespace pando {
namespace {

Status check_pair(const PagePairs& pages, std::size_t i, PageState expected,
                  std::string_view call) {
  const std::uint32_t device = index_of(pages.device_pages[i]);
  const std::uint32_t host = index_of(pages.host_pages[i]);
  if (device == 0 || device >= pages.device.num_pages())
    return make_error(ErrorCode::invalid_argument, "{}: device page {} is not in [1, {})", call,
                      device, pages.device.num_pages());
  if (host >= pages.host.num_pages())
    return make_error(ErrorCode::invalid_argument, "{}: host page {} is not in [0, {})", call, host,
                      pages.host.num_pages());
  if (const PageState now = pages.host.state(pages.host_pages[i]); now != expected)
    return make_error(ErrorCode::invalid_argument, "{}: host page {} is {}; expected it {}", call,
                      host, to_string(now), to_string(expected));
  return {};
}

// Marking destinations takes a bit per page of the pool, so few items are sorted instead: a backup
// of one page costs the same in a pool of a million as in one of ten.
std::optional<std::uint64_t> written_twice(const std::vector<CopyItem>& items,
                                           std::size_t page_size, std::size_t num_pages) {
  if (items.size() < num_pages / 64) {
    std::vector<std::uint64_t> pages;
    pages.reserve(items.size());
    for (const CopyItem& item : items) pages.push_back(item.dst / page_size);
    std::sort(pages.begin(), pages.end());
    const auto twice = std::adjacent_find(pages.begin(), pages.end());
    return twice == pages.end() ? std::nullopt : std::optional(*twice);
  }
  std::vector<bool> written(num_pages);
  for (const CopyItem& item : items) {
    const std::uint64_t page = item.dst / page_size;
    if (written[page]) return page;
    written[page] = true;
  }
  return {};
}

}  // namespace

Result<CopyPlan> plan_pages(const PagePairs& pages, Direction direction) {
  const bool backup = direction == Direction::backup;
  const std::string_view call = backup ? "backup" : "load";
  if (pages.device_pages.size() != pages.host_pages.size())
    return make_error(ErrorCode::invalid_argument,
                      "{}: {} device pages and {} host pages; expected as many", call,
                      pages.device_pages.size(), pages.host_pages.size());
  const Geometry& geometry = pages.device.geometry();
  if (!(geometry == pages.host.geometry()))
    return make_error(ErrorCode::invalid_argument,
                      "{}: the device pool has {}; the host pool has {}", call, geometry.describe(),
                      pages.host.geometry().describe());
  const PageState expected = backup ? PageState::writing : PageState::loading;
  CopyPlan plan{.geometry = &geometry,
                .dst = backup ? &pages.host.planes() : &pages.device.planes(),
                .src = backup ? &pages.device.planes() : &pages.host.planes(),
                .tokens = geometry.page_size};
  plan.items.reserve(pages.device_pages.size());
  for (std::size_t i = 0; i < pages.device_pages.size(); ++i) {
    if (Status valid = check_pair(pages, i, expected, call); !valid) return valid.error();
    const std::uint64_t device = index_of(pages.device_pages[i]);
    const std::uint64_t host = index_of(pages.host_pages[i]);
    plan.items.push_back({(backup ? host : device) * geometry.page_size,
                          (backup ? device : host) * geometry.page_size});
  }
  const std::size_t num_pages = backup ? pages.host.num_pages() : pages.device.num_pages();
  if (const auto page = written_twice(plan.items, geometry.page_size, num_pages))
    return make_error(ErrorCode::invalid_argument, "{}: {} page {} is written twice; expected once",
                      call, backup ? "host" : "device", *page);
  return plan;
}

Result<CopyPlan> plan_move(KvPool& pool, std::span<const SlotId> dst, std::span<const SlotId> src) {
  if (dst.size() != src.size())
    return make_error(ErrorCode::invalid_argument, "move: {} slots to {} slots; expected as many",
                      src.size(), dst.size());
  const Geometry& geometry = pool.geometry();
  const auto end = static_cast<std::int64_t>(pool.num_pages() * geometry.page_size);
  const auto first = static_cast<std::int64_t>(geometry.page_size);
  CopyPlan plan{.geometry = &geometry, .dst = &pool.planes(), .src = &pool.planes(), .tokens = 1};
  plan.items.reserve(dst.size());
  std::vector<bool> written(static_cast<std::size_t>(end));
  for (std::size_t i = 0; i < dst.size(); ++i) {
    const std::int64_t to = index_of(dst[i]);
    const std::int64_t from = index_of(src[i]);
    if (to < first || to >= end || from < 0 || from >= end)
      return make_error(ErrorCode::invalid_argument,
                        "move: slot {} to slot {}; expected [0, {}) to [{}, {})", from, to, end,
                        first, end);
    if (written[static_cast<std::size_t>(to)])
      return make_error(ErrorCode::invalid_argument,
                        "move: slot {} is written twice; expected once", to);
    written[static_cast<std::size_t>(to)] = true;
    plan.items.push_back({static_cast<std::uint64_t>(to), static_cast<std::uint64_t>(from)});
  }
  for (const CopyItem& item : plan.items)
    if (written[item.src])
      return make_error(ErrorCode::invalid_argument,
                        "move: slot {} is both read and written; KvPool::move can do that",
                        item.src);
  return plan;
}

void sort_items(std::vector<CopyItem>& items, CopyEnd end) {
  constexpr unsigned kDigitBits = 11;
  const auto slot = [&](const CopyItem& item) { return end == CopyEnd::dst ? item.dst : item.src; };
  std::uint64_t largest = 0;
  bool in_order = true;
  for (const CopyItem& item : items) {
    in_order = in_order && slot(item) >= largest;
    largest = std::max(largest, slot(item));
  }
  if (in_order) return;
  std::vector<CopyItem> other(items.size());
  for (unsigned shift = 0; (largest >> shift) > 0; shift += kDigitBits) {
    std::array<std::size_t, (1u << kDigitBits) + 1> starts = {};
    const auto digit = [&](const CopyItem& item) {
      return slot(item) >> shift & ((1u << kDigitBits) - 1);
    };
    for (const CopyItem& item : items) ++starts[digit(item) + 1];
    std::partial_sum(starts.begin(), starts.end(), starts.begin());
    for (const CopyItem& item : items) other[starts[digit(item)]++] = item;
    items.swap(other);
  }
}

Status check_stream(std::size_t stream, std::size_t num_streams) {
  if (stream < num_streams) return {};
  return make_error(ErrorCode::invalid_argument, "copier: no stream {}; it has {}", stream,
                    num_streams);
}

}  // namespace pando
