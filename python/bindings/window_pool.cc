// SPDX-License-Identifier: Apache-2.0
// Pools of models that mix full-attention and sliding-window layers.
#include "pools.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "allocators.h"
#include "arrays.h"
#include "buffers.h"
#include "interpreter.h"
#include "rows.h"
#include "structs.h"
#include "tensor_view.h"

namespace pando::python {

namespace {

struct PyWindowPool {
  std::shared_ptr<WindowPool> pool;
  std::shared_ptr<nb::object> slots;  // the allocator, in whose guard calls are made
  MemoryKind kind = MemoryKind::host;
  int device = 0;

  PyWindowAllocator& allocator() const { return nb::cast<PyWindowAllocator&>(*slots); }
};

nb::object side_of(const PyWindowPool& self, KvPool* side) {
  if (side == nullptr) return nb::none();
  return nb::cast(PyKvPool{{self.pool, side}, self.device});
}

void make_window_pool(PyWindowPool* self, const Geometry& geometry, nb::object slots,
                      std::vector<std::size_t> full_layers, std::vector<std::size_t> window_layers,
                      nb::handle arena, DeviceLayout layout) {
  if (!nb::isinstance<PyWindowAllocator>(slots))
    raise_invalid(fmt::format("slots: expected a WindowAllocator, got {}", class_name(slots)));
  const PyArena memory = to_arena(arena);
  const WindowPoolOptions options{.geometry = geometry,
                                  .full_layers = std::move(full_layers),
                                  .window_layers = std::move(window_layers),
                                  .layout = layout};
  std::unique_ptr<WindowPool> pool = nb::cast<PyWindowAllocator&>(slots).call(
      "WindowPool",
      [&](WindowAllocator& a) { return unwrap(WindowPool::create(options, a, *memory.arena)); });
  const std::shared_ptr<nb::object> kept = keep(slots);
  new (self) PyWindowPool{{pool.release(), [memory, kept](WindowPool* p) { delete p; }},
                          kept,
                          memory->kind(),
                          memory->device()};
}

}  // namespace

void bind_window_pool(nb::module_& m) {
  using Py = PyWindowPool;
  Class<Py>(m, "WindowPool")
      .def("__init__", make_window_pool, nb::arg("geometry"), nb::arg("slots"), nb::kw_only(),
           nb::arg("full_layers"), nb::arg("window_layers"), nb::arg("arena") = nb::none(),
           nb::arg("layout") = DeviceLayout::layer_first,
           nb::sig("def __init__(self, geometry: Geometry, slots: WindowAllocator, *, full_layers: "
                   "collections.abc.Sequence[int], window_layers: collections.abc.Sequence[int], "
                   "arena: Arena | None = None, layout: DeviceLayout = ...) "
                   "-> None"))
      .def_prop_ro(
          "full", [](const Py& self) { return side_of(self, self.pool->full()); },
          nb::sig("def full(self) -> KvPool | None"))
      .def_prop_ro(
          "window", [](const Py& self) { return side_of(self, self.pool->window()); },
          nb::sig("def window(self) -> KvPool | None"))
      .def_prop_ro("size_bytes", [](const Py& self) { return self.pool->size_bytes(); })
      .def(
          "regions", [](const Py& self) { return regions_of(self.pool->regions()); },
          nb::sig("def regions(self) -> list[MemoryRegion]"))
      .def(
          "key",
          [](const Py& self, std::size_t layer) {
            return PyTensorView{unwrap(run(true, [&] { return self.pool->key(layer); })), self.kind,
                                self.device, self.pool};
          },
          nb::arg("layer"))
      .def(
          "value",
          [](const Py& self, std::size_t layer) {
            return PyTensorView{unwrap(run(true, [&] { return self.pool->value(layer); })),
                                self.kind, self.device, self.pool};
          },
          nb::arg("layer"))
      .def(
          "set",
          [](Py& self, std::size_t layer, SlotsArg slots, nb::handle planes) {
            const Items<SlotId> items(slots.object, "slots");
            const KvPool* side =
                self.pool->full() != nullptr ? self.pool->full() : self.pool->window();
            const PlanesArg rows(planes, side->geometry(), items.view().size(), self.kind);
            self.allocator().call("WindowPool.set", [&](WindowAllocator&) {
              unwrap(run(true, [&] { return self.pool->set(layer, items, rows.rows()); }));
            });
          },
          nb::arg("layer"), nb::arg("slots"), nb::arg("planes"),
          nb::sig("def set(self, layer: int, slots: numpy.typing.ArrayLike, planes: "
                  "collections.abc.Sequence[typing.Any]) -> None"))
      .def(
          "move",
          [](Py& self, SlotsArg dst, SlotsArg src) {
            const Items<SlotId> to(dst.object, "dst");
            const Items<SlotId> from(src.object, "src");
            self.allocator().call("WindowPool.move", [&](WindowAllocator&) {
              unwrap(run(true, [&] { return self.pool->move(to, from); }));
            });
          },
          nb::arg("dst"), nb::arg("src"));
}

}  // namespace pando::python
