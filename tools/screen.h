// SPDX-License-Identifier: Apache-2.0
// A terminal whose whole screen is drawn again and again: the alternate screen, without a cursor.
// When the object goes, the terminal is as it was. While it is there SIGINT, SIGTERM and SIGHUP end
// nothing; they set stopped(). One at a time.
#pragma once

#include <chrono>
#include <csignal>
#include <string_view>

namespace pando::tools {

class Screen {
 public:
  /// Without a terminal on standard output, or not `wanted`, draw() prints one text after the
  /// other.
  explicit Screen(bool wanted);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  bool is_terminal() const { return is_terminal_; }
  /// Of a text that does not fit, the first lines and what fits of each. False: it cannot be
  /// written.
  bool draw(std::string_view text);
  /// Until the time is over or a signal comes.
  void wait(std::chrono::milliseconds time);
  static bool stopped();

 private:
  const bool is_terminal_;
  struct sigaction previous_[3] = {};
};

}  // namespace pando::tools
