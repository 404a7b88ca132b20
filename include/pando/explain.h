// SPDX-License-Identifier: Apache-2.0
// Why a key is, or is not, in a PrefixCache, part by part. PrefixCache::explain() tells; what it
// knows of pages that have gone is what CacheOptions::remember_evicted lets it remember.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"

namespace pando {

enum class Finding : std::uint8_t {
  on_device,
  on_host,
  window_gone,          ///< its tokens are there, the window that a match there needs is not
  no_snapshot,          ///< its tokens are there, but no recurrent state at or behind their end
  evicted,              ///< was there; see Eviction
  other_namespace,      ///< is there, but under another namespace
  never_seen,           ///< or longer ago than is remembered
  shorter_than_a_page,  ///< the tail: only whole pages are cached
  disabled,             ///< this cache keeps nothing
};
std::string_view to_string(Finding finding);

/// Who needed the room.
enum class Pressure : std::uint8_t {
  allocate,        ///< a request's new tokens
  evict_call,      ///< the engine asked for it
  load_back,       ///< tokens that came back from the host
  host_room,       ///< copies on their way to a full host
  failed_load,     ///< nobody: its bytes had not arrived
  tenant_cap,      ///< newer tokens of the same tenant, beyond its cap
  session_closed,  ///< nobody: the only session that used it was closed
};
std::string_view to_string(Pressure pressure);

struct Eviction {
  Tier from = Tier::device;  ///< the last tier that had it
  Pressure pressure = Pressure::allocate;
  std::size_t pressure_tokens = 0;  ///< that were to be freed
  std::uint64_t at_match = 0;       ///< so many calls of match() and start() came before
};

/// Tokens [from, to) of a key.
struct KeyPart {
  std::size_t from = 0, to = 0;
  Finding finding = Finding::never_seen;
  std::optional<Eviction> eviction = {};  ///< of `evicted`
  std::string ns = {};                    ///< of `other_namespace`: one of them
};

struct Explanation {
  std::vector<KeyPart> parts;  ///< in order, without gaps
  std::uint64_t matches = 0;   ///< calls of match() and start() so far
  /// Evictions had to be forgotten: what was "never seen" may have been.
  bool forgetful = false;
};

}  // namespace pando
