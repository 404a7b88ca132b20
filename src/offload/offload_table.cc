// SPDX-License-Identifier: Apache-2.0
// OffloadTable: the state of each block, and the order in which they go. Block b of a caller is
// block b + 1 here, because 0 is no block to KeyTable, EvictionOrder and HazardBlocks.
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "blocks/hazard_blocks.h"
#include "index/eviction_order.h"
#include "offload/key_table.h"
#include "pando/offload.h"
#include "pando/policy.h"

namespace pando {
namespace {

// Groups in the eyes of the hazard policy: of the first it evicts leaves only.
constexpr std::uint32_t kMainChain = 0;
constexpr std::uint32_t kOtherChain = 1;

}  // namespace

struct OffloadTable::Impl {
  struct Block {
    NodeStats stats;
    EvictionKey listed = {};  // what it is ordered by, while it may go
    std::uint32_t readers = 0;
    std::uint32_t depth = 0;  // chunks before it in its chain
    std::uint32_t chain = kMainChain;
    bool writing = false;
  };

  Impl(const OffloadOptions& options, std::unique_ptr<EvictionPolicy> its_policy)
      : main_group(options.main_group),
        policy(std::move(its_policy)),
        keys(options.num_blocks + 1),
        blocks(options.num_blocks + 1) {
    if (policy->hazard())
      hazard.emplace(HazardBlocks::Options{.num_blocks = blocks.size(),
                                           .leaves_only = {true, false},
                                           .unit_group = kMainChain,
                                           .unit_group_tokens = options.block_tokens});
  }

  std::size_t num_free() const { return free.size() + blocks.size() - next_new; }
  /// One that was never used, while there is one.
  std::uint32_t take_free() {
    if (next_new < blocks.size()) return next_new++;
    const std::uint32_t i = free.back();
    free.pop_back();
    return i;
  }

  std::uint32_t find(std::string_view bytes) const { return keys.find(bytes, keys.hash(bytes)); }
  bool may_go(const Block& block) const { return !block.writing && block.readers == 0; }

  // ---- Order ----

  std::uint32_t tie(const Block& block) const { return ~block.depth; }  // the deeper goes first
  void list(std::uint32_t i) {
    Block& block = blocks[i];
    block.listed = policy->key(block.stats);
    order.insert(block.listed, i, tie(block));
    if (hazard) hazard->freed(PageId{i});
  }
  void unlist(std::uint32_t i) {
    order.erase(blocks[i].listed, i, tie(blocks[i]));
    if (hazard) hazard->held(PageId{i});
  }
  void order_anew(std::uint32_t i) {
    Block& block = blocks[i];
    block.stats.last_access = ++clock;
    if (!may_go(block)) return;
    order.erase(block.listed, i, tie(block));
    block.listed = policy->key(block.stats);
    order.insert(block.listed, i, tie(block));
  }
  std::uint32_t evict_one() {
    std::uint32_t i = order.front();
    if (hazard) i = index_of(hazard->take(PageId{i}));
    order.erase(blocks[i].listed, i, tie(blocks[i]));
    keys.erase(i);
    free.push_back(i);
    return i;
  }
  void drop(std::uint32_t i) {
    if (hazard) hazard->forgotten(PageId{i});
    keys.erase(i);
    free.push_back(i);
  }
  /// Those of the blocks that may go do not, until unkeep().
  std::vector<std::uint32_t> keep(const std::vector<std::uint32_t>& wanted) {
    std::vector<std::uint32_t> kept;
    for (const std::uint32_t i : wanted) {
      if (!may_go(blocks[i])) continue;
      unlist(i);
      ++blocks[i].readers;
      kept.push_back(i);
    }
    return kept;
  }
  void unkeep(const std::vector<std::uint32_t>& kept) {
    for (const std::uint32_t i : kept) {
      --blocks[i].readers;
      list(i);
    }
  }
  Status check_room(std::size_t wanted, std::size_t kept) const;
  std::vector<std::string> evict_for(std::size_t wanted, const std::vector<std::uint32_t>& kept);

  // ---- Requests ----

  using Use = OffloadRequest::Use;
  const Use& use(OffloadRequest& request, std::uint64_t hash, const OffloadKey& key, bool reused);
  std::uint32_t chain_of(std::uint32_t group) const {
    return group == main_group ? kMainChain : kOtherChain;
  }
  std::uint32_t insert(OffloadRequest& request, std::span<const OffloadKey> given, std::size_t n,
                       std::uint64_t hash);
  void note_position(const Use& use, std::span<const OffloadKey> given, std::size_t n,
                     std::uint32_t i);
  void learn(std::span<const Use> uses);
  void learn_use(const Use& use, std::size_t depth, std::size_t num_new, bool is_last);

  const std::uint32_t main_group;
  std::unique_ptr<EvictionPolicy> policy;
  KeyTable keys;
  std::vector<Block> blocks;
  std::vector<std::uint32_t> free;  // the last one is taken next
  std::uint32_t next_new = 1;       // from here on none was ever used
  EvictionOrder order;              // the blocks that may go
  std::optional<HazardBlocks> hazard;
  std::uint64_t clock = 0;
  std::uint64_t last_request = 0;
  std::uint64_t first_request = 1;  // since clear()
  std::size_t num_writing = 0;
};

OffloadTable::OffloadTable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OffloadTable::~OffloadTable() = default;

Status OffloadOptions::validate() const {
  if (num_blocks == 0 || num_blocks >= UINT32_MAX)
    return make_error(ErrorCode::invalid_argument,
                      "an offload table of {} blocks; expected 1 to {}", num_blocks,
                      UINT32_MAX - 1);
  if (block_tokens == 0)
    return make_error(ErrorCode::invalid_argument,
                      "an offload table with blocks of 0 tokens; expected at least 1");
  return {};
}

Result<std::unique_ptr<OffloadTable>> OffloadTable::create(const OffloadOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  Result<std::unique_ptr<EvictionPolicy>> policy = make_policy(options.policy);
  if (!policy) return policy.error();
  return std::unique_ptr<OffloadTable>(
      new OffloadTable(std::make_unique<Impl>(options, std::move(*policy))));
}

OffloadState OffloadTable::find(std::string_view key) const {
  const std::uint32_t i = impl_->find(key);
  if (i == 0) return OffloadState::absent;
  return impl_->blocks[i].writing ? OffloadState::writing : OffloadState::ready;
}

// ---- Writing -----------------------------------------------------------------------------------

Result<OffloadTable::Room> OffloadTable::begin_write(OffloadRequest& request,
                                                     std::span<const OffloadKey> keys) {
  Impl& t = *impl_;
  std::vector<std::uint64_t> hashes(keys.size());
  std::vector<std::uint32_t> there;
  Room room;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    hashes[n] = t.keys.hash(keys[n].bytes);
    const std::uint32_t i = t.keys.find(keys[n].bytes, hashes[n]);
    if (i == 0 || !t.blocks[i].writing) t.use(request, hashes[n], keys[n], i != 0);
    if (i == 0) {
      room.wanted.push_back(n);
    } else {
      there.push_back(i);
    }
  }
  if (room.wanted.empty()) return room;
  if (room.wanted.size() > t.num_free()) {
    const auto mays = static_cast<std::size_t>(std::count_if(
        there.begin(), there.end(), [&](std::uint32_t i) { return t.may_go(t.blocks[i]); }));
    if (Status fits = t.check_room(room.wanted.size(), mays); !fits) return fits.error();
    if (t.hazard) t.hazard->look_ahead(request.uses_.size() + room.wanted.size());
    room.evicted = t.evict_for(room.wanted.size(), there);
  }
  std::size_t kept = 0;
  for (const std::size_t n : room.wanted) {
    if (t.keys.find(keys[n].bytes, hashes[n]) != 0) continue;  // named twice in this call
    room.wanted[kept++] = n;
    room.blocks.push_back(t.insert(request, keys, n, hashes[n]) - 1);
  }
  room.wanted.resize(kept);
  return room;
}

Status OffloadTable::Impl::check_room(std::size_t wanted, std::size_t kept) const {
  if (wanted <= num_free() + order.size() - kept) return {};
  return make_error(ErrorCode::out_of_capacity,
                    "no room for {} blocks: {} are free, {} may be evicted, the others of {} are "
                    "being read or written or are among the keys",
                    wanted, num_free(), order.size() - kept, blocks.size() - 1);
}

// There are so many that may go.
std::vector<std::string> OffloadTable::Impl::evict_for(std::size_t wanted,
                                                       const std::vector<std::uint32_t>& there) {
  const std::vector<std::uint32_t> kept = keep(there);
  std::vector<std::string> evicted;
  while (num_free() < wanted) evicted.push_back(keys.bytes(evict_one()));
  unkeep(kept);
  return evicted;
}

std::uint32_t OffloadTable::Impl::insert(OffloadRequest& request, std::span<const OffloadKey> given,
                                         std::size_t n, std::uint64_t hash) {
  const std::uint32_t i = take_free();
  keys.insert(i, given[n].bytes, hash);
  Block& block = blocks[i];
  const Use& use_of_it = use(request, hash, given[n], false);
  ++clock;
  block = {.stats = {.last_access = clock, .created = clock},
           .depth = use_of_it.depth,
           .chain = chain_of(given[n].group),
           .writing = true};
  ++num_writing;
  if (hazard) note_position(use_of_it, given, n, i);
  return i;
}

void OffloadTable::Impl::note_position(const Use& use, std::span<const OffloadKey> given,
                                       std::size_t n, std::uint32_t i) {
  const Block& block = blocks[i];
  HazardBlocks::Position position;
  position.group = block.chain;
  position.depth = block.depth;
  position.name = keys.hash_of(i);
  if (block.chain == kMainChain) {
    const std::uint32_t before = use.depth > 0 ? keys.find_hash(use.before) : 0;
    if (before != 0 && blocks[before].depth + 1 == block.depth) {
      position.before = PageId{before};
      position.name_before = use.before;
    }
    // The key that its unit ends with, if it is among those given.
    const std::size_t to_end =
        hazard->blocks_per_unit() - 1 - block.depth % hazard->blocks_per_unit();
    if (n + to_end < given.size() && given[n + to_end].group == given[n].group)
      position.unit = keys.hash(given[n + to_end].bytes);
  }
  hazard->set_position(PageId{i}, position);
  hazard->cached(PageId{i});
}

std::vector<std::size_t> OffloadTable::end_write(std::span<const std::string_view> keys,
                                                 bool failed) {
  Impl& t = *impl_;
  std::vector<std::size_t> ended;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const std::uint32_t i = t.find(keys[n]);
    if (i == 0 || !t.blocks[i].writing) continue;
    t.blocks[i].writing = false;
    --t.num_writing;
    ended.push_back(n);
    if (failed) {
      t.drop(i);
    } else {
      t.list(i);
    }
  }
  return ended;
}

// ---- Reading -----------------------------------------------------------------------------------

Status OffloadTable::begin_read(std::span<const std::string_view> keys,
                                std::span<std::uint32_t> blocks) {
  Impl& t = *impl_;
  PANDO_CHECK(blocks.size() == keys.size(), "room for {} blocks of {} keys", blocks.size(),
              keys.size());
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const std::uint32_t i = t.find(keys[n]);
    if (i == 0 || t.blocks[i].writing)
      return make_error(ErrorCode::not_found,
                        "key {} of {} cannot be read: it is {}; expected one that is ready", n,
                        keys.size(), i == 0 ? "absent" : "still being written");
    blocks[n] = i - 1;
  }
  for (const std::uint32_t b : blocks) {
    if (t.blocks[b + 1].readers == 0) t.unlist(b + 1);
    ++t.blocks[b + 1].readers;
  }
  return {};
}

Status OffloadTable::begin_read(OffloadRequest& request, std::span<const OffloadKey> keys,
                                std::span<std::uint32_t> blocks) {
  std::vector<std::string_view> names;
  for (const OffloadKey& key : keys) names.push_back(key.bytes);
  if (Status begun = begin_read(names, blocks); !begun) return begun;
  for (std::size_t n = 0; n < keys.size(); ++n)
    impl_->use(request, impl_->keys.hash_of(blocks[n] + 1), keys[n], true);
  return {};
}

Status OffloadTable::end_read(std::span<const std::string_view> keys) {
  Impl& t = *impl_;
  std::vector<std::uint32_t> ended;
  for (std::size_t n = 0; n < keys.size(); ++n) {
    const std::uint32_t i = t.find(keys[n]);
    if (i == 0 || t.blocks[i].readers == 0) {
      for (const std::uint32_t again : ended) {
        if (t.blocks[again].readers++ == 0) t.unlist(again);
      }
      return make_error(ErrorCode::invalid_argument,
                        "key {} of {} is not being read; nothing has changed", n, keys.size());
    }
    if (--t.blocks[i].readers == 0) t.list(i);
    ended.push_back(i);
  }
  return {};
}

// ---- Order -------------------------------------------------------------------------------------

Result<std::vector<std::string>> OffloadTable::evict(std::size_t num_blocks,
                                                     std::span<const std::string_view> kept) {
  Impl& t = *impl_;
  std::vector<std::uint32_t> there;
  for (const std::string_view key : kept)
    if (const std::uint32_t i = t.find(key); i != 0 && t.may_go(t.blocks[i])) there.push_back(i);
  std::sort(there.begin(), there.end());
  there.erase(std::unique(there.begin(), there.end()), there.end());
  const std::size_t wanted = t.num_free() + std::min(num_blocks, t.blocks.size());
  if (Status fits = t.check_room(wanted, there.size()); !fits) return fits.error();
  return t.evict_for(wanted, there);
}

void OffloadTable::touch(std::span<const std::string_view> keys) {
  for (auto key = keys.rbegin(); key != keys.rend(); ++key)
    if (const std::uint32_t i = impl_->find(*key); i != 0) impl_->order_anew(i);
}

std::size_t OffloadTable::forget(std::span<const std::string_view> keys) {
  std::size_t forgotten = 0;
  for (const std::string_view key : keys) {
    const std::uint32_t i = impl_->find(key);
    if (i == 0 || !impl_->may_go(impl_->blocks[i])) continue;
    impl_->unlist(i);
    impl_->drop(i);
    ++forgotten;
  }
  return forgotten;
}

// ---- Requests ----------------------------------------------------------------------------------

OffloadRequest OffloadTable::start() { return OffloadRequest(++impl_->last_request); }

void OffloadTable::use(OffloadRequest& request, std::span<const OffloadKey> keys) {
  for (const OffloadKey& key : keys) {
    const std::uint64_t hash = impl_->keys.hash(key.bytes);
    const std::uint32_t i = impl_->keys.find(key.bytes, hash);
    impl_->use(request, hash, key, i != 0 && !impl_->blocks[i].writing);
  }
}

// What a request needs should not go because of what it adds itself, so a policy that learns hears
// of it at once; lru hears when the request finishes, as vLLM's does.
const OffloadRequest::Use& OffloadTable::Impl::use(OffloadRequest& request, std::uint64_t hash,
                                                   const OffloadKey& key, bool reused) {
  const auto [use, is_first] = request.add(hash, key, reused);
  if (hazard && is_first && reused) hazard->touch(PageId{keys.find_hash(hash)});
  return use;
}

// Head to tail over all groups, as far as ends are known, and the most recent is the head.
void OffloadTable::finish(OffloadRequest& request) {
  Impl& t = *impl_;
  std::vector<OffloadRequest::Use> uses = request.take();
  if (request.number_ < t.first_request) return;
  if (t.hazard) t.learn(uses);
  if (std::all_of(uses.begin(), uses.end(), [](const auto& use) { return use.end != 0; }))
    std::stable_sort(uses.begin(), uses.end(),
                     [](const auto& a, const auto& b) { return a.end < b.end; });
  for (auto use = uses.rbegin(); use != uses.rend(); ++use) {
    const std::uint32_t i = t.keys.find_hash(use->hash);
    if (i == 0) continue;
    if (use->reused) ++t.blocks[i].stats.hits;
    t.order_anew(i);
  }
}

// What is ready or was evicted lately has been seen before; HazardBlocks calls the others fresh.
void OffloadTable::Impl::learn(std::span<const Use> uses) {
  const auto is_before = [this](const Use& use) { return use.group < main_group; };
  const auto is_main = [this](const Use& use) { return use.group == main_group; };
  const auto is_fresh = [this](const Use& use) {
    const std::uint32_t i = keys.find_hash(use.hash);
    return i != 0 && hazard->is_fresh(PageId{i});
  };
  const auto begin = std::partition_point(uses.begin(), uses.end(), is_before);
  const auto end = std::partition_point(begin, uses.end(), is_main);
  const auto length = static_cast<std::size_t>(end - begin);
  const auto seen = static_cast<std::size_t>(std::find_if(begin, end, is_fresh) - begin);
  const std::size_t num_new = hazard->units_of(length - seen);
  if (length > 0) hazard->begin_request(length);
  for (std::size_t n = 0, depth = 0; n < uses.size(); ++n, ++depth) {
    if (n > 0 && uses[n].group != uses[n - 1].group) depth = 0;
    const std::size_t unit = uses[n].group == main_group ? hazard->blocks_per_unit() : 1;
    const bool is_last = n + unit >= uses.size() || uses[n + unit].group != uses[n].group;
    learn_use(uses[n], depth, num_new, is_last);
  }
}

void OffloadTable::Impl::learn_use(const Use& use, std::size_t depth, std::size_t num_new,
                                   bool is_last) {
  const std::uint32_t i = keys.find_hash(use.hash);
  const bool is_main = use.group == main_group;
  if (i == 0 && !is_main) return;
  const std::uint32_t hits =
      i != 0 ? hazard->hit(PageId{i}) : hazard->past_hits(use.hash).value_or(0);
  const ReuseHazard::Class cls = ReuseHazard::class_of(num_new, hits, is_last);
  if (is_main) hazard->access(use.hash, depth, cls);
  if (i != 0) hazard->use(PageId{i}, cls);
}

// ---- The whole ---------------------------------------------------------------------------------

void OffloadTable::clear() {
  Impl& t = *impl_;
  for (std::uint32_t i = 1; i < t.blocks.size(); ++i) {
    if (!t.keys.has(i)) continue;
    if (t.may_go(t.blocks[i])) t.unlist(i);
    t.drop(i);
    t.blocks[i] = {};
  }
  t.free.clear();
  t.next_new = 1;
  t.num_writing = 0;
  t.first_request = t.last_request + 1;
}

std::size_t OffloadTable::num_blocks() const { return impl_->blocks.size() - 1; }
std::size_t OffloadTable::num_keys() const { return impl_->keys.size(); }
std::size_t OffloadTable::num_writing() const { return impl_->num_writing; }
std::size_t OffloadTable::num_evictable() const { return impl_->order.size(); }
std::size_t OffloadTable::num_reading() const {
  return impl_->keys.size() - impl_->num_writing - impl_->order.size();
}
std::string_view OffloadTable::policy() const { return impl_->policy->name(); }

std::size_t OffloadTable::memory_bytes() const {
  const Impl& t = *impl_;
  return t.keys.memory_bytes() + t.blocks.capacity() * sizeof(Impl::Block) +
         t.free.capacity() * sizeof(std::uint32_t) + t.order.memory_bytes() +
         (t.hazard ? t.hazard->memory_bytes() : 0);
}

std::vector<std::string> OffloadTable::evictable_keys() const {
  std::vector<std::string> keys;
  for (const NodeIndex i : impl_->order.nodes()) keys.push_back(impl_->keys.bytes(i));
  return keys;
}

Status OffloadTable::check() const {
  const Impl& t = *impl_;
  if (Status keys = t.keys.check(); !keys) return keys;
  if (Status order = t.order.check(); !order) return order;
  std::vector<bool> listed(t.blocks.size());
  for (const NodeIndex i : t.order.nodes()) listed[i] = true;
  std::size_t writing = 0;
  for (std::uint32_t i = 1; i < t.blocks.size(); ++i) {
    const Impl::Block& block = t.blocks[i];
    const bool used = t.keys.has(i);
    writing += used && block.writing ? 1 : 0;
    if (listed[i] != (used && t.may_go(block)))
      return make_error(ErrorCode::corrupt, "offload: block {} may {}go and is {}listed", i - 1,
                        used && t.may_go(block) ? "" : "not ", listed[i] ? "" : "not ");
    if (used && block.writing && block.readers > 0)
      return make_error(ErrorCode::corrupt, "offload: block {} is read while it is written", i - 1);
  }
  if (writing != t.num_writing)
    return make_error(ErrorCode::corrupt, "offload: {} blocks are written; counted {}", writing,
                      t.num_writing);
  for (const std::uint32_t i : t.free)
    if (t.keys.has(i))
      return make_error(ErrorCode::corrupt, "offload: block {} is free and has a key", i - 1);
  if (t.num_free() + t.keys.size() != t.blocks.size() - 1)
    return make_error(ErrorCode::corrupt, "offload: {} blocks are free and {} have keys, of {}",
                      t.num_free(), t.keys.size(), t.blocks.size() - 1);
  if (!t.hazard) return {};
  return t.hazard->check([&t](PageId block) -> HazardBlocks::Known {
    const std::uint32_t i = index_of(block);
    if (!t.keys.has(i)) return {};
    return {true, t.may_go(t.blocks[i]), t.blocks[i].chain, t.keys.hash_of(i)};
  });
}

}  // namespace pando
