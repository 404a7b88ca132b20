// SPDX-License-Identifier: Apache-2.0
// replay(), plan() and why(): what the command of the same name does, as objects. Work happens
// without the GIL; every now and then it looks for signals, and tells a progress function.
#include "replay.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "arrays.h"
#include "events.h"
#include "replay/cache_arguments.h"
#include "replay/models.h"
#include "replay/plan_json.h"
#include "replay/replay_json.h"
#include "replay/replayer.h"
#include "replay/survey.h"
#include "replay/why.h"
#include "structs.h"
#include "threads.h"
#include "watched_trace.h"

namespace pando::python {

namespace {

std::unique_ptr<PeekedTrace> open_peeked(const PyTrace& trace) {
  std::unique_ptr<PeekedTrace> peeked =
      unwrap(run(true, [&]() -> Result<std::unique_ptr<PeekedTrace>> {
        Result<std::unique_ptr<Trace>> opened = trace.open();
        if (!opened) return opened.error();
        return PeekedTrace::create(std::move(*opened));
      }));
  if (peeked->empty())
    raise({ErrorCode::not_found,
           fmt::format("'{}' has no requests", trace.files.empty() ? "trace" : trace.files[0])});
  return peeked;
}

// ---- Options -----------------------------------------------------------------------------------

/// Tokens as an int, or a text such as "64GiB".
std::optional<Capacity> to_capacity(const nb::object& given, const char* name) {
  if (given.is_none()) return std::nullopt;
  std::size_t tokens = 0;
  if (nb::isinstance<nb::str>(given)) return unwrap(parse_capacity(nb::cast<std::string>(given)));
  if (!nb::isinstance<nb::bool_>(given) && nb::try_cast(given, tokens))
    return Capacity{.unit = Capacity::Unit::tokens,
                    .value = static_cast<double>(tokens),
                    .text = fmt::format("{}tok", tokens)};
  raise_invalid(
      fmt::format("{}: expected tokens as an int, or a size such as '64GiB', '9139blocks' "
                  "or '5%'; got {}",
                  name, nb::cast<std::string>(nb::repr(given))));
}

std::string to_model(const nb::object& given) {
  return given.is_none() ? std::string() : to_paths(given).at(0);
}

constexpr const char* kCacheOptions =
    "page_size: int | None = None, device: int | str = 1000000, host: int | str | None = None, "
    "store: int | str | None = None, store_at: str = 'memory', model: str | os.PathLike[str] | "
    "None "
    "= None, policy: str = 'lru', write_policy: str = 'write_through', window: int | None = None, "
    "window_share: float = 0.8, namespaces: str = 'none', bytes: bool = False, "
    "sessions: bool = False, attention: float | None = None, cost_aware: bool = False";
constexpr const char* kTraceArgument =
    "trace: Trace | str | os.PathLike[str] | collections.abc.Sequence[str | os.PathLike[str]]";
constexpr const char* kProgressOption =
    "progress: collections.abc.Callable[[float, int], object] | None = None";

/// Takes the options of a cache. Reads the trace once more where a capacity is a share of its
/// blocks.
ReplayOptions take_cache_options(NamedArguments& arguments, const PyTrace& trace,
                                 const PeekedTrace& peeked, std::string& model) {
  CacheArguments cache;
  arguments.take("page_size", cache.page);
  arguments.take("policy", cache.policy);
  arguments.take("store_at", cache.store_at);
  arguments.take("window", cache.window);
  arguments.take("window_share", cache.window_share);
  arguments.take("write_policy", cache.write_policy);
  arguments.take("namespaces", cache.namespaces);
  arguments.take("bytes", cache.bytes);
  arguments.take("sessions", cache.sessions);
  arguments.take("attention", cache.attention_tokens);
  arguments.take("cost_aware", cache.cost_aware);
  cache.model = model = to_model(arguments.take("model"));
  for (const auto& [name, capacity] :
       {std::pair{"device", &cache.device}, {"host", &cache.host}, {"store", &cache.store}})
    *capacity = to_capacity(arguments.take(name), name);
  std::optional<Survey> surveyed;
  if (needs_survey(cache)) {
    if (trace.once)
      raise_invalid(
          "a share of the different blocks, or sessions, need a trace that can be read twice; "
          "standard input cannot");
    const std::unique_ptr<PeekedTrace> again = open_peeked(trace);
    surveyed = watched(*again, nb::none(), [](Trace& t) { return survey(t); });
  }
  return unwrap(resolve(cache, peeked, std::move(surveyed)));
}

// ---- Replaying ---------------------------------------------------------------------------------

struct PyReplayResults {
  ReplayResults results;
  ReplayOptions options;
  ReplaySettings settings;
};

/// What the command would write.
nb::object from_json(nlohmann::ordered_json json) {
  json["version"] = PANDO_VERSION;
  const std::string text =
      json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return nb::module_::import_("json").attr("loads")(text);
}

PyReplayResults replay_in_python(nb::handle given_trace, const nb::kwargs& given) {
  const PyTrace trace = to_trace(given_trace);
  NamedArguments arguments("replay", given);
  const std::unique_ptr<PeekedTrace> peeked = open_peeked(trace);
  PyReplayResults out;
  out.options = take_cache_options(arguments, trace, *peeked, out.settings.model);
  std::string mode = "serial";
  arguments.take("mode", mode);
  if (mode != "serial" && mode != "timed")
    raise_invalid(fmt::format("mode: expected 'serial' or 'timed', got '{}'", mode));
  out.options.mode = mode == "timed" ? ReplayMode::timed : ReplayMode::serial;
  arguments.take("prefill_rate", out.options.service.prefill_tokens_per_s);
  arguments.take("decode_rate", out.options.service.decode_tokens_per_s);
  arguments.take("max_running", out.options.service.max_running);
  arguments.take("speed", out.options.service.speed);
  arguments.take("check_every", out.options.check_every);
  const nb::object progress = arguments.take("progress");
  arguments.finish();
  unwrap(out.options.validate());
  out.settings.files = trace.files;
  out.settings.format = peeked->first().tokens.empty() ? "hash_ids" : "tokens";
  out.results = watched(*peeked, progress, [&](Trace& t) { return replay(t, out.options); });
  out.settings.skipped_lines = peeked->skipped_lines();
  return out;
}

template <auto kMember>
auto per_tier(const PyReplayResults& r) {
  nb::dict tiers;
  for (const Tier tier : kTiers) {
    if (r.results.capacity_tokens[tier] == 0) continue;
    tiers[nb::str(to_string(tier).data(), to_string(tier).size())] = (r.results.*kMember)[tier];
  }
  return tiers;
}

template <typename Get>
nb::object column(const std::vector<SeriesPoint>& series, Get&& get) {
  std::vector<std::decay_t<decltype(get(series[0]))>> values;
  for (const SeriesPoint& point : series) values.push_back(get(point));
  return to_numpy(std::span<const typename decltype(values)::value_type>(values));
}

nb::dict series_of(const PyReplayResults& r) {
  const std::vector<SeriesPoint>& series = r.results.series;
  nb::dict columns;
  columns["end_request"] = column(series, [](const SeriesPoint& p) { return p.end_request; });
  columns["end_s"] = column(series, [](const SeriesPoint& p) { return p.end_s; });
  columns["requests"] = column(series, [](const SeriesPoint& p) { return p.requests; });
  for (const Tier tier : kTiers) {
    if (r.results.capacity_tokens[tier] == 0) continue;
    const std::string_view name = to_string(tier);
    columns[fmt::format("hit_ratio_{}", name).c_str()] =
        column(series, [&](const SeriesPoint& p) { return ratio(p.hit_blocks[tier], p.blocks); });
    columns[fmt::format("{}_tokens", name).c_str()] =
        column(series, [&](const SeriesPoint& p) { return p.held_tokens[tier]; });
    columns[fmt::format("evicted_{}_tokens", name).c_str()] =
        column(series, [&](const SeriesPoint& p) { return p.evicted_tokens[tier]; });
  }
  return columns;
}

void bind_results(nb::module_& m) {
  using Py = PyReplayResults;
  Class<Py> type(m, "ReplayResults");
  const auto number = [&](Member<Py> name, auto member) {
    type.def_prop_ro(name, [member](const Py& r) { return r.results.*member; });
  };
  number("requests", &ReplayResults::requests);
  number("truncated_requests", &ReplayResults::truncated_requests);
  number("blocks", &ReplayResults::blocks);
  number("unique_blocks", &ReplayResults::unique_blocks);
  number("unique_blocks_estimated", &ReplayResults::unique_blocks_estimated);
  number("input_tokens", &ReplayResults::input_tokens);
  number("output_tokens", &ReplayResults::output_tokens);
  number("evicted_nodes", &ReplayResults::evicted_nodes);
  number("backed_up_tokens", &ReplayResults::backed_up_tokens);
  number("loaded_tokens", &ReplayResults::loaded_tokens);
  number("stored_tokens", &ReplayResults::stored_tokens);
  number("fetched_tokens", &ReplayResults::fetched_tokens);
  number("failed_copies", &ReplayResults::failed_copies);
  number("verified_tokens", &ReplayResults::verified_tokens);
  number("index_bytes", &ReplayResults::index_bytes);
  number("num_nodes", &ReplayResults::num_nodes);
  number("wall_seconds", &ReplayResults::wall_seconds);
  number("last_finish_s", &ReplayResults::last_finish_s);
  type.def_prop_ro("hit_ratio_blocks", [](const Py& r) { return r.results.hit_ratio_blocks(); })
      .def_prop_ro("hit_ratio_tokens", [](const Py& r) { return r.results.hit_ratio_tokens(); })
      .def_prop_ro("prefill_tokens_saved", [](const Py& r) { return r.results.all_hit_tokens(); })
      .def_prop_ro(
          "misses",
          [](const Py& r) {
            nb::dict misses;
            for (const Miss miss : kMisses)
              misses[to_text(to_string(miss))] = r.results.missed_blocks[miss];
            return misses;
          },
          nb::sig("def misses(self) -> dict[str, int]"))
      .def_prop_ro("series", series_of,
                   nb::sig("def series(self) -> dict[str, numpy.typing.NDArray[typing.Any]]"))
      .def(
          "to_dict",
          [](const Py& r) { return from_json(to_json(r.results, r.options, r.settings)); },
          nb::sig("def to_dict(self) -> dict[str, typing.Any]"))
      .def("__repr__", [](const Py& r) {
        return fmt::format("ReplayResults(requests={}, hit_ratio_blocks={:.4f})",
                           r.results.requests, r.results.hit_ratio_blocks());
      });
  const auto tiers = [&](Member<Py> name, auto getter) {
    type.def_prop_ro(name, getter,
                     nb::sig(keep_text(fmt::format("def {}(self) -> dict[str, int]", name.name))));
  };
  tiers("hit_blocks", &per_tier<&ReplayResults::hit_blocks>);
  tiers("hit_tokens", &per_tier<&ReplayResults::hit_tokens>);
  tiers("capacity_tokens", &per_tier<&ReplayResults::capacity_tokens>);
  tiers("peak_tokens", &per_tier<&ReplayResults::peak_tokens>);
  tiers("evicted_tokens", &per_tier<&ReplayResults::evicted_tokens>);
}

void bind_replaying(nb::module_& m) {
  bind_results(m);
  def(m, "replay", &replay_in_python, nb::arg("trace"), nb::arg("options"),
      nb::sig(keep_text(fmt::format(
          "def replay({}, *, {}, mode: str = 'serial', prefill_rate: float = 20000, decode_rate: "
          "float = 50, max_running: int = 64, speed: float = 1, check_every: int = 0, {}) -> "
          "ReplayResults",
          kTraceArgument, kCacheOptions, kProgressOption))));
}

// ---- Planning ----------------------------------------------------------------------------------

struct PyPlan {
  Plan plan;
  PlanSettings settings;
};

nb::dict plan_to_dict(const PyPlan& p) {
  return nb::cast<nb::dict>(from_json(to_json(p.plan, p.settings)));
}

PyPlan plan_in_python(nb::handle given_trace, const nb::kwargs& given) {
  const PyTrace trace = to_trace(given_trace);
  NamedArguments arguments("plan", given);
  const std::unique_ptr<PeekedTrace> peeked = open_peeked(trace);
  PyPlan out;
  out.settings.files = trace.files;
  out.settings.model = to_model(arguments.take("model"));
  if (!out.settings.model.empty())
    out.settings.token_bytes = unwrap(find_model(out.settings.model)).geometry.token_bytes();
  PlanOptions options;
  const nb::object policies = arguments.take("policy");
  if (nb::isinstance<nb::str>(policies))
    options.policies.push_back(nb::cast<std::string>(policies));
  else if (!policies.is_none())
    options.policies = nb::cast<std::vector<std::string>>(policies);
  arguments.take("max_blocks", options.max_blocks);
  arguments.take("num_threads", options.num_threads);
  const Measures measures{.block_tokens = peeked->block_tokens(),
                          .token_bytes = out.settings.token_bytes};
  const nb::object at = arguments.take("at");
  if (!at.is_none()) {
    for (const nb::handle size : at) {
      const std::optional<Capacity> capacity = to_capacity(nb::borrow(size), "at");
      if (!capacity || capacity->unit == Capacity::Unit::share)
        raise_invalid("at: expected tokens, bytes or blocks; shares are read off the curves");
      options.at_blocks.push_back(unwrap(to_tokens(*capacity, measures)) / measures.block_tokens);
    }
  }
  const nb::object progress = arguments.take("progress");
  arguments.finish();
  out.plan = watched(*peeked, progress, [&](Trace& t) { return make_plan(t, options); });
  out.settings.skipped_lines = peeked->skipped_lines();
  return out;
}

void bind_plan_types(nb::module_& m) {
  Class<PlanCurve>(m, "PlanCurve")
      .def_ro("policy", &PlanCurve::policy)
      .def_ro("method", &PlanCurve::method)
      .def_prop_ro(
          "capacity_blocks",
          [](const PlanCurve& c) {
            std::vector<std::size_t> values;
            for (const PlanPoint& point : c.points) values.push_back(point.capacity_blocks);
            return to_numpy(std::span<const std::size_t>(values));
          },
          nb::sig("def capacity_blocks(self) -> numpy.typing.NDArray[numpy.uint64]"))
      .def_prop_ro(
          "hit_ratio",
          [](const PlanCurve& c) {
            std::vector<double> values;
            for (const PlanPoint& point : c.points) values.push_back(point.hit_ratio);
            return to_numpy(std::span<const double>(values));
          },
          nb::sig("def hit_ratio(self) -> numpy.typing.NDArray[numpy.float64]"))
      .def("at", &PlanCurve::at, nb::arg("capacity_blocks"))
      .def("__repr__", [](const PlanCurve& c) {
        return fmt::format("PlanCurve(policy='{}', {} points)", c.policy, c.points.size());
      });
  using Py = PyPlan;
  Class<Py> type(m, "Plan");
  const auto number = [&](Member<Py> name, auto member) {
    type.def_prop_ro(name, [member](const Py& p) { return p.plan.*member; });
  };
  number("requests", &Plan::requests);
  number("blocks", &Plan::blocks);
  number("unique_blocks", &Plan::unique_blocks);
  number("block_tokens", &Plan::block_tokens);
  number("infinite_hit_ratio", &Plan::infinite_hit_ratio);
  number("sample_rate", &Plan::sample_rate);
  number("sample_error", &Plan::sample_error);
  number("knee_blocks", &Plan::knee_blocks);
  number("curves", &Plan::curves);
  type.def(
          "curve",
          [](const Py& p, const std::string& policy) {
            for (const PlanCurve& curve : p.plan.curves)
              if (curve.policy == policy) return curve;
            raise({ErrorCode::not_found, fmt::format("no curve of '{}'", policy)});
          },
          nb::arg("policy"))
      .def_prop_ro("token_bytes", [](const Py& p) { return p.settings.token_bytes; })
      .def("to_dict", plan_to_dict, nb::sig("def to_dict(self) -> dict[str, typing.Any]"))
      .def("__repr__", [](const Py& p) {
        return fmt::format("Plan(requests={}, unique_blocks={}, knee_blocks={})", p.plan.requests,
                           p.plan.unique_blocks, p.plan.knee_blocks);
      });
}

void bind_planning(nb::module_& m) {
  bind_plan_types(m);
  def(m, "plan", &plan_in_python, nb::arg("trace"), nb::arg("options"),
      nb::sig(keep_text(fmt::format(
          "def plan({}, *, policy: str | collections.abc.Sequence[str] | None = None, at: "
          "collections.abc.Iterable[int | str] | None = None, model: str | os.PathLike[str] | "
          "None = None, max_blocks: int = 4194304, num_threads: int = 1, {}) -> Plan",
          kTraceArgument, kProgressOption))));
}

// ---- Explaining --------------------------------------------------------------------------------

RequestStory why_in_python(nb::handle given_trace, std::uint64_t request, const nb::kwargs& given) {
  const PyTrace trace = to_trace(given_trace);
  NamedArguments arguments("why", given);
  const std::unique_ptr<PeekedTrace> peeked = open_peeked(trace);
  std::string model;
  ReplayOptions options = take_cache_options(arguments, trace, *peeked, model);
  options.stack.remember_evicted = 4'000'000;
  arguments.take("remember", options.stack.remember_evicted);
  const nb::object progress = arguments.take("progress");
  arguments.finish();
  return watched(*peeked, progress, [&](Trace& t) { return explain_request(t, options, request); });
}

void bind_explaining(nb::module_& m) {
  bind_struct<BlockStory>(m, "BlockStory")
      .field("begin", &BlockStory::from, "int")
      .field("end", &BlockStory::to, "int")
      .field("finding", &BlockStory::finding, "Finding")
      .field("from_store", &BlockStory::from_store, "bool")
      .field("beyond_device", &BlockStory::beyond_device, "bool")
      .field("eviction", &BlockStory::eviction, "Eviction | None")
      .property(
          "ns", [](const BlockStory& s) { return to_bytes(s.ns); },
          [](BlockStory& s, nb::handle ns) { s.ns = from_text(ns, "ns"); }, "bytes")
      .done();
  bind_struct<RequestStory>(m, "RequestStory")
      .field("request", &RequestStory::request, "int")
      .field("arrival_s", &RequestStory::arrival_s, "float")
      .property(
          "session", [](const RequestStory& s) { return to_text(s.session); },
          [](RequestStory& s, nb::handle text) { s.session = from_text(text, "session"); }, "str")
      .field("input_length", &RequestStory::input_length, "int")
      .field("num_blocks", &RequestStory::num_blocks, "int")
      .field("blocks", &RequestStory::blocks, "list[BlockStory]")
      .field("tail_tokens", &RequestStory::tail_tokens, "int")
      .field("forgetful", &RequestStory::forgetful, "bool")
      .done();
  def(m, "why", &why_in_python, nb::arg("trace"), nb::arg("request"), nb::arg("options"),
      nb::sig(keep_text(fmt::format(
          "def why({}, request: int, *, {}, remember: int = 4000000, {}) -> RequestStory",
          kTraceArgument, kCacheOptions, kProgressOption))));
}

}  // namespace

void bind_replay(nb::module_& m) {
  bind_traces(m);
  bind_replaying(m);
  bind_planning(m);
  bind_explaining(m);
}

}  // namespace pando::python
