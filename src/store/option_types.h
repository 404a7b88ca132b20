// SPDX-License-Identifier: Apache-2.0
// The types of options in words, as all messages about them say it.
#pragma once

#include <string_view>

#include "pando/config.h"

namespace pando {

/// "an integer", "text", ...
std::string_view describe(const Config::Value& value);

/// What an option may be, for messages about one that is something else.
inline constexpr std::string_view kOptionTypes = "a boolean, a number, text or a list of text";

}  // namespace pando
