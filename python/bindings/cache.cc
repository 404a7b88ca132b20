// SPDX-License-Identifier: Apache-2.0
// PrefixCache: match, lock, insert, evict, tiers and diagnostics. Requests are in requests.cc.
#include "cache.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "allocators.h"
#include "interpreter.h"
#include "observe.h"
#include "policy.h"
#include "ranks.h"
#include "structs.h"
#include "tiers.h"

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

PyCache::~PyCache() {
  // Threads of the store may be waiting for the GIL.
  const nb::gil_scoped_release released;
  late_.clear();
  object.reset();
}

void PyCache::release_soon(Lease lease) {
  if (guard->enter("release") == nullptr) {
    lease.release();
    guard->leave();
    return;
  }
  const std::lock_guard lock(mutex_);
  late_.push_back(std::move(lease));
  has_late_ = true;
}

void PyCache::release_late() {
  std::vector<Lease> late;
  {
    const std::lock_guard lock(mutex_);
    late.swap(late_);
    has_late_ = false;
  }
}

PyLease::PyLease(nb::object cache, Lease lease, std::size_t length)
    : cache_(std::move(cache)), lease_(std::move(lease)), length_(length) {}

void PyLease::release() {
  if (!lease_) return;
  cache().work("release", false, [&](PrefixCache&) { lease_.release(); });
}

PyLease::~PyLease() {
  if (!lease_) return;
  if (PyErr_WarnEx(PyExc_ResourceWarning,
                   "a pando.Lease was forgotten: use `with cache.lock(match):` or release()",
                   1) != 0)
    PyErr_WriteUnraisable(nullptr);
  cache().release_soon(std::move(lease_));
}

namespace {

Key to_key(const Items<Token>& tokens, NamespaceArg ns) { return {tokens, ns.view()}; }

PyMatch match(PyCache& self, TokensArg tokens, NamespaceArg ns, nb::handle slots) {
  const Items<Token> items(tokens.object, "tokens");
  const std::size_t size = items.view().size();
  const Key key = to_key(items, ns);
  PyMatch found;
  const auto find = [&](std::span<SlotId> out) {
    found.match = unwrap(
        self.work("match", size >= kLongTokens, [&](PrefixCache& c) { return c.match(key, out); }));
  };
  if (slots.is_none()) {
    NewSlots fresh(size);
    find(fresh.view);
    found.array = std::move(fresh.array);
  } else if (slots.is(nb::handle(Py_False))) {
    find({});
  } else {
    const SlotsOut out(slots);
    if (out.view().size() < size)
      raise_invalid(fmt::format("slots: room for {} slots, expected one for each of {} tokens",
                                out.view().size(), size));
    find(out.view());
    found.array = nb::borrow(slots);
  }
  return found;
}

/// The matched slots. A short match of a long key does not keep the long array.
nb::object matched_slots(PyMatch& self) {
  const std::size_t length = self.match.length;
  if (self.array.is_none()) return nb::none();
  const std::size_t size = nb::len(self.array);
  if (size == length) return self.array;
  nb::object part = self.array[nb::slice(std::size_t{0}, length, std::size_t{1})];
  return size > 2 * length + 64 ? part.attr("copy")() : part;
}

/// Arrays as long as the whole key, in which nothing is before what comes behind the lease.
template <typename T>
class Tail {
 public:
  Tail(nb::handle source, const char* what, std::size_t first) {
    const IntegerView items(source, what);
    all_ = Scratch<T>(first + items.size());
    copy_items(items, what, all_.get() + first);
    view_ = {all_.get(), first + items.size()};
  }
  std::span<const T> view() const { return view_; }

 private:
  Scratch<T> all_;
  std::span<const T> view_;
};

Inserted insert_behind(PyCache& self, PyLease& lease, TokensArg tokens, SlotsArg slots,
                       NamespaceArg ns, bool extend_lease, std::int32_t priority, bool chunked,
                       std::size_t window_released, std::optional<StateSlot> snapshot) {
  if (self.object->options().observer != nullptr)
    raise({ErrorCode::unavailable,
           "insert_behind: an observer is to be told of whole keys; use insert()"});
  const Tail<Token> key(tokens.object, "tokens", lease.length());
  const Tail<SlotId> given(slots.object, "slots", lease.length());
  const std::string_view name = ns.view();
  const Inserted inserted =
      unwrap(self.work("insert_behind", key.view().size() >= kLongTokens, [&](PrefixCache& c) {
        return c.insert({key.view(), name}, given.view(),
                        {.owned_by_tree = lease.length(),
                         .held = &lease.lease(),
                         .priority = priority,
                         .chunked = chunked,
                         .window_released = window_released,
                         .snapshot = snapshot.value_or(StateSlot{})});
      }));
  if (extend_lease) {
    self.work("insert_behind", false,
              [&](PrefixCache& c) { lease.lease() = unwrap(c.lock(inserted.match())); });
    lease.grow(inserted.length - lease.length());
  }
  return inserted;
}

/// What a cache is made of, while it is being made.
struct Parts {
  CacheOptions options;
  Kept kept;
  std::vector<std::shared_ptr<void>> owned;
  SharedGuard guard;
  StateAllocator* states = nullptr;

  template <typename... Slots>
  void create(PyCache* self, nb::handle policy, Slots&&... slots) {
    auto cache = unwrap(PrefixCache::create(options, std::forward<Slots>(slots)...,
                                            to_policy(policy, kept), states));
    new (self) PyCache(std::move(cache));
    self->kept = std::move(kept);
    self->owned = std::move(owned);
    self->guard = std::move(guard);
  }
};

/// Follows what Python's options refer to. All of it joins one guard: that of the slots.
Parts resolve(const PyCacheOptions& options, nb::handle states, SharedGuard guard) {
  Parts parts{.options = options.plain, .kept = {}, .owned = {}, .guard = std::move(guard)};
  if (!options.host.is_none())
    parts.options.host = to_host_tier(options.host, parts.kept, parts.guard);
  if (!options.ranks.is_none()) {
    const std::shared_ptr<Ranks> ranks = to_ranks(options.ranks, parts.kept);
    parts.options.ranks = ranks.get();
    parts.owned.push_back(ranks);
  }
  if (const std::shared_ptr<CacheObserver> observer = to_observer(options.observer, parts.kept)) {
    parts.options.observer = observer.get();
    parts.owned.push_back(observer);
  }
  if (!states.is_none()) {
    auto& allocator = nb::cast<PyStateAllocator&>(states);
    parts.states = allocator.object.get();
    allocator.guard = parts.guard;
    parts.kept.push_back(nb::borrow(states));
  }
  return parts;
}

template <typename Allocator>
bool create_over(PyCache* self, nb::handle slots, PyCacheOptions& options, bool page_size_given,
                 nb::handle policy, nb::handle states) {
  Guarded<Allocator>* allocator = nullptr;
  if (!nb::try_cast(slots, allocator)) return false;
  if (!page_size_given) options.plain.page_size = allocator->object->page_size();
  Parts parts = resolve(options, states, allocator->guard);
  parts.kept.push_back(nb::borrow(slots));
  parts.create(self, policy, *allocator->object);
  return true;
}

void create(PyCache* self, nb::handle slots, const PyCacheOptions* options, nb::handle policy,
            nb::handle states, const nb::kwargs& fields) {
  nb::object chosen = nb::cast(options == nullptr ? PyCacheOptions() : *options);
  set_fields(chosen, fields);
  auto& copy = nb::cast<PyCacheOptions&>(chosen);
  const bool page_size_given = options != nullptr || fields.contains("page_size");
  PyEngineSlots* engine = nullptr;
  if (create_over<PagedAllocator>(self, slots, copy, page_size_given, policy, states) ||
      create_over<WindowAllocator>(self, slots, copy, page_size_given, policy, states))
    return;
  if (!nb::try_cast(slots, engine))
    raise_invalid("slots: expected a PagedAllocator, a WindowAllocator or EngineSlots");
  Parts parts = resolve(copy, states, std::make_shared<Guard>());
  EngineSlots calls = to_engine_slots(*engine, parts.kept);
  parts.create(self, policy, std::move(calls));
}

void bind_types(nb::module_& m) {
  nb::enum_<ComponentKind>(m, "ComponentKind", "What a node of the tree may hold.")
      .value("full", ComponentKind::full)
      .value("window", ComponentKind::window)
      .value("state", ComponentKind::state);
  nb::enum_<MatchEnd>(m, "MatchEnd", "Why a match is not longer.")
      .value("whole_key", MatchEnd::whole_key)
      .value("no_such_child", MatchEnd::no_such_child)
      .value("page_boundary", MatchEnd::page_boundary)
      .value("namespace_unknown", MatchEnd::namespace_unknown)
      .value("window_gone", MatchEnd::window_gone)
      .value("no_snapshot", MatchEnd::no_snapshot)
      .value("disabled", MatchEnd::disabled);
  bind_struct<Sizes>(m, "Sizes", "A share of the cache, in tokens (state: in snapshots).")
      .field("evictable", &Sizes::evictable, "int")
      .field("protected_tokens", &Sizes::protected_tokens, "int")
      .field("total", &Sizes::total, "int")
      .done()
      .def(
          "__eq__",
          [](const Sizes& a, nb::handle b) {
            return nb::isinstance<Sizes>(b) && a == nb::cast<Sizes>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"));
  nb::class_<NodeId>(m, "NodeId", "Names a node of the tree, as long as it is there.")
      .def_ro("index", &NodeId::index)
      .def_ro("generation", &NodeId::generation)
      .def("__bool__", [](NodeId id) { return static_cast<bool>(id); })
      .def(
          "__eq__",
          [](NodeId a, nb::handle b) {
            return nb::isinstance<NodeId>(b) && a == nb::cast<NodeId>(b);
          },
          nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](NodeId id) { return (std::size_t{id.generation} << 32) | id.index; })
      .def("__repr__", [](NodeId id) {
        return fmt::format("NodeId(index={}, generation={})", id.index, id.generation);
      });
  m.def(
      "make_namespace",
      [](NamespaceArg lora, NamespaceArg tenant, NamespaceArg salt, NamespaceArg extra) {
        const std::string ns = make_namespace({.lora = lora.view(),
                                               .tenant = tenant.view(),
                                               .salt = salt.view(),
                                               .extra = extra.view()});
        return nb::bytes(ns.data(), ns.size());
      },
      nb::kw_only(), nb::arg("lora") = "", nb::arg("tenant") = "", nb::arg("salt") = "",
      nb::arg("extra") = "",
      "One namespace for all parts that keep equal tokens apart; different for different parts.\n\n"
      ">>> pando.make_namespace(lora='french', tenant='acme')\n"
      "b'l6:frencht4:acme'\n");
}

void bind_options(nb::module_& m) {
  using Py = PyCacheOptions;
  bind_struct<StateOptions>(m, "StateOptions",
                            "Which snapshots of recurrent state stay when a path grows.")
      .field("snapshot_interval", &StateOptions::snapshot_interval, "int",
             "A snapshot with a newer one below it stays if it is so many tokens behind the one "
             "before it, or where paths branch. 0 keeps all.")
      .field("max_per_path", &StateOptions::max_per_path, "int")
      .constructible()
      .done();
#define PANDO_OPTION(name, type, doc)                        \
  property(                                                  \
      #name, [](const Py& self) { return self.plain.name; }, \
      [](Py& self, decltype(CacheOptions::name) value) { self.plain.name = value; }, type, doc)
#define PANDO_OBJECT(name, type, doc)                  \
  property(                                            \
      #name, [](const Py& self) { return self.name; }, \
      [](Py& self, nb::object value) { self.name = std::move(value); }, type, doc)
  bind_struct<Py>(m, "CacheOptions", "Options of a PrefixCache.")
      .PANDO_OPTION(page_size, "int", "Any power of two; that of the allocator.")
      .PANDO_OPTION(bigram, "bool", "EAGLE: n tokens are n - 1 overlapping pairs.")
      .PANDO_OPTION(disabled, "bool", "Nothing is kept.")
      .PANDO_OPTION(events, "bool", "Record KV events.")
      .PANDO_OPTION(evict_whole_nodes, "bool", "evict() drops its last victim whole.")
      .PANDO_OPTION(partial_pages, "bool", "Report further tokens that agree inside a page.")
      .PANDO_OPTION(hash_seed, "int | None", "Of the table that finds children; random if None.")
      .PANDO_OPTION(window, "int | None", "Tokens that a sliding-window layer looks back.")
      .PANDO_OPTION(state, "StateOptions | None", "For models with recurrent layers.")
      .PANDO_OPTION(remember_evicted, "int", "How many evicted pages explain() remembers.")
      .PANDO_OBJECT(host, "HostTierOptions | None", "What the device evicts goes on there.")
      .PANDO_OBJECT(ranks, "pando.protocols.Ranks | None", "Others that mirror this cache.")
      .PANDO_OBJECT(observer, "typing.Any", "Told of every call: an observer, or a list of them.")
      .constructible()
      .done();
#undef PANDO_OPTION
#undef PANDO_OBJECT

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
                      ">>> _ = cache.insert([7, 8, 9], [1, 2, 3])\n"
                      ">>> cache.evict(2).tokens, [int(slot) for slot in freed]\n"
                      "(2, [2, 3])\n")
      .field("max_slots", &Engine::max_slots, "int", "Slots are numbered below this.")
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

void bind_results(nb::module_& m) {
  nb::class_<PyMatch>(m, "Match", "What PrefixCache.match() found.")
      .def_prop_ro(
          "length", [](PyMatch& self) { return self.match.length; }, "Tokens on the device.")
      .def_prop_ro("slots", matched_slots,
                   nb::sig("def slots(self) -> numpy.typing.NDArray[numpy.int64] | None"),
                   "Of the `length` tokens; None if they were not wanted.")
      .def_prop_ro("end", [](PyMatch& self) { return self.match.end; })
      .def_prop_ro("node", [](PyMatch& self) { return self.match.node; })
      .def_prop_ro(
          "host_length", [](PyMatch& self) { return self.match.host_length; },
          "So many more tokens can be had by load_back().")
      .def_prop_ro("host_node", [](PyMatch& self) { return self.match.host_node; })
      .def_prop_ro(
          "agreed_length", [](PyMatch& self) { return self.match.agreed_length; },
          "Tokens that the tree has; beyond `length`, a component is missing.")
      .def_prop_ro("snapshot", [](PyMatch& self) { return self.match.snapshot; })
      .def_prop_ro(
          "partial_length", [](PyMatch& self) { return self.match.partial_length; },
          "Further tokens that agree inside the next page, from partial_slot on.")
      .def_prop_ro("partial_slot", [](PyMatch& self) { return index_of(self.match.partial_slot); })
      .def("__repr__", [](PyMatch& self) {
        return fmt::format("Match(length={}, host_length={}, end={})", self.match.length,
                           self.match.host_length, to_string(self.match.end));
      });
  bind_struct<Inserted>(m, "Inserted", "What PrefixCache.insert() did.")
      .field("length", &Inserted::length, "int", "Tokens of the key now in the tree.")
      .field("existing", &Inserted::existing, "int", "Of these, were there before.")
      .field("freed", &Inserted::freed, "int", "Slots given back.")
      .field("revived", &Inserted::revived, "int", "Tokens that have a window again.")
      .field("node", &Inserted::node, "NodeId")
      .done()
      .def(
          "match", [](const Inserted& self) { return PyMatch{.match = self.match()}; },
          nb::sig("def match(self) -> Match"),
          "What PrefixCache.match() would find of it now, without slots: for lock().\n\n"
          ">>> allocator = pando.PagedAllocator(64)\n"
          ">>> cache = pando.PrefixCache(allocator)\n"
          ">>> with cache.lock(cache.insert([1, 2], allocator.alloc(2)).match()) as lease:\n"
          "...     cache.sizes().protected_tokens\n"
          "2\n");
  bind_struct<EvictResult>(m, "EvictResult", "What was freed.")
      .field("tokens", &EvictResult::tokens, "int")
      .field("window_tokens", &EvictResult::window_tokens, "int")
      .field("snapshots", &EvictResult::snapshots, "int")
      .field("nodes", &EvictResult::nodes, "int", "That left the tree.")
      .field("demoted_tokens", &EvictResult::demoted_tokens, "int", "Are still on the host.")
      .done();
  bind_struct<CacheStats>(m, "CacheStats", "Totals since creation or reset(), in tokens.")
      .field("inserted_tokens", &CacheStats::inserted_tokens, "int")
      .field("duplicate_tokens", &CacheStats::duplicate_tokens, "int")
      .field("evicted_tokens", &CacheStats::evicted_tokens, "int")
      .field("evicted_nodes", &CacheStats::evicted_nodes, "int")
      .field("evicted_window_tokens", &CacheStats::evicted_window_tokens, "int")
      .field("evicted_snapshots", &CacheStats::evicted_snapshots, "int")
      .field("revived_tokens", &CacheStats::revived_tokens, "int")
      .done();
}

void bind_lease(nb::module_& m) {
  nb::class_<PyLease>(m, "Lease",
                      "Keeps a matched path in place until released: a context manager. One that "
                      "is forgotten is released when it is collected, with a ResourceWarning.\n\n"
                      ">>> allocator = pando.PagedAllocator(64)\n"
                      ">>> cache = pando.PrefixCache(allocator)\n"
                      ">>> _ = cache.insert([1, 2, 3], allocator.alloc(3))\n"
                      ">>> with cache.lock(cache.match([1, 2, 3])):\n"
                      "...     cache.evict(3).tokens\n"
                      "0\n"
                      ">>> cache.evict(3).tokens\n"
                      "3\n")
      .def("release", &PyLease::release, "Lets go; harmless when done already.")
      .def(
          "__enter__", [](nb::handle self) { return self; },
          nb::sig("def __enter__(self) -> Lease"))
      .def(
          "__exit__", [](PyLease& self, const nb::args&) { self.release(); },
          nb::sig("def __exit__(self, *exc: object) -> None"))
      .def(
          "release_partial",
          [](PyLease& self) {
            self.cache().work("release_partial", false,
                              [&](PrefixCache&) { self.lease().release_partial(); });
          },
          "Lets go of the partly matched page alone.")
      .def(
          "release_window",
          [](PyLease& self) {
            unwrap(self.cache().work("release_window", false,
                                     [&](PrefixCache&) { return self.lease().release_window(); }));
          },
          "Lets go of the window alone, once it is behind what the request looks at.")
      .def(
          "release_snapshot",
          [](PyLease& self) {
            unwrap(self.cache().work("release_snapshot", false, [&](PrefixCache&) {
              return self.lease().release_snapshot();
            }));
          },
          "Lets go of the snapshot alone, once it is copied.")
      .def(
          "__bool__", [](PyLease& self) { return static_cast<bool>(self.lease()); },
          "False when nothing is held.")
      .def_prop_ro("length", &PyLease::length, "Tokens on the device that it holds.")
      .def_prop_ro("node", [](PyLease& self) { return self.lease().node(); })
      .def_prop_ro("host_node", [](PyLease& self) { return self.lease().host_node(); });
}

void bind_reuse(nb::class_<PyCache>& type) {
  type.def(
          "match", match, nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          nb::arg("slots") = nb::none(),
          nb::sig("def match(self, tokens: numpy.typing.ArrayLike, *, ns: str | bytes = '', slots: "
                  "numpy.typing.NDArray[numpy.int64] | bool | None = None) -> Match"),
          "The longest cached prefix. Its slots come in a new array, or go to the front of "
          "`slots`, which has room for every token; False: not wanted. Counts as a use.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=4)\n"
          ">>> cache = pando.PrefixCache(allocator)\n"
          ">>> _ = cache.insert(np.arange(8), allocator.alloc(8))\n"
          ">>> match = cache.match([0, 1, 2, 3, 4, 99])\n"
          ">>> match.length, match.slots, match.partial_length\n"
          "(4, array([4, 5, 6, 7]), 1)\n")
      .def(
          "probe",
          [](PyCache& self, TokensArg tokens, NamespaceArg ns) {
            const Items<Token> items(tokens.object, "tokens");
            return self.work("probe", items.view().size() >= kLongTokens,
                             [&, key = to_key(items, ns)](PrefixCache& c) { return c.probe(key); });
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          "The length that match() would give, changing nothing.")
      .def(
          "probe_many",
          [](PyCache& self, const nb::list& prompts, NamespaceArg ns) {
            std::vector<std::unique_ptr<Items<Token>>> items;
            std::vector<Key> keys;
            std::size_t size = 0;
            for (const nb::handle prompt : prompts) {
              items.push_back(std::make_unique<Items<Token>>(prompt, "prompts"));
              keys.push_back(to_key(*items.back(), ns));
              size += keys.back().tokens.size();
            }
            std::vector<std::size_t> lengths(keys.size());
            self.work("probe_many", size >= kLongTokens,
                      [&](PrefixCache& c) { c.probe(keys, lengths); });
            return lengths;
          },
          nb::arg("prompts"), nb::kw_only(), nb::arg("ns") = "",
          nb::sig("def probe_many(self, prompts: list[numpy.typing.ArrayLike], *, ns: str | bytes "
                  "= '') -> list[int]"),
          "probe() of several prompts, faster than one by one.")
      .def(
          "lock",
          [](nb::handle self, const PyMatch& match) {
            auto& cache = nb::cast<PyCache&>(self);
            Lease lease = unwrap(
                cache.work("lock", false, [&](PrefixCache& c) { return c.lock(match.match); }));
            return std::make_unique<PyLease>(nb::borrow(self), std::move(lease),
                                             match.match.length);
          },
          nb::arg("match"), nb::sig("def lock(self, match: Match) -> Lease"),
          "Holds a match in place; StaleHandle if it has gone since.")
      .def(
          "insert",
          [](PyCache& self, TokensArg tokens, SlotsArg slots, NamespaceArg ns,
             std::size_t owned_by_tree, std::int32_t priority, bool chunked,
             std::size_t window_released, std::optional<StateSlot> snapshot) {
            const Items<Token> items(tokens.object, "tokens");
            const Items<SlotId> given(slots.object, "slots");
            const Key key = to_key(items, ns);
            return unwrap(
                self.work("insert", items.view().size() >= kLongTokens, [&](PrefixCache& c) {
                  return c.insert(key, given,
                                  {.owned_by_tree = owned_by_tree,
                                   .priority = priority,
                                   .chunked = chunked,
                                   .window_released = window_released,
                                   .snapshot = snapshot.value_or(StateSlot{})});
                }));
          },
          nb::arg("tokens"), nb::arg("slots"), nb::kw_only(), nb::arg("ns") = "",
          nb::arg("owned_by_tree") = 0, nb::arg("priority") = 0, nb::arg("chunked") = false,
          nb::arg("window_released") = 0, nb::arg("snapshot") = nb::none(),
          "Gives the tree tokens and their slots. It takes the whole pages; the caller's "
          "duplicates are freed, the unaligned tail stays the caller's. `owned_by_tree`: so many "
          "slots at the front came from a match.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=4)\n"
          ">>> cache = pando.PrefixCache(allocator)\n"
          ">>> cache.insert([1, 2, 3, 4, 5], allocator.alloc(8)[:5]).length\n"
          "4\n")
      .def("insert_behind", insert_behind, nb::arg("lease"), nb::arg("tokens"), nb::arg("slots"),
           nb::kw_only(), nb::arg("ns") = "", nb::arg("extend_lease") = false,
           nb::arg("priority") = 0, nb::arg("chunked") = false, nb::arg("window_released") = 0,
           nb::arg("snapshot") = nb::none(),
           "insert() of a key whose first part a lease holds, given only what comes behind that: "
           "for chunk after chunk of a long prompt. With extend_lease the lease then holds all of "
           "it. Lengths of the result, and window_released, count from the key's start.\n\n"
           ">>> allocator = pando.PagedAllocator(64)\n"
           ">>> cache = pando.PrefixCache(allocator)\n"
           ">>> with cache.lock(cache.insert([1, 2], allocator.alloc(2)).match()) as lease:\n"
           "...     cache.insert_behind(lease, [3, 4], allocator.alloc(2)).length\n"
           "4\n"
           ">>> cache.probe([1, 2, 3, 4])\n"
           "4\n")
      .def(
          "evict",
          [](PyCache& self, std::size_t tokens, std::size_t window_tokens, std::size_t snapshots) {
            return self.work("evict", tokens + window_tokens >= kLongTokens, [&](PrefixCache& c) {
              return c.evict(EvictGoal{
                  .tokens = tokens, .window_tokens = window_tokens, .snapshots = snapshots});
            });
          },
          nb::arg("tokens") = 0, nb::kw_only(), nb::arg("window_tokens") = 0,
          nb::arg("snapshots") = 0,
          "Frees at least what is asked, in whole pages, or less when no more is evictable.")
      .def(
          "reset",
          [](PyCache& self) {
            unwrap(self.work("reset", true, [](PrefixCache& c) { return c.reset(); }));
          },
          "Empties the tree and gives back its slots. Refused while leases are held.")
      .def(
          "allocate_state",
          [](PyCache& self) {
            return unwrap(self.work("allocate_state", false,
                                    [](PrefixCache& c) { return c.allocate_state(); }));
          },
          "A state slot, after evicting a snapshot if none is free.");
}

void bind_lower_tiers(nb::class_<PyCache>& type) {
  type.def(
          "load_back",
          [](PyCache& self, PyLease& lease, SlotsArg slots, std::optional<std::size_t> quota_tokens,
             LoadOrder order) {
            const SlotsOut out(slots.object);
            const LoadBack loaded = unwrap(self.work("load_back", true, [&](PrefixCache& c) {
              return c.load_back(lease.lease(), out.view(),
                                 {.quota_tokens = quota_tokens, .order = order});
            }));
            lease.grow(loaded.tokens);
            return loaded;
          },
          nb::arg("lease"), nb::arg("slots"), nb::kw_only(), nb::arg("quota_tokens") = nb::none(),
          nb::arg("order") = LoadOrder::by_layer,
          "Brings back what the lease's match found on the host, all or nothing, and writes its "
          "slots to their place in `slots` (one per token of the whole match).")
      .def(
          "poll",
          [](PyCache& self) {
            const bool waits =
                self.object->options().ranks != nullptr || self.object->has_storage();
            return self.work("poll", waits, [](PrefixCache& c) { return c.poll(); });
          },
          "Applies what copies have finished since the last call; once per step of the engine.")
      .def(
          "attach_storage",
          [](PyCache& self, const StorageOptions& options) {
            return unwrap(self.work("attach_storage", true,
                                    [&](PrefixCache& c) { return c.attach_storage(options); }));
          },
          nb::arg("options"), "What is on the host from now on goes to this store too.")
      .def("detach_storage",
           [](PyCache& self) {
             return unwrap(self.work("detach_storage", true,
                                     [](PrefixCache& c) { return c.detach_storage(); }));
           })
      .def(
          "clear_storage",
          [](PyCache& self) {
            unwrap(
                self.work("clear_storage", true, [](PrefixCache& c) { return c.clear_storage(); }));
          },
          "Removes every page from the store.")
      .def_prop_ro("has_storage", [](PyCache& self) { return self.object->has_storage(); })
      .def("storage_stats",
           [](PyCache& self) {
             return self.work("storage_stats", false,
                              [](PrefixCache& c) { return c.storage_stats(); });
           })
      .def(
          "prefetch",
          [](PyCache& self, TokensArg tokens, NamespaceArg ns) {
            const Items<Token> items(tokens.object, "tokens");
            const Key key = to_key(items, ns);
            return unwrap(
                self.work("prefetch", true, [&](PrefixCache& c) { return c.prefetch(key); }));
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          "Begins to bring pages that the tree does not have from the store to the host.")
      .def(
          "prefetch_ready",
          [](PyCache& self, std::uint64_t id) {
            return self.work("prefetch_ready", false,
                             [&](PrefixCache& c) { return c.prefetch_ready({id}); });
          },
          nb::arg("id"), "Whether the policy lets the request go on.")
      .def(
          "end_prefetch",
          [](PyCache& self, std::uint64_t id) {
            return self.work("end_prefetch", true,
                             [&](PrefixCache& c) { return c.end_prefetch({id}); });
          },
          nb::arg("id"), "Keeps what has arrived; the tokens that the host has more.")
      .def(
          "abort_prefetch",
          [](PyCache& self, std::uint64_t id) {
            self.work("abort_prefetch", true, [&](PrefixCache& c) { c.abort_prefetch({id}); });
          },
          nb::arg("id"))
      .def(
          "evict_host",
          [](PyCache& self, std::size_t tokens) {
            return self.work("evict_host", tokens >= kLongTokens,
                             [&](PrefixCache& c) { return c.evict_host(tokens); });
          },
          nb::arg("tokens"), "Drops the least valuable of what is on the host only.")
      .def(
          "host_sizes",
          [](PyCache& self, ComponentKind kind) {
            return self.work("host_sizes", false,
                             [&](PrefixCache& c) { return c.host_sizes(kind); });
          },
          nb::arg("kind") = ComponentKind::full)
      .def("tier_stats",
           [](PyCache& self) {
             return self.work("tier_stats", false, [](PrefixCache& c) { return c.tier_stats(); });
           })
      .def(
          "report_prefill",
          [](PyCache& self, std::size_t num_tokens, double seconds) {
            unwrap(self.work("report_prefill", false, [&](PrefixCache& c) {
              return c.report_prefill(num_tokens, seconds);
            }));
          },
          nb::arg("num_tokens"), nb::arg("seconds"),
          "For the cost gate: so many tokens of prompts were computed in so many seconds.");
}

void bind_diagnostics(nb::class_<PyCache>& type) {
  type.def(
          "sizes",
          [](PyCache& self, ComponentKind kind) {
            return self.work("sizes", false, [&](PrefixCache& c) { return c.sizes(kind); });
          },
          nb::arg("kind") = ComponentKind::full)
      .def(
          "capacity_tokens",
          [](PyCache& self, Medium medium) {
            return self.work("capacity_tokens", false,
                             [&](PrefixCache& c) { return c.capacity_tokens(medium); });
          },
          nb::arg("medium"), "0: no such tier, or an engine's own slots.")
      .def("stats",
           [](PyCache& self) {
             return self.work("stats", false, [](PrefixCache& c) { return c.stats(); });
           })
      .def(
          "explain",
          [](PyCache& self, TokensArg tokens, NamespaceArg ns) {
            const Items<Token> items(tokens.object, "tokens");
            const Key key = to_key(items, ns);
            return unwrap(
                self.work("explain", true, [&](PrefixCache& c) { return c.explain(key); }));
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          "Why each part of the key is, or is not, here.\n\n"
          ">>> cache = pando.PrefixCache(pando.PagedAllocator(64))\n"
          ">>> cache.explain([1, 2]).parts[0].finding\n"
          "Finding.never_seen\n")
      .def(
          "all_slots",
          [](PyCache& self) {
            return to_numpy(
                self.work("all_slots", true, [](PrefixCache& c) { return c.all_slots(); }));
          },
          nb::sig("def all_slots(self) -> numpy.typing.NDArray[numpy.int64]"),
          "Every slot the tree owns, path by path in token order.")
      .def(
          "dump",
          [](PyCache& self) {
            return self.work("dump", true, [](PrefixCache& c) { return c.dump(); });
          },
          "The tree as text, one node a line.")
      .def(
          "digest",
          [](PyCache& self) {
            return self.work("digest", true, [](PrefixCache& c) { return c.digest(); });
          },
          "A hash of what ranks agree on.")
      .def(
          "check",
          [](PyCache& self) {
            unwrap(self.work("check", true, [](PrefixCache& c) { return c.check(); }));
          },
          "Proves the invariants of the tree and that no slot has two owners. O(tree).")
      .def(
          "take_events",
          [](PyCache& self) {
            return self.work("take_events", false, [](PrefixCache& c) { return c.take_events(); });
          },
          "Everything since the last call.")
      .def(
          "events_of_all",
          [](PyCache& self) {
            return self.work("events_of_all", true,
                             [](PrefixCache& c) { return c.events_of_all(); });
          },
          "Stored events of all that is cached now, parents first.")
      .def_prop_ro(
          "options",
          [](PyCache& self) {
            PyCacheOptions options;
            options.plain = self.object->options();
            return options;
          },
          "A copy of the plain ones; pools, ranks and observers are not in it.")
      .def_prop_ro("num_nodes",
                   [](PyCache& self) {
                     return self.work("num_nodes", false,
                                      [](PrefixCache& c) { return c.num_nodes(); });
                   })
      .def_prop_ro(
          "memory_bytes",
          [](PyCache& self) {
            return self.work("memory_bytes", false,
                             [](PrefixCache& c) { return c.memory_bytes(); });
          },
          "Bookkeeping of the tree, heap included.");
}

}  // namespace

void bind_cache(nb::module_& m) {
  bind_types(m);
  bind_options(m);
  bind_results(m);
  bind_lease(m);
  nb::class_<PyCache> type(
      m, "PrefixCache",
      "Answers, for the scheduler of an inference engine: how much of this prompt do I already "
      "hold, keep it there while I use it, give me room for the rest, take what I computed. "
      "Options are keyword arguments, or a CacheOptions.\n\n"
      ">>> allocator = pando.PagedAllocator(1024, page_size=16)\n"
      ">>> cache = pando.PrefixCache(allocator, policy='lru')\n"
      ">>> request = pando.Request(np.arange(100))\n"
      ">>> cache.start(request).length\n"
      "0\n"
      ">>> cache.allocate(request)\n"
      ">>> cache.finish(request)\n"
      ">>> cache.match(np.arange(100)).length\n"
      "96\n",
      nb::type_slots(collected_slots<PyCache>));
  type.def("__init__", create, nb::arg("slots"), nb::arg("options") = nb::none(), nb::kw_only(),
           nb::arg("policy") = "lru", nb::arg("states") = nb::none(), nb::arg("fields"),
           nb::sig("def __init__(self, slots: PagedAllocator | WindowAllocator | EngineSlots, "
                   "options: CacheOptions | None = None, *, policy: str | "
                   "pando.protocols.EvictionPolicy = 'lru', states: StateAllocator | None = None, "
                   "**fields: typing.Any) -> None"));
  bind_reuse(type);
  bind_lower_tiers(type);
  bind_diagnostics(type);
  bind_requests(m, type);
}

}  // namespace pando::python
