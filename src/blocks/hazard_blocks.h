// SPDX-License-Identifier: Apache-2.0
// The hazard policy over the blocks of a pool: what each block is ranked by, which blocks may go,
// and which have gone lately. BlockPool tells it of blocks that come and go, BlockCache of requests
// (block_hazard.cc). HazardNodes is the same for nodes of a tree; docs/tuning.md says what the
// policy does and what it gains.
//
// Of a group with full attention only leaves may go: a block with another one cached behind it does
// not, because nobody would find that one any more. So a block knows the block before it, and
// counts those behind it. The link is between blocks, not contents: a twin has links of its own,
// and what is behind a block that is forgotten is behind nothing. Blocks of other groups may go at
// any time.
//
// The learner counts in units: a block of the first group with full attention, or as many as make
// 64 tokens, so that ages and counts mean the same at every block size. The last block of a unit
// stands for it; a unit has gone when that block has.
//
// Invariant: a block's key is when it was last used by a request that has finished, and its class
// then. `fresh` are blocks whose request has not. Candidates are exactly the free blocks with
// content that may go.
// Costs: O(1) each; take() looks at 64 candidates, unless the block before the last victim has the
// same key: that one is worth as little, and goes next. A cache line and a half per block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "index/block_history.h"
#include "index/draw.h"
#include "index/hazard_index.h"
#include "pando/block_pool.h"

namespace pando {

class HazardBlocks final : public BlockVictims {
 public:
  struct Options {
    std::size_t num_blocks = 0;
    std::size_t lower_pages = 0;        // of the tier below: what leaves the device is remembered
    std::vector<bool> leaves_only;      // by group
    std::uint32_t unit_group = 0;       // whose blocks make units
    std::size_t unit_group_tokens = 1;  // of a block of it
  };
  explicit HazardBlocks(const Options& options);
  HazardBlocks(const HazardBlocks&) = delete;
  HazardBlocks& operator=(const HazardBlocks&) = delete;

  /// The name of a block: bits of its chained hash, so that of all before it.
  static std::uint64_t name_of(const BlockHash& hash);

  /// Where a block is in its chain.
  struct Position {
    std::uint32_t group = 0;
    std::uint32_t depth = 0;  // blocks before it
    std::uint64_t name = 0;
    PageId before = kNullBlock;  // the block before it, if any is known
    std::uint64_t name_before = 0;
    std::optional<std::uint64_t> unit;  // the name of its unit, if it is in one
  };
  /// For a held block without content, before it gets one: at once, or when a load has ended. By
  /// then the block before it may be another's; so its name is given.
  void set_position(PageId block, const Position& position);
  /// Of a block that has just been cached: another has the same content.
  void copy_hits(PageId block, PageId twin);

  // BlockVictims.
  void cached(PageId block) override;
  void held(PageId block) override;
  void freed(PageId block) override;
  void forgotten(PageId block) override;
  PageId take(PageId oldest) override;

  // Requests, of so many blocks of the group whose blocks make units.
  /// One wants room: until the next call, all are older by its units.
  void look_ahead(std::size_t num_blocks);
  /// One has finished: now() advances.
  void begin_request(std::size_t num_blocks);
  std::size_t units_of(std::size_t num_blocks) const { return num_blocks / blocks_per_unit_; }
  std::size_t blocks_per_unit() const { return blocks_per_unit_; }
  bool ends_unit(std::size_t depth) const { return (depth + 1) % blocks_per_unit_ == 0; }
  std::uint32_t unit_group() const { return unit_group_; }
  /// Block `depth` of that request was accessed.
  void access(std::uint64_t name, std::size_t depth, ReuseHazard::Class cls) {
    if (ends_unit(depth)) index_.learner.access(name, depth / blocks_per_unit_, cls);
  }
  /// Counts an access of a block with content by a request that has finished; its hits with it.
  std::uint32_t hit(PageId block);
  /// A block with content was used now.
  void use(PageId block, ReuseHazard::Class cls);
  /// A request that has not finished uses it now.
  void touch(PageId block) {
    use(block, static_cast<ReuseHazard::Class>(records_[index_of(block)].key & 0xff));
  }
  bool is_fresh(PageId block) const { return records_[index_of(block)].fresh; }
  std::uint32_t hits(PageId block) const { return records_[index_of(block)].hits; }

  /// The hits of a unit that has left the device lately.
  std::optional<std::uint32_t> past_hits(const std::optional<std::uint64_t>& unit) const {
    return unit ? history_.find(*unit) : std::nullopt;
  }
  const HazardIndex& index() const { return index_; }
  /// What the block is ranked by, also while it is being taken.
  Draw::Candidate rank(PageId block) const {
    return rank_of(index_of(block), records_[index_of(block)]);
  }
  /// What one of a group is ranked by that comes from elsewhere.
  Draw::Candidate new_rank(std::uint32_t group, std::size_t depth) const {
    return {HazardIndex::pack(index_.learner.now(), 0),
            tie_depth(group, static_cast<std::uint32_t>(depth)), 0};
  }

  std::size_t memory_bytes() const;
  /// What the owner of the blocks knows of one.
  struct Known {
    bool has_content = false;
    bool free = false;
    std::uint32_t group = 0;
    std::uint64_t name = 0;
  };
  /// O(blocks).
  Status check(const std::function<Known(PageId)>& know) const;

 private:
  struct Record {
    HazardIndex::Key key = 0;
    std::uint64_t name = 0;
    std::uint64_t name_before = 0;
    std::uint64_t serial = 0;         // of its content: no two are alike; 0: it has none
    std::uint64_t serial_before = 0;  // that the block before it had when they were linked
    std::uint32_t before = 0;
    std::uint32_t behind = 0;  // blocks linked to it
    std::uint32_t depth = 0;
    std::uint16_t hits = 0;
    std::uint16_t group = 0;
    bool free = false;  // and has content
    bool fresh = false;
  };
  static_assert(sizeof(Record) == 64);

  bool may_go(const Record& record) const {
    return record.free && (record.behind == 0 || !leaves_only_[record.group]);
  }
  /// Deeper ones go first among equals; of groups that need no prefix, the shallower, and before
  /// all others.
  std::uint32_t tie_depth(std::uint32_t group, std::uint32_t depth) const {
    return leaves_only_[group] ? depth : ~depth;
  }
  Draw::Candidate rank_of(std::uint32_t i, const Record& record) const {
    return {record.key, tie_depth(record.group, record.depth), i};
  }
  /// The block before it, if that still has the content that it had.
  Record* before(const Record& record);
  void insert(std::uint32_t i) { draw_.insert(candidates_, rank_of(i, records_[i])); }
  bool stands_for_unit(const Record& record) const {
    return record.group == unit_group_ && ends_unit(record.depth);
  }
  void lose_content(std::uint32_t i);
  std::uint32_t pick();

  const std::size_t blocks_per_unit_;
  const std::uint32_t unit_group_;
  const std::vector<bool> leaves_only_;
  std::vector<Record> records_;
  HazardIndex index_;
  BlockHistory history_;  // of units
  Draw draw_{index_, Draw::Ties::deeper_first};
  Draw::List candidates_;
  std::uint32_t following_ = 0;  // before the last victim, and as worthless; 0: none
  std::uint64_t last_serial_ = 0;
  std::size_t odd_blocks_ = 0;  // of requests so far, that made no unit
};

}  // namespace pando
