// SPDX-License-Identifier: Apache-2.0
// Builds the stack from the bottom up. Whatever a part refuses is returned as it is.
#include "replay/cache_stack.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/check.h"

namespace pando {
namespace {

/// The least that a token can take.
Geometry smallest_geometry() {
  return mha_geometry(
      {.layers = {.num_layers = 1, .dtype = DType::int8}, .heads = 1, .head_dim = 1});
}

constexpr std::size_t kFileBlockBytes = 4096;  // a page has a header of one, and is rounded up

}  // namespace

Status StackOptions::validate() const {
  if (store_tokens > 0 && host_tokens == 0)
    return Error{ErrorCode::invalid_argument,
                 "a store needs a host tier: its pages come and go through host memory"};
  if (!(window_share > 0 && window_share <= 1))
    return make_error(ErrorCode::invalid_argument, "window share {}: expected more than 0, up to 1",
                      window_share);
  return {};
}

CacheStack::~CacheStack() = default;

Status CacheStack::make_pools(Pools& pools, std::size_t device_tokens, std::size_t host_tokens) {
  Geometry geometry = options_.geometry.value_or(smallest_geometry());
  geometry.page_size = options_.page_size;
  Result<std::unique_ptr<KvPool>> device =
      KvPool::create({.geometry = geometry, .capacity_tokens = device_tokens}, *arena_);
  if (!device) return device.error();
  pools.device = std::move(*device);
  if (host_tokens == 0) return {};
  Result<std::unique_ptr<HostPool>> host =
      HostPool::create({.layout = HostLayout::page_first,
                        .size_bytes = host_tokens / options_.page_size * geometry.page_bytes()},
                       *pools.device, *arena_);
  if (!host) return host.error();
  pools.host = std::move(*host);
  return {};
}

Result<std::unique_ptr<CacheStack>> CacheStack::create(const StackOptions& options) {
  if (Status s = options.validate(); !s) return s.error();
  std::unique_ptr<CacheStack> stack(new CacheStack(options));
  stack->arena_ = make_malloc_arena();
  const auto window_of = [&](std::size_t tokens) {
    const double share = static_cast<double>(tokens) * options.window_share;
    return static_cast<std::size_t>(share) / options.page_size * options.page_size;
  };
  CacheOptions cache_options;
  cache_options.window = options.window;
  cache_options.partial_pages = false;
  cache_options.hash_seed = 1;
  cache_options.remember_evicted = options.remember_evicted;

  if (options.geometry || options.host_tokens > 0) {
    if (Status s = stack->make_pools(stack->full_, options.device_tokens, options.host_tokens); !s)
      return s.error();
    if (options.window) {
      if (Status s = stack->make_pools(stack->window_, window_of(options.device_tokens),
                                       window_of(options.host_tokens));
          !s)
        return s.error();
    }
  }
  if (options.host_tokens > 0) {
    Result<std::unique_ptr<Copier>> copier = make_cpu_copier({.num_threads = options.copy_threads});
    if (!copier) return copier.error();
    stack->copier_ = std::move(*copier);
    cache_options.host = HostTierOptions{
        .full = {stack->full_.device.get(), stack->full_.host.get()},
        .window = {stack->window_.device.get(), stack->window_.host.get()},
        .copier = stack->copier_.get(),
        .write_policy = options.write_policy,
    };
  }

  cache_options.policy = options.policy;
  Result<std::unique_ptr<EvictionPolicy>> policy = std::unique_ptr<EvictionPolicy>{};
  if (options.attention_tokens)
    policy = make_hazard_policy({.cost_aware = true, .attention_tokens = options.attention_tokens});
  if (!policy) return policy.error();
  Result<std::unique_ptr<PrefixCache>> cache = Error{};
  if (options.window) {
    auto slots = WindowAllocator::create({.full_tokens = options.device_tokens,
                                          .window_tokens = window_of(options.device_tokens),
                                          .page_size = options.page_size});
    if (!slots) return slots.error();
    stack->window_slots_ = std::move(*slots);
    cache = PrefixCache::create(cache_options, *stack->window_slots_, std::move(*policy));
  } else {
    auto slots = PagedAllocator::create(
        {.capacity_tokens = options.device_tokens, .page_size = options.page_size});
    if (!slots) return slots.error();
    stack->slots_ = std::move(*slots);
    cache = PrefixCache::create(cache_options, *stack->slots_, std::move(*policy));
  }
  if (!cache) return cache.error();
  stack->cache_ = std::move(*cache);
  if (options.store_tokens > 0) {
    if (Status s = stack->attach_store(); !s) return s.error();
  }
  return stack;
}

std::size_t CacheStack::page_bytes() const { return full_.host->page_bytes(); }

// The capacity in pages becomes bytes as the backend counts them. Prefetches are waited for, so
// that a replay does not depend on how fast a store is.
Status CacheStack::attach_store() {
  const std::size_t at = options_.store_at.find(':');
  const std::string kind = options_.store_at.substr(0, at);
  const std::string where = at == std::string::npos ? "" : options_.store_at.substr(at + 1);
  std::size_t num_pages = options_.store_tokens / options_.page_size;
  if (options_.window) num_pages *= 2;
  nlohmann::json config{{"prefetch_max_tokens", options_.host_tokens},
                        {"prefetch_threshold", options_.page_size}};
  if (kind == "memory" && where.empty()) {
    config["capacity_bytes"] = num_pages * page_bytes();
  } else if (kind == "file" && !where.empty()) {
    const std::size_t rounded =
        (page_bytes() + kFileBlockBytes - 1) / kFileBlockBytes * kFileBlockBytes;
    config["capacity_bytes"] = num_pages * (kFileBlockBytes + rounded);
    config["directory"] = where;
  } else if (kind == "redis" && !where.empty()) {
    config["servers"] = {where};
  } else {
    return make_error(ErrorCode::invalid_argument,
                      "store '{}': expected memory, file:DIRECTORY or redis:HOST:PORT",
                      options_.store_at);
  }
  StorageOptions storage;
  storage.backend = kind;
  storage.options = config.dump();
  storage.scope.model = "replay";
  storage.prefetch_policy = "wait_complete";
  const Result<std::string> attached = cache_->tiers().attach_storage(storage);
  if (!attached) return attached.error();
  return {};
}

std::size_t CacheStack::device_tokens() const {
  return window_slots_ ? window_slots_->full().capacity() : slots_->capacity();
}
std::size_t CacheStack::device_tokens_used() const {
  const PagedAllocator& slots = window_slots_ ? window_slots_->full() : *slots_;
  return slots.capacity() - slots.available();
}
std::size_t CacheStack::host_tokens() const {
  return full_.host ? full_.host->num_pages() * options_.page_size : 0;
}

std::size_t CacheStack::tokens_of(std::uint64_t store_pages) const {
  return store_pages * options_.page_size / (options_.window ? 2 : 1);
}
std::size_t CacheStack::store_tokens_held() const {
  return tokens_of(cache_->tiers().storage_stats().backend.num_pages);
}
std::size_t CacheStack::store_tokens_evicted() const {
  return tokens_of(cache_->tiers().storage_stats().backend.evicted_pages);
}

bool CacheStack::drain() {
  std::size_t failures = 0;
  while (true) {
    const PollResult polled = cache_->poll();
    failures += polled.failures;
    if (polled.idle) break;
    std::this_thread::yield();
  }
  for (KvPool* pool : {full_.device.get(), window_.device.get()}) {
    if (pool != nullptr) pool->open_gate();
  }
  return failures == 0;
}

}  // namespace pando
