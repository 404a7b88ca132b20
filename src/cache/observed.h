// SPDX-License-Identifier: Apache-2.0
// How a public call of a cache tells the observer of itself: the time it took, and its error. What
// it found is the caller's to tell. Without an observer it costs a branch.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "pando/observer.h"
#include "pando/result.h"

namespace pando {

/// When a request was started, and with how many tokens; for the observer.
struct RequestStart {
  std::chrono::steady_clock::time_point at = {};
  std::optional<std::size_t> prompt_length = {};
};

template <typename T>
std::optional<ErrorCode> error_of(const Result<T>& result) {
  if (result.ok()) return std::nullopt;
  return result.error().code;
}
template <typename T>
std::optional<ErrorCode> error_of(const T&) {
  return std::nullopt;
}

/// run(), told to the observer if there is one.
template <typename Run>
auto observed(CacheObserver* observer, CacheCall call, Run&& run) {
  if (observer == nullptr) [[likely]]
    return run();
  const auto begin = std::chrono::steady_clock::now();
  auto result = run();
  const auto end = std::chrono::steady_clock::now();
  observer->on_call({call, end - begin, error_of(result)});
  return result;
}

}  // namespace pando
