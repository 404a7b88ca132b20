// SPDX-License-Identifier: Apache-2.0
// The shape of KV: which arrays a model keeps per layer, how wide a row of each is, and how many
// tokens a page has. Pools, host pools and copiers are all told about a model by one Geometry.
// A family of attention is a set of planes, so everything that moves bytes knows planes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"

namespace pando {

/// The type of an element of KV.
enum class DType : std::uint8_t { fp16, bf16, fp32, fp8_e4m3, fp8_e5m2, int8 };

std::size_t size_of(DType dtype);  ///< bytes of an element
std::string_view to_string(DType dtype);

/// One array of a layer: for each slot a row of `heads` x `dim` elements.
struct Plane {
  std::string name;           ///< such as "key"
  std::uint32_t heads = 1;    ///< heads of a row
  std::uint32_t dim = 0;      ///< elements of a head
  DType dtype = DType::bf16;  ///< their type
  /// Of a row that is written in two parts (MLA's nope and rope): elements of the first; else 0.
  std::uint32_t first_part = 0;

  /// Bytes of one head of a row.
  std::size_t head_bytes() const { return dim * size_of(dtype); }
  /// Bytes of a row: all heads.
  std::size_t row_bytes() const { return heads * head_bytes(); }
  friend bool operator==(const Plane&, const Plane&) = default;
};

/// The shape of KV: which arrays a model keeps per layer, how wide a row of each is, and how many
/// tokens a page has.
struct Geometry {
  std::vector<Plane> planes = {};  ///< the arrays of each layer
  std::size_t num_layers = 0;      ///< layers here
  /// Id of the first layer here; pipeline stages hold [first_layer, first_layer + num_layers).
  std::size_t first_layer = 0;
  std::size_t page_size = 1;  ///< tokens of a page

  Status validate() const;  ///< an error where it makes no sense

  std::size_t token_bytes() const;  ///< bytes of one token in all planes and layers
  /// Bytes of one page in all planes and layers.
  std::size_t page_bytes() const { return token_bytes() * page_size; }
  /// Bytes of one plane's share of a page, all layers.
  std::size_t page_bytes(const Plane& plane) const;

  /// Where the plane of this name is in `planes`.
  Result<std::size_t> plane_index(std::string_view name) const;

  /// One text that is equal only for equal geometries; for messages, and for keys of stored pages.
  std::string describe() const;

  friend bool operator==(const Geometry&, const Geometry&) = default;
};

/// What every family is told.
struct LayerRange {
  std::size_t num_layers = 0;
  std::size_t first_layer = 0;
  std::size_t page_size = 1;
  DType dtype = DType::bf16;
};

/// The shape of separate keys and values, see mha_geometry().
struct MhaShape {
  LayerRange layers = {};
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t value_dim = 0;
};
/// Separate keys and values: planes "key" and "value". `value_dim` 0 means as `head_dim`.
Geometry mha_geometry(const MhaShape& shape);

/// The shape of latent attention, see mla_geometry().
struct MlaShape {
  LayerRange layers = {};
  std::uint32_t nope_dim = 0;
  std::uint32_t rope_dim = 0;
  bool split = false;
};
/// One latent row per token, its first `nope_dim` elements without and the rest with position:
/// plane "latent"; with `split`, planes "nope" and "rope" (page-major pools of NPUs).
Geometry mla_geometry(const MlaShape& shape);

/// The shape of sparse attention over latents, see dsa_geometry().
struct DsaShape {
  MlaShape mla = {};
  std::uint32_t index_dim = 0;
  DType index_dtype = DType::fp8_e4m3;
  bool index_scale = false;
};
/// Sparse attention over latents (DSA, NSA): MLA and plane "index_key", from which an indexer
/// chooses tokens; with `index_scale` also plane "index_scale", one fp32 per token.
Geometry dsa_geometry(const DsaShape& shape);

/// The shape of double sparsity, see double_sparse_geometry().
struct DoubleSparseShape {
  MhaShape mha = {};
  std::uint32_t label_dim = 0;
};
/// Double sparsity: MHA and plane "label", the `label_dim` heavy channels of each head.
Geometry double_sparse_geometry(const DoubleSparseShape& shape);

/// Snapshots of recurrent layers: the given planes (say "conv" and "ssm"), one row per snapshot.
/// A page is one snapshot.
Geometry state_geometry(std::size_t num_layers, std::vector<Plane> planes);

}  // namespace pando
