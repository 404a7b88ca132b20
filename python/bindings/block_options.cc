// SPDX-License-Identifier: Apache-2.0
// Options of a BlockCache, and what its calls give.
#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "blocks.h"
#include "events.h"
#include "structs.h"

namespace pando::python {

namespace {

template <auto kMember>
struct MemberOf;
template <typename Class, typename T, T Class::*kMember>
struct MemberOf<kMember> {
  using Type = T;
};

/// A field of the library's struct that is inside one of ours.
template <auto kMember, typename Owner>
void plain_field(StructBinder<Owner>& type, const char* name, const char* python_type,
                 const char* doc = "") {
  using Type = typename MemberOf<kMember>::Type;
  type.property(
      name, [](const Owner& owner) { return owner.plain.*kMember; },
      [](Owner& owner, Type value) { owner.plain.*kMember = value; }, python_type, doc);
}

void set_hash(PyBlockCacheOptions& options, nb::handle hash) {
  if (nb::isinstance<BlockHashOptions>(hash)) {
    options.plain.hash = nb::cast<const BlockHashOptions&>(hash);
    return;
  }
  const nb::object of_function = nb::type<BlockHashOptions>()();
  of_function.attr("function") = hash;
  options.plain.hash = nb::cast<const BlockHashOptions&>(of_function);
}

void bind_options(nb::module_& m) {
  nb::enum_<GroupKind>(m, "GroupKind",
                       "Which blocks layers need to compute the token at position n.")
      .value("full", GroupKind::full, "All before it.")
      .value("sliding_window", GroupKind::sliding_window, "Those with the last span - 1 tokens.")
      .value("chunked_local", GroupKind::chunked_local,
             "Those of its chunk: chunks are `span` tokens from the start on.")
      .value("recurrent", GroupKind::recurrent, "The last one: it holds the state at its end.");
  using Group = PyBlockGroup;
  bind_struct<Group>(m, "BlockGroup",
                     "Layers with a block size and a rule about which blocks they need.\n\n"
                     ">>> pando.BlockGroup(kind=pando.GroupKind.sliding_window, span=4096).span\n"
                     "4096\n")
      .field("kind", &Group::kind, "GroupKind")
      .field("block_size", &Group::block_size, "int", "In tokens.")
      .field("span", &Group::span, "int", "Of a window or chunk: tokens.")
      .field("every_state", &Group::every_state, "bool",
             "Recurrent: the engine leaves the state at the end of every block.")
      .field("pools", &Group::pools, "TierPools | None",
             "With a host tier: the bytes of the group's layers. Block b is page b of the device "
             "pool.")
      .constructible()
      .done();
  using Host = PyBlockHostOptions;
  StructBinder<Host> host(m, "BlockHostOptions", "What the device forgets goes on in host memory.");
  host.field("copier", &Host::copier, "Copier | None");
  plain_field<&BlockHostOptions::write_policy>(host, "write_policy", "WritePolicy");
  plain_field<&BlockHostOptions::load_back_threshold>(
      host, "load_back_threshold", "int", "Fewer tokens are sooner computed than loaded.");
  plain_field<&BlockHostOptions::cost_gate>(host, "cost_gate", "CostGateOptions | None",
                                            "Turns down loads and fetches that take longer than "
                                            "computing; needs report_prefill().");
  plain_field<&BlockHostOptions::backup_stream>(host, "backup_stream", "int", "Of the copier.");
  plain_field<&BlockHostOptions::load_stream>(host, "load_stream", "int");
  host.constructible().done();
}

/// The signature of the cache's constructor is that of its options.

void bind_cache_options(nb::module_& m) {
  using Options = PyBlockCacheOptions;
  using Plain = BlockCacheOptions;
  StructBinder<Options> type(m, "BlockCacheOptions", "See BlockCache, which takes the same names.");
  plain_field<&Plain::num_blocks>(type, "num_blocks", "int",
                                  "Of all groups, the null block among them.");
  type.field("groups", &Options::groups, "list[BlockGroup]", "A copy: assign a list to change it.");
  type.property(
      "hash", [](const Options& o) { return o.plain.hash; }, set_hash, "BlockHashOptions",
      "What names blocks.", "BlockHashOptions | HashFunction | str");
  plain_field<&Plain::caching>(type, "caching", "bool",
                               "Else every request is computed from its start.");
  plain_field<&Plain::keep_tokens>(type, "keep_tokens", "bool",
                                   "Compare tokens on a hit, not only two hashes.");
  plain_field<&Plain::deduplicate>(type, "deduplicate", "bool",
                                   "Of blocks with equal content only the first is found.");
  plain_field<&Plain::policy>(type, "policy", "str",
                              "Which blocks go first: \"lru\", or \"hazard\", which learns when "
                              "prefixes come back.");
  plain_field<&Plain::events>(type, "events", "bool", "Record KV events.");
  plain_field<&Plain::recompute_last_block>(
      type, "recompute_last_block", "bool",
      "A hit leaves out the last block that it could have, for drafters (EAGLE).");
  plain_field<&Plain::max_tokens>(type, "max_tokens", "int",
                                  "That a request may have, lookahead included.");
  type.property(
      "host", [](const Options& o) { return o.host; },
      [](Options& o, nb::handle host) {
        if (!host.is_none() && !nb::isinstance<PyBlockHostOptions>(host))
          raise_invalid(fmt::format("host: expected BlockHostOptions or None, got {}",
                                    nb::cast<std::string>(nb::repr(host))));
        o.host = nb::borrow(host);
      },
      "BlockHostOptions | None");
  type.field("observer", &Options::observer, "object | None",
             "Metrics, a TraceRecorder, any object with some of their methods, or a list.");
  type.field("ranks", &Options::ranks, "pando.protocols.Ranks | None",
             "Others that mirror this cache.");
  type.constructible().done();
}

void bind_results(nb::module_& m) {
  nb::class_<BlockMatch>(m, "BlockMatch",
                         "What match() found. Nobody may hold these blocks, so use it "
                         "before the next call that takes blocks: it is looked up again, and "
                         "what has gone since is StaleHandle.\n\n"
                         ">>> cache = pando.BlockCache(8)\n"
                         ">>> cache.match(cache.start(range(40)))\n"
                         "BlockMatch(length=0, host_length=0)\n")
      .def(
          "__init__",
          [](BlockMatch* self, std::size_t length, std::size_t host_length) {
            new (self) BlockMatch{.length = length, .host_length = host_length};
          },
          nb::arg("length") = 0, nb::arg("host_length") = 0,
          "The part of what was found that a request is to start from; allocate() needs no more.")
      .def_ro("length", &BlockMatch::length, "Tokens on the device.")
      .def_ro("host_length", &BlockMatch::host_length,
              "So many more if allocate() loads them from the host.")
      .def_prop_ro(
          "blocks",
          [](const BlockMatch& c) {
            nb::list groups;
            for (const std::vector<PageId>& blocks : c.blocks)
              groups.append(to_numpy(std::span<const PageId>(blocks)));
            return groups;
          },
          nb::sig("def blocks(self) -> list[numpy.typing.NDArray[numpy.uint32]]"),
          "Of `length` tokens, by group.")
      .def("__repr__", [](const BlockMatch& c) {
        return fmt::format("BlockMatch(length={}, host_length={})", c.length, c.host_length);
      });
  bind_struct<BlockCacheStats>(m, "BlockCacheStats",
                               "Totals since creation, in tokens unless said otherwise.")
      .field("queries", &BlockCacheStats::queries, "int", "Calls of match().")
      .field("queried_tokens", &BlockCacheStats::queried_tokens, "int")
      .field("hit_tokens", &BlockCacheStats::hit_tokens, "int", "On the device.")
      .field("host_hit_tokens", &BlockCacheStats::host_hit_tokens, "int")
      .field("cached_blocks", &BlockCacheStats::cached_blocks, "int", "Blocks.")
      .field("evicted_blocks", &BlockCacheStats::evicted_blocks, "int",
             "Blocks that lost their content.")
      .field("preemptions", &BlockCacheStats::preemptions, "int")
      .done();
}

}  // namespace

BlockCacheOptions to_plain(const PyBlockCacheOptions& options, Kept& kept, const SharedGuard& guard,
                           CacheObserver* observer) {
  BlockCacheOptions plain = options.plain;
  plain.groups.clear();
  for (const PyBlockGroup& group : options.groups)
    plain.groups.push_back({.kind = group.kind,
                            .block_size = group.block_size,
                            .span = group.span,
                            .every_state = group.every_state,
                            .pools = to_tier_pools(group.pools, kept, guard)});
  if (!options.host.is_none()) {
    const auto& host = nb::cast<const PyBlockHostOptions&>(options.host);
    plain.host = host.plain;
    plain.host->copier = to_copier(host.copier, kept);
  }
  plain.observer = observer;
  return plain;
}

void bind_block_options(nb::module_& m) {
  bind_options(m);
  bind_cache_options(m);
  bind_results(m);
}

}  // namespace pando::python
