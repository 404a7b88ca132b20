// SPDX-License-Identifier: Apache-2.0
#include "tensor_view.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>

#include <array>

#include "buffers.h"
#include "docs.h"
#include "errors.h"

namespace pando::python {

namespace {

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

}  // namespace

void bind_tensor_view(nb::module_& m) {
  Class<PyTensorView>(m, "TensorView")
      .def_prop_ro(
          "shape", [](const PyTensorView& v) { return entries(v.view.shape, v.view.rank); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "strides", [](const PyTensorView& v) { return entries(v.view.strides, v.view.rank); },
          nb::sig("def strides(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", [](const PyTensorView& v) { return v.view.dtype; })
      .def_prop_ro("kind", [](const PyTensorView& v) { return v.kind; })
      .def_prop_ro(
          "address",
          [](const PyTensorView& v) { return reinterpret_cast<std::uintptr_t>(v.view.data); })
      .def(
          "numpy", [](nb::handle_t<PyTensorView> self) { return as_numpy(self); },
          nb::sig("def numpy(self) -> numpy.typing.NDArray[typing.Any]"))
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
                  "typing.Any"))
      .def(
          "__dlpack__",
          [](nb::handle_t<PyTensorView> self, const nb::kwargs& options) {
            const auto& view = nb::cast<const PyTensorView&>(self);
            const nb::object array =
                nb::cast(array_over<nb::array_api>(view, self, dlpack_type(view.view.dtype)));
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

}  // namespace pando::python
