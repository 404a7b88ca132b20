// SPDX-License-Identifier: Apache-2.0
// What is asked of tokens wherever they enter the library.
#pragma once

#include <cstddef>
#include <span>

#include "pando/result.h"
#include "pando/types.h"

namespace pando {

/// An error that names the first negative one of tokens[from, to), if there is one.
Status refuse_negative(std::span<const Token> tokens, std::size_t from, std::size_t to,
                       const char* caller);

}  // namespace pando
