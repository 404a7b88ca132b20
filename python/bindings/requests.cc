// SPDX-License-Identifier: Apache-2.0
// Requests: start, allocate, load_back, checkpoint, finish. What Python sees of a request's tokens
// and slots are copies: the request grows.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "cache.h"

namespace pando::python {

PyRequest::~PyRequest() {
  if (!request.is_running()) return;
  if (PyErr_WarnEx(PyExc_ResourceWarning,
                   "a pando.Request was forgotten: finish() or abandon() gives back what it holds",
                   1) != 0)
    PyErr_WriteUnraisable(nullptr);
  nb::cast<PyCache&>(cache).abandon_soon(std::move(request));
}

namespace {

using Length = std::optional<std::size_t>;

PyRequest* start(nb::handle self, TokensArg tokens, NamespaceArg ns, std::int32_t priority,
                 std::vector<RetentionRange> retention, SessionArg session, Length recompute) {
  auto& cache = nb::cast<PyCache&>(self);
  const Items<Token> items(tokens.object, "tokens");
  const RequestOptions options{.ns = std::string(ns.view()),
                               .priority = priority,
                               .retention = std::move(retention),
                               .session = session.id(),
                               .recompute = recompute.value_or(SIZE_MAX)};
  Request request = unwrap(cache.work("start", items.view().size() >= kLongTokens,
                                      [&](PrefixCache& c) { return c.start(items, options); }));
  return new PyRequest(nb::borrow(self), std::move(request));  // Python's from now on
}

void allocate(PyCache& self, PyRequest& request, Length num_tokens) {
  unwrap(self.work("allocate", false,
                   [&](PrefixCache& c) { return c.allocate(request.request, num_tokens); }));
}

void give_slots(PyCache& self, PyRequest& request, SlotsArg slots) {
  const Items<SlotId> items(slots.object, "slots");
  unwrap(self.work("give_slots", false,
                   [&](PrefixCache& c) { return c.give_slots(request.request, items); }));
}

void checkpoint(PyCache& self, PyRequest& request, Length num_computed, bool chunked) {
  unwrap(self.work(
      "checkpoint", request.request.tokens().size() >= kLongTokens,
      [&](PrefixCache& c) { return c.checkpoint(request.request, num_computed, chunked); }));
}

void finish(PyCache& self, PyRequest& request, Length num_computed) {
  unwrap(self.work("finish", request.request.tokens().size() >= kLongTokens,
                   [&](PrefixCache& c) { return c.finish(request.request, num_computed); }));
  request.cache = nb::none();  // which it needs no more
}

void abandon(PyCache& self, PyRequest& request) {
  if (request.request.is_running() && &nb::cast<PyCache&>(request.cache) != &self)
    raise_invalid("abandon: the request is of another cache");
  self.work("abandon", false, [&](PrefixCache& c) { c.abandon(request.request); });
  request.cache = nb::none();
}

void set_snapshot(PyCache& self, PyRequest& request, StateSlot slot, std::size_t num_tokens) {
  unwrap(self.work("set_snapshot", false, [&](PrefixCache& c) {
    return c.set_snapshot(request.request, slot, num_tokens);
  }));
}

std::size_t release_window(PyCache& self, PyRequest& request, std::size_t num_tokens) {
  return unwrap(self.work("release_window", false, [&](PrefixCache& c) {
    return c.release_window(request.request, num_tokens);
  }));
}

LoadBack load_back(PyCache& self, PyRequest& request, Length quota_tokens, LoadOrder order) {
  return unwrap(self.work("load_back", true, [&](PrefixCache& c) {
    return c.load_back(request.request, {.quota_tokens = quota_tokens, .order = order});
  }));
}

void bind_calls(nb::class_<PyCache>& cache) {
  cache
      .def("start", start, nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
           nb::arg("priority") = 0, nb::arg("retention") = nb::tuple(),
           nb::arg("session") = nb::none(), nb::arg("recompute") = 1,
           nb::sig("def start(self, tokens: numpy.typing.ArrayLike, *, ns: str | bytes = '', "
                   "priority: int = 0, retention: collections.abc.Sequence[RetentionRange] = (), "
                   "session: OpenSession | int | None = None, recompute: int | None = 1) -> "
                   "Request"),
           "A request for these tokens: matches, locks, and has the slots of what is cached. "
           "`recompute` tokens at the end are left to compute even where they are cached (logits "
           "need one); None looks nothing up.")
      .def("allocate", allocate, nb::arg("request"), nb::arg("num_tokens") = nb::none(),
           nb::sig("def allocate(self, request: Request, num_tokens: int | None = None) -> None"),
           "Room for the request's first `num_tokens` tokens, or for all; there may be more of "
           "them than tokens. Evicts exactly what is missing. All or nothing.")
      .def("give_slots", give_slots, nb::arg("request"), nb::arg("slots"),
           nb::sig("def give_slots(self, request: Request, slots: numpy.typing.ArrayLike) -> None"),
           "For a cache on an engine's own slots, instead of allocate(): these are of the next "
           "tokens, and the request's from now on.")
      .def("checkpoint", checkpoint, nb::arg("request"), nb::arg("num_computed") = nb::none(),
           nb::kw_only(), nb::arg("chunked") = false,
           nb::sig("def checkpoint(self, request: Request, num_computed: int | None = None, *, "
                   "chunked: bool = False) -> None"),
           "The KV of the first `num_computed` tokens is in place, or of all that have slots: "
           "inserts them, swaps duplicate slots for the tree's, and holds the new end.")
      .def("finish", finish, nb::arg("request"), nb::arg("num_computed") = nb::none(),
           nb::sig("def finish(self, request: Request, num_computed: int | None = None) -> None"),
           "The same for the last time: inserts, and gives back what else the request holds.")
      .def("abandon", abandon, nb::arg("request"),
           nb::sig("def abandon(self, request: Request) -> None"),
           "Ends a request without inserting anything: gives back everything that is not the "
           "tree's.")
      .def("set_snapshot", set_snapshot, nb::arg("request"), nb::arg("slot"), nb::arg("num_tokens"),
           nb::sig("def set_snapshot(self, request: Request, slot: StateSlot, num_tokens: int) -> "
                   "None"),
           "The slot is the state after so many tokens, whole pages, for the next checkpoint() or "
           "finish() to give to the tree. The request owns it.")
      .def("release_window", release_window, nb::arg("request"), nb::arg("num_tokens"),
           nb::sig("def release_window(self, request: Request, num_tokens: int) -> int"),
           "With so many tokens computed, gives back the window side that no token to come can "
           "see. The tokens given back.")
      .def("load_back", load_back, nb::arg("request"), nb::kw_only(),
           nb::arg("quota_tokens") = nb::none(), nb::arg("order") = LoadOrder::by_layer,
           nb::sig("def load_back(self, request: Request, *, quota_tokens: int | None = None, "
                   "order: LoadOrder = ...) -> LoadBack"),
           "Brings back what start() found on the host, all or nothing, before allocate().");
}

}  // namespace

void bind_requests(nb::module_& m, nb::class_<PyCache>& cache) {
  nb::class_<PyRequest>(m, "Request",
                        "A running request: its tokens, their slots, and what of them is held in "
                        "the cache. Made by PrefixCache.start().\n\n"
                        ">>> cache = pando.PrefixCache(pando.PagedAllocator(64, page_size=4))\n"
                        ">>> request = cache.start([1, 2, 3, 4, 5])\n"
                        ">>> request.cached_length\n"
                        "0\n"
                        ">>> cache.allocate(request)      # room; then the model computes\n"
                        ">>> request.slots\n"
                        "array([4, 5, 6, 7, 8])\n"
                        ">>> request.append(6)            # a token was sampled\n"
                        ">>> cache.allocate(request)\n"
                        ">>> cache.finish(request)\n")
      .def(
          "append",
          [](PyRequest& self, nb::object tokens) {
            Token token = 0;
            if (nb::isinstance<nb::int_>(tokens) && nb::try_cast(tokens, token)) {
              unwrap(self.request.append(token));
              return;
            }
            const Items<Token> items(tokens, "tokens");
            unwrap(self.request.append(items));
          },
          nb::arg("tokens"),
          nb::sig("def append(self, tokens: int | numpy.typing.ArrayLike) -> None"),
          "The request has more tokens: one, or an array of them.")
      .def("__len__", [](PyRequest& self) { return self.request.tokens().size(); })
      .def_prop_ro(
          "tokens", [](PyRequest& self) { return to_numpy(self.request.tokens()); },
          nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]"), "A copy.")
      .def_prop_ro(
          "slots", [](PyRequest& self) { return to_numpy(self.request.slots()); },
          nb::sig("def slots(self) -> numpy.typing.NDArray[numpy.int64]"),
          "Of the first tokens, as many as have room. A copy.")
      .def_prop_ro(
          "found",
          [](PyRequest& self) {
            const Match& found = self.request.found();
            const std::span<const SlotId> slots = self.request.slots();
            return PyMatch{found, to_numpy(slots.first(std::min(found.length, slots.size())))};
          },
          "What start() found.")
      .def_prop_ro(
          "ns",
          [](PyRequest& self) {
            const std::string_view ns = self.request.ns();
            return nb::bytes(ns.data(), ns.size());
          },
          nb::sig("def ns(self) -> bytes"))
      .def_prop_ro(
          "widened_ranges", [](PyRequest& self) { return self.request.widened_ranges(); },
          "How many ranges of the retention were widened to whole pages: by the last checkpoint(), "
          "or by finish().")
      .def_prop_ro(
          "cached_length", [](PyRequest& self) { return self.request.cached_length(); },
          "Slots before this are the tree's, and held for this request.")
      .def_prop_ro(
          "is_running", [](PyRequest& self) { return self.request.is_running(); },
          "Whether it holds anything: until finish() or abandon().")
      .def_prop_ro("window_released",
                   [](PyRequest& self) { return self.request.window_released(); })
      .def_prop_ro(
          "snapshot", [](PyRequest& self) { return self.request.snapshot(); },
          "What set_snapshot() was told and checkpoint() has not yet taken.")
      .def_prop_ro("snapshot_length",
                   [](PyRequest& self) { return self.request.snapshot_length(); })
      .def(
          "release_partial",
          [](PyRequest& self) {
            if (!self.request.is_running()) return;
            nb::cast<PyCache&>(self.cache).work("release_partial", false, [&](PrefixCache&) {
              self.request.release_partial();
            });
          },
          "Lets go of the partly matched page, once its rows are copied.")
      .def(
          "release_snapshot",
          [](PyRequest& self) {
            if (!self.request.is_running()) unwrap(self.request.release_snapshot());
            unwrap(
                nb::cast<PyCache&>(self.cache).work("release_snapshot", false, [&](PrefixCache&) {
                  return self.request.release_snapshot();
                }));
          },
          "Lets go of the matched snapshot, once it is copied.");
  bind_calls(cache);
}

}  // namespace pando::python
