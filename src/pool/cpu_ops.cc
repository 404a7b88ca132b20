// SPDX-License-Identifier: Apache-2.0
// Pools in host memory: the calling thread copies and converts.
#include <cstring>

#include "pool/convert.h"
#include "pool/device_ops.h"
#include "pool/plane_memory.h"
#include "pool/strided_copy.h"

namespace pando {
namespace {

class CpuOps final : public DeviceOps {
 public:
  Status copy(const CopyPlan& plan) const override {
    copy_rows(plan, {0, plan.geometry->num_layers}, plan.items, stores_for(plan.size_bytes()));
    return {};
  }

  Status write(const WritePlan& plan) const override {
    const std::size_t element = size_of(plan.plane->dtype);
    const std::size_t source = size_of(plan.rows.dtype);
    const auto* row = static_cast<const std::byte*>(plan.rows.data);
    for (const SlotId slot : plan.slots) {
      for (std::size_t head = 0; head < plan.plane->heads; ++head) {
        std::byte* to = row_address(*plan.memory, plan.page_size, plan.layer,
                                    static_cast<std::size_t>(index_of(slot)), head);
        convert(row + head * plan.count * source, plan.rows.dtype, to + plan.first * element,
                plan.plane->dtype, plan.count, plan.rows.scale);
      }
      row += plan.rows.stride_bytes;
    }
    return {};
  }

  Status zero(std::byte* memory, std::size_t size_bytes) const override {
    std::memset(memory, 0, size_bytes);
    return {};
  }
};

}  // namespace

const DeviceOps& cpu_ops() {
  static const CpuOps ops;
  return ops;
}

}  // namespace pando
