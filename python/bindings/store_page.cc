// SPDX-License-Identifier: Apache-2.0
#include "store_page.h"

#include <fmt/format.h>

#include <cstring>

#include "buffers.h"
#include "docs.h"
#include "errors.h"
#include "interpreter.h"
#include "pando/store.h"

namespace pando::python {

namespace {

constexpr std::size_t kLongCopy = 64 << 10;  // bytes from which a copy is worth the GIL's while

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  if (!nb::inst_ready(self)) return -1;
  auto* page = nb::inst_ptr<PyStorePage>(self);
  if (page->exporting == PyStorePage::kNoPiece) {
    PyErr_SetString(PyExc_BufferError, "a StorePage has several buffers: take page[i]");
    return -1;
  }
  const std::span<std::byte> piece = page->pieces[page->exporting];
  if (PyBuffer_FillInfo(view, self, piece.data(), static_cast<Py_ssize_t>(piece.size()),
                        page->writable ? 0 : 1, flags) != 0)
    return -1;
  ++page->num_exports;
  return 0;
}

void release_buffer(PyObject* self, Py_buffer*) { --nb::inst_ptr<PyStorePage>(self)->num_exports; }

nb::object piece_of(nb::handle self, std::int64_t index) {
  auto& page = nb::cast<PyStorePage&>(self);
  page.require_open();
  const auto size = static_cast<std::int64_t>(page.pieces.size());
  const std::int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size)
    throw nb::index_error(fmt::format("page {} has {} buffers", page.key, size).c_str());
  page.exporting = static_cast<std::size_t>(at);
  nb::object view = nb::steal(PyMemoryView_FromObject(self.ptr()));
  page.exporting = PyStorePage::kNoPiece;
  if (!view.is_valid()) throw nb::python_error();
  page.views.push_back(view);
  return view;
}

template <typename Copy>
void copy_long(std::size_t size_bytes, Copy&& copy) {
  if (size_bytes < kLongCopy) return copy();
  const GilRelease released;
  copy();
}

nb::object bytes_of(const PyStorePage& page) {
  page.require_open();
  nb::object bytes =
      nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(page.size_bytes())));
  if (!bytes.is_valid()) throw nb::python_error();
  char* to = PyBytes_AsString(bytes.ptr());
  copy_long(page.size_bytes(), [&] {
    for (const auto& piece : page.pieces) {
      if (!piece.empty()) std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    }
  });
  return bytes;
}

PageOutcome copy_from(PyStorePage& page, nb::handle data) {
  page.require_open();
  if (!page.writable) raise_invalid(fmt::format("page {}: it is being put, not read", page.key));
  const ByteView from(data, "data", false);
  if (from.bytes().size() != page.size_bytes()) return PageOutcome::damaged;
  const std::byte* at = from.bytes().data();
  copy_long(page.size_bytes(), [&] {
    for (const auto& piece : page.pieces) {
      if (!piece.empty()) std::memcpy(piece.data(), at, piece.size());
      at += piece.size();
    }
  });
  return PageOutcome::done;
}

template <typename Value>
nb::object per_piece(const PyStorePage& page, Value&& value) {
  page.require_open();
  nb::list list;
  for (const auto& piece : page.pieces) list.append(value(piece));
  return list;
}

}  // namespace

std::size_t PyStorePage::size_bytes() const {
  std::size_t sum = 0;
  for (const auto& piece : pieces) sum += piece.size();
  return sum;
}

void PyStorePage::require_open() const {
  if (ended) raise_invalid(fmt::format("page {}: the call that it belongs to has ended", key));
}

bool PyStorePage::end() {
  ended = true;
  for (const nb::object& view : views) {
    PyObject* released = PyObject_CallMethod(view.ptr(), "release", nullptr);
    if (released == nullptr) PyErr_Clear();  // then there are exports, which are counted
    Py_XDECREF(released);
  }
  views.clear();
  return num_exports == 0;
}

void bind_store_page(nb::module_& m) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&get_buffer)},
                                {Py_bf_releasebuffer, reinterpret_cast<void*>(&release_buffer)},
                                {0, nullptr}};
  Class<PyStorePage>(m, "StorePage", nb::type_slots(slots))
      .def_prop_ro("key", [](const PyStorePage& self) { return self.key; })
      .def("__len__", [](const PyStorePage& self) { return self.pieces.size(); })
      .def(
          "__getitem__",
          [](nb::handle_t<PyStorePage> self, std::int64_t index) { return piece_of(self, index); },
          nb::arg("index"), nb::sig("def __getitem__(self, index: int) -> memoryview"))
      .def(
          "__iter__",
          [](nb::handle_t<PyStorePage> self) {
            const std::size_t size = nb::cast<const PyStorePage&>(self).pieces.size();
            nb::list views;
            for (std::size_t i = 0; i < size; ++i)
              views.append(piece_of(self, static_cast<std::int64_t>(i)));
            return nb::object(nb::iter(views));
          },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[memoryview]"))
      .def_prop_ro("size_bytes", &PyStorePage::size_bytes)
      .def_prop_ro(
          "addresses",
          [](const PyStorePage& self) {
            return per_piece(self, [](std::span<std::byte> piece) {
              return reinterpret_cast<std::uintptr_t>(piece.data());
            });
          },
          nb::sig("def addresses(self) -> list[int]"))
      .def_prop_ro(
          "sizes",
          [](const PyStorePage& self) {
            return per_piece(self, [](std::span<std::byte> piece) { return piece.size(); });
          },
          nb::sig("def sizes(self) -> list[int]"))
      .def("tobytes", &bytes_of, nb::sig("def tobytes(self) -> bytes"))
      .def("copy_from", &copy_from, nb::arg("data"),
           nb::sig("def copy_from(self, data: typing_extensions.Buffer | "
                   "numpy.typing.NDArray[typing.Any]) -> PageOutcome"))
      .def("__repr__", [](const PyStorePage& self) {
        return fmt::format("<pando.StorePage {} of {} bytes>", self.key, self.size_bytes());
      });
}

}  // namespace pando::python
