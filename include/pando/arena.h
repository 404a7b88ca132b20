// SPDX-License-Identifier: Apache-2.0
// Where the large blocks of pools come from: the heap, huge pages, one NUMA node, memory that the
// caller has, page-locked memory, a GPU. An Arena is a plug point, so an engine can bring its own.
// An arena outlives its blocks, and every block goes back to the arena that it came from. Calls to
// one arena must not overlap. Blocks are few and large: an arena may round each up to whole pages.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "pando/result.h"

namespace pando {

/// Where memory is, and so who can touch it.
enum class MemoryKind {
  host,    ///< ordinary memory of the machine
  pinned,  ///< host memory that a GPU reads directly
  cuda,    ///< a GPU's own; the host must not touch it
};

/// Where the large blocks of pools come from. A plug point, so an engine can bring its own.
class Arena {
 public:
  virtual ~Arena() = default;

  /// `size_bytes` > 0, aligned to at least `alignment` (a power of two). Contents undefined.
  /// `out_of_capacity` when there is not as much; nothing was changed then.
  virtual Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) = 0;
  /// A block from `allocate`, with the size that was asked for.
  virtual void free(void* memory, std::size_t size_bytes) = 0;
  /// What one could still allocate now, as far as can be known; pools refuse before they try.
  /// Memory that was allocated but never written to may still count.
  virtual std::size_t available_bytes() const = 0;
  /// Where its memory is.
  virtual MemoryKind kind() const { return MemoryKind::host; }
  virtual std::string_view name() const = 0;  ///< what it is called in messages
};

/// The heap. Like all arenas of host memory it refuses more than `available_memory()`: the kernel
/// would promise that, and end the process when the pages are first written.
std::unique_ptr<Arena> make_malloc_arena();

/// Where huge pages come from.
enum class HugePages {
  transparent,  ///< the kernel is asked for them (madvise) and gives ordinary pages when it has
                ///< none
  reserved,     ///< from the kernel's pool (MAP_HUGETLB, vm.nr_hugepages), or not at all
};
/// Memory in huge pages.
std::unique_ptr<Arena> make_huge_page_arena(HugePages kind = HugePages::transparent);

/// Memory bound to one NUMA node. `invalid_argument` where the machine has no such node; `allocate`
/// is `unavailable` where the kernel forbids binding.
Result<std::unique_ptr<Arena>> make_numa_arena(unsigned node);

/// Carves from memory that the caller owns and keeps alive; `kind` says what the memory is. Blocks
/// follow each other: a freed block is used again when those behind it are free too, so when
/// everything is freed the arena starts over.
std::unique_ptr<Arena> make_user_arena(std::span<std::byte> memory,
                                       MemoryKind kind = MemoryKind::host);

/// Page-locked host memory. `unavailable` in a build without CUDA or on a machine without a GPU.
Result<std::unique_ptr<Arena>> make_pinned_arena();
/// Memory of a GPU. `unavailable` in a build without CUDA or on a machine without a GPU.
Result<std::unique_ptr<Arena>> make_cuda_arena(int device = 0);

/// Bytes this process may still use: the least of the machine's available memory and the limits of
/// its container (cgroup v1 and v2, all levels).
std::size_t available_memory();

}  // namespace pando
