// SPDX-License-Identifier: Apache-2.0
// The built-in eviction policies: each is one line that makes a key.
#include "pando/policy.h"

#include <cmath>
#include <string>

#include "base/check.h"

namespace pando {
namespace {

using KeyFn = EvictionKey (*)(const NodeStats&);

struct Builtin {
  std::string_view name;
  KeyFn key;
};

// Maps a signed priority to an unsigned order.
std::uint64_t ordered(std::int32_t priority) {
  return static_cast<std::uint32_t>(priority) ^ 0x8000'0000u;
}

constexpr std::uint32_t kSlruProtectedHits = 2;

constexpr Builtin kBuiltins[] = {
    {"lru",
     [](const NodeStats& s) {
       return EvictionKey{s.last_access, 0};
     }},
    {"lfu",
     [](const NodeStats& s) {
       return EvictionKey{s.hits, s.last_access};
     }},
    {"fifo",
     [](const NodeStats& s) {
       return EvictionKey{s.created, 0};
     }},
    {"filo",
     [](const NodeStats& s) {
       return EvictionKey{~s.created, 0};
     }},
    {"mru",
     [](const NodeStats& s) {
       return EvictionKey{~s.last_access, 0};
     }},
    {"priority",
     [](const NodeStats& s) {
       return EvictionKey{ordered(s.priority), s.last_access};
     }},
    {"slru",
     [](const NodeStats& s) {
       return EvictionKey{s.hits >= kSlruProtectedHits, s.last_access};
     }},
};

class BuiltinPolicy final : public EvictionPolicy {
 public:
  explicit BuiltinPolicy(const Builtin& builtin) : builtin_(builtin) {}
  std::string_view name() const override { return builtin_.name; }
  EvictionKey key(const NodeStats& stats) const override { return builtin_.key(stats); }

 private:
  const Builtin& builtin_;
};

constexpr std::string_view kHazard = "hazard";

class HazardPolicy final : public EvictionPolicy {
 public:
  explicit HazardPolicy(const HazardOptions& options) : options_(options) {}
  std::string_view name() const override { return kHazard; }
  EvictionKey key(const NodeStats& stats) const override { return {stats.last_access, 0}; }
  std::optional<HazardOptions> hazard() const override { return options_; }

 private:
  const HazardOptions options_;
};

}  // namespace

Status HazardOptions::validate() const {
  if (!attention_tokens || (std::isfinite(*attention_tokens) && *attention_tokens > 0)) return {};
  return make_error(ErrorCode::invalid_argument,
                    "hazard: attention_tokens is {}; expected a number of tokens above 0",
                    *attention_tokens);
}

Result<std::unique_ptr<EvictionPolicy>> make_hazard_policy(const HazardOptions& options) {
  if (Status s = options.validate(); !s) return s.error();
  return {std::make_unique<HazardPolicy>(options)};
}

Result<std::unique_ptr<EvictionPolicy>> make_policy(std::string_view name) {
  if (name == kHazard) return make_hazard_policy({});
  std::string known;
  for (const Builtin& builtin : kBuiltins) {
    if (builtin.name == name) return {std::make_unique<BuiltinPolicy>(builtin)};
    known += builtin.name;
    known += ", ";
  }
  known += kHazard;
  return make_error(ErrorCode::invalid_argument, "unknown eviction policy '{}': expected one of {}",
                    name, known);
}

}  // namespace pando
