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
  bind_struct<StoreScope>(m, "StoreScope")
      .field("model", &StoreScope::model, "str")
      .field("tp_rank", &StoreScope::tp_rank, "int")
      .field("tp_size", &StoreScope::tp_size, "int")
      .field("pp_rank", &StoreScope::pp_rank, "int")
      .field("pp_size", &StoreScope::pp_size, "int")
      .field("same_on_all_tp_ranks", &StoreScope::same_on_all_tp_ranks, "bool")
      .constructible()
      .done()
      .def("validate", [](const StoreScope& self) { unwrap(self.validate()); });
  if (!nb::type<ComponentKind>().is_valid())
    Enum<ComponentKind>(m, "ComponentKind")
        .value("full", ComponentKind::full)
        .value("window", ComponentKind::window)
        .value("state", ComponentKind::state);
}

void bind_parts(nb::module_& m) {
  bind_struct<RankOf>(m, "RankOf")
      .field("rank", &RankOf::rank, "int")
      .field("size", &RankOf::size, "int")
      .constructible()
      .done()
      .def_equality();
  bind_struct<ParsedKey>(m, "ParsedKey")
      .property(
          "hash", [](const ParsedKey& self) { return from_page_hash(self.hash); },
          [](ParsedKey& self, nb::handle hash) { self.hash = to_page_hash(hash); }, "bytes")
      .field("model", &ParsedKey::model, "str")
      .field("tp", &ParsedKey::tp, "RankOf | None")
      .field("pp", &ParsedKey::pp, "RankOf | None")
      .field("component", &ParsedKey::component, "ComponentKind")
      .field("fingerprint", &ParsedKey::fingerprint, "str")
      .done();
  def(m, "parse_key", &parse_key, nb::arg("key"));
}

}  // namespace

void bind_keys(nb::module_& m) {
  bind_scope(m);
  bind_parts(m);
  Class<KeySpace>(m, "KeySpace")
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
          nb::arg("hash"), nb::sig("def sglang_name(self, hash: bytes) -> str"))
      .def_prop_ro("suffix", [](const KeySpace& self) { return self.suffix(); })
      .def_prop_ro("writes", &KeySpace::writes);
  bind_struct<ImportReport>(m, "ImportReport")
      .field("imported_pages", &ImportReport::imported_pages, "int")
      .field("skipped_files", &ImportReport::skipped_files, "int")
      .field("refused_files", &ImportReport::refused_files, "int")
      .field("failed_pages", &ImportReport::failed_pages, "int")
      .field("first_problem", &ImportReport::first_problem, "str")
      .done();
  def(
      m, "import_sglang_pages",
      [](const std::filesystem::path& directory, const KeySpace& space, std::size_t page_bytes,
         nb::handle to) {
        const std::shared_ptr<StoreBackend> backend = to_backend(to);
        return unwrap(run(true, [&] {
          return import_sglang_pages(directory.string(), space, page_bytes, *backend);
        }));
      },
      nb::arg("directory"), nb::arg("space"), nb::arg("page_bytes"), nb::arg("to"),
      nb::sig("def import_sglang_pages(directory: str | os.PathLike[str], space: KeySpace, "
              "page_bytes: int, to: typing.Any) -> ImportReport"));
}

}  // namespace pando::python
