// SPDX-License-Identifier: Apache-2.0
// The one place where fmt is compiled. Everything else sees its declarations only and calls
// fmt::format: that is fmt::vformat, which is here. With fmt's definitions in every file three
// quarters of a build were spent on them (4.7 s for leases.cc, 1.2 s without); with fmt's own
// library whoever links Pando would need it too.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

namespace pando::detail {

// An inline function is put where it is used, so this uses it.
extern std::string (*const format_with)(fmt::string_view, fmt::format_args);
std::string (*const format_with)(fmt::string_view, fmt::format_args) = &fmt::vformat;

}  // namespace pando::detail
