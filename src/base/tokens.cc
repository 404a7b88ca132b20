// SPDX-License-Identifier: Apache-2.0
// See the header.
#include "base/tokens.h"

#include "base/bulk.h"
#include "base/check.h"

namespace pando {

Status refuse_negative(std::span<const Token> tokens, std::size_t from, std::size_t to,
                       const char* caller) {
  if (!has_negative(tokens.data() + from, to - from)) return {};
  while (tokens[from] >= 0) ++from;
  return make_error(ErrorCode::invalid_argument,
                    "{}: token {} at position {} is negative; expected a vocabulary id", caller,
                    tokens[from], from);
}

}  // namespace pando
