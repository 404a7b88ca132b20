// SPDX-License-Identifier: Apache-2.0
// The hazard policy over the host pages of a group: which kept page that nothing holds goes next.
// Pages have the ranks of the blocks that they are copies of, and are drawn by the same index.
// Any page may go, not only leaves: a page does not know the one before it. Among equals the
// deeper goes first, so a prompt that is not used again goes from its end.
//
// Invariant: candidates are the ids that were inserted and not erased since. HostBlocks inserts
// those of its order of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/id_list.h"
#include "index/draw.h"

namespace pando {

class HazardPages {
 public:
  /// Ids are in [1, num_ids). The index must outlive it.
  HazardPages(std::size_t num_ids, const HazardIndex& index)
      : ranks_(num_ids), draw_(index, Draw::Ties::deeper_first) {}

  /// Of an id that is no candidate.
  void set_rank(PageId id, const Draw::Candidate& rank) {
    ranks_[index_of(id)] = {rank.key, rank.depth, index_of(id)};
  }
  const Draw::Candidate& rank(PageId id) const { return ranks_[index_of(id)]; }

  void insert(PageId id) { draw_.insert(candidates_, ranks_[index_of(id)]); }
  void erase(PageId id) { draw_.erase(candidates_, index_of(id)); }
  /// Only where there is one.
  PageId pick() { return PageId{draw_.pick(candidates_)}; }

  std::size_t memory_bytes() const {
    return ranks_.capacity() * sizeof(Draw::Candidate) + candidates_.memory_bytes() +
           draw_.memory_bytes();
  }
  /// Candidates are exactly those of a queue.
  Status check(const IdList<PageId>& queue) const {
    for (std::size_t at = 0; at < candidates_.size(); ++at) {
      const Draw::Candidate& one = candidates_[at];
      if (draw_.position(one.id) != at || !queue.has(PageId{one.id}) ||
          ranks_[one.id].key != one.key)
        return make_error(ErrorCode::corrupt, "hazard: host page {} is no candidate", one.id - 1);
    }
    if (candidates_.size() != queue.size())
      return make_error(ErrorCode::corrupt, "hazard: {} candidates of {} host pages",
                        candidates_.size(), queue.size());
    return {};
  }

 private:
  std::vector<Draw::Candidate> ranks_;  // by id
  Draw draw_;
  Draw::List candidates_;
};

}  // namespace pando
