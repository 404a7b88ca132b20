// SPDX-License-Identifier: Apache-2.0
// The host mirror of a pool: pages with states, and their bytes.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "buffers.h"
#include "pools.h"
#include "structs.h"

namespace pando::python {

namespace {

/// Numbers of host pages, as an argument.
class HostPages {
 public:
  explicit HostPages(nb::handle pages) : items_(pages, "pages") {}
  operator std::span<const HostPageId>() const {  // NOLINT: a view by nature
    const std::span<const PageId> pages = items_.view();
    return {reinterpret_cast<const HostPageId*>(pages.data()), pages.size()};
  }

 private:
  Items<PageId> items_;
};

/// The calls that move pages from one state to another.
template <void (HostPool::*move)(std::span<const HostPageId>)>
void def_move(Class<PyHostPool>& type, Member<PyHostPool> name) {
  type.def(
      name,
      [name = name.name](PyHostPool& self, TokensArg pages) {
        const HostPages items(pages.object);
        self.call(name, [&](HostPool& pool) { (pool.*move)(items); });
      },
      nb::arg("pages"));
}

void bind_states(Class<PyHostPool>& type) {
  type.def(
      "alloc",
      [](PyHostPool& self, std::size_t num_pages) {
        std::vector<HostPageId> pages(num_pages);
        self.call("alloc", [&](HostPool& pool) { unwrap(pool.alloc(pages)); });
        NewSlots numbers(num_pages);  // int64, as other calls take them
        for (std::size_t i = 0; i < num_pages; ++i)
          numbers.view[i] = static_cast<SlotId>(index_of(pages[i]));
        return std::move(numbers.array);
      },
      nb::arg("num_pages"),
      nb::sig("def alloc(self, num_pages: int) -> numpy.typing.NDArray[numpy.int64]"));
  def_move<&HostPool::free>(type, "free");
  def_move<&HostPool::protect_write>(type, "protect_write");
  type.def(
      "complete_write",
      [](PyHostPool& self, TokensArg pages, bool on_device) {
        const HostPages items(pages.object);
        self.call("complete_write", [&](HostPool& pool) { pool.complete_write(items, on_device); });
      },
      nb::arg("pages"), nb::arg("on_device") = true);
  def_move<&HostPool::abort_write>(type, "abort_write");
  def_move<&HostPool::protect_load>(type, "protect_load");
  def_move<&HostPool::complete_load>(type, "complete_load");
  def_move<&HostPool::abort_load>(type, "abort_load");
  def_move<&HostPool::device_gone>(type, "device_gone");
  def_move<&HostPool::device_came>(type, "device_came");
  type.def(
          "state",
          [](PyHostPool& self, std::uint32_t page) {
            return self.call("state", [&](HostPool& pool) { return pool.state(HostPageId{page}); });
          },
          nb::arg("page"))
      .def(
          "count", [](PyHostPool& self, PageState state) { return self.object->count(state); },
          nb::arg("state"))
      .def("clear",
           [](PyHostPool& self) {
             self.call("clear", [](HostPool& pool) { unwrap(pool.clear()); });
           })
      .def("check", [](PyHostPool& self) {
        self.call("check", [](HostPool& pool) { unwrap(pool.check()); });
      });
}

void bind_bytes(Class<PyHostPool>& type) {
  type.def_prop_ro("page_bytes", [](PyHostPool& self) { return self.object->page_bytes(); })
      .def(
          "read_page",
          [](PyHostPool& self, std::uint32_t page, nb::handle out) {
            nb::object target = nb::borrow(out);
            if (out.is_none())
              target =
                  nb::module_::import_("numpy").attr("empty")(self.object->page_bytes(), "uint8");
            const ByteView bytes(target, "out", true);
            self.call("read_page", [&](HostPool& pool) {
              unwrap(pool.page_bytes(HostPageId{page}, bytes.bytes()));
            });
            return target;
          },
          nb::arg("page"), nb::arg("out") = nb::none(),
          nb::sig("def read_page(self, page: int, out: typing.Any = None) -> typing.Any"))
      .def(
          "load_page",
          [](PyHostPool& self, std::uint32_t page, nb::handle data) {
            const ByteView bytes(data, "data", false);
            self.call("load_page", [&](HostPool& pool) {
              unwrap(pool.load_page(HostPageId{page}, bytes.bytes()));
            });
          },
          nb::arg("page"), nb::arg("data"),
          nb::sig("def load_page(self, page: int, data: typing_extensions.Buffer | "
                  "numpy.typing.NDArray[typing.Any]) -> None"))
      .def(
          "page_regions",
          [](PyHostPool& self, std::uint32_t page) {
            nb::list list;
            for (const MemoryRegion& region : unwrap(self.object->page_regions(HostPageId{page})))
              list.append(nb::cast(region));
            return list;
          },
          nb::arg("page"), nb::sig("def page_regions(self, page: int) -> list[MemoryRegion]"))
      .def_prop_ro("region",
                   [](PyHostPool& self) {
                     return MemoryRegion{self.object->planes().front().layers.front(),
                                         self.object->size_bytes(), self.object->page_bytes()};
                   })
      .def_prop_ro("pages_are_contiguous",
                   [](PyHostPool& self) { return self.object->pages_are_contiguous(); });
}

}  // namespace

void bind_host_pool(nb::module_& m) {
  Enum<HostLayout>(m, "HostLayout")
      .value("layer_first", HostLayout::layer_first)
      .value("page_first", HostLayout::page_first)
      .value("page_first_direct", HostLayout::page_first_direct)
      .value("page_head", HostLayout::page_head);
  Enum<PageState>(m, "PageState")
      .value("idle", PageState::idle)
      .value("reserved", PageState::reserved)
      .value("writing", PageState::writing)
      .value("backed_up", PageState::backed_up)
      .value("synced", PageState::synced)
      .value("loading", PageState::loading);
  Class<PyHostPool> type(m, "HostPool");
  type.def(
          "__init__",
          [](PyHostPool* self, const PyKvPool& device, nb::handle arena, HostLayout layout,
             std::optional<double> ratio, std::optional<std::size_t> size_bytes,
             std::size_t keep_free_bytes) {
            const PyArena memory = to_arena(arena, device.pool->memory_kind());
            const HostPoolOptions options{.layout = layout,
                                          .ratio = ratio,
                                          .size_bytes = size_bytes,
                                          .keep_free_bytes = keep_free_bytes};
            std::unique_ptr<HostPool> pool = unwrap(
                run(true, [&] { return HostPool::create(options, *device.pool, *memory.arena); }));
            new (self) PyHostPool{{pool.release(), [memory](HostPool* p) { delete p; }}};
          },
          nb::arg("device"), nb::arg("arena") = nb::none(),
          nb::arg("layout") = HostLayout::layer_first, nb::kw_only(), nb::arg("ratio") = nb::none(),
          nb::arg("size_bytes") = nb::none(), nb::arg("keep_free_bytes") = std::size_t{1} << 30,
          nb::sig("def __init__(self, device: KvPool, arena: Arena | None = None, layout: "
                  "HostLayout = ..., *, ratio: float | None = None, "
                  "size_bytes: int | None = None, keep_free_bytes: int = 1073741824) -> None"))
      .def_prop_ro("geometry", [](PyHostPool& self) { return self.object->geometry(); })
      .def_prop_ro("layout", [](PyHostPool& self) { return self.object->layout(); })
      .def_prop_ro("memory_kind", [](PyHostPool& self) { return self.object->memory_kind(); })
      .def_prop_ro("size_bytes", [](PyHostPool& self) { return self.object->size_bytes(); })
      .def_prop_ro("num_pages", [](PyHostPool& self) { return self.object->num_pages(); })
      .def_prop_ro("available_pages",
                   [](PyHostPool& self) { return self.object->available_pages(); })
      .def_prop_ro("planes", [](PyHostPool& self) { return self.object->planes(); });
  bind_states(type);
  bind_bytes(type);
}

}  // namespace pando::python
