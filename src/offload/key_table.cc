// SPDX-License-Identifier: Apache-2.0
#include "offload/key_table.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/random.h"

namespace pando {

KeyTable::KeyTable(std::size_t num_ids)
    : names_(num_ids),
      places_(std::bit_ceil(2 * num_ids)),
      mask_(places_.size() - 1),
      seed_(random_seed()) {}

std::uint64_t KeyTable::hash(std::string_view bytes) const {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed_);
}

std::uint32_t KeyTable::find(std::string_view bytes, std::uint64_t hash) const {
  for (std::size_t at = home(hash); places_[at].id != 0; at = (at + 1) & mask_)
    if (places_[at].tag == tag(hash) && names_[places_[at].id].bytes == bytes)
      return places_[at].id;
  return 0;
}

std::uint32_t KeyTable::find_hash(std::uint64_t hash) const {
  for (std::size_t at = home(hash); places_[at].id != 0; at = (at + 1) & mask_)
    if (places_[at].tag == tag(hash) && names_[places_[at].id].hash == hash) return places_[at].id;
  return 0;
}

void KeyTable::insert(std::uint32_t id, std::string_view bytes, std::uint64_t hash) {
  PANDO_CHECK(!names_[id].used, "block {} has a key already", id);
  std::size_t at = home(hash);
  while (places_[at].id != 0) at = (at + 1) & mask_;
  places_[at] = {tag(hash), id};
  names_[id].bytes.assign(bytes);
  names_[id].hash = hash;
  names_[id].used = true;
  ++size_;
}

std::size_t KeyTable::place_of(std::uint32_t id) const {
  std::size_t at = home(names_[id].hash);
  while (places_[at].id != id) {
    PANDO_CHECK(places_[at].id != 0, "the key of block {} is not in the table", id);
    at = (at + 1) & mask_;
  }
  return at;
}

// What is behind the hole moves up if it may: if its home is not between the hole and itself.
void KeyTable::erase(std::uint32_t id) {
  std::size_t hole = place_of(id);
  for (std::size_t at = (hole + 1) & mask_; places_[at].id != 0; at = (at + 1) & mask_) {
    const std::size_t from_home = (at - home(names_[places_[at].id].hash)) & mask_;
    if (from_home < ((at - hole) & mask_)) continue;
    places_[hole] = places_[at];
    hole = at;
  }
  places_[hole] = {};
  names_[id].used = false;
  --size_;
}

std::size_t KeyTable::memory_bytes() const {
  std::size_t bytes = places_.capacity() * sizeof(Place) + names_.capacity() * sizeof(Name);
  for (const Name& name : names_) bytes += name.bytes.capacity();
  return bytes;
}

Status KeyTable::check() const {
  std::size_t used = 0;
  for (std::uint32_t id = 0; id < names_.size(); ++id) {
    const Name& name = names_[id];
    if (!name.used) continue;
    ++used;
    if (name.hash != hash(name.bytes) || find(name.bytes, name.hash) != id)
      return make_error(ErrorCode::corrupt, "keys: block {} is not found by its key", id);
  }
  const auto full = std::count_if(places_.begin(), places_.end(),
                                  [](const Place& place) { return place.id != 0; });
  if (used != size_ || static_cast<std::size_t>(full) != size_)
    return make_error(ErrorCode::corrupt, "keys: {} counted, {} blocks have one, {} places", size_,
                      used, full);
  return {};
}

}  // namespace pando
