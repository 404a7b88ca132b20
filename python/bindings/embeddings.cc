// SPDX-License-Identifier: Apache-2.0
// The cache never reads embeddings, so it holds Python objects as they are: arrays, tensors on a
// GPU, bytes. Its calls are short and keep the GIL; objects are let go of when its mutex is free,
// so whatever their destructors do may call it again.
#include "embeddings.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "errors.h"
#include "events.h"
#include "pando/embedding_cache.h"
#include "structs.h"

namespace pando::python {

namespace {

/// A Python object inside an Embedding. A buffer is held, so that nobody resizes it.
class Held {
 public:
  explicit Held(nb::handle value) : object(nb::borrow(value)) {
    if (PyObject_CheckBuffer(value.ptr()) == 0) return;
    if (PyObject_GetBuffer(value.ptr(), &buffer_, PyBUF_FULL_RO) != 0) throw nb::python_error();
  }
  ~Held() {
    const nb::gil_scoped_acquire gil;
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
    object.reset();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  bool is_buffer() const { return buffer_.obj != nullptr; }
  std::size_t size_bytes() const { return static_cast<std::size_t>(buffer_.len); }

  nb::object object;

 private:
  Py_buffer buffer_ = {};
};

std::size_t size_of(const Held& held, std::optional<std::size_t> given) {
  if (given) return *given;
  if (held.is_buffer()) return held.size_bytes();
  std::size_t size = 0;
  if (nb::hasattr(held.object, "nbytes") && nb::try_cast(held.object.attr("nbytes"), size))
    return size;
  raise_invalid(
      fmt::format("put of an embedding: expected bytes, an array or a tensor, got {}; give "
                  "size_bytes for anything else",
                  nb::cast<std::string>(held.object.type().attr("__name__"))));
}

class PyEmbeddingCache {
 public:
  explicit PyEmbeddingCache(std::size_t capacity_bytes)
      : cache_(unwrap(EmbeddingCache::create(capacity_bytes))) {}

  EmbeddingCache& operator*() { return *cache_; }
  EmbeddingCache* operator->() { return cache_.get(); }

 private:
  std::unique_ptr<EmbeddingCache> cache_;
};

}  // namespace

void bind_embeddings(nb::module_& m) {
  bind_struct<EmbeddingStats>(m, "EmbeddingStats")
      .field("hits", &EmbeddingStats::hits, "int")
      .field("misses", &EmbeddingStats::misses, "int")
      .field("evictions", &EmbeddingStats::evictions, "int")
      .field("refused", &EmbeddingStats::refused, "int")
      .field("used_bytes", &EmbeddingStats::used_bytes, "int")
      .done();
  using Py = PyEmbeddingCache;
  Class<Py>(m, "EmbeddingCache")
      .def(nb::init<std::size_t>(), nb::arg("capacity_bytes"))
      .def(
          "put",
          [](Py& self, nb::handle hash, nb::handle value, std::optional<std::size_t> size_bytes) {
            const std::string name = from_text(hash, "hash");
            if (value.is_none()) raise_invalid("put of an embedding: None is no embedding");
            auto held = std::make_shared<const Held>(value);
            const std::size_t size = size_of(*held, size_bytes);
            unwrap(self->put(name, {.data = std::move(held), .size_bytes = size}));
          },
          nb::arg("hash"), nb::arg("value").none(), nb::kw_only(),
          nb::arg("size_bytes") = nb::none(),
          nb::sig("def put(self, hash: str | bytes, value: object, *, size_bytes: int | None = "
                  "None) -> None"))
      .def(
          "has", [](Py& self, nb::handle hash) { return self->has(from_text(hash, "hash")); },
          nb::arg("hash"), nb::sig("def has(self, hash: str | bytes) -> bool"))
      .def(
          "__contains__",
          [](Py& self, nb::handle hash) { return self->has(from_text(hash, "hash")); },
          nb::arg("hash"), nb::sig("def __contains__(self, hash: str | bytes) -> bool"))
      .def(
          "get",
          [](Py& self, nb::handle hash) -> nb::object {
            const std::optional<Embedding> found = self->get(from_text(hash, "hash"));
            if (!found) return nb::none();
            return static_cast<const Held*>(found->data.get())->object;
          },
          nb::arg("hash"), nb::sig("def get(self, hash: str | bytes) -> typing.Any"))
      .def("clear", [](Py& self) { self->clear(); })
      .def("__len__", [](Py& self) { return self->size(); })
      .def_prop_ro("size", [](Py& self) { return self->size(); })
      .def_prop_ro("capacity_bytes", [](Py& self) { return self->capacity_bytes(); })
      .def_prop_ro("stats", [](Py& self) { return self->stats(); })
      .def("check", [](Py& self) { unwrap(self->check()); });
  def(
      m, "combined_hash",
      [](nb::handle hashes) {
        std::vector<std::string> texts;
        for (const nb::handle hash : hashes) texts.push_back(from_text(hash, "hashes"));
        const std::vector<std::string_view> views(texts.begin(), texts.end());
        return to_text(unwrap(pando::combined_hash(views)));
      },
      nb::arg("hashes"),
      nb::sig("def combined_hash(hashes: collections.abc.Iterable[str | bytes]) -> str"));
}

}  // namespace pando::python
