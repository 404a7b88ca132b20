// SPDX-License-Identifier: Apache-2.0
// Options of a PrefixCache, and how one is made of them: what they refer to is kept, and joins the
// guard of its slots.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>

#include <utility>

#include "allocators.h"
#include "cache.h"
#include "observe.h"
#include "policy.h"
#include "ranks.h"
#include "structs.h"
#include "tiers.h"

namespace pando::python {

namespace {

/// What a cache is made of, while it is being made.
struct Parts {
  CacheOptions options;
  Kept kept;
  std::vector<std::shared_ptr<void>> owned;
  SharedGuard guard;
  StateAllocator* states = nullptr;

  template <typename... Slots>
  void create(PyCache* self, nb::handle policy, Slots&&... slots) {
    std::unique_ptr<EvictionPolicy> chosen;  // none: the one that the options name
    if (!policy.is_none()) chosen = to_policy(policy, kept);
    auto cache = unwrap(run(options.ranks != nullptr, [&] {  // ranks wait for each other
      return PrefixCache::create(options, std::forward<Slots>(slots)..., std::move(chosen), states);
    }));
    new (self) PyCache(std::move(cache));
    self->kept = std::move(kept);
    self->owned = std::move(owned);
    self->guard = std::move(guard);
  }
};

/// Follows what Python's options refer to. All of it joins one guard: that of the slots.
Parts resolve(const PyCacheOptions& options, nb::handle states, SharedGuard guard) {
  Parts parts{.options = options.plain, .kept = {}, .owned = {}, .guard = std::move(guard)};
  parts.options.retention = options.retention.resolve(parts.kept);
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
bool create_over(PyCache* self, nb::handle slots, const PyCacheOptions& options, nb::handle policy,
                 nb::handle states) {
  Guarded<Allocator>* allocator = nullptr;
  if (!nb::try_cast(slots, allocator)) return false;
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
  PyEngineSlots* engine = nullptr;
  if (create_over<PagedAllocator>(self, slots, copy, policy, states) ||
      create_over<WindowAllocator>(self, slots, copy, policy, states))
    return;
  if (!nb::try_cast(slots, engine))
    raise_invalid("slots: expected a PagedAllocator, a WindowAllocator or EngineSlots");
  Parts parts = resolve(copy, states, std::make_shared<Guard>());
  EngineSlots calls = to_engine_slots(*engine, parts.kept);
  parts.create(self, policy, std::move(calls));
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
  bind_struct<Py>(m, "CacheOptions", "Options of a PrefixCache.", nb::type_slots(object_slots<Py>))
      .PANDO_OPTION(bigram, "bool", "EAGLE: n tokens are n - 1 overlapping pairs.")
      .PANDO_OPTION(disabled, "bool", "Nothing is kept.")
      .PANDO_OPTION(events, "bool", "Record KV events.")
      .PANDO_OPTION(policy, "str", "What is evicted first, by name; PrefixCache takes others too.")
      .PANDO_OPTION(evict_whole_nodes, "bool", "evict() drops its last victim whole.")
      .PANDO_OPTION(partial_pages, "bool", "Report further tokens that agree inside a page.")
      .PANDO_OPTION(hash_seed, "int | None", "Of the table that finds children; random if None.")
      .PANDO_OPTION(window, "int | None",
                    "Tokens that a sliding-window layer looks back; may be fewer than a page.")
      .PANDO_OPTION(state, "StateOptions | None", "For models with recurrent layers.")
      .PANDO_OPTION(remember_evicted, "int", "How many evicted pages explain() remembers.")
      .field("retention", &Py::retention, "RetentionOptions",
             "What is kept longer than the policy would keep it, and for whom.")
      .PANDO_OBJECT(host, "HostTierOptions | None", "What the device evicts goes on there.")
      .PANDO_OBJECT(ranks, "pando.protocols.Ranks | None", "Others that mirror this cache.")
      .PANDO_OBJECT(observer, "typing.Any", "Told of every call: an observer, or a list of them.")
      .constructible()
      .done();
#undef PANDO_OPTION
#undef PANDO_OBJECT
}

}  // namespace

void bind_cache_create(nb::module_& m, nb::class_<PyCache>& cache) {
  bind_options(m);
  cache.def("__init__", create, nb::arg("slots"), nb::arg("options") = nb::none(), nb::kw_only(),
            nb::arg("policy") = nb::none(), nb::arg("states") = nb::none(), nb::arg("fields"),
            nb::sig("def __init__(self, slots: PagedAllocator | WindowAllocator | EngineSlots, "
                    "options: CacheOptions | None = None, *, policy: str | "
                    "HazardOptions | pando.protocols.EvictionPolicy | None = None, states: "
                    "StateAllocator | None = None, **fields: typing.Any) -> None"));
}

}  // namespace pando::python
