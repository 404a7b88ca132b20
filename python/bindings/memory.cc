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
  nb::enum_<MemoryKind>(m, "MemoryKind", "Where memory is, and so who can touch it.")
      .value("host", MemoryKind::host, "Ordinary memory of the machine.")
      .value("pinned", MemoryKind::pinned, "Host memory that a GPU reads directly.")
      .value("cuda", MemoryKind::cuda, "A GPU's own.");
  nb::enum_<HugePages>(m, "HugePages", "Where huge pages come from.")
      .value("transparent", HugePages::transparent,
             "The kernel is asked for them, and gives ordinary pages when it has none.")
      .value("reserved", HugePages::reserved, "From the kernel's pool, or not at all.");
  bind_struct<MemoryRegion>(m, "MemoryRegion",
                            "A contiguous piece of memory, as network cards want it registered.")
      .property(
          "address",
          [](const MemoryRegion& r) { return reinterpret_cast<std::uintptr_t>(r.address); },
          [](MemoryRegion& r, std::uintptr_t address) {
            r.address = reinterpret_cast<std::byte*>(address);
          },
          "int")
      .field("size_bytes", &MemoryRegion::size_bytes, "int")
      .field("item_bytes", &MemoryRegion::item_bytes, "int", "Of a row or page in it.")
      .constructible()
      .done();
  nb::class_<PyArena>(m, "Arena",
                      "Where the large blocks of pools come from.\n\n"
                      ">>> arena = pando.make_malloc_arena()\n"
                      ">>> arena.name, arena.kind\n"
                      "('malloc', MemoryKind.host)\n")
      .def_prop_ro(
          "available_bytes", [](const PyArena& arena) { return arena->available_bytes(); },
          "What one could still allocate now, as far as can be known.")
      .def_prop_ro("kind", [](const PyArena& arena) { return arena->kind(); })
      .def_prop_ro("name", [](const PyArena& arena) { return std::string(arena->name()); })
      .def("__repr__",
           [](const PyArena& arena) { return fmt::format("<pando.Arena '{}'>", arena->name()); });
  m.def(
      "make_malloc_arena", [] { return share(make_malloc_arena()); },
      "The heap. Like all arenas of host memory it refuses more than available_memory().\n\n"
      ">>> pando.make_malloc_arena().name\n"
      "'malloc'\n");
  m.def(
      "make_huge_page_arena", [](HugePages kind) { return share(make_huge_page_arena(kind)); },
      nb::arg("kind") = HugePages::transparent,
      "Blocks of huge pages.\n\n"
      ">>> pando.make_huge_page_arena().kind\n"
      "MemoryKind.host\n");
  m.def(
      "make_numa_arena", [](unsigned node) { return share(unwrap(make_numa_arena(node))); },
      nb::arg("node"), "Memory bound to one NUMA node.");
  m.def(
      "make_user_arena",
      [](nb::handle memory, std::optional<MemoryKind> kind) { return user_arena(memory, kind); },
      nb::arg("memory"), nb::arg("kind") = nb::none(),
      nb::sig("def make_user_arena(memory: typing.Any, kind: MemoryKind | None = None) -> Arena"),
      "Carves from memory of the caller: a writable buffer, a contiguous tensor on the CPU or a "
      "GPU, or a MemoryRegion, which the caller keeps alive. `kind` is that of the memory unless "
      "given: say `pinned` where you have pinned it.\n\n"
      ">>> arena = pando.make_user_arena(bytearray(4096))\n"
      ">>> arena.available_bytes\n"
      "4096\n");
  m.def(
      "make_pinned_arena", [] { return share(unwrap(make_pinned_arena())); },
      "Page-locked host memory. Unavailable without CUDA or a GPU.");
  m.def(
      "make_cuda_arena", [](int device) { return share(unwrap(make_cuda_arena(device)), device); },
      nb::arg("device") = 0, "Memory of a GPU. Unavailable without CUDA or a GPU.");
  m.def("available_memory", &available_memory,
        "Bytes this process may still use: the least of the machine's available memory and the "
        "limits of its container.\n\n"
        ">>> pando.available_memory() > 0\n"
        "True\n");
}

nb::object planes_of(const Geometry& geometry) {
  nb::list planes;
  for (const Plane& plane : geometry.planes) planes.append(nb::cast(plane));
  return nb::tuple(planes);
}

void bind_geometry_class(nb::module_& m) {
  nb::enum_<DType>(m, "DType", "The type of an element of KV.")
      .value("fp16", DType::fp16)
      .value("bf16", DType::bf16)
      .value("fp32", DType::fp32)
      .value("fp8_e4m3", DType::fp8_e4m3)
      .value("fp8_e5m2", DType::fp8_e5m2)
      .value("int8", DType::int8);
  m.def("size_of", &size_of, nb::arg("dtype"),
        "Bytes of an element.\n\n>>> pando.size_of(pando.DType.bf16)\n2\n");
  bind_struct<Plane>(m, "Plane",
                     "One array of a layer: for each slot a row of `heads` x `dim` elements.\n\n"
                     ">>> pando.Plane(name='key', heads=8, dim=128).row_bytes\n"
                     "2048\n")
      .field("name", &Plane::name, "str")
      .field("heads", &Plane::heads, "int")
      .field("dim", &Plane::dim, "int")
      .field("dtype", &Plane::dtype, "DType")
      .field("first_part", &Plane::first_part, "int",
             "Of a row that is written in two parts: elements of the first; else 0.")
      .constructible()
      .done()
      .def_prop_ro("head_bytes", &Plane::head_bytes)
      .def_prop_ro("row_bytes", &Plane::row_bytes)
      .def(
          "__eq__",
          [](const Plane& a, nb::handle b) {
            return nb::isinstance<Plane>(b) && a == nb::cast<const Plane&>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  bind_struct<Geometry>(m, "Geometry",
                        "The shape of KV: which arrays a model keeps per layer, how wide a row of "
                        "each is, and how many tokens a page has.\n\n"
                        ">>> geometry = pando.mha_geometry(num_layers=2, heads=8, head_dim=128)\n"
                        ">>> geometry.token_bytes\n"
                        "8192\n")
      .property(
          "planes", &planes_of,
          [](Geometry& self, std::vector<Plane> planes) { self.planes = std::move(planes); },
          "collections.abc.Sequence[Plane]")
      .field("num_layers", &Geometry::num_layers, "int")
      .field("first_layer", &Geometry::first_layer, "int", "Id of the first layer here.")
      .field("page_size", &Geometry::page_size, "int", "Tokens of a page.")
      .constructible()
      .done()
      .def(
          "validate", [](const Geometry& self) { unwrap(self.validate()); },
          "Raises InvalidArgument where it makes no sense.")
      .def_prop_ro("token_bytes", &Geometry::token_bytes, "Of one token in all planes and layers.")
      .def_prop_ro(
          "page_bytes", [](const Geometry& self) { return self.page_bytes(); },
          "Of one page in all planes and layers.")
      .def(
          "plane_page_bytes",
          [](const Geometry& self, const Plane& plane) { return self.page_bytes(plane); },
          nb::arg("plane"), "Of one plane's share of a page, all layers.")
      .def(
          "plane_index",
          [](const Geometry& self, std::string_view name) {
            return unwrap(self.plane_index(name));
          },
          nb::arg("name"), "Where the plane of this name is in `planes`.")
      .def("describe", &Geometry::describe, "One text that is equal only for equal geometries.")
      .def(
          "__eq__",
          [](const Geometry& a, nb::handle b) {
            return nb::isinstance<Geometry>(b) && a == nb::cast<const Geometry&>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
}

LayerRange layers_of(std::size_t num_layers, std::size_t first_layer, std::size_t page_size,
                     DType dtype) {
  return {
      .num_layers = num_layers, .first_layer = first_layer, .page_size = page_size, .dtype = dtype};
}

void bind_families(nb::module_& m) {
  m.def(
      "mha_geometry",
      [](std::size_t num_layers, std::uint32_t heads, std::uint32_t head_dim,
         std::uint32_t value_dim, std::size_t page_size, DType dtype, std::size_t first_layer) {
        return mha_geometry({.layers = layers_of(num_layers, first_layer, page_size, dtype),
                             .heads = heads,
                             .head_dim = head_dim,
                             .value_dim = value_dim});
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("heads"), nb::arg("head_dim"),
      nb::arg("value_dim") = 0, nb::arg("page_size") = 1, nb::arg("dtype") = DType::bf16,
      nb::arg("first_layer") = 0,
      "Separate keys and values: planes \"key\" and \"value\". `value_dim` 0 means as "
      "`head_dim`.\n\n"
      ">>> [p.name for p in pando.mha_geometry(num_layers=1, heads=8, head_dim=128).planes]\n"
      "['key', 'value']\n");
  m.def(
      "mla_geometry",
      [](std::size_t num_layers, std::uint32_t nope_dim, std::uint32_t rope_dim, bool split,
         std::size_t page_size, DType dtype, std::size_t first_layer) {
        return mla_geometry({.layers = layers_of(num_layers, first_layer, page_size, dtype),
                             .nope_dim = nope_dim,
                             .rope_dim = rope_dim,
                             .split = split});
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("nope_dim"), nb::arg("rope_dim"),
      nb::arg("split") = false, nb::arg("page_size") = 1, nb::arg("dtype") = DType::bf16,
      nb::arg("first_layer") = 0,
      "One latent row per token, its first `nope_dim` elements without and the rest with position: "
      "plane \"latent\"; with `split`, planes \"nope\" and \"rope\".\n\n"
      ">>> pando.mla_geometry(num_layers=1, nope_dim=512, rope_dim=64).planes[0].dim\n"
      "576\n");
  m.def(
      "dsa_geometry",
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
      nb::arg("dtype") = DType::bf16, nb::arg("first_layer") = 0,
      "Sparse attention over latents: MLA and plane \"index_key\"; with `index_scale` also plane "
      "\"index_scale\", one fp32 per token.\n\n"
      ">>> geometry = pando.dsa_geometry(num_layers=1, nope_dim=512, rope_dim=64, index_dim=128)\n"
      ">>> [p.name for p in geometry.planes]\n"
      "['latent', 'index_key']\n");
  m.def(
      "double_sparse_geometry",
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
      nb::arg("dtype") = DType::bf16, nb::arg("first_layer") = 0,
      "Double sparsity: MHA and plane \"label\", the `label_dim` heavy channels of each head.\n\n"
      ">>> geometry = pando.double_sparse_geometry(num_layers=1, heads=8, head_dim=128, "
      "label_dim=16)\n"
      ">>> geometry.plane_index('label')\n"
      "2\n");
  m.def(
      "state_geometry",
      [](std::size_t num_layers, std::vector<Plane> planes) {
        return state_geometry(num_layers, std::move(planes));
      },
      nb::kw_only(), nb::arg("num_layers"), nb::arg("planes"),
      "Snapshots of recurrent layers: the given planes, one row per snapshot.\n\n"
      ">>> pando.state_geometry(num_layers=2, planes=[pando.Plane(name='ssm', dim=64)]).page_size\n"
      "1\n");
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
  bind_families(m);
}

}  // namespace pando::python
