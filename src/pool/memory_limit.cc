// SPDX-License-Identifier: Apache-2.0
// A control group limits all groups below it, so each level from the root down to the process's own
// is looked at. Usage counts page cache, which the kernel drops before it refuses anything; the
// inactive part is counted as free, the active part is not: taking it would slow others down.
#include "pool/memory_limit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <fstream>
#include <limits>
#include <system_error>

#include "base/check.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));

/// What the two versions of control groups call the same things.
struct GroupFiles {
  std::string_view limit;
  std::string_view usage;
  std::string_view reclaimable;  // in memory.stat, descendants included
};
constexpr GroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes",
                               "total_inactive_file"};
constexpr GroupFiles kVersion2{"memory.max", "memory.current", "inactive_file"};

std::optional<std::uint64_t> parse_number(std::string_view word) {
  std::uint64_t number = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

/// Version 1 writes "no limit" as a number near 2^63, which is never the least.
std::uint64_t free_in_group(const fs::path& group, const GroupFiles& files) {
  const auto limit = read_number(group / files.limit);
  if (!limit) return kUnlimited;
  const std::uint64_t usage = read_number(group / files.usage).value_or(0);
  const std::uint64_t reclaimable =
      read_number(group / "memory.stat", files.reclaimable).value_or(0);
  const std::uint64_t used = usage - std::min(usage, reclaimable);
  return *limit - std::min(*limit, used);
}

/// `path` as /proc/self/cgroup has it. A container often sees its own group as the root, while the
/// path is the host's (or climbs out with ".."): then the root is all there is to look at.
std::uint64_t free_in_hierarchy(const fs::path& root, std::string_view path,
                                const GroupFiles& files) {
  fs::path below = fs::path(path).relative_path();
  std::error_code ignored;
  const bool climbs = std::find(below.begin(), below.end(), "..") != below.end();
  if (climbs || !fs::is_directory(root / below, ignored)) below.clear();
  std::uint64_t least = free_in_group(root, files);
  fs::path group = root;
  for (const fs::path& part : below) {
    group /= part;
    least = std::min(least, free_in_group(group, files));
  }
  return least;
}

/// Whether "cpu,memory" and the like name the memory controller.
bool has_memory_controller(std::string_view controllers) {
  return fmt::format(",{},", controllers).find(",memory,") != std::string::npos;
}

/// Lines are "hierarchy:controllers:path"; version 2 is hierarchy 0, without controllers.
std::uint64_t free_in_groups(const fs::path& own_groups, const fs::path& cgroup_root) {
  std::uint64_t least = kUnlimited;
  std::ifstream lines(own_groups);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const auto text = std::string_view(line);
    const std::string_view hierarchy = text.substr(0, first);
    const std::string_view controllers = text.substr(first + 1, second - first - 1);
    const std::string_view path = text.substr(second + 1);
    if (hierarchy == "0" && controllers.empty()) {
      least = std::min(least, free_in_hierarchy(cgroup_root, path, kVersion2));
    } else if (has_memory_controller(controllers)) {
      least = std::min(least, free_in_hierarchy(cgroup_root / "memory", path, kVersion1));
    }
  }
  return least;
}

}  // namespace

std::optional<std::uint64_t> read_number(const fs::path& file, std::string_view key) {
  std::ifstream words(file);
  std::string word;
  if (key.empty()) return words >> word ? parse_number(word) : std::nullopt;
  while (words >> word) {
    if (word == key) return words >> word ? parse_number(word) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> read_kilobytes(const fs::path& file, std::string_view key) {
  const auto number = read_number(file, key);
  if (!number || *number > kUnlimited / 1024) return std::nullopt;
  return *number * 1024;
}

std::string describe_bytes(std::size_t size_bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (size_bytes < 1024) return fmt::format("{} bytes", size_bytes);
  double size = static_cast<double>(size_bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  return fmt::format("{} bytes ({:.1f} {})", size_bytes, size, kUnits[unit]);
}

Status check_request(const Arena& arena, std::size_t size_bytes, std::size_t alignment,
                     std::size_t available) {
  if (size_bytes == 0 || !std::has_single_bit(alignment)) {
    return make_error(ErrorCode::invalid_argument,
                      "arena \"{}\": asked for {} aligned to {}, expected a size above 0 and a "
                      "power of two",
                      arena.name(), describe_bytes(size_bytes), alignment);
  }
  if (size_bytes > std::min(available, kMaxBlockBytes)) return no_room(arena, size_bytes);
  return {};
}

Error no_room(const Arena& arena, std::size_t size_bytes) {
  return make_error(ErrorCode::out_of_capacity, "arena \"{}\": asked for {}, available are {}",
                    arena.name(), describe_bytes(size_bytes),
                    describe_bytes(arena.available_bytes()));
}

std::size_t available_memory(const fs::path& proc, const fs::path& cgroup_root) {
  const auto machine = read_kilobytes(proc / "meminfo", "MemAvailable:");
  return std::min(machine.value_or(kUnlimited),
                  free_in_groups(proc / "self" / "cgroup", cgroup_root));
}

std::size_t available_memory() { return available_memory("/proc", "/sys/fs/cgroup"); }

}  // namespace pando
