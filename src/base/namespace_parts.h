// SPDX-License-Identifier: Apache-2.0
// The way back from the text of a namespace to its parts, for those who tell of them: events name
// the adapter and the salt, metrics the tenant.
#pragma once

#include <optional>
#include <string_view>

#include "pando/types.h"

namespace pando {

/// The parts that make_namespace() makes this text of, as views of it. None if it makes it of none.
std::optional<NamespaceParts> parse_namespace(std::string_view text);

}  // namespace pando
