// SPDX-License-Identifier: Apache-2.0
// Copies between device and host; see the header.
#include "tiers/page_copy.h"

#include <algorithm>

namespace pando {

void PageCopy::clear() {
  for (std::size_t c = 0; c < of.size(); ++c) {
    of[c].device.clear();
    of[c].host.clear();
  }
  extents.clear();
  claim = {};
  num_tokens = 0;
  transfers.clear();
  broken = false;
}

void PageCopy::start_backup(Copier& copier, std::span<const TierPools> pools, std::size_t stream) {
  broken = claim.refused;
  for_each([&](std::size_t c, const Pages& pages) {
    pools[c].host->protect_write(pages.host);
    if (broken) return;
    Result<Transfer> transfer =
        copier.backup({*pools[c].device, *pools[c].host, pages.device, pages.host}, stream);
    if (transfer.ok()) {
      transfers.push_back(*transfer);
    } else {
      broken = true;
    }
  });
}

Status PageCopy::start_load(Copier& copier, std::span<const TierPools> pools, std::size_t stream,
                            LoadOrder order) {
  Status status;
  for_each([&](std::size_t c, const Pages& pages) {
    if (!status.ok()) return;
    Result<Transfer> transfer =
        copier.load({*pools[c].device, *pools[c].host, pages.device, pages.host}, stream, order);
    if (transfer.ok()) {
      transfers.push_back(*transfer);
    } else {
      status = transfer.error();
    }
  });
  if (!status.ok()) stop();
  return status;
}

void PageCopy::stop() {
  for (Transfer& transfer : transfers) {
    if (!transfer.cancel()) (void)transfer.wait();
  }
  transfers.clear();
}

bool PageCopy::finished() const {
  return std::all_of(transfers.begin(), transfers.end(),
                     [](const Transfer& t) { return t.finished(); });
}

bool PageCopy::wait() const {
  bool all = !broken;
  for (const Transfer& transfer : transfers) all = transfer.wait().ok() && all;
  return all;
}

std::int64_t PageCopy::progress() const {
  if (!finished()) return kUnderWay;
  return wait() ? kDone : kFailed;
}

std::unique_ptr<PageCopy> CopyQueue::make() {
  if (spare_.empty()) {
    auto copy = std::make_unique<PageCopy>();
    copy->of.resize(num_components_);
    return copy;
  }
  std::unique_ptr<PageCopy> copy = std::move(spare_.back());
  spare_.pop_back();
  return copy;
}

void CopyQueue::report(std::vector<std::int64_t>& values) const {
  report_in_order(under_way_, values, [](const auto& copy) { return copy->progress(); });
}

}  // namespace pando
