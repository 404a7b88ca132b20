// SPDX-License-Identifier: Apache-2.0
// Growth one bucket at a time: the oldest unsplit bucket shares its entries with a new one.
#include "index/child_table.h"

#include "base/check.h"

namespace pando {
namespace {

constexpr std::size_t kNodesPerBucket = 4;  // of 7: one bucket in twenty overflows

}  // namespace

ChildTable::ChildTable() : overflow_(1) {
  segments_[0] = make_table<Bucket>(kFirst);
  for (std::uint32_t i = 0; i < kFirst; ++i) bucket(i) = {};
}

void ChildTable::append(Bucket* b, const Entry& entry) {
  while (b->count == kEntries) {
    if (b->overflow == 0) {
      if (free_overflow_.empty()) {
        free_overflow_.push_back(static_cast<std::uint32_t>(overflow_.size()));
        overflow_.emplace_back();
      }
      b->overflow = free_overflow_.back();
      free_overflow_.pop_back();
      overflow_[b->overflow] = {};
    }
    b = &overflow_[b->overflow];
  }
  b->entries[b->count++] = entry;
}

void ChildTable::insert(std::uint32_t hash, NodeIndex node) {
  if (++size_ > kNodesPerBucket * num_buckets_) add_bucket();
  append(&bucket(bucket_of(hash)), {hash, node});
}

// The last entry of the bucket's lines fills the gap; a line left empty is given back.
void ChildTable::erase(std::uint32_t hash, NodeIndex node) {
  Entry* gap = nullptr;
  Bucket* before = nullptr;
  Bucket* last = &bucket(bucket_of(hash));
  while (true) {
    for (std::uint32_t i = 0; i < last->count; ++i) {
      if (last->entries[i].node == node) gap = &last->entries[i];
    }
    if (last->overflow == 0) break;
    before = last;
    last = &overflow_[last->overflow];
  }
  PANDO_CHECK(gap != nullptr, "node {} is not in the child table", node);
  *gap = last->entries[--last->count];
  if (last->count == 0 && before != nullptr) {
    free_overflow_.push_back(before->overflow);
    before->overflow = 0;
  }
  --size_;
}

void ChildTable::add_bucket() {
  Bucket& from = bucket(num_buckets_ - level_);
  if (num_buckets_ == level_) {  // first bucket of a new segment
    const auto k = static_cast<std::size_t>(std::bit_width(level_ / kFirst));
    segments_[k] = make_table<Bucket>(level_);
  }
  Bucket& to = bucket(num_buckets_++);
  to = {};
  Bucket old = from;
  from = {};
  while (true) {
    for (std::uint32_t i = 0; i < old.count; ++i)
      append((old.entries[i].hash & level_) != 0 ? &to : &from, old.entries[i]);
    const std::uint32_t next = old.overflow;
    if (next == 0) break;
    old = overflow_[next];
    free_overflow_.push_back(next);
  }
  if (num_buckets_ == 2 * level_) level_ *= 2;
}

std::size_t ChildTable::memory_bytes() const {
  const std::size_t room = num_buckets_ == level_ ? level_ : 2 * std::size_t{level_};
  return (room + overflow_.size()) * sizeof(Bucket) +
         free_overflow_.capacity() * sizeof(std::uint32_t);
}

}  // namespace pando
