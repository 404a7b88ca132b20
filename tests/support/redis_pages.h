// SPDX-License-Identifier: Apache-2.0
// Pages with bytes of their own, and calls of a backend as a Store would make them: batch, call,
// finish. For tests and benchmarks of backends. Belongs to one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "pando/store.h"
#include "store/dispatch.h"

namespace pando::testing {

class Pages {
 public:
  /// `num_pages` pages of `size_bytes`, each in `num_pieces` pieces of about the same size; page i
  /// has key "<name><i>" and bytes that depend on the key and the seed.
  Pages(const std::string& name, std::size_t num_pages, std::size_t size_bytes,
        std::size_t num_pieces = 1, std::uint64_t seed = 0)
      : bytes_(num_pages) {
    for (std::size_t i = 0; i < num_pages; ++i) {
      Random random(seed, i);
      bytes_[i].resize(size_bytes);
      for (std::size_t at = 0; at < size_bytes; at += sizeof(std::uint64_t)) {
        const std::uint64_t word = random.next();
        std::memcpy(&bytes_[i][at], &word, std::min(sizeof(word), size_bytes - at));
      }
      StorePage page{.key = name + std::to_string(i)};
      std::span<std::byte> rest(bytes_[i]);
      for (std::size_t left = num_pieces; left > 0; --left) {
        const std::size_t size = rest.size() / left;
        page.pieces.push_back(rest.first(size));
        rest = rest.subspan(size);
      }
      pages_.push_back(std::move(page));
    }
  }

  std::size_t size() const { return pages_.size(); }
  const std::vector<StorePage>& list() const { return pages_; }
  const std::string& key(std::size_t i) const { return pages_[i].key; }
  std::vector<std::byte>& bytes(std::size_t i) { return bytes_[i]; }

  void wipe() {
    for (std::vector<std::byte>& bytes : bytes_)
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
  bool same_bytes(const Pages& other) const { return bytes_ == other.bytes_; }

 private:
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<StorePage> pages_;
};

/// A batch of them that is ready to be given to a backend.
inline std::shared_ptr<StoreBatch> make_batch(
    StoreBatch::Kind kind, std::vector<StorePage> pages,
    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return std::make_shared<StoreBatch>(kind, std::move(pages), StoreBatch::Clock::now() + timeout);
}

/// Runs the call of the batch's kind, and ends it as a Store would.
inline void run_batch(StoreBackend& store, StoreBatch& batch) {
  batch.finish(dispatch(store, batch));
}

inline std::shared_ptr<StoreBatch> call(
    StoreBackend& store, StoreBatch::Kind kind, const Pages& pages,
    std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  auto batch = make_batch(kind, pages.list(), timeout);
  run_batch(store, *batch);
  return batch;
}

inline std::size_t count(const StoreBatch& batch, PageOutcome outcome) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) n += batch.outcome(i) == outcome ? 1 : 0;
  return n;
}

inline std::string message(const StoreBatch& batch) {
  return batch.status().ok() ? std::string("ok") : batch.status().error().message;
}

}  // namespace pando::testing
