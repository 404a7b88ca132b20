// SPDX-License-Identifier: Apache-2.0
// How many pages alloc_extend and alloc_decode take, or why such a call is refused. Private to
// PagedAllocator, which takes pages and writes slots only once a plan stands. Nothing here changes
// anything. Messages name the request by its index in the call and say what was expected.
#pragma once

#include <cstddef>
#include <span>

#include "alloc/free_pages.h"
#include "alloc/page_layout.h"
#include "base/check.h"

namespace pando {

class GrowthPlanner {
 public:
  GrowthPlanner(const PageLayout& layout, const FreePages& free) : layout_(layout), free_(free) {}

  Result<std::size_t> plan_extend(std::span<const std::size_t> prefix_lens,
                                  std::span<const std::size_t> seq_lens,
                                  std::span<const SlotId> last_slots, std::size_t out_size) const {
    if (prefix_lens.size() != seq_lens.size() || last_slots.size() != seq_lens.size()) {
      return make_error(ErrorCode::invalid_argument,
                        "extend: {} prefix lengths, {} sequence lengths and {} last slots; "
                        "expected as many of each",
                        prefix_lens.size(), seq_lens.size(), last_slots.size());
    }
    std::size_t left = out_size;
    std::size_t pages = 0;
    for (std::size_t i = 0; i < seq_lens.size(); ++i) {
      const std::size_t prefix = prefix_lens[i];
      const std::size_t seq = seq_lens[i];
      if (seq < prefix) return below_prefix(i, seq, prefix);
      if (seq - prefix > left) {
        return make_error(ErrorCode::invalid_argument,
                          "request {}: grows by {} tokens, but out has {} slots in all and {} left",
                          i, seq - prefix, out_size, left);
      }
      if (layout_.offset_in_page(prefix) != 0 && !may_continue(last_slots[i], prefix)) {
        return bad_last_slot(i, last_slots[i], prefix);
      }
      left -= seq - prefix;
      pages += layout_.pages_to_hold(seq) - layout_.pages_to_hold(prefix);
    }
    if (left != 0) {
      return make_error(ErrorCode::invalid_argument,
                        "extend: out has {} slots, expected {} (the sum of the growths)", out_size,
                        out_size - left);
    }
    return pages;
  }

  Result<std::size_t> plan_decode(std::span<const std::size_t> seq_lens,
                                  std::span<const SlotId> last_slots, std::size_t out_size) const {
    if (last_slots.size() != seq_lens.size() || out_size != seq_lens.size()) {
      return make_error(ErrorCode::invalid_argument,
                        "decode: {} sequence lengths, {} last slots and {} slots in out; expected "
                        "as many of each",
                        seq_lens.size(), last_slots.size(), out_size);
    }
    std::size_t pages = 0;
    for (std::size_t i = 0; i < seq_lens.size(); ++i) {
      const std::size_t prefix = seq_lens[i] - 1;
      const bool opens_page = layout_.offset_in_page(prefix) == 0;
      if (seq_lens[i] == 0 || (!opens_page && !may_continue(last_slots[i], prefix))) [[unlikely]] {
        return refuse_decode(i, last_slots[i], seq_lens[i]);
      }
      pages += opens_page;
    }
    return pages;
  }

  Status check_room(std::size_t pages) const {
    if (pages <= free_.count()) return {};
    return make_error(
        ErrorCode::out_of_capacity, "{} tokens needed ({} pages of {}), {} tokens available",
        pages * layout_.page_size, pages, layout_.page_size, free_.count() * layout_.page_size);
  }

 private:
  /// Whether `last` may hold the last of `length` tokens of a request whose last page is open.
  bool may_continue(SlotId last, std::size_t length) const {
    const std::size_t page = layout_.page_of(last);
    return layout_.offset_in_page(static_cast<std::size_t>(index_of(next_slot(last)))) ==
               layout_.offset_in_page(length) &&
           free_.is_handed_out(page);
  }

  static Error below_prefix(std::size_t request, std::size_t seq, std::size_t prefix) {
    return make_error(ErrorCode::invalid_argument,
                      "request {}: sequence length {} is below its prefix length {}", request, seq,
                      prefix);
  }

  [[gnu::cold, gnu::noinline]] Error refuse_decode(std::size_t request, SlotId last,
                                                   std::size_t seq) const {
    if (seq > 0) return bad_last_slot(request, last, seq - 1);
    return make_error(ErrorCode::invalid_argument,
                      "request {}: sequence length 0, expected it to count the new token", request);
  }

  [[gnu::cold, gnu::noinline]] Error bad_last_slot(std::size_t request, SlotId last,
                                                   std::size_t length) const {
    const std::size_t page = layout_.page_of(last);
    if (!layout_.in_range(page)) {
      return make_error(ErrorCode::invalid_argument,
                        "request {}: last slot {} is out of range, expected one in [{}, {})",
                        request, index_of(last), layout_.first_slot(1), layout_.end_slot());
    }
    if (free_.contains(page)) {
      return make_error(ErrorCode::invalid_argument,
                        "request {}: last slot {} lies in page {}, which is free", request,
                        index_of(last), page);
    }
    return make_error(
        ErrorCode::invalid_argument,
        "request {}: last slot {} is at offset {} of its page; after {} tokens, {} was expected",
        request, index_of(last), layout_.offset_in_page(static_cast<std::size_t>(index_of(last))),
        length, layout_.offset_in_page(length) - 1);
  }

  const PageLayout& layout_;
  const FreePages& free_;
};

}  // namespace pando
