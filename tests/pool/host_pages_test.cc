// SPDX-License-Identifier: Apache-2.0
// HostPages, one page at a time and in batches. The grid below is the specification: for every
// operation and every state either the state that follows, or a check that stops the call. Whatever
// is refused must leave every page and every counter as it was.
#include "pool/host_pages.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "pando/result.h"
#include "support/cache_fixture.h"

namespace pando::testing {
namespace {

using enum PageState;
using Pages = std::vector<HostPageId>;
using Counts = std::array<std::size_t, HostPages::kNumStates>;
using PageSpan = std::span<const HostPageId>;

constexpr std::array kStates{idle, reserved, writing, backed_up, synced, loading};
static_assert(kStates.size() == HostPages::kNumStates);

struct Operation {
  std::string name;
  std::function<void(HostPages&, PageSpan)> call;
  std::string expected;                                     // as its refusals put it
  std::array<std::optional<PageState>, kStates.size()> to;  // from each of kStates; none: illegal
};

void complete_backup(HostPages& host, PageSpan pages) { host.complete_write(pages, true); }
void complete_prefetch(HostPages& host, PageSpan pages) { host.complete_write(pages, false); }

std::vector<Operation> operations() {
  constexpr std::nullopt_t no = std::nullopt;
  // clang-format off
  return {
      //                                  from: idle, reserved, writing, backed_up, synced, loading
      {"protect_write", &HostPages::protect_write, "reserved",  {no, writing, no, no, no, no}},
      {"complete_write", complete_backup, "writing",            {no, no, synced, no, no, no}},
      {"complete_write", complete_prefetch, "writing",          {no, no, backed_up, no, no, no}},
      {"abort_write", &HostPages::abort_write, "writing",       {no, no, reserved, no, no, no}},
      {"device_gone", &HostPages::device_gone, "synced",        {no, no, no, no, backed_up, no}},
      {"device_came", &HostPages::device_came, "backed_up",     {no, no, no, synced, no, no}},
      {"protect_load", &HostPages::protect_load, "backed_up",   {no, no, no, loading, no, no}},
      {"complete_load", &HostPages::complete_load, "loading",   {no, no, no, no, no, synced}},
      {"abort_load", &HostPages::abort_load, "loading",         {no, no, no, no, no, backed_up}},
      {"free", &HostPages::free, "reserved or backed_up or synced",
                                                                {no, idle, no, idle, idle, no}},
  };
  // clang-format on
}

/// Pages [first, end).
Pages range(std::uint32_t first, std::uint32_t end) {
  Pages out;
  for (; first < end; ++first) out.push_back(HostPageId{first});
  return out;
}

Pages alloc(HostPages& host, std::size_t n) {
  Pages out(n);
  host.alloc(out).value();
  return out;
}

/// Brings reserved pages into `state`.
void bring(HostPages& host, const Pages& pages, PageState state) {
  if (state == reserved) return;
  if (state == idle) return host.free(pages);
  host.protect_write(pages);
  if (state == writing) return;
  host.complete_write(pages, state == synced);
  if (state == loading) host.protect_load(pages);
}

/// The two pages that two_in_each_state() has in kStates[s].
Pages pages_in(std::size_t s) {
  const auto first = static_cast<std::uint32_t>(2 * s);
  return range(first, first + 2);
}

HostPages two_in_each_state() {
  HostPages host(2 * kStates.size());
  alloc(host, host.size());
  for (std::size_t s = 0; s < kStates.size(); ++s) bring(host, pages_in(s), kStates[s]);
  return host;
}

Counts counts(const HostPages& host) {
  Counts out;
  for (std::size_t s = 0; s < kStates.size(); ++s) out[s] = host.count(kStates[s]);
  return out;
}

/// The message of the check that stops `call`; empty when none does.
std::string message_of(const std::function<void()>& call) {
  const CheckHandler before = set_check_handler(
      [](std::string_view message) { throw std::logic_error(std::string(message)); });
  std::string message;
  try {
    call();
  } catch (const std::logic_error& error) {
    message = error.what();
  }
  set_check_handler(before);
  return message;
}

/// Expects that the call on two_in_each_state() stops with this about `bad`, and changes nothing.
void expect_refused(HostPages& host, const Operation& op, const Pages& batch, HostPageId bad,
                    const std::string& why) {
  const std::string expected = op.name + " of host page " + std::to_string(index_of(bad)) + why;
  const std::string message = message_of([&] { op.call(host, batch); });
  EXPECT_NE(message.find(expected), std::string::npos) << message << "\nlacks " << expected;
  for (std::size_t s = 0; s < kStates.size(); ++s) {
    for (const HostPageId page : pages_in(s)) EXPECT_EQ(host.state(page), kStates[s]);
  }
  EXPECT_EQ(counts(host), (Counts{2, 2, 2, 2, 2, 2}));
  EXPECT_TRUE(host.check().ok());
}

TEST(HostPages, StartIdle) {
  const HostPages host(70);
  EXPECT_EQ(host.size(), 70u);
  EXPECT_EQ(host.available(), 70u);
  EXPECT_EQ(counts(host), (Counts{70, 0, 0, 0, 0, 0}));
  EXPECT_GE(host.memory_bytes(), 70u);
  EXPECT_TRUE(host.check().ok());
  EXPECT_NE(message_of([&] { (void)host.state(HostPageId{70}); }).find("page 70: outside [0, 70)"),
            std::string::npos);
}

TEST(HostPages, EveryLegalPairOfStateAndOperationMovesThePages) {
  for (const Operation& op : operations()) {
    for (std::size_t s = 0; s < kStates.size(); ++s) {
      if (!op.to[s]) continue;
      SCOPED_TRACE(op.name + " of a page that is " + std::string(to_string(kStates[s])));
      HostPages host = two_in_each_state();
      op.call(host, pages_in(s));
      for (const HostPageId page : pages_in(s)) EXPECT_EQ(host.state(page), *op.to[s]);
      Counts expected{2, 2, 2, 2, 2, 2};
      expected[s] -= 2;
      expected[static_cast<std::size_t>(*op.to[s])] += 2;
      EXPECT_EQ(counts(host), expected);
      EXPECT_TRUE(host.check().ok());
    }
  }
}

TEST(HostPages, EveryIllegalPairStopsAloneAndAmongGoodPages) {
  for (const Operation& op : operations()) {
    for (std::size_t s = 0; s < kStates.size(); ++s) {
      if (op.to[s]) continue;
      SCOPED_TRACE(op.name + " of a page that is " + std::string(to_string(kStates[s])));
      HostPages host = two_in_each_state();
      const HostPageId bad = pages_in(s)[0];
      const std::string why =
          ": it is " + std::string(to_string(kStates[s])) + ", expected " + op.expected + " [";
      expect_refused(host, op, {bad}, bad, why);
      for (std::size_t good = 0; good < kStates.size(); ++good) {
        const Pages pages = pages_in(good);
        if (op.to[good]) expect_refused(host, op, {pages[0], bad, pages[1]}, bad, why);
      }
    }
  }
}

TEST(HostPages, APageNamedTwiceOrOutOfRangeStopsTheBatch) {
  for (const Operation& op : operations()) {
    for (std::size_t s = 0; s < kStates.size(); ++s) {
      if (!op.to[s]) continue;
      HostPages host = two_in_each_state();
      const HostPageId a = pages_in(s)[0], b = pages_in(s)[1];
      const std::string twice =
          ": it is " + std::string(to_string(kStates[s])) + " and named twice";
      expect_refused(host, op, {a, b, a}, a, twice);
      expect_refused(host, op, {b, HostPageId{12}}, HostPageId{12}, ": outside [0, 12)");
      op.call(host, Pages{b, a});  // a refusal leaves no trace: these were named before
      EXPECT_EQ(host.state(a), *op.to[s]);
      EXPECT_EQ(host.state(b), *op.to[s]);
    }
  }
}

TEST(HostPages, EmptyBatchesChangeNothing) {
  HostPages host = two_in_each_state();
  const Counts before = counts(host);
  for (const Operation& op : operations()) op.call(host, Pages{});
  EXPECT_TRUE(host.alloc({}).ok());
  EXPECT_EQ(counts(host), before);
}

TEST(HostPages, AllocTakesIdlePagesOnly) {
  HostPages host = two_in_each_state();
  EXPECT_EQ(alloc(host, 2), range(0, 2));
  EXPECT_EQ(counts(host), (Counts{0, 4, 2, 2, 2, 2}));
}

TEST(HostPages, AllocIsAllOrNothing) {
  HostPages host(5);
  alloc(host, 2);
  Pages out(4, HostPageId{77});
  EXPECT_TRUE(
      fails(host.alloc(out), ErrorCode::out_of_capacity, "alloc of 4 host pages: 3 of 5 are free"));
  EXPECT_EQ(out, Pages(4, HostPageId{77}));
  EXPECT_EQ(counts(host), (Counts{3, 2, 0, 0, 0, 0}));
  EXPECT_EQ(alloc(host, 3), range(2, 5));
}

TEST(HostPages, AllocTakesTheLowestPagesAfterFrees) {
  HostPages host(200);
  EXPECT_EQ(alloc(host, 150), range(0, 150));
  host.free(Pages{HostPageId{130}, HostPageId{3}, HostPageId{64}});
  EXPECT_EQ(alloc(host, 4),
            (Pages{HostPageId{3}, HostPageId{64}, HostPageId{130}, HostPageId{150}}));
  host.free(range(10, 20));
  EXPECT_EQ(alloc(host, 5), range(10, 15));
  EXPECT_TRUE(host.check().ok());
}

TEST(HostPages, ClearIsRefusedWhileAPageIsProtected) {
  for (const PageState state : kStates) {
    SCOPED_TRACE(to_string(state));
    HostPages host(3);
    bring(host, {alloc(host, 2)[1]}, state);
    const Counts before = counts(host);
    if (state == writing || state == loading) {
      EXPECT_TRUE(
          fails(host.clear(), ErrorCode::in_use, state == writing ? "1 are writing" : "1 loading"));
      EXPECT_EQ(counts(host), before);
    } else {
      EXPECT_TRUE(host.clear().ok());
      EXPECT_EQ(counts(host), (Counts{3, 0, 0, 0, 0, 0}));
      EXPECT_EQ(alloc(host, 3), range(0, 3));
    }
    EXPECT_TRUE(host.check().ok());
  }
}

}  // namespace
}  // namespace pando::testing
