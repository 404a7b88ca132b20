// SPDX-License-Identifier: Apache-2.0
// PagedAllocator against the dumbest allocator that is right: a std::deque of free pages, copied
// whole to remember a state. Random operations on a few requests; every slot handed out, every
// refusal, every free bit and the order of reuse must agree, and check() must hold after each.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "pando/allocators.h"
#include "support/allocator_model.h"

namespace pando::testing {
namespace {

using Slots = std::vector<SlotId>;
using Lengths = std::vector<std::size_t>;

constexpr std::uint32_t kKinds = 16;

/// The reference. A request is the list of its slots.
struct Model {
  std::size_t page_size = 1;
  ReuseOrder order = ReuseOrder::fifo;
  std::deque<std::size_t> free;
  std::vector<Slots> requests;

  std::size_t take() {
    const auto next =
        order == ReuseOrder::fifo ? free.begin() : std::min_element(free.begin(), free.end());
    const std::size_t page = *next;
    free.erase(next);
    return page;
  }
  void put(std::size_t page) {
    if (std::find(free.begin(), free.end(), page) == free.end()) free.push_back(page);
  }
  SlotId next_slot(const Slots& request) {
    if (request.size() % page_size != 0) return SlotId{index_of(request.back()) + 1};
    return SlotId{static_cast<std::int64_t>(take() * page_size)};
  }
  std::size_t page_of(SlotId slot) const {
    return static_cast<std::size_t>(index_of(slot)) / page_size;
  }
};

class Walk {
 public:
  Walk(std::size_t num_pages, std::size_t page_size, ReuseOrder order)
      : allocator_(PagedAllocator::create({num_pages * page_size, page_size, order}).value()) {
    model_.page_size = page_size;
    model_.order = order;
    for (std::size_t page = 1; page <= num_pages; ++page) model_.free.push_back(page);
  }

  void step(const Op& op) {
    switch (op.kind) {
      case 0:
        alloc_pages(op.a % 6);
        break;
      case 1:
        model_.requests.emplace_back();
        break;
      case 2:
      case 3:
      case 4:
        extend(op.a, op.b);
        break;
      case 5:
      case 6:
        decode(op.a);
        break;
      case 7:
      case 8:
      case 9:
        free_request(op.a, op.b);
        break;
      case 10:
        toggle_group();
        break;
      case 11:
      case 12:
        if (!group_open_) states_.backup(*allocator_, model_);
        break;
      case 13:
        if (!group_open_) states_.restore(op.a, *allocator_, model_);
        break;
      case 14:
        states_.drop(op.a);
        break;
      default:
        clear(op.a);
        break;
    }
    compare();
  }

  /// Ends the group, and takes all that is left: the order of reuse must agree to the last page.
  void finish() {
    if (group_open_) toggle_group();
    alloc_pages(model_.free.size());
    compare();
  }

 private:
  void alloc_pages(std::size_t pages) {
    Slots out(pages * model_.page_size);
    const Status status = allocator_->alloc(out);
    RC_ASSERT(status.ok() == (pages <= model_.free.size()));
    if (!status) return;
    model_.requests.emplace_back();
    for (const SlotId slot : out) {
      RC_ASSERT(slot == model_.next_slot(model_.requests.back()));
      model_.requests.back().push_back(slot);
    }
  }

  // Grows every request whose bit in `which` is set by 0 to 2.5 pages, or refuses them all.
  void extend(std::uint32_t which, std::uint32_t growth) {
    std::vector<std::size_t> chosen;
    Lengths prefix, seq;
    Slots last;
    std::size_t total = 0;
    for (std::size_t r = 0; r < model_.requests.size(); ++r) {
      if (!(which >> (r % 10) & 1)) continue;
      const Slots& request = model_.requests[r];
      const std::size_t more = (growth * (r + 1)) % (5 * model_.page_size / 2 + 2);
      chosen.push_back(r);
      prefix.push_back(request.size());
      seq.push_back(request.size() + more);
      last.push_back(request.empty() ? SlotId{-7} : request.back());
      total += more;
    }
    Slots out(total);
    const std::size_t pages = allocator_->pages_for_extend(prefix, seq);
    const Status status = allocator_->alloc_extend(prefix, seq, last, out);
    RC_ASSERT(status.ok() == (pages <= model_.free.size()));
    if (!status) return;
    const std::size_t free_before = model_.free.size();
    auto slot = out.begin();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Slots& request = model_.requests[chosen[i]];
      while (request.size() < seq[i]) {
        RC_ASSERT(*slot == model_.next_slot(request));
        request.push_back(*slot++);
      }
    }
    RC_ASSERT(free_before - model_.free.size() == pages);
  }

  void decode(std::uint32_t which) {
    std::vector<std::size_t> chosen;
    Lengths seq;
    Slots slots;  // in place: last slots in, new slots out
    for (std::size_t r = 0; r < model_.requests.size(); ++r) {
      if (which % 7 == r % 7) continue;
      const Slots& request = model_.requests[r];
      chosen.push_back(r);
      seq.push_back(request.size() + 1);
      slots.push_back(request.empty() ? SlotId{1 << 30} : request.back());
    }
    const std::size_t pages = allocator_->pages_for_decode(seq);
    const Status status = allocator_->alloc_decode(seq, slots, slots);
    RC_ASSERT(status.ok() == (pages <= model_.free.size()));
    if (!status) return;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Slots& request = model_.requests[chosen[i]];
      RC_ASSERT(slots[i] == model_.next_slot(request));
      request.push_back(slots[i]);
    }
  }

  // One request goes: by its slots in some order or by its pages, in a group perhaps in two pieces.
  void free_request(std::uint32_t which, std::uint32_t how) {
    if (model_.requests.empty()) return;
    const std::size_t r = which % model_.requests.size();
    Slots slots = model_.requests[r];
    model_.requests.erase(model_.requests.begin() + static_cast<std::ptrdiff_t>(r));
    if (how % 4 == 1) std::reverse(slots.begin(), slots.end());
    if (how % 4 == 2) {  // slots of different pages alternate
      std::stable_sort(slots.begin(), slots.end(), [this](SlotId x, SlotId y) {
        const auto size = static_cast<std::int64_t>(model_.page_size);
        return index_of(x) % size < index_of(y) % size;
      });
    }
    if (how % 4 == 3) {
      std::vector<PageId> pages;
      for (const SlotId slot : slots) {
        pages.push_back(PageId{static_cast<std::uint32_t>(model_.page_of(slot))});
      }
      allocator_->free_pages(pages);
    } else {
      const std::size_t cut = group_open_ ? how % (slots.size() + 1) : slots.size();
      allocator_->free(std::span(slots).first(cut));
      if (group_open_) allocator_->free(std::span(slots).subspan(cut));
    }
    for (const SlotId slot : slots) collected_.push_back(model_.page_of(slot));
    if (!group_open_) apply_collected();
  }

  void apply_collected() {
    for (const std::size_t page : collected_) model_.put(page);
    collected_.clear();
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
    if (in_use) return;
    model_.requests.clear();
    model_.free.clear();
    for (std::size_t page = 1; page <= allocator_->num_pages(); ++page) model_.free.push_back(page);
  }

  void compare() {
    const Status status = allocator_->check();
    if (!status) RC_FAIL(status.error().message);
    RC_ASSERT(allocator_->available_pages() == model_.free.size());
    std::vector<bool> free(allocator_->num_pages() + 1);
    for (const std::size_t page : model_.free) free[page] = true;
    for (std::size_t page = 0; page < free.size(); ++page) {
      RC_ASSERT(allocator_->is_free(PageId{static_cast<std::uint32_t>(page)}) == free[page]);
    }
  }

  std::unique_ptr<PagedAllocator> allocator_;
  Model model_;
  bool group_open_ = false;
  std::vector<std::size_t> collected_;  // pages named in the open group, repeats included
  HeldStates<PagedAllocator, Model> states_;
};

void walk(ReuseOrder order, std::size_t page_size) {
  const auto num_pages = *rc::gen::element<std::size_t>(1, 5, 24, 70, 200);
  const std::vector<Op> ops = *any_ops(kKinds);
  Walk walk(num_pages, page_size, order);
  for (const Op& op : ops) walk.step(op);
  walk.finish();
}

RC_GTEST_PROP(PagedAllocatorModel, FifoTokensAgreeWithADeque, ()) { walk(ReuseOrder::fifo, 1); }
RC_GTEST_PROP(PagedAllocatorModel, FifoPagesOf2AgreeWithADeque, ()) { walk(ReuseOrder::fifo, 2); }
RC_GTEST_PROP(PagedAllocatorModel, FifoPagesOf16AgreeWithADeque, ()) { walk(ReuseOrder::fifo, 16); }
RC_GTEST_PROP(PagedAllocatorModel, FifoPagesOf64AgreeWithADeque, ()) { walk(ReuseOrder::fifo, 64); }
RC_GTEST_PROP(PagedAllocatorModel, SortedTokensAgreeWithADeque, ()) { walk(ReuseOrder::sorted, 1); }
RC_GTEST_PROP(PagedAllocatorModel, SortedPagesOf4AgreeWithADeque, ()) {
  walk(ReuseOrder::sorted, 4);
}
RC_GTEST_PROP(PagedAllocatorModel, SortedPagesOf64AgreeWithADeque, ()) {
  walk(ReuseOrder::sorted, 64);
}

}  // namespace
}  // namespace pando::testing
