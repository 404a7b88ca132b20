// SPDX-License-Identifier: Apache-2.0
// What tests of stores are written in: pages with memory of their own, a backend whose calls wait
// at a gate until a test lets them through, and calls that must be fine.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "pando/store.h"
#include "pando/store_backends.h"
#include "store/dispatch.h"
#include "support/cache_fixture.h"

namespace pando::testing {

/// Keys and bytes. Bytes follow from the key, so that a page can be told from every other.
class TestPages {
 public:
  static constexpr std::size_t kPageBytes = 200;

  explicit TestPages(std::vector<std::string> keys, std::size_t page_bytes = kPageBytes)
      : keys_(std::move(keys)), bytes_(keys_.size(), Bytes(page_bytes)) {}

  using Bytes = std::vector<std::byte>;
  static Bytes bytes_of(const std::string& key, std::size_t page_bytes = kPageBytes) {
    Random random(std::hash<std::string>{}(key));
    Bytes bytes(page_bytes);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() & 0xff);
    return bytes;
  }

  TestPages& fill() {
    for (std::size_t i = 0; i < size(); ++i) bytes_[i] = bytes_of(keys_[i], bytes_[i].size());
    return *this;
  }
  /// In `num_pieces` pieces, the last of which takes what is left over.
  std::vector<StorePage> pages(std::size_t num_pieces = 1) {
    std::vector<StorePage> out;
    for (std::size_t i = 0; i < size(); ++i) {
      StorePage page{keys_[i]};
      const std::size_t each = bytes_[i].size() / num_pieces;
      for (std::size_t p = 0; p + 1 < num_pieces; ++p)
        page.pieces.push_back(std::span(bytes_[i]).subspan(p * each, each));
      page.pieces.push_back(std::span(bytes_[i]).subspan((num_pieces - 1) * each));
      out.push_back(std::move(page));
    }
    return out;
  }

  std::size_t size() const { return keys_.size(); }
  const std::vector<std::string>& keys() const { return keys_; }
  const Bytes& bytes(std::size_t i) const { return bytes_[i]; }
  bool intact(std::size_t i) const { return bytes_[i] == bytes_of(keys_[i], bytes_[i].size()); }
  bool untouched(std::size_t i) const { return bytes_[i] == Bytes(bytes_[i].size()); }

 private:
  std::vector<std::string> keys_;
  std::vector<Bytes> bytes_;
};

inline std::vector<std::string> numbered_keys(std::size_t n, const std::string& prefix = "key") {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < n; ++i) keys.push_back(prefix + std::to_string(i));
  return keys;
}

inline std::vector<PageOutcome> outcomes(const StoreCall& call) {
  std::vector<PageOutcome> out;
  for (std::size_t i = 0; i < call.size(); ++i) out.push_back(call.outcome(i));
  return out;
}

/// A call of a backend without a Store, finished when it returns.
inline std::vector<PageOutcome> run_batch(StoreBackend& backend, StoreBatch::Kind kind,
                                          std::vector<StorePage> pages) {
  StoreBatch batch(kind, std::move(pages), StoreBatch::Clock::time_point::max());
  batch.finish(dispatch(backend, batch));
  std::vector<PageOutcome> out;
  for (std::size_t i = 0; i < batch.size(); ++i) out.push_back(batch.outcome(i));
  return out;
}

inline std::vector<StorePage> key_pages(const std::vector<std::string>& keys) {
  std::vector<StorePage> pages;
  for (const std::string& key : keys) pages.push_back({key});
  return pages;
}

/// Lets threads through while it is open; knows how many have come.
class Gate {
 public:
  void shut() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  /// Until `n` have come since the beginning.
  void await(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= n; });
  }
  std::size_t num_arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true;
  std::size_t arrived_ = 0;
};

/// A memory store behind gates; notes the calls that reach it.
class GatedBackend : public StoreBackend {
 public:
  struct Control {
    Gate reads, writes;
    std::mutex mutex;
    std::vector<std::string> log;  // "get key0", "clear"

    std::vector<std::string> seen() {
      const std::lock_guard lock(mutex);
      return log;
    }
  };
  explicit GatedBackend(std::shared_ptr<Control> control) : control_(std::move(control)) {}

  std::string_view name() const override { return "gated"; }
  void exists(StoreBatch& batch) override {
    enter("exists", &batch, control_->reads);
    inner_->exists(batch);
  }
  void get(StoreBatch& batch) override {
    enter("get", &batch, control_->reads);
    inner_->get(batch);
  }
  void put(StoreBatch& batch) override {
    enter("put", &batch, control_->writes);
    inner_->put(batch);
  }
  void remove(StoreBatch& batch) override {
    enter("remove", &batch, control_->writes);
    inner_->remove(batch);
  }
  Status clear() override {
    enter("clear", nullptr, control_->writes);
    return inner_->clear();
  }
  Status list(const std::function<bool(const StoredPage&)>& visit) override {
    return inner_->list(visit);
  }
  BackendStats stats() const override { return inner_->stats(); }

 private:
  void enter(const char* what, StoreBatch* batch, Gate& gate) {
    {
      const std::lock_guard lock(control_->mutex);
      std::string entry = what;
      if (batch != nullptr && batch->size() > 0) entry.append(" ").append(batch->page(0).key);
      control_->log.push_back(std::move(entry));
    }
    gate.pass();
  }

  std::shared_ptr<Control> control_;
  std::unique_ptr<StoreBackend> inner_ = *make_memory_store();
};

/// One that does what the test says, for all four calls with pages.
class ScriptedBackend : public StoreBackend {
 public:
  using Script = std::function<void(StoreBatch&)>;
  explicit ScriptedBackend(Script script) : script_(std::move(script)) {}

  std::string_view name() const override { return "scripted"; }
  void exists(StoreBatch& batch) override { script_(batch); }
  void get(StoreBatch& batch) override { script_(batch); }
  void put(StoreBatch& batch) override { script_(batch); }
  void remove(StoreBatch& batch) override { script_(batch); }
  Status clear() override { return Error{ErrorCode::io_error, "no clear today"}; }
  Status list(const std::function<bool(const StoredPage&)>& /*visit*/) override { return {}; }
  BackendStats stats() const override { return {}; }

 private:
  Script script_;
};

}  // namespace pando::testing
