// SPDX-License-Identifier: Apache-2.0
// Paths: the calls of a PrefixCache on keys and spans of slots, for engines that keep requests
// themselves.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

#include "cache.h"
#include "tiers.h"

namespace pando::python {

namespace {

PyMatch match(PyPaths& self, TokensArg tokens, NamespaceArg ns, nb::handle slots,
              SessionArg session) {
  const Items<Token> items(tokens.object, "tokens");
  const std::size_t size = items.view().size();
  const Key key = to_key(items, ns);
  const SessionId session_id = session.id();
  PyMatch found;
  const auto find = [&](std::span<SlotId> out) {
    found.match = unwrap(self.work("match", size >= kLongTokens,
                                   [&](Paths& c) { return c.match(key, out, session_id); }));
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

Inserted insert_behind(PyPaths& self, PyLease& lease, TokensArg tokens, SlotsArg slots,
                       NamespaceArg ns, bool extend_lease, std::int32_t priority, bool chunked,
                       bool unfinished, const std::vector<RetentionRange>& retention,
                       SessionArg session, std::size_t window_released,
                       std::optional<StateSlot> snapshot) {
  if (self.owner().options().observer != nullptr)
    raise({ErrorCode::unavailable,
           "insert_behind: an observer is to be told of whole keys; use insert()"});
  const Tail<Token> key(tokens.object, "tokens", lease.length());
  const Tail<SlotId> given(slots.object, "slots", lease.length());
  const std::string_view name = ns.view();
  const SessionId session_id = session.id();
  const Inserted inserted =
      unwrap(self.work("insert_behind", key.view().size() >= kLongTokens, [&](Paths& c) {
        return c.insert({key.view(), name}, given.view(),
                        {.owned_by_tree = lease.length(),
                         .held = &lease.lease(),
                         .priority = priority,
                         .chunked = chunked,
                         .unfinished = unfinished,
                         .retention = retention,
                         .session = session_id,
                         .window_released = window_released,
                         .snapshot = snapshot.value_or(StateSlot{})});
      }));
  if (extend_lease) {
    unwrap(self.work("insert_behind", false, [&](Paths& c) -> Status {
      Result<Lease> longer = c.lock(inserted.match());
      if (!longer) return longer.error();
      lease.lease() = std::move(*longer);
      return {};
    }));
    lease.grow(inserted.length - lease.length());
  }
  return inserted;
}

nb::object allocate_batch(PyPaths& self, nb::handle out, std::size_t size, const char* call,
                          auto&& fill) {
  if (!out.is_none()) {
    const SlotsOut target(out, "out");
    unwrap(self.work(call, false, [&](Paths& c) { return fill(c, target.view()); }));
    return nb::borrow(out);
  }
  NewSlots slots(size);
  unwrap(self.work(call, false, [&](Paths& c) { return fill(c, slots.view); }));
  return std::move(slots.array);
}

void bind_reuse(nb::class_<PyPaths>& type) {
  type.def(
          "match", match, nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          nb::arg("slots") = nb::none(), nb::arg("session") = nb::none(),
          nb::sig("def match(self, tokens: numpy.typing.ArrayLike, *, ns: str | bytes = '', slots: "
                  "numpy.typing.NDArray[numpy.int64] | bool | None = None, session: OpenSession | "
                  "int | None = None) -> Match"),
          "The longest cached prefix. Its slots come in a new array, or go to the front of "
          "`slots`, which has room for every token; False: not wanted. Counts as a use, by the "
          "`session` if one is given.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=4)\n"
          ">>> cache = pando.PrefixCache(allocator)\n"
          ">>> _ = cache.paths.insert(np.arange(8), allocator.alloc(8))\n"
          ">>> match = cache.paths.match([0, 1, 2, 3, 4, 99])\n"
          ">>> match.length, match.slots, match.partial_length\n"
          "(4, array([4, 5, 6, 7]), 1)\n")
      .def(
          "probe",
          [](PyPaths& self, TokensArg tokens, NamespaceArg ns) {
            const Items<Token> items(tokens.object, "tokens");
            return self.work("probe", items.view().size() >= kLongTokens,
                             [&, key = to_key(items, ns)](Paths& c) { return c.probe(key); });
          },
          nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
          "The length that match() would give, changing nothing.")
      .def(
          "probe_many",
          [](PyPaths& self, const nb::list& prompts, NamespaceArg ns) {
            std::vector<std::unique_ptr<Items<Token>>> items;
            std::vector<Key> keys;
            std::size_t size = 0;
            for (const nb::handle prompt : prompts) {
              items.push_back(std::make_unique<Items<Token>>(prompt, "prompts"));
              keys.push_back(to_key(*items.back(), ns));
              size += keys.back().tokens.size();
            }
            std::vector<std::size_t> lengths(keys.size());
            self.work("probe_many", size >= kLongTokens, [&](Paths& c) { c.probe(keys, lengths); });
            return lengths;
          },
          nb::arg("prompts"), nb::kw_only(), nb::arg("ns") = "",
          nb::sig("def probe_many(self, prompts: list[numpy.typing.ArrayLike], *, ns: str | bytes "
                  "= '') -> list[int]"),
          "probe() of several prompts, faster than one by one.")
      .def(
          "lock",
          [](PyPaths& self, const PyMatch& match) {
            Lease lease =
                unwrap(self.work("lock", false, [&](Paths& c) { return c.lock(match.match); }));
            return std::make_unique<PyLease>(self.cache, std::move(lease), match.match.length);
          },
          nb::arg("match"), nb::sig("def lock(self, match: Match) -> Lease"),
          "Holds a match in place; StaleHandle if it has gone since.")
      .def(
          "insert",
          [](PyPaths& self, TokensArg tokens, SlotsArg slots, NamespaceArg ns,
             std::size_t owned_by_tree, std::int32_t priority, bool chunked, bool unfinished,
             const std::vector<RetentionRange>& retention, SessionArg session,
             std::size_t window_released, std::optional<StateSlot> snapshot) {
            const Items<Token> items(tokens.object, "tokens");
            const Items<SlotId> given(slots.object, "slots");
            const Key key = to_key(items, ns);
            const SessionId session_id = session.id();
            return unwrap(self.work("insert", items.view().size() >= kLongTokens, [&](Paths& c) {
              return c.insert(key, given,
                              {.owned_by_tree = owned_by_tree,
                               .priority = priority,
                               .chunked = chunked,
                               .unfinished = unfinished,
                               .retention = retention,
                               .session = session_id,
                               .window_released = window_released,
                               .snapshot = snapshot.value_or(StateSlot{})});
            }));
          },
          nb::arg("tokens"), nb::arg("slots"), nb::kw_only(), nb::arg("ns") = "",
          nb::arg("owned_by_tree") = 0, nb::arg("priority") = 0, nb::arg("chunked") = false,
          nb::arg("unfinished") = false, nb::arg("retention") = nb::tuple(),
          nb::arg("session") = nb::none(), nb::arg("window_released") = 0,
          nb::arg("snapshot") = nb::none(),
          "Gives the tree tokens and their slots. It takes the whole pages; the caller's "
          "duplicates are freed, the unaligned tail stays the caller's. `owned_by_tree`: so many "
          "slots at the front came from a match. `unfinished`: the request will insert more, and a "
          "policy that learns counts it then. `retention`: priorities of parts of the key. "
          "`session`: what is new is its own until others use it.\n\n"
          ">>> allocator = pando.PagedAllocator(64, page_size=4)\n"
          ">>> cache = pando.PrefixCache(allocator)\n"
          ">>> cache.paths.insert([1, 2, 3, 4, 5], allocator.alloc(8)[:5]).length\n"
          "4\n")
      .def("insert_behind", insert_behind, nb::arg("lease"), nb::arg("tokens"), nb::arg("slots"),
           nb::kw_only(), nb::arg("ns") = "", nb::arg("extend_lease") = false,
           nb::arg("priority") = 0, nb::arg("chunked") = false, nb::arg("unfinished") = false,
           nb::arg("retention") = nb::tuple(), nb::arg("session") = nb::none(),
           nb::arg("window_released") = 0, nb::arg("snapshot") = nb::none(),
           "insert() of a key whose first part a lease holds, given only what comes behind that: "
           "for chunk after chunk of a long prompt. With extend_lease the lease then holds all of "
           "it. Lengths of the result, window_released, and ranges of `retention` count from the "
           "key's start.\n\n"
           ">>> allocator = pando.PagedAllocator(64)\n"
           ">>> cache = pando.PrefixCache(allocator)\n"
           ">>> with cache.paths.lock(cache.paths.insert([1, 2], allocator.alloc(2)).match()) as "
           "lease:\n"
           "...     cache.paths.insert_behind(lease, [3, 4], allocator.alloc(2)).length\n"
           "4\n"
           ">>> cache.paths.probe([1, 2, 3, 4])\n"
           "4\n")
      .def(
          "load_back",
          [](PyPaths& self, PyLease& lease, SlotsArg slots, std::optional<std::size_t> quota_tokens,
             LoadOrder order) {
            const SlotsOut out(slots.object);
            const LoadBack loaded = unwrap(self.work("load_back", true, [&](Paths& c) {
              return c.load_back(lease.lease(), out.view(),
                                 {.quota_tokens = quota_tokens, .order = order});
            }));
            lease.grow(loaded.tokens);
            return loaded;
          },
          nb::arg("lease"), nb::arg("slots"), nb::kw_only(), nb::arg("quota_tokens") = nb::none(),
          nb::arg("order") = LoadOrder::by_layer,
          "Brings back what the lease's match found on the host, all or nothing, and writes its "
          "slots to their place in `slots` (one per token of the whole match).");
}

void bind_batches(nb::class_<PyPaths>& type) {
  type.def(
          "allocate_extend",
          [](PyPaths& self, TokensArg prefix_lens, TokensArg seq_lens, SlotsArg last_slots,
             nb::object out, NamespaceArg ns) {
            const Items<std::size_t> from(prefix_lens.object, "prefix_lens");
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            const Items<SlotId> last(last_slots.object, "last_slots");
            std::size_t size = 0;
            for (std::size_t i = 0; i < std::min(from.view().size(), to.view().size()); ++i)
              size += to.view()[i] - std::min(from.view()[i], to.view()[i]);
            return allocate_batch(self, out, size, "allocate_extend",
                                  [&, name = ns.view()](Paths& c, std::span<SlotId> slots) {
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
          [](PyPaths& self, TokensArg seq_lens, SlotsArg last_slots, nb::object out,
             NamespaceArg ns) {
            const Items<std::size_t> to(seq_lens.object, "seq_lens");
            const Items<SlotId> last(last_slots.object, "last_slots");
            return allocate_batch(self, out, to.view().size(), "allocate_decode",
                                  [&, name = ns.view()](Paths& c, std::span<SlotId> slots) {
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

void bind_paths(nb::module_& m, nb::class_<PyCache>& cache) {
  auto type = bind_part<Paths>(
      m, cache, "Paths", "paths",
      "A PrefixCache by keys and spans of slots, for engines that keep requests and slots "
      "themselves: match, lock, insert. PrefixCache.paths gives it.\n\n"
      ">>> allocator = pando.PagedAllocator(64)\n"
      ">>> paths = pando.PrefixCache(allocator).paths\n"
      ">>> _ = paths.insert([1, 2, 3], allocator.alloc(3))\n"
      ">>> with paths.lock(paths.match([1, 2, 3, 4])) as lease:\n"
      "...     lease.length\n"
      "3\n");
  bind_reuse(type);
  bind_batches(type);
}

}  // namespace pando::python
