// SPDX-License-Identifier: Apache-2.0
// The free blocks in the order in which they will be taken: a doubly linked list over a flat array,
// so that a block leaves from anywhere in O(1) and nothing is ever allocated. Block 0 is never in
// it: its links are the two ends of the list.
//
// Invariant: the links of a queued block name its neighbours; those of another are kOut. What
// breaks it (a block queued twice, one removed that is not there) stops at a check that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "pando/types.h"

namespace pando {

class FreeQueue {
 public:
  enum class Start { all, none };
  /// Of blocks [1, num_blocks), in that order if all start in it.
  FreeQueue(std::size_t num_blocks, Start start) : links_(num_blocks) {
    links_[0] = {0, 0};
    if (start == Start::none) return;
    for (std::uint32_t i = 1; i < num_blocks; ++i) link_before(0, i);
    size_ = num_blocks - 1;
  }

  std::size_t size() const { return size_; }
  bool has(PageId block) const { return links_[index_of(block)].next != kOut; }
  /// The next to be taken; only where there is one.
  PageId front() const {
    PANDO_CHECK(size_ > 0, "the free queue is empty");
    return PageId{links_[0].next};
  }

  PageId pop_front() {
    const PageId block = front();
    remove(block);
    return block;
  }

  /// Takes out.size() blocks from the front, which must be there.
  void pop_front(std::span<PageId> out) {
    PANDO_CHECK(out.size() <= size_, "{} blocks wanted of a free queue of {}", out.size(), size_);
    std::uint32_t at = links_[0].next;
    for (PageId& block : out) {
      block = PageId{at};
      const std::uint32_t next = links_[at].next;
      links_[at] = {kOut, kOut};
      at = next;
    }
    join(0, at);
    size_ -= out.size();
  }

  void remove(PageId block) {
    const std::uint32_t i = checked(block);
    PANDO_CHECK(links_[i].next != kOut, "block {} is not in the free queue", i);
    join(links_[i].prev, links_[i].next);
    links_[i] = {kOut, kOut};
    --size_;
  }

  void append(PageId block) { append(std::span(&block, 1)); }
  /// In the order given, behind all others.
  void append(std::span<const PageId> blocks) { insert_before(0, blocks); }
  /// In the order given, before all others.
  void prepend(std::span<const PageId> blocks) { insert_before(links_[0].next, blocks); }

  /// All of them, the next to be taken first. O(queue).
  std::vector<PageId> list() const {
    std::vector<PageId> out;
    for (std::uint32_t i = links_[0].next; i != 0; i = links_[i].next) out.push_back(PageId{i});
    return out;
  }

  /// O(blocks).
  Status check() const {
    std::size_t seen = 0;
    for (std::uint32_t i = links_[0].next; i != 0; i = links_[i].next, ++seen) {
      if (i >= links_.size() || seen > size_ || links_[links_[i].prev].next != i)
        return make_error(ErrorCode::corrupt, "free queue: broken at block {}", i);
    }
    std::size_t linked = 0;
    for (std::size_t i = 1; i < links_.size(); ++i) linked += links_[i].next != kOut ? 1 : 0;
    if (seen != size_ || linked != size_)
      return make_error(ErrorCode::corrupt, "free queue: {} blocks counted, {} in order, {} linked",
                        size_, seen, linked);
    return {};
  }
  std::size_t memory_bytes() const { return links_.capacity() * sizeof(Link); }

 private:
  static constexpr std::uint32_t kOut = UINT32_MAX;
  struct Link {
    std::uint32_t prev = kOut;
    std::uint32_t next = kOut;
  };

  std::uint32_t checked(PageId block) const {
    const std::uint32_t i = index_of(block);
    PANDO_CHECK(i > 0 && i < links_.size(), "block {} of a free queue over [1, {})", i,
                links_.size());
    return i;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    links_[a].next = b;
    links_[b].prev = a;
  }
  void link_before(std::uint32_t at, std::uint32_t i) {
    join(links_[at].prev, i);
    join(i, at);
  }
  void insert_before(std::uint32_t at, std::span<const PageId> blocks) {
    for (const PageId block : blocks) {
      const std::uint32_t i = checked(block);
      PANDO_CHECK(links_[i].next == kOut, "block {} is in the free queue already", i);
      link_before(at, i);
    }
    size_ += blocks.size();
  }

  std::vector<Link> links_;
  std::size_t size_ = 0;
};

}  // namespace pando
