// SPDX-License-Identifier: Apache-2.0
// Who owns which slot: PagedAllocator, WindowAllocator, StateAllocator, SlotAllocator, and the
// request table.
#include "allocators.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>

#include "arrays.h"
#include "pando/request_table.h"

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

/// What both page allocators can do.
template <typename Allocator>
void bind_pages(nb::class_<Guarded<Allocator>>& type) {
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
              "None = None) -> numpy.typing.NDArray[numpy.int64]"),
          "Slots of whole pages: `num_tokens` of them in a new array, or as many as `out` has room "
          "for. All or nothing.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=16)\n"
          ">>> allocator.alloc(16)[:3]\n"
          "array([16, 17, 18])\n")
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
                  "numpy.typing.NDArray[numpy.int64]"),
          "Grows request i from `prefix_lens[i]` to `seq_lens[i]` tokens: first what is left of "
          "its open page, that of `last_slots[i]`. The new slots, request by request.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=16)\n"
          ">>> allocator.alloc_extend([0], [3], [0])\n"
          "array([16, 17, 18])\n"
          ">>> allocator.alloc_extend([3], [5], [18])\n"
          "array([19, 20])\n")
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
                  "None) -> numpy.typing.NDArray[numpy.int64]"),
          "One more token for each request; `seq_lens[i]` counts it.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=16)\n"
          ">>> allocator.alloc_decode([1, 1], [0, 0])\n"
          "array([16, 32])\n")
      .def(
          "free",
          [](Py& self, SlotsArg slots) {
            const Items<SlotId> items(slots.object, "slots");
            self.call("free", [&](Allocator& a) { a.free(items); });
          },
          nb::arg("slots"),
          "Returns every page that holds one of these slots. Freeing what is not handed out is a "
          "BrokenContract.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=16)\n"
          ">>> allocator.free(allocator.alloc(32))\n"
          ">>> allocator.available\n"
          "64\n")
      .def(
          "free_pages",
          [](Py& self, TokensArg pages) {
            const Items<PageId> items(pages.object, "pages");
            self.call("free_pages", [&](Allocator& a) { a.free_pages(items); });
          },
          nb::arg("pages"), "Returns pages by number.")
      .def(
          "begin_free_group",
          [](Py& self) {
            self.call("begin_free_group", [](Allocator& a) { a.begin_free_group(); });
          },
          "From here to end_free_group(), frees are collected.")
      .def(
          "end_free_group",
          [](Py& self) { self.call("end_free_group", [](Allocator& a) { a.end_free_group(); }); },
          "Applies the frees since begin_free_group() all at once.")
      .def(
          "clear", [](Py& self) { self.call("clear", [](Allocator& a) { unwrap(a.clear()); }); },
          "Everything is free again, in initial order.")
      .def(
          "check", [](Py& self) { self.call("check", [](Allocator& a) { unwrap(a.check()); }); },
          "Proves that each page is free or handed out, never both. O(pages).")
      .def_prop_ro("page_size", [](Py& self) { return self.object->page_size(); })
      .def_prop_ro(
          "memory_bytes", [](Py& self) { return self.object->memory_bytes(); },
          "Of the bookkeeping, heap included.");
}

void bind_paged(nb::module_& m) {
  using Py = PyPagedAllocator;
  nb::class_<AllocatorState>(m, "AllocatorState",
                             "A remembered state of an allocator, see "
                             "PagedAllocator.backup_state().");
  nb::class_<Py> type(m, "PagedAllocator",
                      "Hands out slots in pages, and takes them back. Page 0 pads batches and is "
                      "never handed out.\n\n"
                      ">>> allocator = pando.PagedAllocator(1024, page_size=16)\n"
                      ">>> slots = allocator.alloc(32)\n"
                      ">>> allocator.available\n"
                      "992\n");
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
          nb::arg("prefix_lens"), nb::arg("seq_lens"), "How many pages alloc_extend() would take.")
      .def(
          "pages_for_decode",
          [](Py& self, TokensArg seq_lens) {
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            return self.object->pages_for_decode(to);
          },
          nb::arg("seq_lens"), "How many pages alloc_decode() would take.")
      .def(
          "backup_state",
          [](Py& self) {
            return self.call("backup_state", [](PagedAllocator& a) { return a.backup_state(); });
          },
          nb::keep_alive<0, 1>(),
          "Remembers the present state, in O(1), for restore_state().\n\n"
          ">>> allocator = pando.PagedAllocator(64)\n"
          ">>> state = allocator.backup_state()\n"
          ">>> slots = allocator.alloc(10)\n"
          ">>> allocator.restore_state(state)\n"
          ">>> allocator.available\n"
          "64\n")
      .def(
          "restore_state",
          [](Py& self, AllocatorState& state) {
            self.call("restore_state",
                      [&](PagedAllocator& a) { a.restore_state(std::move(state)); });
          },
          nb::arg("state"), "Goes back to it exactly; gives up younger ones.")
      .def(
          "is_free",
          [](Py& self, std::uint32_t page) {
            return self.object->is_free(static_cast<PageId>(page));
          },
          nb::arg("page"))
      .def_prop_ro(
          "num_pages", [](Py& self) { return self.object->num_pages(); },
          "Without the padding page.")
      .def_prop_ro(
          "capacity", [](Py& self) { return self.object->capacity(); }, "In tokens.")
      .def_prop_ro(
          "available", [](Py& self) { return self.object->available(); }, "In tokens.")
      .def_prop_ro("available_pages", [](Py& self) { return self.object->available_pages(); });
  m.def(
      "make_token_allocator",
      [](std::size_t capacity_tokens, ReuseOrder order) {
        return Py{unwrap(pando::make_token_allocator(capacity_tokens, order))};
      },
      nb::arg("capacity_tokens"), nb::arg("order") = ReuseOrder::fifo,
      "A PagedAllocator with pages of one token.\n\n"
      ">>> pando.make_token_allocator(8).alloc(3)\n"
      "array([1, 2, 3])\n");
}

void bind_window(nb::module_& m) {
  using Py = PyWindowAllocator;
  nb::class_<WindowAllocatorState>(m, "WindowAllocatorState",
                                   "A remembered state, see WindowAllocator.backup_state().");
  nb::class_<Py> type(m, "WindowAllocator",
                      "Slots of a model with sliding-window layers: each full page may have a "
                      "window page beside it, which can be given back alone.\n\n"
                      ">>> slots = pando.WindowAllocator(256, 64, page_size=16)\n"
                      ">>> mine = slots.alloc(32)\n"
                      ">>> slots.free_window(mine[:16])\n"
                      ">>> slots.full_available, slots.window_available\n"
                      "(224, 48)\n");
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
  type.def(
          "alloc_full",
          [](Py& self, std::size_t num_tokens) {
            return fill_slots({}, num_tokens, [&](std::span<SlotId> slots) {
              self.call("alloc_full", [&](WindowAllocator& a) { unwrap(a.alloc_full(slots)); });
            });
          },
          nb::arg("num_tokens"),
          nb::sig("def alloc_full(self, num_tokens: int) -> numpy.typing.NDArray[numpy.int64]"),
          "Whole pages without a window side.")
      .def(
          "alloc_window",
          [](Py& self, TokensArg pages) {
            const Items<PageId> items(pages.object, "pages");
            self.call("alloc_window", [&](WindowAllocator& a) { unwrap(a.alloc_window(items)); });
          },
          nb::arg("pages"), "Window pages for full pages that have none.")
      .def(
          "free_window",
          [](Py& self, SlotsArg slots) {
            const Items<SlotId> items(slots.object, "slots");
            self.call("free_window", [&](WindowAllocator& a) { a.free_window(items); });
          },
          nb::arg("slots"), "Returns the window side alone; harmless where there is none.")
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
          nb::arg("from_page"), nb::arg("to_page"),
          "Gives a page that has none the window page of one that has.")
      .def(
          "translate",
          [](Py& self, SlotsArg full) {
            const Items<SlotId> items(full.object, "full");
            NewSlots window(items.view().size());
            self.object->translate(items, window.view);
            return std::move(window.array);
          },
          nb::arg("full"),
          nb::sig("def translate(self, full: numpy.typing.ArrayLike) -> "
                  "numpy.typing.NDArray[numpy.int64]"),
          "The window slot of each full slot; 0 where there is none.")
      .def(
          "has_window",
          [](Py& self, std::uint32_t page) {
            return self.object->has_window(static_cast<PageId>(page));
          },
          nb::arg("page"))
      .def(
          "backup_state",
          [](Py& self) {
            return self.call("backup_state", [](WindowAllocator& a) { return a.backup_state(); });
          },
          nb::keep_alive<0, 1>(), "As PagedAllocator's, for both sides.")
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

void bind_state(nb::module_& m) {
  using Py = PyStateAllocator;
  nb::class_<StateSlot>(m, "StateSlot",
                        "Where one snapshot of recurrent state lives. False if nowhere.\n\n"
                        ">>> bool(pando.StateSlot())\n"
                        "False\n")
      .def(nb::init<>())
      .def_ro("index", &StateSlot::index)
      .def_ro("pool", &StateSlot::pool)
      .def("__bool__", [](StateSlot slot) { return static_cast<bool>(slot); })
      .def(
          "__eq__",
          [](StateSlot a, nb::handle b) {
            return nb::isinstance<StateSlot>(b) && a == nb::cast<StateSlot>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](StateSlot slot) { return (std::size_t{slot.pool} << 32) | slot.index; })
      .def("__repr__", [](StateSlot slot) {
        return fmt::format("StateSlot(index={}, pool={})", slot.index, slot.pool);
      });
  nb::class_<Py>(m, "StateAllocator",
                 "Slots for snapshots of recurrent state.\n\n"
                 ">>> states = pando.StateAllocator(4)\n"
                 ">>> states.alloc().index, states.available\n"
                 "(0, 3)\n")
      .def(
          "__init__",
          [](Py* self, std::size_t num_slots) {
            new (self) Py{unwrap(StateAllocator::create(num_slots))};
          },
          nb::arg("num_slots"))
      .def(
          "alloc",
          [](Py& self) { return self.call("alloc", [](StateAllocator& a) { return a.alloc(); }); },
          "The lowest free slot; None when all are taken.")
      .def(
          "free",
          [](Py& self, StateSlot slot) {
            self.call("free", [&](StateAllocator& a) { a.free(slot); });
          },
          nb::arg("slot"))
      .def(
          "is_taken", [](Py& self, StateSlot slot) { return self.object->is_taken(slot); },
          nb::arg("slot"))
      .def_prop_ro("capacity", [](Py& self) { return self.object->capacity(); })
      .def_prop_ro("available", [](Py& self) { return self.object->available(); });
}

void bind_slots(nb::module_& m) {
  using Py = PySlotAllocator;
  nb::class_<Py>(m, "SlotAllocator",
                 "Whole-sequence slots with versions, for SlotCache.\n\n"
                 ">>> slots = pando.SlotAllocator(4)\n"
                 ">>> slot = slots.alloc()\n"
                 ">>> slot, slots.version(slot), slots.free_count\n"
                 "(0, 1, 3)\n")
      .def(
          "__init__",
          [](Py* self, std::size_t num_slots) {
            new (self) Py{unwrap(SlotAllocator::create(num_slots))};
          },
          nb::arg("num_slots"))
      .def(
          "alloc",
          [](Py& self) { return self.call("alloc", [](SlotAllocator& a) { return a.alloc(); }); },
          "The lowest free slot, its version raised by one; None when all are taken.")
      .def(
          "alloc_at",
          [](Py& self, std::size_t slot) {
            self.call("alloc_at", [&](SlotAllocator& a) { a.alloc_at(slot); });
          },
          nb::arg("slot"), "Takes this free slot, its version raised by one.")
      .def(
          "occupy",
          [](Py& self, std::size_t slot) {
            self.call("occupy", [&](SlotAllocator& a) { a.occupy(slot); });
          },
          nb::arg("slot"), "Takes this free slot and keeps its version.")
      .def(
          "free",
          [](Py& self, std::size_t slot) {
            self.call("free", [&](SlotAllocator& a) { a.free(slot); });
          },
          nb::arg("slot"))
      .def(
          "is_free", [](Py& self, std::size_t slot) { return self.object->is_free(slot); },
          nb::arg("slot"))
      .def(
          "version", [](Py& self, std::size_t slot) { return self.object->version(slot); },
          nb::arg("slot"))
      .def_prop_ro("free_count", [](Py& self) { return self.object->free_count(); })
      .def_prop_ro("size", [](Py& self) { return self.object->size(); });
}

void bind_table(nb::module_& m) {
  using Py = Guarded<RequestTable>;
  nb::class_<Py>(m, "RequestTable",
                 "Which slots each running request has: a row per request.\n\n"
                 ">>> table = pando.RequestTable(8, row_len=1024)\n"
                 ">>> row = table.alloc()\n"
                 ">>> table.write(row, 0, [16, 17, 18])\n"
                 ">>> table.row(row)[:4]\n"
                 "array([16, 17, 18,  0])\n")
      .def(
          "__init__",
          [](Py* self, std::size_t max_rows, std::size_t row_len) {
            new (self) Py{unwrap(RequestTable::create(max_rows, row_len))};
          },
          nb::arg("max_rows"), nb::arg("row_len"))
      .def(
          "alloc",
          [](Py& self) { return self.call("alloc", [](RequestTable& t) { return t.alloc(); }); },
          "The lowest free row; None when all are taken.")
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
          nb::arg("row"), nb::arg("offset"), nb::arg("slots"),
          "Copies slots to positions [offset, offset + len(slots)) of the row.")
      .def(
          "row",
          [](Py& self, std::size_t row) {
            const std::span<SlotId> slots = self.object->row(row);
            return view_of(slots, nb::find(self));
          },
          nb::arg("row"), nb::sig("def row(self, row: int) -> numpy.typing.NDArray[numpy.int64]"),
          "The whole row, where it is: writing to the array writes to the table, which stays as "
          "long as the array does.")
      .def(
          "clear", [](Py& self) { self.call("clear", [](RequestTable& t) { t.clear(); }); },
          "Frees every row.")
      .def_prop_ro("max_rows", [](Py& self) { return self.object->max_rows(); })
      .def_prop_ro("row_len", [](Py& self) { return self.object->row_len(); })
      .def_prop_ro("available", [](Py& self) { return self.object->available(); });
}

}  // namespace

void bind_allocators(nb::module_& m) {
  nb::enum_<ReuseOrder>(m, "ReuseOrder", "In which order freed pages are handed out again.")
      .value("fifo", ReuseOrder::fifo)
      .value("sorted", ReuseOrder::sorted);
  bind_paged(m);
  bind_window(m);
  bind_state(m);
  bind_slots(m);
  bind_table(m);
}

}  // namespace pando::python
