// SPDX-License-Identifier: Apache-2.0
// Requests: start, allocate, load_back, checkpoint, finish. A Request has its own copy of the
// tokens and, unless it is given one, its own array of slots; `num_slots` says how many of these it
// has, so that one that is forgotten can be given up.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "cache.h"

namespace pando::python {

PyRequest::PyRequest(TokensArg given, nb::handle slots, NamespaceArg name, std::int32_t priority,
                     std::vector<RetentionRange> retention, SessionArg session) {
  const Items<Token> items(given.object, "tokens");
  tokens.assign(items.view().begin(), items.view().end());
  ns = name.view();
  request.priority = priority;
  request.retention = std::move(retention);
  request.session = session.id();
  if (slots.is_none()) {
    owns_array_ = true;
    make_room(tokens.size());
    return;
  }
  const SlotsOut out(slots);
  if (out.view().size() < tokens.size())
    raise_invalid(fmt::format("slots: room for {} slots, expected one for each of {} tokens",
                              out.view().size(), tokens.size()));
  array_ = nb::borrow(slots);
  slots_ = out.view();
}

PyRequest::~PyRequest() {
  if (!is_bound()) return;
  if (PyErr_WarnEx(PyExc_ResourceWarning,
                   "a pando.Request was forgotten: finish() gives back what it holds", 1) != 0)
    PyErr_WriteUnraisable(nullptr);
  auto& cache = nb::cast<PyCache&>(cache_);
  if (cache.guard->enter("finish") != nullptr) {
    // A call is under way on another thread: the slots are lost, the lease is not.
    cache.release_soon(std::move(request.lease));
    return;
  }
  (void)cache.object->finish(view(), /*insert=*/false);
  cache.guard->leave();
}

Request& PyRequest::view(std::size_t length, std::size_t slots) {
  request.key = {std::span<const Token>(tokens).first(length), ns};
  request.slots = slots_.first(slots);
  return request;
}

void PyRequest::make_room(std::size_t size) {
  if (size <= slots_.size()) return;
  const bool grows = !slots_.empty();
  NewSlots larger(grows ? std::max(size, slots_.size() * 2) : size);
  std::copy(slots_.begin(), slots_.end(), larger.view.begin());
  std::fill(larger.view.begin() + static_cast<std::ptrdiff_t>(slots_.size()), larger.view.end(),
            SlotId{0});
  array_ = std::move(larger.array);
  slots_ = larger.view;
}

void PyRequest::append(std::span<const Token> more) {
  const std::size_t size = tokens.size() + more.size();
  if (owns_array_)
    make_room(size);
  else if (size > slots_.size())
    raise_invalid(fmt::format("append: {} tokens, but the request was given room for {} slots",
                              size, slots_.size()));
  tokens.insert(tokens.end(), more.begin(), more.end());
}

void PyRequest::bind_to(nb::handle cache, const char* call) {
  if (is_bound() && !cache_.is(cache))
    raise_invalid(fmt::format("{}: this request was started in another cache", call));
  cache_ = nb::borrow(cache);
}

void PyRequest::unbind() { cache_ = nb::none(); }

namespace {

void require_started(PyRequest& request, nb::handle cache, const char* call) {
  if (!request.is_bound())
    raise_invalid(fmt::format("{}: this request was not started, or has finished", call));
  request.bind_to(cache, call);
}

/// How much of the request is meant: all of its tokens unless told.
std::size_t length_of(PyRequest& request, std::optional<std::size_t> length, const char* call) {
  const std::size_t all = request.tokens.size();
  if (length.value_or(0) > all)
    raise_invalid(fmt::format("{}: length {}, but the request has {} tokens", call, *length, all));
  return length.value_or(all);
}

PyMatch start(nb::handle self, PyRequest& request) {
  auto& cache = nb::cast<PyCache&>(self);
  if (request.is_bound()) raise_invalid("start: this request has started already");
  const std::size_t size = request.tokens.size();
  PyMatch found;
  found.match = unwrap(cache.work("start", size >= kLongTokens, [&](PrefixCache& c) {
    return c.start(request.view(size, request.slots().size()));
  }));
  request.bind_to(self, "start");
  request.num_slots = found.match.length;
  found.array = request.slots_array();
  return found;
}

void allocate(nb::handle self, PyRequest& request, std::optional<std::size_t> to) {
  require_started(request, self, "allocate");
  const std::size_t end = length_of(request, to, "allocate");
  const std::size_t from = request.num_slots;
  if (end <= from) return;
  unwrap(nb::cast<PyCache&>(self).work("allocate", false, [&](PrefixCache& c) {
    return c.allocate(request.view(request.tokens.size(), end), from);
  }));
  request.num_slots = end;
}

void checkpoint(nb::handle self, PyRequest& request, std::optional<std::size_t> length,
                bool chunked) {
  require_started(request, self, "checkpoint");
  const std::size_t end = length_of(request, length, "checkpoint");
  if (end > request.num_slots)
    raise_invalid(
        fmt::format("checkpoint: {} tokens, but the request has {} slots", end, request.num_slots));
  unwrap(nb::cast<PyCache&>(self).work("checkpoint", end >= kLongTokens, [&](PrefixCache& c) {
    return c.checkpoint(request.view(end, request.num_slots), chunked);
  }));
}

void finish(nb::handle self, PyRequest& request, bool insert, std::optional<std::size_t> length) {
  require_started(request, self, "finish");
  std::size_t end = length_of(request, length, "finish");
  if (!length) end = std::min(end, request.num_slots);
  if (end > request.num_slots)
    raise_invalid(
        fmt::format("finish: {} tokens, but the request has {} slots", end, request.num_slots));
  unwrap(nb::cast<PyCache&>(self).work("finish", end >= kLongTokens, [&](PrefixCache& c) {
    return c.finish(request.view(end, request.num_slots), insert);
  }));
  request.num_slots = 0;
  request.unbind();
}

std::size_t release_window(nb::handle self, PyRequest& request, std::size_t num_tokens) {
  require_started(request, self, "release_window");
  return unwrap(nb::cast<PyCache&>(self).work("release_window", false, [&](PrefixCache& c) {
    return c.release_window(request.view(), num_tokens);
  }));
}

LoadBack load_back(nb::handle self, PyRequest& request, std::optional<std::size_t> quota_tokens,
                   LoadOrder order) {
  require_started(request, self, "load_back");
  const LoadBack loaded =
      unwrap(nb::cast<PyCache&>(self).work("load_back", true, [&](PrefixCache& c) {
        return c.load_back(request.view(request.tokens.size(), request.slots().size()),
                           {.quota_tokens = quota_tokens, .order = order});
      }));
  request.num_slots += loaded.tokens;
  return loaded;
}

nb::object allocate_batch(PyCache& self, nb::handle out, std::size_t size, const char* call,
                          auto&& fill) {
  if (!out.is_none()) {
    const SlotsOut target(out, "out");
    unwrap(self.work(call, false, [&](PrefixCache& c) { return fill(c, target.view()); }));
    return nb::borrow(out);
  }
  NewSlots slots(size);
  unwrap(self.work(call, false, [&](PrefixCache& c) { return fill(c, slots.view); }));
  return std::move(slots.array);
}

void bind_calls(nb::class_<PyCache>& cache) {
  cache
      .def("start", start, nb::arg("request"),
           nb::sig("def start(self, request: Request) -> Match"),
           "Matches (leaving at least one token to compute), locks, and writes the slots of what "
           "is cached.")
      .def("allocate", allocate, nb::arg("request"), nb::arg("to") = nb::none(),
           nb::sig("def allocate(self, request: Request, to: int | None = None) -> None"),
           "Slots for the tokens from request.num_slots up to `to`, or all; evicts exactly what is "
           "missing. All or nothing.")
      .def("checkpoint", checkpoint, nb::arg("request"), nb::kw_only(),
           nb::arg("length") = nb::none(), nb::arg("chunked") = false,
           nb::sig("def checkpoint(self, request: Request, *, length: int | None = None, chunked: "
                   "bool = False) -> None"),
           "Inserts the first `length` tokens, or all, swaps duplicate slots for the tree's, moves "
           "the lease.")
      .def("finish", finish, nb::arg("request"), nb::kw_only(), nb::arg("insert") = true,
           nb::arg("length") = nb::none(),
           nb::sig("def finish(self, request: Request, *, insert: bool = True, length: int | None "
                   "= None) -> None"),
           "Inserts the first `length` tokens (those that have slots), or nothing, and gives back "
           "what else the request holds.")
      .def("release_window", release_window, nb::arg("request"), nb::arg("num_tokens"),
           nb::sig("def release_window(self, request: Request, num_tokens: int) -> int"),
           "With so many tokens computed, gives back the window side that no token to come can "
           "see. The tokens given back.")
      .def("load_back", load_back, nb::arg("request"), nb::kw_only(),
           nb::arg("quota_tokens") = nb::none(), nb::arg("order") = LoadOrder::by_layer,
           nb::sig("def load_back(self, request: Request, *, quota_tokens: int | None = None, "
                   "order: LoadOrder = ...) -> LoadBack"),
           "The same for a request that has started.")
      .def(
          "allocate_extend",
          [](PyCache& self, TokensArg prefix_lens, TokensArg seq_lens, SlotsArg last_slots,
             nb::object out, NamespaceArg ns) {
            const Items<std::size_t> from(prefix_lens.object, "prefix_lens");
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            const Items<SlotId> last(last_slots.object, "last_slots");
            std::size_t size = 0;
            for (std::size_t i = 0; i < std::min(from.view().size(), to.view().size()); ++i)
              size += to.view()[i] - std::min(from.view()[i], to.view()[i]);
            return allocate_batch(self, out, size, "allocate_extend",
                                  [&, name = ns.view()](PrefixCache& c, std::span<SlotId> slots) {
                                    return c.allocate_extend(from, to, last, slots, name);
                                  });
          },
          nb::arg("prefix_lens"), nb::arg("seq_lens"), nb::arg("last_slots"), nb::kw_only(),
          nb::arg("out") = nb::none(), nb::arg("ns") = "",
          nb::sig("def allocate_extend(self, prefix_lens: numpy.typing.ArrayLike, seq_lens: "
                  "numpy.typing.ArrayLike, last_slots: numpy.typing.ArrayLike, *, out: "
                  "numpy.typing.NDArray[numpy.int64] | None = None, ns: str | bytes = '') -> "
                  "numpy.typing.NDArray[numpy.int64]"),
          "As the allocators' alloc_extend(), after evicting exactly what is missing, for the "
          "tenant of a namespace.")
      .def(
          "allocate_decode",
          [](PyCache& self, TokensArg seq_lens, SlotsArg last_slots, nb::object out,
             NamespaceArg ns) {
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            const Items<SlotId> last(last_slots.object, "last_slots");
            return allocate_batch(self, out, to.view().size(), "allocate_decode",
                                  [&, name = ns.view()](PrefixCache& c, std::span<SlotId> slots) {
                                    return c.allocate_decode(to, last, slots, name);
                                  });
          },
          nb::arg("seq_lens"), nb::arg("last_slots"), nb::kw_only(), nb::arg("out") = nb::none(),
          nb::arg("ns") = "",
          nb::sig("def allocate_decode(self, seq_lens: numpy.typing.ArrayLike, last_slots: "
                  "numpy.typing.ArrayLike, *, out: numpy.typing.NDArray[numpy.int64] | None = "
                  "None, ns: str | bytes = '') -> numpy.typing.NDArray[numpy.int64]"),
          "As the allocators' alloc_decode(), after evicting exactly what is missing, for the "
          "tenant of a namespace.");
}

}  // namespace

void bind_requests(nb::module_& m, nb::class_<PyCache>& cache) {
  nb::class_<PyRequest>(m, "Request",
                        "A running request: its tokens, their slots, and what of them is held in "
                        "the cache. `slots` is an int64 array with room for every token, or None "
                        "for one of its own.\n\n"
                        ">>> cache = pando.PrefixCache(pando.PagedAllocator(64, page_size=4))\n"
                        ">>> request = pando.Request([1, 2, 3, 4, 5])\n"
                        ">>> cache.start(request).length\n"
                        "0\n"
                        ">>> cache.allocate(request)      # room; then the model computes\n"
                        ">>> request.slots\n"
                        "array([4, 5, 6, 7, 8])\n"
                        ">>> request.append(6)            # a token was sampled\n"
                        ">>> cache.allocate(request)\n"
                        ">>> cache.finish(request)\n")
      .def(nb::init<TokensArg, nb::handle, NamespaceArg, std::int32_t, std::vector<RetentionRange>,
                    SessionArg>(),
           nb::arg("tokens"), nb::kw_only(), nb::arg("slots") = nb::none(), nb::arg("ns") = "",
           nb::arg("priority") = 0, nb::arg("retention") = nb::tuple(),
           nb::arg("session") = nb::none(),
           nb::sig("def __init__(self, tokens: numpy.typing.ArrayLike, *, slots: "
                   "numpy.typing.NDArray[numpy.int64] | None = None, ns: str | bytes = '', "
                   "priority: int = 0, retention: collections.abc.Sequence[RetentionRange] = (), "
                   "session: OpenSession | int | None = None) -> None"))
      .def(
          "append",
          [](PyRequest& self, nb::object tokens) {
            Token token = 0;
            if (nb::isinstance<nb::int_>(tokens) && nb::try_cast(tokens, token)) {
              self.append({&token, 1});
              return;
            }
            const Items<Token> items(tokens, "tokens");
            self.append(items);
          },
          nb::arg("tokens"),
          nb::sig("def append(self, tokens: int | numpy.typing.ArrayLike) -> None"),
          "The request has more tokens: one, or an array of them.")
      .def("__len__", [](PyRequest& self) { return self.tokens.size(); })
      .def_prop_ro(
          "tokens", [](PyRequest& self) { return to_numpy(std::span<const Token>(self.tokens)); },
          nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]"), "A copy.")
      .def_prop_ro(
          "slots",
          [](PyRequest& self) -> nb::object {
            return self
                .slots_array()[nb::slice(std::size_t{0}, self.tokens.size(), std::size_t{1})];
          },
          nb::sig("def slots(self) -> numpy.typing.NDArray[numpy.int64]"),
          "One per token, where they are: of those beyond num_slots nothing is said. Take it again "
          "after append().")
      .def_rw("num_slots", &PyRequest::num_slots,
              "How many slots the request has, the cached ones among them. For an engine that "
              "writes slots of its own to `slots`, to set.")
      .def_ro("ns", &PyRequest::ns)
      .def_prop_rw(
          "priority", [](PyRequest& self) { return self.request.priority; },
          [](PyRequest& self, std::int32_t value) { self.request.priority = value; })
      .def_prop_rw(
          "retention", [](PyRequest& self) { return self.request.retention; },
          [](PyRequest& self, std::vector<RetentionRange> ranges) {
            self.request.retention = std::move(ranges);
          },
          nb::for_getter(nb::sig("def retention(self) -> list[RetentionRange]")),
          nb::for_setter(nb::sig("def retention(self, value: "
                                 "collections.abc.Sequence[RetentionRange]) -> None")),
          "Of parts of the prompt, or of all that the request will have (end=None). A copy.")
      .def_prop_rw(
          "session",
          [](PyRequest& self) {
            const SessionId id = self.request.session;
            return id ? std::optional(id.value) : std::nullopt;
          },
          [](PyRequest& self, SessionArg session) { self.request.session = session.id(); },
          nb::for_getter(nb::sig("def session(self) -> int | None")),
          nb::for_setter(nb::sig("def session(self, value: OpenSession | int | None) -> None")),
          nb::arg("value").none(), "The id of an open one.")
      .def_prop_ro(
          "widened_ranges", [](PyRequest& self) { return self.request.widened_ranges; },
          "Of the retention, that were not whole pages: by checkpoint() and finish().")
      .def_prop_ro(
          "cached_length", [](PyRequest& self) { return self.request.cached_length; },
          "So many slots are the tree's, held for this request.")
      .def_prop_ro("started", &PyRequest::is_bound)
      .def_prop_rw(
          "window_released", [](PyRequest& self) { return self.request.window_released; },
          [](PyRequest& self, std::size_t value) { self.request.window_released = value; })
      .def_prop_rw(
          "snapshot", [](PyRequest& self) { return self.request.snapshot; },
          [](PyRequest& self, StateSlot value) { self.request.snapshot = value; },
          "The state after snapshot_length tokens, for the tree to take.")
      .def_prop_rw(
          "snapshot_length", [](PyRequest& self) { return self.request.snapshot_length; },
          [](PyRequest& self, std::size_t value) { self.request.snapshot_length = value; })
      .def(
          "release_partial", [](PyRequest& self) { self.request.lease.release_partial(); },
          "Lets go of the partly matched page, once its rows are copied.")
      .def(
          "release_snapshot",
          [](PyRequest& self) { unwrap(self.request.lease.release_snapshot()); },
          "Lets go of the matched snapshot, once it is copied.");
  bind_calls(cache);
}

}  // namespace pando::python
