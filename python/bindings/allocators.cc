// SPDX-License-Identifier: Apache-2.0
// Who owns which slot: PagedAllocator, WindowAllocator, StateAllocator, SlotAllocator, and the
// request table.
#include "allocators.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>

#include "arrays.h"
#include "docs.h"
#include "pando/allocators.h"

namespace pando::python {

namespace {

/// Writes to the caller's array, or a new one of this size.
template <typename Fill>
nb::object fill_slots(std::optional<SlotsArg> out, std::size_t size, Fill&& fill) {
  if (out && !out->object.is_none()) {
    const SlotsOut target(out->object, "out");
    fill(target.view());
    return nb::borrow(out->object);
  }
  NewSlots slots(size);
  fill(slots.view);
  return std::move(slots.array);
}

std::size_t growth(std::span<const std::size_t> from, std::span<const std::size_t> to) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < to.size() && i < from.size(); ++i)
    sum += to[i] > from[i] ? to[i] - from[i] : 0;
  return sum;
}

/// Slots out of both page allocators.
template <typename Allocator>
void bind_taking(Class<Guarded<Allocator>>& type) {
  using Py = Guarded<Allocator>;
  type.def(
          "alloc",
          [](Py& self, std::size_t num_tokens, std::optional<SlotsArg> out) {
            return fill_slots(out, num_tokens, [&](std::span<SlotId> slots) {
              self.call("alloc", [&](Allocator& a) { unwrap(a.alloc(slots)); });
            });
          },
          nb::arg("num_tokens") = 0, nb::kw_only(), nb::arg("out") = nb::none(),
          nb::sig(
              "def alloc(self, num_tokens: int = 0, *, out: numpy.typing.NDArray[numpy.int64] | "
              "None = None) -> numpy.typing.NDArray[numpy.int64]"))
      .def(
          "alloc_extend",
          [](Py& self, TokensArg prefix_lens, TokensArg seq_lens, SlotsArg last_slots,
             std::optional<SlotsArg> out) {
            const Items<std::size_t> from(prefix_lens.object, "prefix_lens");
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            const Items<SlotId> last(last_slots.object, "last_slots");
            return fill_slots(out, growth(from, to), [&](std::span<SlotId> slots) {
              self.call("alloc_extend",
                        [&](Allocator& a) { unwrap(a.alloc_extend(from, to, last, slots)); });
            });
          },
          nb::arg("prefix_lens"), nb::arg("seq_lens"), nb::arg("last_slots"), nb::kw_only(),
          nb::arg("out") = nb::none(),
          nb::sig("def alloc_extend(self, prefix_lens: numpy.typing.ArrayLike, seq_lens: "
                  "numpy.typing.ArrayLike, last_slots: numpy.typing.ArrayLike, *, out: "
                  "numpy.typing.NDArray[numpy.int64] | None = None) -> "
                  "numpy.typing.NDArray[numpy.int64]"))
      .def(
          "alloc_decode",
          [](Py& self, TokensArg seq_lens, SlotsArg last_slots, std::optional<SlotsArg> out) {
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            const Items<SlotId> last(last_slots.object, "last_slots");
            return fill_slots(out, to.view().size(), [&](std::span<SlotId> slots) {
              self.call("alloc_decode",
                        [&](Allocator& a) { unwrap(a.alloc_decode(to, last, slots)); });
            });
          },
          nb::arg("seq_lens"), nb::arg("last_slots"), nb::kw_only(), nb::arg("out") = nb::none(),
          nb::sig("def alloc_decode(self, seq_lens: numpy.typing.ArrayLike, last_slots: "
                  "numpy.typing.ArrayLike, *, out: numpy.typing.NDArray[numpy.int64] | None = "
                  "None) -> numpy.typing.NDArray[numpy.int64]"));
}

/// And back.
template <typename Allocator>
void bind_pages(Class<Guarded<Allocator>>& type) {
  using Py = Guarded<Allocator>;
  bind_taking(type);
  type.def(
          "free",
          [](Py& self, SlotsArg slots) {
            const Items<SlotId> items(slots.object, "slots");
            self.call("free", [&](Allocator& a) { a.free(items); });
          },
          nb::arg("slots"))
      .def(
          "free_pages",
          [](Py& self, TokensArg pages) {
            const Items<PageId> items(pages.object, "pages");
            self.call("free_pages", [&](Allocator& a) { a.free_pages(items); });
          },
          nb::arg("pages"))
      .template def_guarded<&Allocator::begin_free_group>("begin_free_group")
      .template def_guarded<&Allocator::end_free_group>("end_free_group")
      .template def_guarded<&Allocator::backup_state>("backup_state", nb::keep_alive<0, 1>())
      .template def_guarded<&Allocator::clear>("clear")
      .template def_guarded<&Allocator::check>("check")
      .template def_object_ro<&Allocator::page_size>("page_size")
      .template def_object_ro<&Allocator::memory_bytes>("memory_bytes");
}

void bind_paged(nb::module_& m) {
  using Py = PyPagedAllocator;
  Class<AllocatorState>(m, "AllocatorState");
  Class<Py> type(m, "PagedAllocator");
  type.def(
      "__init__",
      [](Py* self, std::size_t capacity_tokens, std::size_t page_size, ReuseOrder order) {
        new (self) Py{unwrap(PagedAllocator::create(
            {.capacity_tokens = capacity_tokens, .page_size = page_size, .order = order}))};
      },
      nb::arg("capacity_tokens"), nb::arg("page_size") = 1, nb::arg("order") = ReuseOrder::fifo);
  bind_pages(type);
  type.def(
          "pages_for_extend",
          [](Py& self, TokensArg prefix_lens, TokensArg seq_lens) {
            const Items<std::size_t> from(prefix_lens.object, "prefix_lens");
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            return self.object->pages_for_extend(from, to);
          },
          nb::arg("prefix_lens"), nb::arg("seq_lens"))
      .def(
          "pages_for_decode",
          [](Py& self, TokensArg seq_lens) {
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            return self.object->pages_for_decode(to);
          },
          nb::arg("seq_lens"))
      .def(
          "restore_state",
          [](Py& self, AllocatorState& state) {
            self.call("restore_state",
                      [&](PagedAllocator& a) { a.restore_state(std::move(state)); });
          },
          nb::arg("state"))
      .def(
          "is_free",
          [](Py& self, std::uint32_t page) {
            return self.object->is_free(static_cast<PageId>(page));
          },
          nb::arg("page"))
      .def_object_ro<&PagedAllocator::num_pages>("num_pages")
      .def_object_ro<&PagedAllocator::capacity>("capacity")
      .def_object_ro<&PagedAllocator::available>("available")
      .def_object_ro<&PagedAllocator::available_pages>("available_pages");
  def(
      m, "make_token_allocator",
      [](std::size_t capacity_tokens, ReuseOrder order) {
        return Py{unwrap(pando::make_token_allocator(capacity_tokens, order))};
      },
      nb::arg("capacity_tokens"), nb::arg("order") = ReuseOrder::fifo);
}

void bind_window_pages(Class<PyWindowAllocator>& type) {
  using Py = PyWindowAllocator;
  type.def(
          "alloc_full",
          [](Py& self, std::size_t num_tokens) {
            return fill_slots({}, num_tokens, [&](std::span<SlotId> slots) {
              self.call("alloc_full", [&](WindowAllocator& a) { unwrap(a.alloc_full(slots)); });
            });
          },
          nb::arg("num_tokens"),
          nb::sig("def alloc_full(self, num_tokens: int) -> numpy.typing.NDArray[numpy.int64]"))
      .def(
          "alloc_window",
          [](Py& self, TokensArg pages) {
            const Items<PageId> items(pages.object, "pages");
            self.call("alloc_window", [&](WindowAllocator& a) { unwrap(a.alloc_window(items)); });
          },
          nb::arg("pages"))
      .def(
          "free_window",
          [](Py& self, SlotsArg slots) {
            const Items<SlotId> items(slots.object, "slots");
            self.call("free_window", [&](WindowAllocator& a) { a.free_window(items); });
          },
          nb::arg("slots"))
      .def(
          "free_window_pages",
          [](Py& self, TokensArg pages) {
            const Items<PageId> items(pages.object, "pages");
            self.call("free_window_pages", [&](WindowAllocator& a) { a.free_window_pages(items); });
          },
          nb::arg("pages"))
      .def(
          "move_window",
          [](Py& self, std::uint32_t from, std::uint32_t to) {
            self.call("move_window", [&](WindowAllocator& a) {
              a.move_window(static_cast<PageId>(from), static_cast<PageId>(to));
            });
          },
          nb::arg("from_page"), nb::arg("to_page"));
}

void bind_window_view(Class<PyWindowAllocator>& type) {
  using Py = PyWindowAllocator;
  type.def(
          "translate",
          [](Py& self, SlotsArg full) {
            const Items<SlotId> items(full.object, "full");
            NewSlots window(items.view().size());
            self.object->translate(items, window.view);
            return std::move(window.array);
          },
          nb::arg("full"),
          nb::sig("def translate(self, full: numpy.typing.ArrayLike) -> "
                  "numpy.typing.NDArray[numpy.int64]"))
      .def(
          "has_window",
          [](Py& self, std::uint32_t page) {
            return self.object->has_window(static_cast<PageId>(page));
          },
          nb::arg("page"))
      .def(
          "restore_state",
          [](Py& self, WindowAllocatorState& state) {
            self.call("restore_state",
                      [&](WindowAllocator& a) { a.restore_state(std::move(state)); });
          },
          nb::arg("state"))
      .def_prop_ro("full_capacity", [](Py& self) { return self.object->full().capacity(); })
      .def_prop_ro("full_available", [](Py& self) { return self.object->full().available(); })
      .def_prop_ro("window_capacity", [](Py& self) { return self.object->window().capacity(); })
      .def_prop_ro("window_available", [](Py& self) { return self.object->window().available(); });
}

void bind_window(nb::module_& m) {
  using Py = PyWindowAllocator;
  Class<WindowAllocatorState>(m, "WindowAllocatorState");
  Class<Py> type(m, "WindowAllocator");
  type.def(
      "__init__",
      [](Py* self, std::size_t full_tokens, std::size_t window_tokens, std::size_t page_size,
         ReuseOrder order) {
        new (self) Py{unwrap(WindowAllocator::create({.full_tokens = full_tokens,
                                                      .window_tokens = window_tokens,
                                                      .page_size = page_size,
                                                      .order = order}))};
      },
      nb::arg("full_tokens"), nb::arg("window_tokens"), nb::arg("page_size") = 1,
      nb::arg("order") = ReuseOrder::fifo);
  bind_pages(type);
  bind_window_pages(type);
  bind_window_view(type);
}

void bind_state(nb::module_& m) {
  using Py = PyStateAllocator;
  Class<StateSlot>(m, "StateSlot")
      .def(nb::init<>())
      .def_ro("index", &StateSlot::index)
      .def_ro("pool", &StateSlot::pool)
      .def("__bool__", [](StateSlot slot) { return static_cast<bool>(slot); })
      .def_equality()
      .def("__hash__", [](StateSlot slot) { return (std::size_t{slot.pool} << 32) | slot.index; })
      .def("__repr__", [](StateSlot slot) {
        return fmt::format("StateSlot(index={}, pool={})", slot.index, slot.pool);
      });
  Class<Py>(m, "StateAllocator")
      .def(
          "__init__",
          [](Py* self, std::size_t num_slots) {
            new (self) Py{unwrap(StateAllocator::create(num_slots))};
          },
          nb::arg("num_slots"))
      .def_guarded<&StateAllocator::alloc>("alloc")
      .def_guarded<&StateAllocator::free>("free", nb::arg("slot"))
      .def(
          "is_taken", [](Py& self, StateSlot slot) { return self.object->is_taken(slot); },
          nb::arg("slot"))
      .def_object_ro<&StateAllocator::capacity>("capacity")
      .def_object_ro<&StateAllocator::available>("available");
}

void bind_slots(nb::module_& m) {
  using Py = PySlotAllocator;
  Class<Py>(m, "SlotAllocator")
      .def(
          "__init__",
          [](Py* self, std::size_t num_slots) {
            new (self) Py{unwrap(SlotAllocator::create(num_slots))};
          },
          nb::arg("num_slots"))
      .def_guarded<&SlotAllocator::alloc>("alloc")
      .def_guarded<&SlotAllocator::alloc_at>("alloc_at", nb::arg("slot"))
      .def_guarded<&SlotAllocator::occupy>("occupy", nb::arg("slot"))
      .def_guarded<&SlotAllocator::free>("free", nb::arg("slot"))
      .def(
          "is_free", [](Py& self, std::size_t slot) { return self.object->is_free(slot); },
          nb::arg("slot"))
      .def(
          "version", [](Py& self, std::size_t slot) { return self.object->version(slot); },
          nb::arg("slot"))
      .def_object_ro<&SlotAllocator::free_count>("free_count")
      .def_object_ro<&SlotAllocator::size>("size");
}

void bind_table(nb::module_& m) {
  using Py = Guarded<RequestTable>;
  Class<Py>(m, "RequestTable")
      .def(
          "__init__",
          [](Py* self, std::size_t max_rows, std::size_t row_len) {
            new (self) Py{unwrap(RequestTable::create(max_rows, row_len))};
          },
          nb::arg("max_rows"), nb::arg("row_len"))
      .def("alloc",
           [](Py& self) { return self.call("alloc", [](RequestTable& t) { return t.alloc(); }); })
      .def(
          "free",
          [](Py& self, std::size_t row) {
            self.call("free", [&](RequestTable& t) { t.free(row); });
          },
          nb::arg("row"))
      .def(
          "write",
          [](Py& self, std::size_t row, std::size_t offset, SlotsArg slots) {
            const Items<SlotId> items(slots.object, "slots");
            self.call("write", [&](RequestTable& t) { unwrap(t.write(row, offset, items)); });
          },
          nb::arg("row"), nb::arg("offset"), nb::arg("slots"))
      .def(
          "row",
          [](Py& self, std::size_t row) {
            const std::span<SlotId> slots = self.object->row(row);
            return view_of(slots, nb::find(self));
          },
          nb::arg("row"), nb::sig("def row(self, row: int) -> numpy.typing.NDArray[numpy.int64]"))
      .def_guarded<&RequestTable::clear>("clear")
      .def_object_ro<&RequestTable::max_rows>("max_rows")
      .def_object_ro<&RequestTable::row_len>("row_len")
      .def_object_ro<&RequestTable::available>("available");
}

}  // namespace

void bind_allocators(nb::module_& m) {
  Enum<ReuseOrder>(m, "ReuseOrder")
      .value("fifo", ReuseOrder::fifo)
      .value("sorted", ReuseOrder::sorted);
  bind_paged(m);
  bind_window(m);
  bind_state(m);
  bind_slots(m);
  bind_table(m);
}

}  // namespace pando::python
