// SPDX-License-Identifier: Apache-2.0
// EmbeddingCache: a list in order of use, and a hash table into it, behind one mutex. The mutex is
// held for pointers alone: values that leave are let go of after it, because the last holder of a
// tensor may have much to do.
//
// Invariant: the table names exactly the items of the list; used_bytes is their sum and at most the
// capacity.
#include "pando/embedding_cache.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/hex.h"
#include "base/page_hash.h"

namespace pando {
namespace {

struct Item {
  std::string hash;
  Embedding embedding;
};
using Items = std::list<Item>;

}  // namespace

Embedding copy_embedding(std::span<const std::byte> bytes) {
  const auto copy = std::make_shared_for_overwrite<std::byte[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return {std::shared_ptr<const void>(copy, copy.get()), bytes.size()};
}

Result<std::string> combined_hash(std::span<const std::string_view> hashes) {
  if (hashes.empty())
    return make_error(ErrorCode::invalid_argument,
                      "combined_hash: of no items; expected one at least");
  std::string text;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i].empty())
      return make_error(ErrorCode::invalid_argument, "combined_hash: the hash of item {} is empty",
                        i);
    for (std::size_t shift = 0; shift < 64; shift += 8)
      text += static_cast<char>(hashes[i].size() >> shift & 0xff);
    text += hashes[i];
  }
  if (hashes.size() == 1) return std::string(hashes[0]);
  std::string out;
  for (const std::uint8_t byte : digest_of(text)) append_hex(out, byte);
  return out;
}

struct EmbeddingCache::Impl {
  // Moves an item to `gone`, to be let go of when the mutex is free.
  void drop(Items::iterator item, Items& gone) {
    by_hash.erase(item->hash);
    stats.used_bytes -= item->embedding.size_bytes;
    gone.splice(gone.end(), items, item);
  }

  const std::size_t capacity;
  mutable std::mutex mutex = {};
  Items items = {};  // least recently used first; their addresses never change
  std::unordered_map<std::string_view, Items::iterator> by_hash = {};
  EmbeddingStats stats = {};
};

Result<std::unique_ptr<EmbeddingCache>> EmbeddingCache::create(std::size_t capacity_bytes) {
  if (capacity_bytes == 0)
    return make_error(ErrorCode::invalid_argument,
                      "embedding cache: capacity is 0 bytes; expected 1 at least");
  return std::unique_ptr<EmbeddingCache>(
      new EmbeddingCache(std::unique_ptr<Impl>(new Impl{.capacity = capacity_bytes})));
}

EmbeddingCache::EmbeddingCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EmbeddingCache::~EmbeddingCache() = default;

Status EmbeddingCache::put(std::string_view hash, Embedding embedding) {
  const std::size_t size = embedding.size_bytes;
  if (hash.empty())
    return make_error(ErrorCode::invalid_argument, "put of an embedding: its hash is empty");
  if (!embedding.data || size == 0)
    return make_error(ErrorCode::invalid_argument,
                      "put of an embedding: {} and {} bytes; expected data of 1 byte at least",
                      embedding.data ? "data" : "no data", size);
  Items fresh;  // made before the mutex is held
  fresh.push_back({std::string(hash), std::move(embedding)});
  Items gone;
  const std::lock_guard lock(impl_->mutex);
  if (size > impl_->capacity) {
    ++impl_->stats.refused;
    return make_error(ErrorCode::out_of_capacity,
                      "put of an embedding: {} bytes, more than the cache's {}", size,
                      impl_->capacity);
  }
  if (const auto old = impl_->by_hash.find(hash); old != impl_->by_hash.end())
    impl_->drop(old->second, gone);
  for (; impl_->stats.used_bytes + size > impl_->capacity; ++impl_->stats.evictions)
    impl_->drop(impl_->items.begin(), gone);
  impl_->items.splice(impl_->items.end(), fresh);
  impl_->by_hash.emplace(impl_->items.back().hash, std::prev(impl_->items.end()));
  impl_->stats.used_bytes += size;
  return {};
}

bool EmbeddingCache::has(std::string_view hash) const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->by_hash.contains(hash);
}

std::optional<Embedding> EmbeddingCache::get(std::string_view hash) {
  const std::lock_guard lock(impl_->mutex);
  const auto found = impl_->by_hash.find(hash);
  if (found == impl_->by_hash.end()) {
    ++impl_->stats.misses;
    return std::nullopt;
  }
  ++impl_->stats.hits;
  impl_->items.splice(impl_->items.end(), impl_->items, found->second);
  return found->second->embedding;
}

void EmbeddingCache::clear() {
  Items gone;
  const std::lock_guard lock(impl_->mutex);
  impl_->by_hash.clear();
  impl_->stats.used_bytes = 0;
  gone.swap(impl_->items);
}

std::size_t EmbeddingCache::size() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->by_hash.size();
}

std::size_t EmbeddingCache::capacity_bytes() const { return impl_->capacity; }

EmbeddingStats EmbeddingCache::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

Status EmbeddingCache::check() const {
  const std::lock_guard lock(impl_->mutex);
  std::size_t bytes = 0;
  for (auto item = impl_->items.begin(); item != impl_->items.end(); ++item) {
    bytes += item->embedding.size_bytes;
    const auto found = impl_->by_hash.find(item->hash);
    if (found == impl_->by_hash.end() || &*found->second != &*item)
      return make_error(ErrorCode::corrupt, "embedding cache: '{}' is not filed under its hash",
                        item->hash);
  }
  if (impl_->by_hash.size() != impl_->items.size())
    return make_error(ErrorCode::corrupt, "embedding cache: {} items, {} hashes",
                      impl_->items.size(), impl_->by_hash.size());
  if (bytes != impl_->stats.used_bytes || bytes > impl_->capacity)
    return make_error(ErrorCode::corrupt, "embedding cache: counts {} bytes, has {}, capacity {}",
                      impl_->stats.used_bytes, bytes, impl_->capacity);
  return {};
}

}  // namespace pando
