// SPDX-License-Identifier: Apache-2.0
// Rows to write to a pool, as arrays of the caller's: read where they are, unless they are so
// strided that they must be copied.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "buffers.h"
#include "pando/pools.h"

namespace pando::python {

/// Rows of one plane as the library wants them; holds the memory.
class RowsArg {
 public:
  /// `row_elements` of each of `count` rows; `own` is the plane's type.
  RowsArg(nb::handle source, const std::string& what, std::size_t count, std::size_t row_elements,
          DType own, MemoryKind kind);
  const Rows& rows() const { return rows_; }

 private:
  void take(nb::handle data, const std::string& what, std::size_t count, std::size_t row_elements,
            MemoryKind kind);
  bool rows_are_whole() const;
  DType type_of(std::optional<DType> asked, DType own, const std::string& what) const;

  Rows rows_;
  std::optional<Tensor> tensor_;
};

/// The planes of one layer, each with as many rows as there are slots.
class PlanesArg {
 public:
  PlanesArg(nb::handle planes, const Geometry& geometry, std::size_t count, MemoryKind kind);
  std::span<const Rows> rows() const { return rows_; }

 private:
  std::vector<RowsArg> held_;
  std::vector<Rows> rows_;
};

void bind_rows(nb::module_& m);

}  // namespace pando::python
