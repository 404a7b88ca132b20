// SPDX-License-Identifier: Apache-2.0
#include "slot_cache.h"

#include "pando/slot_cache.h"

#include <nanobind/stl/optional.h>

#include <optional>
#include <utility>
#include <vector>

#include "allocators.h"
#include "arrays.h"
#include "pools.h"
#include "structs.h"

namespace pando::python {

namespace {

/// On the guard of its allocator: each tells the other of slots that change hands.
class PySlotCache {
 public:
  PySlotCache(nb::handle allocator, SlotCacheOptions options, PyKvPool* pool, PyCopier* copier)
      : guard_(nb::cast<PySlotAllocator&>(allocator).guard), copier_(copier) {
    kept_.push_back(nb::borrow(allocator));
    if (pool != nullptr) {
      pool_ = pool->pool;
      options.pool = pool_.get();
    }
    if (copier != nullptr) {
      kept_.push_back(nb::find(*copier));
      options.copier = copier->copier.get();
    }
    auto& slots = nb::cast<PySlotAllocator&>(allocator);
    object_ = slots.call("SlotCache",
                         [&](SlotAllocator& s) { return unwrap(SlotCache::create(options, s)); });
  }

  template <typename Work>
  decltype(auto) call(const char* name, Work&& work) {
    const Entry entry(*guard_, name);
    return work(*object_);
  }
  /// The copier holds the pool until the copy has ended, whatever goes before.
  PyTransfer copy_kv(const Key& key, std::size_t target) {
    return call("copy_kv", [&](SlotCache& cache) {
      Transfer copy = unwrap(cache.copy_kv(key, target));
      copier_->under_way->add({copy, pool_, nullptr});
      return PyTransfer{std::move(copy), copier_->under_way, pool_};
    });
  }

 private:
  SharedGuard guard_;
  Kept kept_;
  std::shared_ptr<KvPool> pool_;
  PyCopier* copier_;
  std::unique_ptr<SlotCache> object_;
};

/// Calls `work` with the key that these arguments are.
template <typename Work>
decltype(auto) with_key(TokensArg tokens, NamespaceArg ns, Work&& work) {
  const Items<Token> items(tokens.object, "tokens");
  return work(Key{items.view(), ns.view()});
}

void bind_structs(nb::module_& m) {
  bind_struct<SlotMatch>(
      m, "SlotMatch",
      "A slot that holds the first `length` tokens of a key. SlotCache.find() gives "
      "them.\n\n"
      ">>> pando.SlotMatch(length=3, slot=1).free\n"
      "False\n")
      .field("length", &SlotMatch::length, "int")
      .field("slot", &SlotMatch::slot, "int")
      .field("version", &SlotMatch::version, "int", "Of the slot, as the allocator counts.")
      .field("edition", &SlotMatch::edition, "int",
             "The cache's own: rises whenever less is known of the slot.")
      .field("free", &SlotMatch::free, "bool", "occupy() would take it.")
      .constructible()
      .done();
  bind_struct<SlotCacheStats>(m, "SlotCacheStats", "What a SlotCache holds, and has forgotten.")
      .field("num_nodes", &SlotCacheStats::num_nodes, "int")
      .field("num_sequences", &SlotCacheStats::num_sequences, "int",
             "Slots of which something is known.")
      .field("num_pinned", &SlotCacheStats::num_pinned, "int", "Different prefixes.")
      .field("num_copies", &SlotCacheStats::num_copies, "int", "Not yet seen to have finished.")
      .field("evictions", &SlotCacheStats::evictions, "int",
             "Of nodes, because there were too many.")
      .field("nodes_over", &SlotCacheStats::nodes_over, "int",
             "Beyond max_nodes, because all leaves are pinned.")
      .done();
}

}  // namespace

void bind_slot_cache(nb::module_& m) {
  bind_structs(m);
  using Py = PySlotCache;
  nb::class_<Py>(
      m, "SlotCache",
      "For engines that keep each sequence in one contiguous slot: which slot holds the longest "
      "prefix of a prompt, whether it can be continued there, and which slot to give to a new "
      "sequence. It belongs to the thread of its allocator.\n\n"
      ">>> slots = pando.SlotAllocator(4)\n"
      ">>> cache = pando.SlotCache(slots, slot_tokens=1024)\n"
      ">>> slot = cache.take()\n"
      ">>> cache.insert([1, 2, 3], slot)\n"
      ">>> cache.free(slot)\n"
      ">>> match = cache.find([1, 2, 3, 4])\n"
      ">>> match.length, match.slot, match.free\n"
      "(3, 0, True)\n"
      ">>> cache.occupy(match)  # and compute from token 3 on\n")
      .def(
          "__init__",
          [](Py* self, PySlotAllocator& slots, std::size_t slot_tokens, std::size_t max_nodes,
             PyKvPool* pool, PyCopier* copier, std::size_t copy_stream,
             std::optional<std::uint64_t> hash_seed) {
            new (self) Py(nb::find(slots),
                          {.slot_tokens = slot_tokens,
                           .max_nodes = max_nodes,
                           .copy_stream = copy_stream,
                           .hash_seed = hash_seed},
                          pool, copier);
          },
          nb::arg("slots"), nb::arg("slot_tokens"), nb::kw_only(),
          nb::arg("max_nodes") = SlotCacheOptions{}.max_nodes, nb::arg("pool").none() = nb::none(),
          nb::arg("copier").none() = nb::none(), nb::arg("copy_stream") = 0,
          nb::arg("hash_seed") = nb::none(),
          nb::sig("def __init__(self, slots: SlotAllocator, slot_tokens: int, *, max_nodes: int = "
                  "1000, pool: KvPool | None = None, copier: Copier | None = None, copy_stream: "
                  "int = 0, hash_seed: int | None = None) -> None"),
          "`pool` and `copier` are for copy_kv(), both or neither: slot s is page s + 1.")
      .def(
          "insert",
          [](Py& self, TokensArg tokens, std::size_t slot, NamespaceArg ns) {
            with_key(tokens, ns, [&](const Key& key) {
              self.call("insert", [&](SlotCache& c) { unwrap(c.insert(key, slot)); });
            });
          },
          nb::arg("tokens"), nb::arg("slot"), nb::arg("ns") = "",
          "The slot holds the KV of exactly these tokens now. What was known of it is replaced.")
      .def(
          "find",
          [](Py& self, TokensArg tokens, NamespaceArg ns) {
            return with_key(tokens, ns, [&](const Key& key) {
              return self.call("find", [&](SlotCache& c) { return unwrap(c.find(key)); });
            });
          },
          nb::arg("tokens"), nb::arg("ns") = "",
          "The longest prefix, to the token, that some slot holds; None if there is none. Of slots "
          "that hold as much, a free one. Counts as a use.")
      .def(
          "probe",
          [](Py& self, TokensArg tokens, NamespaceArg ns) {
            return with_key(tokens, ns, [&](const Key& key) {
              return self.call("probe", [&](SlotCache& c) { return unwrap(c.probe(key)); });
            });
          },
          nb::arg("tokens"), nb::arg("ns") = "", "The same, and nothing changes.")
      .def(
          "take", [](Py& self) { return self.call("take", [](SlotCache& c) { return c.take(); }); },
          "A slot for a new sequence: the lowest free one that holds nothing known, else the one "
          "whose sequence has not been used for longest. None when no slot can be given.")
      .def(
          "occupy",
          [](Py& self, const SlotMatch& match) {
            self.call("occupy", [&](SlotCache& c) { unwrap(c.occupy(match)); });
          },
          nb::arg("match"),
          "Takes the matched slot to continue in it behind the first match.length tokens: all else "
          "that it held is forgotten.")
      .def(
          "free",
          [](Py& self, std::size_t slot) {
            self.call("free", [&](SlotCache& c) { c.free(slot); });
          },
          nb::arg("slot"), "Gives back a taken slot. What it holds can still be found.")
      .def(
          "pin",
          [](Py& self, TokensArg tokens, NamespaceArg ns) {
            with_key(tokens, ns, [&](const Key& key) {
              self.call("pin", [&](SlotCache& c) { unwrap(c.pin(key)); });
            });
          },
          nb::arg("tokens"), nb::arg("ns") = "",
          "Keeps this prefix, and one slot that holds it. Counted. NotFound unless a slot holds "
          "all "
          "of it.")
      .def(
          "release",
          [](Py& self, TokensArg tokens, NamespaceArg ns) {
            with_key(tokens, ns, [&](const Key& key) {
              self.call("release", [&](SlotCache& c) { unwrap(c.release(key)); });
            });
          },
          nb::arg("tokens"), nb::arg("ns") = "", "Undoes one pin of the same tokens.")
      .def(
          "copy_kv",
          [](Py& self, TokensArg tokens, std::size_t target, NamespaceArg ns) {
            return with_key(tokens, ns, [&](const Key& key) { return self.copy_kv(key, target); });
          },
          nb::arg("tokens"), nb::arg("target"), nb::arg("ns") = "",
          nb::sig("def copy_kv(self, tokens: numpy.typing.ArrayLike, target: int, ns: str | bytes "
                  "= '') -> Transfer"),
          "Copies the KV of these tokens, which some slot must hold, to the beginning of another, "
          "taken slot; insert() when the copy is done.")
      .def(
          "clear", [](Py& self) { self.call("clear", [](SlotCache& c) { unwrap(c.clear()); }); },
          "Forgets everything; InUse while something is pinned.")
      .def_prop_ro(
          "stats",
          [](Py& self) { return self.call("stats", [](SlotCache& c) { return c.stats(); }); })
      .def_prop_ro(
          "memory_bytes",
          [](Py& self) {
            return self.call("memory_bytes", [](SlotCache& c) { return c.memory_bytes(); });
          },
          "All bookkeeping.")
      .def("dump",
           [](Py& self) { return self.call("dump", [](SlotCache& c) { return c.dump(); }); })
      .def(
          "check", [](Py& self) { self.call("check", [](SlotCache& c) { unwrap(c.check()); }); },
          "Proves every invariant; O(tree).");
}

}  // namespace pando::python
