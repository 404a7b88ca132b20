// SPDX-License-Identifier: Apache-2.0
// The bytes of a device tier: KvPool and WindowPool, views of them as tensors, rows to write, and
// pools over an engine's own buffers.
#include "pools.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>

#include "allocators.h"
#include "arrays.h"
#include "buffers.h"
#include "interpreter.h"
#include "structs.h"

namespace pando::python {

namespace {

// ---- Views.

/// Part of a pool, which it keeps.
struct PyTensorView {
  TensorView view;
  MemoryKind kind = MemoryKind::host;
  int device = 0;
  std::shared_ptr<void> owner;
};

/// As nanobind's own array type, which knows DLPack; `self` owns the memory.
template <typename... Framework>
nb::ndarray<Framework...> array_over(const PyTensorView& self, nb::handle owner,
                                     nb::dlpack::dtype dtype) {
  std::array<std::size_t, 4> shape = {};
  std::array<std::int64_t, 4> strides = {};
  for (std::size_t i = 0; i < self.view.rank; ++i) {
    shape[i] = static_cast<std::size_t>(self.view.shape[i]);
    strides[i] = self.view.strides[i] / static_cast<std::int64_t>(size_of(self.view.dtype));
  }
  const int device =
      self.kind == MemoryKind::cuda ? nb::device::cuda::value : nb::device::cpu::value;
  return nb::ndarray<Framework...>(self.view.data, self.view.rank, shape.data(), owner,
                                   strides.data(), dtype, device,
                                   self.kind == MemoryKind::cuda ? self.device : 0);
}

nb::object as_numpy(nb::handle self) {
  const auto& view = nb::cast<const PyTensorView&>(self);
  if (view.kind == MemoryKind::cuda)
    raise_invalid(
        "numpy: the view is of a GPU's memory, which NumPy cannot read; use DLPack, for instance "
        "torch.from_dlpack(view)");
  return nb::cast(array_over<nb::numpy>(view, self, numpy_type(view.view.dtype)));
}

nb::object entries(const std::array<std::int64_t, 4>& values, std::size_t rank) {
  nb::list list;
  for (std::size_t i = 0; i < rank; ++i) list.append(values[i]);
  return nb::tuple(list);
}

std::string repr_of(const PyTensorView& self) {
  std::string shape;
  for (std::size_t i = 0; i < self.view.rank; ++i)
    shape += fmt::format("{}{}", i == 0 ? "" : ", ", self.view.shape[i]);
  return fmt::format("<pando.TensorView ({}) of {}>", shape, to_string(self.view.dtype));
}

void bind_view(nb::module_& m) {
  nb::class_<PyTensorView>(
      m, "TensorView",
      "Part of a pool as a tensor, without a copy; the pool stays as long as the view or an array "
      "made of it does. `numpy()` for NumPy, which knows neither bf16 nor fp8: there it has their "
      "bits. Everything that reads DLPack gets the true type: `torch.from_dlpack(view)`.\n\n"
      ">>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)\n"
      ">>> view = pando.KvPool(geometry, capacity_tokens=7).key(0)\n"
      ">>> view.shape, view.dtype, view.numpy().dtype.name\n"
      "((8, 2, 4), DType.bf16, 'uint16')\n")
      .def_prop_ro(
          "shape", [](const PyTensorView& v) { return entries(v.view.shape, v.view.rank); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "strides", [](const PyTensorView& v) { return entries(v.view.strides, v.view.rank); },
          nb::sig("def strides(self) -> tuple[int, ...]"), "In bytes.")
      .def_prop_ro("dtype", [](const PyTensorView& v) { return v.view.dtype; })
      .def_prop_ro("kind", [](const PyTensorView& v) { return v.kind; })
      .def_prop_ro(
          "address",
          [](const PyTensorView& v) { return reinterpret_cast<std::uintptr_t>(v.view.data); })
      .def(
          "numpy", [](nb::handle_t<PyTensorView> self) { return as_numpy(self); },
          nb::sig("def numpy(self) -> numpy.typing.NDArray[typing.Any]"),
          "A NumPy array over the memory: writing to it writes to the pool.")
      .def(
          "__array__",
          [](nb::handle_t<PyTensorView> self, nb::handle dtype, nb::handle copy) {
            nb::object array = as_numpy(self);
            if (!dtype.is_none()) array = array.attr("astype")(dtype, nb::arg("copy") = false);
            return nb::isinstance<nb::bool_>(copy) && nb::cast<bool>(copy)
                       ? nb::object(array.attr("copy")())
                       : array;
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
          nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                  "numpy.typing.NDArray[typing.Any]"))
      .def(
          "__dlpack__",
          [](nb::handle_t<PyTensorView> self, const nb::kwargs& options) {
            const auto& view = nb::cast<const PyTensorView&>(self);
            const nb::object array =
                nb::cast(array_over<>(view, self, dlpack_type(view.view.dtype)));
            return nb::object(array.attr("__dlpack__")(**options));
          },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](const PyTensorView& self) {
            return self.kind == MemoryKind::cuda
                       ? nb::make_tuple(int{nb::device::cuda::value}, self.device)
                       : nb::make_tuple(int{nb::device::cpu::value}, 0);
          },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__repr__", &repr_of);
}

// ---- Rows.

/// Rows with a scale, or at an address.
struct PyRows {
  nb::object data;
  std::optional<DType> dtype;
  std::size_t stride_bytes = 0;
  float scale = 1.0F;
};

/// Rows of one plane as the library wants them; holds the memory.
class RowsArg {
 public:
  /// `row_elements` of each of `count` rows; `own` is the plane's type.
  RowsArg(nb::handle source, const std::string& what, std::size_t count, std::size_t row_elements,
          DType own, MemoryKind kind) {
    nb::handle data = source;
    std::optional<DType> dtype;
    if (nb::isinstance<PyRows>(source)) {
      const auto& given = nb::cast<const PyRows&>(source);
      data = given.data;
      dtype = given.dtype;
      rows_.scale = given.scale;
      rows_.stride_bytes = given.stride_bytes;
      if (PyLong_Check(data.ptr()) != 0) {  // then all there is to know has been said
        rows_.data = reinterpret_cast<const void*>(nb::cast<std::uintptr_t>(data));
        rows_.dtype = dtype.value_or(own);
        return;
      }
    }
    take(data, what, count, row_elements, kind);
    rows_.dtype = type_of(dtype, own, what);
  }
  const Rows& rows() const { return rows_; }

 private:
  void take(nb::handle data, const std::string& what, std::size_t count, std::size_t row_elements,
            MemoryKind kind) {
    tensor_.emplace(data, what.c_str(), false);
    if ((tensor_->kind() == MemoryKind::cuda) != (kind == MemoryKind::cuda))
      raise_invalid(fmt::format("{}: the rows are in memory of {}, the pool of {}", what,
                                place(tensor_->kind()), place(kind)));
    std::size_t elements = 1;
    for (std::size_t i = 1; i < tensor_->rank(); ++i) elements *= tensor_->shape(i);
    if (tensor_->rank() == 0 || tensor_->shape(0) != count || elements != row_elements)
      raise_invalid(fmt::format("{}: shape {}; expected {} rows of {} elements", what,
                                tensor_->shape_text(), count, row_elements));
    if (count > 0 && !rows_are_whole()) {
      if (kind == MemoryKind::cuda)
        raise_invalid(
            fmt::format("{}: the elements of a row do not follow each other; make it "
                        "contiguous",
                        what));
      const nb::object copy = nb::module_::import_("numpy").attr("ascontiguousarray")(data);
      tensor_.emplace(copy, what.c_str(), false);
    }
    rows_.data = tensor_->data();
    rows_.stride_bytes = count > 1 ? static_cast<std::size_t>(tensor_->stride(0)) : 0;
  }
  static const char* place(MemoryKind kind) {
    return kind == MemoryKind::cuda ? "a GPU" : "the host";
  }
  /// Elements of a row follow each other, and rows go upwards without overlap.
  bool rows_are_whole() const {
    std::size_t size = tensor_->item_bytes();
    for (std::size_t i = tensor_->rank(); i-- > 1;) {
      if (tensor_->shape(i) > 1 && tensor_->stride(i) != static_cast<std::int64_t>(size))
        return false;
      size *= tensor_->shape(i);
    }
    return tensor_->shape(0) == 1 || tensor_->stride(0) >= static_cast<std::int64_t>(size);
  }
  DType type_of(std::optional<DType> asked, DType own, const std::string& what) const {
    if (asked) {
      if (tensor_->holds(*asked)) return *asked;
    } else if (tensor_->dtype()) {
      return *tensor_->dtype();
    } else if (tensor_->holds(own)) {
      return own;
    }
    raise_invalid(fmt::format(
        "{}: elements of {}; expected fp16, bf16, fp32, or {} (bits of it: uint{})", what,
        tensor_->type_name(), to_string(asked.value_or(own)), 8 * size_of(asked.value_or(own))));
  }

  Rows rows_;
  std::optional<Tensor> tensor_;
};

/// The planes of one layer, each with as many rows as there are slots.
class PlanesArg {
 public:
  PlanesArg(nb::handle planes, const Geometry& geometry, std::size_t count, MemoryKind kind) {
    const nb::object items = nb::steal(PySequence_Fast(planes.ptr(), ""));
    if (!items.is_valid() || PyUnicode_Check(planes.ptr()) != 0) {
      PyErr_Clear();
      raise_invalid(fmt::format("planes: expected a list of {} arrays, got {}",
                                geometry.planes.size(), class_name(planes)));
    }
    if (nb::len(items) != geometry.planes.size())
      raise_invalid(fmt::format("planes: {} are given; expected {}: {}", nb::len(items),
                                geometry.planes.size(), geometry.describe()));
    held_.reserve(geometry.planes.size());
    for (std::size_t i = 0; i < geometry.planes.size(); ++i) {
      const Plane& plane = geometry.planes[i];
      held_.emplace_back(items[i], fmt::format("planes[{}] ('{}')", i, plane.name), count,
                         std::size_t{plane.heads} * plane.dim, plane.dtype, kind);
      rows_.push_back(held_.back().rows());
    }
  }
  std::span<const Rows> rows() const { return rows_; }

 private:
  std::vector<RowsArg> held_;
  std::vector<Rows> rows_;
};

void bind_rows(nb::module_& m) {
  nb::class_<PyRows>(m, "Rows",
                     "Rows to write with a scale: stored is value / scale, rounded to nearest "
                     "even. `data` is an array, or an address with dtype and stride.\n\n"
                     ">>> pando.Rows(np.ones((3, 8), np.float16), scale=0.5).scale\n"
                     "0.5\n")
      .def(
          "__init__",
          [](PyRows* self, nb::object data, std::optional<DType> dtype, std::size_t stride_bytes,
             float scale) {
            new (self) PyRows{std::move(data), dtype, stride_bytes, scale};
          },
          nb::arg("data"), nb::arg("dtype") = nb::none(), nb::arg("stride_bytes") = 0,
          nb::arg("scale") = 1.0F,
          nb::sig("def __init__(self, data: numpy.typing.ArrayLike | int, dtype: DType | None = "
                  "None, stride_bytes: int = 0, scale: float = 1.0) -> None"))
      .def_ro("data", &PyRows::data, nb::for_getter(nb::sig("def data(self) -> typing.Any")))
      .def_ro("dtype", &PyRows::dtype)
      .def_ro("stride_bytes", &PyRows::stride_bytes)
      .def_ro("scale", &PyRows::scale);
}

// ---- An engine's own buffers.

struct Adopted {
  std::vector<PlaneMemory> planes;
  std::optional<std::size_t> num_pages;  // of what had a shape
  std::optional<MemoryKind> kind;
  int device = 0;
  std::vector<std::shared_ptr<nb::object>> kept;
};

/// One layer of a plane, told by an array: (slots, heads, dim) or (pages, page, heads, dim); the
/// dimension of heads may be left out where there is one.
class LayerReader {
 public:
  LayerReader(const Geometry& geometry, const Plane& plane) : geometry_(geometry), plane_(plane) {}

  void add(const Tensor& layer, const std::string& what, Adopted& out, PlaneMemory& memory) const {
    if (!layer.holds(plane_.dtype))
      raise_invalid(fmt::format("{}: elements of {}; expected {}, or its bits as uint{}", what,
                                layer.type_name(), to_string(plane_.dtype),
                                8 * size_of(plane_.dtype)));
    const Shape shape = shape_of(layer, what);
    check_same(out.num_pages, shape.pages, what, "pages");
    check_same(out.kind, layer.kind(), what, "kind of memory");
    if (!memory.layers.empty() &&
        (memory.page_stride != shape.page_stride || memory.token_stride != shape.token_stride ||
         memory.head_stride != shape.head_stride))
      raise_invalid(
          fmt::format("{}: strides of {}, {} and {} bytes (page, token, head); the "
                      "layers before it have {}, {} and {}",
                      what, shape.page_stride, shape.token_stride, shape.head_stride,
                      memory.page_stride, memory.token_stride, memory.head_stride));
    memory.page_stride = shape.page_stride;
    memory.token_stride = shape.token_stride;
    memory.head_stride = shape.head_stride;
    memory.layers.push_back(layer.data());
    out.device = layer.device();
    out.kept.push_back(keep(layer.owner()));
  }

  /// Dimensions of one layer, at least and at most.
  std::size_t min_rank() const { return plane_.heads == 1 ? 2 : 3; }

 private:
  struct Shape {
    std::size_t pages, page_stride, token_stride, head_stride;
  };

  Shape shape_of(const Tensor& layer, const std::string& what) const {
    const std::size_t page = geometry_.page_size;
    std::size_t rank = layer.rank();
    const auto ends_with = [&](std::size_t dims) {  // (…, heads, dim), or (…, dim)
      return rank >= dims && layer.shape(rank - 1) == plane_.dim &&
             (dims == 1 || layer.shape(rank - 2) == plane_.heads);
    };
    // (pages, page, dim) of one head looks like (slots, heads, dim) only where pages have one token
    // as well, and then both mean the same.
    const bool has_heads = ends_with(2) && !(plane_.heads == 1 && rank == 2);
    const std::size_t outer = rank - (has_heads ? 2 : 1);
    if (!(has_heads || (plane_.heads == 1 && ends_with(1))) || outer < 1 || outer > 2 ||
        (outer == 1 && layer.shape(0) % page != 0) || (outer == 2 && layer.shape(1) != page))
      raise_invalid(fmt::format(
          "{}: shape {}; expected (slots, {}, {}) with whole pages of {}, or (pages, {}, {}, {})",
          what, layer.shape_text(), plane_.heads, plane_.dim, page, page, plane_.heads,
          plane_.dim));
    const std::size_t item = size_of(plane_.dtype);
    if (plane_.dim > 1 && layer.stride(rank - 1) != static_cast<std::int64_t>(item))
      raise_invalid(fmt::format("{}: elements of a head are {} bytes apart; expected {}", what,
                                layer.stride(rank - 1), item));
    Shape shape{};
    shape.head_stride =
        has_heads ? stride(layer, rank - 2, plane_.head_bytes(), what) : plane_.head_bytes();
    if (outer == 1) {
      shape.pages = layer.shape(0) / page;
      shape.token_stride = stride(layer, 0, plane_.row_bytes(), what);
      shape.page_stride = page * shape.token_stride;
    } else {
      shape.pages = layer.shape(0);
      shape.token_stride = stride(layer, 1, plane_.row_bytes(), what);
      shape.page_stride = stride(layer, 0, page * plane_.row_bytes(), what);
    }
    return shape;
  }
  /// What a dimension of one says about its stride means nothing.
  static std::size_t stride(const Tensor& layer, std::size_t i, std::size_t otherwise,
                            const std::string& what) {
    if (layer.shape(i) <= 1) return otherwise;
    if (layer.stride(i) <= 0)
      raise_invalid(fmt::format("{}: dimension {} has a stride of {} bytes; expected above 0", what,
                                i, layer.stride(i)));
    return static_cast<std::size_t>(layer.stride(i));
  }
  template <typename T>
  static void check_same(std::optional<T>& known, T found, const std::string& what,
                         const char* property) {
    if (known && *known != found)
      raise_invalid(fmt::format("{}: another {} than the arrays before it", what, property));
    known = found;
  }

  const Geometry& geometry_;
  const Plane& plane_;
};

void read_plane(nb::handle source, const Geometry& geometry, std::size_t index, Adopted& out) {
  const Plane& plane = geometry.planes[index];
  const std::string what = fmt::format("planes[{}] ('{}')", index, plane.name);
  if (nb::isinstance<PlaneMemory>(source)) {
    out.planes.push_back(nb::cast<const PlaneMemory&>(source));
    return;
  }
  const LayerReader reader(geometry, plane);
  PlaneMemory memory;
  if (PyList_Check(source.ptr()) != 0 || PyTuple_Check(source.ptr()) != 0) {
    std::size_t layer = 0;
    for (const nb::handle item : nb::borrow<nb::iterable>(source)) {
      const std::string name = fmt::format("{}[{}]", what, layer++);
      reader.add(Tensor(item, name.c_str(), true), name, out, memory);
    }
  } else {
    const Tensor all(source, what.c_str(), true);
    if (all.rank() <= reader.min_rank())
      raise_invalid(
          fmt::format("{}: shape {}; expected a list of layers, or one array with layers "
                      "as its first dimension",
                      what, all.shape_text()));
    for (std::size_t layer = 0; layer < all.shape(0); ++layer)
      reader.add(all.part(layer), fmt::format("{}[{}]", what, layer), out, memory);
  }
  out.planes.push_back(std::move(memory));
}

PyKvPool adopt(const Geometry& geometry, const nb::sequence& planes,
               std::optional<std::size_t> num_pages, std::optional<MemoryKind> kind) {
  unwrap(geometry.validate());
  if (nb::len(planes) != geometry.planes.size())
    raise_invalid(fmt::format("planes: {} are given; expected {}: {}", nb::len(planes),
                              geometry.planes.size(), geometry.describe()));
  Adopted adopted;
  for (std::size_t i = 0; i < geometry.planes.size(); ++i)
    read_plane(planes[i], geometry, i, adopted);
  if (!num_pages) num_pages = adopted.num_pages;
  if (!num_pages)
    raise_invalid(
        "adopt: planes at addresses do not tell how many pages they have; give "
        "num_pages");
  if (adopted.num_pages && *num_pages > *adopted.num_pages)
    raise_invalid(fmt::format("adopt: {} pages are asked for; the arrays have {}", *num_pages,
                              *adopted.num_pages));
  if (kind && adopted.kind && (*kind == MemoryKind::cuda) != (*adopted.kind == MemoryKind::cuda))
    raise_invalid("adopt: the arrays are in memory of another kind than asked for");
  const MemoryKind where = kind.value_or(adopted.kind.value_or(MemoryKind::host));
  std::unique_ptr<KvPool> pool =
      unwrap(KvPool::adopt(geometry, *num_pages, std::move(adopted.planes), where));
  return {{pool.release(), [kept = std::move(adopted.kept)](KvPool* p) { delete p; }},
          adopted.device};
}

// ---- Pools.

nb::object regions_of(const std::vector<MemoryRegion>& regions) {
  nb::list list;
  for (const MemoryRegion& region : regions) list.append(nb::cast(region));
  return list;
}

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
          "collections.abc.Sequence[int]", "Addresses.")
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
                  "None = None, layout: DeviceLayout = DeviceLayout.layer_first) -> None"))
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

// ---- Window pools.

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

void bind_window_pool(nb::module_& m) {
  using Py = PyWindowPool;
  nb::class_<Py>(
      m, "WindowPool",
      "The bytes of a model that mixes full-attention and sliding-window layers. Slots are always "
      "full slots. Page size and planes are those of the geometry, layers those given.\n\n"
      ">>> slots = pando.WindowAllocator(64, 16)\n"
      ">>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)\n"
      ">>> pool = pando.WindowPool(geometry, slots, full_layers=[0], window_layers=[1, 2])\n"
      ">>> pool.full.num_pages, pool.window.num_pages\n"
      "(65, 17)\n")
      .def(
          "__init__",
          [](Py* self, const Geometry& geometry, nb::object slots,
             std::vector<std::size_t> full_layers, std::vector<std::size_t> window_layers,
             nb::handle arena, DeviceLayout layout) {
            if (!nb::isinstance<PyWindowAllocator>(slots))
              raise_invalid(
                  fmt::format("slots: expected a WindowAllocator, got {}", class_name(slots)));
            const PyArena memory = to_arena(arena);
            const WindowPoolOptions options{.geometry = geometry,
                                            .full_layers = std::move(full_layers),
                                            .window_layers = std::move(window_layers),
                                            .layout = layout};
            std::unique_ptr<WindowPool> pool =
                nb::cast<PyWindowAllocator&>(slots).call("WindowPool", [&](WindowAllocator& a) {
                  return unwrap(WindowPool::create(options, a, *memory.arena));
                });
            const std::shared_ptr<nb::object> kept = keep(slots);
            new (self) Py{{pool.release(), [memory, kept](WindowPool* p) { delete p; }},
                          kept,
                          memory->kind(),
                          memory->device()};
          },
          nb::arg("geometry"), nb::arg("slots"), nb::kw_only(), nb::arg("full_layers"),
          nb::arg("window_layers"), nb::arg("arena") = nb::none(),
          nb::arg("layout") = DeviceLayout::layer_first,
          nb::sig("def __init__(self, geometry: Geometry, slots: WindowAllocator, *, full_layers: "
                  "collections.abc.Sequence[int], window_layers: collections.abc.Sequence[int], "
                  "arena: Arena | None = None, layout: DeviceLayout = DeviceLayout.layer_first) "
                  "-> None"))
      .def_prop_ro(
          "full", [](const Py& self) { return side_of(self, self.pool->full()); },
          nb::sig("def full(self) -> KvPool | None"),
          "The pool of the full layers, numbered 0, 1, ... in the order given.")
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
                  "collections.abc.Sequence[typing.Any]) -> None"),
          "As KvPool.set(). In a window layer, rows of slots without a window go to the padding "
          "slot.")
      .def(
          "move",
          [](Py& self, SlotsArg dst, SlotsArg src) {
            const Items<SlotId> to(dst.object, "dst");
            const Items<SlotId> from(src.object, "src");
            self.allocator().call("WindowPool.move", [&](WindowAllocator&) {
              unwrap(run(true, [&] { return self.pool->move(to, from); }));
            });
          },
          nb::arg("dst"), nb::arg("src"),
          "In all layers; of window layers, where both slots have a window.");
}

}  // namespace

void bind_pools(nb::module_& m) {
  bind_view(m);
  bind_rows(m);
  bind_plane_memory(m);
  bind_kv_pool(m);
  bind_window_pool(m);
}

}  // namespace pando::python
