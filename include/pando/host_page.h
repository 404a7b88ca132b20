// SPDX-License-Identifier: Apache-2.0
// Names for pages of host memory: which page, and what is in it. The transitions between states
// are those of a host pool, which alone moves pages from one to another.
// Values only: nothing here allocates or holds a lock.
#pragma once

#include <cstdint>
#include <string_view>

namespace pando {

/// A page of a host pool. Another type than PageId, so that the two ends of a copy cannot be
/// confused.
enum class HostPageId : std::uint32_t {};

constexpr std::uint32_t index_of(HostPageId page) { return static_cast<std::uint32_t>(page); }

/// What is in a host page and who may touch it.
enum class PageState : std::uint8_t {
  idle,       ///< free
  reserved,   ///< handed out, nothing in it yet
  writing,    ///< protected: a copy from the device or a read from storage fills it
  backed_up,  ///< holds the only fast copy: the device no longer has it
  synced,     ///< same as on the device
  loading,    ///< protected: a copy to the device reads it
};

std::string_view to_string(PageState state);

}  // namespace pando
