// SPDX-License-Identifier: Apache-2.0
// UnitTable: linear hashing over segments of buckets.
#include "store/file/unit_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>

#include "base/check.h"

namespace pando {
namespace {

constexpr std::uint32_t kUnitsPerPage = 16;  // itself, a new tail and its text
constexpr std::uint32_t kLongestSplit = 32;  // chains beyond this stay as they are
constexpr std::uint32_t kMaxBuckets = static_cast<std::uint32_t>(kFirstBuckets)
                                      << (kMaxSegments - 1);

std::size_t segment_of(std::uint32_t bucket) {
  return static_cast<std::size_t>(std::bit_width(bucket / kFirstBuckets));
}
std::uint32_t buckets_before(std::size_t segment) {
  return segment == 0 ? 0 : static_cast<std::uint32_t>(kFirstBuckets << (segment - 1));
}
std::uint32_t units_of_segment(std::size_t segment) {
  const std::size_t buckets = segment == 0 ? kFirstBuckets : buckets_before(segment);
  return static_cast<std::uint32_t>((buckets + kBucketsPerUnit - 1) / kBucketsPerUnit);
}

}  // namespace

// ---- Units.

Status UnitTable::prepare() {
  if (Status room = mapping_.grow(kUnitsPerPage); !room) return room;
  if (state().num_items < state().num_buckets || state().num_buckets >= kMaxBuckets) return {};
  const std::size_t segment = segment_of(state().num_buckets);
  if (state().segments[segment] != kNoUnit) return {};
  Status room = mapping_.grow(kUnitsPerPage + units_of_segment(segment));
  if (room) add_segment(segment);
  return segment == 0 ? room : Status();  // without more buckets chains are longer
}

UnitId UnitTable::take(UnitKind kind) {
  UnitId id = state().free;
  if (id != kNoUnit) {
    mapping_.set(state().free, mapping_.unit(id).page.next);
  } else {
    id = state().num_used_units;
    mapping_.set(state().num_used_units, id + 1);
  }
  Unit& unit = mapping_.unit(id);
  mapping_.keep(&unit.page.next, sizeof unit.page.next);  // a chain of free units again, if undone
  mapping_.set(unit.page.kind, kind);
  return id;
}

void UnitTable::give_back(UnitId id) {
  Unit& unit = mapping_.unit(id);
  mapping_.set(unit.page.kind, UnitKind::free);
  mapping_.set(unit.page.next, state().free);
  mapping_.set(state().free, id);
}

// ---- Buckets.

std::uint32_t UnitTable::hash_of(const PackedKey& key) {
  static_assert(sizeof(PackedKey) == 36);
  return static_cast<std::uint32_t>(XXH3_64bits(&key, sizeof key));
}

std::uint32_t UnitTable::hash_of_item(UnitId id) {
  const Unit& unit = mapping_.unit(id);
  if (unit.page.kind == UnitKind::page) return hash_of(unit.page.key);
  if (unit.tail.kind != UnitKind::tail) mapping_.set_broken();
  return unit.tail.hash;
}

std::uint32_t UnitTable::bucket_of(std::uint32_t hash) const {
  const std::uint32_t n = std::min(mapping_.header().state.num_buckets, kMaxBuckets);
  const std::uint32_t all = std::bit_ceil(n);
  const std::uint32_t number = hash & (all - 1);
  return number < n ? number : hash & (all / 2 - 1);
}

UnitId* UnitTable::bucket(std::uint32_t number) {
  if (number >= state().num_buckets || number >= kMaxBuckets) return nullptr;
  const std::size_t segment = segment_of(number);
  const std::uint32_t offset = number - buckets_before(segment);
  Unit& unit = mapping_.unit(state().segments[segment] +
                             offset / static_cast<std::uint32_t>(kBucketsPerUnit));
  if (unit.buckets.kind != UnitKind::buckets) {
    mapping_.set_broken();
    return nullptr;
  }
  return &unit.buckets.first[offset % kBucketsPerUnit];
}

bool UnitTable::is_endless(std::uint32_t steps) {
  if (steps <= mapping_.num_units()) return false;
  mapping_.set_broken();
  return true;
}

void UnitTable::add(UnitId id) {
  if (state().num_items >= state().num_buckets) split();
  UnitId* first = bucket(bucket_of(hash_of_item(id)));
  if (first == nullptr) return mapping_.set_broken();
  mapping_.set(mapping_.unit(id).page.next, *first);
  mapping_.set(*first, id);
  mapping_.set(state().num_items, state().num_items + 1);
}

void UnitTable::remove(UnitId id) {
  UnitId* at = bucket(bucket_of(hash_of_item(id)));
  std::uint32_t steps = 0;
  while (at != nullptr && *at != id) {
    if (*at == kNoUnit || is_endless(++steps)) return mapping_.set_broken();
    at = &mapping_.unit(*at).page.next;
  }
  if (at == nullptr) return mapping_.set_broken();
  mapping_.set(*at, UnitId{mapping_.unit(id).page.next});
  mapping_.set(state().num_items, state().num_items - 1);
}

/// After room was made for it. Nobody knows of these units before the segment does, so only that
/// needs the undo log.
bool UnitTable::add_segment(std::size_t segment) {
  const UnitId first = state().num_used_units;
  const std::uint32_t num = units_of_segment(segment);
  if (first + num > mapping_.num_units()) return false;
  for (std::uint32_t i = 0; i < num; ++i) {
    BucketUnit& unit = mapping_.unit(first + i).buckets;
    unit = {};
    unit.kind = UnitKind::buckets;
  }
  mapping_.set(state().num_used_units, first + num);
  mapping_.set(state().segments[segment], first);
  if (segment == 0) mapping_.set(state().num_buckets, static_cast<std::uint32_t>(kFirstBuckets));
  return true;
}

/// One more bucket: it gets the half of another's chain.
void UnitTable::split() {
  const std::uint32_t added = state().num_buckets;
  if (added < kFirstBuckets || added >= kMaxBuckets) return;
  if (state().segments[segment_of(added)] == kNoUnit) return;
  const std::uint32_t half = std::bit_floor(added);
  UnitId* from = bucket(added - half);
  if (from == nullptr) return;
  std::uint32_t length = 0;
  for (UnitId id = *from; id != kNoUnit; id = mapping_.unit(id).page.next)
    if (++length > kLongestSplit) return;
  mapping_.set(state().num_buckets, added + 1);
  UnitId* to = bucket(added);
  if (to == nullptr) return;
  while (*from != kNoUnit) {
    const UnitId id = *from;
    UnitId& next = mapping_.unit(id).page.next;
    if ((hash_of_item(id) & (2 * half - 1)) != added) {
      from = &next;
      continue;
    }
    mapping_.set(*from, next);
    mapping_.set(next, *to);
    mapping_.set(*to, id);
  }
}

Status UnitTable::check() {
  std::uint32_t found = 0;
  for (std::uint32_t b = 0; b < state().num_buckets; ++b) {
    const UnitId* first = bucket(b);
    if (first == nullptr) return make_error(ErrorCode::corrupt, "there is no bucket {}", b);
    for (UnitId id = *first; id != kNoUnit; id = mapping_.unit(id).page.next)
      if (bucket_of(hash_of_item(id)) != b || ++found > state().num_items)
        return make_error(ErrorCode::corrupt, "bucket {} is broken at unit {}", b, id);
  }
  if (found != state().num_items)
    return make_error(ErrorCode::corrupt, "{} items are counted, {} are in buckets",
                      state().num_items, found);
  return {};
}

}  // namespace pando
