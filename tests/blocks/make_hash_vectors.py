#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the vectors of hash_vectors.h with Python's own libraries, independently of Pando.

    pip install cbor2 xxhash
    tests/blocks/make_hash_vectors.py > tests/blocks/hash_vectors.h
"""
import hashlib
import struct

import cbor2
import xxhash

TOKENS = [(i * 7919 + 13) % 151936 for i in range(96)]
# Where the encoding of an integer changes its length.
EDGES = [0, 1, 22, 23, 24, 25, 254, 255, 256, 257, 65534, 65535, 65536, 65537, 2**31 - 2, 2**31 - 1]
EMBED_ROWS, EMBED_BYTES = 20, 6
EMBEDS = bytes((i * 37 + 5) % 256 for i in range(EMBED_ROWS * EMBED_BYTES))
ITEMS = [("image-a", 5, 30), ("image-b", 40, 8), ("sound", 48, 16)]


def cbor(value):
    return cbor2.dumps(value, canonical=True)


FUNCTIONS = {
    "sha256_cbor": lambda value: hashlib.sha256(cbor(value)).digest(),
    "xxhash_cbor": lambda value: xxhash.xxh3_128_digest(cbor(value)),
}


def extra_keys(start, end, lora=None, salt=None, items=(), embeds=None):
    keys = [lora] if lora else []
    keys += [(name, at - start) for name, at, n in items if at < end and at + n > start]
    keys += [salt] if salt and start == 0 else []
    if embeds is not None:
        rows = embeds[start * EMBED_BYTES:end * EMBED_BYTES]
        keys.append(hashlib.sha256(rows).digest())
    return tuple(keys) or None


def vllm_chain(name, tokens, block, seed, **request):
    function = FUNCTIONS[name]
    parent, chain = function(seed), []
    for start in range(0, len(tokens) // block * block, block):
        end = start + block
        parent = function((parent, tuple(tokens[start:end]), extra_keys(start, end, **request)))
        chain.append(parent)
    return chain


def sglang_chain(tokens, block, start=b"", items=(), embeds=None):
    parent, chain = start, []
    for at in range(0, len(tokens) // block * block, block):
        extra = extra_keys(at, at + block, items=items, embeds=embeds)
        if extra:
            parent = hashlib.sha256(b"pando-extra-keys-v1\0" + parent + cbor(extra)).digest()
        page = b"".join(struct.pack("<I", t) for t in tokens[at:at + block])
        parent = hashlib.sha256(parent + page).digest()
        chain.append(parent)
    return chain


def cases():
    requests = {
        "plain": {},
        "lora": {"lora": "adapter/one"},
        "salt": {"salt": "tenant-7"},
        "items": {"items": ITEMS},
        "embeds": {"embeds": EMBEDS},
        "all": {"lora": "l", "salt": "s\u00e4lt", "items": ITEMS, "embeds": EMBEDS},
    }
    for name in FUNCTIONS:
        for case, request in requests.items():
            yield name, case, 16, "tokens", "vllm-none-hash", vllm_chain(
                name, TOKENS, 16, "vllm-none-hash", **request)
        yield name, "plain", 16, "edges", "0", vllm_chain(name, EDGES, 16, "0")
        for block in (1, 24, 32):
            yield name, "plain", block, "tokens", "0", vllm_chain(name, TOKENS, block, "0")[:4]
    for block in (1, 16, 32):
        yield "sglang", "plain", block, "tokens", "", sglang_chain(TOKENS, block)[:4]
    salted = hashlib.sha256(b"sglang-cache-salt-v1\0tenant-7").digest()
    yield "sglang", "salt", 16, "tokens", "", sglang_chain(TOKENS, 16, salted)
    adapter = hashlib.sha256(b"pando-namespace-v1\0l11:adapter/one").digest()
    yield "sglang", "lora", 16, "tokens", "", sglang_chain(TOKENS, 16, adapter)
    yield "sglang", "items", 16, "tokens", "", sglang_chain(TOKENS, 16, items=ITEMS)
    yield "sglang", "embeds", 16, "tokens", "", sglang_chain(TOKENS, 16, embeds=EMBEDS)


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Hashes of blocks, computed by make_hash_vectors.py. Do not edit.")
    print("#pragma once\n\n#include <vector>\n\nnamespace pando::testing {\n")
    print("struct HashVector {\n  const char* function;\n  const char* request;\n"
          "  std::size_t block_size;\n  const char* tokens;\n  const char* seed;\n"
          "  std::vector<const char*> chain;\n};\n")
    print("// clang-format off\ninline const std::vector<HashVector> kHashVectors = {")
    for function, request, block, tokens, seed, chain in cases():
        print(f'    {{"{function}", "{request}", {block}, "{tokens}", "{seed}",\n     {{')
        for digest in chain:
            print(f'      "{digest.hex()}",')
        print("     }},")
    print("};\n// clang-format on\n\n}  // namespace pando::testing")


if __name__ == "__main__":
    main()
