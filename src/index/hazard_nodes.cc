// SPDX-License-Identifier: Apache-2.0
// Nodes in the eyes of the hazard policy.
#include "index/hazard_nodes.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pando {
namespace {

constexpr std::size_t kBlockTokens = 64;

}  // namespace

HazardNodes::HazardNodes(std::size_t capacity_pages, std::size_t page_size)
    : pages_per_block_(std::max<std::size_t>(1, kBlockTokens / page_size)),
      history_(BlockHistory::limit_for(capacity_pages / pages_per_block_)) {}

// ---- Names -------------------------------------------------------------------------------------

std::uint64_t HazardNodes::name_namespace(std::string_view ns) {
  return XXH3_64bits(ns.data(), ns.size());
}

void HazardNodes::name_pages(std::uint64_t parent, const Token* tokens, std::size_t n,
                             std::size_t page_size, std::size_t overlap, std::uint64_t* ids) {
  for (std::size_t i = 0; i < n; ++i) {
    parent =
        XXH3_64bits_withSeed(tokens + i * page_size, (page_size + overlap) * sizeof(Token), parent);
    ids[i] = parent;
  }
}

// ---- Coming and going --------------------------------------------------------------------------

// Pages behind the last block's end belong to what is before them.
std::uint32_t HazardNodes::num_alike(const Node& node, std::span<const std::uint64_t> ids,
                                     bool continues) const {
  std::optional<std::uint32_t> hits;
  std::uint32_t alike = 0;
  for (std::uint32_t p = 0; continues && p < ids.size(); ++p) {
    if (!ends_block(node.begin_pages() + p)) continue;
    const std::optional<std::uint32_t> here = history_.find(ids[p]);
    if (alike > 0 && here != hits) return alike;
    if (!here) break;
    hits = here;
    alike = p + 1;
  }
  return static_cast<std::uint32_t>(ids.size());
}

void HazardNodes::add(NodeIndex i, const Node& node, std::span<const std::uint64_t> ids,
                      bool continues) {
  Record& record = records_[i];
  record = {.key = HazardIndex::pack(index_.learner.now(), 0), .fresh = !continues};
  bool any = false;
  for (std::uint32_t p = 0; p < ids.size(); ++p) {
    if (!ends_block(node.begin_pages() + p)) continue;
    const std::optional<std::uint32_t> hits = history_.take(ids[p]);
    record.fresh = record.fresh || !hits;
    if (!any && !record.fresh) record.hits = *hits;
    any = true;
  }
}

void HazardNodes::add_known(NodeIndex i, std::span<const std::uint64_t> ids) {
  records_[i] = {.key = HazardIndex::pack(index_.learner.now(), 0)};
  for (const std::uint64_t id : ids) {
    if (const auto hits = history_.take(id)) records_[i].hits = *hits;
  }
}

void HazardNodes::split(NodeIndex upper, NodeIndex lower) {
  records_[upper] = records_[lower];
  records_[upper].key &= ~HazardIndex::Key{kLastBlock};
}

void HazardNodes::remove(NodeIndex i, const Node& node, std::uint32_t keep,
                         std::span<const std::uint64_t> ids) {
  Record& record = records_[i];
  for (std::uint32_t p = keep; p < ids.size(); ++p) {
    if (ends_block(node.begin_pages() + p)) history_.add(ids[p], record.hits);
  }
  record.key &= ~HazardIndex::Key{kLastBlock};
}

// ---- Requests ----------------------------------------------------------------------------------

void HazardNodes::begin(std::size_t num_pages, std::size_t seen, bool finished) {
  num_pages_ = num_pages;
  new_blocks_ = (num_pages - seen) / pages_per_block_;
  finished_ = finished;
  if (!finished) return;
  odd_pages_ += num_pages;
  index_.learner.begin_request(odd_pages_ / pages_per_block_);
  odd_pages_ %= pages_per_block_;
}

void HazardNodes::visit(NodeIndex i, const Node& node, std::span<const std::uint64_t> ids) {
  Record& record = records_[i];
  if (finished_ && !record.fresh)
    record.hits = std::min<std::uint32_t>(record.hits + 1, UINT16_MAX);
  const ReuseHazard::Class cls = ReuseHazard::class_of(new_blocks_, record.hits, false);
  const auto last_cls = static_cast<ReuseHazard::Class>(cls | kLastBlock);
  const bool is_end = node.end_pages == num_pages_;
  if (finished_ || record.fresh)
    record.key = HazardIndex::pack(index_.learner.now(), is_end ? last_cls : cls);
  if (!finished_) return;
  for (std::uint32_t p = 0; p < ids.size(); ++p) {
    const std::size_t page = node.begin_pages() + p;
    if (!ends_block(page)) continue;
    const bool is_last = page + pages_per_block_ >= num_pages_;
    index_.learner.access(ids[p], page / pages_per_block_, is_last ? last_cls : cls);
  }
  record.fresh = false;
}

std::size_t HazardNodes::memory_bytes() const {
  return records_.memory_bytes() + index_.learner.memory_bytes() + history_.memory_bytes();
}

}  // namespace pando
