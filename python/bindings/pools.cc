// SPDX-License-Identifier: Apache-2.0
// The bytes of a device tier: KvPool.
#include "pools.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "rows.h"
#include "structs.h"
#include "tensor_view.h"

namespace pando::python {

nb::object regions_of(const std::vector<MemoryRegion>& regions) {
  nb::list list;
  for (const MemoryRegion& region : regions) list.append(nb::cast(region));
  return list;
}

namespace {

template <typename Get>
PyTensorView view_of_pool(const PyKvPool& self, Get&& get) {
  return {unwrap(run(true, get)), self.pool->memory_kind(), self.device, self.pool};
}

/// With the arena that it saved to.
struct PySavedKv {
  PyArena arena;
  SavedKv saved;
};

void bind_plane_memory(nb::module_& m) {
  Enum<DeviceLayout>(m, "DeviceLayout")
      .value("layer_first", DeviceLayout::layer_first)
      .value("page_major", DeviceLayout::page_major);
  bind_struct<PlaneMemory>(m, "PlaneMemory")
      .property(
          "layers",
          [](const PlaneMemory& self) {
            std::vector<std::uintptr_t> addresses;
            for (const std::byte* layer : self.layers)
              addresses.push_back(reinterpret_cast<std::uintptr_t>(layer));
            return addresses;
          },
          [](PlaneMemory& self, const std::vector<std::uintptr_t>& addresses) {
            self.layers.clear();
            for (const std::uintptr_t address : addresses)
              self.layers.push_back(reinterpret_cast<std::byte*>(address));
          },
          "list[int]", "collections.abc.Sequence[int]")
      .field("page_stride", &PlaneMemory::page_stride, "int")
      .field("token_stride", &PlaneMemory::token_stride, "int")
      .field("head_stride", &PlaneMemory::head_stride, "int")
      .constructible()
      .done();
  Class<PySavedKv>(m, "SavedKv")
      .def_prop_ro("num_tokens", [](const PySavedKv& self) { return self.saved.num_tokens(); })
      .def_prop_ro("size_bytes", [](const PySavedKv& self) { return self.saved.size_bytes(); });
  def(
      m, "row_of", [](StateSlot slot) { return index_of(row_of(slot)); }, nb::arg("slot"),
      nb::sig("def row_of(slot: StateSlot) -> int"));
}

void bind_kv_views(Class<PyKvPool>& type) {
  type.def(
          "view",
          [](const PyKvPool& self, std::size_t layer, nb::handle plane) {
            std::size_t index = 0;
            std::string name;
            if (nb::try_cast(plane, name))
              index = unwrap(self.pool->geometry().plane_index(name));
            else if (!nb::try_cast(plane, index))
              raise_invalid(fmt::format("plane: expected a name or a number, got {}",
                                        nb::cast<std::string>(nb::repr(plane))));
            return view_of_pool(self, [&] { return self.pool->view(layer, index); });
          },
          nb::arg("layer"), nb::arg("plane"),
          nb::sig("def view(self, layer: int, plane: int | str) -> TensorView"))
      .def(
          "key",
          [](const PyKvPool& self, std::size_t layer) {
            return view_of_pool(self, [&] { return self.pool->key(layer); });
          },
          nb::arg("layer"))
      .def(
          "value",
          [](const PyKvPool& self, std::size_t layer) {
            return view_of_pool(self, [&] { return self.pool->value(layer); });
          },
          nb::arg("layer"));
}

void set_parts(PyKvPool& self, std::size_t layer, SlotsArg slots, nb::handle nope,
               nb::handle rope) {
  const Items<SlotId> items(slots.object, "slots");
  const Plane& plane = self.pool->geometry().planes[0];
  if (plane.first_part == 0)
    raise_invalid(
        fmt::format("set_parts: plane '{}' is not written in parts; use set()", plane.name));
  const auto part = [&](nb::handle rows, const char* what, std::size_t elements) {
    return RowsArg(rows, what, items.view().size(), elements, plane.dtype,
                   self.pool->memory_kind());
  };
  const RowsArg first = part(nope, "nope", std::size_t{plane.heads} * plane.first_part);
  const RowsArg second =
      part(rope, "rope", std::size_t{plane.heads} * (plane.dim - plane.first_part));
  unwrap(
      run(true, [&] { return self.pool->set_parts(layer, items, first.rows(), second.rows()); }));
}

void bind_kv_rows(Class<PyKvPool>& type) {
  type.def(
          "set",
          [](PyKvPool& self, std::size_t layer, SlotsArg slots, nb::handle planes) {
            const Items<SlotId> items(slots.object, "slots");
            const PlanesArg rows(planes, self.pool->geometry(), items.view().size(),
                                 self.pool->memory_kind());
            unwrap(run(true, [&] { return self.pool->set(layer, items, rows.rows()); }));
          },
          nb::arg("layer"), nb::arg("slots"), nb::arg("planes"),
          nb::sig("def set(self, layer: int, slots: numpy.typing.ArrayLike, planes: "
                  "collections.abc.Sequence[typing.Any]) -> None"))
      .def("set_parts", set_parts, nb::arg("layer"), nb::arg("slots"), nb::arg("nope"),
           nb::arg("rope"),
           nb::sig("def set_parts(self, layer: int, slots: numpy.typing.ArrayLike, nope: "
                   "typing.Any, rope: typing.Any) -> None"))
      .def(
          "move",
          [](PyKvPool& self, SlotsArg dst, SlotsArg src) {
            const Items<SlotId> to(dst.object, "dst");
            const Items<SlotId> from(src.object, "src");
            unwrap(run(true, [&] { return self.pool->move(to, from); }));
          },
          nb::arg("dst"), nb::arg("src"))
      .def(
          "save",
          [](const PyKvPool& self, SlotsArg slots, nb::handle arena) {
            const Items<SlotId> items(slots.object, "slots");
            PyArena host = to_arena(arena, self.pool->memory_kind());
            SavedKv saved = unwrap(run(true, [&] { return self.pool->save(items, *host.arena); }));
            return PySavedKv{std::move(host), std::move(saved)};
          },
          nb::arg("slots"), nb::arg("arena") = nb::none(),
          nb::sig("def save(self, slots: numpy.typing.ArrayLike, arena: Arena | None = None) -> "
                  "SavedKv"))
      .def(
          "restore",
          [](PyKvPool& self, const PySavedKv& saved, SlotsArg slots) {
            const Items<SlotId> items(slots.object, "slots");
            unwrap(run(true, [&] { return self.pool->restore(saved.saved, items); }));
          },
          nb::arg("saved"), nb::arg("slots"));
}

void bind_kv_gate(Class<PyKvPool>& type) {
  type.def(
          "gate",
          [](PyKvPool& self, const PyTransfer& load) {
            if (!load.is_load || load.device != self.pool)
              raise_invalid("gate: this transfer is no load of this pool");
            self.pool->gate(load.transfer.signal());
          },
          nb::arg("load"))
      .def("open_gate", [](PyKvPool& self) { self.pool->open_gate(); })
      .def(
          "wait_layer",
          [](const PyKvPool& self, std::size_t layer) {
            unwrap(run(true, [&] { return self.pool->wait_layer(layer); }));
          },
          nb::arg("layer"))
      .def(
          "wait_layer_on",
          [](const PyKvPool& self, std::size_t layer, std::uintptr_t stream) {
            unwrap(run(true, [&] {
              return self.pool->wait_layer_on(layer, reinterpret_cast<void*>(stream));
            }));
          },
          nb::arg("layer"), nb::arg("stream"));
}

void bind_kv_pool(nb::module_& m) {
  Class<PyKvPool> type(m, "KvPool");
  type.def(
          "__init__",
          [](PyKvPool* self, const Geometry& geometry, std::size_t capacity_tokens,
             nb::handle arena, DeviceLayout layout) {
            const PyArena memory = to_arena(arena);
            const PoolOptions options{
                .geometry = geometry, .capacity_tokens = capacity_tokens, .layout = layout};
            std::unique_ptr<KvPool> pool =
                unwrap(run(true, [&] { return KvPool::create(options, *memory.arena); }));
            new (self)
                PyKvPool{{pool.release(), [memory](KvPool* p) { delete p; }}, memory->device()};
          },
          nb::arg("geometry"), nb::arg("capacity_tokens"), nb::arg("arena") = nb::none(),
          nb::arg("layout") = DeviceLayout::layer_first,
          nb::sig("def __init__(self, geometry: Geometry, capacity_tokens: int, arena: Arena | "
                  "None = None, layout: DeviceLayout = ...) -> None"))
      .def_static(
          "adopt", &adopt, nb::arg("geometry"), nb::arg("planes"),
          nb::arg("num_pages") = nb::none(), nb::arg("kind") = nb::none(),
          nb::sig("def adopt(geometry: Geometry, planes: collections.abc.Sequence[typing.Any], "
                  "num_pages: int | None = None, kind: MemoryKind | None = None) -> KvPool"))
      .def_prop_ro("geometry", [](const PyKvPool& self) { return self.pool->geometry(); })
      .def_prop_ro("num_pages", [](const PyKvPool& self) { return self.pool->num_pages(); })
      .def_prop_ro("size_bytes", [](const PyKvPool& self) { return self.pool->size_bytes(); })
      .def_prop_ro("memory_kind", [](const PyKvPool& self) { return self.pool->memory_kind(); })
      .def_prop_ro("planes", [](const PyKvPool& self) { return self.pool->planes(); })
      .def(
          "regions", [](const PyKvPool& self) { return regions_of(self.pool->regions()); },
          nb::sig("def regions(self) -> list[MemoryRegion]"));
  bind_kv_views(type);
  bind_kv_rows(type);
  bind_kv_gate(type);
}

}  // namespace

void bind_pools(nb::module_& m) {
  bind_tensor_view(m);
  bind_rows(m);
  bind_plane_memory(m);
  bind_kv_pool(m);
  bind_window_pool(m);
}

}  // namespace pando::python
