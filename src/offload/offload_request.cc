// SPDX-License-Identifier: Apache-2.0
// OffloadRequest: which keys a request has used, each once, and in which order they follow each
// other. It knows nothing of blocks.
#include <algorithm>

#include "pando/offload.h"

namespace pando {

OffloadRequest::Chain& OffloadRequest::chain_of(std::uint32_t group) {
  for (Chain& chain : chains_)
    if (chain.group == group) return chain;
  return chains_.emplace_back(Chain{.group = group});
}

std::pair<const OffloadRequest::Use&, bool> OffloadRequest::add(std::uint64_t hash,
                                                                const OffloadKey& key,
                                                                bool reused) {
  const auto number = static_cast<std::uint32_t>(uses_.size());
  const auto [place, is_first] = places_.emplace(hash, number);
  if (!is_first) return {uses_[place->second], false};
  Chain& chain = chain_of(key.group);
  uses_.push_back({hash, chain.last, key.end, key.group, chain.length, reused});
  ++chain.length;
  chain.last = hash;
  return {uses_.back(), true};
}

std::vector<OffloadRequest::Use> OffloadRequest::take() {
  std::vector<Use> uses = std::move(uses_);
  uses_.clear();
  chains_.clear();
  places_.clear();
  const auto has_end = [](const Use& use) { return use.end != 0; };
  const bool by_end = std::all_of(uses.begin(), uses.end(), has_end);
  const auto before = [by_end](const Use& a, const Use& b) {
    return a.group != b.group ? a.group < b.group : by_end && a.end < b.end;
  };
  std::stable_sort(uses.begin(), uses.end(), before);
  return uses;
}

}  // namespace pando
