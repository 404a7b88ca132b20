// SPDX-License-Identifier: Apache-2.0
// Geometry by example: what a token of each family takes, computed by hand for models that exist,
// what is refused, and the text that keys of stored pages contain.
#include "pando/pools.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "support/pool_fixture.h"

namespace pando::testing {
namespace {

constexpr LayerRange kLayers{.num_layers = 2, .first_layer = 4, .page_size = 16};
constexpr MlaShape kDeepSeek{
    .layers = {.num_layers = 61, .page_size = 64}, .nope_dim = 512, .rope_dim = 64};

Geometry small() { return mha_geometry({.layers = kLayers, .heads = 2, .head_dim = 8}); }

std::vector<std::string> names_of(const Geometry& geometry) {
  std::vector<std::string> names;
  for (const Plane& plane : geometry.planes) names.push_back(plane.name);
  return names;
}
using Names = std::vector<std::string>;

TEST(Geometry, TypesHaveTheirSizes) {
  EXPECT_EQ(size_of(DType::fp16), 2u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::fp32), 4u);
  EXPECT_EQ(size_of(DType::fp8_e4m3), 1u);
  EXPECT_EQ(size_of(DType::fp8_e5m2), 1u);
  EXPECT_EQ(size_of(DType::int8), 1u);
  std::set<std::string_view> names;
  for (const DType dtype : kAllTypes) names.insert(to_string(dtype));
  EXPECT_EQ(names.size(), std::size(kAllTypes));
}

TEST(Geometry, MhaHasKeysAndValues) {
  const Geometry geometry = mha_geometry(
      {.layers = {.num_layers = 32, .first_layer = 32, .page_size = 16, .dtype = DType::fp16},
       .heads = 8,
       .head_dim = 128});
  EXPECT_EQ(names_of(geometry), (Names{"key", "value"}));
  EXPECT_EQ(geometry.planes[0].head_bytes(), 256u);
  EXPECT_EQ(geometry.planes[1].row_bytes(), 2048u);
  EXPECT_EQ(geometry.planes[1].dtype, DType::fp16);
  EXPECT_EQ(geometry.token_bytes(), 131'072u);
  EXPECT_EQ(geometry.page_bytes(), 2'097'152u);
  EXPECT_EQ(geometry.page_bytes(geometry.planes[0]), 1'048'576u);
  EXPECT_EQ(geometry.first_layer, 32u);
  EXPECT_TRUE(geometry.validate().ok());
}

TEST(Geometry, MhaValuesMayBeNarrowerThanKeys) {
  const Geometry geometry =
      mha_geometry({.layers = kLayers, .heads = 4, .head_dim = 192, .value_dim = 128});
  EXPECT_EQ(geometry.planes[0].row_bytes(), 1536u);
  EXPECT_EQ(geometry.planes[1].row_bytes(), 1024u);
  EXPECT_EQ(geometry.token_bytes(), 5120u);
  EXPECT_EQ(geometry.page_bytes(geometry.planes[1]), 32'768u);
}

TEST(Geometry, MlaHasOneLatentRowInTwoParts) {
  const Geometry geometry = mla_geometry(kDeepSeek);
  EXPECT_EQ(names_of(geometry), (Names{"latent"}));
  EXPECT_EQ(geometry.planes[0].dim, 576u);
  EXPECT_EQ(geometry.planes[0].first_part, 512u);
  EXPECT_EQ(geometry.token_bytes(), 70'272u);
  EXPECT_EQ(geometry.page_bytes(), 4'497'408u);
}

TEST(Geometry, SplitMlaHasAPlaneForEachPart) {
  MlaShape shape = kDeepSeek;
  shape.split = true;
  const Geometry geometry = mla_geometry(shape);
  EXPECT_EQ(names_of(geometry), (Names{"nope", "rope"}));
  EXPECT_EQ(geometry.planes[0].row_bytes(), 1024u);
  EXPECT_EQ(geometry.planes[1].row_bytes(), 128u);
  EXPECT_EQ(geometry.planes[0].first_part, 0u);
  EXPECT_EQ(geometry.token_bytes(), 70'272u);
}

TEST(Geometry, DsaAddsKeysOfTheIndexerAndTheirScales) {
  const Geometry plain = dsa_geometry({.mla = kDeepSeek, .index_dim = 128});
  EXPECT_EQ(names_of(plain), (Names{"latent", "index_key"}));
  EXPECT_EQ(plain.planes[1].dtype, DType::fp8_e4m3);
  EXPECT_EQ(plain.token_bytes(), 78'080u);
  const Geometry scaled = dsa_geometry({.mla = kDeepSeek, .index_dim = 128, .index_scale = true});
  EXPECT_EQ(names_of(scaled), (Names{"latent", "index_key", "index_scale"}));
  EXPECT_EQ(scaled.planes[2].row_bytes(), 4u);
  EXPECT_EQ(scaled.token_bytes(), 78'324u);
}

TEST(Geometry, DoubleSparsityAddsLabelsOfEachHead) {
  const Geometry geometry = double_sparse_geometry(
      {.mha = {.layers = kLayers, .heads = 8, .head_dim = 128}, .label_dim = 16});
  EXPECT_EQ(names_of(geometry), (Names{"key", "value", "label"}));
  EXPECT_EQ(geometry.planes[2].row_bytes(), 256u);
  EXPECT_EQ(geometry.token_bytes(), 8704u);
}

TEST(Geometry, AStateIsAPageOfOneRowOfEachPlane) {
  const Geometry geometry =
      state_geometry(24, {{"conv", 3, 4096, DType::bf16}, {"ssm", 64, 8192, DType::fp32}});
  EXPECT_EQ(geometry.page_size, 1u);
  EXPECT_EQ(geometry.planes[0].row_bytes(), 24'576u);
  EXPECT_EQ(geometry.planes[1].row_bytes(), 2'097'152u);
  EXPECT_EQ(geometry.page_bytes(), 50'921'472u);
  EXPECT_EQ(geometry.page_bytes(), geometry.token_bytes());
}

TEST(Geometry, RefusesWhatNoModelHas) {
  struct Case {
    std::function<void(Geometry&)> spoil;
    std::string message;
  };
  const std::vector<Case> cases = {
      {[](Geometry& g) { g.planes.clear(); }, "0 planes"},
      {[](Geometry& g) { g.num_layers = 0; }, "0 layers"},
      {[](Geometry& g) { g.page_size = 3; }, "page_size is 3; expected a power of two"},
      {[](Geometry& g) { g.page_size = 0; }, "page_size is 0; expected a power of two"},
      {[](Geometry& g) { g.planes[0].heads = 0; }, "plane 'key' has 0 heads of 8 elements"},
      {[](Geometry& g) { g.planes[1].dim = 0; }, "plane 'value' has 2 heads of 0 elements"},
      {[](Geometry& g) { g.planes[1].name = "key"; }, "two planes are named 'key'"},
      {[](Geometry& g) { g.planes[0].first_part = 8; }, "plane 'key' has 8 of its 8 elements"},
      {[](Geometry& g) { g.planes[0].first_part = 9; }, "plane 'key' has 9 of its 8 elements"}};
  for (const Case& test : cases) {
    Geometry geometry = small();
    test.spoil(geometry);
    EXPECT_TRUE(fails(geometry.validate(), ErrorCode::invalid_argument, test.message));
  }
  for (const Family& family : all_families(kLayers))
    EXPECT_TRUE(family.geometry.validate().ok()) << family.name;
}

TEST(Geometry, AnythingThatDiffersShowsInTheDescription) {
  const std::vector<std::function<void(Geometry&)>> changes = {
      [](Geometry&) {},
      [](Geometry& g) { g.num_layers = 3; },
      [](Geometry& g) { g.first_layer = 5; },
      [](Geometry& g) { g.page_size = 32; },
      [](Geometry& g) { g.planes[0].name = "other"; },
      [](Geometry& g) { g.planes[0].heads = 3; },
      [](Geometry& g) { g.planes[0].dim = 9; },
      [](Geometry& g) { g.planes[0].dtype = DType::fp16; },
      [](Geometry& g) { g.planes[0].first_part = 1; },
      [](Geometry& g) { std::swap(g.planes[0], g.planes[1]); },
      [](Geometry& g) { g.planes.pop_back(); }};
  std::set<std::string> texts;
  for (const auto& change : changes) {
    Geometry geometry = small();
    change(geometry);
    texts.insert(geometry.describe());
    EXPECT_EQ(geometry.describe(), Geometry(geometry).describe());
  }
  for (const Family& family : all_families(kLayers)) texts.insert(family.geometry.describe());
  EXPECT_EQ(texts.size(), changes.size() + all_families(kLayers).size());
}

TEST(Geometry, APlaneNamedLikeADescriptionIsNotMistakenForTwo) {
  const Geometry two = state_geometry(1, {{"a", 1, 2}, {"b", 1, 2}});
  const Geometry one = state_geometry(1, {{"a 1x2 bf16, b", 1, 2}});
  ASSERT_NE(one, two);
  EXPECT_TRUE(!one.validate().ok() || one.describe() != two.describe()) << one.describe();
}

TEST(Geometry, FindsPlanesByName) {
  const Geometry geometry = small();
  EXPECT_EQ(*geometry.plane_index("key"), 0u);
  EXPECT_EQ(*geometry.plane_index("value"), 1u);
  EXPECT_TRUE(
      fails(geometry.plane_index("label"), ErrorCode::invalid_argument, "no plane 'label' in "));
}

}  // namespace
}  // namespace pando::testing
