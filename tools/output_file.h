// SPDX-License-Identifier: Apache-2.0
// Output that is there as a whole or not at all: written beside its place under another name, and
// moved there by commit(). Whatever ends the program before, Ctrl-C too, leaves nothing behind.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "pando/result.h"

namespace pando::tools {

class OutputFile {
 public:
  /// "-" is standard output. An error right away if the place cannot be written to.
  static Result<OutputFile> create(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept = delete;
  ~OutputFile();

  Status write(std::string_view text);
  Status commit();

 private:
  OutputFile(std::string path, std::string unfinished, std::FILE* file);

  std::string path_;
  std::string unfinished_;  // empty: standard output
  std::FILE* file_;
};

/// From now on SIGINT and SIGTERM remove unfinished outputs before they end the program.
void clean_up_on_signals();

}  // namespace pando::tools
