// SPDX-License-Identifier: Apache-2.0
// Pages between a device pool and its host mirror on the CPU, in every layout, beside a plain
// memcpy of as many bytes by as many threads. Pages are scattered on both sides.
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "limit.h"
#include "pages.h"
#include "pando/copier.h"
#include "plain_copy.h"

namespace pando::bench {
namespace {

constexpr std::size_t kThreads = 2;
constexpr std::size_t kTransferBytes = std::size_t{256} << 20;
constexpr std::size_t kRounds = 7;
// Of the pools' pages, every third is copied: neighbours are rare.
constexpr std::size_t kSpread = 3;

// MHA of 32 layers, 8 heads of 128, bf16: 128 KiB a token.
class Pools {
 public:
  Pools(HostLayout layout, std::size_t page_size) : arena(make_huge_page_arena()) {
    const Geometry geometry = mha_geometry(
        {.layers = {.num_layers = 32, .page_size = page_size}, .heads = 8, .head_dim = 128});
    const std::size_t n = kTransferBytes / geometry.page_bytes();
    device = std::move(*KvPool::create(
        {.geometry = geometry, .capacity_tokens = kSpread * n * page_size}, *arena));
    host = std::move(*HostPool::create({.layout = layout, .ratio = 1.0}, *device, *arena));
    copier = std::move(*make_cpu_copier({.num_threads = kThreads}));
    device_pages = scattered<PageId>(1, kSpread * n, n, 1);
    host_pages = scattered<HostPageId>(0, host->num_pages(), n, 2);
    std::vector<HostPageId> all(host->num_pages());
    require(host->alloc(all).ok(), "host pages");
    host->protect_write(all);
    for (std::byte* memory : {device->planes()[0].layers[0], host->planes()[0].layers[0]})
      std::memset(memory, 1, host->size_bytes());  // no page is touched for the first time later
  }

  PagePairs pairs() { return {*device, *host, device_pages, host_pages}; }
  std::size_t bytes() const { return device_pages.size() * host->page_bytes(); }
  Transfer backup() { return *copier->backup(pairs(), 0); }
  Transfer load(LoadOrder order) { return *copier->load(pairs(), 0, order); }
  void to_loading() {
    host->complete_write(host_pages, false);
    host->protect_load(host_pages);
  }

  std::unique_ptr<Arena> arena;
  std::unique_ptr<KvPool> device;
  std::unique_ptr<HostPool> host;
  std::unique_ptr<Copier> copier;
  std::vector<PageId> device_pages;
  std::vector<HostPageId> host_pages;
};

void verify(Pools& pools) {
  Random random(3);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t page = random.below(pools.device_pages.size());
    const auto device = index_of(pools.device_pages[page]);
    const auto host = index_of(pools.host_pages[page]);
    const std::size_t layer = random.below(32);
    const std::size_t plane = random.below(2);
    const PlaneMemory& a = pools.device->planes()[plane];
    const PlaneMemory& b = pools.host->planes()[plane];
    require(std::memcmp(a.layers[layer] + device * a.page_stride,
                        b.layers[layer] + host * b.page_stride, 256) == 0,
            "copied bytes are equal");
  }
}

enum class Call { backup, load, load_by_page };

struct Config {
  HostLayout layout = HostLayout::layer_first;
  std::size_t page_size = 1;
  Call call = Call::backup;
  friend bool operator==(const Config&, const Config&) = default;
};

// A benchmark's function is called several times in a row, while the library looks for the number
// of iterations. Making the pools takes longer than everything else, so they stay for the next
// call.
class Prepared {
 public:
  static Prepared& get(const Config& config) {
    static std::unique_ptr<Prepared> last;
    if (last == nullptr || !(last->config_ == config)) {
      last.reset();  // first, because two do not fit into small machines
      last = std::make_unique<Prepared>(config);
    }
    return *last;
  }
  explicit Prepared(const Config& config)
      : config_(config),
        pools_(config.layout, config.page_size),
        plain_(*pools_.arena, pools_.bytes(), kThreads) {
    // Different bytes everywhere, so that verify() can tell.
    const bool backup = config.call == Call::backup;
    auto* words = reinterpret_cast<std::uint64_t*>(
        (backup ? pools_.device->planes() : pools_.host->planes())[0].layers[0]);
    Random random(4);
    for (std::size_t i = 0; i < pools_.host->size_bytes() / 8; ++i) words[i] = random.next();
    if (!backup) pools_.to_loading();
    copy();
    verify(pools_);
    plain_.run();
    measured_ = measure(
        kRounds, 1, [&](std::size_t) { copy(); }, [&](std::size_t) { plain_.run(); }, [] {});
  }

  void copy() { require(start().wait().ok(), "copy"); }
  Transfer start() {
    if (config_.call == Call::backup) return pools_.backup();
    return pools_.load(config_.call == Call::load ? LoadOrder::by_layer : LoadOrder::by_page);
  }
  const Measured& measured() const { return measured_; }
  std::size_t bytes() const { return pools_.bytes(); }

 private:
  Config config_;
  Pools pools_;
  PlainCopy plain_;
  Measured measured_;
};

void run(benchmark::State& state, const Config& config) {
  Prepared& prepared = Prepared::get(config);
  // The library counts this thread's processor time: one that sleeps would copy for minutes.
  for (auto _ : state)
    for (const Transfer transfer = prepared.start(); !transfer.finished();) continue;
  const auto bytes = static_cast<double>(prepared.bytes());
  state.counters["of_memcpy"] = 1 / prepared.measured().ratio;
  state.counters["GB_per_s"] = bytes / prepared.measured().work_ns;
  state.counters["memcpy_GB_per_s"] = bytes / prepared.measured().limit_ns;
}

const int registered = [] {
  constexpr std::pair<Call, const char*> kCalls[] = {
      {Call::backup, "Backup"}, {Call::load, "Load"}, {Call::load_by_page, "LoadByPage"}};
  for (const auto& [call, name] : kCalls)
    for (const HostLayout layout : {HostLayout::layer_first, HostLayout::page_first,
                                    HostLayout::page_first_direct, HostLayout::page_head})
      for (const std::size_t page_size : {64, 1}) {
        const std::string full_name = std::string(name) +
                                      "/layout:" + std::string(to_string(layout)) +
                                      "/page:" + std::to_string(page_size);
        const Config config{layout, page_size, call};
        benchmark::RegisterBenchmark(full_name.c_str(), [config](benchmark::State& state) {
          run(state, config);
        })->Unit(benchmark::kMillisecond);
      }
  return 0;
}();

}  // namespace
}  // namespace pando::bench
