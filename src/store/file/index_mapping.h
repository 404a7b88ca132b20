// SPDX-License-Identifier: Apache-2.0
// The file pando.index in memory: mapped by every process that has the store open, or a file
// without a name where the file system cannot be shared. Makes it, attaches to it, lets it grow,
// and changes its words so that a death in the middle can be undone. FileIndex is above it.
//
// The header stays where it is mapped; the units move when there are more of them, so they may only
// be touched with the lock held, and not across grow(). Blocks are allocated before they are
// touched: writing to a hole of a file on a full disk would kill the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "pando/result.h"
#include "store/file/directory.h"
#include "store/file/index_layout.h"

namespace pando {

/// Where an index is: by its name in an open directory. The path is for messages, and to see
/// whether it still leads there.
struct IndexPlace {
  const Directory& directory;
  std::string name;
  std::string path;
};

class IndexMapping {
 public:
  /// A new and empty one under this name; one that was there stays with those who have it mapped.
  /// unavailable: the file system cannot have it. out_of_capacity: it is full.
  static Result<std::unique_ptr<IndexMapping>> create(const IndexPlace& place,
                                                      std::uint64_t capacity_bytes);
  /// Of this process alone.
  static Result<std::unique_ptr<IndexMapping>> create_private(std::uint64_t capacity_bytes);
  /// corrupt: what is there is no index of this version, whole and not broken.
  static Result<std::unique_ptr<IndexMapping>> attach(const IndexPlace& place);
  ~IndexMapping();
  IndexMapping(const IndexMapping&) = delete;
  IndexMapping& operator=(const IndexMapping&) = delete;

  IndexHeader& header() { return *header_; }
  const IndexHeader& header() const { return *header_; }
  /// The file under its name is another one, or gone.
  bool is_lost() const;

  bool is_broken() const { return header_->broken.load(std::memory_order_relaxed) != 0; }
  void set_broken() { header_->broken.store(1, std::memory_order_relaxed); }

  // With the index's lock held.

  /// First thing: undoes what a dead holder has begun, maps what others have added.
  void begin(bool holder_died);
  /// Last thing: what was changed stays.
  void end();
  /// Room for so many units beyond those in use.
  Status grow(std::uint32_t num_units);
  std::uint32_t num_units() const { return mapped_units_; }
  /// Nonsense for an id: the index is broken, and a unit that leads nowhere.
  Unit& unit(UnitId id) {
    if (id < mapped_units_) [[likely]]
      return units_[id];
    return no_unit();
  }
  /// Changes a word, or several.
  template <typename T>
  void set(T& field, T value) {
    static_assert(sizeof(T) % 4 == 0 && alignof(T) >= 4);
    keep(&field, sizeof(T));
    field = value;
  }
  /// For a field about to be changed otherwise.
  void keep(const void* field, std::size_t size_bytes);

 private:
  IndexMapping(std::string path, Fd file) : path_(std::move(path)), file_(std::move(file)) {}
  Status make(std::uint64_t capacity_bytes);
  Status map_header();
  bool map_units(std::uint32_t num_units);
  Status allocate(std::uint64_t from_bytes, std::uint64_t size_bytes);
  void undo();
  std::uint32_t* word_at(std::uint32_t at);
  Unit& no_unit();

  const std::string path_;  // empty: it has none
  const Fd file_;
  IndexHeader* header_ = nullptr;
  Unit* units_ = nullptr;
  std::uint32_t mapped_units_ = 0;
  Unit nowhere_{};
};

}  // namespace pando
