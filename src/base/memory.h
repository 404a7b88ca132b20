// SPDX-License-Identifier: Apache-2.0
// Memory for the tables that random accesses go to. Large blocks ask for huge pages: a walk through
// a tree of a million leaves otherwise spends more on address translation than on the data.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace pando {

inline constexpr std::size_t kCacheLine = 64;

/// Aligned to a cache line, contents undefined. Throws std::bad_alloc.
void* allocate_table(std::size_t size_bytes);
void free_table(void* table, std::size_t size_bytes);

struct TableDeleter {
  std::size_t size_bytes = 0;
  void operator()(void* table) const { free_table(table, size_bytes); }
};
/// An array whose elements are not constructed: whoever uses one first writes it.
template <typename T>
using Table = std::unique_ptr<T[], TableDeleter>;

template <typename T>
Table<T> make_table(std::size_t n) {
  static_assert(alignof(T) <= kCacheLine);
  return Table<T>(static_cast<T*>(allocate_table(n * sizeof(T))), TableDeleter{n * sizeof(T)});
}

/// For vectors that begin on a cache line.
template <typename T>
struct TableAllocator {
  using value_type = T;
  T* allocate(std::size_t n) { return static_cast<T*>(allocate_table(n * sizeof(T))); }
  void deallocate(T* table, std::size_t n) { free_table(table, n * sizeof(T)); }
  friend bool operator==(TableAllocator, TableAllocator) { return true; }
};
template <typename T>
using TableVector = std::vector<T, TableAllocator<T>>;

}  // namespace pando
