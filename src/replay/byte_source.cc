// SPDX-License-Identifier: Apache-2.0
// A file descriptor, and zlib or zstd over it. A stream that ends inside compressed data is
// damaged, and says so.
#include "replay/byte_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pando {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 17;
constexpr std::size_t kMagicBytes = 4;

/// The raw bytes, a chunk ahead, so that the first can be looked at.
class FileBytes {
 public:
  FileBytes(int fd, bool owned) : fd_(fd), owned_(owned), chunk_(kChunkBytes) {}
  ~FileBytes() {
    if (owned_) ::close(fd_);
  }
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;

  /// Until at least `wanted` are there, or the end.
  Status fill(std::size_t wanted) {
    if (begin_ > 0) {
      std::memmove(chunk_.data(), chunk_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
    }
    while (end_ < wanted) {
      const ssize_t got = ::read(fd_, chunk_.data() + end_, chunk_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return make_error(ErrorCode::io_error, "cannot read: {}", std::strerror(errno));
      if (got == 0) break;
      end_ += static_cast<std::size_t>(got);
      total_ += static_cast<std::uint64_t>(got);
    }
    return {};
  }
  const char* data() const { return chunk_.data() + begin_; }
  std::size_t size() const { return end_ - begin_; }
  void drop(std::size_t n) { begin_ += n; }
  std::uint64_t total() const { return total_; }

 private:
  int fd_;
  bool owned_;
  std::vector<char> chunk_;
  std::size_t begin_ = 0, end_ = 0;
  std::uint64_t total_ = 0;
};

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(std::unique_ptr<FileBytes> in) : in_(std::move(in)) {}
  Result<std::size_t> read(char* out, std::size_t size) override {
    if (in_->size() == 0) {
      if (Status s = in_->fill(1); !s) return s.error();
    }
    const std::size_t n = std::min(size, in_->size());
    std::memcpy(out, in_->data(), n);
    in_->drop(n);
    return n;
  }
  std::uint64_t consumed() const override { return in_->total(); }

 private:
  std::unique_ptr<FileBytes> in_;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<FileBytes> in) : in_(std::move(in)) {
    PANDO_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "zlib cannot start");
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  // A file may be several members, one after the other.
  Result<std::size_t> read(char* out, std::size_t size) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, UINT32_MAX));
    const std::size_t room = stream_.avail_out;
    while (stream_.avail_out == room) {
      if (in_->size() == 0) {
        if (Status s = in_->fill(1); !s) return s.error();
        if (in_->size() == 0 && between_members_) return 0;
        if (in_->size() == 0)
          return make_error(ErrorCode::corrupt, "ends in the middle of gzip data");
      }
      if (std::exchange(between_members_, false)) inflateReset(&stream_);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in_->data()));
      stream_.avail_in = static_cast<uInt>(in_->size());
      const int status = inflate(&stream_, Z_NO_FLUSH);
      in_->drop(in_->size() - stream_.avail_in);
      if (status == Z_STREAM_END) {
        between_members_ = true;
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        return make_error(ErrorCode::corrupt, "damaged gzip data: {}",
                          stream_.msg != nullptr ? stream_.msg : "unknown");
      }
    }
    return room - stream_.avail_out;
  }
  std::uint64_t consumed() const override { return in_->total() - in_->size(); }

 private:
  std::unique_ptr<FileBytes> in_;
  z_stream stream_ = {};
  bool between_members_ = false;
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(std::unique_ptr<FileBytes> in)
      : in_(std::move(in)), stream_(ZSTD_createDStream()) {
    PANDO_CHECK(stream_ != nullptr, "zstd cannot start");
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }

  Result<std::size_t> read(char* out, std::size_t size) override {
    ZSTD_outBuffer to{out, size, 0};
    while (to.pos == 0) {
      if (in_->size() == 0) {
        if (Status s = in_->fill(1); !s) return s.error();
        if (in_->size() == 0 && between_frames_) return 0;
        if (in_->size() == 0)
          return make_error(ErrorCode::corrupt, "ends in the middle of zstd data");
      }
      ZSTD_inBuffer from{in_->data(), in_->size(), 0};
      const std::size_t status = ZSTD_decompressStream(stream_, &to, &from);
      in_->drop(from.pos);
      if (ZSTD_isError(status) != 0)
        return make_error(ErrorCode::corrupt, "damaged zstd data: {}", ZSTD_getErrorName(status));
      between_frames_ = status == 0;
    }
    return to.pos;
  }
  std::uint64_t consumed() const override { return in_->total() - in_->size(); }

 private:
  std::unique_ptr<FileBytes> in_;
  ZSTD_DStream* stream_;
  bool between_frames_ = false;
};

bool begins_with(const FileBytes& in, std::string_view magic) {
  return in.size() >= magic.size() && std::memcmp(in.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path) {
  const bool is_stdin = path == "-";
  const int fd = is_stdin ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return make_error(ErrorCode::not_found, "cannot open '{}': {}", path, std::strerror(errno));
  auto in = std::make_unique<FileBytes>(fd, !is_stdin);
  if (Status s = in->fill(kMagicBytes); !s)
    return make_error(s.error().code, "'{}': {}", path, s.error().message);
  std::unique_ptr<ByteSource> source;
  if (begins_with(*in, "\x1f\x8b")) {
    source = std::make_unique<GzipSource>(std::move(in));
  } else if (begins_with(*in, "\x28\xb5\x2f\xfd")) {
    source = std::make_unique<ZstdSource>(std::move(in));
  } else {
    source = std::make_unique<PlainSource>(std::move(in));
  }
  return source;
}

}  // namespace pando
