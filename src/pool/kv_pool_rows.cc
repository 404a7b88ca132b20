// SPDX-License-Identifier: Apache-2.0
// What writes, moves and saves rows of a KvPool: validate everything, then hand a plan to the
// device.
#include <algorithm>
#include <cmath>

#include "pando/pools.h"
#include "pool/convert.h"
#include "pool/kv_pool_impl.h"
#include "pool/plane_memory.h"

namespace pando {
namespace {

std::vector<CopyItem> pairs_of(std::span<const SlotId> dst, std::span<const SlotId> src) {
  std::vector<CopyItem> items;
  items.reserve(dst.size());
  for (std::size_t i = 0; i < dst.size(); ++i)
    items.push_back({static_cast<std::uint64_t>(index_of(dst[i])),
                     static_cast<std::uint64_t>(index_of(src[i]))});
  return items;
}

/// Slots 0, 1, ... of memory that holds as many rows as there are slots at the other end.
std::vector<SlotId> first_slots(std::size_t n) {
  std::vector<SlotId> slots;
  slots.reserve(n);
  for (std::size_t i = 0; i < n; ++i) slots.push_back(static_cast<SlotId>(i));
  return slots;
}

std::vector<SlotId> sorted(std::span<const SlotId> slots) {
  std::vector<SlotId> out(slots.begin(), slots.end());
  std::sort(out.begin(), out.end());
  return out;
}

Status refuse_duplicates(std::string_view call, const std::vector<SlotId>& in_order) {
  const auto twice = std::adjacent_find(in_order.begin(), in_order.end());
  if (twice == in_order.end()) return {};
  return make_error(ErrorCode::invalid_argument, "{}: slot {} is written twice; expected once",
                    call, index_of(*twice));
}

bool overlap(const std::vector<SlotId>& a, const std::vector<SlotId>& b) {
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    if (*i == *j) return true;
    *i < *j ? static_cast<void>(++i) : static_cast<void>(++j);
  }
  return false;
}

}  // namespace

Status KvPool::Impl::check_slots(std::string_view call, std::span<const SlotId> slots,
                                 std::size_t first_slot) const {
  for (const SlotId slot : slots) {
    const std::int64_t index = index_of(slot);
    if (index < static_cast<std::int64_t>(first_slot) ||
        index >= static_cast<std::int64_t>(num_slots()))
      return make_error(ErrorCode::invalid_argument, "{}: slot {} is not in [{}, {})", call, index,
                        first_slot, num_slots());
  }
  return {};
}

Status KvPool::Impl::check_rows(std::string_view call, std::size_t plane, std::size_t count,
                                const Rows& rows) const {
  const Plane& shape = geometry.planes[plane];
  if (!can_convert(rows.dtype, shape.dtype, rows.scale))
    return make_error(ErrorCode::invalid_argument,
                      "{}: rows of {} with scale {} cannot be written to plane '{}' of {}; "
                      "expected fp16, bf16 or fp32, or its own type with scale 1",
                      call, to_string(rows.dtype), rows.scale, shape.name, to_string(shape.dtype));
  if (!(rows.scale > 0 && std::isfinite(rows.scale)))
    return make_error(ErrorCode::invalid_argument,
                      "{}: scale {} of plane '{}'; expected a number above 0", call, rows.scale,
                      shape.name);
  const std::size_t element = size_of(rows.dtype);
  const std::size_t row = shape.heads * count * element;
  if (rows.data == nullptr || reinterpret_cast<std::uintptr_t>(rows.data) % element != 0)
    return make_error(ErrorCode::invalid_argument,
                      "{}: rows of plane '{}' at {}; expected memory aligned to {} bytes", call,
                      shape.name, rows.data, element);
  if (rows.stride_bytes != 0 && (rows.stride_bytes < row || rows.stride_bytes % element != 0))
    return make_error(ErrorCode::invalid_argument,
                      "{}: rows of plane '{}' are {} bytes apart; expected at least {}, and a "
                      "multiple of {}",
                      call, shape.name, rows.stride_bytes, row, element);
  return {};
}

Status KvPool::Impl::write(std::size_t layer, std::size_t plane, std::span<const SlotId> slots,
                           const Rows& rows, std::size_t first, std::size_t count) const {
  const Plane& shape = geometry.planes[plane];
  WritePlan plan{.plane = &shape,
                 .memory = &planes[plane],
                 .layer = layer - geometry.first_layer,
                 .page_size = geometry.page_size,
                 .slots = slots,
                 .rows = rows,
                 .first = first,
                 .count = count};
  if (rows.stride_bytes == 0) plan.rows.stride_bytes = shape.heads * count * size_of(rows.dtype);
  return ops->write(plan);
}

Status KvPool::set(std::size_t layer, std::span<const SlotId> slots, std::span<const Rows> rows) {
  Impl& self = *impl_;
  if (Status valid = self.check_layer(layer); !valid) return valid;
  if (rows.size() != self.planes.size())
    return make_error(ErrorCode::invalid_argument, "set: {} planes are given; expected {}: {}",
                      rows.size(), self.planes.size(), self.geometry.describe());
  if (slots.empty()) return {};  // then there may be no rows to point to
  if (Status valid = self.check_slots("set", slots, 0); !valid) return valid;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (Status valid = self.check_rows("set", i, self.geometry.planes[i].dim, rows[i]); !valid)
      return valid;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (Status done = self.write(layer, i, slots, rows[i], 0, self.geometry.planes[i].dim); !done)
      return done;
  return {};
}

Status KvPool::set_parts(std::size_t layer, std::span<const SlotId> slots, const Rows& nope,
                         const Rows& rope) {
  Impl& self = *impl_;
  if (Status valid = self.check_layer(layer); !valid) return valid;
  const Plane& latent = self.geometry.planes[0];
  if (latent.first_part == 0)
    return make_error(ErrorCode::invalid_argument,
                      "set_parts: plane '{}' is not written in parts; use set()", latent.name);
  if (slots.empty()) return {};
  if (Status valid = self.check_slots("set_parts", slots, 0); !valid) return valid;
  const std::size_t rope_dim = latent.dim - latent.first_part;
  if (Status valid = self.check_rows("set_parts", 0, latent.first_part, nope); !valid) return valid;
  if (Status valid = self.check_rows("set_parts", 0, rope_dim, rope); !valid) return valid;
  if (Status done = self.write(layer, 0, slots, nope, 0, latent.first_part); !done) return done;
  return self.write(layer, 0, slots, rope, latent.first_part, rope_dim);
}

Status KvPool::move(std::span<const SlotId> dst, std::span<const SlotId> src) {
  Impl& self = *impl_;
  if (dst.size() != src.size())
    return make_error(ErrorCode::invalid_argument, "move: {} slots to {} slots; expected as many",
                      src.size(), dst.size());
  if (Status valid = self.check_slots("move", src, 0); !valid) return valid;
  if (Status valid = self.check_slots("move", dst, self.geometry.page_size); !valid) return valid;
  const std::vector<SlotId> targets = sorted(dst);
  if (Status valid = refuse_duplicates("move", targets); !valid) return valid;
  if (dst.empty()) return {};
  if (overlap(targets, sorted(src))) {  // read everything before anything is written
    Result<std::unique_ptr<Arena>> arena =
        self.kind == MemoryKind::cuda ? make_pinned_arena()
                                      : Result<std::unique_ptr<Arena>>(make_malloc_arena());
    if (!arena) return arena.error();
    Result<SavedKv> saved = save(src, **arena);
    if (!saved) return saved.error();
    return restore(*saved, dst);
  }
  return self.ops->copy({.geometry = &self.geometry,
                         .dst = &self.planes,
                         .src = &self.planes,
                         .tokens = 1,
                         .items = pairs_of(dst, src)});
}

Result<SavedKv> KvPool::save(std::span<const SlotId> slots, Arena& host) const {
  const Impl& self = *impl_;
  if (Status valid = self.check_slots("save", slots, 0); !valid) return valid.error();
  if (slots.empty())
    return make_error(ErrorCode::invalid_argument, "save: no slots; expected at least one");
  if (host.kind() == MemoryKind::cuda ||
      (self.kind == MemoryKind::cuda && host.kind() != MemoryKind::pinned))
    return make_error(ErrorCode::invalid_argument,
                      "save: arena \"{}\" is not memory of the host that the pool's device reaches",
                      host.name());
  auto impl = std::make_unique<SavedKv::Impl>();
  impl->geometry = self.geometry;
  impl->num_tokens = slots.size();
  Result<ArenaBlock> block = ArenaBlock::allocate(host, slots.size() * self.geometry.token_bytes(),
                                                  fmt::format("save: {} tokens", slots.size()));
  if (!block) return block.error();
  impl->block = std::move(*block);
  Geometry rows = self.geometry;
  rows.page_size = 1;
  impl->planes = place(rows, HostLayout::layer_first, slots.size(), impl->block.data());
  for (PlaneMemory& memory : impl->planes)
    memory.page_stride = self.geometry.page_size * memory.token_stride;
  Status copied = self.ops->copy({.geometry = &self.geometry,
                                  .dst = &impl->planes,
                                  .src = &self.planes,
                                  .tokens = 1,
                                  .items = pairs_of(first_slots(slots.size()), slots)});
  if (!copied) return copied.error();
  return SavedKv(std::move(impl));
}

Status KvPool::restore(const SavedKv& saved, std::span<const SlotId> slots) {
  Impl& self = *impl_;
  if (saved.impl_ == nullptr)
    return make_error(ErrorCode::invalid_argument, "restore: nothing saved; it was moved from");
  const SavedKv::Impl& from = *saved.impl_;
  if (!(from.geometry == self.geometry))
    return make_error(ErrorCode::invalid_argument,
                      "restore: saved from a pool of other geometry ({}); this one has {}",
                      from.geometry.describe(), self.geometry.describe());
  if (slots.size() != from.num_tokens)
    return make_error(ErrorCode::invalid_argument,
                      "restore: {} slots for {} saved tokens; expected as many", slots.size(),
                      from.num_tokens);
  if (Status valid = self.check_slots("restore", slots, self.geometry.page_size); !valid)
    return valid;
  if (Status valid = refuse_duplicates("restore", sorted(slots)); !valid) return valid;
  return self.ops->copy({.geometry = &self.geometry,
                         .dst = &self.planes,
                         .src = &from.planes,
                         .tokens = 1,
                         .items = pairs_of(slots, first_slots(slots.size()))});
}

SavedKv::SavedKv(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SavedKv::SavedKv(SavedKv&& other) noexcept = default;
SavedKv& SavedKv::operator=(SavedKv&& other) noexcept = default;
SavedKv::~SavedKv() = default;
std::size_t SavedKv::num_tokens() const { return impl_ == nullptr ? 0 : impl_->num_tokens; }
std::size_t SavedKv::size_bytes() const { return impl_ == nullptr ? 0 : impl_->block.size_bytes(); }

}  // namespace pando
