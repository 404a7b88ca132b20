// SPDX-License-Identifier: Apache-2.0
// Raw page files of SGLang into a file store.
#include "pando/store_import.h"

#include "support/file_store_fixture.h"

namespace pando::testing {
namespace {

class ImportSglang : public FileStoreTest {
 protected:
  ImportSglang()
      : space_(
            {.model = "org/model", .tp_rank = 1, .tp_size = 2},
            mha_geometry({.layers = {.num_layers = 2, .page_size = 4}, .heads = 2, .head_dim = 8}),
            HostLayout::page_first, ComponentKind::full) {
    fs::create_directories(from());
    open();
  }
  std::string from() const { return temp_ / "sglang"; }
  void write(const std::string& name, const std::vector<std::byte>& bytes) {
    std::ofstream(from() + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  static PageHash hash(std::uint8_t number) {
    PageHash hash{};
    hash.fill(number);
    return hash;
  }

  KeySpace space_;
};

TEST_F(ImportSglang, PagesOfTheSpaceAreFoundUnderTheirKeys) {
  for (std::uint8_t i = 0; i < 200; ++i)
    write(space_.sglang_name(hash(i)) + ".bin", test_bytes(space_.key(hash(i)), 1000));
  const auto report = import_sglang_pages(from(), space_, 1000, *store_);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->imported_pages, 200u);
  EXPECT_EQ(report->skipped_files + report->refused_files + report->failed_pages, 0u);
  EXPECT_EQ(report->first_problem, "");
  for (std::uint8_t i = 0; i < 200; ++i) {
    const Outcomes outcomes = get_pages(*store_, {space_.key(hash(i))}, {1000});
    EXPECT_TRUE(outcomes.all(PageOutcome::done) && outcomes.bytes_right);
  }
  EXPECT_EQ(import_sglang_pages(from(), space_, 1000, *store_)->imported_pages, 200u);
}

TEST_F(ImportSglang, OthersAreSkippedOrRefused) {
  write(space_.sglang_name(hash(1)) + ".bin", test_bytes("x", 1000));
  const std::string digits = space_.sglang_name(hash(2)).substr(0, 64);
  write(digits + "_org-model_0_2.bin", test_bytes("x", 1000));  // another rank
  write(digits + "_other_1_2.bin", test_bytes("x", 1000));
  write(space_.sglang_name(hash(3)) + ".bin", test_bytes("x", 999));
  write(space_.sglang_name(hash(4)) + ".tmp", test_bytes("x", 1000));
  write("README.bin", test_bytes("x", 1000));
  const auto report = import_sglang_pages(from(), space_, 1000, *store_);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->imported_pages, 1u);
  EXPECT_EQ(report->skipped_files, 2u);
  EXPECT_EQ(report->refused_files, 3u);
  EXPECT_NE(report->first_problem, "");
  EXPECT_EQ(stats().num_pages, 1u);
}

TEST_F(ImportSglang, PagesTheStoreDoesNotTakeAreCounted) {
  write(space_.sglang_name(hash(1)) + ".bin", test_bytes("x", 1 << 16));
  options_.capacity_bytes = 3 * kBlockBytes;
  reopen();
  const auto report = import_sglang_pages(from(), space_, 1 << 16, *store_);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->failed_pages, 1u);
  EXPECT_NE(report->first_problem.find("capacity"), std::string::npos) << report->first_problem;
}

TEST_F(ImportSglang, ADirectoryThatIsNotThereIsAnError) {
  EXPECT_FALSE(import_sglang_pages(temp_ / "nowhere", space_, 1000, *store_).ok());
  EXPECT_FALSE(import_sglang_pages(from(), space_, 0, *store_).ok());
}

}  // namespace
}  // namespace pando::testing
