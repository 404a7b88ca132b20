// SPDX-License-Identifier: Apache-2.0
// What parse_quantity takes, and that what it refuses is named in the message.
#include "replay/quantity.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace pando {
namespace {

TEST(Quantity, ReadsPlainNumbers) {
  EXPECT_EQ(parse_quantity("0").value(), 0u);
  EXPECT_EQ(parse_quantity("65536").value(), 65'536u);
  EXPECT_EQ(parse_quantity("18446744073709551615").value(),
            std::numeric_limits<std::uint64_t>::max());
}

TEST(Quantity, SuffixesAreDecimal) {
  EXPECT_EQ(parse_quantity("64k").value(), 64'000u);
  EXPECT_EQ(parse_quantity("64K").value(), 64'000u);
  EXPECT_EQ(parse_quantity("1M").value(), 1'000'000u);
  EXPECT_EQ(parse_quantity("2G").value(), 2'000'000'000u);
}

TEST(Quantity, RefusesWhatIsNotAQuantityAndSaysSo) {
  for (const std::string text :
       {"", "k", "-1", "+1", " 1", "1 ", "1 k", "1kk", "1m", "1.5M", "0x10", "1MB", "one"}) {
    const auto result = parse_quantity(text);
    ASSERT_FALSE(result.ok()) << "'" << text << "'";
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(result.error().message.find("'" + text + "'"), std::string::npos)
        << result.error().message;
  }
}

TEST(Quantity, RefusesWhatDoesNotFit) {
  for (const std::string text :
       {"18446744073709551616", "99999999999999999999k", "18446744073709552k", "18446744074G"}) {
    const auto result = parse_quantity(text);
    ASSERT_FALSE(result.ok()) << text;
    EXPECT_NE(result.error().message.find("too large"), std::string::npos);
  }
}

}  // namespace
}  // namespace pando
