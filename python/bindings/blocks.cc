// SPDX-License-Identifier: Apache-2.0
// BlockCache and its requests.
#include "blocks.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "arrays.h"
#include "events.h"
#include "observe.h"
#include "ranks.h"
#include "structs.h"

namespace pando::python {

namespace {

// ---- Cycles ------------------------------------------------------------------------------------

int traverse_cache(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyBlockCache>(self)->traverse(visit, arg) : 0;
}
int clear_cache(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyBlockCache>(self)->clear_cycles();
  return 0;
}
PyType_Slot cache_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_cache)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear_cache)},
                             {0, nullptr}};

int traverse_request(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Py_VISIT(nb::inst_ptr<PyBlockRequest>(self)->cache_object().ptr());
  return 0;
}
int clear_request(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyBlockRequest>(self)->drop();
  return 0;
}
PyType_Slot request_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_request)},
                               {Py_tp_clear, reinterpret_cast<void*>(clear_request)},
                               {0, nullptr}};

// ---- Requests ----------------------------------------------------------------------------------

std::uint32_t group_arg(const PyBlockCache& cache, std::size_t group) {
  if (group >= cache.options.groups.size())
    raise_invalid(
        fmt::format("group {}: expected 0 to {}", group, cache.options.groups.size() - 1));
  return static_cast<std::uint32_t>(group);
}

void bind_request(nb::module_& m) {
  using Py = PyBlockRequest;
  nb::class_<Py>(m, "BlockRequest", nb::type_slots(request_slots),
                 "A request as BlockCache sees it: its tokens, their hashes, its blocks. Frees "
                 "them when it goes. Made by BlockCache.start().")
      .def(
          "append",
          [](Py& self, nb::object tokens) {
            Token token = 0;
            if (nb::isinstance<nb::int_>(tokens) && nb::try_cast(tokens, token)) {
              self.look("append", [&](BlockRequest& r) { unwrap(r.append(token)); });
              return;
            }
            const Items<Token> items(tokens, "tokens");
            self.look("append", [&](BlockRequest& r) { unwrap(r.append(items.view())); });
          },
          nb::arg("tokens"),
          nb::sig("def append(self, tokens: int | numpy.typing.ArrayLike) -> None"),
          "The request has more tokens: one, or an array of them. Only blocks that become full are "
          "hashed.")
      .def_prop_ro(
          "is_running",
          [](Py& self) {
            return self.look("is_running", [](BlockRequest& r) { return r.is_running(); });
          },
          "Whether it holds blocks: from allocate() until finish() or preempt().")
      .def_prop_ro(
          "tokens",
          [](Py& self) {
            return self.look("tokens", [](BlockRequest& r) { return to_numpy(r.tokens()); });
          },
          nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]"))
      .def_prop_ro(
          "hashes",
          [](Py& self) {
            const std::size_t size = self.cache().object->hasher().hash_bytes();
            return self.look("hashes", [&](BlockRequest& r) { return to_list(r.hashes(), size); });
          },
          nb::sig("def hashes(self) -> list[bytes]"),
          "Of all whole blocks of the smallest size that divides those of the groups.")
      .def_prop_ro("keys",
                   [](Py& self) {
                     return self.look("keys",
                                      [](BlockRequest& r) { return RequestKeys(r.keys()); });
                   })
      .def(
          "blocks",
          [](Py& self, std::size_t group) {
            return self.look("blocks", [&](BlockRequest& r) {
              return to_numpy(r.blocks(group_arg(self.cache(), group)));
            });
          },
          nb::arg("group") = 0,
          nb::sig("def blocks(self, group: int = 0) -> numpy.typing.NDArray[numpy.uint32]"),
          "One per block_size tokens; 0 where the group needs none (any more).")
      .def_prop_ro(
          "num_computed",
          [](Py& self) {
            return self.look("num_computed", [](BlockRequest& r) { return r.num_computed(); });
          },
          "Tokens whose KV is in place, see BlockCache.checkpoint().")
      .def_prop_ro(
          "is_broken",
          [](Py& self) {
            return self.look("is_broken", [](BlockRequest& r) { return r.is_broken(); });
          },
          "A load from the host failed: it must be preempted or finished.");
}

// ---- The cache ---------------------------------------------------------------------------------

void bind_life(nb::class_<PyBlockCache>& type) {
  using Py = PyBlockCache;
  type.def(
          "start",
          [](Py& self, TokensArg tokens, const RequestKeys* keys) {
            const Items<Token> items(tokens.object, "tokens");
            RequestKeys own = keys == nullptr ? RequestKeys{} : *keys;
            Result<BlockRequest> request =
                self.work("start", items.view().size() >= kLongTokens,
                          [&](BlockCache& c) { return c.start(items.view(), std::move(own)); });
            return std::make_unique<PyBlockRequest>(nb::find(self), unwrap(std::move(request)));
          },
          nb::arg("tokens"), nb::arg("keys").none() = nb::none(),
          nb::sig(
              "def start(self, tokens: numpy.typing.ArrayLike, keys: RequestKeys | None = None) "
              "-> BlockRequest"),
          "A request with these tokens, hashed. It has no blocks yet.")
      .def(
          "match",
          [](Py& self, PyBlockRequest& request) {
            BlockRequest& r = request.in(self, "match");
            return self.call("match", [&](BlockCache& c) { return c.match(r); });
          },
          nb::arg("request"),
          "The longest cached prefix that leaves at least one token to compute. Changes nothing.")
      .def(
          "allocate",
          [](Py& self, PyBlockRequest& request, std::size_t num_new_tokens, const BlockMatch* match,
             bool load_back, std::size_t lookahead_tokens, bool delay_caching) {
            BlockRequest& r = request.in(self, "allocate");
            unwrap(self.work("allocate", self.has_tiers(), [&](BlockCache& c) {
              return c.allocate(r, num_new_tokens,
                                {.match = match,
                                 .load_back = load_back,
                                 .lookahead_tokens = lookahead_tokens,
                                 .delay_caching = delay_caching});
            }));
          },
          nb::arg("request"), nb::arg("num_new_tokens"), nb::kw_only(),
          nb::arg("match").none() = nb::none(), nb::arg("load_back") = true,
          nb::arg("lookahead_tokens") = 0, nb::arg("delay_caching") = false,
          "Blocks for the next `num_new_tokens` behind those computed. All or nothing.\n\n"
          "`match`: for a request without blocks, where it starts; with `load_back`, also behind "
          "what "
          "comes from the host. `lookahead_tokens`: further tokens that a drafter may write to. "
          "`delay_caching`: others find full blocks when checkpoint() has passed them, not at "
          "once.")
      .def(
          "checkpoint",
          [](Py& self, PyBlockRequest& request, std::size_t num_computed) {
            BlockRequest& r = request.in(self, "checkpoint");
            unwrap(self.work("checkpoint", self.has_tiers(),
                             [&](BlockCache& c) { return c.checkpoint(r, num_computed); }));
          },
          nb::arg("request"), nb::arg("num_computed"),
          "The KV of the first `num_computed` tokens is in place.")
      .def(
          "finish",
          [](Py& self, PyBlockRequest& request) {
            BlockRequest& r = request.in(self, "finish");
            self.work("finish", self.has_tiers(), [&](BlockCache& c) { c.finish(r); });
          },
          nb::arg("request"),
          "Lets go of all blocks, the last first. Blocks that no checkpoint() has passed are "
          "forgotten.")
      .def(
          "preempt",
          [](Py& self, PyBlockRequest& request) {
            BlockRequest& r = request.in(self, "preempt");
            self.work("preempt", self.has_tiers(), [&](BlockCache& c) { c.preempt(r); });
          },
          nb::arg("request"), "The same for a request that will start again.")
      .def(
          "forget",
          [](Py& self, TokensArg blocks) {
            const Items<PageId> items(blocks.object, "blocks");
            self.call("forget", [&](BlockCache& c) { c.forget(items.view()); });
          },
          nb::arg("blocks"),
          "What these blocks contain is wrong: they are not found any more; whoever holds them "
          "goes "
          "on.")
      .def(
          "common_prefix_blocks",
          [](Py& self, PyBlockRequest& any) {
            BlockRequest& r = any.in(self, "common_prefix_blocks");
            return self.call("common_prefix_blocks",
                             [&](BlockCache& c) { return c.common_prefix_blocks(r); });
          },
          nb::arg("any"),
          "By group: blocks from the start that all requests with blocks share, `any` among them.")
      .def(
          "reset",
          [](Py& self) {
            unwrap(self.call_long("reset", [](BlockCache& c) { return c.reset(); }));
          },
          "Forgets everything on the device and the host. InUse while blocks are held.");
}

void bind_tier_calls(nb::class_<PyBlockCache>& type) {
  using Py = PyBlockCache;
  type.def(
          "poll",
          [](Py& self) { return self.call_long("poll", [](BlockCache& c) { return c.poll(); }); },
          nb::sig("def poll(self) -> PollResult"),
          "Applies copies and store operations that have finished.")
      .def(
          "prefetch",
          [](Py& self, PyBlockRequest& request) {
            BlockRequest& r = request.in(self, "prefetch");
            return unwrap(self.call_long("prefetch", [&](BlockCache& c) { return c.prefetch(r); }));
          },
          nb::arg("request"), nb::sig("def prefetch(self, request: BlockRequest) -> Prefetch"),
          "Begins to bring blocks that neither device nor host have from the store to the host.")
      .def(
          "prefetch_ready",
          [](Py& self, std::uint64_t id) {
            return self.call("prefetch_ready",
                             [&](BlockCache& c) { return c.prefetch_ready(PrefetchId{id}); });
          },
          nb::arg("id"), "Whether the request may go on.")
      .def(
          "end_prefetch",
          [](Py& self, std::uint64_t id) {
            return self.call_long("end_prefetch",
                                  [&](BlockCache& c) { return c.end_prefetch(PrefetchId{id}); });
          },
          nb::arg("id"),
          "Keeps what has arrived, gives up the rest. Returns the tokens that the host has more, "
          "of the "
          "group that has got the most.")
      .def(
          "abort_prefetch",
          [](Py& self, std::uint64_t id) {
            self.call_long("abort_prefetch",
                           [&](BlockCache& c) { c.abort_prefetch(PrefetchId{id}); });
          },
          nb::arg("id"), "Gives up all of it: the request goes away.")
      .def_prop_ro(
          "tiers", [](nb::handle self) { return PyTiers{nb::borrow(self)}; },
          nb::for_getter(nb::sig("def tiers(self) -> Tiers")),
          "Host memory and the store behind it.");
}

void bind_looking(nb::class_<PyBlockCache>& type) {
  using Py = PyBlockCache;
  type.def_prop_ro(
          "options", [](Py& self) { return PyBlockCacheOptions(self.options); },
          "A copy, without the observer.")
      .def_prop_ro("hasher", [](Py& self) { return BlockHasher(self.object->hasher()); })
      .def_prop_ro(
          "pool",
          [](Py& self) {
            auto pool =
                std::make_unique<PyBlockPool>(self.object->pool(), nb::find(self), self.guard);
            for (const PyBlockGroup& group : self.options.groups)
              pool->block_sizes.push_back(group.block_size);
            return pool;
          },
          "The blocks, to look at.")
      .def(
          "sizes",
          [](Py& self, std::size_t group) {
            return self.call("sizes",
                             [&](BlockCache& c) { return c.sizes(group_arg(self, group)); });
          },
          nb::arg("group") = 0, nb::sig("def sizes(self, group: int = 0) -> Sizes"))
      .def(
          "host_sizes",
          [](Py& self, std::size_t group) {
            return self.call("host_sizes",
                             [&](BlockCache& c) { return c.host_sizes(group_arg(self, group)); });
          },
          nb::arg("group") = 0, nb::sig("def host_sizes(self, group: int = 0) -> Sizes"))
      .def_prop_ro(
          "usage",
          [](Py& self) { return self.call("usage", [](BlockCache& c) { return c.usage(); }); },
          "Share of the blocks that is held.")
      .def_prop_ro(
          "stats",
          [](Py& self) { return self.call("stats", [](BlockCache& c) { return c.stats(); }); })
      .def_prop_ro(
          "num_requests",
          [](Py& self) {
            return self.call("num_requests", [](BlockCache& c) { return c.num_requests(); });
          },
          "That have blocks.")
      .def_prop_ro("memory_bytes",
                   [](Py& self) {
                     return self.call("memory_bytes",
                                      [](BlockCache& c) { return c.memory_bytes(); });
                   })
      .def(
          "check",
          [](Py& self) {
            unwrap(self.call_long("check", [](BlockCache& c) { return c.check(); }));
          },
          "Proves that every block's holders are the requests, copies and loads that there are. "
          "O(all).")
      .def(
          "take_events",
          [](Py& self) {
            return self.call("take_events", [](BlockCache& c) { return c.take_events(); });
          },
          "The KV events since the last call.");
}

}  // namespace

// ---- What Python holds -------------------------------------------------------------------------

PyBlockCache::PyBlockCache(const PyBlockCacheOptions& given)
    : options(given), observer(to_observer(given.observer, told)) {
  options.observer = nb::none();  // `told` has all references to it
  BlockCacheOptions plain = to_plain(options, kept, guard, observer.get());
  if (!options.ranks.is_none()) {
    ranks = to_ranks(options.ranks, kept);
    plain.ranks = ranks.get();
  }
  // Ranks wait for each other.
  object = unwrap(run(plain.ranks != nullptr, [&] { return BlockCache::create(plain); }));
}

PyBlockCache::~PyBlockCache() {
  late_.clear();
  // Waits for what is under way, some of which may be Python's.
  run(true, [&] { object.reset(); });
}

void PyBlockCache::release_soon(BlockRequest request) {
  if (guard->enter("release") != nullptr) {
    late_.push_back(std::move(request));
    return;
  }
  { const BlockRequest gone(std::move(request)); }
  guard->leave();
}

int PyBlockCache::traverse(visitproc visit, void* arg) const {
  for (const nb::object& object : told) Py_VISIT(object.ptr());
  return 0;
}

// The cache itself stays: requests that are collected with it give back their blocks.
void PyBlockCache::clear_cycles() {
  mute(observer.get());
  told.clear();
}

BlockRequest& PyBlockRequest::in(const PyBlockCache& cache, const char* call) {
  if (!request_ || cache_ != &cache)
    raise_invalid(fmt::format("{}: the request is another cache's", call));
  return *request_;
}

void PyBlockRequest::drop() {
  if (request_) {
    BlockRequest request = std::move(*request_);
    request_.reset();
    cache_->release_soon(std::move(request));
  }
  object_.reset();
}

void bind_block_cache(nb::module_& m) {
  bind_block_options(m);
  bind_request(m);
  using Py = PyBlockCache;
  nb::class_<Py> type(
      m, "BlockCache", nb::type_slots(cache_slots),
      "Prefix reuse for engines that address KV by blocks and find prefixes by chained hashes, as "
      "vLLM does. Options are those of BlockCacheOptions. A cache belongs to one thread at a "
      "time.\n\n"
      "A request: start(), match(), allocate(), the forward pass, checkpoint(); its append(), "
      "allocate() and checkpoint() for each further step; finish() at the end, or preempt() and "
      "match() again.\n\n"
      ">>> cache = pando.BlockCache(100, groups=[pando.BlockGroup(block_size=4)])\n"
      ">>> first = cache.start([1, 2, 3, 4, 5])\n"
      ">>> cache.allocate(first, 5)\n"
      ">>> cache.checkpoint(first, 5)\n"
      ">>> first.blocks()\n"
      "array([1, 2], dtype=uint32)\n"
      ">>> second = cache.start([1, 2, 3, 4, 6, 7])\n"
      ">>> found = cache.match(second)\n"
      ">>> found.length\n"
      "4\n"
      ">>> cache.allocate(second, 2, match=found)\n"
      ">>> second.blocks()\n"
      "array([1, 3], dtype=uint32)\n");
  type.def(
          "__init__", [](Py* self, const PyBlockCacheOptions& options) { new (self) Py(options); },
          nb::arg("options"))
      .def(
          "__init__",
          [](Py* self, std::size_t num_blocks, const nb::kwargs& fields) {
            const nb::object options = nb::type<PyBlockCacheOptions>()();
            options.attr("num_blocks") = num_blocks;
            set_fields(options, fields);
            new (self) Py(nb::cast<const PyBlockCacheOptions&>(options));
          },
          nb::arg("num_blocks"), nb::arg("fields"),
          nb::sig(keep_text(fmt::format("def __init__(self, num_blocks: int, *, {}) -> None",
                                        kBlockCacheFields))));
  bind_life(type);
  bind_tier_calls(type);
  bind_looking(type);
}

}  // namespace pando::python
