// SPDX-License-Identifier: Apache-2.0
// See the header. The state is read from libcrypto's context, which its low-level calls expose.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/sha256.h"

#include <openssl/sha.h>

#include <cstring>

namespace pando {
namespace {

constexpr std::uint32_t kStart[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

}  // namespace

void sha256_in_place(std::uint8_t* message, std::size_t size_bytes, PageHash& out) {
  sha256_padded(message, sha256_pad(message, size_bytes), out);
}

std::size_t sha256_pad(std::uint8_t* message, std::size_t size_bytes) {
  constexpr std::size_t kBlock = SHA256_CBLOCK;
  const std::size_t padded = (size_bytes + 8) / kBlock * kBlock + kBlock;
  std::memset(message + size_bytes, 0, kSha256Room);
  message[size_bytes] = 0x80;
  const std::uint64_t num_bits = __builtin_bswap64(std::uint64_t{size_bytes} * 8);
  std::memcpy(message + padded - sizeof num_bits, &num_bits, sizeof num_bits);
  return padded;
}

void sha256_padded(const std::uint8_t* message, std::size_t padded_bytes, PageHash& out) {
  SHA256_CTX context;  // as SHA256_Init makes it, but for the buffer that whole blocks do not use
  std::memcpy(context.h, kStart, sizeof kStart);
  context.Nl = context.Nh = context.num = 0;
  SHA256_Update(&context, message, padded_bytes);
  // In stores of 16 bytes: a chain copies them on at once, and a load that spans several stores
  // still under way waits for all of them.
  using Vector [[gnu::vector_size(16)]] = std::uint64_t;
  for (std::size_t i = 0; i < out.size() / sizeof(Vector); ++i) {
    std::uint64_t words[2];
    std::memcpy(words, &context.h[4 * i], sizeof words);
    const auto big_endian = [](std::uint64_t w) { return __builtin_bswap64(w << 32 | w >> 32); };
    const Vector digest = {big_endian(words[0]), big_endian(words[1])};
    std::memcpy(out.data() + i * sizeof(Vector), &digest, sizeof(Vector));
  }
}

}  // namespace pando
