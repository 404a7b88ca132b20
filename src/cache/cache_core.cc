// SPDX-License-Identifier: Apache-2.0
// What the calls of a cache share; see the header.
#include "cache/cache_core.h"

namespace pando {

void CacheCore::give_back_device(Released& from) {
  ledger.release(std::span<const PageId>(from.pages));
  ledger.release_window(std::span<const PageId>(from.window_pages));
  states.release(from.snapshots);
  from.pages.clear();
  from.window_pages.clear();
  from.snapshots.clear();
}

void CacheCore::record_stored(Tier tier, NodeIndex i) {
  if (events) record_stored(*events, tier, i);
}

void CacheCore::record_stored(EventLog& to, Tier tier, NodeIndex i) const {
  const Node& node = index.node(i);
  const std::size_t num_tokens = node.num_pages * index.page_size() + (options.bigram ? 1 : 0);
  const PageHash* parent =
      node.begin_pages() == 0 ? nullptr : index.tree().edges().parent_hash(node);
  to.stored(tier, index.tree().namespace_of(i), parent,
            {index.tree().edges().hashes(node), node.num_pages}, {node.tokens, num_tokens});
}

}  // namespace pando
