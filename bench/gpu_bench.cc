// SPDX-License-Identifier: Apache-2.0
// The CUDA copier beside contiguous copies of as many bytes in the same run: counter of_contiguous.
// Pages are scattered on both sides. Several transfers are queued at once, as an engine would, and
// the clock runs from the first call to the last completion.
#include <benchmark/benchmark.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "limit.h"
#include "pages.h"
#include "pando/copier.h"
#include "pool/cuda/cuda_status.h"

namespace pando::bench {
namespace {

constexpr std::size_t kTransfers = 8;
constexpr std::size_t kTransferBytes = std::size_t{1} << 30;
constexpr std::size_t kTotalBytes = kTransfers * kTransferBytes;
constexpr std::size_t kPoolBytes = 2 * kTotalBytes;  // every second page is copied
constexpr std::size_t kRounds = 5;

void require_cuda(cudaError_t error, const char* what) {
  const Status status = cuda::status_of(error, what);
  require(status.ok(), status.ok() ? what : status.error().message.c_str());
}

// Memory that all benchmarks share, because pinning it takes longer than they do.
class Memory {
 public:
  static constexpr std::size_t kSlack = std::size_t{256} << 20;
  static Memory& get() {
    static Memory memory;
    return memory;
  }
  std::unique_ptr<Arena> device() { return arena(device_, MemoryKind::cuda); }
  std::unique_ptr<Arena> host() { return arena(host_, MemoryKind::pinned); }

  /// As many contiguous bytes, `times` in a row.
  void copy_contiguous(cudaMemcpyKind kind, std::size_t times) const {
    auto* device = static_cast<std::byte*>(device_);
    void* from = kind == cudaMemcpyHostToDevice ? host_ : device_;
    void* to = kind == cudaMemcpyDeviceToHost ? host_ : device + kTotalBytes;
    for (std::size_t i = 0; i < times; ++i)
      require_cuda(cudaMemcpyAsync(to, from, kTotalBytes, kind, stream_), "contiguous copy");
    require_cuda(cudaStreamSynchronize(stream_), "contiguous copy");
  }

 private:
  Memory()
      : device_arena_(std::move(*make_cuda_arena())), host_arena_(std::move(*make_pinned_arena())) {
    device_ = *device_arena_->allocate(kPoolBytes + kSlack, 4096);
    host_ = *host_arena_->allocate(kPoolBytes + kSlack, 4096);
    require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  }
  static std::unique_ptr<Arena> arena(void* memory, MemoryKind kind) {
    return make_user_arena({static_cast<std::byte*>(memory), kPoolBytes + kSlack}, kind);
  }

  std::unique_ptr<Arena> device_arena_, host_arena_;
  void* device_ = nullptr;
  void* host_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

struct Config {
  HostLayout host = HostLayout::layer_first;
  DeviceLayout device = DeviceLayout::layer_first;
  std::size_t page_size = 1;
  std::uint32_t heads = 8;
};

// MHA of 32 layers, heads of 128, bf16; pools twice as large as what is copied.
class Pools {
 public:
  explicit Pools(const Config& config, const CudaCopierOptions& options = {})
      : device_arena_(Memory::get().device()), host_arena_(Memory::get().host()) {
    const Geometry geometry =
        mha_geometry({.layers = {.num_layers = 32, .page_size = config.page_size},
                      .heads = config.heads,
                      .head_dim = 128});
    const std::size_t n = kPoolBytes / geometry.page_bytes();
    device = std::move(*KvPool::create(
        {.geometry = geometry, .capacity_tokens = n * config.page_size, .layout = config.device},
        *device_arena_));
    host = std::move(*HostPool::create({.layout = config.host, .ratio = 1.0, .keep_free_bytes = 0},
                                       *device, *host_arena_));
    copier = std::move(*make_cuda_copier(options));
    device_pages = scattered<PageId>(1, n, n / 2, 1);
    host_pages = scattered<HostPageId>(0, n, n / 2, 2);
    std::vector<HostPageId> all(n);
    require(host->alloc(all).ok(), "host pages");
    host->protect_write(all);
  }
  void to_loading() {
    std::vector<HostPageId> all = scattered<HostPageId>(0, host->num_pages(), host->num_pages(), 3);
    host->complete_write(all, false);
    host->protect_load(all);
  }
  PagePairs part(std::size_t i) {
    const std::size_t n = device_pages.size() / kTransfers;
    return {*device, *host, std::span(device_pages).subspan(i * n, n),
            std::span(host_pages).subspan(i * n, n)};
  }

 private:
  std::unique_ptr<Arena> device_arena_, host_arena_;

 public:
  std::unique_ptr<KvPool> device;
  std::unique_ptr<HostPool> host;
  std::unique_ptr<Copier> copier;
  std::vector<PageId> device_pages;
  std::vector<HostPageId> host_pages;
};

// submit(i) queues the i-th share; all shares `times` in a row.
template <typename Submit>
void report_ratio(benchmark::State& state, cudaMemcpyKind kind, std::size_t times,
                  Submit&& submit) {
  const auto work = [&](std::size_t) {
    std::vector<Transfer> transfers;
    for (std::size_t i = 0; i < times * kTransfers; ++i) {
      Result<Transfer> transfer = submit(i % kTransfers);
      require(transfer.ok(), transfer ? "" : transfer.error().message.c_str());
      transfers.push_back(*transfer);
    }
    for (const Transfer& transfer : transfers) require(transfer.wait().ok(), "transfer");
  };
  work(0);  // not the first time
  const Measured measured = measure(
      kRounds, 1, work, [&](std::size_t) { Memory::get().copy_contiguous(kind, times); }, [] {});
  const auto bytes = static_cast<double>(times * kTotalBytes);
  for (auto _ : state) state.SetIterationTime(measured.work_ns / 1e9);
  state.counters["of_contiguous"] = 1 / measured.ratio;
  state.counters["GB_per_s"] = bytes / measured.work_ns;
  state.counters["contiguous_GB_per_s"] = bytes / measured.limit_ns;
}

void backup(benchmark::State& state, const Config& config, const CudaCopierOptions& options) {
  Pools pools(config, options);
  report_ratio(state, cudaMemcpyDeviceToHost, 1,
               [&](std::size_t i) { return pools.copier->backup(pools.part(i), 0); });
}

void load(benchmark::State& state, const Config& config, LoadOrder order,
          const CudaCopierOptions& options) {
  Pools pools(config, options);
  pools.to_loading();
  report_ratio(state, cudaMemcpyHostToDevice, 1,
               [&](std::size_t i) { return pools.copier->load(pools.part(i), 0, order); });
}

// Single slots inside the device, half of them from the other half. Often in a row, because a
// gibibyte takes half a millisecond there.
void move(benchmark::State& state, const Config& config) {
  Pools pools(config);
  const std::size_t n = kTransferBytes / pools.device->geometry().token_bytes();
  const auto slots = scattered<SlotId>(config.page_size, 2 * n * kTransfers, 2 * n * kTransfers, 4);
  report_ratio(state, cudaMemcpyDeviceToDevice, 8, [&](std::size_t i) {
    const auto both = std::span(slots).subspan(2 * i * n, 2 * n);
    return pools.copier->move(*pools.device, both.first(n), both.last(n), 0);
  });
}

void add(const std::string& name, std::function<void(benchmark::State&)> run) {
  benchmark::RegisterBenchmark(name.c_str(), std::move(run))
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void register_all() {
  constexpr std::size_t kNever = ~std::size_t{0};
  for (const DeviceLayout device : {DeviceLayout::layer_first, DeviceLayout::page_major})
    for (const HostLayout host : {HostLayout::layer_first, HostLayout::page_first,
                                  HostLayout::page_first_direct, HostLayout::page_head})
      for (const std::size_t page : {1, 16, 64}) {
        const Config config{host, device, page};
        const std::string tail =
            "/host:" + std::string(to_string(host)) +
            "/device:" + (device == DeviceLayout::page_major ? "page_major" : "layer_first") +
            "/page:" + std::to_string(page);
        add("GpuBackup" + tail, [=](auto& state) { backup(state, config, {}); });
        add("GpuLoad" + tail, [=](auto& state) { load(state, config, LoadOrder::by_page, {}); });
        add("GpuLoadByLayer" + tail,
            [=](auto& state) { load(state, config, LoadOrder::by_layer, {}); });
      }
  for (const std::uint32_t heads : {2u, 4u, 8u, 16u}) {  // scattered pieces of 512 B to 4 KiB
    const Config config{.heads = heads};
    const std::string tail = "/piece:" + std::to_string(heads * 256);
    add("GpuBackupPieces" + tail, [=](auto& state) { backup(state, config, {}); });
    add("GpuLoadPieces" + tail, [=](auto& state) { load(state, config, LoadOrder::by_page, {}); });
  }
  // Where the copy engines overtake the kernel: contiguous host pages of 64 KiB to 4 MiB a plane.
  for (const std::size_t page : {1, 2, 4, 8, 16, 32, 64})
    for (const bool engines : {false, true}) {
      const Config config{.host = HostLayout::page_first, .page_size = page};
      const std::size_t from = engines ? 1 : kNever;
      const CudaCopierOptions options{.engine_backup_bytes = from, .engine_load_bytes = from};
      const std::string tail =
          "/bytes:" + std::to_string(page << 16) + (engines ? "/way:engines" : "/way:kernel");
      add("GpuCrossoverOut" + tail, [=](auto& state) { backup(state, config, options); });
      add("GpuCrossoverIn" + tail,
          [=](auto& state) { load(state, config, LoadOrder::by_page, options); });
    }
  add("GpuMove/page:1", [](auto& state) { move(state, {}); });
  add("GpuMove/page:64", [](auto& state) { move(state, {.page_size = 64}); });
}

}  // namespace
}  // namespace pando::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (auto gpu = pando::make_cuda_arena(); !gpu) {
    std::printf("no benchmark was run: %s\n", gpu.error().message.c_str());
    return 77;
  }
  pando::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
