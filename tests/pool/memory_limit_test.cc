// SPDX-License-Identifier: Apache-2.0
// available_memory() over trees of files that look like those of /proc and /sys/fs/cgroup, written
// to a folder of the test's own: which limits count, which file stands for none, and what is
// subtracted.
#include "pool/memory_limit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>

#include "pando/pools.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kGiB = 1024 * kMiB;
constexpr std::size_t kMachine = 8 * kGiB;
constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

class AvailableMemory : public ::testing::Test {
 protected:
  AvailableMemory() {
    std::string folder = (fs::temp_directory_path() / "pando-memory-limit-XXXXXX").string();
    root_ = mkdtemp(folder.data());
    write("proc/meminfo", "MemTotal:       99999999 kB\nMemAvailable:    8388608 kB\n");
  }
  ~AvailableMemory() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  void write(const fs::path& file, std::size_t number) {
    write(file, std::to_string(number) + "\n");
  }
  void in_groups(const std::string& lines) { write("proc/self/cgroup", lines); }
  /// A group of version 2, or of version 1.
  void group2(const fs::path& group, std::size_t limit, std::size_t usage) {
    write("cgroup" / group / "memory.max", limit);
    write("cgroup" / group / "memory.current", usage);
  }
  void group1(const fs::path& group, std::size_t limit, std::size_t usage) {
    write("cgroup/memory" / group / "memory.limit_in_bytes", limit);
    write("cgroup/memory" / group / "memory.usage_in_bytes", usage);
  }
  std::size_t available() const { return available_memory(root_ / "proc", root_ / "cgroup"); }

  fs::path root_;
};

TEST_F(AvailableMemory, IsTheMachinesWhereNothingLimitsIt) {
  EXPECT_EQ(available(), kMachine);
  in_groups("0::/\n");
  EXPECT_EQ(available(), kMachine);
}

TEST_F(AvailableMemory, IsWithoutLimitWhereNothingIsKnown) {
  fs::remove_all(root_ / "proc");
  EXPECT_EQ(available(), kUnlimited);
}

TEST_F(AvailableMemory, IsTheMachinesWhenTheGroupLeavesMore) {
  in_groups("0::/job\n");
  group2("job", 100 * kGiB, 1 * kGiB);
  EXPECT_EQ(available(), kMachine);
}

TEST_F(AvailableMemory, IsWhatAGroupOfVersion2Leaves) {
  in_groups("0::/job\n");
  group2("job", 3 * kGiB, 1 * kGiB);
  EXPECT_EQ(available(), 2 * kGiB);
}

TEST_F(AvailableMemory, IsWhatTheTightestParentLeaves) {
  in_groups("0::/slice/job/step\n");
  group2("slice", 4 * kGiB, 3 * kGiB);
  group2("slice/job", 2 * kGiB, 512 * kMiB);
  group2("slice/job/step", 3 * kGiB, 512 * kMiB);
  EXPECT_EQ(available(), 1 * kGiB);
  group2("", 1 * kGiB, 1 * kGiB - 4096);
  EXPECT_EQ(available(), 4096u);
}

TEST_F(AvailableMemory, IgnoresTheGroupsOfOthers) {
  in_groups("0::/slice/job\n");
  group2("slice/job", 3 * kGiB, 0);
  group2("slice/other", 1 * kGiB, 0);
  group2("slice/job/child", 1 * kGiB, 0);
  EXPECT_EQ(available(), 3 * kGiB);
}

TEST_F(AvailableMemory, TakesMaxAsNoLimit) {
  in_groups("0::/slice/job\n");
  group2("slice", 5 * kGiB, 1 * kGiB);
  write("cgroup/slice/job/memory.max", "max\n");
  write("cgroup/slice/job/memory.current", 1 * kGiB);
  EXPECT_EQ(available(), 4 * kGiB);
}

TEST_F(AvailableMemory, CountsInactivePageCacheAsFree) {
  in_groups("0::/job\n");
  group2("job", 3 * kGiB, 2 * kGiB);
  write("cgroup/job/memory.stat", "anon 77\ninactive_file 536870912\nactive_file 999\n");
  EXPECT_EQ(available(), 1 * kGiB + 512 * kMiB);
  write("cgroup/job/memory.stat", "inactive_file 999999999999\n");
  EXPECT_EQ(available(), 3 * kGiB);
}

TEST_F(AvailableMemory, IsWhatAGroupOfVersion1Leaves) {
  in_groups("5:cpu,cpuacct:/cpus\n4:hugetlb,memory:/docker/abc\n1:name=systemd:/x\n0::/\n");
  group1("", 9223372036854771712u, 6 * kGiB);
  group1("docker", 9223372036854771712u, 5 * kGiB);
  EXPECT_EQ(available(), kMachine);
  group1("docker/abc", 3 * kGiB, 2 * kGiB);
  EXPECT_EQ(available(), 1 * kGiB);
  write("cgroup/memory/docker/abc/memory.stat",
        "inactive_file 1048576\ntotal_inactive_file 2097152\n");
  EXPECT_EQ(available(), 1 * kGiB + 2 * kMiB);
  group1("docker", 4 * kGiB, 4 * kGiB - 4096);
  EXPECT_EQ(available(), 4096u);
}

TEST_F(AvailableMemory, LooksAtTheRootWhenTheOwnGroupIsNotBelowIt) {
  group2("", 2 * kGiB, 1 * kGiB);
  group2("docker", 1 * kGiB, 1 * kGiB);
  in_groups("0::/docker/abc\n");
  EXPECT_EQ(available(), 1 * kGiB);
  in_groups("0::/../docker\n");
  EXPECT_EQ(available(), 1 * kGiB);
  group1("", 1 * kGiB, 512 * kMiB);
  in_groups("4:memory:/docker/abc\n");
  EXPECT_EQ(available(), 512 * kMiB);
}

TEST_F(AvailableMemory, AcceptsColonsInAGroupsName) {
  in_groups("0::/job:one\n");
  group2("job:one", 2 * kGiB, 1 * kGiB);
  EXPECT_EQ(available(), 1 * kGiB);
}

TEST_F(AvailableMemory, TakesGarbageAsNoLimit) {
  in_groups("0::/job\n");
  write("cgroup/job/memory.current", 1 * kGiB);
  for (const char* text : {"", "\n", "banana", "-1", "12x", "0x10", "99999999999999999999999"}) {
    write("cgroup/job/memory.max", text);
    EXPECT_EQ(available(), kMachine) << "memory.max is \"" << text << '"';
  }
  group2("job", 1 * kGiB, 0);
  for (const char* text : {"", "no colons\n", "0:\n", "0\n::\n", "7:memory\n"}) {
    in_groups(text);
    EXPECT_EQ(available(), kMachine) << "/proc/self/cgroup is \"" << text << '"';
  }
  for (const char* text : {"", "MemAvailable:", "MemAvailable: lots kB", "MemTotal: 5 kB",
                           "MemAvailable: 18446744073709551615 kB"}) {
    write("proc/meminfo", text);
    EXPECT_EQ(available(), kUnlimited) << "meminfo is \"" << text << '"';
  }
}

TEST_F(AvailableMemory, CountsAGroupOfUnknownUsageAsEmpty) {
  in_groups("0::/job\n");
  write("cgroup/job/memory.max", 1 * kGiB);
  EXPECT_EQ(available(), 1 * kGiB);
}

TEST_F(AvailableMemory, IsZeroWhenUsageIsAboveTheLimit) {
  in_groups("0::/job\n");
  group2("job", 1 * kGiB, 2 * kGiB);
  EXPECT_EQ(available(), 0u);
}

TEST(AvailableMemoryHere, IsSomeButNotWithoutLimit) {
  EXPECT_GT(available_memory(), 0u);
  EXPECT_LT(available_memory(), kUnlimited);
}

TEST(DescribeBytes, GivesBytesAndTheLargestUnitThatFits) {
  EXPECT_EQ(describe_bytes(0), "0 bytes");
  EXPECT_EQ(describe_bytes(1023), "1023 bytes");
  EXPECT_EQ(describe_bytes(1536), "1536 bytes (1.5 KiB)");
  EXPECT_EQ(describe_bytes(3 * kGiB), "3221225472 bytes (3.0 GiB)");
  EXPECT_EQ(describe_bytes(kUnlimited), "18446744073709551615 bytes (16.0 EiB)");
}

}  // namespace
}  // namespace pando
