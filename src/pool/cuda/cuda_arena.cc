// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU, and host memory that a GPU reads. Pinned blocks are huge pages registered with
// the driver: scattered reads across the bus are limited by address translation otherwise.
#include <map>

#include "pando/pools.h"
#include "pool/cuda/cuda_status.h"
#include "pool/memory_limit.h"

namespace pando {
namespace {

using cuda::status_of;

Status require_gpu(int device, std::string_view what) {
  int count = 0;
  if (Status found = status_of(cudaGetDeviceCount(&count), what); !found) return found;
  if (device >= 0 && device < count) return {};
  return make_error(ErrorCode::unavailable, "{}: no GPU {}; this machine has {}", what, device,
                    count);
}

class PinnedArena final : public Arena {
 public:
  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    Result<void*> memory = pages_->allocate(size_bytes, alignment);
    if (!memory) return memory;
    const Status pinned = status_of(cudaHostRegister(*memory, size_bytes, cudaHostRegisterPortable),
                                    "pin host memory");
    if (pinned) return memory;
    pages_->free(*memory, size_bytes);
    return make_error(pinned.error().code, "arena \"{}\": {}: {}", name(),
                      describe_bytes(size_bytes), pinned.error().message);
  }
  void free(void* memory, std::size_t size_bytes) override {
    cudaHostUnregister(memory);
    pages_->free(memory, size_bytes);
  }
  std::size_t available_bytes() const override { return pages_->available_bytes(); }
  MemoryKind kind() const override { return MemoryKind::pinned; }
  std::string_view name() const override { return "pinned memory"; }

 private:
  std::unique_ptr<Arena> pages_ = make_huge_page_arena();
};

class CudaArena final : public Arena {
 public:
  explicit CudaArena(int device) : device_(device), name_(fmt::format("GPU {}", device)) {}

  Result<void*> allocate(std::size_t size_bytes, std::size_t alignment) override {
    if (Status valid = check_request(*this, size_bytes, alignment, available_bytes()); !valid)
      return valid.error();
    const cuda::DeviceGuard guard(device_);
    // cudaMalloc promises 256 bytes; what is asked beyond is left unused before the block.
    const std::size_t slack = alignment > 256 ? alignment : 0;
    void* memory = nullptr;
    if (Status done = status_of(cudaMalloc(&memory, size_bytes + slack), "allocate device memory");
        !done)
      return make_error(done.error().code, "arena \"{}\": {}: {}", name_,
                        describe_bytes(size_bytes), done.error().message);
    std::size_t space = size_bytes + slack;
    void* block = memory;
    std::align(alignment, size_bytes, block, space);
    blocks_.emplace(block, memory);
    return block;
  }
  void free(void* memory, std::size_t /*size_bytes*/) override {
    const auto block = blocks_.find(memory);
    PANDO_CHECK(block != blocks_.end(), "arena \"{}\": free of {}, which is no block of it", name_,
                memory);
    const cuda::DeviceGuard guard(device_);
    cudaFree(block->second);
    blocks_.erase(block);
  }
  std::size_t available_bytes() const override {
    const cuda::DeviceGuard guard(device_);
    std::size_t free = 0;
    std::size_t total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
  }
  MemoryKind kind() const override { return MemoryKind::cuda; }
  std::string_view name() const override { return name_; }

 private:
  const int device_;
  const std::string name_;
  std::map<void*, void*> blocks_;  // to what cudaMalloc gave
};

}  // namespace

Result<std::unique_ptr<Arena>> make_pinned_arena() {
  if (Status found = require_gpu(0, "make_pinned_arena"); !found) return found.error();
  return std::unique_ptr<Arena>(std::make_unique<PinnedArena>());
}

Result<std::unique_ptr<Arena>> make_cuda_arena(int device) {
  if (Status found = require_gpu(device, "make_cuda_arena"); !found) return found.error();
  return std::unique_ptr<Arena>(std::make_unique<CudaArena>(device));
}

}  // namespace pando
