// SPDX-License-Identifier: Apache-2.0
// SlotCache against the dumbest truth: a list of what each slot holds, searched from end to end.
// Calls come to the cache and, behind its back, to the allocator. With room for all nodes the two
// agree exactly; with little room the cache finds less, but what it finds is true, and what is
// pinned stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "pando/slot_cache.h"
#include "support/random_ops.h"

namespace pando::testing {
namespace {

constexpr std::size_t kSlots = 6;
constexpr std::size_t kSlotTokens = 16;

struct Sequence {
  std::string ns;
  std::vector<Token> tokens;
  auto operator<=>(const Sequence&) const = default;

  Key key() const { return {tokens, ns}; }
  std::size_t common(const Sequence& other) const {
    if (ns != other.ns) return 0;
    const auto at =
        std::mismatch(tokens.begin(), tokens.end(), other.tokens.begin(), other.tokens.end());
    return static_cast<std::size_t>(at.first - tokens.begin());
  }
  bool begins_with(const Sequence& other) const { return common(other) == other.tokens.size(); }
  Sequence first(std::size_t n) const {
    return {ns, {tokens.begin(), tokens.begin() + std::ptrdiff_t(n)}};
  }
};

// Bits of an operation, a few at a time.
class Bits {
 public:
  explicit Bits(std::uint64_t bits) : bits_(bits) {}
  std::size_t below(std::size_t n) {
    const std::size_t value = bits_ % n;
    bits_ /= n;
    return value;
  }
  // Two tokens and two namespaces, so that sequences share much.
  Sequence sequence() {
    Sequence out{below(4) == 0 ? "other" : "", {}};
    out.tokens.resize(1 + below(kSlotTokens));
    for (Token& token : out.tokens) token = below(3) == 0 ? 8 : 7;
    return out;
  }

 private:
  std::uint64_t bits_;
};

struct Truth {
  bool taken = false;
  std::uint64_t version = 0;
  Sequence holds;  // no tokens: nothing that anyone knows
  std::uint64_t used = 0;
  bool blurred = false;  // it may have been used later
};

struct Remembered {
  SlotMatch match;
  Sequence what;
};

class Model {
 public:
  explicit Model(std::size_t max_nodes)
      : exact_(max_nodes > 1000),
        cache_(*SlotCache::create(
            {.slot_tokens = kSlotTokens, .max_nodes = max_nodes, .hash_seed = 1}, *slots_)) {
    for (std::size_t i = 0; i + 1 < kSlots; ++i) {  // the last slot has never been written
      truth_[i].taken = true;
      truth_[i].version = 1;
      slots_->alloc_at(i);
    }
  }

  void step(std::uint64_t op) {
    using Call = void (Model::*)(Bits&);
    static constexpr Call kCalls[] = {&Model::insert,
                                      &Model::insert,
                                      &Model::insert,
                                      &Model::extend,
                                      &Model::find_anything,
                                      &Model::find_anything,
                                      &Model::find_and_occupy,
                                      &Model::occupy_remembered,
                                      &Model::occupy_remembered,
                                      &Model::take,
                                      &Model::free,
                                      &Model::free,
                                      &Model::free,
                                      &Model::pin,
                                      &Model::release,
                                      &Model::behind_its_back};
    Bits bits(op);
    (this->*kCalls[bits.below(std::size(kCalls))])(bits);
    compare();
  }

 private:
  // ---- Calls.

  void insert(Bits& bits) {
    const std::size_t slot = bits.below(kSlots);
    learn(slot, bits.sequence());
  }
  void extend(Bits& bits) {
    const std::size_t slot = bits.below(kSlots);
    Sequence more = truth_[slot].holds;
    if (more.tokens.empty() || more.tokens.size() == kSlotTokens) return;
    more.tokens.push_back(bits.below(2) == 0 ? 7 : 8);
    learn(slot, more);
  }
  void learn(std::size_t slot, const Sequence& what) {
    Truth& truth = truth_[slot];
    const Status status = cache_->insert(what.key(), slot);
    RC_ASSERT(status.ok() == (truth.taken || truth.version > 0));
    if (!status.ok()) return;
    if (!what.begins_with(truth.holds)) may_break_pins(slot);
    truth.holds = what;
    use(truth);
  }

  // Mostly the beginning of what a slot holds, and a little more.
  Sequence something(Bits& bits, bool held_only) {
    const Truth& truth = truth_[bits.below(kSlots)];
    if (truth.holds.tokens.empty() || bits.below(4) == 0) return bits.sequence();
    Sequence out = truth.holds.first(1 + bits.below(truth.holds.tokens.size()));
    for (std::size_t more = held_only ? 0 : bits.below(3); more > 0; --more)
      out.tokens.push_back(bits.below(2) == 0 ? 7 : 8);
    return out;
  }

  void find_anything(Bits& bits) { (void)find(bits); }
  std::optional<SlotMatch> find(Bits& bits) {
    const Sequence what = something(bits, false);
    const auto probed = *cache_->probe(what.key());
    const auto match = *cache_->find(what.key());
    RC_ASSERT(probed.has_value() == match.has_value());
    const std::size_t best = longest(what);
    if (exact_) RC_ASSERT((match ? match->length : 0) == best);
    if (!match) return match;
    RC_ASSERT(probed->length == match->length && probed->slot == match->slot);
    RC_ASSERT(match->length > 0 && match->length <= best);
    Truth& truth = truth_[match->slot];
    RC_ASSERT(truth.holds.common(what) >= match->length);
    RC_ASSERT(match->version == truth.version);
    if (truth.taken) {
      RC_ASSERT(!match->free);
      if (exact_) {  // then nobody who holds as much is free
        for (const Truth& other : truth_)
          RC_ASSERT(other.taken || other.holds.common(what) < match->length);
      }
    } else if (pins_.empty()) {
      RC_ASSERT(match->free);
    }
    use(truth);
    remembered_.push_back({*match, what.first(match->length)});
    return match;
  }

  void find_and_occupy(Bits& bits) {
    const std::optional<SlotMatch> match = find(bits);
    if (!match) return;
    RC_ASSERT(occupy(remembered_.back()) == match->free);
  }
  void occupy_remembered(Bits& bits) {
    if (remembered_.empty()) return;
    const std::size_t back = bits.below(std::min<std::size_t>(8, remembered_.size()));
    occupy(remembered_[remembered_.size() - 1 - back]);
  }
  bool occupy(const Remembered& what) {
    if (!cache_->occupy(what.match).ok()) return false;
    Truth& truth = truth_[what.match.slot];
    RC_ASSERT(!truth.taken && truth.version == what.match.version);
    RC_ASSERT(truth.holds.begins_with(what.what));
    truth.taken = true;
    truth.holds = what.what;  // the engine writes on behind it
    use(truth);
    return true;
  }

  void take(Bits&) {
    const std::optional<std::size_t> slot = cache_->take();
    if (!slot) {  // every free slot is kept for a pin
      const auto num_free =
          std::count_if(truth_.begin(), truth_.end(), [](const Truth& t) { return !t.taken; });
      RC_ASSERT(static_cast<std::size_t>(num_free) <= pins_.size());
      return;
    }
    RC_ASSERT(!truth_[*slot].taken);
    if (exact_) check_choice(*slot);
    hand_out(*slot);
  }
  // A slot that holds nothing, the lowest; else the least recently used.
  void check_choice(std::size_t slot) const {
    const auto blank = std::find_if(truth_.begin(), truth_.end(), [](const Truth& t) {
      return !t.taken && t.holds.tokens.empty();
    });
    if (blank != truth_.end()) {
      RC_ASSERT(static_cast<std::size_t>(blank - truth_.begin()) == slot);
      return;
    }
    for (const Truth& other : truth_)
      RC_ASSERT(other.taken || other.blurred || other.used >= truth_[slot].used);
  }
  // A pin is bound to one of the slots that hold it, and being let go is a use; nobody says of
  // which.
  void blur_use(const Sequence& what) {
    for (Truth& truth : truth_) truth.blurred |= truth.holds.begins_with(what);
  }
  void use(Truth& truth) {
    truth.used = ++now_;
    truth.blurred = std::any_of(pins_.begin(), pins_.end(), [&](const auto& pin) {
      return truth.holds.begins_with(pin.first);
    });
  }
  void hand_out(std::size_t slot) {
    truth_[slot].taken = true;
    truth_[slot].holds = {};
    ++truth_[slot].version;
  }

  void free(Bits& bits) {
    const std::size_t slot = bits.below(kSlots);
    if (!truth_[slot].taken) return;
    if (bits.below(2) == 0) {
      cache_->free(slot);
    } else {
      slots_->free(slot);
    }
    truth_[slot].taken = false;
    use(truth_[slot]);
  }

  // The engine takes a slot without the cache.
  void behind_its_back(Bits& bits) {
    if (bits.below(2) == 0) {
      const std::size_t slot = bits.below(kSlots);
      if (truth_[slot].taken) return;
      may_break_pins(slot);
      slots_->occupy(slot);
      truth_[slot].taken = true;
      truth_[slot].holds = {};
      return;
    }
    const std::optional<std::size_t> slot = slots_->alloc();
    if (!slot) return;
    may_break_pins(*slot);
    hand_out(*slot);
  }

  void pin(Bits& bits) {
    const Sequence what = something(bits, true);
    const auto probed = *cache_->probe(what.key());
    const bool whole = probed && probed->length == what.tokens.size();
    const Status status = cache_->pin(what.key());
    RC_ASSERT(status.ok() == whole);
    if (!whole) return;
    Pin& pin = pins_[what];
    ++pin.count;
    pin.broken = false;
    blur_use(what);
  }
  void release(Bits& bits) {
    const Sequence any = bits.sequence();
    const bool known = pins_.contains(any);
    if (!known) RC_ASSERT(cache_->release(any.key()).error().code == ErrorCode::not_found);
    if (pins_.empty()) return;
    auto pin = known ? pins_.find(any)
                     : std::next(pins_.begin(), std::ptrdiff_t(bits.below(pins_.size())));
    RC_ASSERT(cache_->release(pin->first.key()).ok());
    blur_use(pin->first);
    if (--pin->second.count == 0) pins_.erase(pin);
  }
  void may_break_pins(std::size_t slot) {
    for (auto& [what, pin] : pins_) pin.broken |= truth_[slot].holds.begins_with(what);
  }

  // ---- Comparing.

  std::size_t longest(const Sequence& what) const {
    std::size_t best = 0;
    for (const Truth& truth : truth_) best = std::max(best, truth.holds.common(what));
    return best;
  }

  void compare() {
    const Status status = cache_->check();
    if (!status.ok()) RC_LOG() << status.error().message << "\n" << cache_->dump();
    RC_ASSERT(status.ok());
    for (std::size_t i = 0; i < kSlots; ++i) {
      RC_ASSERT(slots_->is_free(i) != truth_[i].taken);
      RC_ASSERT(slots_->version(i) == truth_[i].version);
    }
    for (const auto& [what, pin] : pins_) {
      const auto found = *cache_->probe(what.key());
      const std::size_t length = found ? found->length : 0;
      RC_ASSERT(pin.broken || length == what.tokens.size());
      if (exact_) RC_ASSERT(length == longest(what));
    }
    if (!exact_) return;
    std::size_t known = 0;
    for (const Truth& truth : truth_) known += truth.holds.tokens.empty() ? 0 : 1;
    RC_ASSERT(cache_->stats().num_sequences == known);
    RC_ASSERT(cache_->stats().evictions == 0u);
  }

  struct Pin {
    std::size_t count = 0;
    bool broken = false;  // the engine may have taken its slot away
  };

  const bool exact_;
  std::unique_ptr<SlotAllocator> slots_ = *SlotAllocator::create(kSlots);
  std::unique_ptr<SlotCache> cache_;
  std::vector<Truth> truth_{kSlots};
  std::map<Sequence, Pin> pins_;
  std::vector<Remembered> remembered_;
  std::uint64_t now_ = 0;
};

void run(std::size_t max_nodes, std::size_t num_ops) {
  EXPECT_TRUE(check_random_ops(num_ops, [&](const std::vector<std::uint64_t>& ops) {
    Model model(max_nodes);
    for (const std::uint64_t op : ops) model.step(op);
  }));
}

TEST(SlotCacheModel, AgreesWithAListOfWhatSlotsHold) { run(1'000'000, 200'000); }
TEST(SlotCacheModel, WithRoomForFewNodesFindsLessButNothingWrong) {
  run(2, 50'000);
  run(4, 50'000);
  run(8, 100'000);
}

}  // namespace
}  // namespace pando::testing
