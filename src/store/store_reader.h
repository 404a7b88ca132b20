// SPDX-License-Identifier: Apache-2.0
// A store looked at from outside, for people who keep one in order: what is in it, whether it is
// whole, how old it is. Not for caches, which use StoreBackend: opening one makes directories,
// evicts and sets things aside, and its reads say no more than "damaged".
//
// With StoreAccess::read nothing changes, whatever is found; processes that have the store open go
// on, and pages may come and go. With StoreAccess::write a file store is locked meanwhile, so that
// no process has it open. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "pando/store.h"
#include "pando/store_backends.h"

namespace pando {

enum class StoreAccess : std::uint8_t { read, write };

struct KeptPage {
  std::string key;
  std::uint64_t size_bytes = 0;  ///< of the page
  std::uint64_t kept_bytes = 0;  ///< what it takes: header and padding as well
  std::optional<std::int64_t> used_ns =
      {};  ///< since 1970, when it was put or read, if it is known
};

/// Something that is no page.
struct OddEntry {
  enum class Kind : std::uint8_t {
    damaged,     ///< a page once, or half of one
    foreign,     ///< was never one
    unreadable,  ///< cannot be told
  };
  Kind kind = Kind::damaged;
  std::string place;  ///< path of the file, or key in the server
  std::string why;
  bool is_beside = false;  ///< not where pages are: the store leaves it alone
};
std::string_view to_string(OddEntry::Kind kind);

/// Of the place, not of the pages.
struct StoreRoom {
  std::optional<std::uint64_t> capacity_bytes = {};  ///< of servers: all memory they may use
  std::optional<std::uint64_t> used_bytes = {};      ///< of servers: by whatever is in them
  std::optional<std::uint64_t> free_bytes = {};      ///< on the file system
  std::uint64_t num_set_aside = 0, set_aside_bytes = 0;
  /// Being written, or left by a process that was killed.
  std::uint64_t num_unfinished = 0, unfinished_bytes = 0;
};

class StoreReader {
 public:
  using VisitPage = std::function<bool(const KeptPage&)>;
  using VisitOdd = std::function<void(const OddEntry&)>;

  virtual ~StoreReader() = default;
  /// All pages, until `page` returns false, and what lies among them and is none. Headers are
  /// checked where they cost no extra request. Memory stays bounded by a share of the keys.
  virtual Status list(const VisitPage& page, const VisitOdd& odd) = 0;
  /// How far list() is, 0 to 1.
  virtual double progress() const = 0;
  /// Where a page is: a path, or a key in the server.
  virtual std::string place(std::string_view key) const = 0;
  /// All of a page into `bytes`, checked from end to end. corrupt: with what is wrong. not_found:
  /// it went meanwhile.
  virtual Status read(std::string_view key, std::vector<std::byte>& bytes) = 0;
  virtual Result<StoreRoom> room() = 0;

  // With StoreAccess::write.
  virtual Status remove(const std::vector<std::string>& keys) = 0;
  /// So that it is no page any more; says what became of it.
  virtual Result<std::string> put_away(const OddEntry& entry) = 0;
};

/// not_found: there is no store in this directory, and none is made. in_use, of StoreAccess::write:
/// a process has it open.
Result<std::unique_ptr<StoreReader>> open_file_reader(const std::string& directory,
                                                      StoreAccess access);
/// Servers before 7.2 count a look as a use.
Result<std::unique_ptr<StoreReader>> open_redis_reader(const RedisStoreOptions& options);

/// corrupt, unless the tag is that of these bytes under this key.
Status check_tag(std::string_view key, std::span<std::byte> bytes, const PageTag& tag);

}  // namespace pando
