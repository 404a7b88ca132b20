// SPDX-License-Identifier: Apache-2.0
// Retention: what a PrefixCache keeps longer: pins, sessions, tenants.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "cache.h"
#include "events.h"
#include "retention.h"
#include "stores.h"
#include "structs.h"

namespace pando::python {

namespace {

Pinned pin(PyRetention& self, TokensArg tokens, NamespaceArg ns, PinKind kind,
           std::optional<double> ttl) {
  const Items<Token> items(tokens.object, "tokens");
  const Key key = to_key(items, ns);
  PinOptions options{.kind = kind};
  if (ttl) options.ttl = to_milliseconds(*ttl, "ttl");
  return unwrap(self.work("pin", items.view().size() >= kLongTokens,
                          [&](Retention& c) { return c.pin(key, options); }));
}

void close_session(PyRetention& self, SessionId id) {
  unwrap(self.work("close_session", true, [&](Retention& c) { return c.close_session(id); }));
}

void touch(PyRetention& self, SessionId id) {
  unwrap(self.work("touch", false, [&](Retention& c) { return c.touch(id); }));
}

/// Harmless when the session is closed already.
void close_open(PyOpenSession& session) {
  PyRetention cache{nb::borrow(session.cache())};
  const Status closed = cache.work("close_session", true,
                                   [&](Retention& c) { return c.close_session(session.id()); });
  if (!closed && closed.error().code != ErrorCode::stale_handle) raise(closed.error());
}

void bind_open_session(nb::module_& m) {
  nb::class_<PyOpenSession>(
      m, "OpenSession",
      "An open session: a context manager that closes it. Calls take it, or its id, as `session`. "
      "Unlike a Lease, one that is forgotten stays open: Retention.sessions() has its id, and "
      "close_session() closes it.\n\n"
      ">>> allocator = pando.PagedAllocator(64)\n"
      ">>> cache = pando.PrefixCache(allocator)\n"
      ">>> with cache.retention.open_session(idle_after=60) as session:\n"
      "...     _ = cache.paths.insert([1, 2, 3], allocator.alloc(3), session=session)\n"
      "...     _ = cache.paths.insert([7, 8, 9], allocator.alloc(3))\n"
      "...     cache.evict(3).tokens, cache.paths.probe([1, 2, 3])   # the others' goes first\n"
      "(3, 3)\n"
      ">>> cache.paths.probe([1, 2, 3])                               # nobody else had used it\n"
      "0\n",
      nb::type_slots(object_slots<PyOpenSession>))
      .def_prop_ro("id", [](PyOpenSession& self) { return self.id().value; })
      .def(
          "touch",
          [](PyOpenSession& self) {
            PyRetention kept{nb::borrow(self.cache())};
            touch(kept, self.id());
          },
          "The session is in use, though no request of it is.")
      .def("close", close_open,
           "What only this session has used goes at once, from all tiers; harmless when done "
           "already.")
      .def(
          "__enter__", [](nb::handle self) { return self; },
          nb::sig("def __enter__(self) -> OpenSession"))
      .def(
          "__exit__", [](PyOpenSession& self, const nb::args&) { close_open(self); },
          nb::sig("def __exit__(self, *exc: object) -> None"))
      .def("__repr__",
           [](PyOpenSession& self) { return fmt::format("OpenSession(id={})", self.id().value); });
}

void bind_pinning(nb::class_<PyRetention>& type) {
  type.def("pin", pin, nb::arg("tokens"), nb::kw_only(), nb::arg("ns") = "",
           nb::arg("kind") = PinKind::hard, nb::arg("ttl") = nb::none(),
           nb::sig("def pin(self, tokens: numpy.typing.ArrayLike, *, ns: str | bytes = '', kind: "
                   "PinKind = ..., ttl: float | None = None) -> Pinned"),
           "Holds what is on the device of the key, without a request, until unpin() or for `ttl` "
           "seconds; once more each time. InvalidArgument if that is nothing, OutOfCapacity if "
           "more would be pinned than may be (RetentionOptions.max_pinned_share).\n\n"
           ">>> allocator = pando.PagedAllocator(64)\n"
           ">>> cache = pando.PrefixCache(allocator)\n"
           ">>> _ = cache.paths.insert([1, 2, 3], allocator.alloc(3))\n"
           ">>> pinned = cache.retention.pin([1, 2, 3, 4])\n"
           ">>> pinned.length, cache.evict(3).tokens\n"
           "(3, 0)\n"
           ">>> cache.retention.unpin(pinned.id)\n"
           ">>> cache.evict(3).tokens\n"
           "3\n")
      .def(
          "unpin",
          [](PyRetention& self, std::uint64_t id) {
            unwrap(self.work("unpin", false, [&](Retention& c) { return c.unpin({id}); }));
          },
          nb::arg("id"), "StaleHandle if there is no such pin, or it has ended.")
      .def("pins",
           [](PyRetention& self) {
             return self.work("pins", false, [](Retention& c) { return c.pins(); });
           })
      .def_prop_ro(
          "pinned_tokens",
          [](PyRetention& self) {
            return self.work("pinned_tokens", false,
                             [](Retention& c) { return c.pinned_tokens(); });
          },
          "Of all pinned paths together.");
}

void bind_session_calls(nb::class_<PyRetention>& type) {
  type.def(
          "open_session",
          [](PyRetention& self, double idle_after) {
            const SessionOptions options{.idle_after = to_milliseconds(idle_after, "idle_after")};
            const SessionId id = unwrap(self.work(
                "open_session", false, [&](Retention& c) { return c.open_session(options); }));
            return std::make_unique<PyOpenSession>(self.cache, id);
          },
          nb::kw_only(), nb::arg("idle_after") = to_seconds(SessionOptions{}.idle_after),
          nb::sig("def open_session(self, *, idle_after: float = 300.0) -> OpenSession"),
          "What requests of the session insert is kept above the rest. Not used for `idle_after` "
          "seconds, its prefix falls back to level 0 until it is used again.")
      .def(
          "touch", [](PyRetention& self, SessionArg session) { touch(self, session.id()); },
          nb::arg("session"), nb::sig("def touch(self, session: OpenSession | int) -> None"),
          "The session is in use, though no request of it is.")
      .def(
          "close_session",
          [](PyRetention& self, SessionArg session) { close_session(self, session.id()); },
          nb::arg("session"),
          nb::sig("def close_session(self, session: OpenSession | int) -> None"),
          "What only this session has used goes at once, from all tiers. StaleHandle if it is "
          "closed already.")
      .def("sessions", [](PyRetention& self) {
        return self.work("sessions", false, [](Retention& c) { return c.sessions(); });
      });
}

void bind_tenant_calls(nb::class_<PyRetention>& type) {
  type.def(
          "set_tenant",
          [](PyRetention& self, const TenantOptions& tenant) {
            unwrap(
                self.work("set_tenant", true, [&](Retention& c) { return c.set_tenant(tenant); }));
          },
          nb::arg("tenant"),
          "Adds a tenant or changes its limits. Refused if all floors together are more than there "
          "is.\n\n"
          ">>> allocator = pando.PagedAllocator(64)\n"
          ">>> cache = pando.PrefixCache(allocator)\n"
          ">>> cache.retention.set_tenant(pando.TenantOptions(name='acme', device_floor=16))\n"
          ">>> ns = pando.make_namespace(tenant='acme')\n"
          ">>> _ = cache.paths.insert([1, 2, 3], allocator.alloc(3), ns=ns)\n"
          ">>> cache.evict(3).tokens             # nobody else takes from it\n"
          "0\n"
          ">>> cache.retention.tenant_usage('acme').device_tokens\n"
          "3\n")
      .def(
          "assign_namespace",
          [](PyRetention& self, NamespaceArg ns, nb::handle tenant) {
            const std::string name = from_text(tenant, "tenant");
            unwrap(self.work("assign_namespace", true, [&, of = ns.view()](Retention& c) {
              return c.assign_namespace(of, name);
            }));
          },
          nb::arg("ns"), nb::arg("tenant"),
          nb::sig("def assign_namespace(self, ns: str | bytes, tenant: str | bytes) -> None"),
          "The namespace belongs to this tenant, whatever make_namespace() put into it.")
      .def(
          "tenants",
          [](PyRetention& self) {
            return self.work("tenants", false, [](Retention& c) { return c.tenants(); });
          },
          "The owner of what is no tenant's first, whose name is empty.")
      .def(
          "tenant_usage",
          [](PyRetention& self, nb::handle tenant) {
            const std::string name = from_text(tenant, "name");
            return unwrap(self.work("tenant_usage", false,
                                    [&](Retention& c) { return c.tenant_usage(name); }));
          },
          nb::arg("name"), nb::sig("def tenant_usage(self, name: str | bytes) -> TenantUsage"),
          "InvalidArgument lists the names there are.");
}

}  // namespace

void bind_cache_retention(nb::module_& m, nb::class_<PyCache>& cache) {
  bind_open_session(m);
  auto type = bind_part<Retention>(
      m, cache, "Retention", "retention",
      "What a PrefixCache keeps longer than its policy would: pins, sessions, shares of tenants. "
      "PrefixCache.retention gives it.\n\n"
      ">>> cache = pando.PrefixCache(pando.PagedAllocator(64))\n"
      ">>> with cache.retention.open_session() as session:\n"
      "...     len(cache.retention.sessions())\n"
      "1\n");
  bind_pinning(type);
  bind_session_calls(type);
  bind_tenant_calls(type);
}

}  // namespace pando::python
