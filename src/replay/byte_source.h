// SPDX-License-Identifier: Apache-2.0
// The bytes of a file or of standard input ("-"), unpacked if it is gzip or zstd, which its first
// bytes tell. LineSource cuts them into lines. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "pando/result.h"

namespace pando {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Up to `size` bytes; 0 at the end.
  virtual Result<std::size_t> read(char* out, std::size_t size) = 0;
  /// Bytes of the file that have been used so far.
  virtual std::uint64_t consumed() const = 0;
};

Result<std::unique_ptr<ByteSource>> open_bytes(const std::string& path);

}  // namespace pando
