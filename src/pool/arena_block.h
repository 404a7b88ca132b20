// SPDX-License-Identifier: Apache-2.0
// One block of an arena's memory, given back when its owner goes; and the refusal of a block that
// would not fit, before it is asked for.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "pando/pools.h"
#include "pool/memory_limit.h"

namespace pando {

class ArenaBlock {
 public:
  ArenaBlock() = default;

  /// Whether a block of this size can be had and leaves enough; `what` is for the message.
  static Status fits(const Arena& arena, std::size_t size_bytes, std::string_view what,
                     std::size_t keep_free_bytes = 0) {
    const std::size_t available = arena.available_bytes();
    if (size_bytes <= available && available - size_bytes >= keep_free_bytes) return {};
    return make_error(ErrorCode::out_of_capacity,
                      "{} needs {} from arena \"{}\", which has {}; {} of it must stay free", what,
                      describe_bytes(size_bytes), arena.name(), describe_bytes(available),
                      describe_bytes(keep_free_bytes));
  }

  /// Refused before the arena is asked when it does not fit.
  static Result<ArenaBlock> allocate(Arena& arena, std::size_t size_bytes, std::string_view what,
                                     std::size_t keep_free_bytes = 0) {
    if (Status fitting = fits(arena, size_bytes, what, keep_free_bytes); !fitting)
      return fitting.error();
    Result<void*> memory = arena.allocate(size_bytes, kAlignment);
    if (!memory) return make_error(memory.error().code, "{}: {}", what, memory.error().message);
    return ArenaBlock(&arena, static_cast<std::byte*>(*memory), size_bytes);
  }

  ArenaBlock(ArenaBlock&& other) noexcept
      : arena_(std::exchange(other.arena_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  ArenaBlock& operator=(ArenaBlock&& other) noexcept {
    std::swap(arena_, other.arena_);
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~ArenaBlock() {
    if (arena_ != nullptr) arena_->free(data_, size_bytes_);
  }

  std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  static constexpr std::size_t kAlignment = 4096;

  ArenaBlock(Arena* arena, std::byte* data, std::size_t size_bytes)
      : arena_(arena), data_(data), size_bytes_(size_bytes) {}

  Arena* arena_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace pando
