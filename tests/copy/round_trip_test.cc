// SPDX-License-Identifier: Apache-2.0
// Every family of attention through the CPU copier: every layout of the host and of the device,
// every type, several page sizes; what is compared, and with what, is in copy_fixture.h. Then many
// small transfers at once, on all streams, against a model of pages that are copied one by one.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "support/copy_pools.h"

namespace pando::testing {
namespace {

class CpuRoundTrip : public ::testing::TestWithParam<std::tuple<std::size_t, HostLayout>> {
 protected:
  std::unique_ptr<Arena> arena_ = make_malloc_arena();
  std::unique_ptr<Copier> copier_ = *make_cpu_copier();
  CopyPlace place_{.device_arena = *arena_, .host_arena = *arena_, .copier = *copier_};
};

TEST_P(CpuRoundTrip, BringsEveryByteBackAndTouchesNoOther) {
  const auto [family, layout] = GetParam();
  for (const LoadOrder order : {LoadOrder::by_layer, LoadOrder::by_page}) {
    place_.order = order;
    round_trips(place_, families()[family], layout);
  }
}

std::string name_of(const ::testing::TestParamInfo<CpuRoundTrip::ParamType>& info) {
  const auto [family, layout] = info.param;
  return families()[family].name + "_" + std::string(to_string(layout));
}

INSTANTIATE_TEST_SUITE_P(Families, CpuRoundTrip,
                         ::testing::Combine(::testing::Range(std::size_t{0}, families().size()),
                                            ::testing::ValuesIn(kHostLayouts)),
                         name_of);

// Pages of half a mebibyte: several units of work, and stores past the caches.
class LargeCpuRoundTrip : public ::testing::TestWithParam<HostLayout> {};

TEST_P(LargeCpuRoundTrip, IsCutIntoUnitsThatManyThreadsShare) {
  const auto arena = make_malloc_arena();
  const auto copier = *make_cpu_copier({.num_threads = 4});
  const CopyPlace place{.device_arena = *arena, .host_arena = *arena, .copier = *copier};
  for (const DeviceLayout device : {DeviceLayout::layer_first, DeviceLayout::page_major})
    RoundTrip(place, {.geometry = mha_geometry({{4, 0, 64, DType::fp32}, 4, 72, 60}),
                      .device_layout = device,
                      .host_layout = GetParam(),
                      .num_device_pages = 18,
                      .num_host_pages = 16,
                      .num_copied = 13})
        .run();
}

// More than a sort by digits can tell apart in one pass.
TEST_P(LargeCpuRoundTrip, MayHaveThousandsOfPages) {
  const auto arena = make_malloc_arena();
  const auto copier = *make_cpu_copier();
  const CopyPlace place{.device_arena = *arena, .host_arena = *arena, .copier = *copier};
  RoundTrip(place, {.geometry = mha_geometry({{2, 0, 1, DType::int8}, 2, 3}),
                    .host_layout = GetParam(),
                    .num_device_pages = 6000,
                    .num_host_pages = 5000,
                    .num_copied = 4000})
      .run();
}

// Copiers may take layers in groups; 11 leave a rest whatever the size of a group.
TEST_P(LargeCpuRoundTrip, MayHaveManyLayers) {
  const auto arena = make_malloc_arena();
  const auto copier = *make_cpu_copier({.num_threads = 4});
  for (const LoadOrder order : {LoadOrder::by_layer, LoadOrder::by_page})
    for (const std::uint32_t dim : {3u, 300u, 3000u})
      RoundTrip({.device_arena = *arena, .host_arena = *arena, .copier = *copier, .order = order},
                {.geometry = mha_geometry({{11, 0, 16, DType::int8}, 2, dim, 4}),
                 .host_layout = GetParam()})
          .run();
}

INSTANTIATE_TEST_SUITE_P(Layouts, LargeCpuRoundTrip, ::testing::ValuesIn(kHostLayouts),
                         [](const auto& info) { return std::string(to_string(info.param)); });

/// Random transfers on every stream. Each stream has device pages, host pages to write and host
/// pages to read of its own, so its transfers alone, in their order, say what is in them.
class ManyTransfers {
 public:
  ManyTransfers(std::size_t num_streams, std::uint64_t seed)
      : random_(seed),
        num_streams_(num_streams),
        pools_(TestPools::small_geometry(), num_streams * kPages),
        written_(pools_.take(num_streams * kPages / 2, PageState::writing)),
        read_(pools_.take(num_streams * kPages / 2, PageState::loading)) {
    for (const HostPageId page : read_) {
      const auto regions = *pools_.host->page_regions(page);
      for (const MemoryRegion& region : regions) {
        const Bytes bytes = random_bytes(region.size_bytes, random_.next());
        std::copy(bytes.begin(), bytes.end(), region.address);
      }
    }
    for (std::size_t i = 0; i < pools_.device->num_pages(); ++i)
      device_.push_back(pools_.page(PageId(i)));
    for (std::size_t i = 0; i < pools_.host->num_pages(); ++i)
      host_.push_back(pools_.page(HostPageId(i)));
  }

  void submit(Copier& copier) {
    const std::size_t stream = random_.below(num_streams_);
    const bool backup = random_.below(2) == 0;
    const auto device = shuffled(stream * kPages + 1, (stream + 1) * kPages + 1, random_);
    const auto host = shuffled(stream * kPages / 2, (stream + 1) * kPages / 2, random_);
    std::vector<PageId> device_pages;
    std::vector<HostPageId> host_pages;
    const std::size_t n = 1 + random_.below(kPages / 2);
    for (std::size_t i = 0; i < n; ++i) {
      device_pages.push_back(PageId(device[i]));
      host_pages.push_back((backup ? written_ : read_)[host[i]]);
    }
    const PagePairs pairs = pools_.pairs(device_pages, host_pages);
    const Transfer transfer = *(backup ? copier.backup(pairs, stream) : copier.load(pairs, stream));
    copies_.push_back({backup, device_pages, host_pages, transfer});
    if (random_.below(4) > 0) return;
    const std::size_t back = random_.below(std::min<std::size_t>(copies_.size(), 20));
    Copy& victim = copies_[copies_.size() - 1 - back];
    victim.cancelled = victim.transfer.cancel() || victim.cancelled;
  }

  void verify() {
    for (const Copy& copy : copies_) {
      EXPECT_EQ(copy.transfer.wait().ok(), !copy.cancelled);
      for (std::size_t i = 0; i < copy.device.size() && !copy.cancelled; ++i) {
        Bytes& device = device_[index_of(copy.device[i])];
        Bytes& host = host_[index_of(copy.host[i])];
        (copy.backup ? host : device) = copy.backup ? device : host;
      }
    }
    for (std::size_t i = 0; i < device_.size(); ++i) EXPECT_EQ(pools_.page(PageId(i)), device_[i]);
    for (std::size_t i = 0; i < host_.size(); ++i) EXPECT_EQ(pools_.page(HostPageId(i)), host_[i]);
  }

 private:
  static constexpr std::size_t kPages = 16;  // of the device, for each stream
  struct Copy {
    bool backup;
    std::vector<PageId> device;
    std::vector<HostPageId> host;
    Transfer transfer;
    bool cancelled = false;
  };

  Random random_;
  std::size_t num_streams_;
  TestPools pools_;
  std::vector<HostPageId> written_, read_;
  std::vector<Copy> copies_;
  std::vector<Bytes> device_, host_;  // what each page should hold
};

TEST(ManyTransfers, OfThreeStreamsLeaveWhatTheirOrderSays) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(seed);
    const auto copier = *make_cpu_copier({.num_threads = 4, .num_streams = 3});
    ManyTransfers transfers(3, seed);
    for (int i = 0; i < 900; ++i) transfers.submit(*copier);
    transfers.verify();
  }
}

}  // namespace
}  // namespace pando::testing
