// SPDX-License-Identifier: Apache-2.0
// Pools in a GPU's memory: rows are written, moved and saved by kernels on a stream of this file's
// own, and each call returns when it is done. Engines with fused kernels write rows themselves.
#include "pool/convert.h"
#include "pool/cuda/cuda_status.h"
#include "pool/cuda/row_copy.h"
#include "pool/cuda/row_kernels.h"
#include "pool/device_ops.h"

namespace pando {
namespace {

using cuda::status_of;

// Enough for the speed of any device; more than there are multiprocessors does no good or harm.
constexpr unsigned kBlocks = 132;

// A stream and one block of device memory that holds what a call needs to know, for one call.
class Call {
 public:
  explicit Call(int device) : guard_(device) {}
  ~Call() {
    if (memory_ != nullptr) cudaFree(memory_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  /// Copies `bytes` to the device.
  Status begin(const void* data, std::size_t bytes) {
    if (Status done = cuda::make_stream(stream_); !done) return done;
    if (Status done = status_of(cudaMalloc(&memory_, bytes), "allocate a list of slots"); !done)
      return done;
    return status_of(cudaMemcpyAsync(memory_, data, bytes, cudaMemcpyHostToDevice, stream_),
                     "send a list of slots");
  }
  Status end() { return status_of(cudaStreamSynchronize(stream_), "write or move rows"); }
  cudaStream_t stream() const { return stream_; }
  template <typename T>
  const T* sent() const {
    return static_cast<const T*>(memory_);
  }

 private:
  cuda::DeviceGuard guard_;
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
};

class CudaOps final : public DeviceOps {
 public:
  Status copy(const CopyPlan& plan) const override {
    Result<int> device = device_of_plan(plan);
    if (!device) return device.error();
    Call call(*device);
    if (Status sent = call.begin(plan.items.data(), plan.items.size() * sizeof(CopyItem)); !sent)
      return sent;
    const cuda::RowCopy rows{.plan = &plan,
                             .items = call.sent<CopyItem>(),
                             .num_items = plan.items.size(),
                             .layers = {0, plan.geometry->num_layers},
                             .bus = cuda::Bus::none,
                             .max_blocks = kBlocks};
    if (Status queued = cuda::queue_copy(rows, call.stream()); !queued) return queued;
    return call.end();
  }

  Status write(const WritePlan& plan) const override {
    if (plan.slots.empty()) return {};
    std::byte* layer = plan.memory->layers[plan.layer];
    Result<int> device = cuda::device_of(layer);
    if (!device) return device.error();
    Call call(*device);
    if (Status sent = call.begin(plan.slots.data(), plan.slots.size_bytes()); !sent) return sent;
    const cuda::WriteArgs args{.layer = layer,
                               .page_stride = plan.memory->page_stride,
                               .token_stride = plan.memory->token_stride,
                               .head_stride = plan.memory->head_stride,
                               .page_size = plan.page_size,
                               .slots = call.sent<std::int64_t>(),
                               .num_slots = plan.slots.size(),
                               .rows = plan.rows,
                               .dtype = plan.plane->dtype,
                               .element = size_of(plan.plane->dtype),
                               .source_element = size_of(plan.rows.dtype),
                               .heads = plan.plane->heads,
                               .first = plan.first,
                               .count = plan.count};
    if (Status launched =
            status_of(cuda::launch_write(args, kBlocks, call.stream()), "launch a write");
        !launched)
      return launched;
    return call.end();
  }

  Status zero(std::byte* memory, std::size_t size_bytes) const override {
    if (Status done = status_of(cudaMemset(memory, 0, size_bytes), "zero the padding page"); !done)
      return done;
    return status_of(cudaDeviceSynchronize(), "zero the padding page");
  }

 private:
  // One end may be saved rows in host memory.
  static Result<int> device_of_plan(const CopyPlan& plan) {
    for (const auto* end : {plan.dst, plan.src}) {
      cudaPointerAttributes attributes{};
      if (Status done =
              status_of(cudaPointerGetAttributes(&attributes, end->front().layers.front()),
                        "find a pool's device");
          !done)
        return done.error();
      if (attributes.type == cudaMemoryTypeDevice) return attributes.device;
    }
    return Error{ErrorCode::invalid_argument, "copy: neither end is in a GPU's memory"};
  }
};

}  // namespace

Result<const DeviceOps*> cuda_ops() {
  static const CudaOps ops;
  return &ops;
}

}  // namespace pando
