// SPDX-License-Identifier: Apache-2.0
// OffloadTable. Calls hold the GIL, and take their arguments apart before they change anything: no
// code of Python's runs in the middle of one, and a table needs no guard.
#include "offload.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>

#include "arrays.h"
#include "buffers.h"
#include "errors.h"
#include "pando/offload.h"
#include "structs.h"

namespace pando::python {
namespace {

std::string_view bytes_of(nb::handle key) {
  if (PyBytes_Check(key.ptr()) == 0)
    raise_invalid(fmt::format("a key: expected bytes, got {}", class_name(key)));
  return {PyBytes_AsString(key.ptr()), static_cast<std::size_t>(PyBytes_Size(key.ptr()))};
}

/// The keys of a call, held while it runs.
class Keys {
 public:
  explicit Keys(nb::handle keys)
      : list_(PyList_Check(keys.ptr()) != 0 ? nb::borrow(keys)
                                            : nb::steal(PySequence_List(keys.ptr()))) {
    if (!list_.is_valid()) throw nb::python_error();
    names_.reserve(size());
    for (std::size_t i = 0; i < size(); ++i) names_.push_back(bytes_of(at(i)));
  }

  std::size_t size() const { return static_cast<std::size_t>(PyList_Size(list_.ptr())); }
  nb::handle at(std::size_t i) const {
    return PyList_GetItem(list_.ptr(), static_cast<Py_ssize_t>(i));
  }
  std::span<const std::string_view> names() const { return names_; }
  /// `ends`: None, or a dict from keys to positions, some of which may be missing.
  std::vector<OffloadKey> in_request(std::size_t group_bytes, nb::handle ends) const {
    std::vector<OffloadKey> keys(size());
    for (std::size_t i = 0; i < size(); ++i) {
      keys[i].bytes = names_[i];
      keys[i].group = group_of(names_[i], group_bytes);
      if (!ends.is_none()) keys[i].end = end_of(at(i), ends);
    }
    return keys;
  }
  nb::list pick(const std::vector<std::size_t>& numbers) const {
    nb::list picked;
    for (const std::size_t i : numbers) picked.append(at(i));
    return picked;
  }

 private:
  static std::uint32_t group_of(std::string_view name, std::size_t group_bytes) {
    std::uint32_t group = 0;
    for (std::size_t i = name.size() - std::min(group_bytes, name.size()); i < name.size(); ++i)
      group = group << 8 | static_cast<unsigned char>(name[i]);
    return group;
  }
  static std::uint64_t end_of(nb::handle key, nb::handle ends) {
    PyObject* end = PyDict_GetItemWithError(ends.ptr(), key.ptr());
    if (end == nullptr) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return 0;
    }
    const unsigned long long value = PyLong_AsUnsignedLongLong(end);
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return value;
  }

  nb::object list_;
  std::vector<std::string_view> names_;
};

nb::object to_blocks(std::span<const std::uint32_t> blocks) {
  return to_numpy(
      std::span<const Token>(reinterpret_cast<const Token*>(blocks.data()), blocks.size()));
}

nb::list to_bytes(const std::vector<std::string>& keys) {
  nb::list list;
  for (const std::string& key : keys) list.append(nb::bytes(key.data(), key.size()));
  return list;
}

struct PyOffloadTable {
  std::shared_ptr<OffloadTable> table;
  std::size_t group_bytes = 0;
  std::array<nb::object, 3> answers;  // by OffloadState
};

struct PyOffloadRequest {
  std::shared_ptr<OffloadTable> table;
  OffloadRequest request;
};

OffloadRequest& request_of(const PyOffloadTable& self, PyOffloadRequest& request) {
  if (request.table != self.table) raise_invalid("request: it is another table's");
  return request.request;
}

int traverse_table(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const nb::object& answer : nb::inst_ptr<PyOffloadTable>(self)->answers)
    Py_VISIT(answer.ptr());
  return 0;
}
int clear_table(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyOffloadTable>(self)->answers = {};
  return 0;
}
PyType_Slot table_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_table)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_table)},
                             {0, nullptr}};

void make_table(PyOffloadTable* self, std::size_t num_blocks, const std::string& policy,
                std::size_t block_tokens, std::uint32_t main_group, std::size_t group_bytes,
                nb::handle answers) {
  if (group_bytes > sizeof(std::uint32_t))
    raise_invalid(fmt::format("group_bytes: expected 0 to 4, got {}", group_bytes));
  std::array<nb::object, 3> given;
  if (answers.is_none()) {
    for (std::size_t i = 0; i < given.size(); ++i)
      given[i] = nb::cast(static_cast<OffloadState>(i));
  } else {
    const nb::object list = nb::steal(PySequence_List(answers.ptr()));
    if (!list.is_valid()) throw nb::python_error();
    if (nb::len(list) != given.size())
      raise_invalid(fmt::format("answers: expected 3, got {}", nb::len(list)));
    for (std::size_t i = 0; i < given.size(); ++i) given[i] = list[i];
  }
  std::shared_ptr<OffloadTable> table = unwrap(OffloadTable::create({.num_blocks = num_blocks,
                                                                     .policy = policy,
                                                                     .block_tokens = block_tokens,
                                                                     .main_group = main_group}));
  new (self) PyOffloadTable{std::move(table), group_bytes, std::move(given)};
}

nb::object begin_write(PyOffloadTable& self, PyOffloadRequest& request, nb::handle keys,
                       nb::handle ends) {
  const Keys given(keys);
  OffloadRequest& by = request_of(self, request);
  const auto room = self.table->begin_write(by, given.in_request(self.group_bytes, ends));
  if (!room && room.error().code == ErrorCode::out_of_capacity) return nb::none();
  if (!room) raise(room.error());
  return nb::make_tuple(given.pick(room->wanted), to_blocks(room->blocks), to_bytes(room->evicted));
}

nb::object begin_read(PyOffloadTable& self, nb::handle request, nb::handle keys, nb::handle ends) {
  const Keys given(keys);
  std::vector<std::uint32_t> blocks(given.size());
  if (request.is_none()) {
    unwrap(self.table->begin_read(given.names(), blocks));
  } else {
    OffloadRequest& by = request_of(self, nb::cast<PyOffloadRequest&>(request));
    unwrap(self.table->begin_read(by, given.in_request(self.group_bytes, ends), blocks));
  }
  return to_blocks(blocks);
}

void bind_moving(Class<PyOffloadTable>& type) {
  type.def("begin_write", begin_write, nb::arg("request"), nb::arg("keys"),
           nb::arg("ends") = nb::none(),
           nb::sig("def begin_write(self, request: OffloadRequest, keys: "
                   "collections.abc.Iterable[bytes], ends: dict[bytes, int] | None = None) -> "
                   "tuple[list[bytes], numpy.typing.NDArray[numpy.int32], list[bytes]] | None"))
      .def(
          "end_write",
          [](PyOffloadTable& self, nb::handle keys, bool failed) {
            const Keys given(keys);
            return given.pick(self.table->end_write(given.names(), failed));
          },
          nb::arg("keys"), nb::kw_only(), nb::arg("failed") = false,
          nb::sig("def end_write(self, keys: collections.abc.Iterable[bytes], *, failed: bool = "
                  "False) -> list[bytes]"))
      .def("begin_read", begin_read, nb::arg("request").none(), nb::arg("keys"),
           nb::arg("ends") = nb::none(),
           nb::sig("def begin_read(self, request: OffloadRequest | None, keys: "
                   "collections.abc.Iterable[bytes], ends: dict[bytes, int] | None = None) -> "
                   "numpy.typing.NDArray[numpy.int32]"))
      .def(
          "end_read",
          [](PyOffloadTable& self, nb::handle keys) {
            unwrap(self.table->end_read(Keys(keys).names()));
          },
          nb::arg("keys"),
          nb::sig("def end_read(self, keys: collections.abc.Iterable[bytes]) -> None"));
}

void bind_order(Class<PyOffloadTable>& type) {
  type.def("start",
           [](PyOffloadTable& self) {
             return PyOffloadRequest{self.table, self.table->start()};
           })
      .def(
          "use",
          [](PyOffloadTable& self, PyOffloadRequest& request, nb::handle keys, nb::handle ends) {
            const Keys given(keys);
            self.table->use(request_of(self, request), given.in_request(self.group_bytes, ends));
          },
          nb::arg("request"), nb::arg("keys"), nb::arg("ends") = nb::none(),
          nb::sig("def use(self, request: OffloadRequest, keys: collections.abc.Iterable[bytes], "
                  "ends: dict[bytes, int] | None = None) -> None"))
      .def(
          "finish",
          [](PyOffloadTable& self, PyOffloadRequest& request) {
            self.table->finish(request_of(self, request));
          },
          nb::arg("request"))
      .def(
          "touch",
          [](PyOffloadTable& self, nb::handle keys) { self.table->touch(Keys(keys).names()); },
          nb::arg("keys"),
          nb::sig("def touch(self, keys: collections.abc.Iterable[bytes]) -> None"))
      .def(
          "evict",
          [](PyOffloadTable& self, std::size_t num_blocks, nb::handle kept) {
            return to_bytes(unwrap(self.table->evict(num_blocks, Keys(kept).names())));
          },
          nb::arg("num_blocks"), nb::arg("kept") = nb::make_tuple(),
          nb::sig("def evict(self, num_blocks: int, kept: collections.abc.Iterable[bytes] = ()) -> "
                  "list[bytes]"))
      .def(
          "forget",
          [](PyOffloadTable& self, nb::handle keys) {
            return self.table->forget(Keys(keys).names());
          },
          nb::arg("keys"),
          nb::sig("def forget(self, keys: collections.abc.Iterable[bytes]) -> int"))
      .def("clear", [](PyOffloadTable& self) { self.table->clear(); })
      .def(
          "evictable_keys",
          [](PyOffloadTable& self) { return to_bytes(self.table->evictable_keys()); },
          nb::sig("def evictable_keys(self) -> list[bytes]"))
      .def("check", [](PyOffloadTable& self) { unwrap(self.table->check()); });
  const auto number = [&](Member<PyOffloadTable> name, auto getter) {
    type.def_prop_ro(name, [getter](PyOffloadTable& self) { return ((*self.table).*getter)(); });
  };
  number("num_blocks", &OffloadTable::num_blocks);
  number("num_keys", &OffloadTable::num_keys);
  number("num_writing", &OffloadTable::num_writing);
  number("num_reading", &OffloadTable::num_reading);
  number("num_evictable", &OffloadTable::num_evictable);
  number("memory_bytes", &OffloadTable::memory_bytes);
  type.def_prop_ro("policy",
                   [](PyOffloadTable& self) { return std::string(self.table->policy()); });
}

}  // namespace

void bind_offload(nb::module_& m) {
  Enum<OffloadState>(m, "OffloadState")
      .value("absent", OffloadState::absent)
      .value("writing", OffloadState::writing)
      .value("ready", OffloadState::ready);
  Class<PyOffloadRequest>(m, "OffloadRequest");
  Class<PyOffloadTable> type(m, "OffloadTable", nb::type_slots(table_slots));
  type.def("__init__", make_table, nb::arg("num_blocks"), nb::kw_only(), nb::arg("policy") = "lru",
           nb::arg("block_tokens") = 64, nb::arg("main_group") = 0, nb::arg("group_bytes") = 0,
           nb::arg("answers") = nb::none(),
           nb::sig("def __init__(self, num_blocks: int, *, policy: str = 'lru', block_tokens: int "
                   "= 64, main_group: int = 0, group_bytes: int = 0, answers: "
                   "collections.abc.Sequence[object] | None = None) -> None"))
      .def(
          "find",
          [](PyOffloadTable& self, nb::handle key, nb::handle) {
            return self.answers[static_cast<std::size_t>(self.table->find(bytes_of(key)))];
          },
          nb::arg("key"), nb::arg("context") = nb::none(),
          nb::sig("def find(self, key: bytes, context: object = None) -> typing.Any"));
  bind_moving(type);
  bind_order(type);
}

}  // namespace pando::python
