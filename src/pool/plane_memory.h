// SPDX-License-Identifier: Apache-2.0
// Where rows are. A layout is nothing but five numbers per plane (a start per layer and four
// strides), so everything that moves bytes is written once, for strides, and knows no layout names.
// The tables of the layouts, byte for byte, are in docs/formats.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pando/pools.h"

namespace pando {

/// What `num_pages` pages take in a layout; nothing beyond 2^62 bytes.
std::optional<std::size_t> placed_bytes(const Geometry& geometry, HostLayout layout,
                                        std::size_t num_pages);
std::optional<std::size_t> placed_bytes(const Geometry& geometry, DeviceLayout layout,
                                        std::size_t num_pages);

/// Where each plane's rows are, from `base` on.
std::vector<PlaneMemory> place(const Geometry& geometry, HostLayout layout, std::size_t num_pages,
                               std::byte* base);
std::vector<PlaneMemory> place(const Geometry& geometry, DeviceLayout layout, std::size_t num_pages,
                               std::byte* base);

/// The first byte of one head of one row.
inline std::byte* row_address(const PlaneMemory& memory, std::size_t page_size, std::size_t layer,
                              std::size_t slot, std::size_t head = 0) {
  return memory.layers[layer] + slot / page_size * memory.page_stride +
         slot % page_size * memory.token_stride + head * memory.head_stride;
}

/// Whether slots follow each other evenly across the ends of pages.
inline bool is_linear(const PlaneMemory& memory, std::size_t page_size) {
  return memory.page_stride == page_size * memory.token_stride;
}

}  // namespace pando
