// SPDX-License-Identifier: Apache-2.0
// The error that a check() of the radix tree returns: which invariant does not hold, and where.
#pragma once

#include <utility>

#include "base/check.h"

namespace pando {

template <typename... Args>
Error broken(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorCode::corrupt,
               "radix index: " + fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace pando
