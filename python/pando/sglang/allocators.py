# SPDX-License-Identifier: Apache-2.0
"""SGLang's allocators go on owning the slots; the cache gives back to them.

What the cache lets go of during a call is queued, and given back by :meth:`AllocatorBridge.flush`
after it, so that an error of the allocator's surfaces where the call was made. Trees let go of
whole pages, in token order.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import numpy as np

import pando
from pando.sglang.interface import Unsupported
from pando.sglang.tensors import NumpySlots


class AllocatorBridge:
    """Over a TokenToKVPoolAllocator or a PagedTokenToKVPoolAllocator."""

    def __init__(self, allocator: Any, page_size: int, slots: NumpySlots) -> None:
        own = getattr(allocator, "page_size", page_size)
        if own != page_size:
            raise Unsupported(
                f"the allocator hands out pages of {own} tokens, the cache is asked for pages of "
                f"{page_size}: expected the same (context parallelism widens pages; it is not "
                "supported)"
            )
        self.allocator = allocator
        self.page_size = page_size
        self.slots = slots
        self.pending: list[Any] = []
        self._free: Callable[[Any], Any] = allocator.free
        if hasattr(allocator, "free_segment"):  # spares the device a search for equal pages
            self._free = functools.partial(allocator.free_segment, start_pos=0)

    def num_slots(self) -> int:
        """Slots are numbered below this: those of the padding page come first."""
        size = getattr(self.allocator, "size_full", None) or self.allocator.size
        return int(size) + self.page_size

    def engine_slots(self, *, loads: bool) -> pando.EngineSlots:
        """For a new cache; `loads`: it has a host tier and will ask for room."""
        return pando.EngineSlots(
            max_slots=self.num_slots(),
            page_size=self.page_size,
            free=self.pending.append,
            alloc=self._alloc if loads else None,
        )

    def flush(self) -> None:
        pending = self.pending
        while pending:
            self._free(self.slots.to_engine(pending.pop(0)))

    def forget(self) -> None:
        """For a reset: the engine clears its allocator as a whole."""
        self.pending.clear()

    def free_row(self, table: Any, row: int, start: int, end: int) -> None:
        """Positions [start, end) of a request's row, `start` on a page boundary."""
        if start < end:
            self._free(table[row, start:end])  # counted from there, it starts a page

    def _alloc(self, num_tokens: int) -> Any:
        self.flush()  # what was evicted to make room
        given = self.allocator.alloc(num_tokens)
        return None if given is None else self.slots.to_host(given)

    def available_text(self, evictable: int, window_evictable: int) -> str:
        available = self.allocator.available_size()
        return (
            f"Available tokens: {available + evictable} "
            f"(available_size={available} + evictable_size={evictable})\n"
        )


class WindowBridge(AllocatorBridge):
    """Over a SWATokenToKVPoolAllocator, whose slots may have a window slot beside them."""

    def __init__(self, allocator: Any, page_size: int, slots: NumpySlots) -> None:
        super().__init__(allocator, page_size, slots)
        if type(allocator).__name__.startswith("Pure") or getattr(
            allocator, "_swa_req_ring", False
        ):
            raise Unsupported(
                f"{type(allocator).__name__}: models whose layers are all sliding-window, and "
                "windows kept in a ring per request, are not supported: expected a "
                "SWATokenToKVPoolAllocator with a full pool and a window pool"
            )

    @property
    def _mapping(self) -> Any:
        return self.allocator.full_to_swa_index_mapping

    def engine_slots(self, *, loads: bool) -> pando.EngineSlots:
        queue = self.pending.append
        return pando.EngineSlots(
            max_slots=self.num_slots(),
            page_size=self.page_size,
            free=lambda slots: queue((self._free_both, slots)),
            free_window=lambda slots: queue((self._free_window, slots)),
            move_window=lambda of, to: queue((self._move_window, of, to)),
            alloc=self._alloc if loads else None,
            alloc_window=self._alloc_window if loads else None,
            translate=self._translate if loads else None,
        )

    def flush(self) -> None:
        pending = self.pending
        while pending:
            work, *arguments = pending.pop(0)
            work(*arguments)

    def free_row(self, table: Any, row: int, start: int, end: int) -> None:
        if start < end:
            self._free_both(self.slots.host_row(table, row, end)[start:].astype(np.int64))

    def _free_both(self, slots: np.ndarray) -> None:
        """Newer allocators want those without a window slot apart; older ones see for
        themselves."""
        to_engine = self.slots.to_engine
        if not hasattr(self.allocator, "free_full"):
            self.allocator.free(to_engine(slots))
            return
        # A page has its window slots, or none: its first slot tells.
        first = np.ascontiguousarray(slots[:: self.page_size])
        paired = self.slots.to_host(self._mapping[to_engine(first)]) > 0
        if paired.all():
            self._free_paired(slots)
            return
        of_page = np.repeat(paired, self.page_size)[: len(slots)]
        if paired.any():
            self._free_paired(np.ascontiguousarray(slots[of_page]))
        alone = to_engine(np.ascontiguousarray(slots[~of_page]))
        if hasattr(self.allocator, "free_full_segment"):
            self.allocator.free_full_segment(alone, start_pos=0)
        else:
            self.allocator.free_full(alone)

    def _free_paired(self, slots: np.ndarray) -> None:
        self._free(self.slots.to_engine(slots))

    def _free_window(self, slots: np.ndarray) -> None:
        tensor = self.slots.to_engine(slots)
        if hasattr(self.allocator, "free_swa_segment"):
            self.allocator.free_swa_segment(tensor, start_pos=0)
        else:
            self.allocator.free_swa(tensor)

    def _move_window(self, of: np.ndarray, to: np.ndarray) -> None:
        source, target = self.slots.to_engine(of), self.slots.to_engine(to)
        self._mapping[target] = self._mapping[source]
        self._mapping[source] = 0

    def _alloc(self, num_tokens: int) -> Any:
        self.flush()
        given = self.allocator.full_attn_allocator.alloc(num_tokens)
        return None if given is None else self.slots.to_host(given)

    def _alloc_window(self, full: np.ndarray) -> bool:
        self.flush()
        given = self.allocator.swa_attn_allocator.alloc(len(full))
        if given is None:
            return False
        self._mapping[self.slots.to_engine(full)] = given
        return True

    def _translate(self, full: np.ndarray) -> Any:
        return self.slots.to_host(self._mapping[self.slots.to_engine(full)]).astype(np.int64)

    def available_text(self, evictable: int, window_evictable: int) -> str:
        full = self.allocator.full_available_size()
        window = self.allocator.swa_available_size()
        return (
            f"Available full tokens: {full + evictable} "
            f"(full_available_size={full} + full_evictable_size={evictable})\n"
            f"Available swa tokens: {window + window_evictable} "
            f"(swa_available_size={window} + swa_evictable_size={window_evictable})\n"
        )


def bridge_of(
    allocator: Any, page_size: int, slots: NumpySlots, *, window: bool
) -> AllocatorBridge:
    if allocator is None:
        raise Unsupported("pando.sglang works over SGLang's allocator; none was given")
    return (WindowBridge if window else AllocatorBridge)(allocator, page_size, slots)
