// SPDX-License-Identifier: Apache-2.0
// Memory for arrays that come and go with every call. The C library gives large blocks back to the
// kernel as soon as they are freed at the end of the heap, and then every call pays for page faults
// (8192 slots: 4 µs, twice the time of the match itself). Blocks from here are kept for the next.
#pragma once

#include <cstddef>
#include <utility>

namespace pando::python {

/// Worth it from here on; below, malloc.
inline constexpr std::size_t kSpareMinBytes = std::size_t{16} << 10;

/// A block of at least so many bytes, which must go back with the same size. From any thread.
void* take_spare(std::size_t size_bytes);
void give_spare(void* block, std::size_t size_bytes);

/// Memory of the calling function.
template <typename T>
class Scratch {
 public:
  Scratch() = default;
  explicit Scratch(std::size_t size)
      : size_bytes_(size * sizeof(T)), data_(static_cast<T*>(take_spare(size_bytes_))) {}
  ~Scratch() {
    if (data_ != nullptr) give_spare(data_, size_bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  Scratch(Scratch&&) = delete;
  Scratch& operator=(Scratch&& other) noexcept {
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  T* get() const { return data_; }

 private:
  std::size_t size_bytes_ = 0;
  T* data_ = nullptr;
};

}  // namespace pando::python
