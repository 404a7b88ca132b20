// SPDX-License-Identifier: Apache-2.0
// `pando top` from outside, against an endpoint whose figures change.
#include <pty.h>

#include <chrono>
#include <thread>

#include "support/command.h"
#include "support/http_server.h"

namespace pando::testing {
namespace {

using namespace std::chrono_literals;

std::string metrics(std::size_t step) {
  return fmt::format(
      "# TYPE pando_lookups_total counter\npando_lookups_total{{end=\"whole_key\"}} {}\n"
      "pando_hit_tokens_total{{tier=\"device\"}} {}\npando_missed_tokens_total{{end=\"x\"}} {}\n"
      "pando_cached_tokens{{tier=\"device\",component=\"full\",state=\"held\"}} 10\n"
      "pando_cached_tokens{{tier=\"device\",component=\"full\",state=\"evictable\"}} {}\n"
      "pando_call_duration_seconds_count{{call=\"match\"}} {}\n"
      "pando_call_duration_seconds_bucket{{call=\"match\",le=\"1e-06\"}} {}\n"
      "pando_call_duration_seconds_bucket{{call=\"match\",le=\"+Inf\"}} {}\n",
      step * 10, 100 + step * 90, 100 + step * 10, 500 + step, step + 1, step + 1, step + 1);
}

bool comes(const RunningCommand& command, const std::string& text) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (std::chrono::steady_clock::now() < end) {
    if ((command.out() + command.err()).find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

TEST(TopCommand, OnceTellsWhatIsSinceTheStart) {
  HttpServer server([](std::size_t n, const std::string&) { return http_ok(metrics(n)); });
  const CommandResult done = pando_command({"top", server.address(), "--once", "--json", "-"});
  ASSERT_EQ(done.code, 0) << done.err;
  const nlohmann::json json = done.json();
  EXPECT_EQ(json["command"], "top");
  EXPECT_EQ(json["hit_ratio_total"], 0.5);
  EXPECT_TRUE(json["hit_ratio"].is_null());
  EXPECT_EQ(json["tiers"][0]["used"], 510);
  EXPECT_EQ(json["calls"][0]["name"], "match");
  const CommandResult text = pando_command({"top", "http://" + server.address(), "--once"});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("since start"), std::string::npos);
}

TEST(TopCommand, WithoutATerminalEachIntervalIsATextOfItsOwn) {
  HttpServer server([](std::size_t n, const std::string&) { return http_ok(metrics(n)); });
  const CommandResult done =
      pando_command({"top", server.address(), "--interval", "0.05", "--count", "3"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out.find('\x1b'), std::string::npos);
  EXPECT_NE(done.out.find("- now, 50.0 % since start"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("90.0 % now"), std::string::npos) << done.out;
  EXPECT_EQ(server.num_served(), 3u);
}

TEST(TopCommand, GoesOnWhenAnEndpointThatWorkedIsAway) {
  auto server = std::make_unique<HttpServer>(
      [](std::size_t n, const std::string&) { return http_ok(metrics(n)); });
  const std::uint16_t port = server->port();
  RunningCommand top({"top", server->address(), "--interval", "0.05"});
  ASSERT_TRUE(comes(top, "since start"));
  server.reset();
  ASSERT_TRUE(comes(top, "not reachable"));
  server = std::make_unique<HttpServer>(
      [](std::size_t n, const std::string&) { return http_ok(metrics(1000 + n)); }, port);
  ASSERT_TRUE(comes(top, "1,510 tokens"));
  top.signal(SIGINT);
  EXPECT_EQ(top.wait().code, 0);
}

TEST(TopCommand, WhatIsNoEndpointIsAnError) {
  HttpServer html([](std::size_t, const std::string&) { return http_ok("<html>hello</html>"); });
  CommandResult done = pando_command({"top", html.address()});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.err.find("not Prometheus text"), std::string::npos) << done.err;
  HttpServer other([](std::size_t, const std::string&) { return http_ok("go_threads 1\n"); });
  done = pando_command({"top", other.address()});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.err.find("none of Pando's"), std::string::npos) << done.err;
  HttpServer mute([](std::size_t, const std::string&) { return ""; });
  done = pando_command({"top", mute.address(), "--timeout", "0.05"});
  EXPECT_EQ(done.code, 1);
  EXPECT_NE(done.err.find("no answer in time"), std::string::npos) << done.err;
  EXPECT_EQ(pando_command({"top", "127.0.0.1:1"}).code, 1);
  EXPECT_EQ(pando_command({"top", "https://host"}).code, 2);
  EXPECT_EQ(pando_command({"top", html.address(), "--interval", "0"}).code, 2);
  EXPECT_EQ(pando_command({"top", html.address(), "--json", "-"}).code, 2);
}

/// What a terminal gets until the program ends, which `text` makes it do.
std::string on_a_terminal(const std::vector<std::string>& arguments, const std::string& until,
                          const char* no_color) {
  int terminal = -1;
  winsize size{};
  size.ws_row = 10;
  size.ws_col = 40;
  const pid_t pid = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    std::vector<char*> argv = {const_cast<char*>(PANDO_COMMAND)};
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    if (no_color != nullptr) ::setenv("NO_COLOR", no_color, 1);
    if (no_color == nullptr) ::unsetenv("NO_COLOR");
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::string seen;
  bool told = false;
  char buffer[4096];
  for (ssize_t n; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) {
    seen.append(buffer, static_cast<std::size_t>(n));
    if (told || seen.find(until) == std::string::npos) continue;
    told = true;
    EXPECT_EQ(::write(terminal, "\x03", 1), 1);  // Ctrl-C
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::close(terminal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return seen;
}

TEST(TopCommand, ATerminalIsDrawnOnAndGivenBack) {
  HttpServer server([](std::size_t n, const std::string&) { return http_ok(metrics(n)); });
  const std::vector<std::string> arguments = {"top", server.address(), "--interval", "0.05"};
  const std::string seen = on_a_terminal(arguments, "90.0 % now", nullptr);
  EXPECT_TRUE(seen.starts_with("\x1b[?1049h\x1b[?25l")) << seen;
  const std::size_t left = seen.find("\x1b[?25h\x1b[?1049l");
  EXPECT_NE(left, std::string::npos);
  EXPECT_NE(seen.find("\x1b[1m"), std::string::npos);
  // Ten rows at most in a frame.
  const std::size_t frame = seen.find("\x1b[H"), next = seen.find("\x1b[H", frame + 1);
  ASSERT_NE(next, std::string::npos);
  const std::string one = seen.substr(frame, next - frame);
  EXPECT_LE(std::count(one.begin(), one.end(), '\n'), 9);
  EXPECT_EQ(on_a_terminal(arguments, "90.0 % now", "1").find("\x1b[1m"), std::string::npos);
}

}  // namespace
}  // namespace pando::testing
