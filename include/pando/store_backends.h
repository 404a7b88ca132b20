// SPDX-License-Identifier: Apache-2.0
// The backends that come with Pando: memory, file, Redis; and one that misbehaves on purpose.
// make_store_backend() (store.h) makes the first three by name, from the options below by name.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pando/result.h"
#include "pando/store.h"

namespace pando {

/// "memory": inside this process, gone with it.
struct MemoryStoreOptions {
  std::uint64_t capacity_bytes = 0;  ///< least recently used pages go beyond this; 0: no limit
};
/// Pages inside this process, gone with it. The least recently used go beyond the capacity.
Result<std::unique_ptr<StoreBackend>> make_memory_store(const MemoryStoreOptions& options = {});

/// "file": one directory of this machine, found again after a restart. Several processes may have
/// it open, readers and writers: what one puts the others find, and a process that dies takes
/// nothing with it but what it was writing. docs/formats.md has the format of its files.
struct FileStoreOptions {
  /// Made if need be. On file systems that machines may share (NFS, CIFS, FUSE and the like) one
  /// process at a time; another is refused (in_use).
  std::string directory;
  /// Of the files of all processes together: a page takes a header of 4 KiB and is rounded up to as
  /// much. The same in all processes that have the directory open (else invalid_argument); the
  /// first to open it may bring another than before, and what is beyond it goes.
  std::uint64_t capacity_bytes = std::uint64_t{64} << 30;
  /// Left free on the file system, whoever else writes to it: old pages go first.
  std::uint64_t min_free_bytes = std::uint64_t{1} << 30;
  bool direct = true;      ///< past the page cache, where the file system can
  bool io_uring = true;    ///< else, and where the kernel does not let us, pread and pwrite
  bool sync = false;       ///< a page that is done survives a power cut, not just a crash
  std::size_t depth = 16;  ///< requests at the device at a time, per call

  Status validate() const;
};
/// Pages in one directory of this machine, found again after a restart. Several processes may have
/// it open.
Result<std::unique_ptr<StoreBackend>> make_file_store(const FileStoreOptions& options);

/// "redis": one server, or a cluster, and what speaks the same protocol.
struct RedisStoreOptions {
  /// "host:port" or "unix:/path". Of a cluster, some of its nodes.
  std::vector<std::string> servers = {"127.0.0.1:6379"};
  bool cluster = false;
  std::string username = {};
  std::string password = {};
  std::string key_prefix = "pando:";                  ///< clear() removes what begins so
  std::optional<std::chrono::milliseconds> ttl = {};  ///< pages go after this long unless read
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(1);
  std::chrono::milliseconds io_timeout = std::chrono::seconds(5);  ///< without any progress
  std::chrono::milliseconds min_backoff = std::chrono::milliseconds(50);
  std::chrono::milliseconds max_backoff = std::chrono::seconds(2);
  std::size_t pipeline_bytes = std::size_t{4} << 20;  ///< sent ahead of replies, per connection

  Status validate() const;
};
/// Pages in a Redis server or a cluster, or what speaks the same protocol.
Result<std::unique_ptr<StoreBackend>> make_redis_store(const RedisStoreOptions& options);

/// How often a backend goes wrong, each a share of pages between 0 and 1. For tests of what is
/// above a store.
struct StoreFaults {
  std::uint64_t seed = 0;  ///< of what goes wrong
  double error = 0;        ///< a page fails
  double short_read = 0;   ///< a page comes with its tail missing, and says it is whole
  double flipped_bit = 0;  ///< one bit of a page that is read is another
  double stale = 0;        ///< a put says done and keeps nothing; a get gives another page's bytes
  double delay = 0;        ///< a call is late by up to max_delay
  double hang = 0;         ///< a call does not return before its deadline, nor for max_delay after
  std::chrono::milliseconds max_delay = std::chrono::milliseconds(5);  ///< of `delay` and `hang`
};
/// Goes wrong around another backend, for tests of what is above a store.
std::unique_ptr<StoreBackend> make_faulty_store(std::unique_ptr<StoreBackend> inner,
                                                const StoreFaults& faults);

}  // namespace pando
