// SPDX-License-Identifier: Apache-2.0
// The module pando._core: every part of the library under its C++ name. Users import `pando`, which
// has all of it. One file here per public header, or family of headers.
#include <nanobind/nanobind.h>

#include "allocators.h"
#include "cache.h"
#include "blocks.h"
#include "embeddings.h"
#include "errors.h"
#include "events.h"
#include "observe.h"
#include "policy.h"
#include "ranks.h"
#include "tiers.h"
#include "replay.h"
#include "slot_cache.h"

NB_MODULE(_core, m) {
  using namespace pando::python;
  m.doc() = "The bindings behind the pando package: import that.";
  bind_errors(m);
  bind_allocators(m);
  bind_policy(m);
  bind_ranks(m);
  bind_tiers(m);
  bind_cache(m);
  bind_events(m);
  bind_block_hash(m);
  bind_block_pool(m);
  bind_block_cache(m);
  bind_slot_cache(m);
  bind_embeddings(m);
  bind_observe(m);
  bind_replay(m);
}
