// SPDX-License-Identifier: Apache-2.0
// A page inside a call on a store written in Python: a sequence of memoryviews over the cache's own
// memory, which ends with the call.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace pando::python {

namespace nb = nanobind;

/// The tag is the last piece.
struct PyStorePage {
  std::string key;
  std::vector<std::span<std::byte>> pieces;
  bool writable = false;
  bool ended = false;
  static constexpr std::size_t kNoPiece = ~std::size_t{0};
  std::size_t exporting = kNoPiece;  // what a buffer is being asked for
  std::size_t num_exports = 0;
  std::vector<nb::object> views = {};

  std::size_t size_bytes() const;
  void require_open() const;
  /// False: somebody has kept a view of memory that is no longer theirs.
  bool end();
};

void bind_store_page(nb::module_& m);

}  // namespace pando::python
