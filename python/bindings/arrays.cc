// SPDX-License-Identifier: Apache-2.0
#include "arrays.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/unique_ptr.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "docs.h"
#include "errors.h"

namespace pando::python {

namespace {

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(object.type().attr("__name__"));
}

/// Unsigned ones too: pages are. What does not fit is negative here, and refused.
constexpr bool is_integer_format(char format) {
  return std::string_view("ilqnILQN").find(format) != std::string_view::npos;
}

// Kept for the interpreter's life: they are NumPy's, and looking them up costs most of a call. The
// GIL guards them. C++'s own guard of a static must not: importing lets go of the GIL, and a thread
// that waits for the guard would have it.
template <typename Make>
nb::handle kept_once(PyObject*& kept, Make make) {
  if (kept == nullptr) {
    nb::object made = make();
    if (kept == nullptr) kept = made.release().ptr();
  }
  return kept;
}
nb::object of_numpy(const char* name) { return nb::module_::import_("numpy").attr(name); }

nb::handle numpy_int64() {
  static PyObject* dtype = nullptr;
  return kept_once(dtype, [] { return of_numpy("dtype")("int64"); });
}
nb::handle numpy_empty() {
  static PyObject* empty = nullptr;
  return kept_once(empty, [] { return of_numpy("empty"); });
}
nb::handle numpy_frombuffer() {
  static PyObject* frombuffer = nullptr;
  return kept_once(frombuffer, [] { return of_numpy("frombuffer"); });
}

/// Memory that goes back to the shelf with the last array over it.
struct SpareBlock {
  explicit SpareBlock(std::size_t size) : size_bytes(size), data(take_spare(size)) {}
  ~SpareBlock() { give_spare(data, size_bytes); }
  SpareBlock(const SpareBlock&) = delete;
  SpareBlock& operator=(const SpareBlock&) = delete;

  std::size_t size_bytes;
  void* data;
};

int get_block(PyObject* self, Py_buffer* view, int flags) {
  const auto* block = nb::inst_ptr<SpareBlock>(self);
  return PyBuffer_FillInfo(view, self, block->data, static_cast<Py_ssize_t>(block->size_bytes), 0,
                           flags);
}

/// Writes through the buffer of an array that has just been made.
void* memory_of(nb::handle array) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_SIMPLE | PyBUF_WRITABLE) != 0)
    throw nb::python_error();
  void* data = buffer.buf;
  PyBuffer_Release(&buffer);
  return data;
}

template <typename T>
nb::object copy_to_numpy(std::span<const T> items, const char* dtype) {
  nb::object array = numpy_empty()(items.size(), dtype);
  if (!items.empty()) std::memcpy(memory_of(array), items.data(), items.size_bytes());
  return array;
}

/// Whether every item fits: one pass without branches, so that it is done many at a time.
template <typename T, typename From>
bool convert(const From* from, std::size_t size, T* to) {
  // Tokens and slots are not negative, so what does not fit has a bit beyond those of T's values.
  constexpr std::int64_t kAllowed = std::is_same_v<T, Token> || std::is_same_v<T, PageId>
                                        ? std::int64_t{std::numeric_limits<std::int32_t>::max()}
                                        : std::numeric_limits<std::int64_t>::max();
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::int64_t value = from[i];
    seen |= value;
    to[i] = static_cast<T>(value);
  }
  return (seen & ~kAllowed) == 0;
}

template <typename T, typename From>
[[noreturn]] void raise_out_of_range(const From* from, std::size_t size, const char* what) {
  for (std::size_t i = 0; i < size; ++i) {
    T converted;
    if (!convert(from + i, 1, &converted))
      raise_invalid(fmt::format("{}[{}] is {}: expected {}", what, i, from[i],
                                sizeof(T) == 4 ? "0 to 2147483647" : "0 or more"));
  }
  raise_invalid(fmt::format("{}: out of range", what));
}

}  // namespace

IntegerView::IntegerView(nb::handle source, const char* what, bool writable) {
  if (PyObject_CheckBuffer(source.ptr()))
    hold_buffer(source, what, writable);
  else if (nb::hasattr(source, "__dlpack__"))
    hold_tensor(source, what, writable);
  else if (writable)
    raise_invalid(
        fmt::format("{}: expected a writable array of int64, got {}", what, class_name(source)));
  else
    read_items(source, what);
  if (writable && item_bytes_ != sizeof(std::int64_t)) {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
    raise_invalid(fmt::format("{}: expected a writable array of int64, got one of int32", what));
  }
}

IntegerView::~IntegerView() {
  if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
}

void IntegerView::hold_buffer(nb::handle source, const char* what, bool writable) {
  const int flags = PyBUF_FORMAT | PyBUF_ND | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(source.ptr(), &buffer_, flags) != 0) {
    PyErr_Clear();
    if (writable)
      raise_invalid(
          fmt::format("{}: expected a writable, contiguous array of int64, got a {} "
                      "that is not",
                      what, class_name(source)));
    // Strided: a contiguous copy.
    owner_ = nb::module_::import_("numpy").attr("ascontiguousarray")(source);
    if (PyObject_GetBuffer(owner_.ptr(), &buffer_, flags) != 0) throw nb::python_error();
  }
  const char* format = buffer_.format == nullptr ? "B" : buffer_.format;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const bool known = is_integer_format(format[0]) && format[1] == '\0' &&
                     (buffer_.itemsize == 4 || buffer_.itemsize == 8);
  if (buffer_.ndim != 1 || !known) {
    const std::string got = fmt::format("{} dimensions of format '{}'", buffer_.ndim, format);
    PyBuffer_Release(&buffer_);
    raise_invalid(fmt::format("{}: expected one dimension of int32 or int64, got {}", what, got));
  }
  data_ = buffer_.buf;
  size_ = static_cast<std::size_t>(buffer_.shape[0]);
  item_bytes_ = static_cast<std::size_t>(buffer_.itemsize);
}

void IntegerView::hold_tensor(nb::handle source, const char* what, bool writable) {
  nb::ndarray<nb::ro, nb::c_contig> read;
  nb::ndarray<nb::c_contig> write;
  const bool taken = writable ? nb::try_cast(source, write, false) : nb::try_cast(source, read);
  if (!taken)
    raise_invalid(fmt::format("{}: this {} cannot be read through DLPack{}", what,
                              class_name(source), writable ? ", or is not contiguous" : ""));
  const auto take = [&](const auto& tensor) {
    if (tensor.device_type() != nb::device::cpu::value)
      raise_invalid(
          fmt::format("{}: expected a tensor on the CPU, got one on another device", what));
    const auto dtype = tensor.dtype();
    if (tensor.ndim() != 1 ||
        (dtype.code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int) &&
         dtype.code != static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt)) ||
        (dtype.bits != 32 && dtype.bits != 64))
      raise_invalid(fmt::format(
          "{}: expected one dimension of int32 or int64, got {} dimensions of another type", what,
          tensor.ndim()));
    data_ = const_cast<void*>(static_cast<const void*>(tensor.data()));
    size_ = tensor.size();
    item_bytes_ = dtype.bits / 8U;
    owner_ = nb::cast(tensor);
  };
  if (writable)
    take(write);
  else
    take(read);
}

void IntegerView::read_items(nb::handle source, const char* what) {
  const nb::object items = nb::steal(PySequence_Fast(source.ptr(), ""));
  if (!items.is_valid()) {
    PyErr_Clear();
    raise_invalid(fmt::format("{}: expected an array of int32 or int64 or a list of ints, got {}",
                              what, class_name(source)));
  }
  size_ = nb::len(items);
  item_bytes_ = sizeof(std::int64_t);
  copied_ = Scratch<std::int64_t>(size_);
  data_ = copied_.get();
  const bool is_list = PyList_Check(items.ptr()) != 0;
  for (std::size_t i = 0; i < size_; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    PyObject* item =
        is_list ? NB_LIST_GET_ITEM(items.ptr(), at) : NB_TUPLE_GET_ITEM(items.ptr(), at);
    const long long value = PyLong_AsLongLong(item);
    if (value == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      raise_invalid(fmt::format("{}[{}] is {}: expected an integer", what, i,
                                nb::cast<std::string>(nb::repr(item))));
    }
    copied_.get()[i] = value;
  }
}

template <typename T>
void copy_items(const IntegerView& source, const char* what, T* out) {
  const auto from = [&]<typename From>(const From* items) {
    if constexpr (sizeof(From) == sizeof(T)) {
      if (source.size() > 0) std::memcpy(out, items, source.size() * sizeof(T));
    } else if (!convert(items, source.size(), out)) {
      raise_out_of_range<T>(items, source.size(), what);
    }
  };
  if (source.item_bytes() == 4)
    from(static_cast<const std::int32_t*>(source.data()));
  else
    from(static_cast<const std::int64_t*>(source.data()));
}
template void copy_items(const IntegerView&, const char*, Token*);
template void copy_items(const IntegerView&, const char*, SlotId*);

template <typename T>
Items<T>::Items(nb::handle source, const char* what) : source_(source, what) {
  const std::size_t size = source_.size();
  if (source_.item_bytes() == sizeof(T)) {
    // Values are looked at where the library uses them.
    items_ = {static_cast<const T*>(source_.data()), size};
    return;
  }
  converted_ = Scratch<T>(size);
  copy_items(source_, what, converted_.get());
  items_ = {converted_.get(), size};
}

template class Items<Token>;
template class Items<SlotId>;
template class Items<PageId>;
template class Items<std::size_t>;

NewSlots::NewSlots(std::size_t size) {
  if (size * sizeof(SlotId) < kSpareMinBytes) {
    array = numpy_empty()(size, numpy_int64());
    view = {static_cast<SlotId*>(memory_of(array)), size};
    return;
  }
  nb::object memory = nb::cast(std::make_unique<SpareBlock>(size * sizeof(SlotId)));
  view = {static_cast<SlotId*>(nb::inst_ptr<SpareBlock>(memory)->data), size};
  array = numpy_frombuffer()(memory, numpy_int64());
}

void bind_arrays(nb::module_& m) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_block)},
                                {0, nullptr}};
  Class<SpareBlock>(m, "_SpareBlock", nb::type_slots(slots));
  def(
      m, "copy_slots",
      [](SlotsArg slots) {
        const IntegerView source(slots.object, "slots");
        NewSlots copy(source.size());
        copy_items(source, "slots", copy.view.data());
        return std::move(copy.array);
      },
      nb::arg("slots"),
      nb::sig(
          "def copy_slots(slots: numpy.typing.ArrayLike) -> numpy.typing.NDArray[numpy.int64]"));
}

nb::object to_numpy(std::span<const SlotId> slots) { return copy_to_numpy(slots, "int64"); }
nb::object to_numpy(std::span<const PageId> pages) { return copy_to_numpy(pages, "uint32"); }
nb::object to_numpy(std::span<const Token> tokens) { return copy_to_numpy(tokens, "int32"); }
nb::object to_numpy(std::span<const std::size_t> values) { return copy_to_numpy(values, "uint64"); }
nb::object to_numpy(std::span<const double> values) { return copy_to_numpy(values, "float64"); }

nb::object view_of(std::span<SlotId> slots, nb::handle owner) {
  const nb::object array = nb::cast(
      nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>(slots.data(), {slots.size()}, owner));
  return array.attr("view")(numpy_int64());  // not a "long long" of the same width
}

std::string_view NamespaceArg::view() const {
  PyObject* text = object.ptr();
  if (PyUnicode_Check(text) != 0) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(text, &size);
    if (data == nullptr) throw nb::python_error();
    return {data, static_cast<std::size_t>(size)};
  }
  if (PyBytes_Check(text) != 0) {
    char* data = nullptr;
    Py_ssize_t size = 0;
    if (PyBytes_AsStringAndSize(text, &data, &size) != 0) throw nb::python_error();
    return {data, static_cast<std::size_t>(size)};
  }
  raise_invalid(fmt::format("ns: expected str or bytes, got {}", class_name(object)));
}

}  // namespace pando::python
