// SPDX-License-Identifier: Apache-2.0
// Blocks of two mebibytes and more are mapped on huge-page boundaries and marked for huge pages;
// smaller ones come from the heap. (The heap would map twice the size to align a huge page.)
#include "base/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

namespace pando {
namespace {

constexpr std::align_val_t kLine{kCacheLine};
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t whole_huge_pages(std::size_t size_bytes) {
  return (size_bytes + kHugePage - 1) / kHugePage * kHugePage;
}

void* map_huge(std::size_t size_bytes) {
  // One huge page more than needed, so that there is an aligned part; the rest goes back.
  void* mapped = mmap(nullptr, size_bytes + kHugePage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<std::byte*>(mapped);
  const std::size_t head =
      (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (head > 0) munmap(begin, head);
  munmap(begin + head + size_bytes, kHugePage - head);
  madvise(begin + head, size_bytes, MADV_HUGEPAGE);  // a hint: may be refused
  return begin + head;
}

}  // namespace

void* allocate_table(std::size_t size_bytes) {
  if (size_bytes >= kHugePage) return map_huge(whole_huge_pages(size_bytes));
  return ::operator new(size_bytes, kLine);
}

void free_table(void* table, std::size_t size_bytes) {
  if (size_bytes >= kHugePage) {
    munmap(table, whole_huge_pages(size_bytes));
  } else {
    ::operator delete(table, kLine);
  }
}

}  // namespace pando
