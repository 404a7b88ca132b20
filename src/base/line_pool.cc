// SPDX-License-Identifier: Apache-2.0
// Free lists over chunks that double in size up to a huge page.
#include "base/line_pool.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

namespace pando {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kPooling = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kPooling = false;
#else
constexpr bool kPooling = true;
#endif
#else
constexpr bool kPooling = true;
#endif

constexpr std::size_t kFirstChunk = std::size_t{32} << 10;
constexpr std::size_t kLastChunk = std::size_t{2} << 20;

// The heap's own aligned allocation splits and merges chunks; a little room in front is cheaper.
// The word before the block remembers where it began.
void* heap_alloc(std::size_t size_bytes) {
  auto* raw = static_cast<std::byte*>(::operator new(size_bytes + kCacheLine));
  std::byte* block = raw + (kCacheLine - reinterpret_cast<std::uintptr_t>(raw) % kCacheLine);
  std::memcpy(block - sizeof raw, &raw, sizeof raw);
  return block;
}

void heap_free(void* block) {
  std::byte* raw;
  std::memcpy(&raw, static_cast<std::byte*>(block) - sizeof raw, sizeof raw);
  ::operator delete(raw);
}

}  // namespace

void* LinePool::alloc(std::size_t size_bytes) {
  if (!kPooling || size_bytes > kMaxPooled) {
    memory_bytes_ += size_bytes + kCacheLine;
    return heap_alloc(size_bytes);
  }
  const std::size_t lines = (size_bytes + kCacheLine - 1) / kCacheLine;
  if (Free* block = free_[lines]) {
    free_[lines] = block->next;
    return block;
  }
  if (chunk_left_ < lines * kCacheLine) {  // what is left of the old chunk is too small to matter
    chunk_left_ = std::min(kLastChunk, kFirstChunk << std::min<std::size_t>(chunks_.size(), 6));
    chunks_.push_back(make_table<std::byte>(chunk_left_));
    chunk_at_ = chunks_.back().get();
    memory_bytes_ += chunk_left_;
  }
  std::byte* block = chunk_at_;
  chunk_at_ += lines * kCacheLine;
  chunk_left_ -= lines * kCacheLine;
  return block;
}

void LinePool::free(void* block, std::size_t size_bytes) {
  if (!kPooling || size_bytes > kMaxPooled) {
    memory_bytes_ -= size_bytes + kCacheLine;
    heap_free(block);
    return;
  }
  Free*& list = free_[(size_bytes + kCacheLine - 1) / kCacheLine];
  list = new (block) Free{list};
}

}  // namespace pando
