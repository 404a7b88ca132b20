// SPDX-License-Identifier: Apache-2.0
// Metrics: counting what the cache tells, and answering scrapes. prometheus-cpp throws; here that
// becomes an Error, and goes no further.
#include "pando/metrics.h"

#include <prometheus/check_names.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <exception>
#include <set>

#include "base/check.h"
#include "base/namespace_parts.h"
#include "observe/metrics_impl.h"

namespace pando {
namespace {

// From a quarter of a microsecond, a factor of four each: a match is some, a slow eviction many.
const prometheus::Histogram::BucketBoundaries kCallSeconds = {
    250e-9, 1e-6, 4e-6, 16e-6, 64e-6, 256e-6, 1e-3, 4e-3, 16e-3, 64e-3, 256e-3, 1};
const prometheus::Histogram::BucketBoundaries kRequestSeconds = {0.03, 0.1, 0.3, 1,  3,
                                                                 10,   30,  100, 300};
constexpr std::size_t kMaxTenantLength = 64;

std::string label(std::string_view text) {
  std::string out(text);
  std::replace(out.begin(), out.end(), ' ', '_');
  return out;
}

/// Printable, and not too long: it becomes a label.
std::string clean(std::string text) {
  if (text.size() > kMaxTenantLength) text.resize(kMaxTenantLength);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

std::string default_tenant(std::string_view ns) {
  if (ns.empty()) return "none";
  const std::optional<NamespaceParts> parts = parse_namespace(ns);
  if (!parts) return std::string(ns);
  return parts->tenant.empty() ? "none" : std::string(parts->tenant);
}

template <typename Enum, std::size_t N>
void add_each(prometheus::Family<prometheus::Counter>& family, const char* name,
              const Enum (&values)[N], std::array<prometheus::Counter*, N>& out) {
  for (std::size_t i = 0; i < N; ++i) {
    PANDO_CHECK(static_cast<std::size_t>(values[i]) == i, "value {} out of order", i);
    out[i] = &family.Add({{name, label(to_string(values[i]))}});
  }
}

void add(prometheus::Counter* counter, std::size_t n) {
  if (n > 0) counter->Increment(static_cast<double>(n));
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

prometheus::Labels labels_of(const MetricsOptions& options) {
  return {options.labels.begin(), options.labels.end()};
}

}  // namespace

Status MetricsOptions::validate() const {
  std::set<std::string_view> names;
  for (const auto& [name, value] : labels) {
    if (!prometheus::CheckLabelName(name) || name == "le")
      return make_error(ErrorCode::invalid_argument,
                        "metrics: \"{}\" cannot be the name of a label; expected letters, digits "
                        "and _",
                        name);
    if (!names.insert(name).second)
      return make_error(ErrorCode::invalid_argument, "metrics: the label \"{}\" is given twice",
                        name);
  }
  return {};
}

Metrics::Impl::Impl(const MetricsOptions& opts)
    : options(opts), make(*registry, labels_of(opts)), collected(make) {
  auto& times = make.histograms("pando_call_duration_seconds", "Time inside calls of the cache");
  for (std::size_t i = 0; i < kNumCacheCalls; ++i)
    durations[i] = &times.Add({{"call", std::string(to_string(CacheCall(i)))}}, kCallSeconds);
  errors = &make.counters("pando_call_errors_total", "Calls that returned an error");
  add_each(make.counters("pando_lookups_total", "Matches, by the reason why they were not longer"),
           "end", kMatchEnds, lookups);
  auto& hits = make.counters("pando_hit_tokens_total", "Tokens of prompts found, by tier");
  device_hits = &hits.Add({{"tier", "device"}});
  host_hits = &hits.Add({{"tier", "host"}});
  add_each(make.counters("pando_missed_tokens_total",
                         "Tokens of prompts not found, by the reason why the match ended"),
           "end", kMatchEnds, missed);

  auto& inserts = make.counters("pando_inserted_tokens_total", "Tokens given to the tree");
  new_tokens = &inserts.Add({{"kind", "new"}});
  duplicate_tokens = &inserts.Add({{"kind", "duplicate"}});
  revived_tokens = &inserts.Add({{"kind", "revived"}});

  auto& tokens = make.counters("pando_evicted_tokens_total", "Tokens evicted, by tier");
  auto& windows = make.counters("pando_evicted_window_tokens_total", "Window tokens evicted");
  auto& snapshots = make.counters("pando_evicted_snapshots_total", "Snapshots of state evicted");
  auto& nodes = make.counters("pando_evicted_nodes_total", "Nodes that left the tree by eviction");
  for (const auto& [tier, to] :
       {std::pair{"device", &device_evictions}, {"host", &host_evictions}}) {
    const prometheus::Labels of{{"tier", tier}};
    *to = {&tokens.Add(of), &windows.Add(of), &snapshots.Add(of), &nodes.Add(of)};
  }
  demoted_tokens = &make.counter("pando_demoted_tokens_total",
                                 "Tokens evicted from the device that the host still has");

  add_each(make.counters("pando_load_backs_total", "Calls of load_back by outcome"), "outcome",
           kLoadOutcomes, loads);
  loaded_tokens = &make.counter("pando_loaded_tokens_total", "Tokens loaded from host to device");
  add_each(make.counters("pando_prefetches_total", "Calls of prefetch by outcome"), "outcome",
           kPrefetchOutcomes, prefetches);
  prefetched_tokens =
      &make.counter("pando_prefetched_tokens_total", "Tokens that the host got from the store");

  auto& transfers = make.counters("pando_transfers_total", "Transfers that poll acknowledged");
  backups = &transfers.Add({{"kind", "backup"}});
  loads_done = &transfers.Add({{"kind", "load"}});
  stores = &transfers.Add({{"kind", "store"}});
  failures = &make.counter("pando_transfer_failures_total", "Transfers that failed");

  auto& finished = make.counters("pando_request_tokens_total", "Tokens of finished requests");
  prompt_tokens = &finished.Add({{"kind", "prompt"}});
  output_tokens = &finished.Add({{"kind", "output"}});
  request_duration =
      &make.histograms("pando_request_duration_seconds", "Time from start to finish of a request")
           .Add({}, kRequestSeconds);
  if (options.max_tenants == 0) return;
  tenant_lookups =
      &make.counters("pando_tenant_prompt_tokens_total", "Tokens of prompts looked up, by tenant");
  tenant_inserts =
      &make.counters("pando_tenant_inserted_tokens_total", "New tokens in the tree, by tenant");
}

// The table has at most max_tenants names and "other".
Metrics::Impl::Tenant& Metrics::Impl::tenant_of(std::string_view ns) {
  std::string name = clean(options.tenant_of ? options.tenant_of(ns) : default_tenant(ns));
  auto at = tenants.find(name);
  if (at == tenants.end() && tenants.size() >= options.max_tenants) {
    name = "other";
    at = tenants.find(name);
  }
  if (at != tenants.end()) return at->second;
  const auto lookup = [&](const char* result) {
    return &tenant_lookups->Add({{"tenant", name}, {"result", result}});
  };
  const Tenant made{lookup("device"), lookup("host"), lookup("missed"),
                    &tenant_inserts->Add({{"tenant", name}})};
  return tenants.emplace(name, made).first->second;
}

Metrics::Metrics(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Metrics::~Metrics() = default;

Result<std::unique_ptr<Metrics>> Metrics::create(const MetricsOptions& options) {
  if (Status s = options.validate(); !s) return s.error();
  return std::unique_ptr<Metrics>(new Metrics(std::make_unique<Impl>(options)));
}

// ---- Scraping ----------------------------------------------------------------------------------

Result<std::uint16_t> Metrics::serve(const MetricsAddress& address) {
  const std::lock_guard lock(impl_->serving);
  if (impl_->exposer)
    return make_error(ErrorCode::in_use, "metrics: served already, at port {}",
                      impl_->exposer->GetListeningPorts().front());
  const std::string where = fmt::format("{}:{}", address.host, address.port);
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(where, 1);
    exposer->RegisterCollectable(impl_->registry);
    const std::vector<int> ports = exposer->GetListeningPorts();
    impl_->exposer = std::move(exposer);
    return static_cast<std::uint16_t>(ports.at(0));
  } catch (const std::exception& e) {
    return make_error(ErrorCode::io_error, "metrics: cannot listen at {}: {}", where, e.what());
  }
}

std::string Metrics::text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry->Collect());
}

void Metrics::collect(const PrefixCache& cache) { impl_->collected.take(cache); }
void Metrics::collect(const BlockCache& cache) { impl_->collected.take(cache); }

// ---- Counting ----------------------------------------------------------------------------------

void Metrics::on_call(const CallInfo& info) {
  impl_->durations[static_cast<std::size_t>(info.call)]->Observe(seconds(info.took));
  if (!info.error) {
    if (info.call == CacheCall::reset) impl_->collected.note_reset();
    return;
  }
  prometheus::Counter*& errors = impl_->errors_of[{info.call, *info.error}];
  if (errors == nullptr)
    errors = &impl_->errors->Add(
        {{"call", std::string(to_string(info.call))}, {"error", label(to_string(*info.error))}});
  errors->Increment();
}

void Metrics::on_match(const Key& asked, const Match& found) {
  const auto end = static_cast<std::size_t>(found.end);
  const std::size_t cached = std::min(found.length + found.host_length, asked.tokens.size());
  const std::size_t missed = asked.tokens.size() - cached;
  impl_->lookups[end]->Increment();
  add(impl_->missed[end], missed);
  add(impl_->device_hits, found.length);
  add(impl_->host_hits, found.host_length);
  if (impl_->tenant_lookups == nullptr) return;
  const Impl::Tenant& tenant = impl_->tenant_of(asked.ns);
  add(tenant.device, found.length);
  add(tenant.host, found.host_length);
  add(tenant.missed, missed);
}

void Metrics::on_insert(const Key& key, const Inserted& inserted) {
  const std::size_t fresh = inserted.length - inserted.existing;
  add(impl_->new_tokens, fresh);
  add(impl_->duplicate_tokens, inserted.freed);
  add(impl_->revived_tokens, inserted.revived);
  if (impl_->tenant_inserts != nullptr) add(impl_->tenant_of(key.ns).inserted, fresh);
}

void Metrics::on_evict(Tier from, const EvictResult& evicted) {
  const Impl::Evictions& to =
      from == Tier::device ? impl_->device_evictions : impl_->host_evictions;
  add(to.tokens, evicted.tokens);
  add(to.window_tokens, evicted.window_tokens);
  add(to.snapshots, evicted.snapshots);
  add(to.nodes, evicted.nodes);
  add(impl_->demoted_tokens, evicted.demoted_tokens);
}

void Metrics::on_load_back(const LoadBack& loaded) {
  impl_->loads[static_cast<std::size_t>(loaded.outcome)]->Increment();
  add(impl_->loaded_tokens, loaded.tokens);
}

void Metrics::on_prefetch(const Key&, const Prefetch& prefetch) {
  impl_->prefetches[static_cast<std::size_t>(prefetch.outcome)]->Increment();
}

void Metrics::on_prefetched(std::size_t tokens) { add(impl_->prefetched_tokens, tokens); }

void Metrics::on_poll(const PollResult& result) {
  add(impl_->backups, result.backups);
  add(impl_->loads_done, result.loads);
  add(impl_->stores, result.stored);
  add(impl_->failures, result.failures);
}

void Metrics::on_finish(const FinishedRequest& request) {
  add(impl_->prompt_tokens, request.prompt_length);
  add(impl_->output_tokens, request.key.tokens.size() - request.prompt_length);
  impl_->request_duration->Observe(seconds(std::chrono::steady_clock::now() - request.started));
}

}  // namespace pando
