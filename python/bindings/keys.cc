// SPDX-License-Identifier: Apache-2.0
// Names of pages in a store, and pages that another system has stored.
#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>

#include <cstring>

#include "pando/key_space.h"
#include "pando/store_import.h"
#include "stores.h"
#include "structs.h"
#include "threads.h"

namespace pando::python {

PageHash to_page_hash(nb::handle hash) {
  const ByteView view(hash, "hash", false);
  PageHash out;
  if (view.bytes().size() != out.size())
    raise_invalid(fmt::format("hash: {} bytes; expected {}", view.bytes().size(), out.size()));
  std::memcpy(out.data(), view.bytes().data(), out.size());
  return out;
}

nb::bytes from_page_hash(const PageHash& hash) { return nb::bytes(hash.data(), hash.size()); }

namespace {

void bind_scope(nb::module_& m) {
  bind_struct<StoreScope>(m, "StoreScope",
                          "Whose pages they are.\n\n"
                          ">>> pando.StoreScope(model='org/model', tp_rank=1, tp_size=4).tp_rank\n"
                          "1\n")
      .field("model", &StoreScope::model, "str")
      .field("tp_rank", &StoreScope::tp_rank, "int", "Of tensor parallelism.")
      .field("tp_size", &StoreScope::tp_size, "int")
      .field("pp_rank", &StoreScope::pp_rank, "int", "Of pipeline parallelism.")
      .field("pp_size", &StoreScope::pp_size, "int")
      .field("same_on_all_tp_ranks", &StoreScope::same_on_all_tp_ranks, "bool",
             "All tensor ranks have the same bytes (MLA): keys leave the rank out, and rank 0 "
             "writes.")
      .constructible()
      .done()
      .def(
          "validate", [](const StoreScope& self) { unwrap(self.validate()); },
          "Raises InvalidArgument where it makes no sense.");
  if (!nb::type<ComponentKind>().is_valid())
    nb::enum_<ComponentKind>(m, "ComponentKind", "What a node of the tree may hold.")
        .value("full", ComponentKind::full, "KV of the full-attention layers.")
        .value("window", ComponentKind::window, "KV of the sliding-window layers.")
        .value("state", ComponentKind::state, "A snapshot of the recurrent layers.");
}

void bind_parts(nb::module_& m) {
  bind_struct<RankOf>(m, "RankOf", "One of several: of tensor or pipeline parallelism.")
      .field("rank", &RankOf::rank, "int")
      .field("size", &RankOf::size, "int")
      .constructible()
      .done()
      .def(
          "__eq__",
          [](const RankOf& a, nb::handle b) {
            return nb::isinstance<RankOf>(b) && a == nb::cast<RankOf>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  bind_struct<ParsedKey>(m, "ParsedKey", "What a key of a KeySpace says.")
      .property(
          "hash", [](const ParsedKey& self) { return from_page_hash(self.hash); },
          [](ParsedKey& self, nb::handle hash) { self.hash = to_page_hash(hash); }, "bytes")
      .field("model", &ParsedKey::model, "str", "As in the key: '-' for '/'.")
      .field("tp", &ParsedKey::tp, "RankOf | None", "None: all tensor ranks have the same bytes.")
      .field("pp", &ParsedKey::pp, "RankOf | None", "None: one stage.")
      .field("component", &ParsedKey::component, "ComponentKind")
      .field("fingerprint", &ParsedKey::fingerprint, "str", "Of geometry and layout, 16 digits.")
      .done();
  m.def("parse_key", &parse_key, nb::arg("key"),
        "What a key says; None if no KeySpace makes such a key.\n\n"
        ">>> pando.parse_key('nonsense') is None\n"
        "True\n");
}

}  // namespace

void bind_keys(nb::module_& m) {
  bind_scope(m);
  bind_parts(m);
  nb::class_<KeySpace>(
      m, "KeySpace",
      "Names of pages in a store: of the page's hash, and of everything else that makes bytes mean "
      "something. So a page of another geometry can never be found.\n\n"
      ">>> geometry = pando.mha_geometry(num_layers=2, heads=8, head_dim=128)\n"
      ">>> space = pando.KeySpace(pando.StoreScope(model='org/model'), geometry, "
      "pando.HostLayout.page_first)\n"
      ">>> parts = pando.parse_key(space.key(bytes(32)))\n"
      ">>> parts.model, parts.hash == bytes(32)\n"
      "('org-model', True)\n")
      .def(
          "__init__",
          [](KeySpace* self, const StoreScope& scope, const Geometry& geometry, HostLayout layout,
             ComponentKind component, std::uint32_t group) {
            unwrap(scope.validate());
            unwrap(geometry.validate());
            new (self) KeySpace(scope, geometry, layout, component, group);
          },
          nb::arg("scope"), nb::arg("geometry"), nb::arg("layout"),
          nb::arg("component") = ComponentKind::full, nb::arg("group") = 0)
      .def(
          "key", [](const KeySpace& self, nb::handle hash) { return self.key(to_page_hash(hash)); },
          nb::arg("hash"), nb::sig("def key(self, hash: bytes) -> str"))
      .def(
          "sglang_name",
          [](const KeySpace& self, nb::handle hash) {
            return self.sglang_name(to_page_hash(hash));
          },
          nb::arg("hash"), nb::sig("def sglang_name(self, hash: bytes) -> str"),
          "As the raw files of SGLang's file store are named.")
      .def_prop_ro("suffix", [](const KeySpace& self) { return self.suffix(); })
      .def_prop_ro("writes", &KeySpace::writes, "Whether this rank is the one that writes.");
  bind_struct<ImportReport>(m, "ImportReport", "What an import has done.")
      .field("imported_pages", &ImportReport::imported_pages, "int")
      .field("skipped_files", &ImportReport::skipped_files, "int", "Of another model or rank.")
      .field("refused_files", &ImportReport::refused_files, "int",
             "Of another size, or not named like a page.")
      .field("failed_pages", &ImportReport::failed_pages, "int")
      .field("first_problem", &ImportReport::first_problem, "str")
      .done();
  m.def(
      "import_sglang_pages",
      [](const std::filesystem::path& directory, const KeySpace& space, std::size_t page_bytes,
         nb::handle to) {
        const std::shared_ptr<StoreBackend> backend = to_backend(to);
        return unwrap(run(true, [&] {
          return import_sglang_pages(directory.string(), space, page_bytes, *backend);
        }));
      },
      nb::arg("directory"), nb::arg("space"), nb::arg("page_bytes"), nb::arg("to"),
      nb::sig("def import_sglang_pages(directory: str | os.PathLike[str], space: KeySpace, "
              "page_bytes: int, to: typing.Any) -> ImportReport"),
      "Reads the raw files of an SGLang file store and puts those of the space's model and rank "
      "under their keys in `to`, a backend. The files carry no checksum and no geometry: that they "
      "were written with the space's is for the caller to know.\n\n"
      ">>> import tempfile\n"
      ">>> geometry = pando.mha_geometry(num_layers=2, heads=1, head_dim=8, page_size=4)\n"
      ">>> space = pando.KeySpace(pando.StoreScope(model='m'), geometry,\n"
      "...                        pando.HostLayout.page_first)\n"
      ">>> with tempfile.TemporaryDirectory() as empty:\n"
      "...     report = pando.import_sglang_pages(empty, space, geometry.page_bytes,\n"
      "...                                        pando.make_memory_store())\n"
      ">>> report.imported_pages\n"
      "0\n");
}

}  // namespace pando::python
