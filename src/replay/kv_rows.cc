// SPDX-License-Identifier: Apache-2.0
// A row is an arithmetic progression of words from a seed that its prefix, layer and plane have.
#include "replay/kv_rows.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

#include "replay/mix.h"

namespace pando {
namespace {

constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15;

void fill(std::byte* at, std::size_t size, std::uint64_t word) {
  std::size_t i = 0;
  for (; i + sizeof word <= size; i += sizeof word, word += kStep)
    std::memcpy(at + i, &word, sizeof word);
  std::memcpy(at + i, &word, size - i);
}

bool is_filled(const std::byte* at, std::size_t size, std::uint64_t word) {
  std::uint64_t difference = 0;
  std::size_t i = 0;
  for (; i + sizeof word <= size; i += sizeof word, word += kStep) {
    std::uint64_t found;
    std::memcpy(&found, at + i, sizeof found);
    difference |= found ^ word;
  }
  return difference == 0 && std::memcmp(at + i, &word, size - i) == 0;
}

}  // namespace

void KvRows::set_key(std::span<const Token> tokens, std::string_view ns) {
  chain_.clear();
  std::uint64_t chain = XXH3_64bits(ns.data(), ns.size());
  for (std::size_t i = 0; i < tokens.size(); i += page_size_) {
    const std::span page = tokens.subspan(i, std::min(page_size_, tokens.size() - i));
    chain = XXH3_64bits_withSeed(page.data(), page.size_bytes(), chain);
    chain_.push_back(chain);
  }
}

template <typename Fn>
void KvRows::for_each_piece(SlotId slot, std::size_t position, Fn&& fn) const {
  const Geometry& geometry = pool_.geometry();
  const std::size_t at = index_of(slot);
  const std::uint64_t of_token = mix(chain_[position / page_size_], position);
  for (std::size_t p = 0; p < geometry.planes.size(); ++p) {
    const PlaneMemory& memory = pool_.planes()[p];
    const std::size_t offset =
        at / page_size_ * memory.page_stride + at % page_size_ * memory.token_stride;
    for (std::size_t layer = 0; layer < geometry.num_layers; ++layer) {
      for (std::size_t head = 0; head < geometry.planes[p].heads; ++head)
        fn(memory.layers[layer] + offset + head * memory.head_stride,
           geometry.planes[p].head_bytes(), mix(of_token, (layer << 32) + (p << 16) + head));
    }
  }
}

void KvRows::write(std::span<const SlotId> slots, std::size_t from, std::size_t to) const {
  for (std::size_t i = from; i < to; ++i) for_each_piece(slots[i], i, fill);
}

std::optional<std::size_t> KvRows::find_wrong(std::span<const SlotId> slots, std::size_t from,
                                              std::size_t to) const {
  for (std::size_t i = from; i < to; ++i) {
    bool right = true;
    for_each_piece(slots[i], i, [&](const std::byte* at, std::size_t size, std::uint64_t seed) {
      right = right && is_filled(at, size, seed);
    });
    if (!right) return i;
  }
  return std::nullopt;
}

}  // namespace pando
