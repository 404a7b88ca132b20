// SPDX-License-Identifier: Apache-2.0
// See the header. The state is read from libcrypto's context, which its low-level calls expose.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/sha.h>

#include <cstring>

namespace pando {

void sha256_in_place(std::uint8_t* message, std::size_t size_bytes, PageHash& out) {
  constexpr std::size_t kBlock = SHA256_CBLOCK;
  const std::size_t padded = (size_bytes + 8) / kBlock * kBlock + kBlock;
  std::memset(message + size_bytes, 0, padded - size_bytes);
  message[size_bytes] = 0x80;
  const std::uint64_t num_bits = __builtin_bswap64(std::uint64_t{size_bytes} * 8);
  std::memcpy(message + padded - sizeof num_bits, &num_bits, sizeof num_bits);
  SHA256_CTX context;
  SHA256_Init(&context);
  SHA256_Update(&context, message, padded);
  for (std::size_t i = 0; i < out.size() / 4; ++i) {
    const std::uint32_t word = __builtin_bswap32(context.h[i]);
    std::memcpy(out.data() + 4 * i, &word, sizeof word);
  }
}

}  // namespace pando
