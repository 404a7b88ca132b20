# SPDX-License-Identifier: Apache-2.0
"""vLLM's OffloadingManager: which blocks of host memory hold which blocks of KV.

It runs in the scheduler and moves no bytes between device and host; vLLM's workers do. Between host
and store it does, if it can see the host's memory.

Who holds what is a :class:`pando.BlockPool`: a block that is being written or read is held; one
that is not is free, found by its key, and taken for something else when its turn comes, the least
recently used first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pando
from pando.vllm._keyed import KeyedBlocks
from pando.vllm.offload_types import (
    OffloadingEvent,
    OffloadTypes,
    PrepareStoreOutput,
    own_types,
)
from pando.vllm.store_level import Questions, StoreLevel, take_finished, wait_for


class OffloadingManager:
    """Host blocks for offloaded KV, with a store behind them or without.

    ``api`` is the version whose calls it answers: "0.11" looks up many keys at once and gets a
    number, "0.20" one at a time and gets True, False or None (ask again), "0.32" a LookupResult.
    Contexts of requests are taken where newer versions give them.

    With ``store_level``, every block goes to the store once it is on the host, and is evictable
    then; a key that only the store has is brought back when it is looked up.

    >>> import pando.vllm
    >>> manager = pando.vllm.OffloadingManager(num_blocks=2, api="0.11")
    >>> manager.prepare_store([b"a", b"b"]).store_spec
    CPULoadStoreSpec([0, 1])
    >>> manager.complete_store([b"a", b"b"])
    >>> manager.lookup([b"a", b"b", b"c"])
    2
    >>> output = manager.prepare_store([b"c"])
    >>> output.store_spec, output.evicted_keys
    (CPULoadStoreSpec([1]), [b'b'])
    """

    def __init__(
        self,
        num_blocks: int,
        *,
        block_size: int = 0,
        enable_events: bool = False,
        store_level: StoreLevel | None = None,
        api: str = "0.20",
        types: OffloadTypes | None = None,
    ) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks: expected at least 1, got {num_blocks}")
        if store_level is not None and store_level.num_blocks < num_blocks:
            raise ValueError(
                f"pages of {store_level.num_blocks} host blocks; expected {num_blocks}"
            )
        self.num_blocks = num_blocks
        self.block_size = block_size  # tokens, for the events of 0.11
        self._types = types or own_types(api)
        self._events: list[OffloadingEvent] | None = [] if enable_events else None
        self._evicted: list[bytes] = []
        # Host block b is block b + 1 of the pool, which has a null block.
        self._keyed = KeyedBlocks(num_blocks + 1, on_gone=self._evicted.extend)
        self._writing: dict[bytes, int] = {}  # keys on their way from the device: their block
        self._loading: Counter[int] = Counter()  # blocks that the device reads: by how many loads
        self._level = _Level(store_level, self._keyed, self._fetched) if store_level else None

    # ---- Asking ----

    def lookup(self, keys: Any, req_context: object = None) -> Any:
        """One key: whether its block can be read. Many (0.11): how many can, from the first on."""
        if self._level is not None:
            self._level.poll()
        if isinstance(keys, bytes | bytearray | memoryview):
            return self._lookup(bytes(keys))
        hits = 0
        counting = True
        for key in keys:
            counting = self._lookup(key) == self._types.hit and counting
            hits += counting
            if not counting and self._level is None:
                break  # else the store is asked for the others, for the next time
        self._poll()
        return hits

    def _lookup(self, key: bytes) -> Any:
        if self._keyed.find(key) is not None:
            return self._types.hit
        if key in self._writing:
            return self._types.pending
        if self._level is not None and self._level.wants(key):
            return self._types.retry
        return self._types.miss

    def touch(self, keys: Iterable[bytes], req_context: object = None) -> None:
        """These were used; of several, the first are kept longest."""
        blocks = [block for key in keys if (block := self._keyed.find(key)) is not None]
        self._keyed.touch(blocks)
        self._keyed.free(blocks[::-1])
        self._poll()

    def get_load_source(self, key: bytes, req_context: object = None) -> Any:
        return self._types.load_source

    # ---- Host to device ----

    def prepare_load(self, keys: Iterable[bytes], req_context: object = None) -> Any:
        """Holds the blocks of these keys until complete_load(). All must be readable."""
        blocks: list[int] = []
        for key in keys:
            block = self._keyed.find(key)
            if block is None:
                state = "is still being written" if key in self._writing else "is not on the host"
                raise KeyError(f"prepare_load: block {key.hex()} {state}")
            blocks.append(block)
        self._keyed.touch(blocks)
        self._loading.update(blocks)
        return self._spec(blocks)

    def complete_load(self, keys: Iterable[bytes], req_context: object = None) -> None:
        """They are read: they may be evicted again."""
        blocks: list[int] = []
        for key in keys:
            block = self._keyed.find(key)
            if block is None or self._loading[block] <= blocks.count(block):
                raise KeyError(f"complete_load: block {key.hex()} is not being loaded")
            blocks.append(block)
        self._loading -= Counter(blocks)
        self._keyed.free(blocks[::-1])
        self._poll()

    # ---- Device to host ----

    def prepare_store(
        self, keys: Iterable[bytes], req_context: object = None
    ) -> PrepareStoreOutput | None:
        """Room for those of the keys that the host has not, by evicting what was used least
        recently and is not in use, nor among the keys. None: there is no such room, and nothing
        has changed."""
        self._poll()
        wanted: list[bytes] = []
        kept: list[int] = []
        for key in dict.fromkeys(keys):
            block = self._keyed.find(key)
            if block is not None:
                kept.append(block)
            elif key not in self._writing:
                wanted.append(key)
        free_kept = sum(self._keyed.pool.num_holders(block) == 0 for block in kept)
        if len(wanted) > self._keyed.pool.num_free - free_kept:
            return None
        blocks: list[int] = []
        if wanted:
            self._keyed.touch(kept)
            blocks = self._keyed.take(len(wanted))
            self._keyed.free(kept[::-1])
            self._writing.update(zip(wanted, blocks, strict=True))
        return PrepareStoreOutput(wanted, self._spec(blocks), self._take_evicted())

    def complete_store(self, keys: Iterable[bytes], *rest: Any, success: bool = True) -> None:
        """They are written, and readable from now on; unless `success`, they are given up.

        Called as ``complete_store(keys, success)`` or ``complete_store(keys, context, success)``.
        """
        for given in rest:
            if isinstance(given, bool):
                success = given
        done = [(key, self._writing.pop(key)) for key in keys if key in self._writing]
        blocks = [block for _, block in done]
        if success:
            for key, block in done:
                self._keyed.set_key(block, key)
            self._tell([key for key, _ in done], removed=False)
            if self._level is not None:
                self._level.put(done)
        self._keyed.free(blocks[::-1])
        self._poll()

    # ---- Steps ----

    def on_new_request(self, req_context: object = None) -> Any:
        return self._types.request_context()

    def on_request_finished(self, req_context: object = None) -> None:
        """Nothing is kept by request."""

    def on_schedule_end(self, context: object = None) -> None:
        self._poll()

    def has_pending_work(self) -> bool:
        """Whether the store is at work on what was asked of it."""
        return self._level is not None and self._level.is_busy

    def take_events(self) -> Iterator[OffloadingEvent]:
        """What the host has got and lost since the last call."""
        self._poll()
        if self._events is not None:
            taken, self._events = self._events, []
            yield from taken

    def get_stats(self) -> None:
        """vLLM's counters are not kept."""
        return None

    def reset_cache(self) -> None:
        """Forgets what is on the host; the store keeps what it has. Nothing of what is under way is
        completed any more, as vLLM promises."""
        self.shutdown()
        self._keyed.free([*self._writing.values(), *self._loading.elements()])
        self._writing.clear()
        self._loading.clear()
        self._keyed.reset()

    def shutdown(self) -> None:
        """Waits for what the store is doing with host blocks."""
        if self._level is not None:
            self._level.drain()

    # ---- Inside ----

    def _poll(self) -> None:
        if self._level is not None:
            self._level.poll()
            self._level.ask()

    def _spec(self, blocks: Sequence[int]) -> Any:
        return self._types.load_store_spec([block - 1 for block in blocks])

    def _take_evicted(self) -> list[bytes]:
        evicted = self._evicted[:]
        self._evicted.clear()
        self._tell(evicted, removed=True)
        return evicted

    def _fetched(self, keys: list[bytes]) -> None:
        """The host has these from the store; what it has lost for them is told too."""
        self._take_evicted()
        self._tell(keys, removed=False)

    def _tell(self, keys: list[bytes], removed: bool) -> None:
        if keys and self._events is not None:
            self._events.append(
                OffloadingEvent(keys, self._types.medium, removed, block_size=self.block_size)
            )


class _Level:
    """Questions to the store, and pages on their way to it and back. Host blocks that a call of the
    store reads or writes are held until it has finished."""

    def __init__(
        self, level: StoreLevel, keyed: KeyedBlocks, fetched: Callable[[list[bytes]], None]
    ) -> None:
        self._level = level
        self._keyed = keyed
        self._fetched = fetched
        self._questions = Questions(level)
        self._coming: set[bytes] = set()  # on their way to the host
        self._puts: list[tuple[pando.StoreCall, list[int]]] = []
        self._gets: list[tuple[pando.StoreCall, list[tuple[bytes, int]]]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._questions.is_busy or self._puts or self._gets)

    def wants(self, key: bytes) -> bool:
        """True: the store is asked, or its page is coming; False: it has none, for all we know."""
        return key in self._coming or self._questions.answer(key) is None

    def ask(self) -> None:
        self._questions.ask()

    def put(self, blocks: Sequence[tuple[bytes, int]]) -> None:
        """Pages of blocks that the host has, held meanwhile."""
        if not blocks:
            return
        ids = [block for _, block in blocks]
        call = self._level.put([key for key, _ in blocks], [block - 1 for block in ids])
        if call is None:
            return  # the host has them; they are lost when it evicts them
        self._keyed.touch(ids)
        self._puts.append((call, ids))

    def poll(self) -> None:
        """Applies what the store has finished. Never waits."""
        for _, blocks in take_finished(self._puts):
            self._keyed.free(blocks[::-1])
        for call, coming in take_finished(self._gets):
            self._settle(call, coming)
        there = self._questions.poll()
        if there:
            self._fetch(there)

    def drain(self) -> None:
        """Waits until the store touches no host block any more."""
        self._questions.drain()
        for calls in (self._puts, self._gets):
            for call, _ in calls:
                wait_for(call)
        self.poll()

    def _fetch(self, keys: list[bytes]) -> None:
        """Pages that the store has, as many as there is room for."""
        keys = [key for key in keys if self._keyed.find(key) is None]
        fits = keys[: self._keyed.pool.num_free]
        blocks = self._keyed.take(len(fits))
        self._fetched([])
        get = self._level.get(fits, [block - 1 for block in blocks]) if fits else None
        if get is None:
            self._keyed.free(blocks)
            fits = []
        else:
            self._gets.append((get, list(zip(fits, blocks, strict=True))))
        self._coming.update(fits)
        self._questions.give_up(keys[len(fits) :])

    def _settle(self, call: pando.StoreCall, coming: list[tuple[bytes, int]]) -> None:
        came: list[bytes] = []
        for i, (key, block) in enumerate(coming):
            self._coming.discard(key)
            if call.outcome(i) != pando.PageOutcome.done:
                self._questions.give_up([key])
            elif self._keyed.find(key) is None:  # else the device has written it meanwhile
                self._keyed.set_key(block, key)
                came.append(key)
        self._keyed.free([block for _, block in coming][::-1])
        self._fetched(came)


__all__ = ["OffloadingManager"]
