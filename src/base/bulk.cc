// SPDX-License-Identifier: Apache-2.0
// See the header. The loops are written so that compilers vectorise them without help.
#include "base/bulk.h"

#include <bit>

// Choosing at load time needs ifuncs, which run before a sanitizer is ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PANDO_MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PANDO_MULTIVERSION
#endif

namespace pando {

PANDO_MULTIVERSION
void expand_pages(const std::uint32_t* pages, std::size_t n, std::size_t page_size, SlotId* out) {
  auto* slots = reinterpret_cast<std::int64_t*>(out);  // SlotId is an int64_t by another name
  if (page_size == 1) {
    for (std::size_t i = 0; i < n; ++i) slots[i] = pages[i];
    return;
  }
  const auto size = static_cast<std::int64_t>(page_size);
  for (std::size_t i = 0; i < n; ++i, slots += size) {
    const std::int64_t base = pages[i] * size;
    for (std::int64_t j = 0; j < size; ++j) slots[j] = base + j;
  }
}

PANDO_MULTIVERSION
std::size_t gather_pages(const SlotId* slots, std::size_t n, std::size_t page_size,
                         std::uint32_t* pages) {
  const int shift = std::countr_zero(page_size);
  for (std::size_t i = 0; i < n; ++i, slots += page_size) {
    const auto first = static_cast<std::uint64_t>(slots[0]);
    std::uint64_t differ = (first & (page_size - 1)) | (first >> shift >> 32);
    for (std::size_t j = 0; j < page_size; ++j)
      differ |= static_cast<std::uint64_t>(slots[j]) ^ (first + j);
    if (differ != 0) return i;
    pages[i] = static_cast<std::uint32_t>(first >> shift);
  }
  return n;
}

PANDO_MULTIVERSION
bool has_negative(const Token* tokens, std::size_t n) {
  Token all = 0;
  for (std::size_t i = 0; i < n; ++i) all |= tokens[i];
  return all < 0;
}

}  // namespace pando
