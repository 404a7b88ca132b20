// SPDX-License-Identifier: Apache-2.0
// PrefixCache as Python holds it: the cache, what it points to, and its leases and requests, which
// keep it alive.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "arrays.h"
#include "pando/cache.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "retention.h"
#include "structs.h"
#include "threads.h"

namespace pando::python {

/// CacheOptions, with objects of Python's in place of pointers.
struct PyCacheOptions {
  CacheOptions plain;
  PyRetentionOptions retention;
  nb::object host = nb::none();      ///< HostTierOptions
  nb::object ranks = nb::none();     ///< Ranks, or what takes its place
  nb::object observer = nb::none();  ///< Metrics, TraceRecorder, or what takes their place

  std::array<nb::object*, 4> objects() { return {&host, &ranks, &observer, &retention.now}; }
};

/// Slots of an engine with an allocator of its own, as callables.
struct PyEngineSlots {
  std::size_t max_slots = 0;
  std::size_t page_size = 1;
  nb::object free = nb::none();
  nb::object free_window = nb::none();
  nb::object move_window = nb::none();
  nb::object alloc = nb::none();
  nb::object alloc_window = nb::none();
  nb::object translate = nb::none();

  std::array<nb::object*, 6> objects() {
    return {&free, &free_window, &move_window, &alloc, &alloc_window, &translate};
  }
};
/// Calls them with NumPy arrays. What they raise is told to sys.unraisablehook and counts as a
/// refusal.
EngineSlots to_engine_slots(const PyEngineSlots& slots, Kept& kept);

class PyCache : public Guarded<PrefixCache> {
 public:
  explicit PyCache(std::unique_ptr<PrefixCache> cache) : Guarded(std::move(cache)) {}
  ~PyCache();

  /// Enters the guard, lets go of leases that were forgotten meanwhile, then works; `long_call`
  /// without the GIL, and so does every call of a cache that has ranks, which wait for each other:
  /// they may be threads of this process. `work` must not touch Python.
  template <typename Work>
  decltype(auto) work(const char* name, bool long_call, Work&& work) {
    const Entry entry(*guard, name);
    require_object(name);
    if (has_late_) release_late();
    const bool waits = object->options().ranks != nullptr;
    return run(long_call || waits, [&]() -> decltype(auto) { return work(*object); });
  }
  const CacheOptions& options() const { return object->options(); }
  /// For destructors: at once if nothing is under way, else at the next call.
  void release_soon(Lease lease);
  void abandon_soon(Request request);

 private:
  void release_late();

  std::mutex mutex_;
  std::vector<Lease> late_;
  std::vector<Request> late_requests_;
  std::atomic<bool> has_late_ = false;
};

/// A part of a cache: cache.paths, cache.retention, cache.inspect. It keeps the cache alive, and
/// its calls are the cache's.
template <typename Part>
struct PyPart {
  nb::object cache;

  std::array<nb::object*, 1> objects() { return {&cache}; }
  PyCache& owner() const { return nb::cast<PyCache&>(cache); }
  template <typename Work>
  decltype(auto) work(const char* name, bool long_call, Work&& work) {
    return owner().work(name, long_call,
                        [&](PrefixCache& c) -> decltype(auto) { return work(of(c)); });
  }

 private:
  static decltype(auto) of(PrefixCache& c) {
    if constexpr (std::is_same_v<Part, Paths>) {
      return c.paths();
    } else if constexpr (std::is_same_v<Part, Retention>) {
      return c.retention();
    } else {
      return c.inspect();
    }
  }
};
using PyPaths = PyPart<Paths>;
using PyRetention = PyPart<Retention>;
using PyInspector = PyPart<Inspector>;

/// A class for a part, which the property `name` of a cache gives.
template <typename Part>
nb::class_<PyPart<Part>> bind_part(nb::module_& m, nb::class_<PyCache>& cache, const char* type,
                                   const char* name, const char* doc) {
  nb::class_<PyPart<Part>> part(m, type, doc, nb::type_slots(object_slots<PyPart<Part>>));
  cache.def_prop_ro(
      name, [](nb::handle self) { return PyPart<Part>{nb::borrow(self)}; },
      nb::for_getter(nb::sig(keep_text(fmt::format("def {}(self) -> {}", name, type)))));
  return part;
}

struct PyMatch {
  Match match;
  nb::object array = nb::none();  ///< at least `length` slots
};

/// Move-only through Python too: it lives in one place.
class PyLease {
 public:
  PyLease(nb::object cache, Lease lease, std::size_t length);
  ~PyLease();
  PyLease(const PyLease&) = delete;
  PyLease& operator=(const PyLease&) = delete;

  PyCache& cache() { return nb::cast<PyCache&>(cache_); }
  Lease& lease() { return lease_; }
  /// Tokens on the device that it holds.
  std::size_t length() const { return lease_ ? length_ : 0; }
  void grow(std::size_t tokens) { length_ += tokens; }
  void release();

 private:
  nb::object cache_;
  Lease lease_;
  std::size_t length_;
};

/// A request and its cache, which it keeps alive while it runs. Lives in one place.
class PyRequest {
 public:
  PyRequest(nb::object cache, Request started)
      : cache(std::move(cache)), request(std::move(started)) {}
  ~PyRequest();
  PyRequest(const PyRequest&) = delete;
  PyRequest& operator=(const PyRequest&) = delete;

  nb::object cache;
  Request request;
};

/// What a key of the library is made of: both must outlive it.
inline Key to_key(const Items<Token>& tokens, NamespaceArg ns) { return {tokens, ns.view()}; }

void bind_cache(nb::module_& m);
// Its parts.
void bind_cache_results(nb::module_& m);
void bind_engine_slots(nb::module_& m);
void bind_lease(nb::module_& m);
void bind_cache_create(nb::module_& m, nb::class_<PyCache>& cache);
void bind_cache_tiers(nb::class_<PyCache>& cache);
void bind_paths(nb::module_& m, nb::class_<PyCache>& cache);
void bind_inspector(nb::module_& m, nb::class_<PyCache>& cache);
void bind_cache_retention(nb::module_& m, nb::class_<PyCache>& cache);
void bind_requests(nb::module_& m, nb::class_<PyCache>& cache);

}  // namespace pando::python
