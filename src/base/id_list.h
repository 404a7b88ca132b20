// SPDX-License-Identifier: Apache-2.0
// Some of the ids [1, num_ids) in an order: a doubly linked list over a flat array, so that an id
// enters at either end and leaves from anywhere in O(1), and nothing is allocated after
// construction. Free blocks wait in one, the next to be taken first; pages and slots that nobody
// uses in others, the least recently used first. Id 0 is never in it: its links are the two ends.
//
// Invariant: the links of an id in the list name its neighbours; those of another are kOut. What
// breaks it (an id added twice, one removed that is not there) stops at a check that names it.
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace pando {

template <typename Id>
class IdList {
 public:
  enum class Start { all, none };
  /// In order of number, if all start in it.
  IdList(std::size_t num_ids, Start start) : links_(num_ids) {
    links_[0] = {0, 0};
    if (start == Start::none) return;
    for (std::uint32_t i = 1; i < num_ids; ++i) link_before(0, i);
    size_ = num_ids - 1;
  }

  std::size_t size() const { return size_; }
  bool has(Id id) const { return links_[number(id)].next != kOut; }
  /// Only where there is one.
  Id front() const {
    PANDO_CHECK(size_ > 0, "the list is empty");
    return Id{links_[0].next};
  }

  Id pop_front() {
    const Id id = front();
    remove(id);
    return id;
  }

  /// Takes out.size() ids from the front, which must be there.
  void pop_front(std::span<Id> out) {
    PANDO_CHECK(out.size() <= size_, "{} ids wanted of a list of {}", out.size(), size_);
    std::uint32_t at = links_[0].next;
    for (Id& id : out) {
      id = Id{at};
      const std::uint32_t next = links_[at].next;
      links_[at] = {kOut, kOut};
      at = next;
    }
    join(0, at);
    size_ -= out.size();
  }

  void remove(Id id) {
    const std::uint32_t i = checked(id);
    PANDO_CHECK(links_[i].next != kOut, "id {} is not in the list", i);
    join(links_[i].prev, links_[i].next);
    links_[i] = {kOut, kOut};
    --size_;
  }

  void append(Id id) { append(std::span(&id, 1)); }
  /// In the order given, behind all others.
  void append(std::span<const Id> ids) { insert_before(0, ids); }
  /// In the order given, before all others.
  void prepend(std::span<const Id> ids) { insert_before(links_[0].next, ids); }

  /// All of them, from the front. O(list).
  std::vector<Id> list() const {
    std::vector<Id> out;
    for (std::uint32_t i = links_[0].next; i != 0; i = links_[i].next) out.push_back(Id{i});
    return out;
  }

  /// O(ids).
  Status check() const {
    std::size_t seen = 0;
    for (std::uint32_t i = links_[0].next; i != 0; i = links_[i].next, ++seen) {
      if (i >= links_.size() || seen > size_ || links_[links_[i].prev].next != i)
        return make_error(ErrorCode::corrupt, "id list: broken at {}", i);
    }
    std::size_t linked = 0;
    for (std::size_t i = 1; i < links_.size(); ++i) linked += links_[i].next != kOut ? 1 : 0;
    if (seen != size_ || linked != size_)
      return make_error(ErrorCode::corrupt, "id list: {} counted, {} in order, {} linked", size_,
                        seen, linked);
    return {};
  }
  std::size_t memory_bytes() const { return links_.capacity() * sizeof(Link); }

 private:
  static constexpr std::uint32_t kOut = UINT32_MAX;
  struct Link {
    std::uint32_t prev = kOut;
    std::uint32_t next = kOut;
  };

  static std::uint32_t number(Id id) { return static_cast<std::uint32_t>(id); }
  std::uint32_t checked(Id id) const {
    const std::uint32_t i = number(id);
    PANDO_CHECK(i > 0 && i < links_.size(), "id {} of a list over [1, {})", i, links_.size());
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
  void insert_before(std::uint32_t at, std::span<const Id> ids) {
    for (const Id id : ids) {
      const std::uint32_t i = checked(id);
      PANDO_CHECK(links_[i].next == kOut, "id {} is in the list already", i);
      link_before(at, i);
    }
    size_ += ids.size();
  }

  std::vector<Link> links_;
  std::size_t size_ = 0;
};

}  // namespace pando
