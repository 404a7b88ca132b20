// SPDX-License-Identifier: Apache-2.0
// The limit of naming blocks: what each block's hash reads, finished, through the fastest calls of
// the hash libraries.
#pragma once

#define OPENSSL_SUPPRESS_DEPRECATED
#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <openssl/sha.h>
#include <xxhash.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "blocks/cbor.h"
#include "cases/measure.h"
#include "pando/block_pool.h"

namespace pando::bench {

inline std::vector<Token> prompt(std::size_t n) {
  std::vector<Token> tokens(n);
  for (std::size_t i = 0; i < n; ++i) tokens[i] = static_cast<Token>(i * 7919 % 128256);
  return tokens;
}

class HashMessages {
 public:
  HashMessages(HashFunction function, std::span<const Token> tokens, std::size_t page_size,
               std::span<const BlockHash> chain)
      : is_sha_(function == HashFunction::sha256_cbor || function == HashFunction::sglang),
        parent_at_(function == HashFunction::sha256_cbor   ? 3
                   : function == HashFunction::xxhash_cbor ? 2
                                                           : 0) {
    for (std::size_t i = 0; i < chain.size(); ++i)
      messages_.push_back(message(function, tokens.subspan(i * page_size, page_size),
                                  i > 0 ? chain[i - 1].value : PageHash{}, i == 0));
    if (!is_sha_) return;
    sha256(messages_[7]);
    require(std::memcmp(out_.data(), chain[7].value.data(), 32) == 0, "the same messages");
  }

  std::size_t size() const { return messages_.size(); }

  /// All of them. Chained, each begins with the hash of the one before, which is known only then.
  /// (The first of SGLang's has none: what is overwritten counts the same.)
  void hash(bool chained) {
    for (auto& message : messages_) {
      if (chained) std::memcpy(message.data() + parent_at_, out_.data(), is_sha_ ? 32 : 16);
      if (is_sha_) {
        sha256(message);
      } else {
        const XXH128_hash_t hash = XXH3_128bits(message.data(), message.size());
        std::memcpy(out_.data(), &hash, sizeof hash);
      }
      keep(out_.data());
    }
  }

 private:
  using Message = std::vector<std::uint8_t>;

  static Message message(HashFunction function, std::span<const Token> block,
                         const PageHash& parent, bool is_first) {
    CborWriter out;
    out.reserve(256);
    if (function == HashFunction::sglang) {
      if (!is_first) out.raw(parent.data(), parent.size());
      out.raw(block.data(), block.size_bytes());
    } else {
      out.array(3);
      out.bytes(std::span(parent).first(function == HashFunction::sha256_cbor ? 32 : 16));
      out.tokens(block);
      out.null();
    }
    return {out.data(), out.data() + out.size()};
  }

  void sha256(const Message& message) {
    SHA256_CTX context;
    SHA256_Init(&context);
    SHA256_Update(&context, message.data(), message.size());
    SHA256_Final(out_.data(), &context);
  }

  const bool is_sha_;
  const std::size_t parent_at_;  // of the parent's hash in a message
  std::vector<Message> messages_;
  std::array<std::uint8_t, 32> out_ = {};
};

}  // namespace pando::bench
