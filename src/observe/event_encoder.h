// SPDX-License-Identifier: Apache-2.0
// A batch of KV events as msgpack, in the dialect of SGLang or of vLLM, byte for byte as their own
// encoders write it. Values only.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "pando/event_publisher.h"

namespace pando {

/// The 64-bit id of a hash: SGLang takes the first bytes, signed; vLLM the last, unsigned.
std::int64_t sglang_block_id(const PageHash& hash);
std::uint64_t vllm_block_id(const PageHash& hash, std::size_t hash_bytes);

/// [timestamp, events, rank].
std::string encode_batch(EventDialect dialect, double timestamp, std::span<const KvEvent> events,
                         std::uint16_t data_parallel_rank);

}  // namespace pando
