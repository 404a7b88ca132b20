// SPDX-License-Identifier: Apache-2.0
// What writes, moves and saves rows, on pools of every kind. Each case compares the whole pool,
// slot by slot, with an image that the dumbest loop has changed in the same way; whatever is
// refused must leave that image as it was.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "pando/pools.h"
#include "pool/numeric.h"
#include "support/pool_fixture.h"

namespace pando::testing {
namespace {

constexpr ErrorCode kInvalid = ErrorCode::invalid_argument;
constexpr std::size_t kNumPages = 5;
constexpr DType kFloats[] = {DType::fp16, DType::bf16, DType::fp32};

LayerRange layers_of(DType dtype, std::size_t page_size = 4) {
  return {.num_layers = 3, .first_layer = 2, .page_size = page_size, .dtype = dtype};
}
Geometry mha(DType dtype = DType::bf16) { return all_families(layers_of(dtype))[0].geometry; }
Geometry mla() { return all_families(layers_of(DType::bf16))[1].geometry; }

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// One element by the definition: to fp32, divided, rounded to the other type. Of a NaN only its
/// sign is kept: devices divide it differently.
Bytes converted(const std::byte* from, DType from_type, DType to_type, float scale) {
  float value = 0;
  if (from_type == DType::fp16) value = numeric::from_fp16(read<std::uint16_t>(from));
  if (from_type == DType::bf16) value = numeric::from_bf16(read<std::uint16_t>(from));
  if (from_type == DType::fp32) value = read<float>(from);
  const auto bytes = [](auto stored) {
    Bytes out(sizeof(stored));
    std::memcpy(out.data(), &stored, sizeof(stored));
    return out;
  };
  const float nan = std::bit_cast<float>(std::signbit(value) ? 0xffff'ffff : 0x7fff'ffff);
  value = std::isnan(value) ? nan : value / scale;
  if (to_type == DType::fp16) return bytes(numeric::to_fp16(value));
  if (to_type == DType::bf16) return bytes(numeric::to_bf16(value));
  if (to_type == DType::fp8_e4m3) return bytes(numeric::to_e4m3(value));
  if (to_type == DType::fp8_e5m2) return bytes(numeric::to_e5m2(value));
  if (to_type == DType::int8) return bytes(numeric::to_int8(value));
  return bytes(value);
}

/// Rows to write, with the bytes they are in. Elements are random bits, and every other one a
/// number that all types can hold without saturating.
struct Source {
  Source(const Plane& plane, std::size_t num_rows, DType dtype, float scale, std::size_t gap)
      : stride(plane.heads * plane.dim * size_of(dtype) + gap * size_of(dtype)),
        bytes(random_bytes(num_rows * stride, num_rows + gap)) {
    for (std::size_t i = 0; i < bytes.size() / size_of(dtype); i += 2) {
      const auto small = static_cast<float>(i % 37) * 0.75F - 12;
      const Bytes element =
          converted(reinterpret_cast<const std::byte*>(&small), DType::fp32, dtype, 1.0F / scale);
      std::copy(element.begin(), element.end(), bytes.data() + i * size_of(dtype));
    }
    rows = {
        .data = bytes.data(), .dtype = dtype, .stride_bytes = gap > 0 ? stride : 0, .scale = scale};
  }

  std::size_t stride;
  Bytes bytes;
  Rows rows;
};

/// Does to an image what set() of these rows does to a pool.
void set_naively(Image& image, const Geometry& geometry, std::size_t layer, std::size_t plane,
                 const Slots& slots, const Source& source) {
  const DType from = source.rows.dtype, to = geometry.planes[plane].dtype;
  const std::size_t num_elements = geometry.planes[plane].heads * geometry.planes[plane].dim;
  for (std::size_t row = 0; row < slots.size(); ++row) {
    std::byte* to_row = at(image, slots[row]).data() + row_offset(geometry, plane, layer);
    for (std::size_t i = 0; i < num_elements; ++i) {
      const std::byte* source_at = source.bytes.data() + row * source.stride + i * size_of(from);
      const Bytes element = from == to && source.rows.scale == 1
                                ? Bytes(source_at, source_at + size_of(to))
                                : converted(source_at, from, to, source.rows.scale);
      std::copy(element.begin(), element.end(), to_row + i * size_of(to));
    }
  }
}

/// Sets one layer of a pool, and expects nothing else in it to change.
void expect_set(KvPool& pool, DType from, float scale, std::size_t gap) {
  const Geometry& geometry = pool.geometry();
  const Slots slots = {SlotId{7}, SlotId{0}, SlotId{18}, SlotId{19}, SlotId{4}};  // 0 is padding
  Image expected = image_of(pool);
  std::vector<Source> sources;
  std::vector<Rows> rows;
  for (std::size_t plane = 0; plane < geometry.planes.size(); ++plane) {
    sources.emplace_back(geometry.planes[plane], slots.size(), from, scale, gap);
    set_naively(expected, geometry, 1, plane, slots, sources.back());
  }
  for (const Source& source : sources) rows.push_back(source.rows);
  ASSERT_TRUE(pool.set(geometry.first_layer + 1, slots, rows).ok());
  EXPECT_EQ(image_of(pool), expected);
}

TEST(KvPoolRows, SetConvertsEveryPairOfTypes) {
  for (const PoolKind kind : kPoolKinds)
    for (const DType from : kFloats)
      for (const DType to : kAllTypes)
        for (const float scale : {1.0F, 0.37F, 64.0F})
          for (const std::size_t gap : {0u, 3u}) {
            SCOPED_TRACE(::testing::Message() << to_string(from) << " to " << to_string(to)
                                              << " by " << scale << ", gap " << gap);
            const TestPool pool(kind, mha(to), kNumPages);
            expect_set(*pool.pool, from, scale, gap);
          }
}

TEST(KvPoolRows, SetCopiesRowsOfItsOwnTypeBitForBit) {
  for (const PoolKind kind : kPoolKinds)
    for (const DType dtype : kAllTypes)
      for (const std::size_t gap : {0u, 3u}) {
        SCOPED_TRACE(to_string(dtype));
        const TestPool pool(kind, mha(dtype), kNumPages);
        expect_set(*pool.pool, dtype, 1.0F, gap);
      }
}

TEST(KvPoolRows, SetWritesEveryPlaneOfEveryFamily) {
  for (const PoolKind kind : kPoolKinds)
    for (const Family& family : all_families(layers_of(DType::fp8_e5m2))) {
      SCOPED_TRACE(family.name);
      const std::size_t num_pages = kNumPages * 4 / family.geometry.page_size;
      const TestPool pool(kind, family.geometry, num_pages);
      expect_set(*pool.pool, DType::fp32, 1.0F, 1);
    }
}

TEST(KvPoolRows, TwoPartsMakeTheSameLatentAsOneRow) {
  for (const PoolKind kind : kPoolKinds) {
    const TestPool whole(kind, mla(), kNumPages), parts(kind, mla(), kNumPages);
    const Slots slots = slot_range(3, 9);
    const Plane latent = mla().planes[0];
    const Source source(latent, slots.size(), DType::fp32, 2.0F, 0);
    ASSERT_TRUE(whole->set(2, slots, {{source.rows}}).ok());
    Rows nope = source.rows, rope = source.rows;
    nope.stride_bytes = rope.stride_bytes = source.stride;
    rope.data = source.bytes.data() + latent.first_part * sizeof(float);
    ASSERT_TRUE(parts->set_parts(2, slots, nope, rope).ok());
    EXPECT_EQ(image_of(*parts.pool), image_of(*whole.pool));
  }
}

TEST(KvPoolRows, WhatSetRefusesChangesNothing) {
  const TestPool pool(PoolKind::layer_first, mha(), kNumPages);
  const TestPool latents(PoolKind::layer_first, mla(), kNumPages);
  const Bytes data = random_bytes(4096, 1);
  const Rows good{.data = data.data(), .dtype = DType::bf16};
  const Slots two = slot_range(4, 6);
  const auto set = [&](const Slots& slots, const std::vector<Rows>& rows, std::size_t layer = 2) {
    return pool->set(layer, slots, rows);
  };
  // The second plane is bad, so that the first must not have been written either.
  const auto with = [&](const std::function<void(Rows&)>& spoil) {
    Rows bad = good;
    spoil(bad);
    return std::pair(set(two, {good, bad}), latents->set_parts(2, two, good, bad));
  };
  const Image before = image_of(*pool.pool), latents_before = image_of(*latents.pool);
  EXPECT_TRUE(fails(set(two, {good}), kInvalid, "1 planes are given; expected 2"));
  EXPECT_TRUE(fails(set(two, {good, good, good}), kInvalid, "3 planes are given; expected 2"));
  EXPECT_TRUE(fails(set(two, {good, good}, 5), kInvalid, "no layer 5; it has [2, 5)"));
  EXPECT_TRUE(fails(set(two, {good, good}, 1), kInvalid, "no layer 1"));
  for (const std::int64_t slot : {std::int64_t{20}, std::int64_t{-1}, INT64_MAX, INT64_MIN}) {
    const Slots slots = {SlotId{4}, SlotId{slot}};
    const std::string message = ": slot " + std::to_string(slot) + " is not in [0, 20)";
    EXPECT_TRUE(fails(set(slots, {good, good}), kInvalid, "set" + message));
    EXPECT_TRUE(fails(latents->set_parts(2, slots, good, good), kInvalid, "set_parts" + message));
  }
  struct Case {
    std::function<void(Rows&)> spoil;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](Rows& rows) { rows.data = nullptr; }, "expected memory aligned to 2 bytes"},
      {[&](Rows& rows) { rows.data = data.data() + 1; }, "expected memory aligned to 2 bytes"},
      {[](Rows& rows) { rows.stride_bytes = 14; }, "are 14 bytes apart; expected at least"},
      {[](Rows& rows) { rows.stride_bytes = 101; }, "are 101 bytes apart; expected at least"},
      {[](Rows& rows) { rows.scale = 0; }, "scale 0 of plane"},
      {[](Rows& rows) { rows.scale = -1; }, "scale -1 of plane"},
      {[](Rows& rows) { rows.scale = std::numeric_limits<float>::quiet_NaN(); }, "scale nan of"},
      {[](Rows& rows) { rows.dtype = DType::fp8_e4m3; }, "rows of fp8_e4m3 with scale 1 cannot"},
      {[](Rows& rows) { rows.dtype = DType::int8; },
       "rows of int8 with scale 1 cannot be written"}};
  for (const Case& test : cases) {
    const auto [whole, parts] = with(test.spoil);
    EXPECT_TRUE(fails(whole, kInvalid, test.message));
    EXPECT_TRUE(fails(parts, kInvalid, test.message));
  }
  EXPECT_TRUE(
      fails(pool->set_parts(2, two, good, good), kInvalid, "'key' is not written in parts"));
  EXPECT_EQ(image_of(*pool.pool), before);
  EXPECT_EQ(image_of(*latents.pool), latents_before);
}

TEST(KvPoolRows, RowsOfFp8WithAScaleAreRefused) {
  const TestPool pool(PoolKind::layer_first, mha(DType::fp8_e4m3), kNumPages);
  const Bytes data(4096);
  Rows rows{.data = data.data(), .dtype = DType::fp8_e4m3};
  EXPECT_TRUE(pool->set(2, slot_range(4, 6), std::array{rows, rows}).ok());
  rows.scale = 2;
  EXPECT_TRUE(fails(pool->set(2, slot_range(4, 6), std::array{rows, rows}), kInvalid, "scale 2"));
}

// ---- Moving.

void expect_moved(const TestPool& pool, const Slots& dst, const Slots& src) {
  const Image before = image_of(*pool.pool);
  Image expected = before;
  for (std::size_t i = 0; i < dst.size(); ++i) at(expected, dst[i]) = at(before, src[i]);
  ASSERT_TRUE(pool->move(dst, src).ok());
  EXPECT_EQ(image_of(*pool.pool), expected);
}

/// Slots of all pages but the padding page, in random order.
Slots shuffled(const TestPool& pool, Random& random) {
  const std::size_t page_size = pool->geometry().page_size;
  Slots slots = slot_range(static_cast<std::int64_t>(page_size),
                           static_cast<std::int64_t>(pool->num_pages() * page_size));
  for (std::size_t i = slots.size(); i > 1; --i) std::swap(slots[i - 1], slots[random.below(i)]);
  return slots;
}

TEST(KvPoolRows, MoveCopiesWhatTheSourcesHeldBefore) {
  Random random(3);
  for (const PoolKind kind : kPoolKinds)
    for (const Family& family : all_families(layers_of(DType::bf16))) {
      SCOPED_TRACE(family.name);
      const TestPool pool(kind, family.geometry, 32 / family.geometry.page_size);
      const Slots slots = shuffled(pool, random);
      const auto half = slots.begin() + static_cast<std::ptrdiff_t>(slots.size() / 2);
      expect_moved(pool, {slots.begin(), half}, {half, half + (half - slots.begin())});
      expect_moved(pool, slots, shuffled(pool, random));  // chains and cycles of every length
      expect_moved(pool, slot_range(5, 20), slot_range(4, 19));
      expect_moved(pool, slot_range(4, 19), slot_range(5, 20));
      expect_moved(pool, slot_range(12, 18), slot_range(5, 11));  // neighbours, across pages
      expect_moved(pool, {SlotId{9}, SlotId{14}}, {SlotId{14}, SlotId{9}});
      expect_moved(pool, {SlotId{9}, SlotId{14}}, {SlotId{5}, SlotId{5}});
      expect_moved(pool, {SlotId{9}}, {SlotId{9}});
      expect_moved(pool, {SlotId{9}}, {SlotId{0}});
      expect_moved(pool, {}, {});
    }
}

TEST(KvPoolRows, WhatMoveRefusesChangesNothing) {
  const TestPool pool(PoolKind::layer_first, mha(), kNumPages);
  const Image before = image_of(*pool.pool);
  const auto refused = [&](const Slots& dst, const Slots& src, std::string_view message) {
    return fails(pool->move(dst, src), kInvalid, message);
  };
  EXPECT_TRUE(refused(slot_range(4, 6), slot_range(8, 9), "1 slots to 2 slots"));
  EXPECT_TRUE(refused({SlotId{4}, SlotId{5}, SlotId{4}}, slot_range(8, 11), "slot 4 is written"));
  EXPECT_TRUE(refused({SlotId{4}, SlotId{3}}, slot_range(8, 10), "slot 3 is not in [4, 20)"));
  EXPECT_TRUE(refused({SlotId{4}, SlotId{20}}, slot_range(8, 10), "slot 20 is not in [4, 20)"));
  EXPECT_TRUE(refused(slot_range(4, 6), {SlotId{8}, SlotId{20}}, "slot 20 is not in [0, 20)"));
  EXPECT_TRUE(refused(slot_range(4, 6), {SlotId{8}, SlotId{-1}}, "slot -1 is not in [0, 20)"));
  EXPECT_EQ(image_of(*pool.pool), before);
}

// ---- Saving.

TEST(KvPoolRows, WhatWasSavedComesBackInOtherSlotsOfAPoolOfAnyKind) {
  Random random(5);
  for (const std::size_t page_size : {1u, 4u, 16u})
    for (const Family& family : all_families(layers_of(DType::fp16, page_size)))
      for (const PoolKind from : kPoolKinds)
        for (const PoolKind to : kPoolKinds) {
          SCOPED_TRACE(family.name);
          const TestPool source(from, family.geometry, 8), target(to, family.geometry, 9);
          const Image saved_image = image_of(*source.pool);
          Slots src = shuffled(source, random), dst = shuffled(target, random);
          src.front() = SlotId{0};
          src.back() = src[src.size() / 2];
          dst.resize(src.size());
          CanaryArena host;
          const SavedKv saved = *source->save(src, host);
          EXPECT_EQ(saved.num_tokens(), src.size());
          EXPECT_EQ(saved.size_bytes(), src.size() * family.geometry.token_bytes());
          Image expected = image_of(*target.pool);
          for (std::size_t i = 0; i < src.size(); ++i)
            at(expected, dst[i]) = at(saved_image, src[i]);
          ASSERT_TRUE(target->restore(saved, dst).ok());
          EXPECT_EQ(image_of(*target.pool), expected);
          EXPECT_EQ(image_of(*source.pool), saved_image);
        }
}

TEST(KvPoolRows, SavedRowsGiveTheirMemoryBack) {
  const TestPool pool(PoolKind::layer_first, mha(), kNumPages);
  CanaryArena host;
  {
    SavedKv saved = *pool->save(slot_range(4, 9), host);
    saved = *pool->save(slot_range(4, 6), host);
    EXPECT_EQ(saved.num_tokens(), 2u);
    EXPECT_EQ(host.live_blocks(), 1u);
  }
  EXPECT_EQ(host.live_blocks(), 0u);
}

TEST(KvPoolRows, SaveRefusesWithoutAllocating) {
  const TestPool pool(PoolKind::layer_first, mha(), kNumPages);
  const std::size_t needed = 3 * mha().token_bytes();
  FailingArena small({}, needed - 1);
  EXPECT_TRUE(fails(pool->save({}, small), kInvalid, "no slots"));
  EXPECT_TRUE(fails(pool->save(slot_range(18, 21), small), kInvalid, "slot 20 is not in [0, 20)"));
  EXPECT_TRUE(fails(pool->save(slot_range(-1, 1), small), kInvalid, "slot -1 is not in [0, 20)"));
  EXPECT_TRUE(fails(pool->save(slot_range(4, 7), small), ErrorCode::out_of_capacity,
                    "save: 3 tokens needs " + std::to_string(needed) + " bytes"));
  EXPECT_EQ(small.num_asked(), 0u);
  FailingArena failing(0, needed);
  EXPECT_TRUE(fails(pool->save(slot_range(4, 7), failing), ErrorCode::out_of_capacity, "save: 3"));
  EXPECT_EQ(failing.live_blocks(), 0u);
  EXPECT_TRUE(pool->save(slot_range(4, 7), failing).ok()) << "the second time";
  alignas(4096) std::byte memory[8192];
  const auto cuda = make_user_arena(memory, MemoryKind::cuda);
  EXPECT_TRUE(fails(pool->save(slot_range(4, 5), *cuda), kInvalid, "is not memory of the host"));
}

TEST(KvPoolRows, WhatRestoreRefusesChangesNothing) {
  const TestPool pool(PoolKind::layer_first, mha(), kNumPages);
  Geometry shifted = mha();
  ++shifted.first_layer;
  const TestPool other(PoolKind::layer_first, shifted, kNumPages);
  CanaryArena host;
  const SavedKv saved = *pool->save(slot_range(4, 7), host);
  const Image before = image_of(*pool.pool), other_before = image_of(*other.pool);
  const auto refused = [&](const Slots& slots, std::string_view message) {
    return fails(pool->restore(saved, slots), kInvalid, message);
  };
  EXPECT_TRUE(
      fails(other->restore(saved, slot_range(4, 7)), kInvalid, "of other geometry (layers"));
  EXPECT_TRUE(refused(slot_range(8, 10), "2 slots for 3 saved tokens"));
  EXPECT_TRUE(refused(slot_range(8, 12), "4 slots for 3 saved tokens"));
  EXPECT_TRUE(refused(slot_range(3, 6), "slot 3 is not in [4, 20)"));
  EXPECT_TRUE(refused(slot_range(18, 21), "slot 20 is not in [4, 20)"));
  EXPECT_TRUE(refused({SlotId{8}, SlotId{9}, SlotId{8}}, "slot 8 is written twice"));
  EXPECT_EQ(image_of(*pool.pool), before);
  EXPECT_EQ(image_of(*other.pool), other_before);
}

}  // namespace
}  // namespace pando::testing
