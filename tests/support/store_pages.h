// SPDX-License-Identifier: Apache-2.0
// Pages for tests of store backends: keys by number, bytes that follow from the key, and calls of a
// backend that return the outcomes.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pando/store.h"

namespace pando::testing {

/// As a KeySpace makes them; all in 8 of a file store's directories, because making one is slow
/// where tests have removed many.
inline std::string test_key(std::uint64_t number) {
  Random random(number, 1);
  std::string key;
  for (int i = 0; i < 4; ++i) key += fmt::format("{:016x}", random.next());
  key[0] = '0';
  key[1] = static_cast<char>('0' + number % 8);
  return key + "_test-model_0_1_f0123456789abcdef";
}

inline std::vector<std::byte> test_bytes(const std::string& key, std::size_t size_bytes) {
  std::uint64_t seed = size_bytes;
  for (const char c : key) seed = seed * 31 + static_cast<unsigned char>(c);
  Random random(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (std::size_t at = 0; at < size_bytes; at += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, size_bytes - at));
  }
  return bytes;
}

/// How the bytes of a page lie in memory: `num_pieces` pieces, each beginning `offset` bytes after
/// a multiple of 4096.
struct Shape {
  std::size_t size_bytes = 8192;
  std::size_t num_pieces = 1;
  std::size_t offset = 0;
};

/// Memory of the pages of one call.
class TestPages {
 public:
  TestPages(const std::vector<std::string>& keys, const Shape& shape) : shape_(shape) {
    const std::size_t piece_bytes = shape.size_bytes / shape.num_pieces;
    for (const std::string& key : keys) {
      StorePage page{key};
      std::size_t left = shape.size_bytes;
      for (std::size_t i = 0; i < shape.num_pieces; ++i) {
        const std::size_t n = i + 1 == shape.num_pieces ? left : piece_bytes;
        page.pieces.push_back(new_piece(n));
        left -= n;
      }
      pages.push_back(std::move(page));
    }
  }

  void fill() {
    for (const StorePage& page : pages) {
      const std::vector<std::byte> bytes = test_bytes(page.key, shape_.size_bytes);
      std::size_t at = 0;
      for (const auto& piece : page.pieces) {
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.size(), piece.begin());
        at += piece.size();
      }
    }
  }
  bool is_filled(std::size_t i) const {
    std::vector<std::byte> bytes;
    for (const auto& piece : pages[i].pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
    return bytes == test_bytes(pages[i].key, shape_.size_bytes);
  }

  std::vector<StorePage> pages;

 private:
  std::span<std::byte> new_piece(std::size_t size_bytes) {
    memory_.emplace_back(size_bytes + shape_.offset + 2 * 4096);
    auto* begin = memory_.back().data();
    const std::size_t past = reinterpret_cast<std::uintptr_t>(begin) % 4096;
    return {begin + (4096 - past) + shape_.offset, size_bytes};
  }

  Shape shape_;
  std::vector<std::vector<std::byte>> memory_;
};

inline StoreBatch::Clock::time_point no_deadline() { return StoreBatch::Clock::time_point::max(); }

struct Outcomes {
  std::vector<PageOutcome> pages;
  std::string error;        // of the call; empty: none
  bool bytes_right = true;  // of every page that a get says is done

  bool all(PageOutcome outcome) const {
    return std::all_of(pages.begin(), pages.end(), [&](PageOutcome o) { return o == outcome; });
  }
};

inline Outcomes outcomes_of(StoreBatch& batch) {
  batch.finish({});
  Outcomes outcomes;
  for (std::size_t i = 0; i < batch.size(); ++i) outcomes.pages.push_back(batch.outcome(i));
  if (!batch.status()) outcomes.error = batch.status().error().message;
  return outcomes;
}

using Keys = std::vector<std::string>;

inline Outcomes put_pages(StoreBackend& store, const Keys& keys, const Shape& shape = {}) {
  TestPages memory(keys, shape);
  memory.fill();
  StoreBatch batch(StoreBatch::Kind::put, memory.pages, no_deadline());
  store.put(batch);
  return outcomes_of(batch);
}

inline Outcomes get_pages(StoreBackend& store, const Keys& keys, const Shape& shape = {}) {
  TestPages memory(keys, shape);
  StoreBatch batch(StoreBatch::Kind::get, memory.pages, no_deadline());
  store.get(batch);
  Outcomes outcomes = outcomes_of(batch);
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (outcomes.pages[i] == PageOutcome::done) outcomes.bytes_right &= memory.is_filled(i);
  return outcomes;
}

inline std::vector<StorePage> keys_only(const Keys& keys) {
  std::vector<StorePage> pages;
  for (const std::string& key : keys) pages.push_back({key});
  return pages;
}

inline Outcomes pages_exist(StoreBackend& store, const Keys& keys) {
  StoreBatch batch(StoreBatch::Kind::exists, keys_only(keys), no_deadline());
  store.exists(batch);
  return outcomes_of(batch);
}

inline Outcomes remove_pages(StoreBackend& store, const Keys& keys) {
  StoreBatch batch(StoreBatch::Kind::remove, keys_only(keys), no_deadline());
  store.remove(batch);
  return outcomes_of(batch);
}

inline Keys test_keys(std::uint64_t first, std::size_t n) {
  Keys keys;
  for (std::size_t i = 0; i < n; ++i) keys.push_back(test_key(first + i));
  return keys;
}

}  // namespace pando::testing
