// SPDX-License-Identifier: Apache-2.0
// PANDO_CHECK: always-on checks of contracts and invariants, for code inside the library.
// A failure formats one message (place, condition, values) and hands it to the handler of
// pando/diagnostics.h. For what callers can do wrong in good faith, return an Error: make_error.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "pando/result.h"

namespace pando {

/// Reports to the handler and, if that returns, aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

namespace detail {
// Out of line and cold, so that a check costs its caller a compare and a branch.
template <typename... Args>
[[noreturn, gnu::cold, gnu::noinline]] void check_failed_with(const char* file, int line,
                                                              const char* condition,
                                                              fmt::format_string<Args...> format,
                                                              Args&&... args) {
  check_failed(file, line, condition, fmt::format(format, std::forward<Args>(args)...));
}
}  // namespace detail

#define PANDO_CHECK(condition, ...)                                                    \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::pando::detail::check_failed_with(__FILE__, __LINE__, #condition, __VA_ARGS__); \
  } while (false)

template <typename... Args>
[[gnu::cold, gnu::noinline]] Error make_error(ErrorCode code, fmt::format_string<Args...> format,
                                              Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace pando
