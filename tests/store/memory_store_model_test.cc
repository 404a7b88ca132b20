// SPDX-License-Identifier: Apache-2.0
// The memory store against a list of (key, size) in order of use, with random calls of a few pages
// each. Which pages are there, and every count, must agree after each call.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/allocator_model.h"
#include "support/store_fixture.h"

namespace pando::testing {
namespace {

using enum PageOutcome;
using Kind = StoreBatch::Kind;

class Walk {
 public:
  explicit Walk(std::uint64_t capacity_bytes)
      : capacity_(capacity_bytes), store_(*make_memory_store({.capacity_bytes = capacity_bytes})) {}

  static constexpr std::uint32_t kKinds = 12;

  void step(const Op& op) {
    if (op.kind == kKinds - 1) {
      if (op.a % 10 != 0) return;
      RC_ASSERT(store_->clear().ok());
      model_.clear();
      return compare();
    }
    // Puts and gets three times as often as questions and removals.
    const Kind kind = op.kind < 4    ? Kind::put
                      : op.kind < 8  ? Kind::get
                      : op.kind < 10 ? Kind::exists
                                     : Kind::remove;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i <= op.a % 4; ++i)
      keys.push_back(fmt::format("k{}", (op.a + i * (op.b % 3)) % 9));
    // Of a key's two sizes, mostly the same one.
    const std::size_t page_bytes = op.b % 7 == 0 ? 60 : 25;
    TestPages pages(keys, page_bytes);
    if (kind == Kind::put) pages.fill();
    const bool has_bytes = kind == Kind::put || kind == Kind::get;
    const auto got = run_batch(*store_, kind, has_bytes ? pages.pages(2) : key_pages(keys));
    for (std::size_t i = 0; i < keys.size(); ++i) {
      RC_ASSERT(got[i] == expect(kind, keys[i], page_bytes));
      if (kind == Kind::get && got[i] == done) RC_ASSERT(pages.intact(i));
    }
    compare();
  }

 private:
  using Entry = std::pair<std::string, std::size_t>;

  PageOutcome expect(Kind kind, const std::string& key, std::size_t page_bytes) {
    const auto at = std::find_if(model_.begin(), model_.end(),
                                 [&](const Entry& entry) { return entry.first == key; });
    if (kind == Kind::put && capacity_ != 0 && page_bytes > capacity_) return failed;
    std::optional<std::size_t> size;
    if (at != model_.end()) {
      size = at->second;
      model_.erase(at);
    }
    if (kind == Kind::remove) return done;
    if (kind == Kind::put) {
      model_.emplace_back(key, page_bytes);
      while (capacity_ != 0 && total() > capacity_) {
        model_.erase(model_.begin());
        ++evicted_;
      }
      return done;
    }
    if (!size) return missing;
    model_.emplace_back(key, *size);
    return kind == Kind::get && *size != page_bytes ? missing : done;  // and it stays
  }

  std::size_t total() const {
    std::size_t total = 0;
    for (const Entry& entry : model_) total += entry.second;
    return total;
  }

  void compare() const {
    const BackendStats stats = store_->stats();
    RC_ASSERT(stats.num_pages == model_.size());
    RC_ASSERT(stats.size_bytes == total());
    RC_ASSERT(stats.evicted_pages == evicted_);
    RC_ASSERT(stats.damaged_pages == 0u);
    std::map<std::string, std::uint64_t> listed;
    RC_ASSERT(store_
                  ->list([&](const StoredPage& page) {
                    return listed.emplace(page.key, page.size_bytes).second;
                  })
                  .ok());
    RC_ASSERT(listed == (std::map<std::string, std::uint64_t>(model_.begin(), model_.end())));
  }

  const std::uint64_t capacity_;
  std::unique_ptr<StoreBackend> store_;
  std::vector<Entry> model_;  // least recently used first
  std::uint64_t evicted_ = 0;
};

RC_GTEST_PROP(MemoryStoreModel, AgreesWithAListInOrderOfUse, ()) {
  const auto capacity_bytes = *rc::gen::element<std::uint64_t>(0, 30, 60, 100, 151);
  const std::vector<Op> ops = *any_ops(Walk::kKinds);
  Walk walk(capacity_bytes);
  for (const Op& op : ops) walk.step(op);
}

}  // namespace
}  // namespace pando::testing
