// SPDX-License-Identifier: Apache-2.0
#include "buffers.h"

#include <fmt/format.h>

#include <array>

#include "errors.h"

namespace pando::python {

namespace {

using Code = nb::dlpack::dtype_code;

struct TypeRow {
  DType dtype;
  Code code;
  std::uint8_t bits;
  Code numpy_code;
};
// fp8_e4m3 is the finite kind, which torch calls float8_e4m3fn.
constexpr std::array<TypeRow, 6> kTypes = {{{DType::fp16, Code::Float, 16, Code::Float},
                                            {DType::bf16, Code::Bfloat, 16, Code::UInt},
                                            {DType::fp32, Code::Float, 32, Code::Float},
                                            {DType::fp8_e4m3, Code::Float8_E4M3FN, 8, Code::UInt},
                                            {DType::fp8_e5m2, Code::Float8_E5M2, 8, Code::UInt},
                                            {DType::int8, Code::Int, 8, Code::Int}}};

const TypeRow& row_of_type(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)]; }

std::string type_name(nb::dlpack::dtype dtype) {
  for (const TypeRow& row : kTypes)
    if (static_cast<std::uint8_t>(row.code) == dtype.code && row.bits == dtype.bits)
      return std::string(to_string(row.dtype));
  switch (static_cast<Code>(dtype.code)) {
    case Code::Int:
      return fmt::format("int{}", dtype.bits);
    case Code::UInt:
      return fmt::format("uint{}", dtype.bits);
    case Code::Float:
      return fmt::format("float{}", dtype.bits);
    default:
      return fmt::format("type {} of {} bits", dtype.code, dtype.bits);
  }
}

MemoryKind kind_of(int device_type, const char* what) {
  switch (device_type) {
    case nb::device::cpu::value:
      return MemoryKind::host;
    case nb::device::cuda_host::value:
      return MemoryKind::pinned;
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value:
      return MemoryKind::cuda;
    default:
      raise_invalid(fmt::format(
          "{}: memory of DLPack device type {}; expected the CPU's or that of a CUDA GPU", what,
          device_type));
  }
}

}  // namespace

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

nb::dlpack::dtype dlpack_type(DType dtype) {
  const TypeRow& row = row_of_type(dtype);
  return {static_cast<std::uint8_t>(row.code), row.bits, 1};
}

nb::dlpack::dtype numpy_type(DType dtype) {
  const TypeRow& row = row_of_type(dtype);
  return {static_cast<std::uint8_t>(row.numpy_code), row.bits, 1};
}

ByteView::ByteView(nb::handle source, const char* what, bool writable) {
  if (PyObject_CheckBuffer(source.ptr())) {
    auto buffer = std::make_unique<Py_buffer>();
    const int flags = PyBUF_SIMPLE | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(source.ptr(), buffer.get(), flags) != 0) {
      PyErr_Clear();
      raise_invalid(fmt::format("{}: expected {}contiguous bytes, got a {} that is not", what,
                                writable ? "writable, " : "", class_name(source)));
    }
    buffer_.reset(buffer.release());
    bytes_ = {static_cast<std::byte*>(buffer_->buf), static_cast<std::size_t>(buffer_->len)};
    return;
  }
  nb::ndarray<nb::c_contig> write;
  nb::ndarray<nb::ro, nb::c_contig> read;
  const bool taken =
      nb::hasattr(source, "__dlpack__") &&
      (writable ? nb::try_cast(source, write, false) : nb::try_cast(source, read, false));
  if (!taken)
    raise_invalid(
        fmt::format("{}: expected {}contiguous bytes (a buffer, or a tensor on the CPU), "
                    "got {}",
                    what, writable ? "writable, " : "", class_name(source)));
  tensor_ = writable ? nb::ndarray<nb::ro>(write) : nb::ndarray<nb::ro>(read);
  if (kind_of(tensor_.device_type(), what) == MemoryKind::cuda)
    raise_invalid(fmt::format("{}: expected memory of the CPU, got a GPU's", what));
  bytes_ = {static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(tensor_.data()))),
            tensor_.nbytes()};
}

Tensor::Tensor(nb::handle source, const char* what, bool writable) {
  nb::ndarray<> write;
  nb::ndarray<nb::ro> read;
  if (writable ? !nb::try_cast(source, write, false) : !nb::try_cast(source, read, false))
    raise_invalid(fmt::format("{}: expected {}array (NumPy's, or one that speaks DLPack), got {}",
                              what, writable ? "a writable " : "an ", class_name(source)));
  const nb::ndarray<nb::ro> tensor = writable ? nb::ndarray<nb::ro>(write) : read;
  const nb::dlpack::dtype type = tensor.dtype();
  data_ = static_cast<std::byte*>(const_cast<void*>(static_cast<const void*>(tensor.data())));
  kind_ = kind_of(tensor.device_type(), what);
  device_ = tensor.device_id();
  item_bytes_ = type.bits / 8U;
  is_bits_ = type.code == static_cast<std::uint8_t>(Code::UInt) && type.bits <= 16;
  type_name_ = python::type_name(type);
  for (const TypeRow& row : kTypes)
    if (static_cast<std::uint8_t>(row.code) == type.code && row.bits == type.bits)
      dtype_ = row.dtype;
  for (std::size_t i = 0; i < tensor.ndim(); ++i) {
    shape_.push_back(tensor.shape(i));
    strides_.push_back(tensor.stride(i) * static_cast<std::int64_t>(item_bytes_));
  }
  owner_ = writable ? nb::cast(write) : nb::cast(read);
}

bool Tensor::holds(DType dtype) const {
  return dtype_ == dtype || (is_bits_ && item_bytes_ == size_of(dtype));
}

std::string Tensor::shape_text() const {
  std::string text;
  for (const std::size_t size : shape_) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return fmt::format("({})", text);
}

Tensor Tensor::part(std::size_t i) const {
  Tensor out = *this;
  out.data_ += static_cast<std::int64_t>(i) * strides_[0];
  out.shape_.erase(out.shape_.begin());
  out.strides_.erase(out.strides_.begin());
  return out;
}

}  // namespace pando::python
