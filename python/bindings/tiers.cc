// SPDX-License-Identifier: Apache-2.0
// Options and results of the tiers below the device. Options that point to pools and copiers hold
// references here.
#include "tiers.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>

#include <chrono>

#include "buffers.h"
#include "interpreter.h"
#include "pools.h"
#include "stores.h"
#include "structs.h"

namespace pando::python {

namespace {

/// TierPools with references.
struct PyTierPools {
  nb::object device = nb::none();
  nb::object host = nb::none();
};

/// HostTierOptions with references.
struct PyHostTier {
  nb::object full = nb::cast(PyTierPools());
  nb::object window = nb::cast(PyTierPools());
  nb::object state = nb::cast(PyTierPools());
  nb::object copier = nb::none();
  WritePolicy write_policy = HostTierOptions{}.write_policy;
  std::size_t load_back_threshold = HostTierOptions{}.load_back_threshold;
  bool reclaim_mirrors_first = HostTierOptions{}.reclaim_mirrors_first;
  std::optional<CostGateOptions> cost_gate;
  std::size_t backup_stream = HostTierOptions{}.backup_stream;
  std::size_t load_stream = HostTierOptions{}.load_stream;
};

template <typename T>
nb::object require(nb::handle object, const char* what, const char* type) {
  if (!object.is_none() && !nb::isinstance<T>(object))
    raise_invalid(fmt::format("{}: expected a {} or None, got {}", what, type, class_name(object)));
  return nb::borrow(object);
}

/// Of an enum's value or its name.
template <typename Enum, Result<Enum> (*parse)(std::string_view)>
Enum to_policy_value(nb::handle value, const char* what) {
  Enum known;
  if (nb::try_cast(value, known, false)) return known;
  std::string name;
  if (nb::try_cast(value, name)) return unwrap(parse(name));
  raise_invalid(fmt::format("{}: expected a policy or its name, got {}", what, class_name(value)));
}

void bind_policies(nb::module_& m) {
  nb::enum_<WritePolicy>(m, "WritePolicy",
                         "When a node gets its host copy. Hits are inserts that pass through it.")
      .value("write_through", WritePolicy::write_through, "At the first hit.")
      .value("write_through_selective", WritePolicy::write_through_selective, "At the second.")
      .value("write_back", WritePolicy::write_back, "When it is evicted from the device.");
  m.def(
      "parse_write_policy", [](std::string_view name) { return unwrap(parse_write_policy(name)); },
      nb::arg("name"),
      "The policy of this name.\n\n"
      ">>> pando.parse_write_policy('write_back')\n"
      "WritePolicy.write_back\n");
  nb::enum_<PrefetchPolicy>(m, "PrefetchPolicy",
                            "When a request that has pages on their way from the store may go on.")
      .value("best_effort", PrefetchPolicy::best_effort,
             "At any time: what has arrived by then is kept.")
      .value("wait_complete", PrefetchPolicy::wait_complete, "When all has arrived, or will not.")
      .value("timeout", PrefetchPolicy::timeout,
             "Then, or after a time that grows with the number of pages.");
  m.def(
      "parse_prefetch_policy",
      [](std::string_view name) { return unwrap(parse_prefetch_policy(name)); }, nb::arg("name"),
      "The policy of this name.\n\n"
      ">>> pando.parse_prefetch_policy('timeout')\n"
      "PrefetchPolicy.timeout\n");
  nb::enum_<LoadOutcome>(m, "LoadOutcome", "What became of a load back.")
      .value("loaded", LoadOutcome::loaded, "On its way: the pools' gates are set.")
      .value("nothing_to_load", LoadOutcome::nothing_to_load,
             "All that is cached is on the device.")
      .value("below_threshold", LoadOutcome::below_threshold)
      .value("over_quota", LoadOutcome::over_quota)
      .value("recompute", LoadOutcome::recompute, "By the cost gate: computing it is faster.")
      .value("no_room", LoadOutcome::no_room, "The device is full of what is in use.");
  nb::enum_<PrefetchOutcome>(m, "PrefetchOutcome", "What became of a prefetch.")
      .value("started", PrefetchOutcome::started)
      .value("no_store", PrefetchOutcome::no_store)
      .value("nothing_to_fetch", PrefetchOutcome::nothing_to_fetch,
             "All whole pages of the key are in the tree.")
      .value("below_threshold", PrefetchOutcome::below_threshold)
      .value("rate_limited", PrefetchOutcome::rate_limited, "Too much is being fetched already.");
}

void bind_host_tier(nb::module_& m) {
  bind_struct<PyTierPools>(m, "TierPools", "The bytes of one component on both tiers.")
      .property(
          "device", [](const PyTierPools& self) { return self.device; },
          [](PyTierPools& self, nb::handle pool) {
            self.device = require<PyKvPool>(pool, "device", "KvPool");
          },
          "KvPool | None")
      .property(
          "host", [](const PyTierPools& self) { return self.host; },
          [](PyTierPools& self, nb::handle pool) {
            self.host = require<PyHostPool>(pool, "host", "HostPool");
          },
          "HostPool | None")
      .constructible()
      .done();
  bind_struct<CostGateOptions>(m, "CostGateOptions",
                               "Whether loading is worth it, by what loading and computing have "
                               "been measured to take.")
      .field("max_ratio", &CostGateOptions::max_ratio, "float",
             "Loads take at most so many times as long as computing.")
      .field("probe_every", &CostGateOptions::probe_every, "int",
             "One in so many is loaded without asking, to measure again. 0: none.")
      .constructible()
      .done();
  const auto pools = [](nb::object PyHostTier::*member, const char* name) {
    return [member, name](PyHostTier& self, nb::handle pools) {
      nb::object given = require<PyTierPools>(pools, name, "TierPools");
      self.*member = given.is_none() ? nb::cast(PyTierPools()) : std::move(given);
    };
  };
  bind_struct<PyHostTier>(
      m, "HostTierOptions",
      "Host memory behind the device, as a cache is told of it. Keeps the pools and the "
      "copier.\n\n"
      ">>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=4)\n"
      ">>> device = pando.KvPool(geometry, capacity_tokens=64)\n"
      ">>> host = pando.HostPool(device, ratio=2.0, keep_free_bytes=0)\n"
      ">>> tier = pando.HostTierOptions(full=pando.TierPools(device=device, host=host),\n"
      "...                              copier=pando.make_cpu_copier(),\n"
      "...                              write_policy='write_through')\n"
      ">>> tier.write_policy, tier.full.host is host\n"
      "(WritePolicy.write_through, True)\n")
      .property(
          "full", [](const PyHostTier& self) { return self.full; },
          pools(&PyHostTier::full, "full"), "TierPools")
      .property(
          "window", [](const PyHostTier& self) { return self.window; },
          pools(&PyHostTier::window, "window"), "TierPools",
          "With a window component: of window slots.", "TierPools | None")
      .property(
          "state", [](const PyHostTier& self) { return self.state; },
          pools(&PyHostTier::state, "state"), "TierPools",
          "With a state component: row_of() of state slots.", "TierPools | None")
      .property(
          "copier", [](const PyHostTier& self) { return self.copier; },
          [](PyHostTier& self, nb::handle copier) {
            self.copier = require<PyCopier>(copier, "copier", "Copier");
          },
          "Copier | None")
      .property(
          "write_policy", [](const PyHostTier& self) { return self.write_policy; },
          [](PyHostTier& self, nb::handle policy) {
            self.write_policy =
                to_policy_value<WritePolicy, &parse_write_policy>(policy, "write_policy");
          },
          "WritePolicy", "May be set by name.", "WritePolicy | str")
      .field("load_back_threshold", &PyHostTier::load_back_threshold, "int",
             "Fewer tokens are sooner computed than loaded back.")
      .field("reclaim_mirrors_first", &PyHostTier::reclaim_mirrors_first, "bool",
             "When the host is full, first give up copies of what is on the device anyway.")
      .field("cost_gate", &PyHostTier::cost_gate, "CostGateOptions | None",
             "Turns down loads and fetches that take longer than computing; needs "
             "report_prefill().")
      .field("backup_stream", &PyHostTier::backup_stream, "int", "Of the copier.")
      .field("load_stream", &PyHostTier::load_stream, "int")
      .constructible()
      .done();
}

void bind_loads(nb::module_& m) {
  bind_struct<LoadBackOptions>(m, "LoadBackOptions", "How to load back.")
      .field("quota_tokens", &LoadBackOptions::quota_tokens, "int | None",
             "At most so many device tokens, evicted ones included; else nothing is loaded.")
      .field("order", &LoadBackOptions::order, "LoadOrder")
      .constructible()
      .done();
  bind_struct<LoadBack>(m, "LoadBack", "What a load back does.")
      .field("outcome", &LoadBack::outcome, "LoadOutcome")
      .field("tokens", &LoadBack::tokens, "int", "That the device has more.")
      .done();
  bind_struct<Prefetch>(m, "Prefetch", "A prefetch that was asked for.")
      .field("outcome", &Prefetch::outcome, "PrefetchOutcome")
      .property(
          "id",
          [](const Prefetch& self) {
            return self.id ? std::optional(self.id.value) : std::nullopt;
          },
          [](Prefetch& self, std::optional<std::uint64_t> id) { self.id.value = id.value_or(0); },
          "int | None", "Only if started.")
      .done();
  bind_struct<PollResult>(m, "PollResult", "What a poll() has applied.")
      .field("backups", &PollResult::backups, "int", "Copies to the host acknowledged.")
      .field("loads", &PollResult::loads, "int", "Loads acknowledged.")
      .field("stored", &PollResult::stored, "int", "Nodes whose pages the store has been given.")
      .field("failures", &PollResult::failures, "int")
      .field("idle", &PollResult::idle, "bool", "Nothing is under way any more.")
      .field("ranks_lost", &PollResult::ranks_lost, "bool",
             "The ranks could not reach each other: the cache must be given up on every rank.")
      .done();
  bind_struct<UnderWay>(m, "UnderWay",
                        "What has been started between tiers and not yet been applied by poll().")
      .field("backups", &UnderWay::backups, "int", "Copies from the device to the host.")
      .field("loads", &UnderWay::loads, "int", "Copies from the host to the device.")
      .field("puts", &UnderWay::puts, "int", "Nodes whose pages go to the store.")
      .field("fetches", &UnderWay::fetches, "int",
             "Prefetches not ended, and ended ones that the store still writes for.")
      .done();
}

void bind_tier_stats(nb::module_& m) {
  using T = TierStats;
  bind_struct<T>(m, "TierStats", "Totals since creation or reset(), in tokens unless said.")
      .field("backed_up_tokens", &T::backed_up_tokens, "int", "Copied to the host.")
      .field("loaded_tokens", &T::loaded_tokens, "int", "Copied back.")
      .field("demoted_tokens", &T::demoted_tokens, "int",
             "Evicted from the device, still on the host.")
      .field("host_evicted_tokens", &T::host_evicted_tokens, "int")
      .field("refused_backups", &T::refused_backups, "int", "Nodes for which the host had no room.")
      .field("failed_backups", &T::failed_backups, "int", "Copies that failed.")
      .field("failed_loads", &T::failed_loads, "int")
      .field("recomputed_tokens", &T::recomputed_tokens, "int", "Inserted over a host copy.")
      .field("stored_tokens", &T::stored_tokens, "int", "Given to the store.")
      .field("failed_puts", &T::failed_puts, "int", "Pages that the store did not take.")
      .field("prefetches", &T::prefetches, "int", "Started.")
      .field("prefetched_tokens", &T::prefetched_tokens, "int",
             "That the host has got from the store.")
      .field("prefetch_hit_tokens", &T::prefetch_hit_tokens, "int", "That the store said it had.")
      .field("revoked_prefetches", &T::revoked_prefetches, "int",
             "Nothing worth fetching, or no room on the host.")
      .field("gated_loads", &T::gated_loads, "int", "Calls that the cost gate turned down.")
      .field("gated_prefetches", &T::gated_prefetches, "int", "Of those revoked, by the cost gate.")
      .field("gate_probes", &T::gate_probes, "int", "Let pass to measure again.")
      .field("load_bytes_per_second", &T::load_bytes_per_second, "float", "Host to device.")
      .field("fetch_bytes_per_second", &T::fetch_bytes_per_second, "float", "Store to host.")
      .field("prefill_tokens_per_second", &T::prefill_tokens_per_second, "float")
      .done();
}

using Clock = std::chrono::steady_clock;

/// A clock of Python's; where it fails, the steady one.
std::function<Clock::time_point()> to_clock(nb::handle now) {
  if (now.is_none()) return {};
  if (PyCallable_Check(now.ptr()) == 0)
    raise_invalid(fmt::format("now: expected something to call, got {}", class_name(now)));
  return [held = keep_until_exit(nb::borrow(now))]() -> Clock::time_point {
    if (const PythonEntry entry; entry) {
      try {
        const std::chrono::duration<double> seconds(nb::cast<double>((*held)()));
        return Clock::time_point(std::chrono::duration_cast<Clock::duration>(seconds));
      } catch (nb::python_error& error) {
        (void)contain(error, "StorageOptions.now");
      } catch (const std::exception&) {  // no number
      }
    }
    return Clock::now();
  };
}

/// As text that Config::parse() reads.
std::string options_text(nb::handle options) {
  std::string text;
  if (nb::try_cast(options, text)) return text;
  return nb::cast<std::string>(
      nb::module_::import_("json").attr("dumps")(to_dict(to_config(options))));
}

void bind_storage(nb::module_& m) {
  bind_struct<StoreOptions>(m, "StoreOptions", "Queues and threads of a Store.")
      .field("num_read_threads", &StoreOptions::num_read_threads, "int", "For exists and get.")
      .field("num_write_threads", &StoreOptions::num_write_threads, "int")
      .field("max_queued_pages", &StoreOptions::max_queued_pages, "int",
             "In each of the two queues; a call beyond is refused.")
      .property(
          "timeout", [](const StoreOptions& self) { return to_seconds(self.timeout); },
          [](StoreOptions& self, double seconds) {
            self.timeout = to_milliseconds(seconds, "timeout");
          },
          "float", "In seconds, of calls that give none.")
      .constructible()
      .done();
  bind_struct<PrefetchOptions>(m, "PrefetchOptions", "How prefetches behave.")
      .property(
          "policy", [](const PrefetchOptions& self) { return self.policy; },
          [](PrefetchOptions& self, nb::handle policy) {
            self.policy = to_policy_value<PrefetchPolicy, &parse_prefetch_policy>(policy, "policy");
          },
          "PrefetchPolicy", "May be set by name.", "PrefetchPolicy | str")
      .field("threshold", &PrefetchOptions::threshold, "int", "Tokens; fewer are sooner computed.")
      .field("timeout_base", &PrefetchOptions::timeout_base, "float", "Seconds.")
      .field("timeout_per_ki_token", &PrefetchOptions::timeout_per_ki_token, "float",
             "Seconds more for every 1024 tokens.")
      .field("max_tokens", &PrefetchOptions::max_tokens, "int | None",
             "Host tokens that all prefetches together may occupy.")
      .constructible()
      .done()
      .def(
          "validate", [](const PrefetchOptions& self) { unwrap(self.validate()); },
          "Raises InvalidArgument where it makes no sense.");
  bind_struct<StorageOptions>(
      m, "StorageOptions",
      "What attach_storage() is told. `options` are those of the store and of prefetches: a dict, "
      "or text as Config.parse() reads it.\n\n"
      ">>> storage = pando.StorageOptions(backend='file', options={'directory': '/tmp/kv'})\n"
      ">>> storage.options\n"
      "'{\"directory\": \"/tmp/kv\"}'\n")
      .field("backend", &StorageOptions::backend, "str", "The name of a registered store.")
      .property(
          "options", [](const StorageOptions& self) { return self.options; },
          [](StorageOptions& self, nb::handle options) { self.options = options_text(options); },
          "str", "", "str | dict[str, typing.Any] | Config")
      .field("scope", &StorageOptions::scope, "StoreScope", "Whose pages they are.")
      .field("queues", &StorageOptions::queues, "StoreOptions")
      .field("prefetch_policy", &StorageOptions::prefetch_policy, "str | None")
      .field("write_policy", &StorageOptions::write_policy, "str | None")
      .property(
          "now",
          [](const StorageOptions& self) -> nb::object {
            if (!self.now) return nb::none();
            return nb::cpp_function([now = self.now] {
              return std::chrono::duration<double>(now().time_since_epoch()).count();
            });
          },
          [](StorageOptions& self, nb::handle now) { self.now = to_clock(now); }, "typing.Any",
          "For timeouts: gives seconds; the steady clock unless given.")
      .constructible()
      .done();
}

}  // namespace

TierPools to_tier_pools(nb::handle pools, Kept& kept, const SharedGuard& guard) {
  if (pools.is_none()) return {};
  if (!nb::isinstance<PyTierPools>(pools))
    raise_invalid(fmt::format("pools: expected TierPools or None, got {}", class_name(pools)));
  const auto& given = nb::cast<const PyTierPools&>(pools);
  TierPools out;
  if (!given.device.is_none()) {
    kept.push_back(given.device);
    out.device = nb::cast<PyKvPool&>(given.device).pool.get();
  }
  if (!given.host.is_none()) {
    auto& host = nb::cast<PyHostPool&>(given.host);
    host.join(guard);
    kept.push_back(given.host);
    out.host = host.object.get();
  }
  return out;
}

Copier* to_copier(nb::handle copier, Kept& kept) {
  if (copier.is_none()) return nullptr;
  if (!nb::isinstance<PyCopier>(copier))
    raise_invalid(fmt::format("copier: expected a Copier or None, got {}", class_name(copier)));
  kept.push_back(nb::borrow(copier));
  return nb::cast<PyCopier&>(copier).copier.get();
}

HostTierOptions to_host_tier(nb::handle options, Kept& kept, const SharedGuard& guard) {
  if (!nb::isinstance<PyHostTier>(options))
    raise_invalid(fmt::format("host_tier: expected HostTierOptions, got {}", class_name(options)));
  const auto& given = nb::cast<const PyHostTier&>(options);
  return {.full = to_tier_pools(given.full, kept, guard),
          .window = to_tier_pools(given.window, kept, guard),
          .state = to_tier_pools(given.state, kept, guard),
          .copier = to_copier(given.copier, kept),
          .write_policy = given.write_policy,
          .load_back_threshold = given.load_back_threshold,
          .reclaim_mirrors_first = given.reclaim_mirrors_first,
          .cost_gate = given.cost_gate,
          .backup_stream = given.backup_stream,
          .load_stream = given.load_stream};
}

void bind_tiers(nb::module_& m) {
  bind_policies(m);
  bind_host_tier(m);
  bind_loads(m);
  bind_tier_stats(m);
  bind_storage(m);
}

}  // namespace pando::python
