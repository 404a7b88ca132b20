# SPDX-License-Identifier: Apache-2.0
"""vLLM's OffloadingManager over a :class:`pando.OffloadTable`: it runs in the scheduler, says which
chunk of KV goes to which block of the host, and moves no bytes.

A call costs one step into C++, whatever the number of its keys; ``lookup`` is the table's own method.
What a request has used is with the request (``ReqContext``), and is put in order when it ends.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any

# vLLM need not be installed where this is checked.
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (  # type: ignore[import-not-found, unused-ignore]
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found, unused-ignore]
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingManager,
    PrepareStoreOutput,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.cpu.common import (  # type: ignore[import-not-found, unused-ignore]
    CPULoadStoreSpec,
    CPUOffloadingMetrics,
)
from vllm.v1.metrics.cache_hit_source import (  # type: ignore[import-not-found, unused-ignore]
    CacheHitSource,
)

import pando

GROUP_BYTES = 4  # behind a hash, in vLLM's keys


def ends_of(context: Any) -> dict[bytes, int] | None:
    """Where the chunks of a request end, in tokens, by key; None if vLLM does not say."""
    return getattr(context, "_offload_key_positions", None)


class _Uses:
    """What a request has used of one manager, since its last reset."""

    __slots__ = ("request", "table_life")

    def __init__(self, request: pando.OffloadRequest, table_life: object) -> None:
        self.request = request
        self.table_life = table_life


class PandoOffloadingManager(OffloadingManager):  # type: ignore[misc, unused-ignore]
    """Host blocks for chunks of KV. ``chunk_tokens`` and ``main_group`` are for policies that learn:
    the tokens of a chunk, and the group of layers that has all chunks of a prefix."""

    medium = Medium.CPU

    def __init__(
        self,
        num_chunks: int,
        *,
        policy: str = "lru",
        enable_events: bool = False,
        store_threshold: int = 0,
        max_tracker_size: int = 64_000,
        chunk_tokens: int = 64,
        main_group: int = 0,
    ) -> None:
        self._table = pando.OffloadTable(
            num_chunks,
            policy=policy,
            block_tokens=chunk_tokens,
            main_group=main_group,
            group_bytes=GROUP_BYTES,
            answers=(LookupResult.MISS, LookupResult.HIT_PENDING, LookupResult.HIT),
        )
        self.lookup = self._table.find  # type: ignore[method-assign]
        self._table_life = object()  # another one after each reset
        self._events: list[Any] | None = [] if enable_events else None
        self._offers = _Offers(store_threshold, max_tracker_size) if store_threshold > 1 else None
        self._allocations: list[int] = []

    @property
    def table(self) -> pando.OffloadTable:
        """To look at."""
        return self._table

    def lookup(self, key: bytes, req_context: Any) -> Any:  # type: ignore[no-redef]
        """Replaced by the table's own in __init__; here because vLLM's class is abstract."""
        return self._table.find(key)

    def get_load_source(self, key: bytes, req_context: Any) -> Any:
        return CacheHitSource.HOST

    def touch(self, keys: Collection[bytes], req_context: Any) -> None:
        self._table.touch(keys)

    # ---- Host to device ----

    def prepare_load(self, keys: Collection[bytes], req_context: Any) -> Any:
        request = self._request(req_context)
        return CPULoadStoreSpec(self._table.begin_read(request, keys, ends_of(req_context)))

    def complete_load(self, keys: Collection[bytes], req_context: Any) -> None:
        self._table.end_read(keys)

    # ---- Device to host ----

    def prepare_store(self, keys: Collection[bytes], req_context: Any) -> Any:
        if self._offers is not None:
            keys = self._offers.admit(keys, self._table)
        room = self._table.begin_write(self._request(req_context), keys, ends_of(req_context))
        if room is None:
            self._allocations.append(sum(self.lookup(key) is LookupResult.MISS for key in keys))
            return None
        wanted, blocks, evicted = room
        if wanted:
            self._allocations.append(len(wanted))
        if evicted:
            self._tell(evicted, removed=True)
        return PrepareStoreOutput(wanted, CPULoadStoreSpec(blocks), evicted)

    def complete_store(
        self, keys: Collection[bytes], req_context: Any, success: bool = True
    ) -> None:
        stored = self._table.end_write(keys, failed=not success)
        if success and stored:
            self._tell(stored, removed=False)

    # ---- Requests ----

    def on_new_request(self, req_context: Any) -> Any:
        return RequestOffloadingContext()

    def on_request_finished(self, req_context: Any) -> None:
        uses = req_context.get_state(_Uses)
        if uses is not None and uses.table_life is self._table_life:
            self._table.finish(uses.request)

    def _request(self, req_context: Any) -> pando.OffloadRequest:
        uses = req_context.get_state(_Uses)
        if uses is None or uses.table_life is not self._table_life:
            uses = _Uses(self._table.start(), self._table_life)
            req_context.set_state(uses)
        return uses.request  # type: ignore[no-any-return]

    # ---- The rest ----

    def reset_cache(self) -> None:
        """Forgets everything. vLLM completes nothing of what was under way."""
        self._table.clear()
        self._table_life = object()

    def take_events(self) -> Iterable[Any]:
        if self._events is None:
            return ()
        taken, self._events = self._events, []
        return taken

    def _tell(self, keys: list[bytes], removed: bool) -> None:
        if self._events is not None:
            self._events.append(OffloadingEvent(keys=keys, medium=self.medium, removed=removed))

    def get_stats(self) -> Any:
        """Under vLLM's own names, since the last call."""
        stats = OffloadingConnectorStats()
        table = self._table
        writing = table.num_writing / table.num_blocks
        reading = table.num_reading / table.num_blocks
        stats.set_gauge(CPUOffloadingMetrics.CPU_CACHE_USAGE_PERC, writing + reading)
        stats.set_gauge(CPUOffloadingMetrics.CPU_CACHE_WRITE_USAGE_PERC, writing)
        stats.set_gauge(CPUOffloadingMetrics.CPU_CACHE_READ_USAGE_PERC, reading)
        for size in self._allocations:
            stats.observe_histogram(CPUOffloadingMetrics.CPU_ALLOCATION_SIZE, size)
        self._allocations.clear()
        if self._offers is not None:
            stats.increase_counter(CPUOffloadingMetrics.STORES_SKIPPED, self._offers.take_skipped())
        return stats


class _Offers:
    """How often each chunk was offered: it is stored when it has been often enough."""

    def __init__(self, threshold: int, capacity: int) -> None:
        self._threshold = threshold
        self._capacity = capacity
        self._counts: OrderedDict[bytes, int] = OrderedDict()  # the one offered last is last
        self._skipped = 0

    def admit(self, keys: Collection[bytes], table: pando.OffloadTable) -> list[bytes]:
        """Those that may be stored, and those that are there."""
        keys = list(keys)
        for key in keys:
            self._counts[key] = self._counts.pop(key, 0) + 1
        admitted = [
            key
            for key in keys
            if self._counts[key] >= self._threshold or table.find(key) is not LookupResult.MISS
        ]
        self._skipped += len(keys) - len(admitted)
        while len(self._counts) > self._capacity:
            self._counts.popitem(last=False)
        return admitted

    def take_skipped(self) -> int:
        skipped, self._skipped = self._skipped, 0
        return skipped
