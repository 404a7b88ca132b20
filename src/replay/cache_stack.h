// SPDX-License-Identifier: Apache-2.0
// A cache with everything under it, from one set of options: allocator, pools, host mirror, copier,
// store. What `pando replay` drives is what an engine would: the same classes, wired the same way.
// Without bytes, a token takes two: they move, but nobody looks.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "pando/allocators.h"
#include "pando/cache.h"

namespace pando {

struct StackOptions {
  std::size_t page_size = 16;
  std::size_t device_tokens = 0;
  std::size_t host_tokens = 0;   ///< 0: no host tier
  std::size_t store_tokens = 0;  ///< 0: no store; needs a host tier
  /// "memory", "file:DIRECTORY" or "redis:HOST:PORT".
  std::string store_at = "memory";
  std::string policy = "lru";
  std::optional<double> attention_tokens = {};  ///< set: hazard weighs hits by what they save
  WritePolicy write_policy = WritePolicy::write_through;
  std::optional<std::size_t> window = {};
  double window_share = 0.8;  ///< window slots for each full one
  /// What a token's KV is like, page size left out; without one, nobody looks at bytes.
  std::optional<Geometry> geometry = {};
  std::size_t copy_threads = 1;
  std::size_t remember_evicted = 0;  ///< pages; see CacheOptions

  Status validate() const;
};

class CacheStack {
 public:
  static Result<std::unique_ptr<CacheStack>> create(const StackOptions& options);
  ~CacheStack();

  PrefixCache& cache() { return *cache_; }
  /// Whole pages.
  std::size_t device_tokens() const;
  std::size_t device_tokens_used() const;  ///< by the tree and by requests
  std::size_t host_tokens() const;
  const StackOptions& options() const { return options_; }
  bool has_tiers() const { return options_.host_tokens > 0; }
  bool has_store() const { return options_.store_tokens > 0; }
  /// The bytes, where there are any.
  KvPool* device() { return full_.device.get(); }
  KvPool* device_window() { return window_.device.get(); }
  const WindowAllocator* window_slots() const { return window_slots_.get(); }
  /// Of the store, as far as its backend counts.
  std::size_t store_tokens_held() const;
  std::size_t store_tokens_evicted() const;

  /// Applies everything that is under way, waiting for it. False if some of it failed.
  bool drain();

 private:
  struct Pools {
    std::unique_ptr<KvPool> device;
    std::unique_ptr<HostPool> host;
  };
  explicit CacheStack(const StackOptions& options) : options_(options) {}
  Status make_pools(Pools& pools, std::size_t device_tokens, std::size_t host_tokens);
  Status attach_store();
  std::size_t page_bytes() const;
  /// Tokens of so many pages of the store: a window has pages of its own.
  std::size_t tokens_of(std::uint64_t store_pages) const;

  const StackOptions options_;
  std::unique_ptr<Arena> arena_;
  Pools full_, window_;
  std::unique_ptr<Copier> copier_;
  std::unique_ptr<PagedAllocator> slots_;
  std::unique_ptr<WindowAllocator> window_slots_;
  std::unique_ptr<PrefixCache> cache_;
};

}  // namespace pando
