// SPDX-License-Identifier: Apache-2.0
// One list at the end of another.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

namespace pando {

template <typename T>
void append(std::vector<T>& to, std::type_identity_t<std::span<const T>> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace pando
