// SPDX-License-Identifier: Apache-2.0
// EmbeddingCache against a plain list in order of use, searched from end to end.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "pando/embedding_cache.h"
#include "support/random_ops.h"

namespace pando::testing {
namespace {

class Model {
 public:
  void step(std::uint64_t op) {
    const std::string hash = std::to_string(op / 8 % 12);
    switch (op % 8) {
      case 0:
        compare_get(hash);
        break;
      case 1:
        RC_ASSERT(cache_->has(hash) == (find(hash) != items_.end()));
        break;
      case 2:
        if (op / 97 % 16 == 0) {
          cache_->clear();
          items_.clear();
        }
        break;
      default:
        put(hash, op / 128 % 60, static_cast<int>(op / 8192 % 256));
    }
    std::size_t used = 0;
    for (const Item& item : items_) used += item.size;
    RC_ASSERT(cache_->stats().used_bytes == used);
    RC_ASSERT(cache_->size() == items_.size());
    RC_ASSERT(cache_->stats().evictions == evictions_);
    RC_ASSERT(cache_->check().ok());
  }

 private:
  static constexpr std::size_t kCapacity = 50;
  struct Item {
    std::string hash;
    std::size_t size;
    int fill;
  };

  std::vector<Item>::iterator find(const std::string& hash) {
    return std::find_if(items_.begin(), items_.end(),
                        [&](const Item& item) { return item.hash == hash; });
  }

  void compare_get(const std::string& hash) {
    const auto known = find(hash);
    const std::optional<Embedding> found = cache_->get(hash);
    RC_ASSERT(found.has_value() == (known != items_.end()));
    if (!found) return;
    RC_ASSERT(found->size_bytes == known->size);
    RC_ASSERT(found->bytes().back() == static_cast<std::byte>(known->fill));
    std::rotate(known, known + 1, items_.end());
  }

  void put(const std::string& hash, std::size_t size, int fill) {
    const std::vector<std::byte> bytes(size, static_cast<std::byte>(fill));
    const Status status = cache_->put(hash, copy_embedding(bytes));
    RC_ASSERT(status.ok() == (size > 0 && size <= kCapacity));
    if (!status.ok()) return;
    if (const auto known = find(hash); known != items_.end()) items_.erase(known);
    const auto used = [this] {
      std::size_t sum = 0;
      for (const Item& item : items_) sum += item.size;
      return sum;
    };
    for (; used() + size > kCapacity; ++evictions_) items_.erase(items_.begin());
    items_.push_back({hash, size, fill});
  }

  std::unique_ptr<EmbeddingCache> cache_ = *EmbeddingCache::create(kCapacity);
  std::vector<Item> items_;  // least recently used first
  std::uint64_t evictions_ = 0;
};

TEST(EmbeddingCacheModel, AgreesWithAListInOrderOfUse) {
  EXPECT_TRUE(check_random_ops(100'000, [](const std::vector<std::uint64_t>& ops) {
    Model model;
    for (const std::uint64_t op : ops) model.step(op);
  }));
}

}  // namespace
}  // namespace pando::testing
