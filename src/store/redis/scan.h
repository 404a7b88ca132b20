// SPDX-License-Identifier: Apache-2.0
// clear() and list() of the store: SCAN over every master, by control commands. Neither is quick,
// or part of serving requests. What others put meanwhile may or may not be met.
#pragma once

#include <functional>
#include <string>

#include "pando/result.h"
#include "pando/store.h"
#include "store/redis/servers.h"

namespace pando::redis {

Status clear_pages(Servers& servers, const std::string& key_prefix, const Patience& patience);

/// Each key once, without the prefix; values too short for a page are left out.
Status list_pages(Servers& servers, const std::string& key_prefix, const Patience& patience,
                  const std::function<bool(const StoredPage&)>& visit);

}  // namespace pando::redis
