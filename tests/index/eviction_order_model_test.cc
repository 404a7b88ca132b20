// SPDX-License-Identifier: Apache-2.0
// EvictionOrder against std::set. A case is a list of phases, each with many inserts or erases in
// one pattern, so that blocks split and merge on several levels; shrinking drops phases.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <ostream>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "index/eviction_order.h"

namespace pando {
namespace {

enum class Pattern { append, prepend, scatter, cluster, pop_front, pop_back, thin, drop, move_up };

struct Phase {
  Pattern pattern = Pattern::append;
  std::uint32_t count = 0;
  std::uint32_t seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Phase& phase) {
  return out << "{" << static_cast<int>(phase.pattern) << ", " << phase.count << ", " << phase.seed
             << "}";
}

class Model {
 public:
  void run(const Phase& phase) {
    random_.seed(phase.seed);
    for (std::uint32_t i = 0; i < phase.count; ++i) {
      step(phase.pattern);
      if (i % 256 == 0) compare();
    }
    compare();
    RC_ASSERT(order_.memory_bytes() <= 8192 + 200 * order_.size());
  }

 private:
  using Entry = std::tuple<std::uint64_t, std::uint64_t, NodeIndex>;
  static constexpr std::uint64_t kMiddle = std::uint64_t{1} << 40;

  void step(Pattern pattern) {
    switch (pattern) {
      case Pattern::append:
        return insert(highest() + random_() % 3);
      case Pattern::prepend:
        return insert(lowest() - random_() % 3);
      case Pattern::scatter:
        return insert(kMiddle + random_());
      case Pattern::cluster:
        return insert(kMiddle + random_() % 16);
      default:
        break;
    }
    if (entries_.empty()) return;
    switch (pattern) {
      case Pattern::pop_front:
        return erase(entries_.begin());
      case Pattern::pop_back:
        return erase(std::prev(entries_.end()));
      case Pattern::thin: {  // walks upwards and leaves one in forty
        auto at = entries_.lower_bound(thin_from_);
        if (at != entries_.end() && random_() % 40 == 0) ++at;
        if (at == entries_.end()) at = entries_.begin();
        thin_from_ = *at;
        return erase(at);
      }
      case Pattern::drop:
        return erase(any());
      default: {  // a use under lru: from anywhere to the end
        const auto at = any();
        const NodeIndex node = std::get<2>(*at);
        erase(at);
        return insert(highest() + 1, node);
      }
    }
  }

  std::uint64_t highest() const {
    return entries_.empty() ? kMiddle : std::get<0>(*entries_.rbegin());
  }
  std::uint64_t lowest() const {
    return entries_.empty() ? kMiddle : std::get<0>(*entries_.begin());
  }
  std::set<Entry>::iterator any() {
    const auto at = entries_.lower_bound({kMiddle - 2000 + random_() % 8000, 0, 0});
    return at == entries_.end() ? entries_.begin() : at;
  }

  void insert(std::uint64_t major, NodeIndex node = 0) {
    if (node == 0) node = ++last_node_;
    const std::uint64_t minor = random_() % 4;
    entries_.emplace(major, minor, node);
    order_.insert({major, minor}, node);
  }
  void erase(std::set<Entry>::iterator at) {
    order_.erase({std::get<0>(*at), std::get<1>(*at)}, std::get<2>(*at));
    entries_.erase(at);
    RC_ASSERT(order_.front() == (entries_.empty() ? kNoNode : std::get<2>(*entries_.begin())));
  }

  void compare() const {
    const Status status = order_.check();
    RC_ASSERT(status.ok());
    RC_ASSERT(order_.size() == entries_.size());
    const std::vector<NodeIndex> nodes = order_.nodes();
    RC_ASSERT(std::equal(nodes.begin(), nodes.end(), entries_.begin(), entries_.end(),
                         [](NodeIndex a, const Entry& b) { return a == std::get<2>(b); }));
    for (const std::size_t ahead : {0u, 1u, 12u}) {
      const NodeIndex hint = order_.peek(ahead);
      RC_ASSERT((hint == kNoNode || hint == nodes[ahead]));
    }
  }

  EvictionOrder order_;
  std::set<Entry> entries_;
  Entry thin_from_;
  std::mt19937 random_;
  NodeIndex last_node_ = 0;
};

// Growing phases outweigh shrinking ones, so that thousands of entries come together.
rc::Gen<std::vector<Phase>> any_phases() {
  const auto growing = rc::gen::element(Pattern::append, Pattern::prepend, Pattern::scatter,
                                        Pattern::cluster, Pattern::move_up);
  const auto shrinking =
      rc::gen::element(Pattern::pop_front, Pattern::pop_back, Pattern::thin, Pattern::drop);
  const auto phase_of = [](const rc::Gen<Pattern>& pattern, std::uint32_t max_count) {
    return rc::gen::build<Phase>(
        rc::gen::set(&Phase::pattern, pattern),
        rc::gen::set(&Phase::count, rc::gen::inRange<std::uint32_t>(0, max_count)),
        rc::gen::set(&Phase::seed, rc::gen::inRange<std::uint32_t>(0, 1000)));
  };
  const auto phase = rc::gen::oneOf(phase_of(growing, 4000), phase_of(shrinking, 2500));
  return rc::gen::scale(
      0.15, rc::gen::container<std::vector<Phase>>(rc::gen::resize(rc::kNominalSize, phase)));
}

RC_GTEST_PROP(EvictionOrderModel, AgreesWithASortedSet, ()) {
  const auto phases = *any_phases();
  Model model;
  for (const Phase& phase : phases) model.run(phase);
}

}  // namespace
}  // namespace pando
