// SPDX-License-Identifier: Apache-2.0
// PrefixCache: match, lock, insert, evict, and what it tells of itself. How one is made is in
// cache_create.cc, requests in requests.cc, tiers in cache_tiers.cc, pins and the like in
// cache_retention.cc.
#include "cache.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <utility>

namespace pando::python {

namespace {

PyMatch match(PyCache& self, TokensArg tokens, NamespaceArg ns, nb::handle slots,
              SessionArg session) {
  const Items<Token> items(tokens.object, "tokens");
  const std::size_t size = items.view().size();
  const Key key = to_key(items, ns);
  const SessionId session_id = session.id();
  PyMatch found;
  const auto find = [&](std::span<SlotId> out) {
    found.match = unwrap(self.work("match", size >= kLongTokens,
                                   [&](PrefixCache& c) { return c.match(key, out, session_id); }));
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

Inserted insert_behind(PyCache& self, PyLease& lease, TokensArg tokens, SlotsArg slots,
                       NamespaceArg ns, bool extend_lease, std::int32_t priority, bool chunked,
                       bool unfinished, const std::vector<RetentionRange>& retention,
                       SessionArg session, std::size_t window_released,
                       std::optional<StateSlot> snapshot) {
  if (self.object->options().observer != nullptr)
    raise({ErrorCode::unavailable,
           "insert_behind: an observer is to be told of whole keys; use insert()"});
  const Tail<Token> key(tokens.object, "tokens", lease.length());
  const Tail<SlotId> given(slots.object, "slots", lease.length());
  const std::string_view name = ns.view();
  const SessionId session_id = session.id();
  const Inserted inserted =
      unwrap(self.work("insert_behind", key.view().size() >= kLongTokens, [&](PrefixCache& c) {
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
    unwrap(self.work("insert_behind", false, [&](PrefixCache& c) -> Status {
      Result<Lease> longer = c.lock(inserted.match());
      if (!longer) return longer.error();
      lease.lease() = std::move(*longer);
      return {};
    }));
    lease.grow(inserted.length - lease.length());
  }
  return inserted;
}

void bind_reuse(nb::class_<PyCache>& type) {
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
             std::size_t owned_by_tree, std::int32_t priority, bool chunked, bool unfinished,
             const std::vector<RetentionRange>& retention, SessionArg session,
             std::size_t window_released, std::optional<StateSlot> snapshot) {
            const Items<Token> items(tokens.object, "tokens");
            const Items<SlotId> given(slots.object, "slots");
            const Key key = to_key(items, ns);
            const SessionId session_id = session.id();
            return unwrap(
                self.work("insert", items.view().size() >= kLongTokens, [&](PrefixCache& c) {
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
          ">>> cache.insert([1, 2, 3, 4, 5], allocator.alloc(8)[:5]).length\n"
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
           ">>> with cache.lock(cache.insert([1, 2], allocator.alloc(2)).match()) as lease:\n"
           "...     cache.insert_behind(lease, [3, 4], allocator.alloc(2)).length\n"
           "4\n"
           ">>> cache.probe([1, 2, 3, 4])\n"
           "4\n")
      .def(
          "evict",
          [](PyCache& self, std::size_t tokens, std::size_t window_tokens, std::size_t snapshots,
             NamespaceArg ns) {
            const EvictGoal goal{.tokens = tokens,
                                 .window_tokens = window_tokens,
                                 .snapshots = snapshots,
                                 .ns = ns.view()};
            return self.work("evict", tokens + window_tokens >= kLongTokens,
                             [&](PrefixCache& c) { return c.evict(goal); });
          },
          nb::arg("tokens") = 0, nb::kw_only(), nb::arg("window_tokens") = 0,
          nb::arg("snapshots") = 0, nb::arg("ns") = "",
          "Frees at least what is asked, in whole pages, or less when no more is evictable: for "
          "the tenant of a namespace. Other tenants keep what they have up to their floors.")
      .def(
          "reset",
          [](PyCache& self) {
            unwrap(self.work("reset", true, [](PrefixCache& c) { return c.reset(); }));
          },
          "Empties the tree, gives back its slots, ends all pins. Refused while leases are held.")
      .def(
          "allocate_state",
          [](PyCache& self) {
            return unwrap(self.work("allocate_state", false,
                                    [](PrefixCache& c) { return c.allocate_state(); }));
          },
          "A state slot, after evicting a snapshot if none is free.");
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
          [](PyCache& self, Tier tier) {
            return self.work("capacity_tokens", false,
                             [&](PrefixCache& c) { return c.capacity_tokens(tier); });
          },
          nb::arg("tier"), "0: no such tier, or an engine's own slots.")
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
            options.retention = PyRetentionOptions::of(options.plain.retention);
            options.plain.retention = {};
            return options;
          },
          "A copy of the plain ones; pools, ranks, observers and clocks are not in it.")
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
  bind_cache_results(m);
  bind_engine_slots(m);
  bind_retention(m);
  bind_lease(m);
  nb::class_<PyCache> type(
      m, "PrefixCache",
      "Answers, for the scheduler of an inference engine: how much of this prompt do I already "
      "hold, keep it there while I use it, give me room for the rest, take what I computed. "
      "Options are keyword arguments, or a CacheOptions.\n\n"
      ">>> allocator = pando.PagedAllocator(1024, page_size=16)\n"
      ">>> cache = pando.PrefixCache(allocator, policy='lru')\n"
      ">>> request = cache.start(np.arange(100))\n"
      ">>> request.cached_length\n"
      "0\n"
      ">>> cache.allocate(request)\n"
      ">>> cache.finish(request)\n"
      ">>> cache.match(np.arange(100)).length\n"
      "96\n",
      nb::type_slots(collected_slots<PyCache>));
  bind_cache_create(m, type);
  bind_reuse(type);
  bind_cache_tiers(type);
  bind_cache_retention(m, type);
  bind_diagnostics(type);
  bind_requests(m, type);
}

}  // namespace pando::python
