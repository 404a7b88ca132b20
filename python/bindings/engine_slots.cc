// SPDX-License-Identifier: Apache-2.0
// Slots of an engine that has an allocator of its own: callables of Python's in place of the
// library's functions.
#include <fmt/format.h>

#include <algorithm>

#include "cache.h"
#include "interpreter.h"
#include "structs.h"

namespace pando::python {

namespace {

/// A callable of the engine's. Errors inside are contained: `otherwise` is what the cache gets.
class EngineCall {
 public:
  EngineCall(nb::handle callable, const char* name) : callable_(callable), name_(name) {}

  template <typename Work>
  void call(Work&& work) const {
    const PythonEntry entry;
    if (!entry) return;  // the interpreter is shutting down, and the engine with it
    try {
      work(callable_);
    } catch (nb::python_error& error) {
      (void)contain(error, name_);
    }
  }

 private:
  nb::handle callable_;
  const char* name_;
};

SlotSink to_sink(const nb::object& callable, const char* name) {
  if (callable.is_none()) return {};
  return [call = EngineCall(callable, name)](std::span<const SlotId> slots) {
    call.call([&](nb::handle python) { python(to_numpy(slots)); });
  };
}

}  // namespace

EngineSlots to_engine_slots(const PyEngineSlots& slots, Kept& kept) {
  for (const nb::object& callable : {slots.free, slots.free_window, slots.move_window, slots.alloc,
                                     slots.alloc_window, slots.translate})
    kept.push_back(callable);
  EngineSlots result;
  result.max_slots = slots.max_slots;
  result.page_size = slots.page_size;
  result.free = to_sink(slots.free, "EngineSlots.free");
  result.free_window = to_sink(slots.free_window, "EngineSlots.free_window");
  if (!slots.move_window.is_none())
    result.move_window = [call = EngineCall(slots.move_window, "EngineSlots.move_window")](
                             std::span<const SlotId> from, std::span<const SlotId> to) {
      call.call([&](nb::handle python) { python(to_numpy(from), to_numpy(to)); });
    };
  if (!slots.alloc.is_none())
    result.alloc = [call = EngineCall(slots.alloc, "EngineSlots.alloc")](std::span<SlotId> out) {
      bool done = false;
      call.call([&](nb::handle python) {
        const nb::object given = python(out.size());
        if (given.is_none()) return;
        const Items<SlotId> items(given, "EngineSlots.alloc");
        if (items.view().size() != out.size())
          raise_invalid(fmt::format("EngineSlots.alloc gave {} slots: expected {} or None",
                                    items.view().size(), out.size()));
        std::copy(items.view().begin(), items.view().end(), out.begin());
        done = true;
      });
      return done;
    };
  if (!slots.alloc_window.is_none())
    result.alloc_window = [call = EngineCall(slots.alloc_window, "EngineSlots.alloc_window")](
                              std::span<const SlotId> full) {
      bool done = false;
      call.call([&](nb::handle python) { done = nb::cast<bool>(python(to_numpy(full))); });
      return done;
    };
  if (!slots.translate.is_none())
    result.translate = [call = EngineCall(slots.translate, "EngineSlots.translate")](
                           std::span<const SlotId> full, std::span<SlotId> window) {
      std::fill(window.begin(), window.end(), SlotId{0});
      call.call([&](nb::handle python) {
        const nb::object given = python(to_numpy(full));
        const Items<SlotId> items(given, "EngineSlots.translate");
        if (items.view().size() != window.size())
          raise_invalid(fmt::format("EngineSlots.translate gave {} slots: expected {}",
                                    items.view().size(), window.size()));
        std::copy(items.view().begin(), items.view().end(), window.begin());
      });
    };
  return result;
}

void bind_engine_slots(nb::module_& m) {
  using Engine = PyEngineSlots;
  const char* const sink =
      "collections.abc.Callable[[numpy.typing.NDArray[numpy.int64]], object] | None";
  const char* const give = "collections.abc.Callable[..., typing.Any] | None";
  bind_struct<Engine>(m, "EngineSlots",
                      "Slots of an engine that has an allocator of its own, as callables that get "
                      "NumPy int64 arrays. They must not call back into the cache; what they raise "
                      "goes to sys.unraisablehook.\n\n"
                      ">>> freed = []\n"
                      ">>> slots = pando.EngineSlots(max_slots=1000, free=freed.extend)\n"
                      ">>> cache = pando.PrefixCache(slots)\n"
                      ">>> _ = cache.paths.insert([7, 8, 9], [1, 2, 3])\n"
                      ">>> cache.evict(2).tokens, [int(slot) for slot in freed]\n"
                      "(2, [2, 3])\n",
                      nb::type_slots(object_slots<Engine>))
      .field("max_slots", &Engine::max_slots, "int", "Slots are numbered below this.")
      .field("page_size", &Engine::page_size, "int",
             "Tokens; any power of two. Pages are handed out whole.")
      .field("free", &Engine::free, sink)
      .field("free_window", &Engine::free_window, sink, "Only the window side.")
      .field("move_window", &Engine::move_window, give,
             "(from, to): the window slots of from[i] belong to to[i] from now on.")
      .field("alloc", &Engine::alloc, give,
             "With a host tier: (num_tokens) -> slots of whole pages, or None.")
      .field("alloc_window", &Engine::alloc_window, give,
             "(slots) -> whether they have a window side now.")
      .field("translate", &Engine::translate, give, "(slots) -> the window slot of each.")
      .constructible()
      .done();
}

}  // namespace pando::python
