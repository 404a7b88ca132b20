// SPDX-License-Identifier: Apache-2.0
// Pools over an engine's own buffers: where their rows are is told by arrays, or by addresses.
#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <vector>

#include "buffers.h"
#include "interpreter.h"
#include "pools.h"

namespace pando::python {

namespace {

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

}  // namespace

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

}  // namespace pando::python
