// SPDX-License-Identifier: Apache-2.0
// Strides of every layout. Shapes: L layers, P pages of `page` tokens, S = P * page slots, H heads,
// D bytes of a head; planes follow one another.
#include "pool/plane_memory.h"

namespace pando {
namespace {

// Per-layer buffers of a device pool start at multiples of this, so that wide accesses are aligned.
constexpr std::size_t kBufferAlignment = 256;

struct Strides {
  std::size_t layer = 0;
  std::size_t page = 0;
  std::size_t token = 0;
  std::size_t head = 0;
};

Strides strides_of(HostLayout layout, const Geometry& geometry, const Plane& plane,
                   std::size_t num_pages) {
  const std::size_t head = plane.head_bytes();
  const std::size_t row = plane.row_bytes();
  const std::size_t layers = geometry.num_layers;
  const std::size_t page = geometry.page_size;
  switch (layout) {
    case HostLayout::layer_first:  // (L, S, H, D)
      return {.layer = num_pages * page * row, .page = page * row, .token = row, .head = head};
    case HostLayout::page_first:  // (S, L, H, D)
      return {.layer = row, .page = page * layers * row, .token = layers * row, .head = head};
    case HostLayout::page_first_direct:  // (P, L, page, H, D)
      return {.layer = page * row, .page = layers * page * row, .token = row, .head = head};
    case HostLayout::page_head:  // (P, H, page, L, D)
      return {.layer = head,
              .page = plane.heads * page * layers * head,
              .token = layers * head,
              .head = page * layers * head};
  }
  return {};
}

PlaneMemory at(const Strides& strides, std::size_t num_layers, std::byte* base) {
  PlaneMemory memory{.layers = {},
                     .page_stride = strides.page,
                     .token_stride = strides.token,
                     .head_stride = strides.head};
  for (std::size_t layer = 0; layer < num_layers; ++layer)
    memory.layers.push_back(base + layer * strides.layer);
  return memory;
}

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

// A layer of a plane in a device pool: (P, page, H, D) in both layouts.
std::size_t buffer_bytes(const Geometry& geometry, DeviceLayout layout, const Plane& plane,
                         std::size_t num_pages) {
  const std::size_t bytes = num_pages * geometry.page_size * plane.row_bytes();
  if (layout == DeviceLayout::page_major) return bytes;  // layers follow without gaps
  return round_up(bytes, kBufferAlignment);
}

Strides strides_of(DeviceLayout layout, const Geometry& geometry, const Plane& plane,
                   std::size_t num_pages) {
  Strides strides = strides_of(HostLayout::layer_first, geometry, plane, num_pages);
  strides.layer = buffer_bytes(geometry, layout, plane, num_pages);
  return strides;
}

std::size_t plane_bytes(const Geometry& geometry, HostLayout /*layout*/, const Plane& plane,
                        std::size_t num_pages) {
  return num_pages * geometry.page_bytes(plane);
}
std::size_t plane_bytes(const Geometry& geometry, DeviceLayout layout, const Plane& plane,
                        std::size_t num_pages) {
  return geometry.num_layers * buffer_bytes(geometry, layout, plane, num_pages);
}

// Planes follow each other; one begins where its elements are aligned.
template <typename Layout>
std::optional<std::size_t> sum_of_planes(const Geometry& geometry, Layout layout,
                                         std::size_t num_pages) {
  if (!geometry.validate()) return std::nullopt;  // else a page has at most 2^48 bytes
  if (num_pages > (std::size_t{1} << 62) / geometry.page_bytes()) return std::nullopt;
  std::size_t bytes = 0;
  for (const Plane& plane : geometry.planes)
    bytes = round_up(bytes, size_of(plane.dtype)) + plane_bytes(geometry, layout, plane, num_pages);
  return bytes;
}

template <typename Layout>
std::vector<PlaneMemory> place_planes(const Geometry& geometry, Layout layout,
                                      std::size_t num_pages, std::byte* base) {
  std::vector<PlaneMemory> out;
  std::size_t offset = 0;
  for (const Plane& plane : geometry.planes) {
    offset = round_up(offset, size_of(plane.dtype));
    const Strides strides = strides_of(layout, geometry, plane, num_pages);
    out.push_back(at(strides, geometry.num_layers, base + offset));
    offset += plane_bytes(geometry, layout, plane, num_pages);
  }
  return out;
}

}  // namespace

std::optional<std::size_t> placed_bytes(const Geometry& geometry, HostLayout layout,
                                        std::size_t num_pages) {
  return sum_of_planes(geometry, layout, num_pages);
}
std::optional<std::size_t> placed_bytes(const Geometry& geometry, DeviceLayout layout,
                                        std::size_t num_pages) {
  return sum_of_planes(geometry, layout, num_pages);
}

std::vector<PlaneMemory> place(const Geometry& geometry, HostLayout layout, std::size_t num_pages,
                               std::byte* base) {
  return place_planes(geometry, layout, num_pages, base);
}
std::vector<PlaneMemory> place(const Geometry& geometry, DeviceLayout layout, std::size_t num_pages,
                               std::byte* base) {
  return place_planes(geometry, layout, num_pages, base);
}

}  // namespace pando
