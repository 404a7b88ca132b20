// SPDX-License-Identifier: Apache-2.0
// preadv and pwritev on the calling thread; also what finishes a request that io_uring has done a
// part of.
#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/check.h"
#include "store/file/file_io.h"

namespace pando {
namespace {

/// The pieces without their first `from_bytes`.
std::vector<iovec> rest_of(std::span<const iovec> pieces, std::size_t from_bytes) {
  std::vector<iovec> rest;
  for (const iovec& piece : pieces) {
    const std::size_t skip = std::min(from_bytes, piece.iov_len);
    from_bytes -= skip;
    if (skip < piece.iov_len)
      rest.push_back({static_cast<std::byte*>(piece.iov_base) + skip, piece.iov_len - skip});
  }
  return rest;
}

class PlainIo final : public FileIo {
 public:
  std::size_t depth() const override { return 1; }
  void submit(const FileRequest& request) override {
    under_way_.push_back(transfer_rest(request, 0));
  }
  std::span<const FileDone> wait() override {
    PANDO_CHECK(!under_way_.empty(), "a wait for no request");
    done_.swap(under_way_);
    under_way_.clear();
    return done_;
  }

 private:
  std::vector<FileDone> under_way_, done_;
};

}  // namespace

FileDone transfer_rest(const FileRequest& request, std::size_t from_bytes) {
  FileDone done{.number = request.number, .size_bytes = from_bytes};
  while (true) {
    const std::vector<iovec> rest = rest_of(request.pieces, done.size_bytes);
    if (rest.empty()) return done;
    const auto count = static_cast<int>(rest.size());
    const auto offset = static_cast<off_t>(done.size_bytes);
    const ssize_t n = request.write ? ::pwritev(request.fd, rest.data(), count, offset)
                                    : ::preadv(request.fd, rest.data(), count, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) done.error = errno;
    if (n == 0 && request.write) done.error = EIO;
    if (n <= 0) return done;
    done.size_bytes += static_cast<std::size_t>(n);
  }
}

std::unique_ptr<FileIo> make_plain_io() { return std::make_unique<PlainIo>(); }

}  // namespace pando
