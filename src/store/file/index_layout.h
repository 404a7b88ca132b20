// SPDX-License-Identifier: Apache-2.0
// What is in the file pando.index, as the processes of one file store map it: a header of fixed
// length, then units of 64 bytes, whose number grows. docs/formats.md. Values only; IndexMapping
// maps them, FileIndex gives them their meaning.
//
// Nothing here is trusted: a number that leads outside the units is found where it is followed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "store/file/lock_file.h"
#include "store/file/packed_key.h"
#include "store/file/shared_lock.h"

namespace pando {

inline constexpr char kIndexMagic[8] = {'P', 'a', 'n', 'd', 'o', 'I', 'd', 'x'};
inline constexpr std::uint32_t kIndexVersion = 1;

/// Number of a unit. 0 is no page: lists of pages begin and end there, chains end there.
using UnitId = std::uint32_t;
inline constexpr UnitId kNoUnit = 0;

enum class UnitKind : std::uint32_t { free, page, pending, tail, text, buckets };

/// A page, or one whose file is being written or removed (pending).
struct PageUnit {
  PackedKey key;
  UnitId next;   // page: in its bucket
  UnitId older;  // page: in the list of use; pending: in that of its member
  UnitId newer;
  std::uint32_t stamp_seconds;  // time of the file
  std::uint32_t size_low, size_high;
  UnitKind kind;

  std::uint64_t size_bytes() const { return std::uint64_t{size_high} << 32 | size_low; }
};
/// A tail of keys (packed_key.h); its text is in a chain of units.
struct TailUnit {
  std::uint32_t num_keys;
  std::uint32_t hash;
  std::uint32_t has_head;
  std::uint32_t length_bytes;
  UnitId text;
  std::uint32_t unused[4];
  UnitId next;  // in its bucket
  std::uint32_t unused_too[5];
  UnitKind kind;
};
inline constexpr std::size_t kTextBytes = 36;
struct TextUnit {
  char text[kTextBytes];
  UnitId next;  // the rest
  std::uint32_t unused[5];
  UnitKind kind;
};
inline constexpr std::size_t kBucketsPerUnit = 15;
struct BucketUnit {
  UnitId first[kBucketsPerUnit];
  UnitKind kind;
};
union Unit {
  PageUnit page;
  TailUnit tail;
  TextUnit text;
  BucketUnit buckets;
};
static_assert(sizeof(Unit) == 64 && sizeof(PageUnit) == 64 && sizeof(TailUnit) == 64 &&
              sizeof(TextUnit) == 64 && sizeof(BucketUnit) == 64);
static_assert(offsetof(PageUnit, next) == offsetof(TailUnit, next) &&
              offsetof(PageUnit, next) == offsetof(TextUnit, next) &&
              offsetof(PageUnit, kind) == 60 && offsetof(TailUnit, kind) == 60 &&
              offsetof(TextUnit, kind) == 60 && offsetof(BucketUnit, kind) == 60);

inline constexpr std::size_t kFirstBuckets = 64;
inline constexpr std::size_t kMaxSegments = 26;  // 2^31 buckets

/// Changed with the lock held, word by word through the undo log.
struct IndexState {
  UnitId num_used_units;  // beyond it they have never been used
  UnitId free;            // chain of those that were given back
  std::uint32_t num_pages;
  std::uint32_t num_items;  // in buckets: pages and tails
  std::uint32_t num_buckets;
  UnitId segments[kMaxSegments];  // first unit of each: 64 buckets, 64, 128, 256 ...
  UnitId pending[kMaxMembers];    // of each member, the first
  std::uint64_t page_file_bytes;
  std::uint64_t pending_file_bytes;
};

/// What the words were before the change under way. Who finds the lock's holder dead puts them
/// back.
struct UndoLog {
  static constexpr std::uint32_t kMaxWords = 256;
  std::atomic<std::uint32_t> count;
  struct Word {
    std::uint32_t at;  // in words from the beginning of the file
    std::uint32_t was;
  } words[kMaxWords];
};

inline constexpr std::size_t kNumStripes = 256;

struct IndexHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t capacity_bytes;
  std::atomic<std::uint32_t> ready;   // all pages have been found
  std::atomic<std::uint32_t> broken;  // somebody met nonsense: members make a new one
  std::atomic<std::int64_t> last_stamp_ns;
  std::atomic<std::uint32_t> num_units;  // that the file has room for
  LockWord lock;
  LockWord stripes[kNumStripes];
  alignas(64) IndexState state;
  alignas(64) UndoLog undo;
  // By member: it has come and not left. Of one that is dead there is something to clean up.
  std::atomic<std::uint32_t> joined[kMaxMembers];
  // Files that each member has open for reading, by stripe of their keys.
  alignas(64) std::atomic<std::uint32_t> readers[kNumStripes][kMaxMembers];
  // A bit for each of the 256 directories in which something could not be looked at: members look
  // again later. Was padding once: those who do not know it leave it alone.
  std::atomic<std::uint32_t> unlooked[8];
};
inline constexpr std::size_t kIndexHeaderBytes = (sizeof(IndexHeader) + 4095) / 4096 * 4096;
static_assert(kIndexHeaderBytes == 136 << 10, "it is part of the format");

}  // namespace pando
