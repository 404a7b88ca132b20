// SPDX-License-Identifier: Apache-2.0
// Linear probing with backward-shift deletion: no tombstones, so lookups never slow down.
#include "blocks/hash_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace pando {
namespace {

// By words: gcc calls memcmp for 32 bytes.
bool same_value(const PageHash& a, const PageHash& b) {
  std::uint64_t x[sizeof(PageHash) / 8], y[sizeof(PageHash) / 8];
  std::memcpy(x, a.data(), sizeof x);
  std::memcpy(y, b.data(), sizeof y);
  return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])) == 0;
}

}  // namespace

HashIndex::HashIndex(std::size_t num_ids, std::span<const std::size_t> block_sizes,
                     bool keep_tokens)
    : records_(make_table<Record>(num_ids)),
      num_ids_(num_ids),
      table_(std::bit_ceil(2 * num_ids)),
      mask_(table_.size() - 1) {
  for (std::size_t i = 0; i < num_ids; ++i) std::construct_at(&records_[i]);
  if (!keep_tokens) return;
  for (const std::size_t size : block_sizes) slabs_.emplace_back(size);
}

bool HashIndex::agrees(const Record& record, const Content& content) const {
  if (record.hash.check != content.hash->check || record.group != content.group) return false;
  bool same = same_value(record.hash.value, content.hash->value);
  if (same && !slabs_.empty()) {
    const TokenSlab& slab = slabs_[content.group];
    same = std::memcmp(slab[record.tokens], content.tokens, slab.block_size() * sizeof(Token)) == 0;
  }
  collisions_ += same ? 0 : 1;
  return same;
}

std::size_t HashIndex::place_of(const Content& content) const {
  const std::uint64_t k = key(content.group, *content.hash);
  std::size_t at = place(k);
  for (; table_[at].id != 0; at = (at + 1) & mask_) {
    if (table_[at].tag == tag(k) && agrees(records_[table_[at].id], content)) break;
  }
  return at;
}

PageId HashIndex::find(const Content& content) const {
  return PageId{table_[place_of(content)].id};
}

std::size_t HashIndex::find_run(const Content& first, std::size_t block_size, std::size_t stride,
                                std::span<PageId> out) const {
  constexpr std::size_t kTableAhead = 16;
  constexpr std::size_t kRecordAhead = 8;
  const auto place_at = [&](std::size_t i) {
    return &table_[place(key(first.group, first.hash[i * stride]))];
  };
  for (std::size_t i = 0; i < std::min(out.size(), kTableAhead); ++i)
    __builtin_prefetch(place_at(i));
  Content content = first;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (i + kTableAhead < out.size()) __builtin_prefetch(place_at(i + kTableAhead));
    if (i + kRecordAhead < out.size())
      __builtin_prefetch(&records_[place_at(i + kRecordAhead)->id]);
    out[i] = find(content);
    if (out[i] == kNullBlock) return i;
    content.hash += stride;
    content.tokens += block_size;
  }
  return out.size();
}

void HashIndex::insert(PageId id, const Content& content) {
  const std::uint32_t i = index_of(id);
  PANDO_CHECK(i > 0 && i < num_ids_, "block {} of an index over [1, {})", i, num_ids_);
  Record& record = records_[i];
  PANDO_CHECK(record.twin_next == 0, "block {} has a hash already", i);
  record.hash = *content.hash;
  record.group = content.group & 0x7fffffff;
  record.alias = content.alias ? 1 : 0;
  if (!slabs_.empty()) record.tokens = slabs_[content.group].add(content.tokens);
  Place& place = table_[place_of(content)];
  if (place.id == 0) {
    place = {tag(key(content.group, *content.hash)), i};
    record.twin_next = record.twin_prev = i;
  } else {  // last in the ring of the oldest
    Record& oldest = records_[place.id];
    record.twin_next = place.id;
    record.twin_prev = oldest.twin_prev;
    records_[oldest.twin_prev].twin_next = i;
    oldest.twin_prev = i;
  }
  ++size_;
}

void HashIndex::erase(PageId id) {
  const std::uint32_t i = index_of(id);
  PANDO_CHECK(i > 0 && i < num_ids_ && records_[i].twin_next != 0, "block {} has no hash", i);
  Record& record = records_[i];
  if (!slabs_.empty()) slabs_[record.group].remove(record.tokens);
  const std::uint64_t k = key(record.group, record.hash);
  std::size_t at = place(k);
  // A twin that the table does not name is found nowhere: then the place that ends the run.
  while (table_[at].id != 0 && table_[at].id != i) at = (at + 1) & mask_;
  if (record.twin_next != i) {
    if (table_[at].id == i) table_[at].id = record.twin_next;
    records_[record.twin_next].twin_prev = record.twin_prev;
    records_[record.twin_prev].twin_next = record.twin_next;
  } else {
    std::size_t hole = at;
    table_[hole] = {};
    for (std::size_t next = (hole + 1) & mask_; table_[next].id != 0; next = (next + 1) & mask_) {
      const Record& moved = records_[table_[next].id];
      const std::size_t home = place(key(moved.group, moved.hash));
      if (((next - home) & mask_) < ((next - hole) & mask_))
        continue;  // would come before its home
      table_[hole] = table_[next];
      table_[next] = {};
      hole = next;
    }
  }
  record.twin_next = record.twin_prev = 0;
  --size_;
}

HashIndex::Content HashIndex::content(PageId id) const {
  const Record& record = records_[index_of(id)];
  PANDO_CHECK(record.twin_next != 0, "block {} has no hash", index_of(id));
  return {record.group, &record.hash,
          slabs_.empty() ? nullptr : slabs_[record.group][record.tokens], record.alias != 0};
}

std::size_t HashIndex::memory_bytes() const {
  std::size_t sum = num_ids_ * sizeof(Record) + table_.capacity() * sizeof(Place);
  for (const TokenSlab& slab : slabs_) sum += slab.memory_bytes();
  return sum;
}

Status HashIndex::check() const {
  std::size_t in_table = 0;
  std::size_t in_rings = 0;
  for (const Place& place : table_) {
    if (place.id == 0) continue;
    ++in_table;
    const Record& first = records_[place.id];
    if (table_[place_of(content(PageId{place.id}))].id != place.id)
      return make_error(ErrorCode::corrupt, "hash index: block {} is not where it is looked for",
                        place.id);
    std::uint32_t i = place.id;
    do {
      const Record& record = records_[i];
      if (records_[record.twin_next].twin_prev != i || record.hash != first.hash ||
          record.group != first.group || in_rings > num_ids_)
        return make_error(ErrorCode::corrupt, "hash index: the ring of block {} is broken at {}",
                          place.id, i);
      ++in_rings;
      i = record.twin_next;
    } while (i != place.id);
  }
  std::size_t linked = 0;
  for (std::size_t i = 1; i < num_ids_; ++i) linked += records_[i].twin_next != 0 ? 1 : 0;
  std::size_t kept = 0;
  for (const TokenSlab& slab : slabs_) kept += slab.num_used();
  if (in_rings != size_ || linked != size_ || in_table > size_ ||
      (!slabs_.empty() && kept != size_))
    return make_error(ErrorCode::corrupt,
                      "hash index: {} blocks counted, {} found, {} linked, tokens of {}", size_,
                      in_rings, linked, kept);
  return {};
}

}  // namespace pando
