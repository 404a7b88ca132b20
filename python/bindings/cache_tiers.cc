// SPDX-License-Identifier: Apache-2.0
// PrefixCache between tiers: what has finished, and prefetches.
#include <nanobind/stl/optional.h>

#include "cache.h"
#include "tiers.h"

namespace pando::python {

void bind_cache_tiers(nb::class_<PyCache>& type) {
  type.def(
          "poll",
          [](PyCache& self) {
            return self.work("poll", self.object->tiers().has_storage(),
                             [](PrefixCache& c) { return c.poll(); });
          },
          "Applies what copies have finished since the last call; once per step of the engine.")
      .def(
          "prefetch",
          [](PyCache& self, TokensArg tokens, NamespaceArg ns) {
            const Items<Token> items(tokens.object, "tokens");
            const Key key = to_key(items, ns);
            return unwrap(
                self.work("prefetch", true, [&](PrefixCache& c) { return c.prefetch(key); }));
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          "Begins to bring pages that the tree does not have from the store to the host.")
      .def(
          "prefetch_ready",
          [](PyCache& self, std::uint64_t id) {
            return self.work("prefetch_ready", false,
                             [&](PrefixCache& c) { return c.prefetch_ready({id}); });
          },
          nb::arg("id"), "Whether the policy lets the request go on.")
      .def(
          "end_prefetch",
          [](PyCache& self, std::uint64_t id) {
            return self.work("end_prefetch", true,
                             [&](PrefixCache& c) { return c.end_prefetch({id}); });
          },
          nb::arg("id"), "Keeps what has arrived; the tokens that the host has more.")
      .def(
          "abort_prefetch",
          [](PyCache& self, std::uint64_t id) {
            self.work("abort_prefetch", true, [&](PrefixCache& c) { c.abort_prefetch({id}); });
          },
          nb::arg("id"));
  type.def_prop_ro(
      "tiers", [](nb::handle self) { return PyTiers{nb::borrow(self)}; },
      nb::for_getter(nb::sig("def tiers(self) -> Tiers")), "Host memory and the store behind it.");
}

}  // namespace pando::python
