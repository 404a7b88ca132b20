// SPDX-License-Identifier: Apache-2.0
// A file of lines that is put aside when it gets too long: path becomes path.1, that path.2, up to
// a number of files. A line is in a file as a whole or not at all, also when the disk is full.
// Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pando/result.h"

namespace pando {

class RotatedFile {
 public:
  RotatedFile(std::string path, std::size_t max_bytes, std::size_t max_files)
      : path_(std::move(path)), max_bytes_(max_bytes), max_files_(max_files) {}
  ~RotatedFile();
  RotatedFile(const RotatedFile&) = delete;
  RotatedFile& operator=(const RotatedFile&) = delete;

  /// Puts aside what is there, and begins a new file.
  Status open();
  /// Appends a line, newline included. After an error, the next call tries again.
  Status write(std::string_view line);
  std::uint64_t num_rotations() const { return num_rotations_; }

 private:
  Status put_aside();
  void close();

  const std::string path_;
  const std::size_t max_bytes_;
  const std::size_t max_files_;
  int fd_ = -1;
  std::size_t size_ = 0;  // of whole lines
  std::uint64_t num_rotations_ = 0;
};

}  // namespace pando
