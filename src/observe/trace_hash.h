// SPDX-License-Identifier: Apache-2.0
// How a trace names blocks of tokens: a chain of SHA-256 that starts from a secret key and the
// namespace, cut to 53 bits, which every JSON reader keeps whole. Equal ids mean equal tokens,
// equal tokens before them, and an equal namespace; without the key nothing can be guessed from
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"
#include "pando/types.h"

namespace pando {

class TraceHash {
 public:
  TraceHash(std::string key, std::size_t block_tokens);

  /// One id for each block of the prompt, of which the last may have fewer tokens.
  std::vector<std::uint64_t> ids(const Key& prompt);
  /// 16 hexadecimal digits.
  std::string session(std::string_view ns);

 private:
  PageHash keyed(std::string_view purpose, std::string_view ns);

  const std::string key_;
  const std::size_t block_tokens_;
  std::vector<std::uint8_t> message_;  // scratch
};

}  // namespace pando
