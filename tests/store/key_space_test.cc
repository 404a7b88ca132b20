// SPDX-License-Identifier: Apache-2.0
// Keys of stored pages: equal for what may share pages, and for nothing else.
#include "pando/key_space.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

Geometry geometry() {
  return mha_geometry({.layers = {.num_layers = 2, .page_size = 4}, .heads = 2, .head_dim = 8});
}

PageHash hash_of(std::uint8_t byte) {
  PageHash hash{};
  hash.fill(byte);
  return hash;
}

KeySpace space(const StoreScope& scope, const Geometry& shape = geometry(),
               HostLayout layout = HostLayout::page_first,
               ComponentKind component = ComponentKind::full) {
  return KeySpace(scope, shape, layout, component);
}

TEST(KeySpace, AKeyIsHashModelRankAndFingerprint) {
  const KeySpace keys = space({.model = "org/model", .tp_rank = 1, .tp_size = 4});
  std::string hash;
  for (int i = 0; i < 32; ++i) hash += "0a";
  EXPECT_EQ(keys.sglang_name(hash_of(0x0a)), hash + "_org-model_1_4");
  const std::string key = keys.key(hash_of(0x0a));
  EXPECT_EQ(key.substr(0, key.size() - 16), hash + "_org-model_1_4_f");
  EXPECT_EQ(key.substr(key.size() - 16).find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(key, hash + keys.suffix());
}

TEST(KeySpace, PipelineRanksAppearWhereThereAreSeveral) {
  const KeySpace keys = space({.model = "m", .tp_size = 2, .pp_rank = 1, .pp_size = 3});
  EXPECT_NE(keys.suffix().find("_m_0_2_3_1_f"), std::string::npos) << keys.suffix();
}

TEST(KeySpace, RanksWithTheSameBytesShareKeysAndOneOfThemWrites) {
  const auto of_rank = [](std::uint32_t rank, bool same) {
    return space({.tp_rank = rank, .tp_size = 2, .same_on_all_tp_ranks = same});
  };
  EXPECT_EQ(of_rank(0, true).suffix(), of_rank(1, true).suffix());
  EXPECT_TRUE(of_rank(0, true).writes());
  EXPECT_FALSE(of_rank(1, true).writes());
  EXPECT_NE(of_rank(0, false).suffix(), of_rank(1, false).suffix());
  EXPECT_TRUE(of_rank(1, false).writes());
}

TEST(KeySpace, EverythingThatBytesDependOnMakesAnotherKey) {
  const Geometry base = geometry();
  std::set<std::string> suffixes = {space({}).suffix()};
  const auto is_new = [&](const KeySpace& keys) { return suffixes.insert(keys.suffix()).second; };
  const std::vector<std::function<void(Geometry&)>> changes = {
      [](Geometry& g) { g.page_size = 8; },
      [](Geometry& g) { g.num_layers = 3; },
      [](Geometry& g) { g.first_layer = 2; },
      [](Geometry& g) { g.planes[0].heads = 4; },
      [](Geometry& g) { g.planes[1].dim = 16; },
      [](Geometry& g) { g.planes[0].dtype = DType::fp16; },
      [](Geometry& g) { g.planes[0].name = "keys"; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Geometry changed = base;
    changes[i](changed);
    EXPECT_TRUE(is_new(space({}, changed))) << i;
  }
  EXPECT_TRUE(is_new(space({}, base, HostLayout::layer_first)));
  EXPECT_TRUE(is_new(space({}, base, HostLayout::page_first, ComponentKind::window)));
  EXPECT_TRUE(is_new(space({}, base, HostLayout::page_first, ComponentKind::state)));
  EXPECT_TRUE(is_new(space({.model = "other"})));
  EXPECT_FALSE(is_new(space({})));
}

TEST(KeySpace, TheLongestKeyIsAFileName) {
  const StoreScope scope{.model = std::string(128, 'm'),
                         .tp_rank = UINT32_MAX - 1,
                         .tp_size = UINT32_MAX,
                         .pp_rank = UINT32_MAX - 1,
                         .pp_size = UINT32_MAX};
  ASSERT_TRUE(scope.validate().ok());
  EXPECT_LE(space(scope).key(hash_of(1)).size(), 255u);
}

TEST(StoreScope, RefusesNamesAndRanksThatMakeNoKey) {
  const auto check = [](const StoreScope& scope) { return scope.validate(); };
  EXPECT_TRUE(check({}).ok());
  EXPECT_TRUE(fails(check({.model = ""}), ErrorCode::invalid_argument, "0 bytes; expected 1 to"));
  EXPECT_TRUE(fails(check({.model = std::string(129, 'm')}), ErrorCode::invalid_argument, "129"));
  EXPECT_TRUE(fails(check({.model = "a b"}), ErrorCode::invalid_argument, "a byte 0x20 at 1"));
  EXPECT_TRUE(fails(check({.tp_rank = 2, .tp_size = 2}), ErrorCode::invalid_argument,
                    "tensor rank 2 of 2"));
  EXPECT_TRUE(fails(check({.pp_size = 0}), ErrorCode::invalid_argument, "pipeline rank 0 of 0"));
}

TEST(KeySpace, AKeyIsReadBack) {
  for (const ComponentKind component :
       {ComponentKind::full, ComponentKind::window, ComponentKind::state}) {
    for (const StoreScope& scope : std::vector<StoreScope>{
             {.model = "org/model"},
             {.model = "m_2", .tp_rank = 1, .tp_size = 4},
             {.model = "m", .tp_size = 2, .pp_rank = 1, .pp_size = 3},
             {.model = "a_b-c", .pp_rank = 2, .pp_size = 12},
             {.model = "mla", .tp_rank = 1, .tp_size = 8, .same_on_all_tp_ranks = true},
             {.model = "mla", .pp_rank = 1, .pp_size = 2, .same_on_all_tp_ranks = true}}) {
      const std::string key =
          space(scope, geometry(), HostLayout::page_first, component).key(hash_of(0xab));
      SCOPED_TRACE(key);
      const std::optional<ParsedKey> parts = parse_key(key);
      ASSERT_TRUE(parts.has_value());
      EXPECT_EQ(parts->hash, hash_of(0xab));
      EXPECT_EQ(parts->model, scope.model == "org/model" ? "org-model" : scope.model);
      EXPECT_EQ(parts->tp, scope.same_on_all_tp_ranks
                               ? std::nullopt
                               : std::optional(RankOf{scope.tp_rank, scope.tp_size}));
      EXPECT_EQ(parts->pp, scope.pp_size == 1
                               ? std::nullopt
                               : std::optional(RankOf{scope.pp_rank, scope.pp_size}));
      EXPECT_EQ(parts->component, component);
      EXPECT_EQ(parts->fingerprint, key.substr(key.size() - 16));
    }
  }
}

TEST(KeySpace, OtherTextsAreNoKeys) {
  const std::string key = space({.model = "m"}).key(hash_of(1));
  ASSERT_TRUE(parse_key(key).has_value());
  EXPECT_FALSE(parse_key(""));
  EXPECT_FALSE(parse_key(key.substr(0, 64)));
  EXPECT_FALSE(parse_key(key.substr(1)));
  EXPECT_FALSE(parse_key(key.substr(0, key.size() - 1)));
  EXPECT_FALSE(parse_key(key + "0"));
  std::string other = key;
  other[key.size() - 17] = 'x';  // no component
  EXPECT_FALSE(parse_key(other));
  EXPECT_FALSE(parse_key(key.substr(0, 64) + "__f0123456789abcdef"));
}

}  // namespace
}  // namespace pando::testing
