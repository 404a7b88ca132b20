// SPDX-License-Identifier: Apache-2.0
// Files are opened not through a link, and not waiting for somebody to write to a pipe.
#include "store/file/inspect_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <new>

#include "base/check.h"
#include "store/file/fd.h"
#include "store/file/file_io.h"
#include "store/file/page_file.h"
#include "store/store_reader.h"

namespace pando {
namespace {

FileFinding finding(FileVerdict verdict, std::string why) {
  return {.verdict = verdict, .why = std::move(why)};
}

std::string wrong_length(std::uint64_t found, std::uint64_t expected) {
  return fmt::format("it has {} bytes, expected {}", found, expected);
}
std::string wrong_key(std::string_view found) {
  return fmt::format("its header has the key {}", found);
}

FileFinding look_at(const Directory& in, const std::string& name, std::uint8_t directory) {
  if (const Status valid = check_key(name); !valid)
    return finding(FileVerdict::foreign, "it is not named like a page: " + valid.error().message);
  if (directory_of(name) != directory)
    return finding(FileVerdict::foreign,
                   fmt::format("its name belongs into {:02x}", directory_of(name)));
  const Fd file = in.open(name, O_RDONLY);
  if (!file.ok() && file.error() == ELOOP) return finding(FileVerdict::foreign, "it is a link");
  if (!file.ok())
    return finding(file.error() == ENOENT ? FileVerdict::gone : FileVerdict::unreadable,
                   errno_text(file.error()));
  struct stat info;
  if (::fstat(file.get(), &info) != 0) return finding(FileVerdict::unreadable, errno_text(errno));
  if (!S_ISREG(info.st_mode)) return finding(FileVerdict::foreign, "it is not a file");
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);  // the header, and not what follows it
  std::array<std::byte, kBlockBytes> block;
  const iovec piece{block.data(), block.size()};
  const FileDone done = transfer_rest({.fd = file.get(), .pieces = {&piece, 1}}, 0);
  if (done.error != 0) return finding(FileVerdict::unreadable, errno_text(done.error));
  if (done.size_bytes != block.size())
    return finding(FileVerdict::damaged, wrong_length(done.size_bytes, 2 * kBlockBytes));
  const Result<PageHeader> header = decode(block);
  if (!header)
    return finding(
        header.error().code == ErrorCode::corrupt ? FileVerdict::damaged : FileVerdict::unreadable,
        header.error().message);
  if (header->key != name) return finding(FileVerdict::damaged, wrong_key(header->key));
  const auto size_bytes = static_cast<std::uint64_t>(info.st_size);
  if (size_bytes != file_bytes(header->tag.size_bytes))
    return finding(FileVerdict::damaged,
                   wrong_length(size_bytes, file_bytes(header->tag.size_bytes)));
  return {.page = {name, header->tag.size_bytes,
                   std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec}};
}

// The header first: it says how much memory the page takes, and a damaged one must not.
Status read_whole(const Fd& file, const struct stat& info, std::string_view key,
                  std::vector<std::byte>& page_bytes) {
  std::array<std::byte, kBlockBytes> block;
  std::vector<iovec> pieces = {{block.data(), block.size()}};
  FileDone done = transfer_rest({.fd = file.get(), .pieces = pieces}, 0);
  if (done.error != 0)
    return make_error(ErrorCode::io_error, "cannot read it: {}", errno_text(done.error));
  if (done.size_bytes != block.size())
    return make_error(ErrorCode::corrupt, "{}", wrong_length(done.size_bytes, 2 * kBlockBytes));
  const Result<PageHeader> header = decode(block);
  if (!header) return header.error();
  if (header->key != key) return make_error(ErrorCode::corrupt, "{}", wrong_key(header->key));
  const std::uint64_t expected = file_bytes(header->tag.size_bytes);
  if (const auto size_bytes = static_cast<std::uint64_t>(info.st_size); size_bytes != expected)
    return make_error(ErrorCode::corrupt, "{}", wrong_length(size_bytes, expected));
  try {
    page_bytes.resize(header->tag.size_bytes);
  } catch (const std::bad_alloc&) {  // it is not the others' fault
    return make_error(ErrorCode::out_of_capacity, "no memory for its {} bytes",
                      header->tag.size_bytes);
  }
  pieces.push_back({page_bytes.data(), page_bytes.size()});
  done = transfer_rest({.fd = file.get(), .pieces = pieces}, block.size());
  // It will not be read again soon: what others read stays in memory instead.
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (done.error != 0)
    return make_error(ErrorCode::io_error, "cannot read it: {}", errno_text(done.error));
  if (done.size_bytes != block.size() + page_bytes.size())
    return make_error(ErrorCode::corrupt, "{}", wrong_length(done.size_bytes, expected));
  return check_tag(key, page_bytes, header->tag);
}

}  // namespace

FileFinding inspect_file(const Directory& in, const std::string& name, std::uint8_t directory) {
  FileFinding found = look_at(in, name, directory);
  if (found.verdict == FileVerdict::damaged && !in.look_at(name) && errno == ENOENT)
    found.verdict = FileVerdict::gone;
  return found;
}

Status check_file(const Directory& in, const std::string& key, std::vector<std::byte>& page_bytes) {
  const Fd file = in.open_regular(key, O_RDONLY);
  if (!file.ok())
    return make_error(file.error() == ENOENT ? ErrorCode::not_found : ErrorCode::io_error,
                      "cannot open it: {}", errno_text(file.error()));
  struct stat before, after;
  if (::fstat(file.get(), &before) != 0)
    return make_error(ErrorCode::io_error, "cannot look at it: {}", errno_text(errno));
  Status whole = read_whole(file, before, key, page_bytes);
  if (whole || whole.error().code != ErrorCode::corrupt) return whole;
  // Who only looks keeps nobody from writing over the file of an evicted page.
  const std::optional<struct stat> found = in.look_at(key);
  const bool is_same = found && found->st_ino == before.st_ino &&
                       ::fstat(file.get(), &after) == 0 &&
                       after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
                       after.st_mtim.tv_nsec == before.st_mtim.tv_nsec;
  if (is_same) return whole;
  return make_error(ErrorCode::not_found, "it was evicted meanwhile");
}

}  // namespace pando
