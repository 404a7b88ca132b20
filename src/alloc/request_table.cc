// SPDX-License-Identifier: Apache-2.0
// RequestTable: rows of slots in one zeroed block, handed out by a SlotAllocator. The block comes
// from calloc, so the system commits a row's memory when it is first written. Rows keep their
// address for the life of the table. Belongs to one thread.
#include "pando/allocators.h"

#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace pando {
namespace {

constexpr std::size_t kMaxBytes = std::numeric_limits<std::ptrdiff_t>::max();

struct FreeBlock {
  void operator()(SlotId* block) const { std::free(block); }
};
using Block = std::unique_ptr<SlotId[], FreeBlock>;

}  // namespace

struct RequestTable::Impl {
  std::span<SlotId> row(std::size_t row) const {
    check_taken(row);
    return {slots.get() + row * row_len, row_len};
  }
  void check_taken(std::size_t row) const {
    PANDO_CHECK(row < rows->size(), "row {} is outside [0, {})", row, rows->size());
    PANDO_CHECK(!rows->is_free(row), "row {} is not allocated", row);
  }

  std::unique_ptr<SlotAllocator> rows;
  std::size_t row_len = 0;
  Block slots;  // [rows->size(), row_len]
};

Result<std::unique_ptr<RequestTable>> RequestTable::create(std::size_t max_rows,
                                                           std::size_t row_len) {
  if (max_rows == 0 || row_len == 0) {
    return make_error(ErrorCode::invalid_argument,
                      "max_rows is {} and row_len {}, expected at least 1 of each", max_rows,
                      row_len);
  }
  if (row_len > kMaxBytes / sizeof(SlotId) / max_rows) {
    return make_error(ErrorCode::invalid_argument,
                      "{} rows of {} slots do not fit in the address space", max_rows, row_len);
  }
  Result<std::unique_ptr<SlotAllocator>> rows = SlotAllocator::create(max_rows);
  if (!rows) return make_error(ErrorCode::invalid_argument, "max_rows: {}", rows.error().message);
  Block block(static_cast<SlotId*>(std::calloc(max_rows * row_len, sizeof(SlotId))));
  if (!block) {
    return make_error(ErrorCode::out_of_capacity, "no memory for {} rows of {} slots", max_rows,
                      row_len);
  }
  auto impl = std::make_unique<Impl>();
  impl->rows = *std::move(rows);
  impl->row_len = row_len;
  impl->slots = std::move(block);
  return std::unique_ptr<RequestTable>(new RequestTable(std::move(impl)));
}

RequestTable::RequestTable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RequestTable::~RequestTable() = default;

std::optional<std::size_t> RequestTable::alloc() { return impl_->rows->alloc(); }

Status RequestTable::alloc(std::span<std::size_t> out) {
  if (out.size() > available()) {
    return make_error(ErrorCode::out_of_capacity, "{} rows needed, {} of {} available", out.size(),
                      available(), max_rows());
  }
  for (std::size_t& row : out) row = *impl_->rows->alloc();
  return {};
}

void RequestTable::free(std::size_t row) {
  impl_->check_taken(row);
  impl_->rows->free(row);
}

void RequestTable::free(std::span<const std::size_t> rows) {
  for (const std::size_t row : rows) impl_->check_taken(row);
  for (const std::size_t row : rows) free(row);
}

Status RequestTable::write(std::size_t row, std::size_t offset, std::span<const SlotId> slots) {
  if (row >= max_rows()) {
    return make_error(ErrorCode::invalid_argument, "write to row {}, expected one in [0, {})", row,
                      max_rows());
  }
  if (impl_->rows->is_free(row)) {
    return make_error(ErrorCode::invalid_argument, "write to row {}, which is not allocated", row);
  }
  if (offset > row_len() || slots.size() > row_len() - offset) {
    return make_error(ErrorCode::invalid_argument,
                      "write of {} slots at offset {} of row {}, which is {} long", slots.size(),
                      offset, row, row_len());
  }
  if (!slots.empty()) {  // memmove, as `slots` may be part of the same row
    std::memmove(impl_->row(row).data() + offset, slots.data(), slots.size_bytes());
  }
  return {};
}

std::span<SlotId> RequestTable::row(std::size_t row) { return impl_->row(row); }
std::span<const SlotId> RequestTable::row(std::size_t row) const { return impl_->row(row); }

void RequestTable::clear() {
  for (std::size_t row = 0; row < max_rows(); ++row) {
    if (!impl_->rows->is_free(row)) impl_->rows->free(row);
  }
}

std::size_t RequestTable::max_rows() const { return impl_->rows->size(); }
std::size_t RequestTable::row_len() const { return impl_->row_len; }
std::size_t RequestTable::available() const { return impl_->rows->free_count(); }

}  // namespace pando
