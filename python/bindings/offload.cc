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

struct PyTable {
  std::shared_ptr<OffloadTable> table;
  std::size_t group_bytes = 0;
  std::array<nb::object, 3> answers;  // by OffloadState
};

struct PyRequest {
  std::shared_ptr<OffloadTable> table;
  OffloadRequest request;
};

OffloadRequest& request_of(const PyTable& self, PyRequest& request) {
  if (request.table != self.table) raise_invalid("request: it is another table's");
  return request.request;
}

int traverse_table(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (const nb::object& answer : nb::inst_ptr<PyTable>(self)->answers) Py_VISIT(answer.ptr());
  return 0;
}
int clear_table(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyTable>(self)->answers = {};
  return 0;
}
PyType_Slot table_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_table)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_table)},
                             {0, nullptr}};

void make_table(PyTable* self, std::size_t num_blocks, const std::string& policy,
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
  new (self) PyTable{std::move(table), group_bytes, std::move(given)};
}

nb::object begin_write(PyTable& self, PyRequest& request, nb::handle keys, nb::handle ends) {
  const Keys given(keys);
  OffloadRequest& by = request_of(self, request);
  const auto room = self.table->begin_write(by, given.in_request(self.group_bytes, ends));
  if (!room && room.error().code == ErrorCode::out_of_capacity) return nb::none();
  if (!room) raise(room.error());
  return nb::make_tuple(given.pick(room->wanted), to_blocks(room->blocks), to_bytes(room->evicted));
}

nb::object begin_read(PyTable& self, nb::handle request, nb::handle keys, nb::handle ends) {
  const Keys given(keys);
  std::vector<std::uint32_t> blocks(given.size());
  if (request.is_none()) {
    unwrap(self.table->begin_read(given.names(), blocks));
  } else {
    OffloadRequest& by = request_of(self, nb::cast<PyRequest&>(request));
    unwrap(self.table->begin_read(by, given.in_request(self.group_bytes, ends), blocks));
  }
  return to_blocks(blocks);
}

void bind_moving(nb::class_<PyTable>& type) {
  type.def("begin_write", begin_write, nb::arg("request"), nb::arg("keys"),
           nb::arg("ends") = nb::none(),
           nb::sig("def begin_write(self, request: OffloadRequest, keys: "
                   "collections.abc.Iterable[bytes], ends: dict[bytes, int] | None = None) -> "
                   "tuple[list[bytes], numpy.typing.NDArray[numpy.int32], list[bytes]] | None"),
           "Which of the keys are absent, a block to write each of these to, and which keys had to "
           "go for them. None: there is no room, because too many blocks are being read or written "
           "or are among the keys. `ends`: tokens of the request up to the end of each key's "
           "chunk, where they are known.")
      .def(
          "end_write",
          [](PyTable& self, nb::handle keys, bool failed) {
            const Keys given(keys);
            return given.pick(self.table->end_write(given.names(), failed));
          },
          nb::arg("keys"), nb::kw_only(), nb::arg("failed") = false,
          nb::sig("def end_write(self, keys: collections.abc.Iterable[bytes], *, failed: bool = "
                  "False) -> list[bytes]"),
          "They are written, and ready from now on; if it `failed`, they are forgotten. Returns "
          "those that were being written.")
      .def("begin_read", begin_read, nb::arg("request").none(), nb::arg("keys"),
           nb::arg("ends") = nb::none(),
           nb::sig("def begin_read(self, request: OffloadRequest | None, keys: "
                   "collections.abc.Iterable[bytes], ends: dict[bytes, int] | None = None) -> "
                   "numpy.typing.NDArray[numpy.int32]"),
           "Their blocks, which stay until end_read(). pando.NotFound, and nothing has changed, "
           "unless all are ready. Without a request it is no use of them: a copy to another tier.")
      .def(
          "end_read",
          [](PyTable& self, nb::handle keys) { unwrap(self.table->end_read(Keys(keys).names())); },
          nb::arg("keys"),
          nb::sig("def end_read(self, keys: collections.abc.Iterable[bytes]) -> None"));
}

void bind_order(nb::class_<PyTable>& type) {
  type.def(
          "start",
          [](PyTable& self) {
            return PyRequest{self.table, self.table->start()};
          },
          "A request, to be given to the calls that follow.")
      .def(
          "use",
          [](PyTable& self, PyRequest& request, nb::handle keys, nb::handle ends) {
            const Keys given(keys);
            self.table->use(request_of(self, request), given.in_request(self.group_bytes, ends));
          },
          nb::arg("request"), nb::arg("keys"), nb::arg("ends") = nb::none(),
          nb::sig("def use(self, request: OffloadRequest, keys: collections.abc.Iterable[bytes], "
                  "ends: dict[bytes, int] | None = None) -> None"),
          "The request has used these, of which only those that are there count.")
      .def(
          "finish",
          [](PyTable& self, PyRequest& request) { self.table->finish(request_of(self, request)); },
          nb::arg("request"),
          "It has ended: what it used is recent now, its head most of all. Copies for it may end "
          "later.")
      .def(
          "touch", [](PyTable& self, nb::handle keys) { self.table->touch(Keys(keys).names()); },
          nb::arg("keys"),
          nb::sig("def touch(self, keys: collections.abc.Iterable[bytes]) -> None"),
          "Those that are there were used now, the first of them last. For who has no requests.")
      .def(
          "evict",
          [](PyTable& self, std::size_t num_blocks, nb::handle kept) {
            return to_bytes(unwrap(self.table->evict(num_blocks, Keys(kept).names())));
          },
          nb::arg("num_blocks"), nb::arg("kept") = nb::make_tuple(),
          nb::sig("def evict(self, num_blocks: int, kept: collections.abc.Iterable[bytes] = ()) -> "
                  "list[bytes]"),
          "Makes so many blocks free, but none of the `kept`; returns the keys that went. "
          "pando.OutOfCapacity, and nothing has changed, if not so many may go.")
      .def(
          "forget",
          [](PyTable& self, nb::handle keys) { return self.table->forget(Keys(keys).names()); },
          nb::arg("keys"),
          nb::sig("def forget(self, keys: collections.abc.Iterable[bytes]) -> int"),
          "Those of the keys that are neither read nor written are absent from now on; how many.")
      .def(
          "clear", [](PyTable& self) { self.table->clear(); },
          "Forgets everything, whoever reads or writes.")
      .def(
          "evictable_keys", [](PyTable& self) { return to_bytes(self.table->evictable_keys()); },
          nb::sig("def evictable_keys(self) -> list[bytes]"),
          "Keys of the blocks that may go; unless the policy is hazard, the next to go first. "
          "O(blocks).")
      .def(
          "check", [](PyTable& self) { unwrap(self.table->check()); },
          "Proves that keys, blocks and order agree. O(blocks).");
  const auto number = [&](const char* name, auto getter, const char* doc) {
    type.def_prop_ro(
        name, [getter](PyTable& self) { return ((*self.table).*getter)(); }, doc);
  };
  number("num_blocks", &OffloadTable::num_blocks, "");
  number("num_keys", &OffloadTable::num_keys, "Blocks that are in use.");
  number("num_writing", &OffloadTable::num_writing, "Blocks that are being written.");
  number("num_reading", &OffloadTable::num_reading, "Blocks that are being read.");
  number("num_evictable", &OffloadTable::num_evictable, "Blocks that may be evicted.");
  number("memory_bytes", &OffloadTable::memory_bytes, "");
  type.def_prop_ro("policy", [](PyTable& self) { return std::string(self.table->policy()); });
}

}  // namespace

void bind_offload(nb::module_& m) {
  nb::enum_<OffloadState>(m, "OffloadState", "Whether an OffloadTable has a key.")
      .value("absent", OffloadState::absent)
      .value("writing", OffloadState::writing)
      .value("ready", OffloadState::ready);
  nb::class_<PyRequest>(m, "OffloadRequest", "What one request has used of an OffloadTable.");
  nb::class_<PyTable> type(
      m, "OffloadTable", nb::type_slots(table_slots),
      "Which blocks of host memory hold which KV, for an engine that copies KV itself: keys are "
      "bytes of the engine's, blocks are numbers.\n\n"
      ">>> table = pando.OffloadTable(2)\n"
      ">>> request = table.start()\n"
      ">>> wanted, blocks, evicted = table.begin_write(request, [b'a', b'b'])\n"
      ">>> wanted, blocks.tolist(), evicted\n"
      "([b'a', b'b'], [0, 1], [])\n"
      ">>> table.end_write(wanted)\n"
      "[b'a', b'b']\n"
      ">>> table.finish(request)\n"
      ">>> table.find(b'a')\n"
      "OffloadState.ready\n"
      ">>> table.begin_write(table.start(), [b'c'])[2]\n"
      "[b'b']\n");
  type.def(
          "__init__", make_table, nb::arg("num_blocks"), nb::kw_only(), nb::arg("policy") = "lru",
          nb::arg("block_tokens") = 64, nb::arg("main_group") = 0, nb::arg("group_bytes") = 0,
          nb::arg("answers") = nb::none(),
          nb::sig("def __init__(self, num_blocks: int, *, policy: str = 'lru', block_tokens: int "
                  "= 64, main_group: int = 0, group_bytes: int = 0, answers: "
                  "collections.abc.Sequence[object] | None = None) -> None"),
          "`policy`: a name as PrefixCache takes it. `block_tokens`: of a block, for policies that "
          "learn. The last `group_bytes` of a key number its group of layers; `main_group` is the "
          "one whose chain has every chunk of a prefix. `answers`: what find() returns for a key "
          "that is absent, being written, ready, in place of an OffloadState.")
      .def(
          "find",
          [](PyTable& self, nb::handle key, nb::handle) {
            return self.answers[static_cast<std::size_t>(self.table->find(bytes_of(key)))];
          },
          nb::arg("key"), nb::arg("context") = nb::none(),
          nb::sig("def find(self, key: bytes, context: object = None) -> typing.Any"),
          "Whether it is there. `context` is for callers that have one, and is ignored.");
  bind_moving(type);
  bind_order(type);
}

}  // namespace pando::python
