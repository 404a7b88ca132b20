// SPDX-License-Identifier: Apache-2.0
// BlockHasher: names of blocks by what is in them.
#include "pando/block_pool.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <utility>

#include "arrays.h"
#include "blocks.h"
#include "events.h"
#include "structs.h"

namespace pando::python {

namespace {

void set_function(BlockHashOptions& options, nb::handle function) {
  std::string name;
  if (nb::try_cast(function, options.function)) return;
  if (!nb::try_cast(function, name))
    raise_invalid(fmt::format("function: expected a HashFunction or its name, got {}",
                              nb::cast<std::string>(nb::repr(function))));
  options.function = unwrap(parse_hash_function(name));
}

void bind_hash(nb::module_& m) {
  Class<BlockHash>(m, "BlockHash")
      .def(
          "__init__",
          [](BlockHash* self, nb::bytes value, std::pair<std::uint64_t, std::uint64_t> check) {
            new (self) BlockHash{to_page_hash(value, "value"), {check.first, check.second}};
          },
          nb::arg("value"), nb::arg("check"))
      .def_prop_ro("value", [](const BlockHash& h) { return to_bytes(h.value); })
      .def_prop_ro(
          "check", [](const BlockHash& h) { return nb::make_tuple(h.check[0], h.check[1]); },
          nb::sig("def check(self) -> tuple[int, int]"))
      .def_equality()
      .def("__hash__", [](const BlockHash& h) { return h.check[0]; })
      .def("__repr__", [](const BlockHash& h) {
        std::string hex;
        for (std::size_t i = 0; i < 8; ++i) hex += fmt::format("{:02x}", h.value[i]);
        return fmt::format("BlockHash({}…)", hex);
      });
}

void bind_values(nb::module_& m) {
  Enum<HashFunction>(m, "HashFunction")
      .value("keyed", HashFunction::keyed)
      .value("sha256_cbor", HashFunction::sha256_cbor)
      .value("xxhash_cbor", HashFunction::xxhash_cbor)
      .value("sglang", HashFunction::sglang);
  bind_struct<MultimodalItem>(m, "MultimodalItem")
      .field("id", &MultimodalItem::id, "str")
      .field("offset", &MultimodalItem::offset, "int")
      .field("length", &MultimodalItem::length, "int")
      .constructible()
      .done();
  bind_struct<RequestKeys>(m, "RequestKeys")
      .field("lora", &RequestKeys::lora, "str")
      .field("salt", &RequestKeys::salt, "str")
      .field("items", &RequestKeys::items, "list[MultimodalItem]")
      .property(
          "prompt_embeds",
          [](const RequestKeys& k) {
            return nb::bytes(k.prompt_embeds.data(), k.prompt_embeds.size());
          },
          [](RequestKeys& k, nb::handle bytes) {
            const std::string given = from_text(bytes, "prompt_embeds");
            k.prompt_embeds.resize(given.size());
            if (!given.empty()) std::memcpy(k.prompt_embeds.data(), given.data(), given.size());
          },
          "bytes")
      .field("embed_bytes", &RequestKeys::embed_bytes, "int")
      .constructible()
      .done()
      .def("__bool__", [](const RequestKeys& k) { return !k.empty(); });
  bind_struct<BlockHashOptions>(m, "BlockHashOptions")
      .property(
          "function", [](const BlockHashOptions& o) { return o.function; }, set_function,
          "HashFunction")
      .property(
          "seed", [](const BlockHashOptions& o) { return o.seed ? to_text(*o.seed) : nb::none(); },
          [](BlockHashOptions& o, nb::handle seed) {
            if (seed.is_none())
              o.seed.reset();
            else
              o.seed = from_text(seed, "seed");
          },
          "str | None")
      .field("wide_check", &BlockHashOptions::wide_check, "bool")
      .constructible()
      .done();
}

std::vector<BlockHash> chain_of(nb::handle chain) {
  std::vector<BlockHash> hashes;
  if (chain.is_none()) return hashes;
  for (const nb::handle hash : chain) {
    if (!nb::isinstance<BlockHash>(hash))
      raise_invalid(fmt::format("chain: expected a list of BlockHash, got {} in it",
                                nb::cast<std::string>(nb::repr(hash))));
    hashes.push_back(nb::cast<const BlockHash&>(hash));
  }
  return hashes;
}

std::vector<BlockHash> extend(const BlockHasher& hasher, nb::handle tokens, const RequestKeys* keys,
                              std::vector<BlockHash> chain) {
  const Items<Token> items(tokens, "tokens");
  const RequestKeys none;
  const RequestKeys own = keys == nullptr ? none : *keys;
  unwrap(run(true, [&] { return hasher.extend(items.view(), own, chain); }));
  return chain;
}

}  // namespace

nb::list to_list(std::span<const BlockHash> hashes, std::size_t hash_bytes) {
  nb::list list;
  for (const BlockHash& hash : hashes) list.append(to_bytes(hash.value, hash_bytes));
  return list;
}

void bind_block_hash(nb::module_& m) {
  bind_hash(m);
  bind_values(m);
  def(
      m, "extra_keys",
      [](const RequestKeys& keys, std::size_t begin, std::size_t end) {
        unwrap(keys.validate());
        return to_list(extra_keys(keys, begin, end));
      },
      nb::arg("keys"), nb::arg("begin"), nb::arg("end"),
      nb::sig("def extra_keys(keys: RequestKeys, begin: int, end: int) -> list[str | ItemKey | "
              "bytes]"));
  Class<BlockHasher>(m, "BlockHasher")
      .def(
          "__init__",
          [](BlockHasher* self, std::size_t block_size, nb::handle function, nb::handle seed,
             bool wide_check) {
            BlockHashOptions options{.wide_check = wide_check};
            set_function(options, function);
            if (!seed.is_none()) options.seed = from_text(seed, "seed");
            new (self) BlockHasher(unwrap(BlockHasher::create(block_size, options)));
          },
          nb::arg("block_size"), nb::arg("function") = "keyed", nb::kw_only(),
          nb::arg("seed") = nb::none(), nb::arg("wide_check") = false,
          nb::sig("def __init__(self, block_size: int, function: HashFunction | str = 'keyed', *, "
                  "seed: str | bytes | None = None, wide_check: bool = False) -> None"))
      .def(
          "hash_blocks",
          [](const BlockHasher& self, TokensArg tokens, const RequestKeys* keys) {
            return to_list(extend(self, tokens.object, keys, {}), self.hash_bytes());
          },
          nb::arg("tokens"), nb::arg("keys").none() = nb::none(),
          nb::sig("def hash_blocks(self, tokens: numpy.typing.ArrayLike, keys: RequestKeys | None "
                  "= None) -> list[bytes]"))
      .def(
          "extend",
          [](const BlockHasher& self, TokensArg tokens, const RequestKeys* keys, nb::handle chain) {
            return extend(self, tokens.object, keys, chain_of(chain));
          },
          nb::arg("tokens"), nb::arg("keys").none() = nb::none(), nb::arg("chain") = nb::none(),
          nb::sig("def extend(self, tokens: numpy.typing.ArrayLike, keys: RequestKeys | None = "
                  "None, chain: collections.abc.Iterable[BlockHash] | None = None) -> "
                  "list[BlockHash]"))
      .def("may_alias", &BlockHasher::may_alias, nb::arg("keys"))
      .def_prop_ro("block_size", &BlockHasher::block_size)
      .def_prop_ro("function", &BlockHasher::function)
      .def_prop_ro("hash_bytes", &BlockHasher::hash_bytes)
      .def_prop_ro("is_shareable", &BlockHasher::is_shareable)
      .def_prop_ro("root", [](const BlockHasher& h) { return to_bytes(h.root(), h.hash_bytes()); });
}

}  // namespace pando::python
