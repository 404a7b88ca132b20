// SPDX-License-Identifier: Apache-2.0
// Blocks of two mebibytes and more start on a huge page and are marked for them; smaller ones come
// from malloc as they are.
#include "base/memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace pando {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

void* allocate_table(std::size_t size_bytes) {
  const std::size_t alignment = size_bytes >= kHugePage ? kHugePage : kLine;
  const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  void* p = std::aligned_alloc(alignment, rounded);
  if (p == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage) madvise(p, rounded, MADV_HUGEPAGE);  // a hint: may be refused
  return p;
}

void free_table(void* p) { std::free(p); }

}  // namespace pando
