// SPDX-License-Identifier: Apache-2.0
#include "spare_memory.h"

#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>

namespace pando::python {

namespace {

// Blocks by powers of two up to 1 MiB, a few of each: at most 8 MiB in all.
constexpr std::size_t kClasses = 7;
constexpr std::size_t kMaxBytes = kSpareMinBytes << (kClasses - 1);
constexpr std::size_t kPerClass = 4;

struct Shelf {
  std::array<void*, kPerClass> blocks = {};
  std::size_t count = 0;
};

struct Shelves {
  std::mutex mutex;
  std::array<Shelf, kClasses> by_class;
};

Shelves& shelves() {
  static auto* const all = new Shelves;  // outlives whatever gives back at exit
  return *all;
}

std::size_t class_of(std::size_t size_bytes) {
  return static_cast<std::size_t>(std::bit_width((size_bytes - 1) / kSpareMinBytes));
}

}  // namespace

void* take_spare(std::size_t size_bytes) {
  std::size_t wanted = size_bytes;
  if (size_bytes >= kSpareMinBytes && size_bytes <= kMaxBytes) {
    wanted = kSpareMinBytes << class_of(size_bytes);
    const std::lock_guard lock(shelves().mutex);
    Shelf& shelf = shelves().by_class[class_of(size_bytes)];
    if (shelf.count > 0) return shelf.blocks[--shelf.count];
  }
  void* block = std::malloc(wanted == 0 ? 1 : wanted);
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void give_spare(void* block, std::size_t size_bytes) {
  if (size_bytes >= kSpareMinBytes && size_bytes <= kMaxBytes) {
    const std::lock_guard lock(shelves().mutex);
    Shelf& shelf = shelves().by_class[class_of(size_bytes)];
    if (shelf.count < kPerClass) {
      shelf.blocks[shelf.count++] = block;
      return;
    }
  }
  std::free(block);
}

}  // namespace pando::python
