// SPDX-License-Identifier: Apache-2.0
// From what a caller asks of a Copier to a checked CopyPlan; every copier begins here, so all of
// them refuse the same things with the same words.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pando/copier.h"
#include "pool/copy_plan.h"
#include "pool/pool_use.h"

namespace pando {

enum class Direction { backup, load };

Result<CopyPlan> plan_pages(const PagePairs& pages, Direction direction);
Result<CopyPlan> plan_move(KvPool& pool, std::span<const SlotId> dst, std::span<const SlotId> src);
/// Puts items in the order of one end's memory: neighbours become one piece, and prefetching and
/// address translation work. By digits: 16 000 pages take 0.2 ms, with comparisons 0.7.
enum class CopyEnd { dst, src };
void sort_items(std::vector<CopyItem>& items, CopyEnd end);

Status check_stream(std::size_t stream, std::size_t num_streams);

template <typename... Pools>
std::vector<PoolUse> hold(Pools&... pools) {
  std::vector<PoolUse> uses;
  (uses.push_back(PoolUse(pools)), ...);
  return uses;
}

}  // namespace pando
