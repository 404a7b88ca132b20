// SPDX-License-Identifier: Apache-2.0
// What a pool asks of the device that its memory is on: copy rows, write rows, fill with zeros.
// Each returns when it is done. KvPool validates first; these only carry out.
#pragma once

#include <cstddef>
#include <span>

#include "pando/pools.h"
#include "pando/result.h"
#include "pando/types.h"
#include "pool/copy_plan.h"

namespace pando {

/// Elements [first, first + count) of each head of each slot's row receive the given rows.
struct WritePlan {
  const Plane* plane = nullptr;
  const PlaneMemory* memory = nullptr;
  std::size_t layer = 0;
  std::size_t page_size = 1;
  std::span<const SlotId> slots = {};
  Rows rows = {};  ///< stride_bytes filled in
  std::size_t first = 0;
  std::size_t count = 0;
};

class DeviceOps {
 public:
  virtual ~DeviceOps() = default;
  virtual Status copy(const CopyPlan& plan) const = 0;
  virtual Status write(const WritePlan& plan) const = 0;
  virtual Status zero(std::byte* memory, std::size_t size_bytes) const = 0;
};

const DeviceOps& cpu_ops();
/// An error in a build without CUDA.
Result<const DeviceOps*> cuda_ops();

}  // namespace pando
