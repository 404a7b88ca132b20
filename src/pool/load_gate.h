// SPDX-License-Identifier: Apache-2.0
// The loads that readers of a pool wait for, layer by layer. The thread that starts loads closes
// the gate, the engine's forward thread waits at it: the one part of a pool that is locked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pando/pools.h"

namespace pando {

class LoadGate {
 public:
  void close(std::shared_ptr<LayerSignal> load) {
    const std::lock_guard lock(mutex_);
    std::erase_if(loads_, [](const auto& other) { return other->done(); });
    loads_.push_back(std::move(load));
  }
  void open() {
    const std::lock_guard lock(mutex_);
    loads_.clear();
  }
  /// Calls wait(load) for each load that has not arrived, outside the lock; the first error ends
  /// it.
  template <typename Wait>
  Status pass(Wait&& wait) {
    std::vector<std::shared_ptr<LayerSignal>> loads;
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(loads_, [](const auto& load) { return load->done(); });
      loads = loads_;
    }
    for (const auto& load : loads)
      if (Status status = wait(*load); !status) return status;
    return {};
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<LayerSignal>> loads_;
};

}  // namespace pando
