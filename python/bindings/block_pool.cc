// SPDX-License-Identifier: Apache-2.0
// BlockPool: of Python's own, or a look at that of a BlockCache.
#include "pando/block_pool.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "arrays.h"
#include "blocks.h"
#include "events.h"
#include "structs.h"

namespace pando::python {

namespace {

/// BlockContent that owns what it points to.
struct PyBlockContent {
  std::uint32_t group = 0;
  BlockHash hash = {};
  std::vector<Token> tokens = {};
  bool alias = false;
};

PyBlockContent copy_of(const BlockContent& content, std::size_t block_size) {
  PyBlockContent copy{.group = content.group, .hash = *content.hash, .alias = content.alias};
  if (content.tokens != nullptr) copy.tokens.assign(content.tokens, content.tokens + block_size);
  return copy;
}

/// Calls one of them, if it is still there.
template <typename Make>
void tell(const nb::object& callback, const char* name, Make&& make) {
  const nb::gil_scoped_acquire gil;
  try {
    if (callback.is_valid()) callback(make());
  } catch (nb::python_error& error) {
    (void)contain(error, name);
  }
}

int traverse_pool(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<PyBlockPool>(self)->traverse(visit, arg) : 0;
}
int clear_pool(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyBlockPool>(self)->clear_cycles();
  return 0;
}
PyType_Slot pool_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_pool)},
                            {Py_tp_clear, reinterpret_cast<void*>(clear_pool)},
                            {0, nullptr}};

PageId block_arg(std::size_t block, std::size_t num_blocks) {
  if (block >= num_blocks)
    raise_invalid(fmt::format("block {}: expected 0 to {}", block, num_blocks - 1));
  return PageId{static_cast<std::uint32_t>(block)};
}

/// Content as arguments give it; the spans live as long as they do.
BlockContent content_arg(const PyBlockPool& pool, const BlockHash& hash, std::span<const Token> t,
                         std::uint32_t group, std::size_t num_blocks, bool alias) {
  const std::size_t expected = pool.block_size(group) * num_blocks;
  if (t.size() != expected)
    raise_invalid(fmt::format("tokens: expected {}, those of {} blocks of group {}; got {}",
                              expected, num_blocks, group, t.size()));
  return {.group = group, .hash = &hash, .tokens = t.data(), .alias = alias};
}

void bind_looking(nb::class_<PyBlockPool>& type) {
  using Py = PyBlockPool;
  type.def(
          "find",
          [](Py& self, const BlockHash& hash, TokensArg tokens,
             std::uint32_t group) -> std::optional<std::uint32_t> {
            const Items<Token> items(tokens.object, "tokens");
            const BlockContent content = content_arg(self, hash, items.view(), group, 1, false);
            const PageId found =
                self.look("find", [&](const BlockPool& p) { return p.find(content); });
            if (found == kNullBlock) return std::nullopt;
            return index_of(found);
          },
          nb::arg("hash"), nb::arg("tokens"), nb::kw_only(), nb::arg("group") = 0,
          "A block with this content, of several the oldest; None if there is none.")
      .def(
          "find_run",
          [](Py& self, const std::vector<BlockHash>& hashes, TokensArg tokens,
             std::uint32_t group) {
            const Items<Token> items(tokens.object, "tokens");
            std::vector<PageId> found(hashes.size());
            if (hashes.empty()) return to_numpy(std::span<const PageId>(found));
            const BlockContent content =
                content_arg(self, hashes[0], items.view(), group, hashes.size(), false);
            found.resize(self.look(
                "find_run", [&](const BlockPool& p) { return p.find_run(content, 1, found); }));
            return to_numpy(std::span<const PageId>(found));
          },
          nb::arg("hashes"), nb::arg("tokens"), nb::kw_only(), nb::arg("group") = 0,
          nb::sig("def find_run(self, hashes: collections.abc.Sequence[BlockHash], tokens: "
                  "numpy.typing.ArrayLike, *, group: int = 0) -> "
                  "numpy.typing.NDArray[numpy.uint32]"),
          "Blocks that follow each other, up to the first that is not there.")
      .def(
          "has_content",
          [](Py& self, std::size_t block) {
            return self.look("has_content", [&](const BlockPool& p) {
              return p.has_content(block_arg(block, p.num_blocks()));
            });
          },
          nb::arg("block"))
      .def(
          "content",
          [](Py& self, std::size_t block) {
            return self.look("content", [&](const BlockPool& p) {
              const PageId id = block_arg(block, p.num_blocks());
              if (!p.has_content(id)) raise_invalid(fmt::format("block {} has no content", block));
              const BlockContent content = p.content(id);
              return copy_of(content, self.block_size(content.group));
            });
          },
          nb::arg("block"), "Only of a block that has one.")
      .def(
          "has_twin",
          [](Py& self, std::size_t block) {
            return self.look("has_twin", [&](const BlockPool& p) {
              const PageId id = block_arg(block, p.num_blocks());
              return p.has_content(id) && p.has_twin(id);
            });
          },
          nb::arg("block"), "Another one has the same content.")
      .def(
          "num_holders",
          [](Py& self, std::size_t block) {
            return self.look("num_holders", [&](const BlockPool& p) {
              return p.num_holders(block_arg(block, p.num_blocks()));
            });
          },
          nb::arg("block"))
      .def(
          "free_blocks",
          [](Py& self) {
            const std::vector<PageId> blocks =
                self.look("free_blocks", [](const BlockPool& p) { return p.free_blocks(); });
            return to_numpy(std::span<const PageId>(blocks));
          },
          nb::sig("def free_blocks(self) -> numpy.typing.NDArray[numpy.uint32]"),
          "The free blocks, the next to be taken first. O(free).")
      .def(
          "sizes",
          [](Py& self, std::uint32_t group) {
            (void)self.block_size(group);
            return self.look("sizes", [&](const BlockPool& p) { return p.sizes(group); });
          },
          nb::arg("group") = 0, nb::sig("def sizes(self, group: int = 0) -> Sizes"),
          "What is found, in tokens of a group.")
      .def(
          "check",
          [](Py& self) { self.look("check", [](const BlockPool& p) { unwrap(p.check()); }); },
          "Proves that queue, holders, contents and counts agree. O(blocks).");
  const auto number = [&](const char* name, auto getter, const char* doc) {
    type.def_prop_ro(
        name,
        [name, getter](Py& self) {
          return self.look(name, [&](const BlockPool& p) { return (p.*getter)(); });
        },
        doc);
  };
  number("num_blocks", &BlockPool::num_blocks, "With the null block.");
  number("num_free", &BlockPool::num_free, "");
  number("usage", &BlockPool::usage, "Share of the blocks, the null block left out, that is held.");
  number("collisions", &BlockPool::collisions, "Times that a hash agreed and the content did not.");
  number("memory_bytes", &BlockPool::memory_bytes, "");
}

void bind_changing(nb::class_<PyBlockPool>& type) {
  using Py = PyBlockPool;
  const auto of_blocks = [&](const char* name, auto method, const char* doc) {
    type.def(
        name,
        [name, method](Py& self, TokensArg blocks) {
          const Items<PageId> items(blocks.object, "blocks");
          self.change(name, [&](BlockPool& p) { (p.*method)(items.view()); });
        },
        nb::arg("blocks"), doc);
  };
  of_blocks("touch", &BlockPool::touch,
            "Holds blocks: free ones leave the queue. Null blocks are passed over.");
  of_blocks("free", &BlockPool::free,
            "Lets go. Give the blocks of a request from its end, so that its tail is taken before "
            "its head.");
  of_blocks("forget", &BlockPool::forget,
            "Forgets what blocks contain; whoever holds them goes on.");
  type.def(
          "take",
          [](Py& self, std::size_t num_blocks) {
            std::vector<PageId> blocks;
            self.change("take", [&](BlockPool& p) {
              if (num_blocks <= p.num_free()) blocks.resize(num_blocks);
              const std::span<PageId> out =
                  blocks.size() == num_blocks
                      ? std::span(blocks)
                      : std::span<PageId>(static_cast<PageId*>(nullptr), num_blocks);
              unwrap(p.take(out));
            });
            return to_numpy(std::span<const PageId>(blocks));
          },
          nb::arg("num_blocks"),
          nb::sig("def take(self, num_blocks: int) -> numpy.typing.NDArray[numpy.uint32]"),
          "Takes new blocks from the front of the queue, all or nothing, and holds them. What they "
          "contained is forgotten.")
      .def(
          "cache",
          [](Py& self, std::size_t block, const BlockHash& hash, TokensArg tokens,
             std::uint32_t group, bool alias) {
            const Items<Token> items(tokens.object, "tokens");
            const BlockContent content = content_arg(self, hash, items.view(), group, 1, alias);
            return self.change("cache", [&](BlockPool& p) {
              const PageId id = block_arg(block, p.num_blocks());
              if (p.has_content(id))
                raise_invalid(fmt::format("block {} has content already", block));
              return p.cache(id, content);
            });
          },
          nb::arg("block"), nb::arg("hash"), nb::arg("tokens"), nb::kw_only(), nb::arg("group") = 0,
          nb::arg("alias") = false, "A held block is full from now on. False: it is not kept.")
      .def(
          "reset", [](Py& self) { self.change("reset", [](BlockPool& p) { unwrap(p.reset()); }); },
          "Forgets everything; refused while a block is held.");
}

}  // namespace

PyBlockPool::PyBlockPool(std::unique_ptr<BlockPool> pool, std::shared_ptr<PoolCallbacks> callbacks)
    : callbacks_(std::move(callbacks)),
      own_(std::move(pool)),
      pool_(own_.get()),
      guard_(std::make_shared<Guard>()) {}
PyBlockPool::PyBlockPool(const BlockPool& pool, nb::object owner, SharedGuard guard)
    : owner_(std::move(owner)), pool_(&pool), guard_(std::move(guard)) {}

void PyBlockPool::require_own(const char* name) const {
  if (!own_)
    raise({ErrorCode::unavailable,
           fmt::format("{}: this pool is a cache's, and changes only through it", name)});
}

int PyBlockPool::traverse(visitproc visit, void* arg) const {
  Py_VISIT(owner_.ptr());
  if (!callbacks_) return 0;
  Py_VISIT(callbacks_->on_evict.ptr());
  Py_VISIT(callbacks_->on_gone.ptr());
  return 0;
}

void PyBlockPool::clear_cycles() {
  if (callbacks_) *callbacks_ = {};
}

std::size_t PyBlockPool::block_size(std::uint32_t group) const {
  if (group >= block_sizes.size())
    raise_invalid(fmt::format("group {}: expected 0 to {}", group, block_sizes.size() - 1));
  return block_sizes[group];
}

void bind_block_pool(nb::module_& m) {
  m.attr("NULL_BLOCK") = index_of(kNullBlock);
  nb::class_<PyBlockContent>(m, "BlockContent", "What a full block is found by.")
      .def_ro("group", &PyBlockContent::group)
      .def_ro("hash", &PyBlockContent::hash)
      .def_prop_ro(
          "tokens",
          [](const PyBlockContent& c) { return to_numpy(std::span<const Token>(c.tokens)); },
          nb::sig("def tokens(self) -> numpy.typing.NDArray[numpy.int32]"),
          "Empty where the pool keeps no tokens.")
      .def_ro("alias", &PyBlockContent::alias);
  using Py = PyBlockPool;
  nb::class_<Py> type(
      m, "BlockPool", nb::type_slots(pool_slots),
      "Blocks of KV by number: who holds them, what the full ones contain, and in which order the "
      "free ones are taken. What BlockCache stands on; an engine with a scheduler of its own may "
      "use it alone. Block 0 stands for what is not there.\n\n"
      ">>> hasher = pando.BlockHasher(4)\n"
      ">>> pool = pando.BlockPool(8, block_sizes=[4])\n"
      ">>> block = pool.take(1)\n"
      ">>> hash = hasher.extend([1, 2, 3, 4])[0]\n"
      ">>> pool.cache(block[0], hash, [1, 2, 3, 4])\n"
      "True\n"
      ">>> pool.free(block)\n"
      ">>> pool.find(hash, [1, 2, 3, 4])\n"
      "1\n");
  type.def(
      "__init__",
      [](Py* self, std::size_t num_blocks, std::vector<std::size_t> block_sizes, bool caching,
         bool keep_tokens, bool deduplicate, nb::handle on_evict, nb::handle on_gone) {
        BlockPoolOptions options{.num_blocks = num_blocks,
                                 .block_sizes = block_sizes,
                                 .caching = caching,
                                 .keep_tokens = keep_tokens,
                                 .deduplicate = deduplicate};
        const auto told = std::make_shared<PoolCallbacks>();
        if (!on_evict.is_none()) {
          told->on_evict = nb::borrow(on_evict);
          options.on_evict = [told](std::span<const PageId> blocks) {
            tell(told->on_evict, "BlockPool.on_evict", [&] { return to_numpy(blocks); });
          };
        }
        if (!on_gone.is_none()) {
          told->on_gone = nb::borrow(on_gone);
          options.on_gone = [told, sizes = block_sizes](const BlockContent& content) {
            tell(told->on_gone, "BlockPool.on_gone",
                 [&] { return nb::cast(copy_of(content, sizes[content.group])); });
          };
        }
        new (self) Py(unwrap(BlockPool::create(std::move(options))), told);
        self->block_sizes = std::move(block_sizes);
      },
      nb::arg("num_blocks"), nb::kw_only(), nb::arg("block_sizes") = std::vector<std::size_t>{16},
      nb::arg("caching") = true, nb::arg("keep_tokens") = true, nb::arg("deduplicate") = false,
      nb::arg("on_evict") = nb::none(), nb::arg("on_gone") = nb::none(),
      nb::sig("def __init__(self, num_blocks: int, *, block_sizes: collections.abc.Sequence[int] = "
              "(16,), caching: bool = True, keep_tokens: bool = True, deduplicate: bool = False, "
              "on_evict: collections.abc.Callable[[numpy.typing.NDArray[numpy.uint32]], object] | "
              "None = None, on_gone: collections.abc.Callable[[BlockContent], object] | None = "
              "None) -> None"),
      "`block_sizes`: tokens of a block, by group. `on_evict` is told of blocks that are about to "
      "lose their content, while content() still gives it; then `on_gone`, one by one, of content "
      "that no other block has.");
  bind_looking(type);
  bind_changing(type);
}

}  // namespace pando::python
