// SPDX-License-Identifier: Apache-2.0
// make_namespace: different parts never give one text.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/namespace_parts.h"
#include "pando/types.h"

namespace pando {
namespace {

TEST(Namespace, OfNoPartsIsEmpty) { EXPECT_EQ(make_namespace({}), ""); }

TEST(Namespace, PrefixesEachPartWithItsLength) {
  EXPECT_EQ(make_namespace({.lora = "adapter", .tenant = "a", .salt = "s:1", .extra = "x"}),
            "l7:adaptert1:as3:s:1x1:x");
}

// Parts that look like pieces of the format themselves.
TEST(Namespace, NeverAliasesDifferentParts) {
  using std::string_view_literals::operator""sv;
  const std::string_view tricky[] = {"",     "a",      "1",      ":",    "l1:a", "t1:a",
                                     "s1:a", "at1:as", "a\0b"sv, "\0"sv, "1:a"};
  std::map<std::string, int> seen;
  int number = 0;
  for (const auto lora : tricky) {
    for (const auto tenant : tricky) {
      for (const auto salt : tricky) {
        for (const auto extra : tricky) {
          const auto text =
              make_namespace({.lora = lora, .tenant = tenant, .salt = salt, .extra = extra});
          ASSERT_TRUE(seen.emplace(text, ++number).second) << text;
          const std::optional<NamespaceParts> parts = parse_namespace(text);
          ASSERT_TRUE(parts) << text;
          ASSERT_EQ(parts->lora, lora);
          ASSERT_EQ(parts->tenant, tenant);
          ASSERT_EQ(parts->salt, salt);
          ASSERT_EQ(parts->extra, extra);
        }
      }
    }
  }
}

TEST(Namespace, OtherTextsHaveNoParts) {
  for (const char* text : {"a", "acme", "l", "l1", "l1:", "l0:", "l2:a", "l01:a", "s1:al1:a",
                           "l1:a:", "l-1:a", "l+1:a", "l99999999999999999999:a", "x1:a "})
    EXPECT_FALSE(parse_namespace(text)) << text;
}

TEST(Namespace, AnAdapterIsNotATenantOfTheSameName) {
  EXPECT_NE(make_namespace({.lora = "a"}), make_namespace({.tenant = "a"}));
  EXPECT_NE(make_namespace({.salt = "a"}), make_namespace({.extra = "a"}));
}

}  // namespace
}  // namespace pando
