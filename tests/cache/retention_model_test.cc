// SPDX-License-Identifier: Apache-2.0
// Priorities for a time, pins, sessions and tenants against a reference that looks at every page,
// with a clock that the test moves. After each step both hold the same pages, every tenant has as
// many as the reference counts, and the cache proves itself.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <array>
#include <chrono>
#include <cstdlib>

#include "base/check.h"
#include "pando/inspect.h"
#include "pando/paths.h"
#include "support/cache_fixture.h"
#include "support/random_ops.h"
#include "support/retention_reference.h"

namespace pando::testing {
namespace {

using std::chrono::milliseconds;
using Reference = RetentionReference;

constexpr std::size_t kPage = Reference::kPage;
constexpr std::size_t kCapacityPages = 24;
constexpr std::size_t kMostPinned = kCapacityPages / 2;

class RetentionModel {
 public:
  RetentionModel() : cache_(kPage, options(), kCapacityPages * kPage) {
    namespaces_ = {"", make_namespace({.tenant = "a"}),
                   make_namespace({.lora = "x", .tenant = "a"}), make_namespace({.tenant = "b"})};
    reference_.now = clock_;
    set_tenant("a", 6, 12);
    set_tenant("b", 8, SIZE_MAX);
    reference_.owners = {{namespaces_[1], 1}, {namespaces_[2], 1}, {namespaces_[3], 2}};
  }

  void apply(std::uint64_t op) {
    const auto bits = [&op](std::uint64_t below) {
      const std::uint64_t value = op % below;
      op /= below;
      return value;
    };
    const std::uint64_t kind = bits(16);
    const std::string& ns = namespaces_[bits(namespaces_.size())];
    Tokens key;
    for (std::uint64_t n = 1 + bits(6); n > 0; --n) {
      const auto page = static_cast<Token>(bits(3));
      key.push_back(page);
      key.push_back(page);
    }
    if (kind < 6) {
      insert(ns, key, bits(4), bits(1 << 16));
    } else if (kind == 6) {
      cache_.match(key, ns);
      reference_.match(ns, key);
    } else if (kind < 9) {
      evict(1 + bits(6), ns);
    } else if (kind == 9) {
      pin(ns, key, bits(3) == 0 ? 0 : 1 + bits(40));
    } else if (kind == 10) {
      unpin(bits(8));
    } else if (kind == 11) {
      session(bits(8), bits(30));
    } else if (kind < 14) {
      pass(1 + bits(20));
    } else if (kind == 14) {
      set_tenant(bits(2) == 0 ? "a" : "b", bits(16), bits(3) == 0 ? SIZE_MAX : bits(20));
    } else {
      touch(bits(8));
    }
    compare();
  }

 private:
  CacheOptions options() {
    CacheOptions o;
    o.partial_pages = false;
    o.retention.max_pinned_share = 0.5;
    o.retention.session_priority = Reference::kSessionLevel;
    o.retention.now = [this] {
      return std::chrono::steady_clock::time_point(milliseconds(clock_));
    };
    return o;
  }

  void insert(const std::string& ns, const Tokens& key, std::uint64_t which, std::uint64_t range) {
    const std::size_t need = key.size() / kPage;
    const std::size_t free = cache_.allocator->available() / kPage;
    if (free < need) evict(need - free, ns);
    if (cache_.allocator->available() / kPage < need) return;
    const SessionId id = pick(which);
    std::vector<RetentionRange> ranges;
    if (range % 3 == 0) {
      RetentionRange& r = ranges.emplace_back();
      r.from = range / 3 % key.size();
      r.to = range / 40 % 2 == 0 ? RetentionRange::kToEnd
                                 : r.from + 1 + range / 80 % (key.size() - r.from);
      r.priority = static_cast<int>(range / 320 % 9) - 2;
      if (range / 2880 % 3 > 0) r.duration = milliseconds(1 + range / 9000 % 30);
    }
    const Inserted inserted = cache_.put(key, ns, {.retention = ranges, .session = id});
    RC_ASSERT(inserted.length == key.size());
    reference_.insert(ns, key, id.value);
    const Reference::PageKey end{ns, key};
    for (const RetentionRange& r : ranges) {
      const std::size_t to = r.to == RetentionRange::kToEnd ? key.size() : r.to;
      RC_ASSERT(inserted.widened_ranges ==
                (r.from % kPage != 0 || (r.to != RetentionRange::kToEnd && r.to % kPage != 0)));
      reference_.grant(end, r.from, to, r.priority,
                       r.duration ? clock_ + r.duration->count() : Reference::kForever);
    }
    reference_.enforce_cap(reference_.owner(ns), end);
  }

  void evict(std::size_t n, const std::string& ns) {
    const EvictResult result = cache_->evict({.tokens = n * kPage, .ns = ns});
    RC_ASSERT(result.tokens == reference_.evict(n, reference_.owner(ns)) * kPage);
  }

  void pin(const std::string& ns, const Tokens& key, std::uint64_t ttl) {
    const std::size_t n = reference_.found(ns, key);
    PinOptions options;
    if (ttl > 0) options.ttl = milliseconds(ttl);
    const Result<Pinned> pinned = cache_->retention().pin({key, ns}, options);
    if (n == 0) {
      RC_ASSERT(pinned.error().code == ErrorCode::invalid_argument);
      return;
    }
    const Reference::PageKey end = Reference::page_of(ns, key, n - 1);
    std::size_t more = 0;
    for (const auto& page : Reference::path(end)) more += reference_.pages.at(page).pins == 0;
    if (reference_.num_pinned() + more > kMostPinned) {
      RC_ASSERT(pinned.error().code == ErrorCode::out_of_capacity);
      return;
    }
    RC_ASSERT(pinned->length == n * kPage);
    pins_.push_back(pinned->id);
    reference_.pin(pinned->id.value, end,
                   ttl > 0 ? clock_ + static_cast<std::int64_t>(ttl) : Reference::kForever);
  }

  void unpin(std::uint64_t which) {
    if (pins_.empty()) return;
    const PinId id = pins_[which % pins_.size()];
    const bool known = reference_.pins.contains(id.value);
    RC_ASSERT(cache_->retention().unpin(id).ok() == known);
    if (known) reference_.unpin(id.value);
    std::erase(pins_, id);
  }

  SessionId pick(std::uint64_t which) const {
    if (which == 0 || which > sessions_.size()) return {};
    return sessions_[which - 1];
  }

  void session(std::uint64_t which, std::uint64_t idle_after) {
    const SessionId id = pick(which);
    if (!id && sessions_.size() < 4) {
      sessions_.push_back(
          *cache_->retention().open_session({.idle_after = milliseconds(1 + idle_after)}));
      reference_.sessions[sessions_.back().value].idle_after =
          1 + static_cast<std::int64_t>(idle_after);
      reference_.use_session(sessions_.back().value, {});
    } else if (id) {
      cache_->retention().close_session(id).value();
      RC_ASSERT(!cache_->retention().close_session(id).ok());
      reference_.close_session(id.value);
      std::erase(sessions_, id);
    }
  }

  void touch(std::uint64_t which) {
    const SessionId id = pick(which);
    if (!id) return;
    cache_->retention().touch(id).value();
    reference_.use_session(id.value, {});
  }

  void pass(std::uint64_t time) {
    clock_ += static_cast<std::int64_t>(time);
    cache_->poll();
    reference_.pass(clock_);
  }

  void set_tenant(const std::string& name, std::size_t floor, std::size_t cap) {
    const std::size_t who = name == "a" ? 1 : 2;
    const Status set =
        cache_->retention().set_tenant({.name = name,
                                        .device_floor = floor * kPage,
                                        .device_cap = cap == SIZE_MAX ? cap : cap * kPage});
    reference_.tenants.resize(3);
    const std::size_t others = reference_.tenants[3 - who].floor;
    RC_ASSERT(set.ok() == (floor <= cap && floor + others <= kCapacityPages));
    if (!set.ok()) return;
    reference_.tenants[who] = {floor, cap};
    reference_.enforce_cap(who);
  }

  void compare() {
    const Status proof = cache_->check();
    if (!proof.ok()) RC_FAIL(proof.error().message);
    RC_ASSERT(cache_->inspect().sizes().total == reference_.pages.size() * kPage);
    for (const auto& [key, page] : reference_.pages)
      RC_ASSERT(cache_->paths().probe({key.second, key.first}) == key.second.size());
    const std::vector<TenantUsage> usage = cache_->retention().tenants();
    RC_ASSERT(usage.size() == reference_.tenants.size());
    std::size_t sum = 0;
    for (std::size_t who = 0; who < usage.size(); ++who) {
      RC_ASSERT(usage[who].device_tokens == reference_.has(who) * kPage);
      sum += usage[who].device_tokens;
    }
    RC_ASSERT(sum == cache_->inspect().sizes().total);
    RC_ASSERT(cache_->retention().pinned_tokens() == reference_.num_pinned() * kPage);
    RC_ASSERT(cache_->retention().pins().size() == reference_.pins.size());
    const std::vector<Session> sessions = cache_->retention().sessions();
    RC_ASSERT(sessions.size() == reference_.sessions.size());
    for (const Session& session : sessions) {
      const Reference::Session& expected = reference_.sessions.at(session.id.value);
      std::size_t longest = 0;
      for (const auto& end : expected.ends) longest = std::max(longest, end.second.size());
      RC_ASSERT(session.active == expected.active && session.tokens == longest);
    }
  }

  std::int64_t clock_ = 1000;
  TestCache cache_;
  Reference reference_;
  std::vector<std::string> namespaces_;
  std::vector<PinId> pins_;
  std::vector<SessionId> sessions_;
};

std::size_t num_ops() {
  const char* text = std::getenv("PANDO_MODEL_OPS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) / 8 : 200'000;
}

TEST(RetentionModel, AgreesWithALookAtEveryPage) {
  ASSERT_TRUE(check_random_ops(num_ops(), [](const auto& ops) {
    RetentionModel model;
    for (const std::uint64_t op : ops) model.apply(op);
  }));
}

}  // namespace
}  // namespace pando::testing
