// SPDX-License-Identifier: Apache-2.0
// RoundTrip sends random pages through any copier and any two arenas and compares every byte of
// both pools, and of canaries around them, with a naive model. It reaches the device's memory
// through two functions alone, so tests of a GPU use it as it is.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "pando/copier.h"
#include "pool/plane_memory.h"
#include "support/cache_fixture.h"

namespace pando::testing {

using Bytes = std::vector<std::byte>;

constexpr std::byte kPoison{0xa5};
constexpr std::byte kCanary{0x3c};

inline Bytes random_bytes(std::size_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::uint64_t> words(n / 8 + 1);
  for (std::uint64_t& word : words) word = random.next();
  Bytes out(n);
  std::memcpy(out.data(), words.data(), n);
  return out;
}

/// [first, end) in any order.
inline std::vector<std::size_t> shuffled(std::size_t first, std::size_t end, Random& random) {
  std::vector<std::size_t> out(end - first);
  std::iota(out.begin(), out.end(), first);
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i)]);
  return out;
}

/// Where a head is in a host pool, from its start, by the orders of dimensions at HostLayout.
inline std::size_t host_offset(const Geometry& geometry, HostLayout layout, std::size_t num_pages,
                               std::size_t plane, std::size_t layer, std::size_t slot,
                               std::size_t head) {
  const std::size_t layers = geometry.num_layers, page_size = geometry.page_size;
  const std::size_t heads = geometry.planes[plane].heads;
  const std::size_t page = slot / page_size, token = slot % page_size;
  std::size_t index = 0;
  switch (layout) {
    case HostLayout::layer_first:
      index = (layer * num_pages * page_size + slot) * heads + head;
      break;
    case HostLayout::page_first:
      index = (slot * layers + layer) * heads + head;
      break;
    case HostLayout::page_first_direct:
      index = ((page * layers + layer) * page_size + token) * heads + head;
      break;
    case HostLayout::page_head:
      index = ((page * heads + head) * page_size + token) * layers + layer;
      break;
  }
  std::size_t start = 0;
  for (std::size_t i = 0; i < plane; ++i)
    start += num_pages * geometry.page_bytes(geometry.planes[i]);
  return start + index * geometry.planes[plane].head_bytes();
}

/// How a test reaches memory that it may not touch itself: `read` from it to host memory, `write`
/// from host memory to it.
struct MemoryAccess {
  using Copy = std::function<void(std::byte* dst, const std::byte* src, std::size_t size_bytes)>;
  Copy read;
  Copy write;
};
inline MemoryAccess host_access() {
  const auto copy = [](std::byte* dst, const std::byte* src, std::size_t n) {
    std::memcpy(dst, src, n);
  };
  return {copy, copy};
}

/// Memory for one pool between two canaries, and what every byte of the three should be.
class WatchedBlock {
 public:
  WatchedBlock(Arena& from, std::size_t size_bytes, MemoryAccess access)
      : from_(from),
        access_(std::move(access)),
        expected_(size_bytes + 2 * kCanaryBytes, kCanary),
        memory_(static_cast<std::byte*>(*from.allocate(expected_.size(), kCanaryBytes))),
        inside_(make_user_arena({memory_ + kCanaryBytes, size_bytes}, from.kind())) {}
  ~WatchedBlock() { from_.free(memory_, expected_.size()); }
  WatchedBlock(const WatchedBlock&) = delete;
  WatchedBlock& operator=(const WatchedBlock&) = delete;

  /// Gives the memory between the canaries.
  Arena& arena() { return *inside_; }
  std::size_t size_bytes() const { return expected_.size() - 2 * kCanaryBytes; }
  void fill(const Bytes& bytes) {
    std::copy(bytes.begin(), bytes.end(), expected_at(0));
    access_.write(memory_, expected_.data(), expected_.size());
  }
  Bytes::iterator expected_at(std::size_t offset) {
    return expected_.begin() + static_cast<std::ptrdiff_t>(kCanaryBytes + offset);
  }
  std::size_t offset_of(const std::byte* address) const {
    return static_cast<std::size_t>(address - memory_) - kCanaryBytes;
  }
  ::testing::AssertionResult is_as_expected() const {
    Bytes now(expected_.size());
    access_.read(now.data(), memory_, now.size());
    const auto differ = std::mismatch(now.begin(), now.end(), expected_.begin());
    if (differ.first == now.end()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << "byte " << differ.first - now.begin() - static_cast<std::ptrdiff_t>(kCanaryBytes)
           << " of " << size_bytes() << " is " << static_cast<int>(*differ.first) << ", expected "
           << static_cast<int>(*differ.second);
  }

 private:
  static constexpr std::size_t kCanaryBytes = 4096;  // keeps the alignment that pools ask for

  Arena& from_;
  MemoryAccess access_;
  Bytes expected_;
  std::byte* memory_;
  std::unique_ptr<Arena> inside_;
};

/// Where round trips happen.
struct CopyPlace {
  Arena& device_arena;
  Arena& host_arena;
  Copier& copier;
  MemoryAccess device_access = host_access();
  LoadOrder order = LoadOrder::by_layer;
};

struct RoundTripCase {
  Geometry geometry;
  DeviceLayout device_layout = DeviceLayout::layer_first;
  HostLayout host_layout = HostLayout::layer_first;
  std::uint64_t seed = 1;
  std::size_t num_device_pages = 13;  // padding included
  std::size_t num_host_pages = 11;
  std::size_t num_copied = 7;
};

class RoundTrip {
 public:
  RoundTrip(const CopyPlace& place, const RoundTripCase& what)
      : what_(what),
        random_(what.seed),
        copier_(place.copier),
        order_(place.order),
        device_block_(place.device_arena,
                      *placed_bytes(geometry(), what.device_layout, what.num_device_pages),
                      place.device_access),
        host_block_(place.host_arena,
                    *placed_bytes(geometry(), what.host_layout, what.num_host_pages),
                    host_access()),
        device_(
            *KvPool::create({.geometry = geometry(),
                             .capacity_tokens = (what.num_device_pages - 1) * geometry().page_size,
                             .layout = what.device_layout},
                            device_block_.arena())),
        host_(*HostPool::create({.layout = what.host_layout,
                                 .size_bytes = what.num_host_pages * geometry().page_bytes(),
                                 .keep_free_bytes = 0},
                                *device_, host_block_.arena())) {}

  /// Random pages to the host; after the device was wiped, from there to other pages; then slots
  /// inside the device.
  void run() {
    device_block_.fill(random_bytes(device_block_.size_bytes(), random_.next()));
    host_block_.fill(Bytes(host_block_.size_bytes(), kPoison));
    const std::vector<HostPageId> pages = take_host_pages();
    backup(pages);
    device_block_.fill(Bytes(device_block_.size_bytes(), kPoison));
    load(pages);
    device_block_.fill(random_bytes(device_block_.size_bytes(), random_.next()));
    move();
    EXPECT_TRUE(host_->check().ok());
  }

 private:
  using Address = Bytes::iterator (RoundTrip::*)(std::size_t plane, std::size_t layer,
                                                 std::size_t slot, std::size_t head);

  const Geometry& geometry() const { return what_.geometry; }
  std::size_t stream() { return random_.below(copier_.num_streams()); }

  /// Different pages of [first, end): some neighbours, then others in any order.
  template <typename Id>
  std::vector<Id> pick(std::size_t first, std::size_t end) {
    constexpr std::size_t kNeighbours = 3;
    const std::size_t start = first + random_.below(end - first - kNeighbours + 1);
    std::vector<Id> out;
    for (std::size_t i = 0; i < kNeighbours; ++i) out.push_back(static_cast<Id>(start + i));
    for (const std::size_t page : shuffled(first, end, random_))
      if (out.size() < what_.num_copied && (page < start || page >= start + kNeighbours))
        out.push_back(static_cast<Id>(page));
    return out;
  }

  std::vector<HostPageId> take_host_pages() {
    std::vector<HostPageId> all(what_.num_host_pages);
    host_->alloc(all).value();
    std::vector<HostPageId> pages = pick<HostPageId>(0, all.size());
    std::erase_if(all, [&](HostPageId page) {
      return std::find(pages.begin(), pages.end(), page) != pages.end();
    });
    host_->free(all);
    return pages;
  }

  void backup(const std::vector<HostPageId>& host_pages) {
    SCOPED_TRACE("backup");
    const auto device_pages = pick<PageId>(1, what_.num_device_pages);
    host_->protect_write(host_pages);
    await(copier_.backup({*device_, *host_, device_pages, host_pages}, stream()));
    copy_pages(&RoundTrip::host_byte, host_pages, &RoundTrip::device_byte, device_pages);
    expect_bytes();
    host_->complete_write(host_pages);
    host_->device_gone(host_pages);
  }

  void load(const std::vector<HostPageId>& host_pages) {
    SCOPED_TRACE("load");
    const auto device_pages = pick<PageId>(1, what_.num_device_pages);
    host_->protect_load(host_pages);
    await(copier_.load({*device_, *host_, device_pages, host_pages}, stream(), order_));
    copy_pages(&RoundTrip::device_byte, device_pages, &RoundTrip::host_byte, host_pages);
    expect_bytes();
    host_->complete_load(host_pages);
    EXPECT_EQ(host_->count(PageState::synced), host_pages.size());
  }

  /// A run of slots at the end in one piece; of the others a random half receives from the rest.
  void move() {
    SCOPED_TRACE("move");
    constexpr std::size_t kRun = 4;
    const std::size_t end = what_.num_device_pages * geometry().page_size;
    const std::size_t start = end - 2 * kRun;
    std::vector<std::size_t> dst(kRun), src(kRun);
    std::iota(dst.begin(), dst.end(), start + kRun);
    std::iota(src.begin(), src.end(), start);
    const auto order = shuffled(geometry().page_size, start, random_);
    for (std::size_t i = 0; i < order.size() / 2; ++i) {
      const bool from_padding = random_.below(8) == 0;
      const std::size_t other = order.size() / 2 + random_.below(order.size() - order.size() / 2);
      dst.push_back(order[i]);
      src.push_back(from_padding ? random_.below(geometry().page_size) : order[other]);
    }
    std::vector<SlotId> to, from;
    for (const std::size_t slot : dst) to.push_back(static_cast<SlotId>(slot));
    for (const std::size_t slot : src) from.push_back(static_cast<SlotId>(slot));
    await(copier_.move(*device_, to, from, stream()), dst.size() * geometry().token_bytes());
    for (std::size_t i = 0; i < dst.size(); ++i)
      copy_slot(&RoundTrip::device_byte, dst[i], &RoundTrip::device_byte, src[i]);
    expect_bytes();
  }

  void await(const Result<Transfer>& transfer) {
    await(transfer, what_.num_copied * geometry().page_bytes());
  }
  void await(const Result<Transfer>& transfer, std::size_t size_bytes) {
    ASSERT_TRUE(transfer.ok()) << transfer.error().message;
    EXPECT_EQ(transfer->size_bytes(), size_bytes);
    for (std::size_t layer = 0; layer < geometry().num_layers; ++layer) {
      EXPECT_TRUE(transfer->wait_layer(layer).ok());
      EXPECT_GT(transfer->layers_ready(), layer);
    }
    EXPECT_TRUE(transfer->wait().ok());
    EXPECT_EQ(transfer->state(), TransferState::done);
    EXPECT_EQ(transfer->layers_ready(), geometry().num_layers);
  }

  Bytes::iterator device_byte(std::size_t plane, std::size_t layer, std::size_t slot,
                              std::size_t head) {
    return device_block_.expected_at(device_block_.offset_of(
        row_address(device_->planes()[plane], geometry().page_size, layer, slot, head)));
  }
  Bytes::iterator host_byte(std::size_t plane, std::size_t layer, std::size_t slot,
                            std::size_t head) {
    return host_block_.expected_at(
        host_offset(geometry(), what_.host_layout, what_.num_host_pages, plane, layer, slot, head));
  }
  void copy_slot(Address to, std::size_t to_slot, Address from, std::size_t from_slot) {
    for (std::size_t plane = 0; plane < geometry().planes.size(); ++plane)
      for (std::size_t layer = 0; layer < geometry().num_layers; ++layer)
        for (std::size_t head = 0; head < geometry().planes[plane].heads; ++head)
          std::copy_n((this->*from)(plane, layer, from_slot, head),
                      geometry().planes[plane].head_bytes(),
                      (this->*to)(plane, layer, to_slot, head));
  }
  template <typename To, typename From>
  void copy_pages(Address to, const std::vector<To>& to_pages, Address from,
                  const std::vector<From>& from_pages) {
    const std::size_t page_size = geometry().page_size;
    for (std::size_t i = 0; i < to_pages.size(); ++i)
      for (std::size_t token = 0; token < page_size; ++token)
        copy_slot(to, index_of(to_pages[i]) * page_size + token, from,
                  index_of(from_pages[i]) * page_size + token);
  }
  void expect_bytes() {
    EXPECT_TRUE(device_block_.is_as_expected()) << "of the device pool";
    EXPECT_TRUE(host_block_.is_as_expected()) << "of the host pool";
  }

  RoundTripCase what_;
  Random random_;
  Copier& copier_;
  LoadOrder order_;
  WatchedBlock device_block_, host_block_;
  std::unique_ptr<KvPool> device_;
  std::unique_ptr<HostPool> host_;
};

/// A family of attention in a small size: rows that are no multiples of 16 bytes among them.
struct Family {
  std::string name;
  std::vector<std::size_t> page_sizes;
  Geometry (*geometry)(const LayerRange& layers);
};
inline std::vector<Family> families() {
  using Layers = const LayerRange&;
  const std::vector<std::size_t> sizes{1, 16, 64};
  const auto mha = [](Layers l) { return mha_geometry({l, 3, 24, 20}); };
  const auto mla = [](Layers l) { return mla_geometry({l, 20, 8}); };
  const auto split = [](Layers l) { return mla_geometry({l, 20, 8, true}); };
  const auto dsa = [](Layers l) {
    return dsa_geometry({.mla = {l, 24, 8}, .index_dim = 12, .index_scale = true});
  };
  const auto sparse = [](Layers l) { return double_sparse_geometry({{l, 2, 16}, 3}); };
  const auto state = [](Layers l) {
    return state_geometry(l.num_layers, {{"conv", 1, 20, l.dtype}, {"ssm", 4, 24, DType::fp32}});
  };
  return {{"mha", sizes, mha},
          {"mla", sizes, mla},
          {"mla_split", sizes, split},
          {"dsa", sizes, dsa},
          {"double_sparse", sizes, sparse},
          {"state", {1}, state}};
}

constexpr HostLayout kHostLayouts[] = {HostLayout::layer_first, HostLayout::page_first,
                                       HostLayout::page_first_direct, HostLayout::page_head};

/// Every type, page size and device layout; the first that fails ends it.
inline void round_trips(const CopyPlace& place, const Family& family, HostLayout layout) {
  std::uint64_t seed = 0;
  for (const DType dtype :
       {DType::fp16, DType::bf16, DType::fp32, DType::fp8_e4m3, DType::fp8_e5m2, DType::int8})
    for (const std::size_t page_size : family.page_sizes)
      for (const DeviceLayout device : {DeviceLayout::layer_first, DeviceLayout::page_major}) {
        const RoundTripCase what{.geometry = family.geometry({3, 2, page_size, dtype}),
                                 .device_layout = device,
                                 .host_layout = layout,
                                 .seed = ++seed};
        SCOPED_TRACE(what.geometry.describe() + ", seed " + std::to_string(seed));
        RoundTrip(place, what).run();
        if (::testing::Test::HasFailure()) return;
      }
}

}  // namespace pando::testing
