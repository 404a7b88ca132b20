// SPDX-License-Identifier: Apache-2.0
// Pages in the memory of this process, the least recently used ones first to go. Reads, writes and
// questions all count as use: who asks whether a page is there reads it next, or leaves out a
// write.
//
// One lock over the index; bytes are copied and hashed outside it, from blocks that readers share.
// Invariant: order_ and by_key_ name the same pages, whose sizes add up to size_bytes_, which is
// within the capacity.
#include <cstring>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "pando/store_backends.h"

namespace pando {
namespace {

using Block = std::shared_ptr<const std::vector<std::byte>>;

struct Entry {
  std::string key;
  PageTag tag;
  Block bytes;
};

Block copy_of(const StorePage& page) {
  auto bytes = std::make_shared<std::vector<std::byte>>();
  bytes->reserve(page.size_bytes());
  for (const std::span<std::byte>& piece : page.pieces)
    bytes->insert(bytes->end(), piece.begin(), piece.end());
  return bytes;
}

void copy_to(const StorePage& page, const std::byte* from) {
  for (const std::span<std::byte>& piece : page.pieces) {
    if (piece.empty()) continue;
    std::memcpy(piece.data(), from, piece.size());
    from += piece.size();
  }
}

class MemoryStore final : public StoreBackend {
 public:
  explicit MemoryStore(const MemoryStoreOptions& options) : capacity_(options.capacity_bytes) {}

  std::string_view name() const override { return "memory"; }

  void exists(StoreBatch& batch) override {
    for (std::size_t i = 0; i < batch.size() && !batch.stopped(); ++i)
      use(batch.page(i).key) ? batch.done(i) : batch.missing(i);
  }

  void get(StoreBatch& batch) override {
    for (std::size_t i = 0; i < batch.size() && !batch.stopped(); ++i) {
      const StorePage& page = batch.page(i);
      const std::optional<Entry> entry = use(page.key);
      // One of another size is not the page that is asked for, and may be another caller's.
      if (!entry || entry->bytes->size() != page.size_bytes()) {
        batch.missing(i);
      } else {
        copy_to(page, entry->bytes->data());
        if (!batch.arrived(i, entry->tag)) set_aside(*entry);
      }
    }
  }

  void put(StoreBatch& batch) override {
    for (std::size_t i = 0; i < batch.size() && !batch.stopped(); ++i) {
      const StorePage& page = batch.page(i);
      const std::size_t size_bytes = page.size_bytes();
      if (capacity_ != 0 && size_bytes > capacity_) {
        batch.failed(i, fmt::format("{} bytes, more than the {} of the whole memory store",
                                    size_bytes, capacity_));
        continue;
      }
      // A page of another size is not this page: the newer one replaces it.
      if (const auto there = use(page.key); !there || there->bytes->size() != size_bytes)
        insert({page.key, batch.tag(i), copy_of(page)});
      batch.done(i);
    }
  }

  void remove(StoreBatch& batch) override {
    for (std::size_t i = 0; i < batch.size() && !batch.stopped(); ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (const auto at = by_key_.find(batch.page(i).key); at != by_key_.end()) erase(at->second);
      }
      batch.done(i);
    }
  }

  Status clear() override {
    const std::lock_guard lock(mutex_);
    by_key_.clear();
    order_.clear();
    size_bytes_ = 0;
    return {};
  }

  // From a copy, so that the visitor may call the store.
  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    std::vector<StoredPage> pages;
    {
      const std::lock_guard lock(mutex_);
      pages.reserve(order_.size());
      for (const Entry& entry : order_) pages.push_back({entry.key, entry.bytes->size()});
    }
    for (const StoredPage& page : pages)
      if (!visit(page)) break;
    return {};
  }

  BackendStats stats() const override {
    const std::lock_guard lock(mutex_);
    return {.num_pages = order_.size(),
            .size_bytes = size_bytes_,
            .capacity_bytes = capacity_,
            .evicted_pages = evicted_pages_,
            .damaged_pages = damaged_pages_};
  }

 private:
  using Position = std::list<Entry>::iterator;

  std::optional<Entry> use(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto at = by_key_.find(key);
    if (at == by_key_.end()) return {};
    order_.splice(order_.begin(), order_, at->second);
    return *at->second;
  }

  void insert(Entry entry) {
    const std::lock_guard lock(mutex_);
    if (const auto at = by_key_.find(entry.key); at != by_key_.end()) erase(at->second);
    std::list<Entry> one;
    one.push_back(std::move(entry));
    by_key_.emplace(one.front().key, one.begin());  // what may throw comes before any change
    size_bytes_ += one.front().bytes->size();
    order_.splice(order_.begin(), one);
    while (capacity_ != 0 && size_bytes_ > capacity_) {
      erase(std::prev(order_.end()));
      ++evicted_pages_;
    }
  }

  // Unless another put has replaced it meanwhile.
  void set_aside(const Entry& damaged) {
    const std::lock_guard lock(mutex_);
    ++damaged_pages_;
    const auto at = by_key_.find(damaged.key);
    if (at != by_key_.end() && at->second->bytes == damaged.bytes) erase(at->second);
  }

  void erase(Position place) {
    size_bytes_ -= place->bytes->size();
    by_key_.erase(place->key);
    order_.erase(place);
  }

  const std::uint64_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> order_;                                 // most recently used first
  std::unordered_map<std::string_view, Position> by_key_;  // keys are those in order_
  std::uint64_t size_bytes_ = 0;
  std::uint64_t evicted_pages_ = 0;
  std::uint64_t damaged_pages_ = 0;
};

}  // namespace

Result<std::unique_ptr<StoreBackend>> make_memory_store(const MemoryStoreOptions& options) {
  return std::unique_ptr<StoreBackend>(std::make_unique<MemoryStore>(options));
}

}  // namespace pando
