// SPDX-License-Identifier: Apache-2.0
// The arenas of host memory and the one over the caller's memory; those of GPUs are elsewhere.
// Blocks of huge pages and of NUMA nodes are mappings of their own, rounded up to whole pages. Only
// the user arena keeps records, and it never touches the memory itself, which may be a GPU's.
#include "pando/pools.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "pool/memory_limit.h"

namespace pando {
namespace {

constexpr std::size_t kTransparentHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t size, std::size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

void check_not_null(const Arena& arena, const void* memory) {
  PANDO_CHECK(memory != nullptr, "arena \"{}\": free of a null pointer", arena.name());
}

class MallocArena final : public Arena {
 public:
  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    if (Status status = check_request(*this, size_bytes, alignment, available_bytes()); !status)
      return status.error();
    void* memory = nullptr;
    if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), size_bytes) != 0)
      return no_room(*this, size_bytes);
    return memory;
  }
  void free(void* memory, std::size_t /*size_bytes*/) override {
    check_not_null(*this, memory);
    std::free(memory);
  }
  std::size_t available_bytes() const override { return available_memory(); }
  std::string_view name() const override { return "malloc"; }
};

std::size_t system_page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

/// Each block is a mapping of its own, of whole pages. `flags` are mmap's.
class MappedArena : public Arena {
 public:
  void free(void* memory, std::size_t size_bytes) final {
    check_not_null(*this, memory);
    PANDO_CHECK(munmap(memory, whole_pages(size_bytes)) == 0,
                "arena \"{}\": free of {} at {}, which is no block of it", name(),
                describe_bytes(size_bytes), memory);
  }

 protected:
  explicit MappedArena(std::size_t page, int flags = 0) : page_(page), flags_(flags) {}

  std::size_t page() const { return page_; }
  std::size_t whole_pages(std::size_t size_bytes) const { return round_up(size_bytes, page_); }
  /// What is mapped for a block so that it has an aligned part; the rest goes back at once.
  std::size_t with_slack(std::size_t size_bytes, std::size_t alignment) const {
    const std::size_t given = (flags_ & MAP_HUGETLB) != 0 ? page_ : system_page();
    return whole_pages(size_bytes) + std::max(alignment, page_) - given;
  }
  /// nullptr if the kernel refuses; errno says why.
  void* map(std::size_t size_bytes, std::size_t alignment) const {
    const std::size_t total = with_slack(size_bytes, alignment);
    void* mapped =
        mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags_, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    auto* begin = static_cast<std::byte*>(mapped);
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::size_t head = round_up(address, std::max(alignment, page_)) - address;
    const std::size_t tail = head + whole_pages(size_bytes);
    if (head > 0) munmap(begin, head);
    if (tail < total) munmap(begin + tail, total - tail);
    return begin + head;
  }

 private:
  const std::size_t page_;
  const int flags_;
};

class TransparentHugePageArena final : public MappedArena {
 public:
  TransparentHugePageArena() : MappedArena(kTransparentHugePage) {}

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    if (Status status = check_request(*this, size_bytes, alignment, available_bytes()); !status)
      return status.error();
    void* memory = map(size_bytes, alignment);
    if (memory == nullptr) return no_room(*this, size_bytes);
    madvise(memory, whole_pages(size_bytes), MADV_HUGEPAGE);  // a hint: may be refused
    return memory;
  }
  std::size_t available_bytes() const override { return available_memory(); }
  std::string_view name() const override { return "transparent huge pages"; }
};

/// Not held to what is free: the kernel may be set up to find more (nr_overcommit_hugepages). It
/// sets the pages aside when they are mapped, so a block that was given can be written to.
class ReservedHugePageArena final : public MappedArena {
 public:
  // Where the kernel has no huge pages nothing is given, whatever their size.
  ReservedHugePageArena()
      : MappedArena(read_kilobytes("/proc/meminfo", "Hugepagesize:").value_or(kTransparentHugePage),
                    MAP_HUGETLB) {}

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    if (Status status = check_request(*this, size_bytes, alignment); !status) return status.error();
    if (void* memory = map(size_bytes, alignment)) return memory;
    const std::string reason = std::generic_category().message(errno);
    return make_error(ErrorCode::out_of_capacity,
                      "arena \"{}\": asked for {}, needed are {} huge pages of {}, free are {} "
                      "({}); vm.nr_hugepages sets how many the kernel keeps",
                      name(), describe_bytes(size_bytes),
                      with_slack(size_bytes, alignment) / page(), describe_bytes(page()),
                      free_pages(), reason);
  }
  std::size_t available_bytes() const override { return free_pages() * page(); }
  std::string_view name() const override { return "reserved huge pages"; }

 private:
  static std::size_t free_pages() {
    const std::size_t free = read_number("/proc/meminfo", "HugePages_Free:").value_or(0);
    const std::size_t promised = read_number("/proc/meminfo", "HugePages_Rsvd:").value_or(0);
    return free - std::min(free, promised);
  }
};

std::string node_file(unsigned node) {
  return fmt::format("/sys/devices/system/node/node{}/meminfo", node);
}

class NumaArena final : public MappedArena {
 public:
  explicit NumaArena(unsigned node)
      : MappedArena(system_page()), node_(node), name_(fmt::format("NUMA node {}", node)) {}

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    if (Status status = check_request(*this, size_bytes, alignment, available_bytes()); !status)
      return status.error();
    void* memory = map(size_bytes, alignment);
    if (memory == nullptr) return no_room(*this, size_bytes);
    if (bind(memory, whole_pages(size_bytes))) return memory;
    const std::string reason = std::generic_category().message(errno);
    free(memory, size_bytes);
    return make_error(ErrorCode::unavailable, "arena \"{}\": the kernel refuses to bind {}: {}",
                      name_, describe_bytes(size_bytes), reason);
  }
  std::size_t available_bytes() const override {
    const std::string file = node_file(node_);
    const std::size_t free = read_kilobytes(file, "MemFree:").value_or(0);
    const std::size_t reclaimable = read_kilobytes(file, "Inactive(file):").value_or(0);
    return std::min(free + reclaimable, available_memory());
  }
  std::string_view name() const override { return name_; }

 private:
  /// Pages that nobody has touched yet. Whether it worked; errno says why not.
  bool bind(void* memory, std::size_t size_bytes) const {
    constexpr std::size_t kWordBits = 8 * sizeof(unsigned long);
    std::vector<unsigned long> nodes(node_ / kWordBits + 1);
    nodes.back() = 1UL << node_ % kWordBits;
    const std::size_t num_bits = nodes.size() * kWordBits + 1;  // the kernel uses one less
    return syscall(SYS_mbind, memory, size_bytes, MPOL_BIND, nodes.data(), num_bits, 0UL) == 0;
  }

  const unsigned node_;
  const std::string name_;
};

class UserArena final : public Arena {
 public:
  UserArena(std::span<std::byte> memory, MemoryKind kind) : memory_(memory), kind_(kind) {}

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    if (Status status = check_request(*this, size_bytes, alignment); !status) return status.error();
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_.data());
    const std::size_t offset = round_up(begin + used(), alignment) - begin;
    if (offset > memory_.size() || size_bytes > memory_.size() - offset) {
      return make_error(ErrorCode::out_of_capacity,
                        "arena \"{}\" over {}: asked for {} aligned to {}, left at its end are {}",
                        name(), describe_bytes(memory_.size()), describe_bytes(size_bytes),
                        alignment, describe_bytes(available_bytes()));
    }
    return blocks_.emplace(memory_.data() + offset, size_bytes).first->first;
  }
  void free(void* memory, std::size_t size_bytes) override {
    check_not_null(*this, memory);
    const auto block = blocks_.find(memory);
    PANDO_CHECK(block != blocks_.end() && block->second == size_bytes,
                "arena \"{}\" over {} at {}: free of {} at {}, which is no block of it", name(),
                describe_bytes(memory_.size()), fmt::ptr(memory_.data()),
                describe_bytes(size_bytes), memory);
    blocks_.erase(block);
  }
  std::size_t available_bytes() const override { return memory_.size() - used(); }
  MemoryKind kind() const override { return kind_; }
  std::string_view name() const override { return "user memory"; }

 private:
  /// Up to the end of the last block; gaps before it wait until it is freed.
  std::size_t used() const {
    if (blocks_.empty()) return 0;
    const auto& [block, size_bytes] = *blocks_.rbegin();
    return static_cast<std::size_t>(static_cast<std::byte*>(block) - memory_.data()) + size_bytes;
  }

  const std::span<std::byte> memory_;
  const MemoryKind kind_;
  std::map<void*, std::size_t> blocks_;  // those not freed, with their sizes
};

}  // namespace

std::unique_ptr<Arena> make_malloc_arena() { return std::make_unique<MallocArena>(); }
std::unique_ptr<Arena> make_huge_page_arena(HugePages kind) {
  if (kind == HugePages::reserved) return std::make_unique<ReservedHugePageArena>();
  return std::make_unique<TransparentHugePageArena>();
}

Result<std::unique_ptr<Arena>> make_numa_arena(unsigned node) {
  if (!read_number(node_file(node), "MemFree:")) {
    std::string nodes = "unknown";
    std::ifstream("/sys/devices/system/node/online") >> nodes;
    return make_error(ErrorCode::invalid_argument,
                      "NUMA arena: node {} is not on this machine, its nodes are {}", node, nodes);
  }
  return std::unique_ptr<Arena>(std::make_unique<NumaArena>(node));
}

std::unique_ptr<Arena> make_user_arena(std::span<std::byte> memory, MemoryKind kind) {
  return std::make_unique<UserArena>(memory, kind);
}

}  // namespace pando
