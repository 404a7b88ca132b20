// SPDX-License-Identifier: Apache-2.0
// What is kept longer than the eviction policy alone would keep it, as options and calls of
// PrefixCache: priorities of token ranges, pins, sessions, and shares of tenants. docs/tuning.md
// shows when to use which.
//
// Levels. What has a lower level is evicted first, whatever the policy says; the policy decides
// among equals. Everything has level 0, unless a range gives it another for some time, or a session
// that is in use raises it.
//
// Time. Durations are measured by RetentionOptions::now and end in poll(), or when room is made.
// Where ranks mirror a cache, in poll() alone, by the clock that is furthest behind.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

struct PrefixCacheImpl;

/// Tokens [from, to) of a request are kept as `priority` says for so long, and at level 0
/// afterwards. Where several apply, the highest does. Ends inside a page are moved outwards, to
/// whole pages, and counted (Inserted::widened_ranges).
struct RetentionRange {
  static constexpr std::size_t kToEnd = SIZE_MAX;  ///< wherever the request ends
  static constexpr int kMinPriority = -100;
  static constexpr int kMaxPriority = 100;

  std::size_t from = 0;
  std::size_t to = kToEnd;
  int priority = 0;  ///< the level: above 0 goes after all that has none, below 0 before it
  std::optional<std::chrono::milliseconds> duration = {};  ///< unless given: for good
};

/// Where a pinned path stays.
enum class PinKind {
  hard,  ///< on the device
  soft,  ///< somewhere: without a host copy on the device, with one it may leave the device
};
std::string_view to_string(PinKind kind);

struct PinOptions {
  PinKind kind = PinKind::hard;
  std::optional<std::chrono::milliseconds> ttl = {};  ///< unless given: until unpin()
};

/// Names a pin. A default-constructed one names none.
struct PinId {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend bool operator==(PinId, PinId) = default;
};

/// What pin() did: the longest part of the key that was there is held.
struct Pinned {
  PinId id = {};
  std::size_t length = 0;  ///< tokens
};

/// One of pins().
struct Pin {
  PinId id = {};
  PinKind kind = PinKind::hard;
  std::string ns = {};
  std::size_t length = 0;  ///< tokens
  bool on_device = true;   ///< held there; a soft pin lets go once the host has it all
  std::optional<std::chrono::milliseconds> remaining = {};  ///< of its ttl, if it has one
};

struct SessionOptions {
  /// Not used for so long, the session's prefix falls back to level 0 until it is used again.
  std::chrono::milliseconds idle_after = std::chrono::minutes(5);
};

/// Names an open session. A default-constructed one names none. A request whose session is closed
/// while it runs ends as one without.
struct SessionId {
  std::uint64_t value = 0;
  explicit operator bool() const { return value != 0; }
  friend bool operator==(SessionId, SessionId) = default;
};

/// One of sessions().
struct Session {
  SessionId id = {};
  bool active = false;     ///< its prefix is protected
  std::size_t tokens = 0;  ///< of its longest prefix that is still cached
};

/// A tenant's share of device and host, in tokens. A namespace belongs to the tenant that
/// make_namespace() put into it, or that assign_namespace() said; all other namespaces, the empty
/// one among them, belong together to an owner of their own, whose name is empty and who may have
/// limits too. What requests hold and have not inserted is not counted.
struct TenantOptions {
  static constexpr std::size_t kNoCap = SIZE_MAX;
  std::string name;
  /// Nobody else takes from a tenant that has no more than this. What it does not use, others may.
  std::size_t device_floor = 0;
  std::size_t host_floor = 0;
  /// A tenant that has more gives first, to others and to itself. What it has inserted last stays
  /// until then, even if that alone is more.
  std::size_t device_cap = kNoCap;
  std::size_t host_cap = kNoCap;
};

/// What a tenant has, in tokens.
struct TenantUsage {
  std::string name;
  std::size_t device_tokens = 0;
  std::size_t device_evictable = 0;  ///< of these, not held
  std::size_t host_tokens = 0;
  std::size_t host_evictable = 0;  ///< of these, not held and on the host only
  TenantOptions limits = {};
};

struct RetentionOptions {
  /// Pins hold at most this share of the device on it, and this share of both tiers together.
  double max_pinned_share = 0.5;
  /// The level of the prefixes of sessions in use.
  int session_priority = 1;
  std::vector<TenantOptions> tenants = {};
  /// For durations; the steady clock unless given.
  std::function<std::chrono::steady_clock::time_point()> now = {};

  Status validate() const;
};

/// PrefixCache::retention() gives it. Ranges of priority come with a request, or with an insert.
class Retention {
 public:
  /// Holds what is on the device of the key, the longest part on whose end all components agree,
  /// without a request; once more each time. Refused if that is nothing, or if more would be pinned
  /// than may be.
  Result<Pinned> pin(const Key& key, const PinOptions& options = {});
  Status unpin(PinId id);
  std::vector<Pin> pins() const;
  /// Of all pinned paths together.
  std::size_t pinned_tokens() const;

  Result<SessionId> open_session(const SessionOptions& options = {});
  /// The session is in use, though no request of it is.
  Status touch(SessionId id);
  /// What only this session has used goes at once, from all tiers.
  Status close_session(SessionId id);
  std::vector<Session> sessions() const;

  /// Adds a tenant or changes its limits. Refused if all floors together are more than there is.
  Status set_tenant(const TenantOptions& tenant);
  Status assign_namespace(std::string_view ns, std::string_view tenant);
  /// The owner of what is no tenant's first, whose name is empty.
  std::vector<TenantUsage> tenants() const;
  Result<TenantUsage> tenant_usage(std::string_view name) const;

 private:
  friend struct PrefixCacheImpl;
  explicit Retention(PrefixCacheImpl& cache) : cache_(cache) {}
  PrefixCacheImpl& cache_;
};

}  // namespace pando
