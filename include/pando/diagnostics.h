// SPDX-License-Identifier: Apache-2.0
// What happens when a contract is broken: a slot freed twice, a lease outliving its cache.
// Such a check is always on. It builds one message and hands it to the handler below.
#pragma once

#include <string_view>

namespace pando {

/// Called with the message of a failed check. May throw (tests and bindings do); if it returns, the
/// process aborts, because the state behind the check can no longer be trusted.
using CheckHandler = void (*)(std::string_view message);

/// Installs a handler for all threads and returns the one before. nullptr restores the default,
/// which writes the message to standard error.
CheckHandler set_check_handler(CheckHandler handler);

}  // namespace pando
