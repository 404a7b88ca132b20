// SPDX-License-Identifier: Apache-2.0
// The storage behind edges: a counted block with the tokens of some pages, the device page that
// holds each, and, when wanted, each page's hash, name and host pages. A split gives both halves a
// slice of one block: nothing is copied. Edges is the only caller.
//
// Invariant: the nodes that share a segment are a chain of parent and child, and their slices cover
// its first `live_pages` pages. Only tails are ever dropped, so what is dead is at the end; once
// that is more than half, the chain moves to a block of its size (Edges::shrink_segment), and
// what is in use stays within twice what is cached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/line_pool.h"
#include "pando/events.h"
#include "pando/types.h"

namespace pando {

/// Header of the block. Behind it: pages [num_pages], tokens [num_pages * page_size + overlap]; so
/// that evicting a short segment reads one cache line of it. Of an index that does not number its
/// pages, the tokens alone. Of one that names them, the names at the end.
struct Segment {
  std::uint32_t refs = 0;
  std::uint32_t num_pages = 0;     // room
  std::uint32_t live_pages = 0;    // covered by nodes
  std::uint32_t page_numbers = 0;  // room for them: num_pages, or none
  std::unique_ptr<PageHash[]> hashes;
  std::unique_ptr<std::uint32_t[]> host;  // [num_pages]; with a window component, twice that

  std::uint32_t* pages() { return reinterpret_cast<std::uint32_t*>(this + 1); }
  Token* tokens() {
    return reinterpret_cast<Token*>(reinterpret_cast<std::byte*>(this) +
                                    tokens_offset(page_numbers));
  }
  /// Tokens begin on a cache line: comparing them is most of a walk.
  static std::size_t tokens_offset(std::uint32_t page_numbers) {
    return (sizeof(Segment) + page_numbers * sizeof(std::uint32_t) + kCacheLine - 1) / kCacheLine *
           kCacheLine;
  }
};

/// Makes and frees segments for one page shape, and counts their bytes.
class SegmentStore {
 public:
  /// `overlap` is 1 for bigram keys: a page of n units reads n + 1 tokens.
  /// `host_sides` is 2 with a window component: a host page of each side per page.
  /// Not `numbered`: pages have no numbers. `named`: they have names of 64 bits.
  SegmentStore(std::size_t page_size, std::size_t overlap, std::size_t host_sides, bool numbered,
               bool named)
      : page_size_(page_size),
        overlap_(overlap),
        host_sides_(host_sides),
        numbered_(numbered),
        named_(named) {}

  /// With one reference, all pages live, contents not yet written.
  Segment* create(std::uint32_t num_pages, bool with_hashes);
  void release(Segment* segment);  // frees at the last reference
  /// Makes room for what the segment does not have yet.
  void add_hashes(Segment* segment);
  void add_host(Segment* segment);
  std::size_t host_entries(std::uint32_t num_pages) const { return num_pages * host_sides_; }

  /// Of a store that has them.
  std::uint64_t* names(Segment* segment) const {
    return reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::byte*>(segment) +
                                            names_offset(segment->num_pages));
  }

  std::size_t num_tokens(std::uint32_t num_pages) const {
    return num_pages * page_size_ + overlap_;
  }
  std::size_t memory_bytes() const { return pool_.memory_bytes() + extra_bytes_; }

 private:
  std::uint32_t page_numbers(std::uint32_t num_pages) const { return numbered_ ? num_pages : 0; }
  std::size_t names_offset(std::uint32_t num_pages) const;
  std::size_t block_bytes(std::uint32_t num_pages) const;

  std::size_t page_size_;
  std::size_t overlap_;
  std::size_t host_sides_;
  bool numbered_;
  bool named_;
  std::size_t extra_bytes_ = 0;  // of hashes and host pages
  LinePool pool_;
};

}  // namespace pando
