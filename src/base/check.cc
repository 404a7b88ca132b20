// SPDX-License-Identifier: Apache-2.0
// The end of the road for a broken contract, and the text of results and error codes.
#include "base/check.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace pando {
namespace {

void print_to_stderr(std::string_view message) {
  std::fwrite(message.data(), 1, message.size(), stderr);
  std::fputc('\n', stderr);
}

std::atomic<CheckHandler> handler{&print_to_stderr};

}  // namespace

CheckHandler set_check_handler(CheckHandler replacement) {
  return handler.exchange(replacement ? replacement : &print_to_stderr);
}

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  handler.load()(fmt::format("pando: {} [{}:{}: {}]", message, file, line, condition));
  std::abort();
}

namespace detail {
void value_of_error(const Error& error) {
  check_failed(
      __FILE__, __LINE__, "result.ok()",
      fmt::format("value of a failed result: {} ({})", error.message, to_string(error.code)));
}
void error_of_success() {
  check_failed(__FILE__, __LINE__, "!result.ok()", "error of a result that is no failure");
}
}  // namespace detail

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid argument";
    case ErrorCode::out_of_capacity:
      return "out of capacity";
    case ErrorCode::stale_handle:
      return "stale handle";
    case ErrorCode::unavailable:
      return "unavailable";
    case ErrorCode::in_use:
      return "in use";
    case ErrorCode::corrupt:
      return "corrupt";
    case ErrorCode::not_found:
      return "not found";
    case ErrorCode::io_error:
      return "i/o error";
    case ErrorCode::timed_out:
      return "timed out";
    case ErrorCode::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace pando
