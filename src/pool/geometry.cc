// SPDX-License-Identifier: Apache-2.0
// Families of attention as sets of planes; sizes, and what makes a geometry impossible.
#include "pando/pools.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pando {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::size_t size_bytes;
};
constexpr DTypeFacts kDTypes[] = {{"fp16", 2},     {"bf16", 2},     {"fp32", 4},
                                  {"fp8_e4m3", 1}, {"fp8_e5m2", 1}, {"int8", 1}};

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

Geometry with_planes(const LayerRange& layers, std::vector<Plane> planes) {
  return {.planes = std::move(planes),
          .num_layers = layers.num_layers,
          .first_layer = layers.first_layer,
          .page_size = layers.page_size};
}

}  // namespace

std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].size_bytes; }
std::string_view to_string(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }

Status Geometry::validate() const {
  if (planes.empty() || num_layers == 0)
    return make_error(ErrorCode::invalid_argument,
                      "geometry: {} planes and {} layers; expected at least one of each",
                      planes.size(), num_layers);
  if (!std::has_single_bit(page_size))
    return make_error(ErrorCode::invalid_argument,
                      "geometry: page_size is {}; expected a power of two", page_size);
  long double page = 0;  // bytes
  for (std::size_t i = 0; i < planes.size(); ++i) {
    const Plane& plane = planes[i];
    if (plane.name.empty() || !std::all_of(plane.name.begin(), plane.name.end(), is_name_character))
      return make_error(ErrorCode::invalid_argument,
                        "geometry: a plane is named '{}'; expected letters, digits and '_'",
                        plane.name);
    page += static_cast<long double>(plane.heads) * plane.dim *
            static_cast<long double>(size_of(plane.dtype)) * static_cast<long double>(num_layers) *
            static_cast<long double>(page_size);
    if (plane.heads == 0 || plane.dim == 0)
      return make_error(ErrorCode::invalid_argument,
                        "geometry: plane '{}' has {} heads of {} elements; expected at least one "
                        "of each",
                        plane.name, plane.heads, plane.dim);
    if (plane.first_part >= plane.dim)
      return make_error(ErrorCode::invalid_argument,
                        "geometry: the first part of plane '{}' has {} of its {} elements; "
                        "expected fewer",
                        plane.name, plane.first_part, plane.dim);
    for (std::size_t j = 0; j < i; ++j)
      if (planes[j].name == plane.name)
        return make_error(ErrorCode::invalid_argument,
                          "geometry: two planes are named '{}'; expected different names",
                          plane.name);
  }
  if (page > 0x1p48L)
    return make_error(ErrorCode::invalid_argument,
                      "geometry: a page of {:.0f} bytes; expected at most 2^48", page);
  return {};
}

std::size_t Geometry::token_bytes() const {
  std::size_t row_bytes = 0;
  for (const Plane& plane : planes) row_bytes += plane.row_bytes();
  return row_bytes * num_layers;
}

std::size_t Geometry::page_bytes(const Plane& plane) const {
  return plane.row_bytes() * page_size * num_layers;
}

Result<std::size_t> Geometry::plane_index(std::string_view name) const {
  for (std::size_t i = 0; i < planes.size(); ++i)
    if (planes[i].name == name) return i;
  return make_error(ErrorCode::invalid_argument, "no plane '{}' in {}", name, describe());
}

std::string Geometry::describe() const {
  std::string out = fmt::format("layers {}+{}, page {}", first_layer, num_layers, page_size);
  for (const Plane& plane : planes) {
    out += fmt::format(", {} {}x{} {}", plane.name, plane.heads, plane.dim, to_string(plane.dtype));
    if (plane.first_part > 0) out += fmt::format(" ({} first)", plane.first_part);
  }
  return out;
}

Geometry mha_geometry(const MhaShape& shape) {
  const std::uint32_t value_dim = shape.value_dim > 0 ? shape.value_dim : shape.head_dim;
  const DType dtype = shape.layers.dtype;
  return with_planes(shape.layers, {{"key", shape.heads, shape.head_dim, dtype},
                                    {"value", shape.heads, value_dim, dtype}});
}

Geometry mla_geometry(const MlaShape& shape) {
  const DType dtype = shape.layers.dtype;
  if (shape.split)
    return with_planes(shape.layers,
                       {{"nope", 1, shape.nope_dim, dtype}, {"rope", 1, shape.rope_dim, dtype}});
  return with_planes(shape.layers,
                     {{"latent", 1, shape.nope_dim + shape.rope_dim, dtype, shape.nope_dim}});
}

Geometry dsa_geometry(const DsaShape& shape) {
  Geometry geometry = mla_geometry(shape.mla);
  geometry.planes.push_back({"index_key", 1, shape.index_dim, shape.index_dtype});
  if (shape.index_scale) geometry.planes.push_back({"index_scale", 1, 1, DType::fp32});
  return geometry;
}

Geometry double_sparse_geometry(const DoubleSparseShape& shape) {
  Geometry geometry = mha_geometry(shape.mha);
  geometry.planes.push_back({"label", shape.mha.heads, shape.label_dim, shape.mha.layers.dtype});
  return geometry;
}

Geometry state_geometry(std::size_t num_layers, std::vector<Plane> planes) {
  return {.planes = std::move(planes), .num_layers = num_layers};
}

}  // namespace pando
