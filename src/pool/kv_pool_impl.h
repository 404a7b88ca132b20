// SPDX-License-Identifier: Apache-2.0
// The inside of KvPool and SavedKv, for src/pool alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "pando/pools.h"
#include "pool/arena_block.h"
#include "pool/device_ops.h"
#include "pool/load_gate.h"

namespace pando {

struct KvPool::Impl {
  Geometry geometry;
  DeviceLayout layout = DeviceLayout::layer_first;
  MemoryKind kind = MemoryKind::host;
  std::size_t num_pages = 0;
  std::vector<PlaneMemory> planes = {};
  const DeviceOps* ops = nullptr;
  ArenaBlock block = {};  // empty over an engine's buffers
  LoadGate gate = {};
  std::atomic<int> uses = 0;  // transfers under way

  std::size_t num_slots() const { return num_pages * geometry.page_size; }
  Status check_layer(std::size_t layer) const;
  Status check_slots(std::string_view call, std::span<const SlotId> slots,
                     std::size_t first_slot) const;
  Status check_rows(std::string_view call, std::size_t plane, std::size_t count,
                    const Rows& rows) const;
  Status write(std::size_t layer, std::size_t plane, std::span<const SlotId> slots,
               const Rows& rows, std::size_t first, std::size_t count) const;
};

struct SavedKv::Impl {
  Geometry geometry;
  std::size_t num_tokens = 0;
  ArenaBlock block = {};
  std::vector<PlaneMemory> planes = {};  // rows of a layer follow each other
};

}  // namespace pando
