// SPDX-License-Identifier: Apache-2.0
// Lines out of a buffer that moves its rest to the front and grows when one line is longer than it.
#include "replay/line_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace pando {
namespace {

constexpr std::size_t kFirstBuffer = std::size_t{1} << 18;

}  // namespace

Result<std::unique_ptr<LineSource>> LineSource::open(const std::string& path) {
  Result<std::unique_ptr<ByteSource>> bytes = open_bytes(path);
  if (!bytes) return bytes.error();
  struct stat status {};
  const bool is_file = path != "-" && ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
  return std::unique_ptr<LineSource>(
      new LineSource(path == "-" ? "standard input" : path, std::move(*bytes),
                     is_file ? static_cast<std::uint64_t>(status.st_size) : 0));
}

LineSource::LineSource(std::string name, std::unique_ptr<ByteSource> bytes,
                       std::uint64_t file_bytes)
    : name_(std::move(name)),
      bytes_(std::move(bytes)),
      file_bytes_(file_bytes),
      buffer_(kFirstBuffer + kPadding) {}

// There is room behind end_ for at least one byte more afterwards, and kPadding behind that.
Status LineSource::refill() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  if (end_ + kPadding == buffer_.size()) {
    if (end_ >= kMaxLineBytes)
      return make_error(ErrorCode::invalid_argument, "{}:{}: a line of more than {} MiB", name_,
                        line_number_ + 1, kMaxLineBytes >> 20);
    buffer_.resize(2 * end_ + kPadding);
  }
  const Result<std::size_t> got =
      bytes_->read(buffer_.data() + end_, buffer_.size() - kPadding - end_);
  if (!got)
    return make_error(got.error().code, "{}:{}: {}", name_, line_number_ + 1, got.error().message);
  at_end_ = *got == 0;
  end_ += *got;
  return {};
}

Result<std::optional<std::string_view>> LineSource::next() {
  std::size_t searched = 0;
  while (true) {
    const char* const from = buffer_.data() + begin_;
    const void* const found = std::memchr(from + searched, '\n', end_ - begin_ - searched);
    std::size_t length = end_ - begin_;
    if (found != nullptr) {
      length = static_cast<std::size_t>(static_cast<const char*>(found) - from);
    } else if (!at_end_) {
      searched = length;
      if (Status s = refill(); !s) return s.error();
      continue;
    } else if (length == 0) {
      return std::optional<std::string_view>{};
    }
    begin_ += length + (found != nullptr ? 1 : 0);
    ++line_number_;
    if (length > 0 && from[length - 1] == '\r') --length;
    return std::optional(std::string_view(from, length));
  }
}

double LineSource::progress() const {
  if (file_bytes_ == 0) return 0;
  return std::min(1.0, static_cast<double>(bytes_->consumed()) / static_cast<double>(file_bytes_));
}

}  // namespace pando
