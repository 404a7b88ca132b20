// SPDX-License-Identifier: Apache-2.0
// What an error reply means for a page: that it lives elsewhere, that it is worth asking again in a
// moment, that the command is unknown, or that it has failed. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/redis/address.h"

namespace pando::redis {

struct ServerError {
  enum class Kind : std::uint8_t {
    moved,            ///< the slot belongs to `address` now
    ask,              ///< this key, this time, with ASKING, at `address`
    try_again,        ///< the server or the cluster is not ready: soon it may be
    unknown_command,  ///< too old, or not allowed to us
    fatal,
  };
  Kind kind = Kind::fatal;
  std::uint16_t slot = 0;
  std::optional<Address> address = {};  ///< of moved and ask, always
};

/// `from` said it: a redirection without a host means the same host.
ServerError classify_error(std::string_view text, const Address& from);

}  // namespace pando::redis
