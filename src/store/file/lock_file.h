// SPDX-License-Identifier: Apache-2.0
// pando.lock: who has a store open. The kernel keeps these locks with the open file and drops them
// when its process dies, however it dies; no process numbers are compared.
//
// The whole file (flock): shared by every member and by those who only look; exclusive for who must
// be alone (a tool that changes files, a store on a file system that cannot be shared, and versions
// of Pando that knew no members, which so refuse a store that members have open, and the other way
// round). Single
// bytes (open file description locks): one of each member, one of who opens or rebuilds, one of who
// cleans up.
//
// Membership is above it. Two stores of one process are two members. Any thread, but what a byte
// guards is guarded between files, not between threads that share one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pando/result.h"
#include "store/file/fd.h"
#include "store/file/shared_lock.h"
#include "store/file/store_directory.h"

namespace pando {

inline constexpr std::uint32_t kMaxMembers = 128;

class LockFile final : public Liveness {
 public:
  enum class Mode { shared, exclusive };
  /// Opens and locks the whole file. not_found: there is none, and `make` is false. in_use:
  /// somebody has it who must be alone, or who does not let us be. invalid_argument: what has its
  /// name is a link or anything else that is not such a file; it is left as it is.
  static Result<LockFile> open(const StoreDirectory& directory, Mode mode, bool make);
  /// Shared, without writing to it.
  static Result<LockFile> open_to_look(const StoreDirectory& directory);

  LockFile(LockFile&&) = default;
  LockFile& operator=(LockFile&&) = default;

  /// The file under its name is another one, or gone.
  bool is_lost() const;

  /// Waits for whoever opens or rebuilds the store. unavailable: there are no such locks here.
  Status lock_setup();
  void unlock_setup();
  /// False: somebody else cleans up.
  bool try_lock_cleaning();
  void unlock_cleaning();

  bool any_member() const;
  bool is_alive(std::uint32_t member) const override;
  /// False: another has it.
  bool take_member(std::uint32_t member);
  void release_member(std::uint32_t member);

 private:
  LockFile(std::string path, Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  bool lock_byte(std::int64_t at);
  void unlock_byte(std::int64_t at);
  bool is_locked(std::int64_t at, std::int64_t num) const;

  std::string path_;
  Fd file_;
};

}  // namespace pando
