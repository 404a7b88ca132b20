// SPDX-License-Identifier: Apache-2.0
// FileIndex: the list of use and the lists of members, over UnitTable and KeyTails.
#include "store/file/file_index.h"

#include "base/check.h"
#include "store/file/page_file.h"

namespace pando {
namespace {

constexpr std::size_t kListed = 256;  // pages copied out at a time

Error broken_index() {
  return make_error(ErrorCode::corrupt,
                    "the index of pages was found broken and is being made anew; expected to be "
                    "asked again");
}

}  // namespace

/// The lock, and the change that is made with it.
class FileIndex::Held {
 public:
  explicit Held(FileIndex& index) : index_(index) { index_.mapping_->begin(index_.lock_.lock()); }
  ~Held() {
    index_.mapping_->end();
    index_.lock_.unlock();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  bool is_broken() const { return index_.is_broken(); }

 private:
  FileIndex& index_;
};

FileIndex::FileIndex(std::unique_ptr<IndexMapping> mapping, std::uint32_t member,
                     const Liveness& liveness)
    : mapping_(std::move(mapping)), member_(member), table_(*mapping_), tails_(*mapping_, table_) {
  PANDO_CHECK(member < kMaxMembers, "member {}, expected less than {}", member, kMaxMembers);
  lock_.attach(mapping_->header().lock, member, liveness);
}

// ---- Pages and room.

std::optional<FileIndex::Found> FileIndex::touch(std::string_view key, std::uint32_t now_seconds) {
  const Held held(*this);
  const UnitId id = find(key);
  if (id == kNoUnit) return std::nullopt;
  if (page(id).newer != kNoUnit) {
    unlink(id);
    link_newest(id);
  }
  PageUnit& entry = page(id);
  const bool restamp = now_seconds >= entry.stamp_seconds + std::uint64_t{kRestampSeconds};
  if (restamp) set(entry.stamp_seconds, now_seconds);
  if (held.is_broken()) return std::nullopt;
  return Found{entry.size_bytes(), restamp};
}

std::optional<std::uint64_t> FileIndex::size_of(std::string_view key) {
  const Held held(*this);
  const UnitId id = find(key);
  if (id == kNoUnit) return std::nullopt;
  return page(id).size_bytes();
}

Result<std::optional<RecordId>> FileIndex::begin_write(std::string_view key,
                                                       std::uint64_t page_bytes) {
  const Held held(*this);
  if (held.is_broken()) return broken_index();
  const std::uint64_t used = state().page_file_bytes + state().pending_file_bytes;
  if (used > capacity_bytes() || file_bytes(page_bytes) > capacity_bytes() - used)
    return std::optional<RecordId>();
  if (Status room = table_.prepare(); !room) return room.error();
  return std::optional(new_record(key, page_bytes));
}

std::optional<FileIndex::Removal> FileIndex::begin_remove(std::string_view key) {
  const Held held(*this);
  const UnitId id = find(key);
  if (id == kNoUnit || !to_pending(id)) return std::nullopt;
  return Removal{id, page(id).size_bytes()};
}

Status FileIndex::reuse(RecordId record, std::string_view key, std::uint64_t page_bytes) {
  const Held held(*this);
  if (held.is_broken()) return broken_index();
  if (Status room = table_.prepare(); !room) return room;
  PANDO_CHECK(file_bytes(page(record).size_bytes()) == file_bytes(page_bytes),
              "a page of {} bytes in the room of one of {}", page_bytes, page(record).size_bytes());
  const PackedKey packed = tails_.hold(key);  // before the old one's goes: they may be the same
  tails_.release(page(record).key);
  set(page(record).key, packed);
  set_size(record, page_bytes);
  return {};
}

Status FileIndex::commit(RecordId record, std::uint32_t stamp_seconds) {
  const Held held(*this);
  if (held.is_broken()) return broken_index();
  if (Status room = table_.prepare(); !room) return room;
  to_page(record, stamp_seconds);
  return held.is_broken() ? Status(broken_index()) : Status();
}

void FileIndex::end(RecordId record) { end_of(member_, record); }

void FileIndex::end_of(std::uint32_t member, RecordId record) {
  const Held held(*this);
  if (!held.is_broken()) drop_pending(record, member);
}

Status FileIndex::insert(std::string_view key, std::uint64_t size_bytes,
                         std::uint32_t stamp_seconds) {
  const Held held(*this);
  if (held.is_broken()) return broken_index();
  if (Status room = table_.prepare(); !room) return room;
  if (const UnitId old = find(key); old != kNoUnit && to_pending(old)) drop_pending(old, member_);
  to_page(new_record(key, size_bytes), stamp_seconds);
  return {};
}

// ---- Questions.

std::optional<std::string> FileIndex::oldest() {
  const Held held(*this);
  const UnitId id = page(kNoUnit).newer;
  if (held.is_broken() || id == kNoUnit) return std::nullopt;
  return tails_.text(page(id).key);
}

std::vector<StoredPage> FileIndex::list_some(std::size_t& cursor) {
  const Held held(*this);
  std::vector<StoredPage> pages;
  if (held.is_broken()) return pages;
  for (cursor = std::max<std::size_t>(cursor, 1);
       cursor < state().num_used_units && cursor < mapping_->num_units() && pages.size() < kListed;
       ++cursor) {
    const PageUnit& entry = page(static_cast<UnitId>(cursor));
    if (entry.kind != UnitKind::page) continue;
    if (auto key = tails_.text(entry.key)) pages.push_back({std::move(*key), entry.size_bytes()});
  }
  return pages;
}

std::vector<FileIndex::Pending> FileIndex::pending_of(std::uint32_t member) {
  const Held held(*this);
  std::vector<Pending> pending;
  if (held.is_broken() || member >= kMaxMembers) return pending;
  for (UnitId id = state().pending[member]; id != kNoUnit; id = page(id).newer) {
    auto key = tails_.text(page(id).key);
    if (!key || pending.size() > mapping_->num_units()) break;
    pending.push_back({id, std::move(*key)});
  }
  return pending;
}

std::size_t FileIndex::num_pages() {
  const Held held(*this);
  return state().num_pages;
}

std::uint64_t FileIndex::used_bytes() {
  const Held held(*this);
  return state().page_file_bytes + state().pending_file_bytes;
}

Status FileIndex::check() {
  const Held held(*this);
  std::size_t in_list = 0;
  std::uint64_t bytes = 0, pending_bytes = 0;
  for (UnitId id = page(kNoUnit).newer; id != kNoUnit; id = page(id).newer) {
    if (page(page(id).newer).older != id || page(id).kind != UnitKind::page ||
        ++in_list > state().num_pages || find(tails_.text(page(id).key).value_or("")) != id)
      return make_error(ErrorCode::corrupt, "the list of use is broken at unit {}", id);
    bytes += file_bytes(page(id).size_bytes());
  }
  for (std::uint32_t member = 0; member < kMaxMembers; ++member) {
    std::size_t steps = 0;
    for (UnitId id = state().pending[member]; id != kNoUnit; id = page(id).newer) {
      if (page(id).kind != UnitKind::pending || ++steps > mapping_->num_units())
        return make_error(ErrorCode::corrupt, "the list of member {} is broken at unit {}", member,
                          id);
      pending_bytes += file_bytes(page(id).size_bytes());
    }
  }
  if (in_list != state().num_pages || bytes != state().page_file_bytes ||
      pending_bytes != state().pending_file_bytes)
    return make_error(ErrorCode::corrupt,
                      "{} pages of {} bytes and {} pending bytes are counted; {} of {} bytes are "
                      "in the list of use, {} bytes pending",
                      state().num_pages, state().page_file_bytes, state().pending_file_bytes,
                      in_list, bytes, pending_bytes);
  if (held.is_broken()) return broken_index();
  return table_.check();
}

// ---- With the lock held.

UnitId FileIndex::find(std::string_view key) {
  if (is_broken()) return kNoUnit;
  const std::optional<PackedKey> packed = tails_.find(key);
  if (!packed) return kNoUnit;
  const UnitId id = table_.find(UnitTable::hash_of(*packed), [&](const Unit& unit) {
    return unit.page.kind == UnitKind::page && unit.page.key == *packed;
  });
  return is_broken() ? kNoUnit : id;
}

void FileIndex::link_newest(UnitId id) {
  const UnitId before = page(kNoUnit).older;
  set(page(id).older, before);
  set(page(id).newer, kNoUnit);
  set(page(before).newer, id);
  set(page(kNoUnit).older, id);
}

void FileIndex::unlink(UnitId id) {
  const UnitId older = page(id).older, newer = page(id).newer;
  set(page(older).newer, newer);
  set(page(newer).older, older);
}

void FileIndex::set_size(UnitId id, std::uint64_t page_bytes) {
  set(page(id).size_low, static_cast<std::uint32_t>(page_bytes));
  set(page(id).size_high, static_cast<std::uint32_t>(page_bytes >> 32));
}

/// After UnitTable::prepare().
UnitId FileIndex::new_record(std::string_view key, std::uint64_t page_bytes) {
  const PackedKey packed = tails_.hold(key);
  const UnitId id = table_.take(UnitKind::pending);
  page(id).key = packed;
  page(id).stamp_seconds = 0;
  set_size(id, page_bytes);
  link_pending(id);
  set(state().pending_file_bytes, state().pending_file_bytes + file_bytes(page_bytes));
  return id;
}

void FileIndex::link_pending(UnitId id) {
  const UnitId next = state().pending[member_];
  set(page(id).older, kNoUnit);
  set(page(id).newer, next);
  if (next != kNoUnit) set(page(next).older, id);
  set(state().pending[member_], id);
}

void FileIndex::unlink_pending(UnitId id, std::uint32_t member) {
  const UnitId before = page(id).older, next = page(id).newer;
  if (page(id).kind != UnitKind::pending || member >= kMaxMembers) return mapping_->set_broken();
  if (before != kNoUnit) {
    set(page(before).newer, next);
  } else {
    set(state().pending[member], next);
  }
  if (next != kNoUnit) set(page(next).older, before);
}

void FileIndex::drop_pending(UnitId id, std::uint32_t member) {
  unlink_pending(id, member);
  if (is_broken()) return;
  set(state().pending_file_bytes, state().pending_file_bytes - file_bytes(page(id).size_bytes()));
  tails_.release(page(id).key);
  table_.give_back(id);
}

void FileIndex::to_page(UnitId id, std::uint32_t stamp_seconds) {
  unlink_pending(id, member_);
  if (is_broken()) return;
  const std::uint64_t size_bytes = file_bytes(page(id).size_bytes());
  set(page(id).kind, UnitKind::page);
  set(page(id).stamp_seconds, stamp_seconds);
  table_.add(id);
  link_newest(id);
  set(state().num_pages, state().num_pages + 1);
  set(state().pending_file_bytes, state().pending_file_bytes - size_bytes);
  set(state().page_file_bytes, state().page_file_bytes + size_bytes);
}

bool FileIndex::to_pending(UnitId id) {
  const std::uint64_t size_bytes = file_bytes(page(id).size_bytes());
  table_.remove(id);
  unlink(id);
  set(page(id).kind, UnitKind::pending);
  link_pending(id);
  set(state().num_pages, state().num_pages - 1);
  set(state().page_file_bytes, state().page_file_bytes - size_bytes);
  set(state().pending_file_bytes, state().pending_file_bytes + size_bytes);
  return !is_broken();
}

}  // namespace pando
