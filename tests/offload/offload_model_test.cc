// SPDX-License-Identifier: Apache-2.0
// OffloadTable against a list that is searched from end to end: random requests that write, read,
// fail, overlap and finish late. Every answer, every block and every victim must agree, and check()
// must hold after each step. Under `hazard` the victims are not foretold: there the reference is
// told who went, and says whether they could.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "pando/offload.h"
#include "pando/policy.h"
#include "support/random_ops.h"

namespace pando::testing {
namespace {

struct Entry {
  std::string key;
  NodeStats stats;
  std::uint32_t depth = 0;
  int readers = 0;
  bool writing = true;

  bool may_go() const { return !writing && readers == 0; }
};

struct ReferenceUse {
  std::string key;
  std::uint64_t end;
  std::uint32_t group;
  bool reused;
};

struct Reference {
  std::size_t num_blocks = 0;
  std::unique_ptr<EvictionPolicy> policy;
  std::vector<Entry> entries = {};
  std::uint64_t clock = 0;

  Entry* find(const std::string& key) {
    for (Entry& entry : entries)
      if (entry.key == key) return &entry;
    return nullptr;
  }
  void erase(const std::string& key) {
    std::erase_if(entries, [&](const Entry& entry) { return entry.key == key; });
  }
  std::size_t room(const std::set<std::string>& kept) const {
    const auto goes = [&](const Entry& entry) {
      return entry.may_go() && !kept.contains(entry.key);
    };
    return num_blocks - entries.size() +
           static_cast<std::size_t>(std::count_if(entries.begin(), entries.end(), goes));
  }
  std::string victim(const std::set<std::string>& kept) const {
    const Entry* first = nullptr;
    for (const Entry& entry : entries) {
      if (!entry.may_go() || kept.contains(entry.key)) continue;
      if (first == nullptr || rank(entry) < rank(*first)) first = &entry;
    }
    return first->key;
  }
  std::pair<EvictionKey, std::uint32_t> rank(const Entry& entry) const {
    return {policy->key(entry.stats), ~entry.depth};
  }
  void finish(std::vector<ReferenceUse> uses) {
    std::stable_sort(uses.begin(), uses.end(),
                     [](const auto& a, const auto& b) { return a.group < b.group; });
    std::stable_sort(uses.begin(), uses.end(),
                     [](const auto& a, const auto& b) { return a.end < b.end; });
    for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
      Entry* entry = find(use->key);
      if (entry == nullptr) continue;
      if (use->reused) ++entry->stats.hits;
      entry->stats.last_access = ++clock;
    }
  }
};

/// Prompts are paths of a small tree with two groups, so that requests share beginnings.
class Walk {
 public:
  Walk(std::size_t num_blocks, const std::string& policy)
      : hazard_(policy == "hazard"),
        table_(OffloadTable::create({num_blocks, policy}).value()),
        reference_{num_blocks, make_policy(policy).value()} {}

  void step(std::uint64_t op) {
    const auto draw = [&](std::uint64_t below) {
      const std::uint64_t drawn = op % below;
      op /= below;
      return drawn;
    };
    switch (draw(9)) {
      case 0:
      case 1:
      case 2:
        begin_write(draw(4), draw(6), draw(6), draw(5));
        break;
      case 3:
      case 4:
        end_write(draw(8), draw(8) == 0);
        break;
      case 5:
        begin_read(draw(4), draw(6), draw(5));
        break;
      case 6:
        end_read(draw(8));
        break;
      case 7:
        finish(draw(4));
        break;
      case 8:
        if (draw(40) == 0) clear();
        break;
    }
    const Status checked = table_->check();
    RC_ASSERT(checked.ok());
    agree();
  }

 private:
  struct Request {
    OffloadRequest table;
    std::vector<ReferenceUse> uses = {};
    std::map<std::uint32_t, std::uint32_t> lengths = {};
    std::map<std::string, std::uint32_t> depths = {};
  };

  static std::string name(std::uint64_t prompt, std::uint64_t position, std::uint32_t group) {
    // Two prompts share what is before half of their length.
    const std::uint64_t branch = position < 3 ? prompt / 2 : prompt + 10;
    return std::to_string(branch) + "/" + std::to_string(position) + "/" + std::to_string(group);
  }
  static std::vector<std::string> part(std::uint64_t prompt, std::uint64_t from, std::uint64_t n) {
    std::vector<std::string> keys;
    for (std::uint32_t group = 0; group < 2; ++group)
      for (std::uint64_t p = from; p < from + n; ++p) keys.push_back(name(prompt, p, group));
    return keys;
  }
  static std::vector<OffloadKey> named(const std::vector<std::string>& keys, std::uint64_t from) {
    std::vector<OffloadKey> out;
    const std::size_t half = keys.size() / 2;
    for (std::size_t i = 0; i < keys.size(); ++i)
      out.push_back({keys[i], static_cast<std::uint32_t>(i / half), from + i % half + 1});
    return out;
  }
  static std::vector<std::string_view> views(const std::vector<std::string>& keys) {
    return {keys.begin(), keys.end()};
  }

  Request& request(std::uint64_t prompt) {
    std::optional<Request>& slot = requests_[prompt];
    if (!slot) slot.emplace(Request{table_->start()});
    return *slot;
  }
  void use(Request& request, const OffloadKey& key, bool reused) {
    const std::string bytes(key.bytes);
    if (!request.depths.emplace(bytes, request.lengths[key.group]).second) return;
    request.uses.push_back({bytes, key.end, key.group, reused});
    ++request.lengths[key.group];
  }

  void begin_write(std::uint64_t prompt, std::uint64_t from, std::uint64_t to, std::uint64_t n) {
    if (n == 0) return;
    Request& by = request(prompt);
    const std::vector<std::string> keys = part(prompt, std::min(from, to), n);
    const std::vector<OffloadKey> given = named(keys, std::min(from, to));
    std::set<std::string> kept(keys.begin(), keys.end());
    std::vector<std::size_t> wanted;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const Entry* entry = reference_.find(keys[i]);
      if (entry == nullptr) wanted.push_back(i);
      if (entry == nullptr || !entry->writing) use(by, given[i], entry != nullptr);
    }
    const auto room = table_->begin_write(by.table, given);
    if (wanted.size() > reference_.room(kept)) {
      RC_ASSERT(!room.ok());
      RC_ASSERT(room.error().code == ErrorCode::out_of_capacity);
      return;
    }
    RC_ASSERT(room.ok());
    RC_ASSERT(room->wanted == wanted);
    for (const std::string& gone : room->evicted) {
      RC_ASSERT(!kept.contains(gone));
      RC_ASSERT(reference_.find(gone) != nullptr);
      RC_ASSERT(reference_.find(gone)->may_go());
      if (!hazard_) RC_ASSERT(gone == reference_.victim(kept));
      reference_.erase(gone);
    }
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const OffloadKey& key = given[wanted[i]];
      const std::uint64_t now = ++reference_.clock;
      Entry entry{std::string(key.bytes), {.last_access = now, .created = now}};
      entry.depth = by.depths.at(entry.key);
      reference_.entries.push_back(entry);
      RC_ASSERT(blocks_.emplace(entry.key, room->blocks[i]).second);
    }
    for (const std::string& gone : room->evicted) blocks_.erase(gone);
    RC_ASSERT(reference_.entries.size() <= reference_.num_blocks);
    if (!wanted.empty()) writes_.push_back(keys);
  }

  void end_write(std::uint64_t which, bool failed) {
    if (writes_.empty()) return;
    const auto at = writes_.begin() + static_cast<std::ptrdiff_t>(which % writes_.size());
    const std::vector<std::string> keys = *at;
    writes_.erase(at);
    table_->end_write(views(keys), failed);
    for (const std::string& key : keys) {
      Entry* entry = reference_.find(key);
      if (entry == nullptr || !entry->writing) continue;
      entry->writing = false;
      if (!failed) continue;
      reference_.erase(key);
      blocks_.erase(key);
    }
  }

  void begin_read(std::uint64_t prompt, std::uint64_t from, std::uint64_t n) {
    if (n == 0) return;
    Request& by = request(prompt);
    const std::vector<std::string> keys = part(prompt, from, n);
    const std::vector<OffloadKey> given = named(keys, from);
    std::vector<std::uint32_t> blocks(keys.size());
    const bool ready = std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
      const Entry* entry = reference_.find(key);
      return entry != nullptr && !entry->writing;
    });
    RC_ASSERT(table_->begin_read(by.table, given, blocks).ok() == ready);
    if (!ready) return;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      RC_ASSERT(blocks[i] == blocks_.at(keys[i]));
      ++reference_.find(keys[i])->readers;
      use(by, given[i], true);
    }
    reads_.push_back(keys);
  }

  void end_read(std::uint64_t which) {
    if (reads_.empty()) {
      RC_ASSERT(!table_->end_read(views({"nobody"})).ok());
      return;
    }
    const auto at = reads_.begin() + static_cast<std::ptrdiff_t>(which % reads_.size());
    RC_ASSERT(table_->end_read(views(*at)).ok());
    for (const std::string& key : *at) --reference_.find(key)->readers;
    reads_.erase(at);
  }

  void finish(std::uint64_t prompt) {
    std::optional<Request>& slot = requests_[prompt];
    if (!slot) return;
    table_->finish(slot->table);
    reference_.finish(slot->uses);
    slot.reset();
  }

  void clear() {
    table_->clear();
    reference_.entries.clear();
    blocks_.clear();
    writes_.clear();
    reads_.clear();
    for (auto& slot : requests_) slot.reset();
  }

  void agree() {
    RC_ASSERT(table_->num_keys() == reference_.entries.size());
    std::size_t goes = 0;
    for (const Entry& entry : reference_.entries) {
      goes += entry.may_go() ? 1 : 0;
      RC_ASSERT(table_->find(entry.key) ==
                (entry.writing ? OffloadState::writing : OffloadState::ready));
    }
    RC_ASSERT(table_->num_evictable() == goes);
    std::set<std::uint32_t> distinct;
    for (const auto& [key, block] : blocks_) distinct.insert(block);
    RC_ASSERT(distinct.size() == blocks_.size());
  }

  const bool hazard_;
  std::unique_ptr<OffloadTable> table_;
  Reference reference_;
  std::map<std::string, std::uint32_t> blocks_;
  std::array<std::optional<Request>, 4> requests_;
  std::vector<std::vector<std::string>> writes_;
  std::vector<std::vector<std::string>> reads_;
};

class OffloadModel : public ::testing::TestWithParam<std::string> {};

TEST_P(OffloadModel, AgreesWithTheReference) {
  for (const std::size_t num_blocks : {6u, 17u, 40u}) {
    EXPECT_TRUE(check_random_ops(20'000, [&](const std::vector<std::uint64_t>& ops) {
      Walk walk(num_blocks, GetParam());
      for (const std::uint64_t op : ops) walk.step(op);
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, OffloadModel,
                         ::testing::Values("lru", "lfu", "fifo", "filo", "mru", "slru", "hazard"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace pando::testing
