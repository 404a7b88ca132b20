// SPDX-License-Identifier: Apache-2.0
// The mirror of what is cached; see the header.
#include "observe/block_mirror.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/append.h"
#include "base/check.h"

namespace pando {

void BlockMirror::apply(const KvEvent& event) {
  if (event.kind == KvEvent::Kind::cleared) return clear();
  if (event.kind == KvEvent::Kind::removed) {
    for (const PageHash& hash : event.hashes) blocks_.erase({event.tier, event.group, hash});
    return;
  }
  const std::size_t num = event.hashes.size();
  const std::size_t size = event.block_size;
  PANDO_CHECK(event.tokens.size() >= num * size, "an event of {} blocks of {} has {} tokens", num,
              size, event.tokens.size());
  const std::size_t overlap = event.tokens.size() - num * size;  // of bigram keys
  const auto ns = std::make_shared<const std::string>(event.ns);
  const std::span<const Token> tokens = event.tokens;
  for (std::size_t i = 0; i < num; ++i) {
    Block& block = blocks_[{event.tier, event.group, event.hashes[i]}];
    block.parent = i == 0 ? event.parent : event.hashes[i - 1];
    const std::span<const Token> own = tokens.subspan(i * size, size + overlap);
    block.tokens.assign(own.begin(), own.end());
    block.ns = ns;
    block.extra_keys = event.extra_keys.empty() ? std::vector<ExtraKey>{} : event.extra_keys[i];
    block.block_size = static_cast<std::uint32_t>(size);
    block.hash_bytes = static_cast<std::uint32_t>(event.hash_bytes);
  }
}

KvEvent BlockMirror::event_of(const Entry& entry) {
  const auto& [name, block] = entry;
  KvEvent event;
  event.tier = name.tier;
  event.group = name.group;
  event.hashes = {name.hash};
  event.parent = block.parent;
  event.tokens = block.tokens;
  event.block_size = block.block_size;
  event.ns = *block.ns;
  event.hash_bytes = block.hash_bytes;
  if (!block.extra_keys.empty()) event.extra_keys = {block.extra_keys};
  return event;
}

bool BlockMirror::continues(const KvEvent& event, const Entry& entry) {
  const Block& block = entry.second;
  return block.block_size == event.block_size && block.hash_bytes == event.hash_bytes &&
         *block.ns == event.ns;
}

void BlockMirror::append(KvEvent& event, const Entry& entry) {
  const Block& block = entry.second;
  const std::size_t num = event.hashes.size();
  event.hashes.push_back(entry.first.hash);
  pando::append(
      event.tokens,
      std::span<const Token>(block.tokens).last(block.block_size));  // without the overlap
  if (block.extra_keys.empty() && event.extra_keys.empty()) return;
  event.extra_keys.resize(num);  // of all blocks or of none
  event.extra_keys.push_back(block.extra_keys);
}

// From each block without its parent down: one child goes on, the others wait on the stack.
void BlockMirror::state(std::size_t max_blocks, const std::function<void(KvEvent)>& visit) const {
  std::unordered_map<const Entry*, std::vector<const Entry*>> children;
  std::vector<const Entry*> waiting;
  for (const Entry& entry : blocks_) {
    const auto& [name, block] = entry;
    const auto parent =
        block.parent ? blocks_.find({name.tier, name.group, *block.parent}) : blocks_.end();
    if (parent == blocks_.end())
      waiting.push_back(&entry);
    else
      children[&*parent].push_back(&entry);
  }
  while (!waiting.empty()) {
    const Entry* at = waiting.back();
    waiting.pop_back();
    KvEvent event = event_of(*at);
    for (auto next = children.find(at); next != children.end(); next = children.find(at)) {
      const std::vector<const Entry*>& all = next->second;
      waiting.insert(waiting.end(), all.begin() + 1, all.end());
      at = all.front();
      if (event.hashes.size() < max_blocks && continues(event, *at)) {
        append(event, *at);
        continue;
      }
      visit(std::exchange(event, event_of(*at)));
    }
    visit(std::move(event));
  }
}

}  // namespace pando
