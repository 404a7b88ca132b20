// SPDX-License-Identifier: Apache-2.0
// Draws the progress bar: carriage return, the line, erase to the end of the line.
#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <utility>

namespace pando::tools {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);
constexpr std::size_t kWidth = 32;  // characters of the bar alone; the line fits into 80
constexpr const char* kEraseLine = "\r\x1b[K";

std::string time_left(double seconds) {
  const long whole = std::lround(seconds);
  if (whole < 60) return fmt::format("{} s left", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s left", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min left", whole / 3600, whole / 60 % 60);
}

}  // namespace

Progress::Progress(std::string unit, bool wanted)
    : unit_(std::move(unit)),
      enabled_(wanted && isatty(STDERR_FILENO) == 1),
      begin_(Clock::now()),
      next_draw_(begin_ + kInterval) {}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) fmt::print(stderr, "{}", kEraseLine);
  drawn_ = false;
}

void Progress::update(double done, std::uint64_t count) {
  if (!enabled_) return;
  const Clock::time_point now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kInterval;
  drawn_ = true;
  const double elapsed_s = std::chrono::duration<double>(now - begin_).count();
  fmt::print(stderr, "{}{}", kEraseLine, progress_line(done, count, elapsed_s, unit_));
  std::fflush(stderr);
}

std::string progress_line(double done, std::uint64_t count, double elapsed_s,
                          const std::string& unit) {
  done = std::clamp(done, 0.0, 1.0);
  const auto filled = static_cast<std::size_t>(done * static_cast<double>(kWidth));
  std::string line =
      fmt::format("{:3.0f} % [{:=<{}}{:{}}]", 100 * done, "", filled, "", kWidth - filled);
  if (elapsed_s > 0)
    line += fmt::format(" {:.0f} {}/s", static_cast<double>(count) / elapsed_s, unit);
  if (done > 0) line += ", " + time_left(elapsed_s * (1 - done) / done);
  return line;
}

}  // namespace pando::tools
