// SPDX-License-Identifier: Apache-2.0
// Memory of Python's, where it is: contiguous bytes of whatever has a buffer, and strided arrays of
// NumPy, torch and everything else that speaks DLPack, on the CPU or a GPU. Both hold the memory
// while they live, and need the GIL to go.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pando/pools.h"

namespace pando::python {

namespace nb = nanobind;

std::string class_name(nb::handle object);

/// Contiguous bytes on the CPU, whatever their type. `what` names the argument in messages.
class ByteView {
 public:
  ByteView(nb::handle source, const char* what, bool writable);
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  struct Release {
    void operator()(Py_buffer* buffer) const {
      PyBuffer_Release(buffer);
      delete buffer;
    }
  };
  std::unique_ptr<Py_buffer, Release> buffer_;
  nb::ndarray<nb::ro> tensor_;  // of what has no buffer
  std::span<std::byte> bytes_;
};

/// An array in any strides, on any device.
class Tensor {
 public:
  Tensor(nb::handle source, const char* what, bool writable);

  std::byte* data() const { return data_; }
  std::size_t rank() const { return shape_.size(); }
  std::size_t shape(std::size_t i) const { return shape_[i]; }
  /// In bytes.
  std::int64_t stride(std::size_t i) const { return strides_[i]; }
  MemoryKind kind() const { return kind_; }
  int device() const { return device_; }
  std::size_t item_bytes() const { return item_bytes_; }
  /// What the array says it is; nothing where it has bare bits (uint8, uint16) or a type that KV
  /// never has.
  std::optional<DType> dtype() const { return dtype_; }
  /// Whether its items can be ones of this type: they say so, or are bits of its width.
  bool holds(DType dtype) const;
  std::string type_name() const { return type_name_; }
  std::string shape_text() const;
  /// Rows [i] of the first dimension.
  Tensor part(std::size_t i) const;
  /// A Python object that keeps the memory.
  nb::object owner() const { return owner_; }

 private:
  std::byte* data_ = nullptr;
  std::vector<std::size_t> shape_;
  std::vector<std::int64_t> strides_;
  MemoryKind kind_ = MemoryKind::host;
  int device_ = 0;
  std::size_t item_bytes_ = 0;
  bool is_bits_ = false;
  std::optional<DType> dtype_;
  std::string type_name_;
  nb::object owner_;
};

/// How DLPack and NumPy call a type.
nb::dlpack::dtype dlpack_type(DType dtype);
/// The nearest that NumPy has: bits where it has no such type.
nb::dlpack::dtype numpy_type(DType dtype);

}  // namespace pando::python
