// SPDX-License-Identifier: Apache-2.0
#include "rows.h"

#include <nanobind/stl/optional.h>

#include "docs.h"
#include "errors.h"

namespace pando::python {

namespace {

/// Rows with a scale, or at an address.
struct PyRows {
  nb::object data;
  std::optional<DType> dtype;
  std::size_t stride_bytes = 0;
  float scale = 1.0F;
};

const char* place(MemoryKind kind) { return kind == MemoryKind::cuda ? "a GPU" : "the host"; }

}  // namespace

RowsArg::RowsArg(nb::handle source, const std::string& what, std::size_t count,
                 std::size_t row_elements, DType own, MemoryKind kind) {
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

void RowsArg::take(nb::handle data, const std::string& what, std::size_t count,
                   std::size_t row_elements, MemoryKind kind) {
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
    // torch's own, whose types NumPy does not know; else NumPy's.
    const nb::object copy =
        nb::hasattr(data, "contiguous")
            ? nb::object(data.attr("contiguous")())
            : nb::object(nb::module_::import_("numpy").attr("ascontiguousarray")(data));
    tensor_.emplace(copy, what.c_str(), false);
  }
  rows_.data = tensor_->data();
  rows_.stride_bytes = count > 1 ? static_cast<std::size_t>(tensor_->stride(0)) : 0;
}

/// Elements of a row follow each other, and rows go upwards without overlap.
bool RowsArg::rows_are_whole() const {
  std::size_t size = tensor_->item_bytes();
  for (std::size_t i = tensor_->rank(); i-- > 1;) {
    if (tensor_->shape(i) > 1 && tensor_->stride(i) != static_cast<std::int64_t>(size))
      return false;
    size *= tensor_->shape(i);
  }
  return tensor_->shape(0) == 1 || tensor_->stride(0) >= static_cast<std::int64_t>(size);
}

DType RowsArg::type_of(std::optional<DType> asked, DType own, const std::string& what) const {
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

PlanesArg::PlanesArg(nb::handle planes, const Geometry& geometry, std::size_t count,
                     MemoryKind kind) {
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

void bind_rows(nb::module_& m) {
  Class<PyRows>(m, "Rows")
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

}  // namespace pando::python
