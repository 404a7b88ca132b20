// SPDX-License-Identifier: Apache-2.0
// Allocation of segments: one block for header, pages and tokens.
#include "index/segment.h"

#include <new>

namespace pando {

std::size_t SegmentStore::names_offset(std::uint32_t num_pages) const {
  const std::size_t end =
      Segment::tokens_offset(page_numbers(num_pages)) + num_tokens(num_pages) * sizeof(Token);
  return (end + 7) / 8 * 8;
}

std::size_t SegmentStore::block_bytes(std::uint32_t num_pages) const {
  if (named_) return names_offset(num_pages) + num_pages * sizeof(std::uint64_t);
  return Segment::tokens_offset(page_numbers(num_pages)) + num_tokens(num_pages) * sizeof(Token);
}

Segment* SegmentStore::create(std::uint32_t num_pages, bool with_hashes) {
  auto* segment = new (pool_.alloc(block_bytes(num_pages))) Segment;
  segment->refs = 1;
  segment->num_pages = num_pages;
  segment->live_pages = num_pages;
  segment->page_numbers = page_numbers(num_pages);
  if (with_hashes) add_hashes(segment);
  return segment;
}

void SegmentStore::add_hashes(Segment* segment) {
  if (segment->hashes) return;
  segment->hashes = std::make_unique_for_overwrite<PageHash[]>(segment->num_pages);
  extra_bytes_ += segment->num_pages * sizeof(PageHash);
}

void SegmentStore::add_host(Segment* segment) {
  if (segment->host) return;
  const std::size_t entries = host_entries(segment->num_pages);
  segment->host = std::make_unique_for_overwrite<std::uint32_t[]>(entries);
  extra_bytes_ += entries * sizeof(std::uint32_t);
}

void SegmentStore::release(Segment* segment) {
  if (--segment->refs != 0) return;
  const std::size_t size_bytes = block_bytes(segment->num_pages);
  if (segment->hashes) extra_bytes_ -= segment->num_pages * sizeof(PageHash);
  if (segment->host) extra_bytes_ -= host_entries(segment->num_pages) * sizeof(std::uint32_t);
  segment->~Segment();
  pool_.free(segment, size_bytes);
}

}  // namespace pando
