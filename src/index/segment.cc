// SPDX-License-Identifier: Apache-2.0
// Allocation of segments: one block for header, pages and tokens.
#include "index/segment.h"

#include <new>

namespace pando {

std::size_t SegmentStore::block_bytes(std::uint32_t num_pages) const {
  return Segment::tokens_offset(num_pages) + num_tokens(num_pages) * sizeof(Token);
}

Segment* SegmentStore::create(std::uint32_t num_pages, bool with_hashes) {
  auto* segment = new (pool_.alloc(block_bytes(num_pages))) Segment;
  segment->refs = 1;
  segment->num_pages = num_pages;
  segment->live_pages = num_pages;
  if (with_hashes) {
    segment->hashes = std::make_unique_for_overwrite<PageHash[]>(num_pages);
    hash_bytes_ += num_pages * sizeof(PageHash);
  }
  return segment;
}

void SegmentStore::release(Segment* segment) {
  if (--segment->refs != 0) return;
  const std::size_t size_bytes = block_bytes(segment->num_pages);
  if (segment->hashes) hash_bytes_ -= segment->num_pages * sizeof(PageHash);
  segment->~Segment();
  pool_.free(segment, size_bytes);
}

}  // namespace pando
