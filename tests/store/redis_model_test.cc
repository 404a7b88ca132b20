// SPDX-License-Identifier: Apache-2.0
// The Redis backend on a real server against a map: random batches of all calls, sizes from nothing
// to a few hundred KiB, and the same answers.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "pando/store_backends.h"
#include "support/redis_pages.h"
#include "support/redis_server.h"

namespace pando::testing {
namespace {

struct Op {
  std::uint32_t kind = 0;
  std::uint32_t first = 0;  // key
  std::uint32_t num_pages = 0;
  std::uint64_t seed = 0;
};

std::ostream& operator<<(std::ostream& out, const Op& op) {
  return out << "{" << op.kind << ", " << op.first << ", " << op.num_pages << ", " << op.seed
             << "}";
}

rc::Gen<std::vector<Op>> any_ops() {
  return rc::gen::container<std::vector<Op>>(
      rc::gen::build<Op>(rc::gen::set(&Op::kind, rc::gen::inRange<std::uint32_t>(0, 13)),
                         rc::gen::set(&Op::first, rc::gen::inRange<std::uint32_t>(0, 12)),
                         rc::gen::set(&Op::num_pages, rc::gen::inRange<std::uint32_t>(0, 6)),
                         rc::gen::set(&Op::seed, rc::gen::inRange<std::uint64_t>(0, 1000))));
}

using Bytes = std::vector<std::byte>;
using Kind = StoreBatch::Kind;

// Sizes belong to keys, so that a page asked for has the size of the one that was put.
std::size_t size_of(std::uint32_t key) { return key < 2 ? key : std::size_t{1} << (key + 6); }

struct Request {
  std::vector<Bytes> bytes;
  std::vector<StorePage> pages;
};

Request make_request(const Op& op) {
  Request request;
  for (std::uint32_t key = op.first; key < op.first + op.num_pages; ++key) {
    Random random(op.seed, key);
    Bytes& bytes = request.bytes.emplace_back(size_of(key));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next() & 0xff);
    const std::size_t cut = random.below(bytes.size() + 1);
    request.pages.push_back(
        {.key = fmt::format("k{}", key),
         .pieces = {std::span(bytes).first(cut), std::span(bytes).subspan(cut)}});
  }
  return request;
}

Kind kind_of(const Op& op) {
  constexpr Kind kKinds[] = {Kind::put, Kind::get, Kind::exists};
  return op.kind < 9 ? kKinds[op.kind % 3] : op.kind < 12 ? Kind::remove : Kind::clear;
}

void apply(const Op& op, StoreBackend& store, std::map<std::string, Bytes>& model) {
  Request request = make_request(op);
  const Kind kind = kind_of(op);
  if (kind == Kind::clear) {
    RC_ASSERT(store.clear().ok());
    model.clear();
    return;
  }
  const auto batch = make_batch(kind, request.pages);
  run_batch(store, *batch);
  RC_ASSERT(batch->status().ok());
  for (std::size_t i = 0; i < batch->size(); ++i) {
    const std::string& key = batch->page(i).key;
    const bool is_read = kind == Kind::get || kind == Kind::exists;
    RC_ASSERT((batch->outcome(i) == PageOutcome::done) == (!is_read || model.contains(key)));
    if (kind == Kind::put) model[key] = request.bytes[i];
    if (kind == Kind::remove) model.erase(key);
    if (kind == Kind::get && model.contains(key)) RC_ASSERT(model[key] == request.bytes[i]);
  }
}

TEST(RedisModel, AgreesWithAMap) {
  PANDO_REQUIRE_REDIS();
  RedisServer server;
  RedisStoreOptions options;
  options.servers = {server.address()};
  options.pipeline_bytes = 100000;
  const auto store = make_redis_store(options).value();
  const bool holds = rc::check([&] {
    std::map<std::string, Bytes> model;
    RC_ASSERT(store->clear().ok());
    for (const Op& op : *any_ops()) apply(op, *store, model);
    std::map<std::string, std::size_t> listed, expected;
    for (const auto& [key, bytes] : model) expected[key] = bytes.size();
    RC_ASSERT(store
                  ->list([&](const StoredPage& page) {
                    listed[page.key] = page.size_bytes;
                    return true;
                  })
                  .ok());
    RC_ASSERT(listed == expected);
  });
  EXPECT_TRUE(holds);
}

}  // namespace
}  // namespace pando::testing
