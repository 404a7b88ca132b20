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
  nb::enum_<DeviceLayout>(m, "DeviceLayout", "How a device pool lies in memory.")
      .value("layer_first", DeviceLayout::layer_first,
             "A buffer per plane and layer, (slots, heads, dim).")
      .value("page_major", DeviceLayout::page_major,
             "One buffer for all, (planes, layers, pages, page, heads, dim).");
  bind_struct<PlaneMemory>(
      m, "PlaneMemory",
      "Where the rows of one plane are, by address. Head h of slot s in layer l starts at "
      "layers[l] + s // page_size * page_stride + s % page_size * token_stride + h * "
      "head_stride.\n\n"
      ">>> pando.PlaneMemory(layers=[4096], page_stride=64, token_stride=64, head_stride=16)\n"
      "PlaneMemory(layers=[4096], page_stride=64, token_stride=64, head_stride=16)\n")
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
          "list[int]", "Addresses.", "collections.abc.Sequence[int]")
      .field("page_stride", &PlaneMemory::page_stride, "int", "In bytes, as all strides.")
      .field("token_stride", &PlaneMemory::token_stride, "int")
      .field("head_stride", &PlaneMemory::head_stride, "int")
      .constructible()
      .done();
  nb::class_<PySavedKv>(m, "SavedKv", "Rows of some slots in host memory, see KvPool.save().")
      .def_prop_ro("num_tokens", [](const PySavedKv& self) { return self.saved.num_tokens(); })
      .def_prop_ro("size_bytes", [](const PySavedKv& self) { return self.saved.size_bytes(); });
  m.def(
      "row_of", [](StateSlot slot) { return index_of(row_of(slot)); }, nb::arg("slot"),
      nb::sig("def row_of(slot: StateSlot) -> int"),
      "Where a snapshot lies in a pool of state_geometry() with as many tokens as the "
      "StateAllocator has slots.\n\n"
      ">>> pando.row_of(pando.StateAllocator(4).alloc())\n"
      "1\n");
}

void bind_kv_views(nb::class_<PyKvPool>& type) {
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
          nb::sig("def view(self, layer: int, plane: int | str) -> TensorView"),
          "A plane of a layer, by number or name: (slots, heads, dim), or (pages, page, heads, "
          "dim) where slots are not evenly spaced or the pool is page-major. On a CPU this first "
          "waits for loads of that layer, see gate().\n\n"
          ">>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)\n"
          ">>> pool = pando.KvPool(geometry, capacity_tokens=7)\n"
          ">>> pool.view(0, 'value').shape\n"
          "(8, 2, 4)\n")
      .def(
          "key",
          [](const PyKvPool& self, std::size_t layer) {
            return view_of_pool(self, [&] { return self.pool->key(layer); });
          },
          nb::arg("layer"), "Keys as attention reads them: plane 0.")
      .def(
          "value",
          [](const PyKvPool& self, std::size_t layer) {
            return view_of_pool(self, [&] { return self.pool->value(layer); });
          },
          nb::arg("layer"),
          "Values as attention reads them: plane 1; of a latent plane, its first part.");
}

void bind_kv_rows(nb::class_<PyKvPool>& type) {
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
                  "collections.abc.Sequence[typing.Any]) -> None"),
          "Writes one row per slot and plane. A plane's rows are an array (slots, ...) with as "
          "many elements to a row as the plane has, of the pool's own type (or its bits), or "
          "fp16, bf16 or fp32; with a scale, Rows.\n\n"
          ">>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4, "
          "dtype=pando.DType.fp32)\n"
          ">>> pool = pando.KvPool(geometry, capacity_tokens=7)\n"
          ">>> rows = np.arange(8, dtype=np.float32).reshape(1, 2, 4)\n"
          ">>> pool.set(0, [3], [rows, -rows])\n"
          ">>> pool.key(0).numpy()[3, 1]\n"
          "array([4., 5., 6., 7.], dtype=float32)\n")
      .def(
          "set_parts",
          [](PyKvPool& self, std::size_t layer, SlotsArg slots, nb::handle nope, nb::handle rope) {
            const Items<SlotId> items(slots.object, "slots");
            const Plane& plane = self.pool->geometry().planes[0];
            if (plane.first_part == 0)
              raise_invalid(fmt::format("set_parts: plane '{}' is not written in parts; use set()",
                                        plane.name));
            const auto part = [&](nb::handle rows, const char* what, std::size_t elements) {
              return RowsArg(rows, what, items.view().size(), elements, plane.dtype,
                             self.pool->memory_kind());
            };
            const RowsArg first = part(nope, "nope", std::size_t{plane.heads} * plane.first_part);
            const RowsArg second =
                part(rope, "rope", std::size_t{plane.heads} * (plane.dim - plane.first_part));
            unwrap(run(true, [&] {
              return self.pool->set_parts(layer, items, first.rows(), second.rows());
            }));
          },
          nb::arg("layer"), nb::arg("slots"), nb::arg("nope"), nb::arg("rope"),
          nb::sig("def set_parts(self, layer: int, slots: numpy.typing.ArrayLike, nope: "
                  "typing.Any, rope: typing.Any) -> None"),
          "Writes a latent plane from its two parts.")
      .def(
          "move",
          [](PyKvPool& self, SlotsArg dst, SlotsArg src) {
            const Items<SlotId> to(dst.object, "dst");
            const Items<SlotId> from(src.object, "src");
            unwrap(run(true, [&] { return self.pool->move(to, from); }));
          },
          nb::arg("dst"), nb::arg("src"),
          "Slot dst[i] becomes a copy of what src[i] held before the call, in all layers.")
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
                  "SavedKv"),
          "Copies rows out to host memory (pinned for a GPU's pool), for restore().\n\n"
          ">>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)\n"
          ">>> pool = pando.KvPool(geometry, capacity_tokens=7)\n"
          ">>> saved = pool.save([1, 2])\n"
          ">>> pool.restore(saved, [5, 6])\n"
          ">>> saved.num_tokens, saved.size_bytes\n"
          "(2, 64)\n")
      .def(
          "restore",
          [](PyKvPool& self, const PySavedKv& saved, SlotsArg slots) {
            const Items<SlotId> items(slots.object, "slots");
            unwrap(run(true, [&] { return self.pool->restore(saved.saved, items); }));
          },
          nb::arg("saved"), nb::arg("slots"), "Copies saved rows back to as many slots.");
}

void bind_kv_gate(nb::class_<PyKvPool>& type) {
  type.def(
          "gate",
          [](PyKvPool& self, const PyTransfer& load) {
            if (!load.is_load || load.device != self.pool)
              raise_invalid("gate: this transfer is no load of this pool");
            self.pool->gate(load.transfer.signal());
          },
          nb::arg("load"),
          "Views of a layer wait for this load's share of it from now on. A load that fails or is "
          "cancelled makes views errors until open_gate().")
      .def(
          "open_gate", [](PyKvPool& self) { self.pool->open_gate(); }, "Forgets all loads.")
      .def(
          "wait_layer",
          [](const PyKvPool& self, std::size_t layer) {
            unwrap(run(true, [&] { return self.pool->wait_layer(layer); }));
          },
          nb::arg("layer"), "Waits on the gate.")
      .def(
          "wait_layer_on",
          [](const PyKvPool& self, std::size_t layer, std::uintptr_t stream) {
            unwrap(run(true, [&] {
              return self.pool->wait_layer_on(layer, reinterpret_cast<void*>(stream));
            }));
          },
          nb::arg("layer"), nb::arg("stream"),
          "A cudaStream_t waits on the gate; the caller does not.");
}

void bind_kv_pool(nb::module_& m) {
  nb::class_<PyKvPool> type(
      m, "KvPool",
      "The bytes of a device tier: for every slot that an allocator hands out, a row per plane and "
      "layer. `capacity_tokens` is rounded down to whole pages; a padding page, number 0, comes on "
      "top. Without an arena, memory of the heap.\n\n"
      ">>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=4)\n"
      ">>> pool = pando.KvPool(geometry, capacity_tokens=64)\n"
      ">>> pool.num_pages, pool.size_bytes\n"
      "(17, 4352)\n");
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
                  "num_pages: int | None = None, kind: MemoryKind | None = None) -> KvPool"),
          "A pool over an engine's own buffers, which it keeps. For each plane: a list of arrays, "
          "one per layer, or one array with layers as its first dimension; or a PlaneMemory of "
          "addresses, with num_pages. A layer is (slots, heads, dim) or (pages, page, heads, dim) "
          "in any strides, on the CPU or a GPU; of one head, that dimension may be left out. Page "
          "0 is padding.\n\n"
          ">>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=16)\n"
          ">>> kv = [np.zeros((2, 10, 16, 2, 4), np.uint16) for layer in range(2)]\n"
          ">>> pool = pando.KvPool.adopt(geometry, [[t[0] for t in kv], [t[1] for t in kv]])\n"
          ">>> pool.num_pages, pool.key(1).shape\n"
          "(10, (160, 2, 4))\n")
      .def_prop_ro("geometry", [](const PyKvPool& self) { return self.pool->geometry(); })
      .def_prop_ro(
          "num_pages", [](const PyKvPool& self) { return self.pool->num_pages(); },
          "The padding page included.")
      .def_prop_ro(
          "size_bytes", [](const PyKvPool& self) { return self.pool->size_bytes(); },
          "Of all pages.")
      .def_prop_ro("memory_kind", [](const PyKvPool& self) { return self.pool->memory_kind(); })
      .def_prop_ro("planes", [](const PyKvPool& self) { return self.pool->planes(); })
      .def(
          "regions", [](const PyKvPool& self) { return regions_of(self.pool->regions()); },
          nb::sig("def regions(self) -> list[MemoryRegion]"),
          "One per plane and layer; items are rows, in a page-major pool pages. None over an "
          "engine's own buffers.");
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
