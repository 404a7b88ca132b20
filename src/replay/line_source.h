// SPDX-License-Identifier: Apache-2.0
// Lines of a ByteSource, with their numbers. The longest line is bounded. Belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pando/result.h"
#include "replay/byte_source.h"

namespace pando {

class LineSource {
 public:
  /// So many bytes behind a line may be read, whatever they are: what a SIMD parser wants.
  static constexpr std::size_t kPadding = 64;
  static constexpr std::size_t kMaxLineBytes = std::size_t{256} << 20;

  static Result<std::unique_ptr<LineSource>> open(const std::string& path);

  /// The next line, without its end; valid until the next call. Nothing after the last one.
  Result<std::optional<std::string_view>> next();
  /// Of the line that was given last, from 1.
  std::uint64_t line_number() const { return line_number_; }
  double progress() const;
  const std::string& name() const { return name_; }

 private:
  LineSource(std::string name, std::unique_ptr<ByteSource> bytes, std::uint64_t file_bytes);
  Status refill();

  std::string name_;
  std::unique_ptr<ByteSource> bytes_;
  std::uint64_t file_bytes_;  // 0: unknown
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // what is read and not yet given
  bool at_end_ = false;
  std::uint64_t line_number_ = 0;
};

}  // namespace pando
