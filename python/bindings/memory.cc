// SPDX-License-Identifier: Apache-2.0
// Where memory comes from (arenas), and the shape of what lies in it (geometries).
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "buffers.h"
#include "interpreter.h"
#include "pools.h"
#include "structs.h"

namespace pando::python {

namespace {

PyArena share(std::unique_ptr<Arena> arena, int device = 0) {
  return {std::make_shared<SharedArena>(std::move(arena), device)};
}

PyArena user_arena(nb::handle memory, std::optional<MemoryKind> kind) {
  if (nb::isinstance<MemoryRegion>(memory)) {
    const auto& region = nb::cast<const MemoryRegion&>(memory);
    if (region.address == nullptr)
      raise_invalid("make_user_arena: a region at address 0; expected memory");
    return share(
        make_user_arena({region.address, region.size_bytes}, kind.value_or(MemoryKind::host)));
  }
  if (PyObject_CheckBuffer(memory.ptr())) {
    if (kind == MemoryKind::cuda)
      raise_invalid("make_user_arena: memory with a buffer is the host's; expected its kind so");
    auto view = std::make_unique<ByteView>(memory, "memory", true);
    const std::span<std::byte> bytes = view->bytes();
    const std::shared_ptr<void> kept(view.release(), [](ByteView* held) {
      const nb::gil_scoped_acquire gil;
      delete held;
    });
    return {std::make_shared<SharedArena>(make_user_arena(bytes, kind.value_or(MemoryKind::host)),
                                          0, kept)};
  }
  const Tensor tensor(memory, "memory", true);
  std::size_t size_bytes = tensor.item_bytes();
  for (std::size_t i = tensor.rank(); i-- > 0;) {
    if (tensor.shape(i) > 1 && tensor.stride(i) != static_cast<std::int64_t>(size_bytes))
      raise_invalid("make_user_arena: the tensor is not contiguous");
    size_bytes *= tensor.shape(i);
  }
  if (kind && (*kind == MemoryKind::cuda) != (tensor.kind() == MemoryKind::cuda))
    raise_invalid("make_user_arena: the tensor's device is of another kind than asked for");
  return {std::make_shared<SharedArena>(
      make_user_arena({tensor.data(), size_bytes}, kind.value_or(tensor.kind())), tensor.device(),
      keep(tensor.owner()))};
}

void bind_arenas(nb::module_& m) {
  Enum<MemoryKind>(m, "MemoryKind")
      .value("host", MemoryKind::host)
      .value("pinned", MemoryKind::pinned)
      .value("cuda", MemoryKind::cuda);
  Enum<HugePages>(m, "HugePages")
      .value("transparent", HugePages::transparent)
      .value("reserved", HugePages::reserved);
  bind_struct<MemoryRegion>(m, "MemoryRegion")
      .property(
          "address",
          [](const MemoryRegion& r) { return reinterpret_cast<std::uintptr_t>(r.address); },
          [](MemoryRegion& r, std::uintptr_t address) {
            r.address = reinterpret_cast<std::byte*>(address);
          },
          "int")
      .field("size_bytes", &MemoryRegion::size_bytes, "int")
      .field("item_bytes", &MemoryRegion::item_bytes, "int")
      .constructible()
      .done();
  Class<PyArena>(m, "Arena")
      .def_prop_ro("available_bytes", [](const PyArena& arena) { return arena->available_bytes(); })
      .def_prop_ro("kind", [](const PyArena& arena) { return arena->kind(); })
      .def_prop_ro("name", [](const PyArena& arena) { return std::string(arena->name()); })
      .def("__repr__",
           [](const PyArena& arena) { return fmt::format("<pando.Arena '{}'>", arena->name()); });
  def(m, "make_malloc_arena", [] { return share(make_malloc_arena()); });
  def(
      m, "make_huge_page_arena", [](HugePages kind) { return share(make_huge_page_arena(kind)); },
      nb::arg("kind") = HugePages::transparent);
  def(
      m, "make_numa_arena", [](unsigned node) { return share(unwrap(make_numa_arena(node))); },
      nb::arg("node"));
  def(
      m, "make_user_arena",
      [](nb::handle memory, std::optional<MemoryKind> kind) { return user_arena(memory, kind); },
      nb::arg("memory"), nb::arg("kind") = nb::none(),
      nb::sig("def make_user_arena(memory: typing.Any, kind: MemoryKind | None = None) -> Arena"));
  def(m, "make_pinned_arena", [] { return share(unwrap(make_pinned_arena())); });
  def(
      m, "make_cuda_arena",
      [](int device) { return share(unwrap(make_cuda_arena(device)), device); },
      nb::arg("device") = 0);
  def(m, "available_memory", &available_memory);
}

nb::object planes_of(const Geometry& geometry) {
  nb::list planes;
  for (const Plane& plane : geometry.planes) planes.append(nb::cast(plane));
  return nb::tuple(planes);
}

void bind_geometry_class(nb::module_& m) {
  Enum<DType>(m, "DType")
      .value("fp16", DType::fp16)
      .value("bf16", DType::bf16)
      .value("fp32", DType::fp32)
      .value("fp8_e4m3", DType::fp8_e4m3)
      .value("fp8_e5m2", DType::fp8_e5m2)
      .value("int8", DType::int8);
  def(m, "size_of", &size_of, nb::arg("dtype"));
  bind_struct<Plane>(m, "Plane")
      .field("name", &Plane::name, "str")
      .field("heads", &Plane::heads, "int")
      .field("dim", &Plane::dim, "int")
      .field("dtype", &Plane::dtype, "DType")
      .field("first_part", &Plane::first_part, "int")
      .constructible()
      .done()
      .def_prop_ro("head_bytes", &Plane::head_bytes)
      .def_prop_ro("row_bytes", &Plane::row_bytes)
      .def_equality();
  bind_struct<Geometry>(m, "Geometry")
      .property(
          "planes", &planes_of,
          [](Geometry& self, std::vector<Plane> planes) { self.planes = std::move(planes); },
          "tuple[Plane, ...]", "collections.abc.Sequence[Plane]")
      .field("num_layers", &Geometry::num_layers, "int")
      .field("first_layer", &Geometry::first_layer, "int")
      .field("page_size", &Geometry::page_size, "int")
      .constructible()
      .done()
      .def("validate", [](const Geometry& self) { unwrap(self.validate()); })
      .def_prop_ro("token_bytes", &Geometry::token_bytes)
      .def_prop_ro("page_bytes", [](const Geometry& self) { return self.page_bytes(); })
      .def(
          "plane_page_bytes",
          [](const Geometry& self, const Plane& plane) { return self.page_bytes(plane); },
          nb::arg("plane"))
      .def(
          "plane_index",
          [](const Geometry& self, std::string_view name) {
            return unwrap(self.plane_index(name));
          },
          nb::arg("name"))
      .def("describe", &Geometry::describe)
      .def_equality();
}

LayerRange layers_of(std::size_t num_layers, std::size_t first_layer, std::size_t page_size,
                     DType dtype) {
  return {
      .num_layers = num_layers, .first_layer = first_layer, .page_size = page_size, .dtype = dtype};
}

void bind_head_families(nb::module_& m) {
  def(
      m, "mha_geometry",
      [](std::size_t num_layers, std::uint32_t heads, std::uint32_t head_dim,
         std::uint32_t value_dim, std::size_t page_size, DType dtype, std::size_t first_layer) {
        return mha_geometry({.layers = layers_of(num_layers, first_layer, page_size, dtype),
                             .heads = heads,
                             .head_dim = head_dim,
                             .value_dim = value_dim});
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("heads"), nb::arg("head_dim"),
      nb::arg("value_dim") = 0, nb::arg("page_size") = 1, nb::arg("dtype") = DType::bf16,
      nb::arg("first_layer") = 0);
  def(
      m, "double_sparse_geometry",
      [](std::size_t num_layers, std::uint32_t heads, std::uint32_t head_dim,
         std::uint32_t label_dim, std::uint32_t value_dim, std::size_t page_size, DType dtype,
         std::size_t first_layer) {
        return double_sparse_geometry(
            {.mha = {.layers = layers_of(num_layers, first_layer, page_size, dtype),
                     .heads = heads,
                     .head_dim = head_dim,
                     .value_dim = value_dim},
             .label_dim = label_dim});
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("heads"), nb::arg("head_dim"),
      nb::arg("label_dim"), nb::arg("value_dim") = 0, nb::arg("page_size") = 1,
      nb::arg("dtype") = DType::bf16, nb::arg("first_layer") = 0);
  def(
      m, "state_geometry",
      [](std::size_t num_layers, std::vector<Plane> planes) {
        return state_geometry(num_layers, std::move(planes));
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("planes"));
}

void bind_latent_families(nb::module_& m) {
  def(
      m, "mla_geometry",
      [](std::size_t num_layers, std::uint32_t nope_dim, std::uint32_t rope_dim, bool split,
         std::size_t page_size, DType dtype, std::size_t first_layer) {
        return mla_geometry({.layers = layers_of(num_layers, first_layer, page_size, dtype),
                             .nope_dim = nope_dim,
                             .rope_dim = rope_dim,
                             .split = split});
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("nope_dim"), nb::arg("rope_dim"),
      nb::arg("split") = false, nb::arg("page_size") = 1, nb::arg("dtype") = DType::bf16,
      nb::arg("first_layer") = 0);
  def(
      m, "dsa_geometry",
      [](std::size_t num_layers, std::uint32_t nope_dim, std::uint32_t rope_dim,
         std::uint32_t index_dim, DType index_dtype, bool index_scale, bool split,
         std::size_t page_size, DType dtype, std::size_t first_layer) {
        return dsa_geometry({.mla = {.layers = layers_of(num_layers, first_layer, page_size, dtype),
                                     .nope_dim = nope_dim,
                                     .rope_dim = rope_dim,
                                     .split = split},
                             .index_dim = index_dim,
                             .index_dtype = index_dtype,
                             .index_scale = index_scale});
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("nope_dim"), nb::arg("rope_dim"),
      nb::arg("index_dim"), nb::arg("index_dtype") = DType::fp8_e4m3,
      nb::arg("index_scale") = false, nb::arg("split") = false, nb::arg("page_size") = 1,
      nb::arg("dtype") = DType::bf16, nb::arg("first_layer") = 0);
}

}  // namespace

PyArena to_arena(nb::handle arena, MemoryKind device) {
  if (!arena.is_none()) {
    if (!nb::isinstance<PyArena>(arena))
      raise_invalid(fmt::format("arena: expected an Arena or None, got {}", class_name(arena)));
    return nb::cast<PyArena>(arena);
  }
  return share(device == MemoryKind::cuda ? unwrap(make_pinned_arena()) : make_malloc_arena());
}

void bind_memory(nb::module_& m) {
  bind_arenas(m);
  bind_geometry_class(m);
  bind_head_families(m);
  bind_latent_families(m);
}

}  // namespace pando::python
