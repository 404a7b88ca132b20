// SPDX-License-Identifier: Apache-2.0
// PrefixCache and the tiers below the device: loading back, storage, prefetches.
#include <nanobind/stl/optional.h>

#include "cache.h"
#include "tiers.h"

namespace pando::python {

void bind_cache_tiers(nb::class_<PyCache>& type) {
  type.def(
          "load_back",
          [](PyCache& self, PyLease& lease, SlotsArg slots, std::optional<std::size_t> quota_tokens,
             LoadOrder order) {
            const SlotsOut out(slots.object);
            const LoadBack loaded = unwrap(self.work("load_back", true, [&](PrefixCache& c) {
              return c.load_back(lease.lease(), out.view(),
                                 {.quota_tokens = quota_tokens, .order = order});
            }));
            lease.grow(loaded.tokens);
            return loaded;
          },
          nb::arg("lease"), nb::arg("slots"), nb::kw_only(), nb::arg("quota_tokens") = nb::none(),
          nb::arg("order") = LoadOrder::by_layer,
          "Brings back what the lease's match found on the host, all or nothing, and writes its "
          "slots to their place in `slots` (one per token of the whole match).")
      .def(
          "poll",
          [](PyCache& self) {
            return self.work("poll", self.object->has_storage(),
                             [](PrefixCache& c) { return c.poll(); });
          },
          "Applies what copies have finished since the last call; once per step of the engine.")
      .def(
          "attach_storage",
          [](PyCache& self, const StorageOptions& options) {
            return unwrap(self.work("attach_storage", true,
                                    [&](PrefixCache& c) { return c.attach_storage(options); }));
          },
          nb::arg("options"), "What is on the host from now on goes to this store too.")
      .def("detach_storage",
           [](PyCache& self) {
             return unwrap(self.work("detach_storage", true,
                                     [](PrefixCache& c) { return c.detach_storage(); }));
           })
      .def(
          "clear_storage",
          [](PyCache& self) {
            unwrap(
                self.work("clear_storage", true, [](PrefixCache& c) { return c.clear_storage(); }));
          },
          "Removes every page from the store.")
      .def_prop_ro("has_storage", [](PyCache& self) { return self.object->has_storage(); })
      .def("storage_stats",
           [](PyCache& self) {
             return self.work("storage_stats", false,
                              [](PrefixCache& c) { return c.storage_stats(); });
           })
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
          nb::arg("id"))
      .def(
          "evict_host",
          [](PyCache& self, std::size_t tokens) {
            return self.work("evict_host", tokens >= kLongTokens,
                             [&](PrefixCache& c) { return c.evict_host(tokens); });
          },
          nb::arg("tokens"), "Drops the least valuable of what is on the host only.")
      .def(
          "host_sizes",
          [](PyCache& self, ComponentKind kind) {
            return self.work("host_sizes", false,
                             [&](PrefixCache& c) { return c.host_sizes(kind); });
          },
          nb::arg("kind") = ComponentKind::full)
      .def(
          "under_way",
          [](PyCache& self) {
            return self.work("under_way", false, [](PrefixCache& c) { return c.under_way(); });
          },
          "What has been started between tiers and not yet been applied by poll().")
      .def("tier_stats",
           [](PyCache& self) {
             return self.work("tier_stats", false, [](PrefixCache& c) { return c.tier_stats(); });
           })
      .def(
          "report_prefill",
          [](PyCache& self, std::size_t num_tokens, double seconds, std::size_t cached_tokens) {
            unwrap(self.work("report_prefill", false, [&](PrefixCache& c) {
              return c.report_prefill(num_tokens, seconds, cached_tokens);
            }));
          },
          nb::arg("num_tokens"), nb::arg("seconds"), nb::kw_only(), nb::arg("cached_tokens") = 0,
          "So many tokens of a prompt, behind `cached_tokens` of it, were computed in so many "
          "seconds. For the cost gate, and for a policy that weighs hits by what they save.");
}
}  // namespace pando::python
