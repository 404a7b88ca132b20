// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still use, as the kernel's files tell it, and how arenas refuse
// a request for more. `available_memory()` of pando/arena.h is the function below over /proc and
// /sys/fs/cgroup; tests give it trees of their own. What cannot be read, or is no number, limits
// nothing. Nothing is kept between calls, since the figures change all the time. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "pando/pools.h"
#include "pando/result.h"

namespace pando {

/// The least of MemAvailable and what each control group around the process leaves free. The
/// greatest size_t where nothing is known.
std::size_t available_memory(const std::filesystem::path& proc,
                             const std::filesystem::path& cgroup_root);

/// The number behind the first word `key` of a file: 5 for "MemFree:" in "Node 0 MemFree:  5 kB".
/// An empty key means the file's first word itself. Nothing if there is no such number.
std::optional<std::uint64_t> read_number(const std::filesystem::path& file,
                                         std::string_view key = {});
/// The same for a figure in kB, as bytes.
std::optional<std::uint64_t> read_kilobytes(const std::filesystem::path& file,
                                            std::string_view key);

/// For messages: "3221225472 bytes (3.0 GiB)".
std::string describe_bytes(std::size_t size_bytes);

/// More than any machine has; twice as much is still a size_t.
inline constexpr std::size_t kMaxBlockBytes = std::size_t{1} << 62;

/// What every arena asks of a request first: a size, an alignment, and no more than is available.
Status check_request(const Arena& arena, std::size_t size_bytes, std::size_t alignment,
                     std::size_t available = kMaxBlockBytes);
/// `out_of_capacity`: what was asked for, and what the arena says it still has.
Error no_room(const Arena& arena, std::size_t size_bytes);

}  // namespace pando
