// SPDX-License-Identifier: Apache-2.0
// HostPages against a std::vector<PageState>. Three in four batches are of pages that the operation
// may take, so that pages travel through all states; the rest are of any pages at all, some out of
// range or twice, and must stop at a check and leave both sides equal. check() after each.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "pando/result.h"
#include "pool/host_pages.h"
#include "support/allocator_model.h"

namespace pando::testing {
namespace {

using enum PageState;
using Pages = std::vector<HostPageId>;

struct Move {
  void (*call)(HostPages&, const Pages&);
  std::set<PageState> from;
  PageState to;
};

const std::vector<Move>& moves() {
  static const std::vector<Move> all{
      {[](HostPages& h, const Pages& p) { h.protect_write(p); }, {reserved}, writing},
      {[](HostPages& h, const Pages& p) { h.complete_write(p, true); }, {writing}, synced},
      {[](HostPages& h, const Pages& p) { h.complete_write(p, false); }, {writing}, backed_up},
      {[](HostPages& h, const Pages& p) { h.abort_write(p); }, {writing}, reserved},
      {[](HostPages& h, const Pages& p) { h.device_gone(p); }, {synced}, backed_up},
      {[](HostPages& h, const Pages& p) { h.device_came(p); }, {backed_up}, synced},
      {[](HostPages& h, const Pages& p) { h.protect_load(p); }, {backed_up}, loading},
      {[](HostPages& h, const Pages& p) { h.complete_load(p); }, {loading}, synced},
      {[](HostPages& h, const Pages& p) { h.abort_load(p); }, {loading}, backed_up},
      {[](HostPages& h, const Pages& p) { h.free(p); }, {reserved, backed_up, synced}, idle},
  };
  return all;
}

struct Stopped : std::logic_error {
  using std::logic_error::logic_error;
};

/// Whether a check stops `call`.
template <typename F>
bool stops(F&& call) {
  const CheckHandler before =
      set_check_handler([](std::string_view message) { throw Stopped(std::string(message)); });
  bool stopped = false;
  try {
    call();
  } catch (const Stopped&) {
    stopped = true;
  }
  set_check_handler(before);
  return stopped;
}

class Walk {
 public:
  explicit Walk(std::size_t num_pages) : host_(num_pages), model_(num_pages, idle) {}

  static constexpr std::uint32_t kAllocKinds = 3;
  static std::uint32_t num_kinds() {
    return kAllocKinds + static_cast<std::uint32_t>(moves().size()) + 1;
  }

  void step(const Op& op) {
    if (op.kind < kAllocKinds) {
      alloc(op.a % (model_.size() / 2 + 3));
    } else if (op.kind + 1 < num_kinds()) {
      const Move& move = moves()[op.kind - kAllocKinds];
      apply(move, op.b % 4 != 0 ? fitting_pages(move, op) : any_pages(op));
    } else {
      clear(op.a);
    }
    compare();
  }

 private:
  void alloc(std::size_t n) {
    Pages expected;
    for (std::size_t i = 0; i < model_.size() && expected.size() < n; ++i) {
      if (model_[i] == idle) expected.push_back(HostPageId{static_cast<std::uint32_t>(i)});
    }
    Pages out(n);
    const Status status = host_.alloc(out);
    RC_ASSERT(status.ok() == (expected.size() == n));
    if (!status) {
      RC_ASSERT(status.error().code == ErrorCode::out_of_capacity);
      return;
    }
    RC_ASSERT(out == expected);
    for (const HostPageId page : out) model_[index_of(page)] = reserved;
  }

  // Some of the pages that the move may take, from one of them on, round the end, perhaps reversed.
  Pages fitting_pages(const Move& move, const Op& op) const {
    Pages out;
    for (std::size_t k = 0; k < model_.size(); ++k) {
      const std::size_t i = (op.a + k) % model_.size();
      if (out.size() > op.b % 9) break;
      if (move.from.contains(model_[i])) out.push_back(HostPageId{static_cast<std::uint32_t>(i)});
    }
    if (op.b % 2 == 0) std::reverse(out.begin(), out.end());
    return out;
  }

  // One to four pages a stride apart, which is 0 at times; up to two past the end.
  Pages any_pages(const Op& op) const {
    Pages out;
    for (std::size_t k = 0; k <= op.b / 4 % 4; ++k) {
      const std::size_t i = (op.a + k * (op.b / 16 % 5)) % (model_.size() + 2);
      out.push_back(HostPageId{static_cast<std::uint32_t>(i)});
    }
    return out;
  }

  bool legal(const Move& move, const Pages& pages) const {
    return std::set(pages.begin(), pages.end()).size() == pages.size() &&
           std::all_of(pages.begin(), pages.end(), [&](HostPageId page) {
             return index_of(page) < model_.size() && move.from.contains(model_[index_of(page)]);
           });
  }

  void apply(const Move& move, const Pages& pages) {
    const bool allowed = legal(move, pages);
    RC_ASSERT(stops([&] { move.call(host_, pages); }) == !allowed);
    if (!allowed) return;
    for (const HostPageId page : pages) model_[index_of(page)] = move.to;
  }

  void clear(std::uint32_t rarely) {
    const bool in_use = count(writing) + count(loading) > 0;
    if (!in_use && rarely % 8 != 0) return;
    const Status status = host_.clear();
    RC_ASSERT(status.ok() == !in_use);
    if (in_use) {
      RC_ASSERT(status.error().code == ErrorCode::in_use);
    } else {
      std::fill(model_.begin(), model_.end(), idle);
    }
  }

  std::size_t count(PageState state) const {
    return static_cast<std::size_t>(std::count(model_.begin(), model_.end(), state));
  }

  void compare() const {
    const Status status = host_.check();
    if (!status) RC_FAIL(status.error().message);
    for (std::size_t i = 0; i < model_.size(); ++i) {
      RC_ASSERT(host_.state(HostPageId{static_cast<std::uint32_t>(i)}) == model_[i]);
    }
    for (const PageState state : {idle, reserved, writing, backed_up, synced, loading}) {
      RC_ASSERT(host_.count(state) == count(state));
    }
    RC_ASSERT(host_.available() == count(idle));
  }

  HostPages host_;
  std::vector<PageState> model_;
};

RC_GTEST_PROP(HostPagesModel, AgreesWithAVectorOfStates, ()) {
  const auto num_pages = *rc::gen::element<std::size_t>(1, 5, 24, 70, 200);
  const std::vector<Op> ops = *any_ops(Walk::num_kinds());
  Walk walk(num_pages);
  for (const Op& op : ops) walk.step(op);
}

}  // namespace
}  // namespace pando::testing
