// SPDX-License-Identifier: Apache-2.0
// BlockCache as Python holds it: the cache, what it points to, and requests, which keep it alive.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pando/block_cache.h"
#include "pando/observer.h"
#include "pando/ranks.h"
#include "threads.h"
#include "tiers.h"

namespace pando::python {

/// BlockGroup, BlockHostOptions and BlockCacheOptions, with objects of Python's in place of
/// pointers.
struct PyBlockGroup {
  GroupKind kind = GroupKind::full;
  std::size_t block_size = BlockGroup{}.block_size;
  std::size_t span = 0;
  bool every_state = false;
  nb::object pools = nb::none();  ///< TierPools
};
struct PyBlockHostOptions {
  BlockHostOptions plain = {};
  nb::object copier = nb::none();
};
struct PyBlockCacheOptions {
  BlockCacheOptions plain = {};  ///< without groups and host
  std::vector<PyBlockGroup> groups = {PyBlockGroup{}};
  nb::object host = nb::none();  ///< BlockHostOptions
  nb::object observer = nb::none();
  nb::object ranks = nb::none();
};

/// The library's own, over what they refer to.
BlockCacheOptions to_plain(const PyBlockCacheOptions& options, Kept& kept, const SharedGuard& guard,
                           CacheObserver* observer);
/// The options as keyword arguments, for stubs.
inline constexpr const char* kBlockCacheFields =
    "groups: collections.abc.Sequence[BlockGroup] = ..., hash: BlockHashOptions | HashFunction | "
    "str = ..., caching: bool = ..., keep_tokens: bool = ..., deduplicate: bool = ..., policy: "
    "str = ..., events: bool = ..., recompute_last_block: bool = ..., max_tokens: int = ..., host: "
    "BlockHostOptions | None "
    "= ..., observer: object | None = ..., ranks: pando.protocols.Ranks | None = ...";

class PyBlockCache {
 public:
  explicit PyBlockCache(const PyBlockCacheOptions& options);
  ~PyBlockCache();
  PyBlockCache(const PyBlockCache&) = delete;
  PyBlockCache& operator=(const PyBlockCache&) = delete;

  /// Enters the guard, lets go of requests that were forgotten meanwhile, then works; a long call
  /// without the GIL.
  template <typename Work>
  decltype(auto) work(const char* name, bool is_long, Work&& work) {
    const Entry entry(*guard, name);
    if (!late_.empty()) late_.clear();
    const bool waits = ranks != nullptr;
    return run(is_long || waits, [&]() -> decltype(auto) { return work(*object); });
  }
  template <typename Work>
  decltype(auto) call(const char* name, Work&& w) {
    return work(name, false, std::forward<Work>(w));
  }
  template <typename Work>
  decltype(auto) call_long(const char* name, Work&& w) {
    return work(name, true, std::forward<Work>(w));
  }
  /// For destructors: at once if nothing is under way, else at the next call. Needs the GIL.
  void release_soon(BlockRequest request);

  /// Copies and stores may call Python from threads of their own: never wait for them with the GIL.
  bool has_tiers() const { return !options.host.is_none(); }
  int traverse(visitproc visit, void* arg) const;
  void clear_cycles();

  PyBlockCacheOptions options;
  SharedGuard guard = std::make_shared<Guard>();
  Kept kept;
  Kept told;  // of the observer
  std::shared_ptr<CacheObserver> observer;
  std::shared_ptr<Ranks> ranks;
  std::unique_ptr<BlockCache> object;

 private:
  std::vector<BlockRequest> late_;
};

/// Must be let go of before its cache: it holds it, and gives its blocks back when it goes.
class PyBlockRequest {
 public:
  PyBlockRequest(nb::object cache, BlockRequest request)
      : object_(std::move(cache)),
        cache_(&nb::cast<PyBlockCache&>(object_)),
        request_(std::move(request)) {}
  ~PyBlockRequest() { drop(); }
  PyBlockRequest(const PyBlockRequest&) = delete;
  PyBlockRequest& operator=(const PyBlockRequest&) = delete;

  PyBlockCache& cache() const { return *cache_; }
  nb::handle cache_object() const { return object_; }
  /// For a call of this cache; refused if it is another's.
  BlockRequest& in(const PyBlockCache& cache, const char* call);
  /// Looks at it, inside a call of its cache.
  template <typename Look>
  decltype(auto) look(const char* name, Look&& look) {
    return cache().call(name, [&](BlockCache&) -> decltype(auto) { return look(*request_); });
  }
  void drop();

 private:
  nb::object object_;
  PyBlockCache* cache_;
  std::optional<BlockRequest> request_;
};

/// What a pool tells Python. Both the pool and its Python object hold them, so that the garbage
/// collector sees callbacks that refer to the pool.
struct PoolCallbacks {
  nb::object on_evict, on_gone;
};

/// A pool of Python's own, or that of a cache, to look at.
class PyBlockPool {
 public:
  PyBlockPool(std::unique_ptr<BlockPool> pool, std::shared_ptr<PoolCallbacks> callbacks);
  PyBlockPool(const BlockPool& pool, nb::object owner, SharedGuard guard);

  /// Looking may happen in callbacks of this pool; in those of a cache it is refused.
  template <typename Look>
  decltype(auto) look(const char* name, Look&& look) {
    if (own_) return look(*pool_);
    const Entry entry(*guard_, name);
    return look(*pool_);
  }
  template <typename Work>
  decltype(auto) change(const char* name, Work&& work) {
    require_own(name);
    const Entry entry(*guard_, name);
    return work(*own_);
  }
  int traverse(visitproc visit, void* arg) const;
  void clear_cycles();
  /// Tokens of a block of this group.
  std::size_t block_size(std::uint32_t group) const;

  std::vector<std::size_t> block_sizes;

 private:
  void require_own(const char* name) const;

  nb::object owner_;
  std::shared_ptr<PoolCallbacks> callbacks_;
  std::unique_ptr<BlockPool> own_;
  const BlockPool* pool_;
  SharedGuard guard_;
};

/// A list of such hashes and of pages, for Python.
nb::list to_list(std::span<const BlockHash> hashes, std::size_t hash_bytes);

void bind_block_hash(nb::module_& m);
void bind_block_pool(nb::module_& m);
void bind_block_options(nb::module_& m);
void bind_block_cache(nb::module_& m);

}  // namespace pando::python
