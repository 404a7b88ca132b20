// SPDX-License-Identifier: Apache-2.0
// Calls on results and keys that would read what is not there: they stop, or do not compile.
#include "pando/result.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "pando/types.h"

namespace pando {
namespace {

TEST(ResultDeathTest, ErrorOfASuccessStopsAtACheck) {
  const Status success;
  EXPECT_DEATH((void)success.error(), "error of a result that is no failure");
  const Result<int> value = 3;
  EXPECT_DEATH((void)value.error(), "error of a result that is no failure");
}

TEST(ResultDeathTest, ValueOfAFailureStopsAtACheckThatSaysWhy) {
  const Status failure = Error{ErrorCode::not_found, "no such page"};
  EXPECT_DEATH(failure.value(), "no such page .not found.");
  EXPECT_EQ(failure.error().message, "no such page");
}

TEST(Key, DoesNotTakeANamespaceThatNobodyKeeps) {
  using Tokens = std::vector<Token>;
  static_assert(std::is_constructible_v<Key, Tokens&, std::string&>);
  static_assert(std::is_constructible_v<Key, Tokens&, const std::string&>);
  static_assert(std::is_constructible_v<Key, Tokens&, std::string_view>);
  static_assert(std::is_constructible_v<Key, Tokens&, const char*>);
  static_assert(!std::is_constructible_v<Key, Tokens&, std::string>);
}

}  // namespace
}  // namespace pando
