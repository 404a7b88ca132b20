// SPDX-License-Identifier: Apache-2.0
// The store behind the host tier of a BlockCache: what gets a host page is put into it, and what
// neither device nor host have of a request is fetched from it to the host.
//
// A fetch asks which blocks are there, finds by the groups' rules how long a hit they make, and
// reads those that it needs. Blocks are found one by one, so whatever has arrived is of use.
//
// Invariant: pages that are put are held; pages that are fetched are being written until they are
// kept or given up. Nobody touches a page once its call has finished.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "blocks/block_host.h"
#include "blocks/hit_search.h"
#include "pando/key_space.h"
#include "pando/store.h"
#include "store/open_storage.h"

namespace pando {

class BlockStore {
 public:
  BlockStore(std::span<const BlockGroup> groups, const BlockPool& pool, BlockHost& host,
             OpenedStorage opened);
  /// Calls off what is under way and waits until nobody touches a page.
  ~BlockStore();

  const std::string& backend() const { return opened_.backend; }
  Store& store() { return *opened_.store; }
  void set_prefetch_policy(PrefetchPolicy policy) { opened_.prefetch.policy = policy; }

  /// A page that the host keeps from now on.
  void put(std::uint32_t group, HostPageId page);

  /// `limit` is the longest hit that the request may have.
  Result<Prefetch> prefetch(const BlockKeys& keys, std::size_t limit);
  bool is_ready(PrefetchId id) const;
  std::size_t end(PrefetchId id);

  /// Called with the content of a page that has arrived and is kept.
  std::function<void(const BlockKeys& keys, std::uint32_t group, std::size_t block)> on_fetched;

  void poll(PollResult& result);
  /// Calls off what is under way; nothing is held or written then.
  void abandon();
  bool idle() const { return puts_.empty() && waiting_.empty() && fetches_.empty(); }
  /// Pages of each group that fetches write to.
  std::vector<std::size_t> num_reserved() const;

 private:
  struct Put {
    std::vector<std::pair<std::uint32_t, HostPageId>> pages;
    StoreCall call;
  };
  /// A block that is wanted: its place in the request, and the page it is read to.
  struct Wanted {
    std::uint32_t group = 0;
    std::size_t block = 0;
    HostPageId page = {};
    bool settled = false;  // kept or given up
  };
  struct Fetch {
    PrefetchId id = {};
    std::vector<Token> tokens;
    std::vector<BlockHash> hashes;
    std::size_t unit = 1;
    std::string ns;
    bool alias = false;
    std::size_t limit = 0;
    std::chrono::steady_clock::time_point started = {};
    std::vector<Wanted> asked;  // in the order of the question
    std::optional<StoreCall> question;
    std::vector<Wanted> wanted;  // in the order of the calls
    std::vector<StoreCall> calls;
    std::size_t num_kept = 0;
    std::size_t occupied = 0;  // tokens that count against the limit
    bool ended = false;

    BlockKeys keys() const { return {tokens, hashes, unit, ns, alias}; }
    bool is_quiet() const;
  };

  static constexpr std::size_t kBatchPages = 128;

  std::string key_of(const BlockContent& content) const;
  StorePage page_of(HostPageId page, const BlockContent& content) const;
  void start_puts();
  void read(Fetch& fetch);
  void settle(Fetch& fetch);

  std::span<const BlockGroup> groups_;
  BlockHost& host_;
  OpenedStorage opened_;
  HitSearch search_;
  std::vector<KeySpace> spaces_;                              // by group
  std::deque<std::pair<std::uint32_t, HostPageId>> waiting_;  // held, to be put
  std::deque<Put> puts_;
  std::deque<Fetch> fetches_;
  std::uint64_t last_id_ = 0;
  std::size_t occupied_tokens_ = 0;
  std::size_t max_tokens_ = 0;
};

}  // namespace pando
