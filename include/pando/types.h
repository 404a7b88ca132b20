// SPDX-License-Identifier: Apache-2.0
// The words every Pando header uses: tokens, slots, pages, nodes, keys and namespaces.
// Values only: nothing here allocates behind your back or holds a lock.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pando {

/// A vocabulary id. Negative values are refused wherever tokens enter the library.
using Token = std::int32_t;

/// Where one token's KV lives in a pool. Same layout as int64_t, so that an array of slots can be
/// handed to a framework as it is. Slots of page 0 pad batches and are never handed out.
enum class SlotId : std::int64_t {};

/// `page_size` consecutive slots: page p holds slots [p * page_size, (p + 1) * page_size).
enum class PageId : std::uint32_t {};

constexpr std::int64_t index_of(SlotId slot) { return static_cast<std::int64_t>(slot); }
constexpr std::uint32_t index_of(PageId page) { return static_cast<std::uint32_t>(page); }

/// Where one snapshot of recurrent state lives: slot `index` of the pool with this id. A
/// default-constructed one names nothing, and is false.
struct StateSlot {
  std::uint32_t index = 0;  ///< slot in its pool
  std::uint32_t pool = 0;   ///< id of the StateAllocator; 0: none

  explicit operator bool() const { return pool != 0; }
  friend bool operator==(StateSlot, StateSlot) = default;
};

/// Names a tree node. The generation makes a handle to a node that has since gone an error, not a
/// crash. A default-constructed id names nothing.
struct NodeId {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;

  explicit operator bool() const { return generation != 0; }
  friend bool operator==(NodeId, NodeId) = default;
};

/// What a prompt is looked up by: its tokens, and the namespace in which they may be shared.
/// A view: both must outlive it. A namespace that nobody keeps, such as what make_namespace()
/// returns, does not compile.
struct Key {
  Key() = default;
  Key(std::span<const Token> tokens, std::string_view ns = {})  // NOLINT: implicit by design
      : tokens(tokens), ns(ns) {}
  template <std::same_as<std::string> Temporary>
  Key(std::span<const Token> tokens, Temporary&& ns) = delete;

  std::span<const Token> tokens;  ///< of the prompt
  std::string_view ns;            ///< the namespace; empty: none
};

/// The parts that keep equal tokens apart. Requests that differ in any of them never share KV.
struct NamespaceParts {
  std::string_view lora = {};
  std::string_view tenant = {};
  std::string_view salt = {};
  std::string_view extra = {};
};

/// One text for all parts, different for different parts (each is length-prefixed). All parts empty
/// gives the empty namespace, whose page hashes are those of a cache without namespaces.
std::string make_namespace(const NamespaceParts& parts);

/// Where KV lives: in the memory of the device, on the host, or in a store behind that.
enum class Tier : std::uint8_t { device, host, store };

/// What a node of the tree may hold: KV of the full-attention layers, which every node has; KV of
/// the sliding-window layers; a snapshot of the recurrent layers at its end.
enum class ComponentKind { full, window, state };

/// A share of the cache, in tokens (state: in snapshots). `evictable + protected_tokens == total`.
struct Sizes {
  std::size_t evictable = 0;
  std::size_t protected_tokens = 0;
  std::size_t total = 0;

  friend bool operator==(const Sizes&, const Sizes&) = default;
};

}  // namespace pando
