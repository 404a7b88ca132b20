// SPDX-License-Identifier: Apache-2.0
// Pictures of the radix tree: dump, all_pages, digest. All O(tree), none on a hot path.
#include <fmt/format.h>

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "index/radix_index.h"

namespace pando {
namespace {

// The first few of n values, separated by spaces.
template <typename T>
std::string first_few(const T* values, std::size_t n) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, n); ++i) text += fmt::format(" {}", values[i]);
  return n > kShown ? text + " ..." : text;
}

std::string describe(const std::optional<Component>& component, NodeIndex i, const char* with,
                     const char* without) {
  if (!component) return {};
  const Component::Record& record = (*component)[i];
  if (!record.present) return fmt::format(" | {}", without);
  return fmt::format(" | {} locks {}{}", with, record.locks, record.in_order ? " evictable" : "");
}

}  // namespace

std::vector<PageId> RadixIndex::all_pages() const {
  std::vector<PageId> out;
  if (!tree_.edges().numbered()) return out;
  tree_.for_each_in_order([&](NodeIndex i) {
    for (const PageId page : residency_.device_pages(node(i))) out.push_back(page);
  });
  return out;
}

// One line; how far it is indented says how many nodes are above it.
std::string RadixIndex::describe(NodeIndex i) const {
  const Node& at = node(i);
  if (at.is_root()) return fmt::format("namespace \"{}\"\n", at.info->name);
  std::size_t depth = 0;
  for (NodeIndex up = i; !node(up).is_root(); up = node(up).parent) ++depth;
  std::string text =
      fmt::format("{:{}}[{}, {}) tokens{}", "", 2 * depth, at.begin_pages() * page_size(),
                  at.end_pages * page_size(), first_few(at.tokens, at.num_pages * page_size()));
  if (tree_.edges().numbered())
    text += " pages" + (at.on_device() ? first_few(at.pages, at.num_pages) : " none");
  text += fmt::format(" locks {} hits {} priority {} used {}{}", at.locks, at.hits, at.priority,
                      at.last_access, at.in_order ? " evictable" : "");
  if (at.level != 0) text += fmt::format(" level {}", at.level);
  text += pando::describe(components_.window, i, "window", "tombstone");
  text += pando::describe(components_.state, i, "snapshot", "no snapshot");
  if (at.on_host) {
    text += fmt::format(" | host pages{} locks {}{}",
                        first_few(tree_.edges().host_pages(at), at.num_pages), at.host_locks,
                        at.in_host_order ? " evictable" : "");
    text += pando::describe(components_.host_window, i, "host window", "no host window");
    text += pando::describe(components_.host_state, i, "host snapshot", "no host snapshot");
  }
  return text + '\n';
}

std::string RadixIndex::dump() const {
  std::string text;
  tree_.for_each_in_order([&](NodeIndex i) { text += describe(i); });
  const auto line = [&](ComponentKind kind, const char* what) {
    const Sizes s = sizes(kind);
    return fmt::format("{} {}, {} evictable, {} protected", s.total, what, s.evictable,
                       s.protected_tokens);
  };
  text += line(ComponentKind::full, "tokens");
  if (components_.window) text += "; " + line(ComponentKind::window, "window tokens");
  if (components_.state) text += "; " + line(ComponentKind::state, "snapshots");
  if (shelves_.with_host()) {
    const Sizes s = shelves_.sizes(Tier::host, ComponentKind::full);
    text += fmt::format("; {} pages on the host, {} evictable", s.total, s.evictable);
  }
  return text + fmt::format(", {} nodes\n", num_nodes());
}

std::uint64_t RadixIndex::digest() const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](const void* data, std::size_t size_bytes) {
    hash = XXH3_64bits_withSeed(data, size_bytes, hash);
  };
  tree_.for_each_in_order([&](NodeIndex i) {
    const Node& at = node(i);
    if (at.is_root()) mix(at.info->name.data(), at.info->name.size());
    mix(at.tokens, at.is_root() ? 0 : tree_.edges().num_tokens(at) * sizeof(Token));
    const std::uint64_t facts[] = {at.end_pages,
                                   at.num_children,
                                   at.locks,
                                   at.host_locks,
                                   at.last_access,
                                   at.created,
                                   at.hits,
                                   static_cast<std::uint64_t>(at.priority),
                                   static_cast<std::uint64_t>(at.level),
                                   at.owner,
                                   at.on_device(),
                                   at.on_host,
                                   at.backing_up,
                                   at.unstored,
                                   !at.is_root() && residency_.has_window(i),
                                   residency_.has_snapshot(i),
                                   residency_.has_host_window(i),
                                   residency_.has_host_snapshot(i)};
    mix(facts, sizeof facts);
  });
  return hash;
}

}  // namespace pando
