// SPDX-License-Identifier: Apache-2.0
// Inspector: what is in a PrefixCache, and why.
#include "pando/inspect.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "cache.h"
#include "events.h"
#include "observe.h"
#include "structs.h"

namespace pando::python {

void bind_explain(nb::module_& m) {
  nb::enum_<Finding>(m, "Finding", "Why a part of a key is, or is not, cached.")
      .value("on_device", Finding::on_device)
      .value("on_host", Finding::on_host)
      .value("window_gone", Finding::window_gone,
             "Its tokens are there, the window that a match there needs is not.")
      .value("no_snapshot", Finding::no_snapshot,
             "Its tokens are there, but no recurrent state at or behind their end.")
      .value("evicted", Finding::evicted, "Was there; see Eviction.")
      .value("other_namespace", Finding::other_namespace, "Is there, but under another namespace.")
      .value("never_seen", Finding::never_seen, "Or longer ago than is remembered.")
      .value("shorter_than_a_page", Finding::shorter_than_a_page,
             "The tail: only whole pages are cached.")
      .value("disabled", Finding::disabled, "This cache keeps nothing.");
  nb::enum_<Pressure>(m, "Pressure", "Who needed the room.")
      .value("allocate", Pressure::allocate, "A request's new tokens.")
      .value("evict_call", Pressure::evict_call, "The engine asked for it.")
      .value("load_back", Pressure::load_back, "Tokens that came back from the host.")
      .value("host_room", Pressure::host_room, "Copies on their way to a full host.")
      .value("failed_load", Pressure::failed_load, "Nobody: its bytes had not arrived.")
      .value("tenant_cap", Pressure::tenant_cap, "Newer tokens of the same tenant, beyond its cap.")
      .value("session_closed", Pressure::session_closed,
             "Nobody: the only session that used it was closed.");
  bind_struct<Eviction>(m, "Eviction", "How a part of a key was lost.")
      .field("from_tier", &Eviction::from, "Tier", "The last tier that had it.")
      .field("pressure", &Eviction::pressure, "Pressure")
      .field("pressure_tokens", &Eviction::pressure_tokens, "int", "That were to be freed.")
      .field("at_match", &Eviction::at_match, "int",
             "So many calls of match() and start() came before.")
      .done();
  bind_struct<KeyPart>(m, "KeyPart", "Tokens [begin, end) of a key.")
      .field("begin", &KeyPart::from, "int")
      .field("end", &KeyPart::to, "int")
      .field("finding", &KeyPart::finding, "Finding")
      .field("eviction", &KeyPart::eviction, "Eviction | None", "Of `evicted`.")
      .property(
          "ns", [](const KeyPart& p) { return to_bytes(p.ns); },
          [](KeyPart& p, nb::handle ns) { p.ns = from_text(ns, "ns"); }, "bytes",
          "Of `other_namespace`: one of them.")
      .done();
  bind_struct<Explanation>(m, "Explanation",
                           "Why a key is, or is not, in a PrefixCache, part by part.")
      .field("parts", &Explanation::parts, "list[KeyPart]", "In order, without gaps.")
      .field("matches", &Explanation::matches, "int", "Calls of match() and start() so far.")
      .field("forgetful", &Explanation::forgetful, "bool",
             "Evictions had to be forgotten: what was never seen may have been.")
      .done();
}

void bind_inspector(nb::module_& m, nb::class_<PyCache>& cache) {
  auto type = bind_part<Inspector>(
      m, cache, "Inspector", "inspect",
      "What is in a PrefixCache, and why; PrefixCache.inspect gives it. Nothing here changes the "
      "cache.\n\n"
      ">>> cache = pando.PrefixCache(pando.PagedAllocator(64))\n"
      ">>> cache.inspect.sizes().total, cache.inspect.explain([1, 2]).parts[0].finding\n"
      "(0, Finding.never_seen)\n");
  type.def(
          "sizes",
          [](PyInspector& self, ComponentKind kind) {
            return self.work("sizes", false, [&](const Inspector& c) { return c.sizes(kind); });
          },
          nb::arg("kind") = ComponentKind::full)
      .def(
          "host_sizes",
          [](PyInspector& self, ComponentKind kind) {
            return self.work("host_sizes", false,
                             [&](const Inspector& c) { return c.host_sizes(kind); });
          },
          nb::arg("kind") = ComponentKind::full)
      .def(
          "capacity_tokens",
          [](PyInspector& self, Tier tier) {
            return self.work("capacity_tokens", false,
                             [&](const Inspector& c) { return c.capacity_tokens(tier); });
          },
          nb::arg("tier"), "0: no such tier, or an engine's own slots.")
      .def("stats",
           [](PyInspector& self) {
             return self.work("stats", false, [](const Inspector& c) { return c.stats(); });
           })
      .def(
          "explain",
          [](PyInspector& self, TokensArg tokens, NamespaceArg ns) {
            const Items<Token> items(tokens.object, "tokens");
            const Key key = to_key(items, ns);
            return unwrap(
                self.work("explain", true, [&](const Inspector& c) { return c.explain(key); }));
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          "Why each part of the key is, or is not, here.\n\n"
          ">>> cache = pando.PrefixCache(pando.PagedAllocator(64))\n"
          ">>> cache.inspect.explain([1, 2]).parts[0].finding\n"
          "Finding.never_seen\n")
      .def(
          "all_slots",
          [](PyInspector& self) {
            return to_numpy(
                self.work("all_slots", true, [](const Inspector& c) { return c.all_slots(); }));
          },
          nb::sig("def all_slots(self) -> numpy.typing.NDArray[numpy.int64]"),
          "Every slot the tree owns, path by path in token order.")
      .def(
          "dump",
          [](PyInspector& self) {
            return self.work("dump", true, [](const Inspector& c) { return c.dump(); });
          },
          "The tree as text, one node a line.")
      .def(
          "digest",
          [](PyInspector& self) {
            return self.work("digest", true, [](const Inspector& c) { return c.digest(); });
          },
          "A hash of what ranks agree on.")
      .def(
          "events_of_all",
          [](PyInspector& self) {
            return self.work("events_of_all", true,
                             [](const Inspector& c) { return c.events_of_all(); });
          },
          "Stored events of all that is cached now, parents first.")
      .def_prop_ro("num_nodes",
                   [](PyInspector& self) {
                     return self.work("num_nodes", false,
                                      [](const Inspector& c) { return c.num_nodes(); });
                   })
      .def_prop_ro(
          "memory_bytes",
          [](PyInspector& self) {
            return self.work("memory_bytes", false,
                             [](const Inspector& c) { return c.memory_bytes(); });
          },
          "Bookkeeping of the tree, heap included.");
}

}  // namespace pando::python
