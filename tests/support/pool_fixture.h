// SPDX-License-Identifier: Apache-2.0
// What tests of pools are written in: every family as a small geometry, arenas that notice stray
// writes and leaks or fail when told to, pools of every kind, and the bytes of a pool slot by slot.
// Sizes are small and pairwise different, so that a mixed-up stride hits other bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/random.h"
#include "pando/pools.h"
#include "pool/plane_memory.h"
#include "support/cache_fixture.h"

namespace pando::testing {

using Bytes = std::vector<std::byte>;

inline constexpr DType kAllTypes[] = {DType::fp16,     DType::bf16,     DType::fp32,
                                      DType::fp8_e4m3, DType::fp8_e5m2, DType::int8};

struct Family {
  std::string name;
  Geometry geometry;
};

/// One of each. A state's page is one snapshot, whatever `layers` say; its second plane is fp32.
inline std::vector<Family> all_families(const LayerRange& layers) {
  const MhaShape mha{.layers = layers, .heads = 3, .head_dim = 4, .value_dim = 12};
  const MlaShape mla{.layers = layers, .nope_dim = 20, .rope_dim = 8};
  MlaShape split = mla;
  split.split = true;
  DsaShape dsa{.mla = mla, .index_dim = 12};
  DsaShape scaled = dsa;
  scaled.index_scale = true;
  return {{"mha", mha_geometry(mha)},
          {"mla", mla_geometry(mla)},
          {"mla split", mla_geometry(split)},
          {"dsa", dsa_geometry(dsa)},
          {"dsa with scales", dsa_geometry(scaled)},
          {"double sparse", double_sparse_geometry({.mha = mha, .label_dim = 8})},
          {"state", state_geometry(layers.num_layers,
                                   {{"conv", 3, 8, layers.dtype}, {"ssm", 5, 4, DType::fp32}})}};
}

inline void fill_random(std::span<std::byte> out, Random& random) {
  for (std::byte& byte : out) byte = static_cast<std::byte>(random.next() & 0xff);
}
inline Bytes random_bytes(std::size_t size_bytes, std::uint64_t seed) {
  Random random(seed);
  Bytes out(size_bytes);
  fill_random(out, random);
  return out;
}

/// The heap, where each block lies between canaries and begins as random bytes. A canary that was
/// written over, a wrong free and a leak fail the test.
class CanaryArena : public Arena {
 public:
  ~CanaryArena() override { EXPECT_EQ(live_blocks(), 0u) << "blocks were not given back"; }

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    const std::size_t margin = std::max(alignment, kMinMargin);
    Result<void*> outer = heap_->allocate(size_bytes + 2 * margin, margin);
    if (!outer) return outer;
    auto* begin = static_cast<std::byte*>(*outer);
    std::memset(begin, kCanary, size_bytes + 2 * margin);
    fill_random({begin + margin, size_bytes}, random_);
    blocks_[begin + margin] = {size_bytes, margin};
    return begin + margin;
  }
  void free(void* memory, std::size_t size_bytes) override {
    const auto block = blocks_.find(static_cast<std::byte*>(memory));
    if (block == blocks_.end() || block->second.size_bytes != size_bytes) {
      ADD_FAILURE() << "free of " << size_bytes << " bytes at " << memory << ", which is no block";
      return;
    }
    const auto [size, margin] = block->second;
    EXPECT_TRUE(is_canary(block->first - margin, margin)) << "written before a block";
    EXPECT_TRUE(is_canary(block->first + size, margin)) << "written behind a block";
    heap_->free(block->first - margin, size + 2 * margin);
    blocks_.erase(block);
  }
  std::size_t available_bytes() const override { return heap_->available_bytes(); }
  std::string_view name() const override { return "canaries"; }

  std::size_t live_blocks() const { return blocks_.size(); }

 private:
  static constexpr std::size_t kMinMargin = 64;
  static constexpr unsigned char kCanary = 0xc5;
  struct Block {
    std::size_t size_bytes = 0;
    std::size_t margin = 0;
  };

  static bool is_canary(const std::byte* at, std::size_t n) {
    return std::all_of(at, at + n, [](std::byte byte) { return byte == std::byte{kCanary}; });
  }

  const std::unique_ptr<Arena> heap_ = make_malloc_arena();
  std::map<std::byte*, Block> blocks_;
  Random random_{7};
};

/// Refuses the allocation of this number, the first being 0, and says what it has.
class FailingArena final : public CanaryArena {
 public:
  explicit FailingArena(std::optional<std::size_t> fail_at,
                        std::size_t available_bytes = std::size_t{1} << 40)
      : fail_at_(fail_at), available_bytes_(available_bytes) {}

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    if (num_asked_++ == fail_at_) return Error{ErrorCode::out_of_capacity, "failed on purpose"};
    Result<void*> memory = CanaryArena::allocate(size_bytes, alignment);
    if (memory) available_bytes_ -= size_bytes;
    return memory;
  }
  void free(void* memory, std::size_t size_bytes) override {
    CanaryArena::free(memory, size_bytes);
    available_bytes_ += size_bytes;
  }
  std::size_t available_bytes() const override { return available_bytes_; }
  std::string_view name() const override { return "failing"; }

  std::size_t num_asked() const { return num_asked_; }

 private:
  const std::optional<std::size_t> fail_at_;
  std::size_t available_bytes_;
  std::size_t num_asked_ = 0;
};

/// Where a row is among the bytes of its slot: planes one after the other, in each its layers.
inline std::size_t row_offset(const Geometry& geometry, std::size_t plane, std::size_t layer) {
  std::size_t offset = layer * geometry.planes[plane].row_bytes();
  for (std::size_t i = 0; i < plane; ++i)
    offset += geometry.num_layers * geometry.planes[i].row_bytes();
  return offset;
}

/// Calls visit(offset, address, size_bytes) for each head in each row of a slot.
template <typename Visit>
void for_each_head(const Geometry& geometry, const std::vector<PlaneMemory>& planes,
                   std::size_t slot, Visit&& visit) {
  for (std::size_t plane = 0; plane < planes.size(); ++plane) {
    const std::size_t head_bytes = geometry.planes[plane].head_bytes();
    for (std::size_t layer = 0; layer < geometry.num_layers; ++layer) {
      for (std::size_t head = 0; head < geometry.planes[plane].heads; ++head)
        visit(row_offset(geometry, plane, layer) + head * head_bytes,
              row_address(planes[plane], geometry.page_size, layer, slot, head), head_bytes);
    }
  }
}

/// All bytes of a pool, by slot; the padding page included.
using Image = std::vector<Bytes>;
inline Bytes& at(Image& image, SlotId slot) {
  return image[static_cast<std::size_t>(index_of(slot))];
}
inline const Bytes& at(const Image& image, SlotId slot) {
  return image[static_cast<std::size_t>(index_of(slot))];
}
inline Image image_of(const KvPool& pool) {
  const Geometry& geometry = pool.geometry();
  Image image(pool.num_pages() * geometry.page_size, Bytes(geometry.token_bytes()));
  for (std::size_t slot = 0; slot < image.size(); ++slot)
    for_each_head(geometry, pool.planes(), slot,
                  [&](std::size_t offset, const std::byte* at, std::size_t size_bytes) {
                    std::memcpy(image[slot].data() + offset, at, size_bytes);
                  });
  return image;
}

/// Adopted pools have all layers of a slot together, as page_first has, or of a page.
enum class PoolKind { layer_first, page_major, adopted, adopted_by_page };
inline constexpr PoolKind kPoolKinds[] = {PoolKind::layer_first, PoolKind::page_major,
                                          PoolKind::adopted, PoolKind::adopted_by_page};

/// A pool of random bytes, and what it is over.
struct TestPool {
  TestPool(PoolKind kind, const Geometry& geometry, std::size_t num_pages) {
    if (kind == PoolKind::layer_first || kind == PoolKind::page_major) {
      const bool by_page = kind == PoolKind::page_major;
      pool = *KvPool::create(
          {.geometry = geometry,
           .capacity_tokens = (num_pages - 1) * geometry.page_size,
           .layout = by_page ? DeviceLayout::page_major : DeviceLayout::layer_first},
          arena);
    } else {
      const bool by_page = kind == PoolKind::adopted_by_page;
      const HostLayout strides = by_page ? HostLayout::page_first_direct : HostLayout::page_first;
      own.resize(num_pages * geometry.page_bytes());
      pool = *KvPool::adopt(geometry, num_pages, place(geometry, strides, num_pages, own.data()),
                            MemoryKind::host);
    }
    Random random(num_pages);
    for (std::size_t slot = 0; slot < num_pages * geometry.page_size; ++slot)
      for_each_head(geometry, pool->planes(), slot, [&](std::size_t, std::byte* at, std::size_t n) {
        fill_random({at, n}, random);
      });
  }
  KvPool* operator->() const { return pool.get(); }

  CanaryArena arena;
  Bytes own;
  std::unique_ptr<KvPool> pool;
};

}  // namespace pando::testing
