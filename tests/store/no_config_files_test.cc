// SPDX-License-Identifier: Apache-2.0
// A Pando that reads no options from text says so.
#include "pando/config.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

TEST(WithoutConfigFiles, OnlyNothingCanBeParsed) {
  EXPECT_EQ(*Config::parse("  "), Config());
  for (const char* text : {"{}", "@x.toml", "anything"})
    EXPECT_TRUE(fails(Config::parse(text), ErrorCode::unavailable, "without PANDO_CONFIG_FILES"));
}

}  // namespace
}  // namespace pando::testing
