// SPDX-License-Identifier: Apache-2.0
// WindowAllocator against the dumbest one that is right: a std::deque of free pages per side and a
// std::map of the pairs, copied whole to remember a state. Random operations on a few requests;
// every slot handed out, every refusal, every free bit and every pair must agree, and check() must
// hold after each.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "pando/allocators.h"
#include "support/allocator_model.h"

namespace pando::testing {
namespace {

using Slots = std::vector<SlotId>;
using Lengths = std::vector<std::size_t>;
using Pages = std::vector<PageId>;

constexpr std::uint32_t kKinds = 22;

/// One side of the reference.
struct Pool {
  std::deque<std::uint32_t> free;

  void reset(std::size_t num_pages) {
    free.clear();
    for (std::uint32_t page = 1; page <= num_pages; ++page) free.push_back(page);
  }
  std::uint32_t take(ReuseOrder order) {
    const auto next =
        order == ReuseOrder::fifo ? free.begin() : std::min_element(free.begin(), free.end());
    const std::uint32_t page = *next;
    free.erase(next);
    return page;
  }
  bool has(std::uint32_t page) const {
    return std::find(free.begin(), free.end(), page) != free.end();
  }
  void put(std::uint32_t page) {
    if (!has(page)) free.push_back(page);
  }
};

/// The reference. A request is the list of its slots.
struct Model {
  std::size_t page_size = 1;
  ReuseOrder order = ReuseOrder::fifo;
  Pool full;
  Pool window;
  std::map<std::uint32_t, std::uint32_t> pairs;  // full page to window page
  std::vector<Slots> requests;

  std::uint32_t page_of(SlotId slot) const {
    return static_cast<std::uint32_t>(static_cast<std::size_t>(index_of(slot)) / page_size);
  }
  SlotId next_slot(const Slots& request) {
    if (request.size() % page_size != 0) return SlotId{index_of(request.back()) + 1};
    const std::uint32_t page = full.take(order);
    pairs[page] = window.take(order);
    return SlotId{static_cast<std::int64_t>(page * page_size)};
  }
  SlotId translate(SlotId slot) const {
    const auto pair = pairs.find(page_of(slot));
    if (pair == pairs.end()) return SlotId{0};
    const auto offset = static_cast<std::size_t>(index_of(slot)) % page_size;
    return SlotId{static_cast<std::int64_t>(pair->second * page_size + offset)};
  }
  /// Whether the request may grow: its last page is full, or has a window page.
  bool may_grow(const Slots& request) const {
    return request.size() % page_size == 0 || pairs.contains(page_of(request.back()));
  }
  bool has_room(std::size_t pages) const {
    return pages <= full.free.size() && pages <= window.free.size();
  }
};

/// A call on several requests: what alloc_extend and alloc_decode are given.
struct Batch {
  std::vector<std::size_t> requests;
  Lengths prefix;
  Lengths seq;
  Slots last;
  std::size_t growth = 0;
  bool may_grow = true;

  void add(const Model& model, std::size_t r, std::size_t more) {
    const Slots& request = model.requests[r];
    requests.push_back(r);
    prefix.push_back(request.size());
    seq.push_back(request.size() + more);
    last.push_back(request.empty() ? SlotId{-7} : request.back());
    growth += more;
    if (more > 0) may_grow = may_grow && model.may_grow(request);
  }
};

class Walk {
 public:
  Walk(std::size_t num_full, std::size_t num_window, std::size_t page_size, ReuseOrder order)
      : allocator_(WindowAllocator::create(
                       {num_full * page_size, num_window * page_size, page_size, order})
                       .value()) {
    model_.page_size = page_size;
    model_.order = order;
    reset_model();
  }

  void step(const Op& op) {
    if (op.kind < 2) alloc_pages(op.a % 6);
    if (op.kind == 2) model_.requests.emplace_back();
    if (op.kind >= 3 && op.kind < 6) extend(op.a, op.b);
    if (op.kind >= 6 && op.kind < 8) decode(op.a);
    if (op.kind >= 8 && op.kind < 11) free_request(op.a, op.b);
    if (op.kind >= 11 && op.kind < 14) free_window(op.a, op.b);
    if (op.kind == 14) move_window(op.a, op.b);
    if (op.kind >= 15 && op.kind < 17) toggle_group();
    if (op.kind >= 17 && op.kind < 19 && !group_open_) states_.backup(*allocator_, model_);
    if (op.kind == 19 && !group_open_) states_.restore(op.a, *allocator_, model_);
    if (op.kind == 20) states_.drop(op.a);
    if (op.kind == 21) clear(op.a);
    compare();
  }

  /// Ends the group, and takes all that is left: the order of reuse must agree to the last page.
  void finish() {
    if (group_open_) toggle_group();
    alloc_pages(std::min(model_.full.free.size(), model_.window.free.size()));
    compare();
  }

 private:
  void reset_model() {
    model_.requests.clear();
    model_.pairs.clear();
    model_.full.reset(allocator_->full().num_pages());
    model_.window.reset(allocator_->window().num_pages());
  }

  void alloc_pages(std::size_t pages) {
    Slots out(pages * model_.page_size);
    const Status status = allocator_->alloc(out);
    RC_ASSERT(status.ok() == model_.has_room(pages));
    if (!status) return;
    model_.requests.emplace_back();
    for (const SlotId slot : out) {
      RC_ASSERT(slot == model_.next_slot(model_.requests.back()));
      model_.requests.back().push_back(slot);
    }
  }

  /// What the reference says of the call whose new slots are `out`.
  void verify(const Batch& batch, const Slots& out, std::size_t pages, const Status& status) {
    RC_ASSERT(status.ok() == (batch.may_grow && model_.has_room(pages)));
    if (!status) {
      RC_ASSERT(status.error().code ==
                (batch.may_grow ? ErrorCode::out_of_capacity : ErrorCode::invalid_argument));
      return;
    }
    auto slot = out.begin();
    for (std::size_t i = 0; i < batch.requests.size(); ++i) {
      Slots& request = model_.requests[batch.requests[i]];
      while (request.size() < batch.seq[i]) {
        RC_ASSERT(*slot == model_.next_slot(request));
        request.push_back(*slot++);
      }
    }
  }

  // Grows every request whose bit in `which` is set by 0 to 2.5 pages, or refuses them all.
  void extend(std::uint32_t which, std::uint32_t growth) {
    Batch batch;
    for (std::size_t r = 0; r < model_.requests.size(); ++r) {
      if (!(which >> (r % 10) & 1)) continue;
      batch.add(model_, r, (growth * (r + 1)) % (5 * model_.page_size / 2 + 2));
    }
    Slots out(batch.growth);
    const std::size_t pages = allocator_->full().pages_for_extend(batch.prefix, batch.seq);
    const Status status = allocator_->alloc_extend(batch.prefix, batch.seq, batch.last, out);
    verify(batch, out, pages, status);
  }

  void decode(std::uint32_t which) {
    Batch batch;
    for (std::size_t r = 0; r < model_.requests.size(); ++r) {
      if (which % 7 != r % 7) batch.add(model_, r, 1);
    }
    Slots slots = batch.last;  // in place: last slots in, new slots out
    const std::size_t pages = allocator_->full().pages_for_decode(batch.seq);
    const Status status = allocator_->alloc_decode(batch.seq, slots, slots);
    verify(batch, slots, pages, status);
  }

  Pages pages_of(const Slots& slots) const {
    Pages pages;
    for (const SlotId slot : slots) pages.push_back(PageId{model_.page_of(slot)});
    return pages;
  }

  void part(std::uint32_t page) {
    const auto pair = model_.pairs.find(page);
    if (pair == model_.pairs.end()) return;
    released_.push_back(pair->second);
    model_.pairs.erase(pair);
  }

  // One request goes: by its slots in some order or by its pages, in a group perhaps in two pieces.
  void free_request(std::uint32_t which, std::uint32_t how) {
    if (model_.requests.empty()) return;
    const std::size_t r = which % model_.requests.size();
    Slots slots = model_.requests[r];
    model_.requests.erase(model_.requests.begin() + static_cast<std::ptrdiff_t>(r));
    if (how % 3 == 1) std::reverse(slots.begin(), slots.end());
    if (how % 3 == 2) {
      allocator_->free_pages(pages_of(slots));
    } else {
      const std::size_t cut = group_open_ ? how % (slots.size() + 1) : slots.size();
      allocator_->free(std::span(slots).first(cut));
      if (group_open_) allocator_->free(std::span(slots).subspan(cut));
    }
    for (const PageId page : pages_of(slots)) {
      collected_.push_back(index_of(page));
      part(index_of(page));
    }
    if (!group_open_) apply_collected();
  }

  // The head of a request leaves the window, perhaps again.
  void free_window(std::uint32_t which, std::uint32_t how) {
    if (model_.requests.empty()) return;
    Slots slots = model_.requests[which % model_.requests.size()];
    slots.resize(slots.size() * (how % 5) / 4);
    if (how % 2 == 0) {
      allocator_->free_window(slots);
    } else {
      allocator_->free_window_pages(pages_of(slots));
    }
    for (const PageId page : pages_of(slots)) part(index_of(page));
    if (!group_open_) apply_collected();
  }

  // From any page that has a window page to any that has none, those of the open group included.
  void move_window(std::uint32_t which_from, std::uint32_t which_to) {
    std::vector<std::uint32_t> without;
    for (std::uint32_t page = 1; page <= allocator_->full().num_pages(); ++page) {
      if (!model_.full.has(page) && !model_.pairs.contains(page)) without.push_back(page);
    }
    if (model_.pairs.empty() || without.empty()) return;
    const auto from = std::next(model_.pairs.begin(),
                                static_cast<std::ptrdiff_t>(which_from % model_.pairs.size()));
    const std::uint32_t to = without[which_to % without.size()];
    allocator_->move_window(PageId{from->first}, PageId{to});
    model_.pairs[to] = from->second;
    model_.pairs.erase(from);
  }

  void apply_collected() {
    for (const std::uint32_t page : collected_) part(page);
    for (const std::uint32_t page : collected_) model_.full.put(page);
    for (const std::uint32_t page : released_) model_.window.put(page);
    collected_.clear();
    released_.clear();
  }

  void toggle_group() {
    if (group_open_) {
      allocator_->end_free_group();
      apply_collected();
    } else {
      allocator_->begin_free_group();
    }
    group_open_ = !group_open_;
  }

  void clear(std::uint32_t rarely) {
    const bool in_use = group_open_ || states_.any();
    if (!in_use && rarely % 8 != 0) return;
    RC_ASSERT(allocator_->clear().ok() == !in_use);
    if (!in_use) reset_model();
  }

  static void compare(const PagedAllocator& pool, const Pool& model) {
    RC_ASSERT(pool.available_pages() == model.free.size());
    for (const std::uint32_t page : model.free) RC_ASSERT(pool.is_free(PageId{page}));
  }

  void compare() {
    const Status status = allocator_->check();
    if (!status) RC_FAIL(status.error().message);
    compare(allocator_->full(), model_.full);
    compare(allocator_->window(), model_.window);
    // The first and the last slot of each page, the padding page included.
    Slots slots, expected;
    for (std::size_t page = 0; page <= allocator_->full().num_pages(); ++page) {
      for (const std::size_t offset : {std::size_t{0}, model_.page_size - 1}) {
        slots.push_back(SlotId{static_cast<std::int64_t>(page * model_.page_size + offset)});
        expected.push_back(model_.translate(slots.back()));
      }
    }
    allocator_->translate(slots, slots);
    RC_ASSERT(slots == expected);
    for (const auto& [page, window] : model_.pairs) {
      RC_ASSERT(allocator_->has_window(PageId{page}));
    }
  }

  std::unique_ptr<WindowAllocator> allocator_;
  Model model_;
  bool group_open_ = false;
  std::vector<std::uint32_t> collected_;  // full pages named in the open group, repeats included
  std::vector<std::uint32_t> released_;   // window pages of the open group
  HeldStates<WindowAllocator, Model> states_;
};

void walk(ReuseOrder order, std::size_t page_size) {
  const auto num_full = *rc::gen::element<std::size_t>(1, 6, 30, 70, 120);
  const auto num_window = *rc::gen::inRange<std::size_t>(1, num_full + 1);
  const std::vector<Op> ops = *any_ops(kKinds);
  Walk walk(num_full, num_window, page_size, order);
  for (const Op& op : ops) walk.step(op);
  walk.finish();
}

RC_GTEST_PROP(WindowAllocatorModel, FifoTokensAgreeWithAMap, ()) { walk(ReuseOrder::fifo, 1); }
RC_GTEST_PROP(WindowAllocatorModel, FifoPagesOf16AgreeWithAMap, ()) { walk(ReuseOrder::fifo, 16); }
RC_GTEST_PROP(WindowAllocatorModel, FifoPagesOf64AgreeWithAMap, ()) { walk(ReuseOrder::fifo, 64); }
RC_GTEST_PROP(WindowAllocatorModel, SortedTokensAgreeWithAMap, ()) { walk(ReuseOrder::sorted, 1); }
RC_GTEST_PROP(WindowAllocatorModel, SortedPagesOf16AgreeWithAMap, ()) {
  walk(ReuseOrder::sorted, 16);
}
RC_GTEST_PROP(WindowAllocatorModel, SortedPagesOf64AgreeWithAMap, ()) {
  walk(ReuseOrder::sorted, 64);
}

}  // namespace
}  // namespace pando::testing
