// SPDX-License-Identifier: Apache-2.0
// The module pando._core: every part of the library under its C++ name. Users import `pando`, which
// has all of it. One file here per public header, or family of headers.
#include <nanobind/nanobind.h>

#include "allocators.h"
#include "arrays.h"
#include "benchmark.h"
#include "blocks.h"
#include "cache.h"
#include "embeddings.h"
#include "errors.h"
#include "events.h"
#include "interpreter.h"
#include "observe.h"
#include "offload.h"
#include "policy.h"
#include "pools.h"
#include "ranks.h"
#include "replay.h"
#include "slot_cache.h"
#include "stores.h"
#include "tiers.h"

NB_MODULE(_core, m) {
  using namespace pando::python;
  m.doc() = "The bindings behind the pando package: import that.";
  m.attr("__version__") = PANDO_VERSION;
  bind_errors(m);
  bind_interpreter(m);
  bind_arrays(m);
  bind_allocators(m);
  bind_policy(m);
  bind_ranks(m);
  bind_memory(m);
  bind_copier(m);
  bind_pools(m);
  bind_host_pool(m);
  bind_cache(m);
  bind_benchmark(m);
  bind_config(m);
  bind_keys(m);
  bind_stores(m);
  bind_python_store(m);
  bind_tiers(m);
  bind_tiers_calls(m);
  bind_events(m);
  bind_block_hash(m);
  bind_block_pool(m);
  bind_block_cache(m);
  bind_slot_cache(m);
  bind_embeddings(m);
  bind_observe(m);
  bind_offload(m);
  bind_replay(m);
}
