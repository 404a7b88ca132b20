// SPDX-License-Identifier: Apache-2.0
// Tiers: what an operator does with host memory and a store, of a PrefixCache or a BlockCache.
#include "blocks.h"
#include "cache.h"
#include "tiers.h"

namespace pando::python {

/// The same calls on either cache, through its own guard.
template <typename Work>
decltype(auto) PyTiers::work(const char* name, bool long_call, Work&& work) {
  PyCache* tree = nullptr;
  if (nb::try_cast(cache, tree))
    return tree->work(name, long_call, [&](PrefixCache& c) { return work(c.tiers()); });
  return nb::cast<PyBlockCache&>(cache).work(name, long_call,
                                             [&](BlockCache& c) { return work(c.tiers()); });
}

void bind_tiers_calls(nb::module_& m) {
  nb::class_<PyTiers> type(
      m, "Tiers",
      "Host memory and the store behind it: what concerns no single request. PrefixCache.tiers and "
      "BlockCache.tiers give it.\n\n"
      ">>> cache = pando.PrefixCache(pando.PagedAllocator(64))\n"
      ">>> cache.tiers.has_storage, cache.tiers.stats().loaded_tokens\n"
      "(False, 0)\n",
      nb::type_slots(object_slots<PyTiers>));
  type.def(
          "attach_storage",
          [](PyTiers& self, const StorageOptions& options) {
            return unwrap(self.work("attach_storage", true,
                                    [&](Tiers& c) { return c.attach_storage(options); }));
          },
          nb::arg("options"), "What is on the host from now on goes to this store too.")
      .def("detach_storage",
           [](PyTiers& self) {
             return unwrap(
                 self.work("detach_storage", true, [](Tiers& c) { return c.detach_storage(); }));
           })
      .def(
          "clear_storage",
          [](PyTiers& self) {
            unwrap(self.work("clear_storage", true, [](Tiers& c) { return c.clear_storage(); }));
          },
          "Removes every page from the store.")
      .def_prop_ro("has_storage",
                   [](PyTiers& self) {
                     return self.work("has_storage", false,
                                      [](Tiers& c) { return c.has_storage(); });
                   })
      .def("storage_stats",
           [](PyTiers& self) {
             return self.work("storage_stats", false, [](Tiers& c) { return c.storage_stats(); });
           })
      .def(
          "evict_host",
          [](PyTiers& self, std::size_t tokens, std::size_t group) {
            return self.work("evict_host", tokens >= kLongTokens,
                             [&](Tiers& c) { return c.evict_host(tokens, group); });
          },
          nb::arg("tokens"), nb::arg("group") = 0,
          "Drops the least valuable of what is on the host only, of a group of a BlockCache. "
          "Returns the tokens.")
      .def(
          "report_prefill",
          [](PyTiers& self, std::size_t num_tokens, double seconds, std::size_t cached_tokens) {
            unwrap(self.work("report_prefill", false, [&](Tiers& c) {
              return c.report_prefill(num_tokens, seconds, cached_tokens);
            }));
          },
          nb::arg("num_tokens"), nb::arg("seconds"), nb::kw_only(), nb::arg("cached_tokens") = 0,
          "So many tokens of a prompt, behind `cached_tokens` of it, were computed in so many "
          "seconds. For the cost gate, and for a policy that weighs hits by what they save.")
      .def(
          "under_way",
          [](PyTiers& self) {
            return self.work("under_way", false, [](Tiers& c) { return c.under_way(); });
          },
          "What has been started between tiers and not yet been applied by poll().")
      .def("stats", [](PyTiers& self) {
        return self.work("stats", false, [](Tiers& c) { return c.stats(); });
      });
}

}  // namespace pando::python
