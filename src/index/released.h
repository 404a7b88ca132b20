// SPDX-License-Identifier: Apache-2.0
// What leaves the radix tree: the pages themselves, for the cache to give back, and how many they
// were. The tree frees nothing.
#pragma once

#include <cstddef>
#include <vector>

#include "pando/pools.h"
#include "pando/types.h"

namespace pando {

struct Released {
  std::vector<PageId> pages;         // with the window they may have
  std::vector<PageId> window_pages;  // only the window
  std::vector<StateSlot> snapshots;
  std::vector<HostPageId> host_pages;
  std::vector<HostPageId> host_window_pages;
  std::vector<HostPageId> host_snapshots;
  // Host pages whose copy on the device has gone; not of nodes that are being backed up.
  std::vector<HostPageId> demoted_pages;
  std::vector<HostPageId> demoted_window_pages;
  std::vector<HostPageId> demoted_snapshots;

  void clear() {
    pages.clear();
    window_pages.clear();
    snapshots.clear();
    host_pages.clear();
    host_window_pages.clear();
    host_snapshots.clear();
    demoted_pages.clear();
    demoted_window_pages.clear();
    demoted_snapshots.clear();
  }
};

struct Evicted {
  std::size_t pages = 0;
  std::size_t window_pages = 0;
  std::size_t snapshots = 0;
  std::size_t nodes = 0;          // that left the tree
  std::size_t demoted_pages = 0;  // of `pages`, stay on the host
  std::size_t host_pages = 0;
  std::size_t host_window_pages = 0;
  std::size_t host_snapshots = 0;
};

}  // namespace pando
