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
  bind_struct<SlotMatch>(m, "SlotMatch")
      .field("length", &SlotMatch::length, "int")
      .field("slot", &SlotMatch::slot, "int")
      .field("version", &SlotMatch::version, "int")
      .field("edition", &SlotMatch::edition, "int")
      .field("free", &SlotMatch::free, "bool")
      .constructible()
      .done();
  bind_struct<SlotCacheStats>(m, "SlotCacheStats")
      .field("num_nodes", &SlotCacheStats::num_nodes, "int")
      .field("num_sequences", &SlotCacheStats::num_sequences, "int")
      .field("num_pinned", &SlotCacheStats::num_pinned, "int")
      .field("num_copies", &SlotCacheStats::num_copies, "int")
      .field("evictions", &SlotCacheStats::evictions, "int")
      .field("nodes_over", &SlotCacheStats::nodes_over, "int")
      .done();
}

/// A call with nothing but a key.
template <auto method>
void def_keyed(Class<PySlotCache>& type, Member<PySlotCache> member) {
  type.def(
      member,
      [name = member.name](PySlotCache& self, TokensArg tokens, NamespaceArg ns) {
        return with_key(tokens, ns, [&](const Key& key) {
          return self.call(name, [&](SlotCache& c) { return unwrap((c.*method)(key)); });
        });
      },
      nb::arg("tokens"), nb::arg("ns") = "");
}

void bind_keyed(Class<PySlotCache>& type) {
  using Py = PySlotCache;
  type.def(
          "insert",
          [](Py& self, TokensArg tokens, std::size_t slot, NamespaceArg ns) {
            with_key(tokens, ns, [&](const Key& key) {
              self.call("insert", [&](SlotCache& c) { unwrap(c.insert(key, slot)); });
            });
          },
          nb::arg("tokens"), nb::arg("slot"), nb::arg("ns") = "")
      .def(
          "copy_kv",
          [](Py& self, TokensArg tokens, std::size_t target, NamespaceArg ns) {
            return with_key(tokens, ns, [&](const Key& key) { return self.copy_kv(key, target); });
          },
          nb::arg("tokens"), nb::arg("target"), nb::arg("ns") = "",
          nb::sig("def copy_kv(self, tokens: numpy.typing.ArrayLike, target: int, ns: str | bytes "
                  "= '') -> Transfer"));
  def_keyed<&SlotCache::find>(type, "find");
  def_keyed<&SlotCache::probe>(type, "probe");
  def_keyed<&SlotCache::pin>(type, "pin");
  def_keyed<&SlotCache::release>(type, "release");
}

}  // namespace

void bind_slot_cache(nb::module_& m) {
  bind_structs(m);
  using Py = PySlotCache;
  Class<Py> type(m, "SlotCache");
  bind_keyed(type);
  type.def(
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
                  "int = 0, hash_seed: int | None = None) -> None"))
      .def_guarded<&SlotCache::take>("take")
      .def_guarded<&SlotCache::occupy>("occupy", nb::arg("match"))
      .def_guarded<&SlotCache::free>("free", nb::arg("slot"))
      .def_guarded<&SlotCache::clear>("clear")
      .def_guarded_ro<&SlotCache::stats>("stats")
      .def_guarded_ro<&SlotCache::memory_bytes>("memory_bytes")
      .def_guarded<&SlotCache::dump>("dump")
      .def_guarded<&SlotCache::check>("check");
}

}  // namespace pando::python
