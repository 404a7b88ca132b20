# SPDX-License-Identifier: Apache-2.0
"""Pando's policies of eviction as vLLM's CachePolicy: for vLLM's own manager, which its tiers need.

vLLM's manager counts who reads a chunk and says when it may be evicted; the order is that of a
:class:`pando.OffloadTable`, whose blocks are not used for anything here. ``eviction_policy`` chooses
one by name, with ``CPUOffloadingSpec`` and ``TieringOffloadingSpec`` alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from vllm.v1.kv_offload.cpu.policies.base import (  # type: ignore[import-not-found, unused-ignore]
    CachePolicy,
)

import pando
from pando.vllm.manager import GROUP_BYTES, ends_of


class PandoCachePolicy(CachePolicy):  # type: ignore[misc, unused-ignore]
    """What the policies have in common: everything but their name."""

    policy: ClassVar[str] = "lru"

    def __init__(self, cache_capacity: int) -> None:
        super().__init__(cache_capacity)
        if cache_capacity < 1:
            raise ValueError(
                f"a host tier of {cache_capacity} chunks: expected room for one at least"
            )
        self._table = pando.OffloadTable(
            cache_capacity, policy=self.policy, group_bytes=GROUP_BYTES
        )
        self._chunks: dict[bytes, Any] = {}
        self._inserting: dict[bytes, Any] = {}  # keys that a request is about to insert: its context

    def get(self, key: bytes) -> Any:
        return self._chunks.get(key)

    def insert(self, key: bytes, chunk: Any) -> None:
        context = self._inserting.pop(key, None)
        request = self._table.start() if context is None else self._request(context)
        if self._table.begin_write(request, [key], context and ends_of(context)) is None:
            raise RuntimeError(f"{key.hex()} was inserted where there is no room for it")
        self._chunks[key] = chunk
        if chunk.is_ready:
            self._table.end_write([key])

    def remove(self, key: bytes) -> None:
        del self._chunks[key]
        if not self._table.end_write([key], failed=True):
            self._table.forget([key])

    def mark_evictable(self, key: bytes) -> None:
        if not self._table.end_write([key]):
            self._table.end_read([key])

    def mark_non_evictable(self, key: bytes) -> None:
        self._table.begin_read(None, [key])

    def touch(self, keys: Iterable[bytes], req_context: Any) -> None:
        self._table.touch(keys)

    def on_store_miss(self, keys: Iterable[bytes], req_context: Any) -> None:
        for key in keys:
            self._inserting[key] = req_context

    def on_request_finished(
        self,
        key_groups: Sequence[Sequence[bytes]],
        insertion_only_keys: set[bytes],
        reused_keys: set[bytes],
        req_context: Any,
    ) -> None:
        request = self._request(req_context)
        for keys in key_groups:
            self._table.use(request, keys, ends_of(req_context))
            for key in keys:
                self._inserting.pop(key, None)
        self._table.finish(request)

    def _request(self, context: Any) -> pando.OffloadRequest:
        request = context.get_state(pando.OffloadRequest)
        if request is None:
            request = self._table.start()
            context.set_state(request)
        return request  # type: ignore[no-any-return]

    def evict(self, n: int, protected: set[bytes]) -> list[tuple[bytes, Any]] | None:
        try:
            evicted = self._table.evict(n, protected)
        except pando.OutOfCapacity:
            return None
        return [(key, self._chunks.pop(key)) for key in evicted]

    def clear(self) -> None:
        self._table.clear()
        self._chunks.clear()
        self._inserting.clear()


class LfuCachePolicy(PandoCachePolicy):
    policy = "lfu"


class FifoCachePolicy(PandoCachePolicy):
    policy = "fifo"


class FiloCachePolicy(PandoCachePolicy):
    policy = "filo"


class MruCachePolicy(PandoCachePolicy):
    policy = "mru"


class SlruCachePolicy(PandoCachePolicy):
    policy = "slru"


class HazardCachePolicy(PandoCachePolicy):
    """Learns from requests what comes back, and evicts what promises least (docs/tuning.md)."""

    policy = "hazard"
