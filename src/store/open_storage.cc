// SPDX-License-Identifier: Apache-2.0
// Reads what attach_storage is told; see the header.
#include "store/open_storage.h"

#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/named.h"
#include "pando/config.h"
#include "store/option_reader.h"

namespace pando {
namespace {

constexpr Named<PrefetchPolicy> kPrefetchPolicies[] = {
    {PrefetchPolicy::best_effort, "best_effort"},
    {PrefetchPolicy::wait_complete, "wait_complete"},
    {PrefetchPolicy::timeout, "timeout"},
};

constexpr std::string_view kPrefetchOptions[] = {"prefetch_threshold", "prefetch_timeout_base",
                                                 "prefetch_timeout_per_ki_token",
                                                 "prefetch_max_tokens"};

Result<PrefetchOptions> parse_prefetch(const Config& config) {
  PrefetchOptions options;
  std::size_t max_tokens = 0;
  OptionReader reader(config, "prefetch");
  reader.read_count("prefetch_threshold", options.threshold);
  reader.read_count("prefetch_max_tokens", max_tokens);
  reader.read("prefetch_timeout_base", options.timeout_base);
  reader.read("prefetch_timeout_per_ki_token", options.timeout_per_ki_token);
  if (Status s = reader.finish(); !s) return s.error();
  if (config.has("prefetch_max_tokens")) options.max_tokens = max_tokens;
  if (Status s = options.validate(); !s) return s.error();
  return options;
}

}  // namespace

std::string_view to_string(PrefetchPolicy policy) { return name_of(kPrefetchPolicies, policy); }

Result<PrefetchPolicy> parse_prefetch_policy(std::string_view name) {
  if (const auto known = value_of(kPrefetchPolicies, name)) return *known;
  return make_error(ErrorCode::invalid_argument,
                    "prefetch policy \"{}\": expected best_effort, wait_complete or timeout", name);
}

std::string_view to_string(PrefetchOutcome outcome) {
  switch (outcome) {
    case PrefetchOutcome::started:
      return "started";
    case PrefetchOutcome::no_store:
      return "no store";
    case PrefetchOutcome::nothing_to_fetch:
      return "nothing to fetch";
    case PrefetchOutcome::below_threshold:
      return "below threshold";
    case PrefetchOutcome::rate_limited:
      return "rate limited";
  }
  return "unknown";
}

Status PrefetchOptions::validate() const {
  for (const auto& [name, value] : {std::pair{"prefetch_timeout_base", timeout_base},
                                    {"prefetch_timeout_per_ki_token", timeout_per_ki_token}}) {
    if (!std::isfinite(value) || value < 0)
      return make_error(ErrorCode::invalid_argument, "{} is {}; expected seconds, 0 or more", name,
                        value);
  }
  return {};
}

Result<OpenedStorage> open_storage(const StorageOptions& options) {
  if (Status s = options.scope.validate(); !s) return s.error();
  Result<Config> config = Config::parse(options.options);
  if (!config) return config.error();
  const Result<PrefetchOptions> prefetch = parse_prefetch(config->extract(kPrefetchOptions));
  if (!prefetch) return prefetch.error();
  Result<std::unique_ptr<StoreBackend>> backend = make_store_backend(options.backend, *config);
  if (!backend) return backend.error();
  Result<std::unique_ptr<Store>> store = Store::open(std::move(*backend), options.queues);
  if (!store) return store.error();
  OpenedStorage opened{
      options.backend,  options.scope, *prefetch, options.now, options.queues.max_queued_pages,
      std::move(*store)};
  if (!opened.now) opened.now = [] { return std::chrono::steady_clock::now(); };
  return opened;
}

bool OpenedStorage::is_late(std::chrono::steady_clock::time_point since,
                            std::size_t num_tokens) const {
  if (prefetch.policy != PrefetchPolicy::timeout) return false;
  const double limit = prefetch.timeout_base +
                       static_cast<double>(num_tokens) / 1024 * prefetch.timeout_per_ki_token;
  return std::chrono::duration<double>(now() - since).count() > limit;
}

std::size_t default_prefetch_tokens(const TierPools& pools) {
  const std::size_t page_size = pools.device->geometry().page_size;
  const std::size_t host = pools.host->num_pages() * page_size;
  const std::size_t device = pools.device->num_pages() * page_size;
  return host > device ? (host - device) / 5 * 4 : host / 2;
}

Result<StoragePolicies> parse_storage_policies(const StorageOptions& options) {
  StoragePolicies policies;
  if (options.prefetch_policy) {
    Result<PrefetchPolicy> parsed = parse_prefetch_policy(*options.prefetch_policy);
    if (!parsed) return parsed.error();
    policies.prefetch = *parsed;
  }
  if (options.write_policy) {
    Result<WritePolicy> parsed = parse_write_policy(*options.write_policy);
    if (!parsed) return parsed.error();
    policies.write = *parsed;
  }
  return policies;
}

}  // namespace pando
