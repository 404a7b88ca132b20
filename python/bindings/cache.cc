// SPDX-License-Identifier: Apache-2.0
// PrefixCache itself. How one is made is in cache_create.cc, requests in requests.cc, prefetches in
// cache_tiers.cc; its parts are in paths.cc, inspect.cc, cache_retention.cc and tiers_calls.cc.
#include "cache.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

namespace pando::python {

namespace {

void bind_whole(nb::class_<PyCache>& type) {
  type.def(
          "evict",
          [](PyCache& self, std::size_t tokens, std::size_t window_tokens, std::size_t snapshots,
             NamespaceArg ns) {
            const EvictGoal goal{.tokens = tokens,
                                 .window_tokens = window_tokens,
                                 .snapshots = snapshots,
                                 .ns = ns.view()};
            return self.work("evict", tokens + window_tokens >= kLongTokens,
                             [&](PrefixCache& c) { return c.evict(goal); });
          },
          nb::arg("tokens") = 0, nb::kw_only(), nb::arg("window_tokens") = 0,
          nb::arg("snapshots") = 0, nb::arg("ns") = "",
          "Frees at least what is asked, in whole pages, or less when no more is evictable: for "
          "the tenant of a namespace. Other tenants keep what they have up to their floors.")
      .def(
          "reset",
          [](PyCache& self) {
            unwrap(self.work("reset", true, [](PrefixCache& c) { return c.reset(); }));
          },
          "Empties the tree, gives back its slots, ends all pins. Refused while leases are held.")
      .def(
          "allocate_state",
          [](PyCache& self) {
            return unwrap(self.work("allocate_state", false,
                                    [](PrefixCache& c) { return c.allocate_state(); }));
          },
          "A state slot, after evicting a snapshot if none is free.")
      .def(
          "check",
          [](PyCache& self) {
            unwrap(self.work("check", true, [](PrefixCache& c) { return c.check(); }));
          },
          "Proves the invariants of the tree and that no slot has two owners. O(tree).")
      .def(
          "take_events",
          [](PyCache& self) {
            return self.work("take_events", false, [](PrefixCache& c) { return c.take_events(); });
          },
          "Everything since the last call.")
      .def_prop_ro(
          "options",
          [](PyCache& self) {
            PyCacheOptions options;
            options.plain = self.object->options();
            options.retention = PyRetentionOptions::of(options.plain.retention);
            options.plain.retention = {};
            return options;
          },
          "A copy of the plain ones; pools, ranks, observers and clocks are not in it.")
      .def_prop_ro(
          "page_size", [](PyCache& self) { return self.object->page_size(); },
          "The allocator's, in tokens.");
}

}  // namespace

void bind_cache(nb::module_& m) {
  bind_cache_results(m);
  bind_engine_slots(m);
  bind_retention(m);
  bind_lease(m);
  nb::class_<PyCache> type(
      m, "PrefixCache",
      "Answers, for the scheduler of an inference engine: how much of this prompt do I already "
      "hold, keep it there while I use it, give me room for the rest, take what I computed. "
      "Options are keyword arguments, or a CacheOptions.\n\n"
      ">>> allocator = pando.PagedAllocator(1024, page_size=16)\n"
      ">>> cache = pando.PrefixCache(allocator, policy='lru')\n"
      ">>> request = cache.start(np.arange(100))\n"
      ">>> request.cached_length\n"
      "0\n"
      ">>> cache.allocate(request)\n"
      ">>> cache.finish(request)\n"
      ">>> cache.paths.probe(np.arange(100))\n"
      "96\n",
      nb::type_slots(collected_slots<PyCache>));
  bind_cache_create(m, type);
  bind_whole(type);
  bind_cache_tiers(type);
  bind_cache_retention(m, type);
  bind_requests(m, type);
  bind_paths(m, type);
  bind_inspector(m, type);
}

}  // namespace pando::python
