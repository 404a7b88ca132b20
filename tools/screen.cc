// SPDX-License-Identifier: Apache-2.0
// ANSI control sequences, and no library: clear, home, alternate screen, cursor.
#include "tools/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace pando::tools {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

volatile std::sig_atomic_t is_stopped = 0;
extern "C" void stop(int) { is_stopped = 1; }

bool write_all(std::string_view text) {
  const bool all = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && all;
}

/// What fits into `columns`; control sequences take no room.
std::string_view fitting(std::string_view line, std::size_t columns) {
  std::size_t shown = 0;
  bool in_sequence = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') in_sequence = true;
    if (!in_sequence && shown++ == columns) return line.substr(0, i);
    if (in_sequence && line[i] == 'm') in_sequence = false;
  }
  return line;
}

}  // namespace

Screen::Screen(bool wanted) : is_terminal_(wanted && ::isatty(STDOUT_FILENO) == 1) {
  is_stopped = 0;
  struct sigaction action {};
  action.sa_handler = stop;  // without SA_RESTART: what waits is to wake up
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    ::sigaction(kSignals[i], &action, &previous_[i]);
  if (is_terminal_) write_all(kEnter);
}

Screen::~Screen() {
  if (is_terminal_) write_all(kLeave);
  for (std::size_t i = 0; i < std::size(kSignals); ++i)
    ::sigaction(kSignals[i], &previous_[i], nullptr);
}

bool Screen::stopped() { return is_stopped != 0; }

void Screen::wait(std::chrono::milliseconds time) {
  if (!stopped()) ::poll(nullptr, 0, static_cast<int>(time.count()));
}

bool Screen::draw(std::string_view text) {
  if (!is_terminal_) return write_all(text);
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size = {24, 80, 0, 0};
  std::string frame = "\x1b[H";
  for (unsigned row = 0; row < size.ws_row && !text.empty(); ++row) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (row > 0) frame += "\r\n";
    frame += fitting(text.substr(0, end), size.ws_col);
    frame += "\x1b[0m\x1b[K";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return write_all(frame + "\x1b[J");
}

}  // namespace pando::tools
