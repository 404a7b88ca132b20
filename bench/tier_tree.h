// SPDX-License-Identifier: Apache-2.0
// A Tree with a host tier whose copies take no time, for benchmarks of what the control plane does
// about them. Pages are of a few bytes, which nobody writes: a million of them is bookkeeping.
#pragma once

#include <cstddef>
#include <memory>

#include "cases/tree.h"
#include "copy/transfer_task.h"

namespace pando::bench {

/// Every transfer has ended when the call returns; no byte is touched.
class InstantCopier final : public Copier {
 public:
  Result<Transfer> backup(const PagePairs& pages, std::size_t) override { return ended(pages); }
  Result<Transfer> load(const PagePairs& pages, std::size_t, LoadOrder) override {
    return ended(pages);
  }
  Result<Transfer> move(KvPool&, std::span<const SlotId>, std::span<const SlotId>,
                        std::size_t) override {
    return Error{ErrorCode::unavailable, "no moves here"};
  }
  Status wait_for_stream(void*, std::size_t) override {
    return Error{ErrorCode::unavailable, "no streams here"};
  }
  std::size_t num_streams() const override { return 2; }

 private:
  static Transfer ended(const PagePairs& pages) {
    auto task = std::make_shared<TransferTask>(CopyPlan{.geometry = &pages.device.geometry()},
                                               std::vector<PoolUse>{});
    require(task->begin(), "transfer");
    task->finish();
    return Transfer(task);
  }
};

/// Room for `capacity_tokens` on each tier.
class TierTree {
 public:
  TierTree(std::size_t capacity_tokens, std::size_t page_size)
      : arena_(make_malloc_arena()),
        device_(*KvPool::create(
            {.geometry = mha_geometry(
                 {.layers = {.num_layers = 1, .page_size = page_size, .dtype = DType::int8},
                  .heads = 1,
                  .head_dim = 1}),
             .capacity_tokens = capacity_tokens},
            *arena_)),
        host_(*HostPool::create({.ratio = 1.0}, *device_, *arena_)),
        tree_(capacity_tokens, page_size,
              {.host = HostTierOptions{.full = {device_.get(), host_.get()},
                                       .copier = &copier_,
                                       .write_policy = WritePolicy::write_through}}) {}

  Tree* operator->() { return &tree_; }
  PrefixCache& cache() { return *tree_.cache; }

 private:
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<KvPool> device_;
  std::unique_ptr<HostPool> host_;
  InstantCopier copier_;
  Tree tree_;
};

}  // namespace pando::bench
