// SPDX-License-Identifier: Apache-2.0
// A progress bar on standard error, for subcommands that take seconds: share done, rate, time left.
// Drawn at most ten times a second, only on a terminal, and gone when the object goes: what is
// printed afterwards starts on a clean line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace pando::tools {

class Progress {
 public:
  /// `unit` is what `count` counts, e.g. "requests".
  explicit Progress(std::string unit, bool wanted = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Cheap enough for every step: mostly one look at the clock. `done` from 0 to 1.
  void update(double done, std::uint64_t count);
  /// Takes the bar away until the next update, for something else to be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::string unit_;
  bool enabled_;  // wanted, and standard error is a terminal
  bool drawn_ = false;
  Clock::time_point begin_;
  Clock::time_point next_draw_;
};

/// The text of the bar, without the terminal's control characters.
std::string progress_line(double done, std::uint64_t count, double elapsed_s,
                          const std::string& unit);

}  // namespace pando::tools
