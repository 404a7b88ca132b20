# SPDX-License-Identifier: Apache-2.0
"""vLLM's BlockPool over :class:`pando.BlockPool`: for schedulers written against vLLM's names."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pando
from pando.vllm import events
from pando.vllm._keyed import KeyedBlocks

_GROUP_BYTES = 4  # behind a hash, in the key that vLLM names blocks by


def make_block_hash_with_group_id(block_hash: bytes, group_id: int) -> bytes:
    """vLLM's key of a block: its hash, and the number of its group in 4 bytes."""
    return block_hash + group_id.to_bytes(_GROUP_BYTES, "big")


def get_block_hash(key: bytes) -> bytes:
    return key[:-_GROUP_BYTES]


def get_group_id(key: bytes) -> int:
    return int.from_bytes(key[-_GROUP_BYTES:], "big")


class BlockSource(Protocol):
    """What a KVCacheBlock asks about itself."""

    def ref_cnt_of(self, block_id: int) -> int: ...

    def hash_of(self, block_id: int) -> bytes | None: ...


class KVCacheBlock:
    """A block. There is one object per block and pool, and it knows no more than its number: what
    it says is asked of the pool."""

    __slots__ = ("_source", "block_id")

    def __init__(self, block_id: int, source: BlockSource) -> None:
        self.block_id = block_id
        self._source = source

    @property
    def ref_cnt(self) -> int:
        """Requests that hold it."""
        return self._source.ref_cnt_of(self.block_id)

    @property
    def block_hash(self) -> bytes | None:
        """Hash and group of what it contains; None unless it is full and cached."""
        return self._source.hash_of(self.block_id)

    @property
    def is_null(self) -> bool:
        """It stands for what is not there."""
        return self.block_id == 0

    def __repr__(self) -> str:
        return (
            f"KVCacheBlock(block_id={self.block_id}, ref_cnt={self.ref_cnt}, "
            f"block_hash={self.block_hash!r})"
        )


@dataclass
class KVCacheBlocks:
    """Blocks of a request, by group."""

    blocks: tuple[Sequence[KVCacheBlock], ...]

    def __add__(self, other: KVCacheBlocks) -> KVCacheBlocks:
        return KVCacheBlocks(
            tuple(
                list(itertools.chain(one, two))
                for one, two in zip(self.blocks, other.blocks, strict=True)
            )
        )

    def get_block_ids(
        self, allow_none: bool = False, group_ids: Iterable[int] | None = None
    ) -> tuple[list[int], ...] | None:
        """The numbers of the blocks. With ``allow_none``, None where there are none at all."""
        chosen = range(len(self.blocks)) if group_ids is None else group_ids
        ids = tuple([block.block_id for block in self.blocks[group]] for group in chosen)
        return None if allow_none and not any(ids) else ids

    def get_unhashed_block_ids(self) -> list[int]:
        """Of the only group: blocks that are not cached."""
        if len(self.blocks) != 1:
            raise ValueError(f"{len(self.blocks)} groups; expected one: ask for all groups")
        return [block.block_id for block in self.blocks[0] if block.block_hash is None]

    def get_unhashed_block_ids_all_groups(self) -> list[list[int]]:
        """By group: blocks that are not cached, null blocks left out."""
        return [
            [b.block_id for b in group if b.block_hash is None and not b.is_null]
            for group in self.blocks
        ]

    def new_empty(self) -> KVCacheBlocks:
        return KVCacheBlocks(tuple(() for _ in self.blocks))


def flat(blocks: Iterable[Any]) -> Iterator[KVCacheBlock]:
    """Blocks, or blocks by group."""
    for item in blocks:
        if isinstance(item, KVCacheBlock):
            yield item
        else:
            yield from flat(item)


class BlockPool:
    """Blocks by number: who holds them, what the full ones contain, and which free one goes next.

    Contents are named by the hashes that requests bring along (``request.block_hashes``). Free
    blocks wait in the order in which vLLM 0.32 has them: those without content first, then the
    others, the longest free first.

    >>> pool = pando.vllm.BlockPool(num_gpu_blocks=10, enable_caching=True)
    >>> [block.block_id for block in pool.get_new_blocks(2)]
    [1, 2]
    >>> pool.get_num_free_blocks()
    7
    """

    def __init__(
        self,
        num_gpu_blocks: int,
        enable_caching: bool,
        hash_block_size: int | None = None,
        enable_kv_cache_events: bool = False,
        metrics_collector: object | None = None,
    ) -> None:
        if isinstance(hash_block_size, bool):  # 0.11 has the events in this place
            hash_block_size, enable_kv_cache_events = None, hash_block_size
        if metrics_collector is not None:
            raise NotImplementedError("metrics_collector: expected None; Pando has its own metrics")
        self.num_gpu_blocks = num_gpu_blocks
        self.enable_caching = enable_caching
        self.enable_kv_cache_events = enable_kv_cache_events
        self.hash_block_size = hash_block_size
        self._events: list[events.KVCacheEvent] = []
        self._as_int = events.use_int_hashes()
        self._keyed = KeyedBlocks(num_gpu_blocks, caching=enable_caching, on_gone=self._gone)
        self.blocks = [KVCacheBlock(i, self) for i in range(num_gpu_blocks)]
        self.null_block = self.blocks[0]

    @property
    def pool(self) -> pando.BlockPool:
        """The pool below, to look at."""
        return self._keyed.pool

    def ref_cnt_of(self, block_id: int) -> int:
        return self._keyed.pool.num_holders(block_id)

    def hash_of(self, block_id: int) -> bytes | None:
        return self._keyed.key_of(block_id)

    # ---- Finding ----

    def get_cached_block(
        self, block_hash: bytes, kv_cache_group_ids: Sequence[int]
    ) -> list[KVCacheBlock] | None:
        """A block with this content for each of the groups, or None if one of them has none."""
        found: list[KVCacheBlock] = []
        for group in kv_cache_group_ids:
            block = self._keyed.find(make_block_hash_with_group_id(block_hash, group))
            if block is None:
                return None
            found.append(self.blocks[block])
        return found

    def cache_full_blocks(
        self,
        request: Any,
        blocks: Sequence[KVCacheBlock],
        num_cached_blocks: int,
        num_full_blocks: int,
        block_size: int,
        kv_cache_group_id: int,
        block_mask: Sequence[bool] | None = None,
    ) -> None:
        """Blocks [num_cached_blocks, num_full_blocks) of a request are found from now on.

        Null blocks are passed over, and where there is a ``block_mask``, blocks that it leaves out.
        """
        if num_cached_blocks >= num_full_blocks:
            return
        hashes = self._hashes(request, block_size)
        if len(hashes) < num_full_blocks:
            raise ValueError(
                f"{num_full_blocks} full blocks of request {request.request_id!r}, which has "
                f"{len(hashes)} hashes of {block_size} tokens"
            )
        news: list[int] = []
        for i in range(num_cached_blocks, num_full_blocks):
            masked = block_mask is not None and not block_mask[i - num_cached_blocks]
            if blocks[i].is_null or masked:
                continue
            key = make_block_hash_with_group_id(hashes[i], kv_cache_group_id)
            if blocks[i].block_hash is not None:
                raise ValueError(f"block {blocks[i].block_id} has a hash already")
            if self._keyed.set_key(blocks[i].block_id, key):
                news.append(i)
        if self.enable_kv_cache_events:
            self._stored(request, hashes, news, block_size, kv_cache_group_id)

    def _hashes(self, request: Any, block_size: int) -> Sequence[bytes]:
        """Of blocks of this size: a larger one is named by all hashes within it, as in vLLM."""
        hashes: Sequence[bytes] = request.block_hashes
        unit = self.hash_block_size or block_size
        if unit == block_size:
            return hashes
        if block_size % unit != 0:
            raise ValueError(f"blocks of {block_size} tokens; expected a multiple of {unit}")
        step = block_size // unit
        whole = len(hashes) // step * step
        return [b"".join(hashes[i : i + step]) for i in range(0, whole, step)]

    # ---- Holding ----

    def get_new_blocks(self, num_blocks: int) -> list[KVCacheBlock]:
        """New blocks, held once. ValueError if there are not so many; then nothing changes."""
        if num_blocks > self.get_num_free_blocks():
            raise ValueError(
                f"Cannot get {num_blocks} free blocks from the pool: "
                f"{self.get_num_free_blocks()} are free"
            )
        return [self.blocks[block] for block in self._keyed.take(num_blocks)]

    def touch(self, blocks: Iterable[Any]) -> None:
        """Holds blocks, given one after the other or by group."""
        self._keyed.touch([block.block_id for block in flat(blocks)])

    def free_blocks(self, ordered_blocks: Iterable[KVCacheBlock]) -> None:
        """Lets go of blocks, the first to be evicted first."""
        self._keyed.free([block.block_id for block in ordered_blocks])

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """These are not found any more; whoever holds them goes on."""
        ids = list(block_ids)
        wrong = [i for i in ids if not 0 <= i < self.num_gpu_blocks]
        if wrong:
            raise ValueError(f"blocks {wrong}: expected 0 to {self.num_gpu_blocks - 1}")
        self._keyed.forget(ids)

    def reset_prefix_cache(self) -> bool:
        """Forgets all contents. False, and nothing changes, while a block is held."""
        try:
            self._keyed.reset()
        except pando.InUse:
            return False
        if self.enable_kv_cache_events:
            self._events.append(events.AllBlocksCleared())
        return True

    # ---- Looking ----

    def get_num_free_blocks(self) -> int:
        return self._keyed.pool.num_free

    def get_usage(self) -> float:
        """Share of the blocks that is held."""
        return self._keyed.pool.usage

    def take_events(self) -> list[events.KVCacheEvent]:
        """What was stored and removed since the last call."""
        taken, self._events = self._events, []
        return taken

    # ---- Events ----

    def _stored(
        self, request: Any, hashes: Sequence[bytes], news: list[int], block_size: int, group: int
    ) -> None:
        # Neighbours make one event.
        runs = itertools.groupby(enumerate(news), key=lambda item: item[1] - item[0])
        for _, run in runs:
            at = [i for _, i in run]
            first, end = at[0], at[-1] + 1
            parent = events.external_hash(hashes[first - 1], self._as_int) if first else None
            lora = getattr(request, "lora_request", None)
            self._events.append(
                events.BlockStored(
                    block_hashes=events.external_hashes(hashes[first:end], self._as_int),
                    parent_block_hash=parent,
                    token_ids=list(request.all_token_ids[first * block_size : end * block_size]),
                    block_size=block_size,
                    lora_id=lora.adapter_id if lora else None,
                    lora_name=lora.lora_name if lora else None,
                    group_idx=group,
                )
            )

    def _gone(self, keys: list[bytes]) -> None:
        if not self.enable_kv_cache_events:
            return
        for group, of_group in itertools.groupby(keys, key=get_group_id):
            hashes = [get_block_hash(key) for key in of_group]
            self._events.append(
                events.BlockRemoved(events.external_hashes(hashes, self._as_int), group_idx=group)
            )
