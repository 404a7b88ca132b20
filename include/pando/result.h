// SPDX-License-Identifier: Apache-2.0
// Errors as values. `Result<T>` holds a T or an Error that says what happened, where, and what was
// expected. Expected outcomes (full, bad input, stale handle) come back this way; broken contracts
// (a double free) stop at a check instead, see result.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace pando {

enum class ErrorCode {
  invalid_argument,  ///< the call can never succeed as written
  out_of_capacity,   ///< there is no room now; nothing was changed
  stale_handle,      ///< the node or match has gone, or belongs to another cache
  unavailable,       ///< this cache was built without what the call needs
  in_use,            ///< leases or requests still hold what the call would take away
  corrupt,           ///< check() found a broken invariant, or bytes are not what was stored
  not_found,         ///< there is nothing under this name
  io_error,          ///< a file, device or server failed; the message says how
  timed_out,         ///< the deadline came first
  cancelled,         ///< the caller, or a shutdown, called it off
};

std::string_view to_string(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::invalid_argument;
  std::string message;
};

namespace detail {
/// Stops at a check: `value()` was called on an error.
[[noreturn]] void value_of_error(const Error& error);
/// Stops at a check: `error()` was called on a success.
[[noreturn]] void error_of_success();
}  // namespace detail

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return *require(); }
  const T& value() const& { return *const_cast<Result*>(this)->require(); }
  T&& value() && { return std::move(*require()); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return require(); }
  const T* operator->() const { return const_cast<Result*>(this)->require(); }

  /// Only when !ok(): a success stops at a check.
  const Error& error() const {
    if (ok()) [[unlikely]]
      detail::error_of_success();
    return *std::get_if<Error>(&state_);
  }

 private:
  T* require() {
    if (!ok()) [[unlikely]]
      detail::value_of_error(error());
    return std::get_if<0>(&state_);
  }

  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  void value() const {
    if (error_) [[unlikely]]
      detail::value_of_error(*error_);
  }
  /// Only when !ok(): a success stops at a check.
  const Error& error() const {
    if (!error_) [[unlikely]]
      detail::error_of_success();
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// ---- Diagnostics
// --------------------------------------------------------------------------------- What happens
// when a contract is broken: a slot freed twice, a lease outliving its cache. Such a check is
// always on. It builds one message and hands it to the handler below.

/// Called with the message of a failed check. May throw (tests and bindings do); if it returns, the
/// process aborts, because the state behind the check can no longer be trusted.
using CheckHandler = void (*)(std::string_view message);

/// Installs a handler for all threads and returns the one before. nullptr restores the default,
/// which writes the message to standard error.
CheckHandler set_check_handler(CheckHandler handler);

}  // namespace pando
