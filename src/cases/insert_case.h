// SPDX-License-Identifier: Apache-2.0
// Insert of 8192 tokens of which 6144 are there, and its limit: comparing the shared tokens and
// copying the new tokens and their int64 slots. Sequence 0 stays in the tree; the others share its
// first tokens, are inserted, and evicted again.
#pragma once

#include <cstring>
#include <vector>

#include "cases/tree.h"
#include "pando/paths.h"

namespace pando::bench {

class InsertCase {
 public:
  static constexpr std::size_t kPage = 64;
  static constexpr std::size_t kLength = 8192;
  static constexpr std::size_t kShared = 6144;
  static constexpr std::size_t kBatch = 64;

  InsertCase()
      : sequences_(kBatch + 1, kLength, kShared, kBatch + 1),
        copies_(kBatch + 1, kLength, kShared, kBatch + 1),
        tree_((kBatch + 2) * kLength, kPage),
        slots_(kBatch, std::vector<SlotId>(kLength)),
        new_tokens_(kLength - kShared),
        new_slots_(kLength - kShared) {
    tree_.insert(sequences_[0]);
    keep_ = *tree_.cache->paths().lock(*tree_.cache->paths().match({sequences_[0]}));
    prepare();
    for (std::size_t i = 0; i < kBatch; ++i) work(i);
    require(tree_.cache->paths().match({sequences_[kBatch]})->length == kLength,
            "insert took everything");
    prepare();
  }

  /// Evicts what the last batch added, and makes room for the next.
  void prepare() {
    tree_.cache->evict(kBatch * kLength);
    for (std::size_t i = 0; i < kBatch; ++i) {
      require(tree_.cache->paths().match({sequences_[i + 1]}, slots_[i])->length == kShared,
              "shared part");
      tree_.extend(slots_[i], kShared);
    }
  }
  void work(std::size_t i) {
    keep(tree_.cache->paths()
             .insert({sequences_[i + 1]}, slots_[i], {.owned_by_tree = kShared})
             ->length);
  }
  void limit(std::size_t i) {
    keep(std::memcmp(sequences_[i + 1].data(), copies_[0].data(), kShared * sizeof(Token)));
    std::memcpy(new_tokens_.data(), sequences_[i + 1].data() + kShared,
                new_tokens_.size() * sizeof(Token));
    std::memcpy(new_slots_.data(), slots_[i].data() + kShared, new_slots_.size() * sizeof(SlotId));
    keep(new_slots_.data());
  }
  /// What a finished batch leaves behind belongs to the tree; the rest goes back by hand.
  void give_back_from(std::size_t first) {
    for (std::size_t i = first; i < kBatch; ++i)
      tree_.allocator->free(std::span(slots_[i]).subspan(kShared));
  }

 private:
  Sequences sequences_, copies_;
  Tree tree_;
  Lease keep_;
  std::vector<std::vector<SlotId>> slots_;
  std::vector<Token> new_tokens_;
  std::vector<SlotId> new_slots_;
};

}  // namespace pando::bench
