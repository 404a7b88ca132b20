// SPDX-License-Identifier: Apache-2.0
#include "retention.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "buffers.h"
#include "events.h"
#include "interpreter.h"
#include "stores.h"
#include "structs.h"

namespace pando::python {

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// A clock of Python's. Where it fails it stands still: another clock would be at another time.
class PythonClock {
 public:
  explicit PythonClock(nb::handle now) : now_(now) {}

  Clock::time_point operator()() const {
    if (const PythonEntry entry; entry) {
      try {
        *last_ = read();
      } catch (nb::python_error& error) {
        (void)contain(error, "RetentionOptions.now");
      }
    }
    return *last_;
  }

 private:
  Clock::time_point read() const {
    constexpr double kMost = 1e9;  // some thirty years, and far from where the clock's count ends
    const nb::object given = now_();
    double seconds = 0;
    if (!nb::try_cast(given, seconds) || !(std::abs(seconds) <= kMost))
      raise_invalid(fmt::format("now() gave {}: expected seconds, as time.monotonic() gives them",
                                nb::cast<std::string>(nb::repr(given))));
    return Clock::time_point(
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  }

  nb::handle now_;
  std::shared_ptr<Clock::time_point> last_ = std::make_shared<Clock::time_point>();
};

std::optional<double> to_optional_seconds(std::optional<Milliseconds> duration) {
  if (!duration) return std::nullopt;
  return to_seconds(*duration);
}

/// SIZE_MAX is None in Python.
template <auto member>
std::optional<std::size_t> get_limit(const auto& self) {
  return self.*member == SIZE_MAX ? std::nullopt : std::optional(self.*member);
}
template <auto member>
void set_limit(auto& self, std::optional<std::size_t> value) {
  self.*member = value.value_or(SIZE_MAX);
}

void bind_ranges(nb::module_& m) {
  using Range = RetentionRange;
  bind_struct<Range>(
      m, "RetentionRange",
      "Tokens [begin, end) of a request are kept as `priority` says for so long, and at level 0 "
      "afterwards. What has a lower level goes first, whatever the policy says. Ends inside a page "
      "are moved outwards, and counted (widened_ranges).\n\n"
      ">>> allocator = pando.PagedAllocator(64)\n"
      ">>> cache = pando.PrefixCache(allocator)\n"
      ">>> system_prompt = pando.RetentionRange(end=2, priority=10, duration=3600)\n"
      ">>> _ = cache.paths.insert([1, 2, 3], allocator.alloc(3), retention=[system_prompt])\n"
      ">>> _ = cache.paths.insert([7, 8, 9], allocator.alloc(3))   # more recent, but level 0\n"
      ">>> cache.evict(4).tokens, cache.paths.probe([1, 2, 3])\n"
      "(4, 2)\n")
      .field("begin", &Range::from, "int")
      .property("end", get_limit<&Range::to, Range>, set_limit<&Range::to, Range>, "int | None",
                "None: wherever the request ends.")
      .field("priority", &Range::priority, "int",
             "The level, -100 to 100: above 0 goes after all that has none, below 0 before it.")
      .property(
          "duration", [](const Range& self) { return to_optional_seconds(self.duration); },
          [](Range& self, std::optional<double> seconds) {
            self.duration.reset();
            if (seconds) self.duration = to_milliseconds(*seconds, "duration");
          },
          "float | None", "In seconds. None: for good.")
      .constructible()
      .done();
}

void bind_pins(nb::module_& m) {
  nb::enum_<PinKind>(m, "PinKind", "Where a pinned path stays.")
      .value("hard", PinKind::hard, "On the device.")
      .value("soft", PinKind::soft,
             "Somewhere: without a host copy on the device, with one it may leave the device.");
  bind_struct<Pinned>(m, "Pinned", "What PrefixCache.pin() did.")
      .property(
          "id", [](const Pinned& self) { return self.id.value; },
          [](Pinned& self, std::uint64_t id) { self.id.value = id; }, "int", "For unpin().")
      .field("length", &Pinned::length, "int", "Tokens: the longest part that was there.")
      .done();
  bind_struct<Pin>(m, "Pin", "One of PrefixCache.pins().")
      .property(
          "id", [](const Pin& self) { return self.id.value; },
          [](Pin& self, std::uint64_t id) { self.id.value = id; }, "int", "For unpin().")
      .field("kind", &Pin::kind, "PinKind")
      .property(
          "ns", [](const Pin& self) { return to_bytes(self.ns); },
          [](Pin& self, nb::handle ns) { self.ns = from_text(ns, "ns"); }, "bytes")
      .field("length", &Pin::length, "int", "Tokens.")
      .field("on_device", &Pin::on_device, "bool",
             "Held there; a soft pin lets go once the host has it all.")
      .property(
          "remaining", [](const Pin& self) { return to_optional_seconds(self.remaining); },
          [](Pin& self, std::optional<double> seconds) {
            self.remaining.reset();
            if (seconds) self.remaining = to_milliseconds(*seconds, "remaining");
          },
          "float | None", "Seconds of its ttl, if it has one.")
      .done();
}

void bind_sessions(nb::module_& m) {
  bind_struct<Session>(m, "Session", "One of PrefixCache.sessions(), as it was then.")
      .property(
          "id", [](const Session& self) { return self.id.value; },
          [](Session& self, std::uint64_t id) { self.id.value = id; }, "int")
      .field("active", &Session::active, "bool", "Its prefix is protected.")
      .field("tokens", &Session::tokens, "int", "Of its longest prefix that is still cached.")
      .done();
}

void bind_tenants(nb::module_& m) {
  using Tenant = TenantOptions;
  const char* const name_doc = "As make_namespace(tenant=…) has it.";
  bind_struct<Tenant>(m, "TenantOptions", "A tenant's share of device and host, in tokens.")
      .property(
          "name", [](const Tenant& self) { return to_text(self.name); },
          [](Tenant& self, nb::handle name) { self.name = from_text(name, "name"); }, "str",
          name_doc, "str | bytes")
      .field("device_floor", &Tenant::device_floor, "int",
             "Nobody else takes from a tenant that has no more than this.")
      .field("host_floor", &Tenant::host_floor, "int")
      .property("device_cap", get_limit<&Tenant::device_cap, Tenant>,
                set_limit<&Tenant::device_cap, Tenant>, "int | None",
                "A tenant that has more gives first, to others and to itself. None: no cap.")
      .property("host_cap", get_limit<&Tenant::host_cap, Tenant>,
                set_limit<&Tenant::host_cap, Tenant>, "int | None")
      .constructible()
      .done();
  using Usage = TenantUsage;
  bind_struct<Usage>(m, "TenantUsage", "What a tenant has, in tokens.")
      .property(
          "name", [](const Usage& self) { return to_text(self.name); },
          [](Usage& self, nb::handle name) { self.name = from_text(name, "name"); }, "str",
          "Empty: all that is no tenant's.", "str | bytes")
      .field("device_tokens", &Usage::device_tokens, "int")
      .field("device_evictable", &Usage::device_evictable, "int", "Of these, not held.")
      .field("host_tokens", &Usage::host_tokens, "int")
      .field("host_evictable", &Usage::host_evictable, "int",
             "Of these, not held and on the host only.")
      .field("limits", &Usage::limits, "TenantOptions")
      .done();
}

void bind_options(nb::module_& m) {
  using Py = PyRetentionOptions;
  bind_struct<Py>(m, "RetentionOptions",
                  "What a PrefixCache keeps longer than its policy would, and for whom.",
                  nb::type_slots(object_slots<Py>))
      .property(
          "max_pinned_share", [](const Py& self) { return self.plain.max_pinned_share; },
          [](Py& self, double share) { self.plain.max_pinned_share = share; }, "float",
          "Pins hold at most this share of the device, and of both tiers together.")
      .property(
          "session_priority", [](const Py& self) { return self.plain.session_priority; },
          [](Py& self, int priority) { self.plain.session_priority = priority; }, "int",
          "The level of the prefixes of sessions in use.")
      .property(
          "tenants", [](const Py& self) { return self.plain.tenants; },
          [](Py& self, std::vector<TenantOptions> tenants) {
            self.plain.tenants = std::move(tenants);
          },
          "list[TenantOptions]", "A copy.", "collections.abc.Sequence[TenantOptions]")
      .property(
          "now", [](const Py& self) { return self.now; },
          [](Py& self, nb::object now) {
            if (!now.is_none() && PyCallable_Check(now.ptr()) == 0)
              raise_invalid(
                  fmt::format("now: expected something to call, got {}", class_name(now)));
            self.now = std::move(now);
          },
          "collections.abc.Callable[[], float] | None",
          "For durations: gives seconds; the steady clock unless given. Must not call back into "
          "the cache. While it raises, time stands still.")
      .constructible()
      .done()
      .def(
          "validate", [](const Py& self) { unwrap(self.plain.validate()); },
          "Raises InvalidArgument where it makes no sense.");
}

}  // namespace

PyRetentionOptions PyRetentionOptions::of(const RetentionOptions& options) {
  PyRetentionOptions result{.plain = options};
  result.plain.now = {};
  return result;
}

RetentionOptions PyRetentionOptions::resolve(Kept& kept) const {
  RetentionOptions options = plain;
  if (now.is_none()) return options;
  kept.push_back(now);
  options.now = PythonClock(now);
  return options;
}

SessionId SessionArg::id() const {
  if (object.is_none()) return {};
  PyOpenSession* open = nullptr;
  if (nb::try_cast(object, open)) return open->id();
  std::uint64_t value = 0;
  if (nb::try_cast(object, value, false) && value != 0) return {value};
  raise_invalid(fmt::format("session: expected what open_session() gave, or its id; got {}",
                            nb::cast<std::string>(nb::repr(object))));
}

void bind_retention(nb::module_& m) {
  bind_ranges(m);
  bind_pins(m);
  bind_sessions(m);
  bind_tenants(m);
  bind_options(m);
}

}  // namespace pando::python
