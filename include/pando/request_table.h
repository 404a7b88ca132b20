// SPDX-License-Identifier: Apache-2.0
// One row of slots per running request, as attention kernels read them. Bounds are checked on every
// call; a row is usable only between alloc and free. It belongs to one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// Which slots each running request has: a row per request. It belongs to one thread.
class RequestTable {
 public:
  /// `max_rows` requests of at most `row_len` tokens. Memory is touched only as rows are written.
  static Result<std::unique_ptr<RequestTable>> create(std::size_t max_rows, std::size_t row_len);
  ~RequestTable();
  RequestTable(const RequestTable&) = delete;
  RequestTable& operator=(const RequestTable&) = delete;

  std::optional<std::size_t> alloc();  ///< the lowest free row; `std::nullopt` when all are taken
  /// `out.size()` rows, or none and an error.
  Status alloc(std::span<std::size_t> out);
  void free(std::size_t row);  ///< gives back a row that is taken
  void free(std::span<const std::size_t> rows);

  /// Copies `slots` to positions [offset, offset + slots.size()) of the row.
  Status write(std::size_t row, std::size_t offset, std::span<const SlotId> slots);
  /// The whole row, row_len long. What was never written reads as slot 0, the padding slot; a row
  /// used before still holds what its last request wrote.
  std::span<SlotId> row(std::size_t row);
  std::span<const SlotId> row(std::size_t row) const;

  /// Frees every row.
  void clear();

  std::size_t max_rows() const;   ///< rows
  std::size_t row_len() const;    ///< slots of a row
  std::size_t available() const;  ///< rows that are free

 private:
  struct Impl;
  explicit RequestTable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
