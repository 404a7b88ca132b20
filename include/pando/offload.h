// SPDX-License-Identifier: Apache-2.0
// OffloadTable: which blocks of host memory hold which KV, for an engine that copies KV itself.
//
// vLLM's offloading works like this: its scheduler names chunks of KV by keys of its own, its
// workers copy them, and a manager says where to. This is such a manager without a line of vLLM:
//
//     begin_write(keys)   which of them the host lacks, and a block for each; others are evicted
//     end_write(keys)     the bytes are there: the blocks can be found and read
//     find(key)           absent, being written, or ready
//     begin_read(keys)    their blocks, which stay where they are until
//     end_read(keys)
//     finish(request)     a request has ended: what it used is recent now, its head most of all
//
// Which block goes first is a policy's to say (policy.h). `hazard` learns from requests, as it does
// in the other caches. A request's blocks are ordered when it finishes and not when its copies end:
// a prompt that is computed in parts is written head first, and evicting heads first would leave
// tails that nobody finds.
//
// Invariant: a block is free, or has a key that no other block has. Blocks that are written or read
// are held; the others are exactly those that may be evicted. check() proves it.
// Cost: O(1) to find; O(log blocks) for each key that is used, written or evicted, under `hazard`
// a draw of 64 for each that is evicted. Memory: about 200 bytes a block.
//
// A table belongs to one thread. Bad input (a key that is not there, one that nobody reads) is an
// Error and changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pando/result.h"

namespace pando {

/// Names a chunk of KV. The bytes decide alone whether two keys are equal.
struct OffloadKey {
  std::string_view bytes;
  std::uint32_t group = 0;  ///< of layers: a prefix has a chain of keys in each
  std::uint64_t end = 0;    ///< tokens of the request up to the end of the chunk; 0: not known
};

/// Whether an OffloadTable has a key.
enum class OffloadState : std::uint8_t {
  absent,
  writing,  ///< on its way: it cannot be read yet
  ready,
};

struct OffloadOptions {
  std::size_t num_blocks = 0;
  std::string policy = "lru";     ///< a name that make_policy() knows
  std::size_t block_tokens = 64;  ///< of a block, for policies that learn
  std::uint32_t main_group = 0;   ///< whose chain has every chunk of a prefix

  Status validate() const;
};

/// What one request has used so far. Made by OffloadTable::start(), given to its calls, and ended
/// by finish(). Dropping it unfinished is fine: its blocks then have the order of their writing.
class OffloadRequest {
 public:
  OffloadRequest(OffloadRequest&&) = default;
  OffloadRequest& operator=(OffloadRequest&&) = default;

 private:
  friend class OffloadTable;
  struct Use {
    std::uint64_t hash;    // of the key
    std::uint64_t before;  // of the key before it in its group
    std::uint64_t end;
    std::uint32_t group;
    std::uint32_t depth;  // keys before it in its group
    bool reused;          // it was ready when the request came to it
  };
  struct Chain {
    std::uint32_t group = 0;
    std::uint32_t length = 0;
    std::uint64_t last = 0;  // hash of the key at its end
  };
  explicit OffloadRequest(std::uint64_t number) : number_(number) {}
  Chain& chain_of(std::uint32_t group);
  /// The use of this key, and whether it is the first: that one counts.
  std::pair<const Use&, bool> add(std::uint64_t hash, const OffloadKey& key, bool reused);
  /// All of them, by group and then from head to tail as far as ends are known; none are left.
  std::vector<Use> take();

  std::uint64_t number_ = 0;
  std::vector<Use> uses_;      // each key once, in the order in which they came
  std::vector<Chain> chains_;  // of groups, few
  std::unordered_map<std::uint64_t, std::uint32_t> places_;  // by hash, in uses_
};

/// Which blocks of host memory hold which KV, for an engine that copies KV itself: keys are bytes
/// of the engine's, blocks are numbers. It belongs to one thread.
class OffloadTable {
 public:
  static Result<std::unique_ptr<OffloadTable>> create(const OffloadOptions& options);
  ~OffloadTable();
  OffloadTable(const OffloadTable&) = delete;
  OffloadTable& operator=(const OffloadTable&) = delete;

  OffloadState find(std::string_view key) const;  ///< whether it has the key
  OffloadRequest start();  ///< a request, to be given to the calls that follow

  /// Where to write those of the keys that are absent. One that is there, or on its way, is left
  /// out, and is not evicted by this call. A request names the keys of a group in their order.
  struct Room {
    std::vector<std::size_t> wanted;    ///< numbers of the keys that are to be written
    std::vector<std::uint32_t> blocks;  ///< one for each of these, in [0, num_blocks)
    std::vector<std::string> evicted;   ///< keys that had to go
  };
  /// Where to write those of the keys that are absent. `out_of_capacity`: too many blocks are being
  /// written or read. Nothing has changed then, but that the request has used the keys.
  Result<Room> begin_write(OffloadRequest& request, std::span<const OffloadKey> keys);
  /// These are written, and ready from now on; where it `failed`, they are forgotten. Returns those
  /// that were being written: others are passed over.
  std::vector<std::size_t> end_write(std::span<const std::string_view> keys, bool failed = false);

  /// The blocks of these keys, which stay until end_read(). All must be ready, else `not_found`,
  /// and nothing has changed. A block may have several readers.
  Status begin_read(OffloadRequest& request, std::span<const OffloadKey> keys,
                    std::span<std::uint32_t> blocks);
  /// Without a request it is no use of them: a copy to another tier.
  Status begin_read(std::span<const std::string_view> keys, std::span<std::uint32_t> blocks);
  Status end_read(std::span<const std::string_view> keys);  ///< ends what begin_read() began

  /// Those that are there were used now, the first of them last. For who has no requests.
  void touch(std::span<const std::string_view> keys);
  /// The request has used these; those that are there when it finishes count.
  void use(OffloadRequest& request, std::span<const OffloadKey> keys);
  /// The request has ended: what it used is recent now, its head most of all. Copies for it may end
  /// later.
  void finish(OffloadRequest& request);
  /// Makes `num_blocks` blocks free, but none of the `kept`. Returns the keys that went.
  /// `out_of_capacity`: not so many may go, and nothing has changed.
  Result<std::vector<std::string>> evict(std::size_t num_blocks,
                                         std::span<const std::string_view> kept = {});
  /// Those of the keys that are neither read nor written are absent from now on. Returns how many.
  std::size_t forget(std::span<const std::string_view> keys);
  /// Forgets everything, whoever reads or writes. Requests that were started before use nothing.
  void clear();

  std::size_t num_blocks() const;     ///< blocks, in use or not
  std::size_t num_keys() const;       ///< blocks that are in use
  std::size_t num_writing() const;    ///< blocks that are being written
  std::size_t num_reading() const;    ///< blocks that are being read
  std::size_t num_evictable() const;  ///< blocks that may be evicted
  std::string_view policy() const;    ///< name of the policy
  std::size_t memory_bytes() const;   ///< bytes of the bookkeeping
  /// Keys of the blocks that may go; unless the policy is hazard, the next to go first. O(blocks).
  std::vector<std::string> evictable_keys() const;
  /// Proves that keys, blocks and order agree. O(blocks).
  Status check() const;

 private:
  struct Impl;
  explicit OffloadTable(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando
