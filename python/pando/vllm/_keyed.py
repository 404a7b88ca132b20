# SPDX-License-Identifier: Apache-2.0
"""Blocks that are found by whatever bytes an engine names them with.

A thin layer over :class:`pando.BlockPool`, which wants hashes of 32 bytes and a second one. Block
numbers here are the pool's: 0 is the null block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence

import pando

_VALUE_BYTES = 32
_TOKENS = (0,)  # contents are told apart by their keys alone


def _hash_of(key: bytes) -> pando.BlockHash:
    """Equal for equal keys only (up to SHA-256, for keys of more than 32 bytes)."""
    digest = hashlib.blake2b(key, digest_size=16).digest()
    value = key if len(key) <= _VALUE_BYTES else hashlib.sha256(key).digest()
    check = (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))
    return pando.BlockHash(value, check)


class KeyedBlocks:
    """Who holds which block, which keys the full ones have, and which free one goes next.

    ``on_gone`` is told of keys that no block has any more.
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        caching: bool = True,
        on_gone: Callable[[list[bytes]], None] | None = None,
    ) -> None:
        self._keys: list[bytes | None] = [None] * num_blocks
        self._on_gone = on_gone
        self.pool = pando.BlockPool(
            num_blocks, block_sizes=[1], caching=caching, keep_tokens=False
        )

    def find(self, key: bytes) -> int | None:
        return self.pool.find(_hash_of(key), _TOKENS)

    def key_of(self, block: int) -> bytes | None:
        return self._keys[block]

    def set_key(self, block: int, key: bytes) -> bool:
        """A held block is full from now on. True if it is the first with this key."""
        hash = _hash_of(key)
        first = self.pool.find(hash, _TOKENS) is None
        if not self.pool.cache(block, hash, _TOKENS):
            return False
        self._keys[block] = key
        return first

    def take(self, num_blocks: int) -> list[int]:
        """New blocks, all or nothing; what they contained is forgotten."""
        blocks = [int(block) for block in self.pool.take(num_blocks)]
        self._drop(blocks)
        return blocks

    def touch(self, blocks: Sequence[int]) -> None:
        self.pool.touch(list(blocks))

    def free(self, blocks: Sequence[int]) -> None:
        self.pool.free(list(blocks))

    def forget(self, blocks: Iterable[int]) -> None:
        named = [block for block in dict.fromkeys(blocks) if self._keys[block] is not None]
        self.pool.forget(named)
        self._drop(named)

    def reset(self) -> None:
        """Forgets everything; pando.InUse while a block is held. ``on_gone`` is not told."""
        self.pool.reset()
        self._keys = [None] * len(self._keys)

    def _drop(self, blocks: Iterable[int]) -> None:
        gone: list[bytes] = []
        for block in blocks:
            key = self._keys[block]
            if key is None:
                continue
            self._keys[block] = None
            if self._on_gone is not None and self.find(key) is None:
                gone.append(key)
        if gone and self._on_gone is not None:
            self._on_gone(gone)
