// SPDX-License-Identifier: Apache-2.0
// The calls of PrefixCache on a store: attach, detach, clear, prefetch. Attaching validates
// everything first and changes something last.
#include <cmath>

#include "base/check.h"
#include "cache/prefix_cache_impl.h"
#include "pando/cache.h"
#include "pando/config.h"
#include "store/option_reader.h"

namespace pando {
namespace {

constexpr std::pair<PrefetchPolicy, std::string_view> kPrefetchPolicies[] = {
    {PrefetchPolicy::best_effort, "best_effort"},
    {PrefetchPolicy::wait_complete, "wait_complete"},
    {PrefetchPolicy::timeout, "timeout"},
};

constexpr std::string_view kPrefetchOptions[] = {"prefetch_threshold", "prefetch_timeout_base",
                                                 "prefetch_timeout_per_ki_token",
                                                 "prefetch_max_tokens"};

/// The names that were given, as policies.
struct Policies {
  std::optional<PrefetchPolicy> prefetch;
  std::optional<WritePolicy> write;
};

Result<Policies> parse_policies(const StorageOptions& options) {
  Policies policies;
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

struct Opened {
  std::unique_ptr<Store> store;
  StorageTier::Settings settings;
};

Result<Opened> open_store(const StorageOptions& options, const TierPools& pools) {
  if (Status s = options.scope.validate(); !s) return s.error();
  Result<Config> config = Config::parse(options.options);
  if (!config) return config.error();
  const Result<PrefetchOptions> prefetch = parse_prefetch(config->extract(kPrefetchOptions));
  if (!prefetch) return prefetch.error();
  Result<std::unique_ptr<StoreBackend>> backend = make_store_backend(options.backend, *config);
  if (!backend) return backend.error();
  Result<std::unique_ptr<Store>> store = Store::open(std::move(*backend), options.queues);
  if (!store) return store.error();
  const std::size_t max_tokens =
      prefetch->max_tokens.value_or(StorageTier::default_max_tokens(pools));
  return Opened{std::move(*store),
                {options.backend, options.scope, *prefetch, options.now, max_tokens}};
}

}  // namespace

std::string_view to_string(PrefetchPolicy policy) {
  for (const auto& [known, name] : kPrefetchPolicies) {
    if (known == policy) return name;
  }
  return "unknown";
}

Result<PrefetchPolicy> parse_prefetch_policy(std::string_view name) {
  for (const auto& [policy, known] : kPrefetchPolicies) {
    if (known == name) return policy;
  }
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

Result<std::string> PrefixCache::attach_storage(const StorageOptions& options) {
  if (!impl_->tier)
    return make_error(ErrorCode::unavailable,
                      "attach_storage: this cache has no host tier, which a store stands behind");
  const Result<Policies> policies = parse_policies(options);
  const auto set_policies = [&] {
    if (policies->prefetch) impl_->storage->set_prefetch_policy(*policies->prefetch);
    if (policies->write) impl_->set_write_policy(*policies->write);
  };
  if (impl_->storage) {
    if (!policies) return policies.error();
    const std::string& current = impl_->storage->settings().backend;
    if (current != options.backend)
      return make_error(ErrorCode::in_use,
                        "attach_storage: the store \"{}\" is attached; detach it before attaching "
                        "\"{}\"",
                        current, options.backend);
    set_policies();
    return fmt::format("the store \"{}\" is attached already; policies updated", current);
  }
  // Whatever is wrong here, the other ranks must learn of it.
  Result<Opened> opened = policies.ok()
                              ? open_store(options, impl_->tier->pools(ComponentKind::full))
                              : Result<Opened>(policies.error());
  std::int64_t values[] = {opened.ok(),
                           opened ? static_cast<std::int64_t>(opened->settings.max_tokens) : 0};
  impl_->ranks.least(values);
  if (!opened) return opened.error();
  if (values[0] == 0)
    return make_error(ErrorCode::unavailable, "attach_storage: another rank could not open \"{}\"",
                      options.backend);
  opened->settings.max_tokens = static_cast<std::size_t>(values[1]);
  impl_->storage = std::make_unique<StorageTier>(*impl_, *impl_->tier, std::move(opened->store),
                                                 std::move(opened->settings));
  set_policies();
  return fmt::format("the store \"{}\" is attached", options.backend);
}

Result<std::string> PrefixCache::detach_storage() {
  if (!impl_->storage) return std::string("no store is attached");
  const std::string name = impl_->storage->settings().backend;
  poll();  // what has finished is acknowledged
  impl_->storage.reset();
  impl_->give_back();
  impl_->ledger.flush();
  return fmt::format("the store \"{}\" is detached", name);
}

Status PrefixCache::clear_storage() {
  if (!impl_->storage)
    return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  Result<StoreCall> call = impl_->storage->store().clear();
  return call ? call->wait() : Status{call.error()};
}

bool PrefixCache::has_storage() const { return impl_->storage != nullptr; }

StoreStats PrefixCache::storage_stats() const {
  return impl_->storage ? impl_->storage->store().stats() : StoreStats{};
}

Result<Prefetch> PrefixCache::prefetch(const Key& key) {
  if (!impl_->storage) return Prefetch{};
  return impl_->storage->prefetch(key);
}

bool PrefixCache::prefetch_ready(PrefetchId id) const {
  return !impl_->storage || impl_->storage->is_ready(id);
}

std::size_t PrefixCache::end_prefetch(PrefetchId id) {
  return impl_->storage ? impl_->storage->end(id, /*keep=*/true) : 0;
}

void PrefixCache::abort_prefetch(PrefetchId id) {
  if (impl_->storage) impl_->storage->end(id, /*keep=*/false);
}

}  // namespace pando
