// SPDX-License-Identifier: Apache-2.0
// Which of a cluster's 16384 slots a key belongs to: the CRC16 of the key, or of what stands
// between its first '{' and the next '}' if that is not empty. Redis Cluster's rule. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pando::redis {

inline constexpr std::size_t kNumSlots = 16384;

/// CRC-16/XMODEM: polynomial 0x1021, start 0, nothing reflected. Of "123456789" it is 0x31c3.
std::uint16_t crc16(std::string_view bytes);

std::uint16_t key_slot(std::string_view key);

}  // namespace pando::redis
