// SPDX-License-Identifier: Apache-2.0
// The round trips of the CPU copier on a GPU: by kernels, by the copy engines, layer by layer. And
// what a pool in a GPU's memory does itself, against a pool in host memory. Skipped without a GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <tuple>

#include "pool/numeric.h"
#include "support/copy_fixture.h"

namespace pando::testing {
namespace {

MemoryAccess gpu_access() {
  const auto copy = [](std::byte* dst, const std::byte* src, std::size_t n) {
    ASSERT_EQ(cudaMemcpy(dst, src, n, cudaMemcpyDefault), cudaSuccess);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  return {copy, copy};
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = make_cuda_arena();
    if (!device) GTEST_SKIP() << device.error().message;
    device_ = std::move(*device);
    pinned_ = std::move(*make_pinned_arena());
  }
  std::unique_ptr<Arena> device_, pinned_;
};

enum class Way { kernels, engines, layers };

class GpuRoundTrip
    : public Gpu,
      public ::testing::WithParamInterface<std::tuple<std::size_t, HostLayout, Way>> {};

TEST_P(GpuRoundTrip, BringsEveryByteBackAndTouchesNoOther) {
  const auto [family, layout, way] = GetParam();
  constexpr std::size_t kNever = ~std::size_t{0};
  const std::size_t engines_from = way == Way::engines ? 1 : kNever;
  const auto copier = *make_cuda_copier({.engine_backup_bytes = engines_from,
                                         .engine_load_bytes = engines_from,
                                         .staging_bytes = std::size_t{1} << 20});
  round_trips({.device_arena = *device_,
               .host_arena = *pinned_,
               .copier = *copier,
               .device_access = gpu_access(),
               .order = way == Way::layers ? LoadOrder::by_layer : LoadOrder::by_page},
              families()[family], layout);
}

std::string name_of(const ::testing::TestParamInfo<GpuRoundTrip::ParamType>& info) {
  const auto [family, layout, way] = info.param;
  constexpr std::string_view kWays[] = {"kernels", "engines", "layers"};
  return families()[family].name + "_" + std::string(to_string(layout)) + "_" +
         std::string(kWays[static_cast<std::size_t>(way)]);
}

INSTANTIATE_TEST_SUITE_P(Families, GpuRoundTrip,
                         ::testing::Combine(::testing::Range(std::size_t{0}, families().size()),
                                            ::testing::ValuesIn(kHostLayouts),
                                            ::testing::Values(Way::kernels, Way::engines,
                                                              Way::layers)),
                         name_of);

// Large enough for every default: the ring goes round, and pages are longer than the crossover.
TEST_F(Gpu, LargePagesGoThroughTheStagingRing) {
  const auto copier = *make_cuda_copier({.staging_bytes = std::size_t{8} << 20});
  for (const LoadOrder order : {LoadOrder::by_page, LoadOrder::by_layer})
    for (const HostLayout layout : kHostLayouts)
      RoundTrip({.device_arena = *device_,
                 .host_arena = *pinned_,
                 .copier = *copier,
                 .device_access = gpu_access(),
                 .order = order},
                {.geometry = mha_geometry({{16, 0, 64, DType::bf16}, 4, 128}),
                 .host_layout = layout,
                 .num_device_pages = 30,
                 .num_host_pages = 28,
                 .num_copied = 25})
          .run();
}

// A pool of each kind of memory; what is done to both must leave the same bytes.
class TwinPools {
 public:
  TwinPools(const Geometry& geometry, Arena& device, Arena& host)
      : gpu_(*KvPool::create({.geometry = geometry, .capacity_tokens = kTokens}, device)),
        cpu_(*KvPool::create({.geometry = geometry, .capacity_tokens = kTokens}, host)) {
    const Bytes bytes = random_bytes(cpu_->size_bytes(), 1);
    for (const auto& pool : {gpu_.get(), cpu_.get()}) {
      std::size_t offset = 0;
      for (const MemoryRegion& region : pool->regions()) {
        cudaMemcpy(region.address, bytes.data() + offset, region.size_bytes, cudaMemcpyDefault);
        offset += region.size_bytes;
      }
    }
  }
  KvPool& gpu() { return *gpu_; }
  KvPool& cpu() { return *cpu_; }
  ::testing::AssertionResult are_equal() const {
    const auto mine = gpu_->regions(), other = cpu_->regions();
    for (std::size_t i = 0; i < mine.size(); ++i) {
      Bytes copy(mine[i].size_bytes);
      cudaMemcpy(copy.data(), mine[i].address, copy.size(), cudaMemcpyDefault);
      if (std::memcmp(copy.data(), other[i].address, copy.size()) != 0)
        return ::testing::AssertionFailure() << "region " << i << " differs";
    }
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr std::size_t kTokens = 256;
  std::unique_ptr<KvPool> gpu_, cpu_;
};

std::vector<SlotId> some_slots(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<SlotId> out;
  for (const std::size_t slot : shuffled(16, 256, random))
    if (out.size() < n) out.push_back(static_cast<SlotId>(slot));
  return out;
}

// Rows in memory of the device, as kernels leave them.
class DeviceRows {
 public:
  DeviceRows(Arena& arena, const void* data, std::size_t size_bytes)
      : arena_(arena), size_bytes_(size_bytes), memory_(*arena.allocate(size_bytes, 256)) {
    cudaMemcpy(memory_, data, size_bytes, cudaMemcpyDefault);
  }
  ~DeviceRows() { arena_.free(memory_, size_bytes_); }
  const void* data() const { return memory_; }

 private:
  Arena& arena_;
  std::size_t size_bytes_;
  void* memory_;
};

TEST_F(Gpu, WritesEveryFp16InEveryTypeAsTheCpuDoes) {
  const auto host = make_malloc_arena();
  std::vector<std::uint16_t> all(1 << 16);  // every fp16 there is, as 64 rows of 1024
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  const DeviceRows rows(*device_, all.data(), all.size() * 2);
  const auto slots = some_slots(64, 2);
  for (const DType dtype :
       {DType::fp16, DType::bf16, DType::fp32, DType::fp8_e4m3, DType::fp8_e5m2, DType::int8})
    for (const float scale : {1.0F, 0.37F}) {
      TwinPools pools(state_geometry(2, {{"rows", 4, 256, dtype}}), *device_, *host);
      const Rows from_gpu{.data = rows.data(), .dtype = DType::fp16, .scale = scale};
      const Rows from_cpu{.data = all.data(), .dtype = DType::fp16, .scale = scale};
      ASSERT_TRUE(pools.gpu().set(1, slots, std::span(&from_gpu, 1)).ok());
      ASSERT_TRUE(pools.cpu().set(1, slots, std::span(&from_cpu, 1)).ok());
      EXPECT_TRUE(pools.are_equal()) << to_string(dtype) << " / " << scale;
    }
}

TEST_F(Gpu, MovesSavesAndRestoresAsTheCpuDoes) {
  const auto host = make_malloc_arena();
  for (const Family& family : families()) {
    SCOPED_TRACE(family.name);
    TwinPools pools(family.geometry({3, 0, family.page_sizes.back() > 1 ? 16u : 1u, DType::bf16}),
                    *device_, *host);
    const auto slots = some_slots(120, 3);
    const std::span<const SlotId> all(slots);
    const auto run = [&](KvPool& pool, Arena& saved_in) {
      EXPECT_TRUE(pool.move(all.first(50), all.subspan(50, 50)).ok());
      EXPECT_TRUE(pool.move(all.subspan(10, 60), all.subspan(11, 60)).ok());  // overlapping
      const auto saved = pool.save(all.first(30), saved_in);
      ASSERT_TRUE(saved.ok()) << saved.error().message;
      EXPECT_TRUE(pool.restore(*saved, all.last(30)).ok());
    };
    run(pools.gpu(), *pinned_);
    run(pools.cpu(), *host);
    EXPECT_TRUE(pools.are_equal());
    EXPECT_FALSE(pools.gpu().save(slots, *host).ok()) << "memory that the GPU does not reach";
  }
}

TEST_F(Gpu, AStreamWaitsAtTheGateForItsLayerAlone) {
  const auto copier = *make_cuda_copier();
  const Geometry geometry = mha_geometry({{8, 3, 16, DType::bf16}, 8, 128});
  const auto pool = *KvPool::create({.geometry = geometry, .capacity_tokens = 4096}, *device_);
  const auto host =
      *HostPool::create({.layout = HostLayout::page_first, .ratio = 1.0}, *pool, *pinned_);
  std::vector<HostPageId> host_pages(host->num_pages());
  ASSERT_TRUE(host->alloc(host_pages).ok());
  host->protect_write(host_pages);
  const Bytes bytes = random_bytes(host->size_bytes(), 5);
  std::memcpy(host->planes()[0].layers[0], bytes.data(), bytes.size());
  host->complete_write(host_pages, false);
  host->protect_load(host_pages);
  std::vector<PageId> pages;
  for (std::size_t i = 1; i < pool->num_pages(); ++i) pages.push_back(static_cast<PageId>(i));
  const Transfer load = *copier->load({*pool, *host, pages, host_pages}, 0);
  pool->gate(load.signal());
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const std::size_t row = geometry.planes[0].row_bytes();
  for (std::size_t layer = 3; layer < 11; ++layer) {
    ASSERT_TRUE(pool->wait_layer_on(layer, stream).ok());
    Bytes seen(row);
    const std::byte* slot_16 = pool->planes()[0].layers[layer - 3] + 16 * row;
    cudaMemcpyAsync(seen.data(), slot_16, row, cudaMemcpyDefault, stream);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    const std::byte* expected = host->planes()[0].layers[layer - 3];
    EXPECT_EQ(std::memcmp(seen.data(), expected, row), 0) << "layer " << layer;
  }
  EXPECT_TRUE(load.wait().ok());
  cudaStreamDestroy(stream);
}

TEST_F(Gpu, ABackupWaitsForWhatTheEnginesStreamWrites) {
  const auto copier = *make_cuda_copier();
  const Geometry geometry = mha_geometry({{4, 0, 16, DType::bf16}, 4, 64});
  const auto pool = *KvPool::create({.geometry = geometry, .capacity_tokens = 256}, *device_);
  const auto host = *HostPool::create({.ratio = 1.0, .keep_free_bytes = 0}, *pool, *pinned_);
  std::vector<HostPageId> host_pages(host->num_pages());
  ASSERT_TRUE(host->alloc(host_pages).ok());
  host->protect_write(host_pages);
  std::vector<PageId> pages;
  for (std::size_t i = 1; i < pool->num_pages(); ++i) pages.push_back(static_cast<PageId>(i));

  // The engine's stream is busy for some time before it writes the pool.
  const std::size_t busy_bytes = std::size_t{1} << 30;
  void* busy = *device_->allocate(busy_bytes, 256);
  cudaStream_t engine = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&engine, cudaStreamNonBlocking), cudaSuccess);
  for (int i = 0; i < 100; ++i) cudaMemsetAsync(busy, i, busy_bytes, engine);
  for (const MemoryRegion& region : pool->regions())
    cudaMemsetAsync(region.address, 0x77, region.size_bytes, engine);
  ASSERT_TRUE(copier->wait_for_stream(engine, 0).ok());
  const Transfer backup = *copier->backup({*pool, *host, pages, host_pages}, 0);
  ASSERT_TRUE(backup.wait().ok());
  const std::byte* bytes = host->planes()[0].layers[0];
  for (std::size_t i = 0; i < host->size_bytes(); ++i) ASSERT_EQ(bytes[i], std::byte{0x77}) << i;
  ASSERT_EQ(cudaStreamSynchronize(engine), cudaSuccess);
  cudaStreamDestroy(engine);
  device_->free(busy, busy_bytes);
}

TEST_F(Gpu, WhatATransferWaitsForLivesAsLongAsItWaits) {
  // The copier's own thread makes the wait, after the caller has gone on: here behind a queue of
  // transfers, when every stream that was named is gone.
  const auto copier = *make_cuda_copier({.num_streams = 1});
  const Geometry geometry = mha_geometry({{16, 0, 64, DType::bf16}, 8, 128});
  const auto pool = *KvPool::create({.geometry = geometry, .capacity_tokens = 4096}, *device_);
  const auto host = *HostPool::create({.ratio = 1.0, .keep_free_bytes = 0}, *pool, *pinned_);
  std::vector<HostPageId> host_pages(host->num_pages());
  ASSERT_TRUE(host->alloc(host_pages).ok());
  host->protect_write(host_pages);
  std::vector<PageId> pages;
  for (std::size_t i = 1; i < pool->num_pages(); ++i) pages.push_back(static_cast<PageId>(i));
  std::vector<Transfer> transfers;
  for (int i = 0; i < 50; ++i) {
    cudaStream_t engine = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&engine, cudaStreamNonBlocking), cudaSuccess);
    for (int step = 0; step < 100; ++step) ASSERT_TRUE(copier->wait_for_stream(engine, 0).ok());
    transfers.push_back(*copier->backup({*pool, *host, pages, host_pages}, 0));
    ASSERT_EQ(cudaStreamDestroy(engine), cudaSuccess);
  }
  for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.wait().ok());
}

TEST_F(Gpu, CancelledTransfersTouchNothingAndOthersGoOn) {
  const auto copier = *make_cuda_copier({.num_streams = 1});
  const Geometry geometry = mha_geometry({{16, 0, 64, DType::bf16}, 8, 128});
  const auto pool = *KvPool::create({.geometry = geometry, .capacity_tokens = 4096}, *device_);
  const auto host =
      *HostPool::create({.layout = HostLayout::layer_first, .ratio = 1.0}, *pool, *pinned_);
  std::vector<HostPageId> host_pages(host->num_pages());
  ASSERT_TRUE(host->alloc(host_pages).ok());
  host->protect_write(host_pages);
  std::vector<PageId> pages;
  for (std::size_t i = 1; i < pool->num_pages(); ++i) pages.push_back(static_cast<PageId>(i));
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < 20; ++i)
    transfers.push_back(*copier->backup({*pool, *host, pages, host_pages}, 0));
  std::size_t cancelled = 0;
  for (std::size_t i = 10; i < 20; ++i) cancelled += transfers[i].cancel() ? 1 : 0;
  std::size_t failed = 0;
  for (const Transfer& transfer : transfers) failed += transfer.wait().ok() ? 0 : 1;
  EXPECT_EQ(failed, cancelled);
  EXPECT_GT(cancelled, 0u) << "a queue of ten long transfers was still waiting";
}

TEST_F(Gpu, RefusesHostMemoryThatIsNotPinned) {
  const auto copier = *make_cuda_copier();
  const auto malloc = make_malloc_arena();
  const Geometry geometry = mha_geometry({{2, 0, 4, DType::bf16}, 2, 16});
  const auto pool = *KvPool::create({.geometry = geometry, .capacity_tokens = 64}, *device_);
  const auto host = *HostPool::create({.ratio = 1.0, .keep_free_bytes = 0}, *pool, *malloc);
  EXPECT_TRUE(
      fails(copier->backup({*pool, *host, {}, {}}, 0), ErrorCode::invalid_argument, "pinned"));
  EXPECT_TRUE(
      fails(copier->backup({*pool, *host, {}, {}}, 9), ErrorCode::invalid_argument, "stream"));
}

}  // namespace
}  // namespace pando::testing
