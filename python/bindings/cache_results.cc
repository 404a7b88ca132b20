// SPDX-License-Identifier: Apache-2.0
// What calls of a PrefixCache give, and the small types of its headers.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>

#include "cache.h"
#include "structs.h"

namespace pando::python {

namespace {

/// The matched slots. A short match of a long key does not keep the long array.
nb::object matched_slots(PyMatch& self) {
  const std::size_t length = self.match.length;
  if (self.array.is_none()) return nb::none();
  const std::size_t size = nb::len(self.array);
  if (size == length) return self.array;
  nb::object part = self.array[nb::slice(std::size_t{0}, length, std::size_t{1})];
  return size > 2 * length + 64 ? part.attr("copy")() : part;
}

void bind_types(nb::module_& m) {
  nb::enum_<ComponentKind>(m, "ComponentKind", "What a node of the tree may hold.")
      .value("full", ComponentKind::full)
      .value("window", ComponentKind::window)
      .value("state", ComponentKind::state);
  nb::enum_<MatchEnd>(m, "MatchEnd", "Why a match is not longer.")
      .value("whole_key", MatchEnd::whole_key)
      .value("no_such_child", MatchEnd::no_such_child)
      .value("page_boundary", MatchEnd::page_boundary)
      .value("namespace_unknown", MatchEnd::namespace_unknown)
      .value("window_gone", MatchEnd::window_gone)
      .value("no_snapshot", MatchEnd::no_snapshot)
      .value("disabled", MatchEnd::disabled);
  bind_struct<Sizes>(m, "Sizes", "A share of the cache, in tokens (state: in snapshots).")
      .field("evictable", &Sizes::evictable, "int")
      .field("protected_tokens", &Sizes::protected_tokens, "int")
      .field("total", &Sizes::total, "int")
      .done()
      .def(
          "__eq__",
          [](const Sizes& a, nb::handle b) {
            return nb::isinstance<Sizes>(b) && a == nb::cast<Sizes>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  nb::class_<NodeId>(m, "NodeId", "Names a node of the tree, as long as it is there.")
      .def_ro("index", &NodeId::index)
      .def_ro("generation", &NodeId::generation)
      .def("__bool__", [](NodeId id) { return static_cast<bool>(id); })
      .def(
          "__eq__",
          [](NodeId a, nb::handle b) {
            return nb::isinstance<NodeId>(b) && a == nb::cast<NodeId>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](NodeId id) { return (std::size_t{id.generation} << 32) | id.index; })
      .def("__repr__", [](NodeId id) {
        return fmt::format("NodeId(index={}, generation={})", id.index, id.generation);
      });
  m.def(
      "make_namespace",
      [](NamespaceArg lora, NamespaceArg tenant, NamespaceArg salt, NamespaceArg extra) {
        const std::string ns = make_namespace({.lora = lora.view(),
                                               .tenant = tenant.view(),
                                               .salt = salt.view(),
                                               .extra = extra.view()});
        return nb::bytes(ns.data(), ns.size());
      },
      nb::kw_only(), nb::arg("lora") = "", nb::arg("tenant") = "", nb::arg("salt") = "",
      nb::arg("extra") = "",
      "One namespace for all parts that keep equal tokens apart; different for different parts.\n\n"
      ">>> pando.make_namespace(lora='french', tenant='acme')\n"
      "b'l6:frencht4:acme'\n");
}

void bind_results(nb::module_& m) {
  nb::class_<PyMatch>(m, "Match", "What PrefixCache.match() found.")
      .def_prop_ro(
          "length", [](PyMatch& self) { return self.match.length; }, "Tokens on the device.")
      .def_prop_ro("slots", matched_slots,
                   nb::sig("def slots(self) -> numpy.typing.NDArray[numpy.int64] | None"),
                   "Of the `length` tokens; None if they were not wanted.")
      .def_prop_ro("end", [](PyMatch& self) { return self.match.end; })
      .def_prop_ro("node", [](PyMatch& self) { return self.match.node; })
      .def_prop_ro(
          "host_length", [](PyMatch& self) { return self.match.host_length; },
          "So many more tokens can be had by load_back().")
      .def_prop_ro("host_node", [](PyMatch& self) { return self.match.host_node; })
      .def_prop_ro(
          "agreed_length", [](PyMatch& self) { return self.match.agreed_length; },
          "Tokens that the tree has; beyond `length`, a component is missing.")
      .def_prop_ro("snapshot", [](PyMatch& self) { return self.match.snapshot; })
      .def_prop_ro(
          "partial_length", [](PyMatch& self) { return self.match.partial_length; },
          "Further tokens that agree inside the next page, from partial_slot on.")
      .def_prop_ro("partial_slot", [](PyMatch& self) { return index_of(self.match.partial_slot); })
      .def("__repr__", [](PyMatch& self) {
        return fmt::format("Match(length={}, host_length={}, end={})", self.match.length,
                           self.match.host_length, to_string(self.match.end));
      });
  bind_struct<Inserted>(m, "Inserted", "What PrefixCache.insert() did.")
      .field("length", &Inserted::length, "int", "Tokens of the key now in the tree.")
      .field("existing", &Inserted::existing, "int", "Of these, were there before.")
      .field("freed", &Inserted::freed, "int", "Slots given back.")
      .field("revived", &Inserted::revived, "int", "Tokens that have a window again.")
      .field("widened_ranges", &Inserted::widened_ranges, "int",
             "Of the retention, that were not whole pages.")
      .field("node", &Inserted::node, "NodeId")
      .done()
      .def(
          "match", [](const Inserted& self) { return PyMatch{.match = self.match()}; },
          nb::sig("def match(self) -> Match"),
          "What PrefixCache.match() would find of it now, without slots: for lock().\n\n"
          ">>> allocator = pando.PagedAllocator(64)\n"
          ">>> cache = pando.PrefixCache(allocator)\n"
          ">>> with cache.paths.lock(cache.paths.insert([1, 2], allocator.alloc(2)).match()) as "
          "lease:\n"
          "...     cache.inspect.sizes().protected_tokens\n"
          "2\n");
  bind_struct<EvictResult>(m, "EvictResult", "What was freed.")
      .field("tokens", &EvictResult::tokens, "int")
      .field("window_tokens", &EvictResult::window_tokens, "int")
      .field("snapshots", &EvictResult::snapshots, "int")
      .field("nodes", &EvictResult::nodes, "int", "That left the tree.")
      .field("demoted_tokens", &EvictResult::demoted_tokens, "int", "Are still on the host.")
      .done();
  bind_struct<CacheStats>(m, "CacheStats", "Totals since creation or reset(), in tokens.")
      .field("inserted_tokens", &CacheStats::inserted_tokens, "int")
      .field("duplicate_tokens", &CacheStats::duplicate_tokens, "int")
      .field("evicted_tokens", &CacheStats::evicted_tokens, "int")
      .field("evicted_nodes", &CacheStats::evicted_nodes, "int")
      .field("evicted_window_tokens", &CacheStats::evicted_window_tokens, "int")
      .field("evicted_snapshots", &CacheStats::evicted_snapshots, "int")
      .field("revived_tokens", &CacheStats::revived_tokens, "int")
      .done();
}

}  // namespace

void bind_cache_results(nb::module_& m) {
  bind_types(m);
  bind_results(m);
}

}  // namespace pando::python
