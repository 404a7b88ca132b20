// SPDX-License-Identifier: Apache-2.0
// Reads and writes of whole files, several at a time: through io_uring, or one after the other on
// the calling thread. Lane is above it. An object belongs to one thread at a time.
//
// The memory of a request, its list of pieces included, belongs to the kernel from submit() until
// wait() has returned its number.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>

namespace pando {

/// From the beginning of the file.
struct FileRequest {
  int fd = -1;
  bool write = false;
  std::span<const iovec> pieces = {};
  std::size_t number = 0;  ///< the caller's, small, and of one request at a time
};

struct FileDone {
  std::size_t number = 0;
  int error = 0;  ///< errno; 0: none
  /// All of the pieces, but for a read at the end of the file or an error.
  std::size_t size_bytes = 0;
};

class FileIo {
 public:
  virtual ~FileIo() = default;
  /// How many requests should be under way; twice as many are taken. Where it is one, submit() may
  /// block.
  virtual std::size_t depth() const = 0;
  virtual void submit(const FileRequest& request) = 0;
  /// All of those under way that are done, after waiting for the first; there must be one. The
  /// caller can so hand the device new ones before it looks at these.
  virtual std::span<const FileDone> wait() = 0;
};

std::unique_ptr<FileIo> make_plain_io();
/// Null where the kernel, or the build, does not have it.
std::unique_ptr<FileIo> make_uring_io(std::size_t depth);

/// Does what is left of a request after its first `from_bytes`, on this thread.
FileDone transfer_rest(const FileRequest& request, std::size_t from_bytes);

}  // namespace pando
