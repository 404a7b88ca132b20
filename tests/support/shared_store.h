// SPDX-License-Identifier: Apache-2.0
// What tests of caches with a store behind their host tier are written in: one store for several
// caches, which waits where a test says, and a clock that goes when a test says.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "pando/config.h"
#include "support/store_fixture.h"
#include "support/tier_fixture.h"

namespace pando::testing {

// One memory store for several caches, as a server would be; questions and reads wait at gates.
class SharedStore final : public StoreBackend {
 public:
  SharedStore(StoreBackend& inner, Gate& questions, Gate& reads)
      : inner_(inner), questions_(questions), reads_(reads) {}
  std::string_view name() const override { return "shared"; }
  void exists(StoreBatch& batch) override {
    questions_.pass();
    inner_.exists(batch);
  }
  void get(StoreBatch& batch) override {
    reads_.pass();
    inner_.get(batch);
  }
  void put(StoreBatch& batch) override { inner_.put(batch); }
  void remove(StoreBatch& batch) override { inner_.remove(batch); }
  Status clear() override { return inner_.clear(); }
  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    return inner_.list(visit);
  }
  BackendStats stats() const override { return inner_.stats(); }

 private:
  StoreBackend& inner_;
  Gate& questions_;
  Gate& reads_;
};

inline const TierSetup kPages{.page_size = 4};

class StorageTierTest : public ::testing::Test {
 protected:
  StorageTierTest() : inner(*make_memory_store()) {
    static int count = 0;
    name = "shared" + std::to_string(++count);
    register_store(name, [this](const Config& config) -> Result<std::unique_ptr<StoreBackend>> {
      if (Status s = config.refuse_unknown({}); !s) return s.error();
      return std::unique_ptr<StoreBackend>(std::make_unique<SharedStore>(*inner, questions, reads));
    }).value();
  }

  StorageOptions storage(std::string options = R"({"prefetch_threshold": 1})") const {
    StorageOptions o;
    o.backend = name;
    o.options = std::move(options);
    o.scope.model = "test/model";
    o.now = [this] { return now; };
    return o;
  }
  void attach(TieredCache& cache, std::string_view policy = "wait_complete") {
    StorageOptions o = storage();
    o.prefetch_policy = std::string(policy);
    cache->tiers().attach_storage(o).value();
  }
  std::size_t num_stored() const { return inner->stats().num_pages; }
  /// Another cache has computed the key, and the store has it.
  void store(const Tokens& key, const TierSetup& setup = kPages, std::string_view ns = {}) {
    TieredCache writer(setup);
    attach(writer);
    writer.put(key, ns);
    writer.settle();
  }

  // Polls until the policy lets the request go, then ends the prefetch.
  static std::size_t fetch(TieredCache& cache, const Tokens& key, std::string_view ns = {}) {
    const Prefetch prefetch = *cache->prefetch({key, ns});
    EXPECT_EQ(prefetch.outcome, PrefetchOutcome::started) << to_string(prefetch.outcome);
    while (!cache->prefetch_ready(prefetch.id)) (void)cache->poll();
    const std::size_t tokens = cache->end_prefetch(prefetch.id);
    EXPECT_EQ(cache->end_prefetch(prefetch.id), 0u) << "reported once";
    cache.settle();
    EXPECT_TRUE(cache.closes());
    return tokens;
  }

  std::unique_ptr<StoreBackend> inner;
  Gate questions, reads;
  std::string name;
  std::chrono::steady_clock::time_point now = {};
};

}  // namespace pando::testing
