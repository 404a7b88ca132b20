// SPDX-License-Identifier: Apache-2.0
// CUDA's error codes as ours, and the little RAII that CUDA code here needs.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/check.h"

namespace pando::cuda {

inline Status status_of(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  const ErrorCode code =
      error == cudaErrorMemoryAllocation ? ErrorCode::out_of_capacity : ErrorCode::unavailable;
  return make_error(code, "CUDA: {}: {} ({})", what, cudaGetErrorString(error),
                    cudaGetErrorName(error));
}

inline Status make_stream(cudaStream_t& stream) {
  return status_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "make a stream");
}

inline Status make_event(cudaEvent_t& event) {
  return status_of(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "make an event");
}

/// What is queued on `later` from now on waits for what is queued on `earlier`.
inline Status order(cudaStream_t earlier, cudaEvent_t event, cudaStream_t later) {
  if (Status done = status_of(cudaEventRecord(event, earlier), "record an event"); !done)
    return done;
  return status_of(cudaStreamWaitEvent(later, event), "wait for an event");
}

/// Makes a device current for the calling thread, and the one before when it goes.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = device;
    if (before_ != device) cudaSetDevice(device);
    device_ = device;
  }
  ~DeviceGuard() {
    if (before_ != device_) cudaSetDevice(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  int device_ = 0;
};

/// The device that this memory is on.
inline Result<int> device_of(const void* memory) {
  cudaPointerAttributes attributes{};
  if (Status done =
          status_of(cudaPointerGetAttributes(&attributes, memory), "find a pool's device");
      !done)
    return done.error();
  return attributes.device;
}

}  // namespace pando::cuda
