// SPDX-License-Identifier: Apache-2.0
// KV events, the hashes that name pages, and who publishes them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "pando/events.h"

namespace pando::python {

namespace nb = nanobind;

/// The first `size` bytes.
nb::bytes to_bytes(const PageHash& hash, std::size_t size = sizeof(PageHash));
/// 1 to 32 bytes; zeros follow. `what` names them in messages.
PageHash to_page_hash(nb::handle bytes, const char* what);
/// Texts of the library, which need not be UTF-8: as os.fsdecode() has them.
nb::object to_text(std::string_view text);
inline nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }
/// str | bytes. `what` names it in messages.
std::string from_text(nb::handle text, const char* what);

/// As Python lists, and back.
nb::object to_list(const std::vector<std::vector<ExtraKey>>& keys);
nb::list to_list(const std::vector<ExtraKey>& keys);

void bind_events(nb::module_& m);

}  // namespace pando::python
