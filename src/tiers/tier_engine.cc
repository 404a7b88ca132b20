// SPDX-License-Identifier: Apache-2.0
// The parts of the engine put together; see the header.
#include "tiers/tier_engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace pando {
namespace {

std::vector<HostPool*> host_pools(std::span<const TierPools> pools) {
  std::vector<HostPool*> out;
  for (const TierPools& of : pools) out.push_back(of.host);
  return out;
}

/// Of the host's pages, those that puts may hold: one in so many.
constexpr std::size_t kShareHeldByPuts = 4;

}  // namespace

StoreLink::StoreLink(TierEngine& engine, OpenedStorage opened_storage, StorePages store_pages,
                     const Limits& limits)
    : opened(std::move(opened_storage)),
      pages(std::move(store_pages)),
      puts(*opened.store, pages, engine.index_, engine.ranks_, engine.stats, limits.max_held_pages),
      fetches({opened, pages, engine.index_, engine.room, engine.ranks_, engine.gate, engine.stats},
              limits.max_fetched_tokens) {}

TierEngine::TierEngine(Options options, Agreement& ranks, TierIndex& index)
    : options_(std::move(options)),
      ranks_(ranks),
      index_(index),
      room(host_pools(options_.pools), ranks, index),
      gate(options_.cost_gate),
      backups_(options_.pools.size()),
      loads_(options_.pools.size()) {}

// ---- Copies ------------------------------------------------------------------------------------

void TierEngine::start_backup(std::unique_ptr<PageCopy> copy) {
  copy->start_backup(*options_.copier, options_.pools, options_.backup_stream);
  backups_.push(std::move(copy));
}

bool TierEngine::back_up_now(PageCopy& copy) {
  copy.start_backup(*options_.copier, options_.pools, options_.backup_stream);
  return ranks_.all(copy.wait());
}

void TierEngine::free_written(std::size_t component, std::span<const HostPageId> pages) {
  room.pool(component).abort_write(pages);
  room.pool(component).free(pages);
}

bool TierEngine::is_worth_loading(std::size_t size_bytes, std::size_t num_tokens) {
  if (!gate.is_on()) return true;
  for (const auto& load : loads_.list()) {
    for (const Transfer& transfer : load->transfers)
      size_bytes += transfer.finished() ? 0 : transfer.size_bytes();
  }
  const bool is_worth = gate.is_worth(static_cast<double>(size_bytes), 0, num_tokens);
  const bool is_probe = gate.next_is_probe();
  if (is_probe && !is_worth) ++stats.gate_probes;
  if (ranks_.all(is_worth || is_probe)) return true;
  ++stats.gated_loads;
  return false;
}

Status TierEngine::start_load(PageCopy& copy, LoadOrder order) {
  return copy.start_load(*options_.copier, options_.pools, options_.load_stream, order);
}

void TierEngine::commit_load(std::unique_ptr<PageCopy> copy) {
  std::size_t next = 0;
  copy->for_each([&](std::size_t c, const PageCopy::Pages&) {
    options_.pools[c].device->gate(copy->transfers[next++].signal());
  });
  loads_.push(std::move(copy));
}

// ---- The store ---------------------------------------------------------------------------------

Result<std::string> TierEngine::attach(const StorageOptions& options, std::size_t max_tokens,
                                       const SetWritePolicy& set_write_policy) {
  const Result<StoragePolicies> policies = parse_storage_policies(options);
  const bool is_new = !store_;
  if (is_new) {  // whatever is wrong here, the other ranks must learn of it
    Result<OpenedStorage> opened =
        policies.ok() ? open_storage(options) : Result<OpenedStorage>(policies.error());
    if (Status s = open(std::move(opened), max_tokens); !s) return s.error();
    index_.store_attached();
  }
  if (!policies) return policies.error();
  if (store_->opened.backend != options.backend)
    return make_error(ErrorCode::in_use,
                      "attach_storage: the store \"{}\" is attached; detach it before attaching "
                      "\"{}\"",
                      store_->opened.backend, options.backend);
  if (policies->prefetch) store_->opened.prefetch.policy = *policies->prefetch;
  if (policies->write) set_write_policy(*policies->write);
  return fmt::format("the store \"{}\" is attached{}", options.backend,
                     is_new ? "" : " already; policies updated");
}

// Ranks agree on whether each could open it, and on the least that any of them can do.
Status TierEngine::open(Result<OpenedStorage> opened, std::size_t max_tokens) {
  std::size_t max_held = 0;
  for (std::size_t c = 0; c < num_components(); ++c) max_held += room.capacity(c);
  max_held /= kShareHeldByPuts;
  if (opened.ok()) {
    max_tokens = opened->prefetch.max_tokens.value_or(max_tokens);
    max_held = std::min(max_held, opened->max_queued_pages);
  }
  std::int64_t values[] = {opened.ok(), static_cast<std::int64_t>(max_tokens),
                           static_cast<std::int64_t>(max_held)};
  ranks_.least(values);
  if (!opened) return opened.error();
  if (values[0] == 0)
    return make_error(ErrorCode::unavailable, "attach_storage: another rank could not open \"{}\"",
                      opened->backend);
  std::vector<std::optional<StorePages::Component>> components;
  for (std::size_t c = 0; c < num_components(); ++c) {
    const HostPool* const pool = options_.pools[c].host;
    auto& made = components.emplace_back();
    const auto group = static_cast<std::uint32_t>(options_.are_groups ? c : 0);
    if (pool != nullptr)
      made = StorePages::Component{
          KeySpace(opened->scope, pool->geometry(), pool->layout(), options_.kinds[c], group),
          pool};
  }
  const StoreLink::Limits limits{static_cast<std::size_t>(values[1]),
                                 static_cast<std::size_t>(values[2])};
  store_ = std::make_unique<StoreLink>(*this, std::move(*opened), StorePages(std::move(components)),
                                       limits);
  return {};
}

std::string TierEngine::detach() {
  if (!store_) return "no store is attached";
  store_->abandon();
  const std::unique_ptr<StoreLink> store = std::move(store_);
  return fmt::format("the store \"{}\" is detached", store->opened.backend);
}

Status TierEngine::clear_store() {
  if (!store_) return make_error(ErrorCode::unavailable, "clear_storage: no store is attached");
  Result<StoreCall> call = store_->opened.store->clear();
  return call ? call->wait() : Status{call.error()};
}

// ---- Polling -----------------------------------------------------------------------------------

void TierEngine::report(std::vector<std::int64_t>& values) {
  backups_.report(values);
  loads_.report(values);
  if (!store_) return;
  store_->puts.report(values);
  store_->fetches.report(values);
}

// Copies that are acknowledged now are put into the store after those that it has told of.
void TierEngine::apply(std::span<const std::int64_t> values, PollResult& result) {
  const std::size_t num_copies = backups_.size() + loads_.size();
  if (store_) {
    const std::span of_store = values.subspan(num_copies);
    const std::size_t num_puts = store_->puts.num_values();
    store_->puts.apply(of_store.first(num_puts), result);
    store_->fetches.apply(of_store.subspan(num_puts));
  }
  apply_copies(values.first(num_copies), result);
  if (store_ && !ranks_.lost()) store_->puts.start();
  result.idle = idle();
}

void TierEngine::apply_copies(std::span<const std::int64_t> values, PollResult& result) {
  const std::span of_backups = values.first(backups_.size());
  const std::span of_loads = values.subspan(of_backups.size());
  backups_.apply(of_backups, [&](PageCopy& copy, bool copied) {
    copy.unclaim(room);
    index_.backup_ended(copy, copied);
    ++(copied ? result.backups : result.failures);
  });
  loads_.apply(of_loads, [&](PageCopy& copy, bool loaded) {
    if (loaded) {
      for (const Transfer& transfer : copy.transfers)
        gate.loaded_bytes.add(static_cast<double>(transfer.size_bytes()),
                              std::chrono::duration<double>(transfer.duration()).count());
    }
    stats.loaded_tokens += loaded ? copy.num_tokens : 0;
    stats.failed_loads += loaded ? 0 : 1;
    index_.load_ended(copy, loaded);
    ++(loaded ? result.loads : result.failures);
  });
}

void TierEngine::drain() {
  std::vector<std::int64_t> values;
  for (const CopyQueue* queue : {&backups_, &loads_}) {
    for (const auto& copy : queue->list()) copy->wait();
    queue->report(values);
  }
  PollResult ignored;
  apply_copies(values, ignored);
}

// ---- Telling -----------------------------------------------------------------------------------

UnderWay TierEngine::under_way() const {
  UnderWay out{.backups = backups_.size(), .loads = loads_.size()};
  if (store_) {
    out.puts = store_->puts.size();
    out.fetches = store_->fetches.size();
  }
  return out;
}

TierStats TierEngine::tier_stats() const {
  TierStats out = stats;
  out.load_bytes_per_second = gate.loaded_bytes.per_second();
  out.fetch_bytes_per_second = gate.fetched_bytes.per_second();
  out.prefill_tokens_per_second = gate.prefilled_tokens.per_second();
  return out;
}

Status check_prefill(std::size_t num_tokens, double seconds) {
  if (std::isfinite(seconds) && seconds > 0) return {};
  return make_error(ErrorCode::invalid_argument,
                    "report_prefill: {} tokens in {} s; expected a time above 0", num_tokens,
                    seconds);
}

Status TierEngine::check() const {
  std::vector<HostRoom::Claimed> claims;
  for (const auto& copy : backups_.list()) {
    for (std::size_t c = 0; c < num_components(); ++c) {
      if (!copy->of[c].device.empty())
        claims.push_back({copy->claim.owner, c, copy->of[c].device.size()});
    }
  }
  if (store_) store_->fetches.append_claims(claims);
  return room.check(claims);
}

}  // namespace pando
