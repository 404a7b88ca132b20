# SPDX-License-Identifier: Apache-2.0
"""The level behind the host's blocks: their bytes in a :class:`pando.Store`."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import pando

_ASK_AT_ONCE = 128  # keys of one question
_REMEMBERED = 65536  # answers that nobody has come back for
_T = TypeVar("_T")


class ArrayPages:
    """Host blocks in an array: block i is row i. No copy is made."""

    def __init__(self, memory: Any) -> None:
        rows: npt.NDArray[Any] = np.asarray(memory)
        if rows.ndim < 2 or not rows.flags.c_contiguous:
            raise ValueError(
                f"pages: an array of shape {rows.shape}; expected the bytes of a block in each "
                "row, one behind the other"
            )
        self._rows = rows.reshape(len(rows), -1).view(np.uint8)
        self.num_blocks, self.block_bytes = self._rows.shape

    def pieces(self, block: int) -> list[npt.NDArray[np.uint8]]:
        return [self._rows[block]]


class HostPages:
    """Host blocks in a :class:`pando.HostPool`: block i is page i. Who uses which page is not told
    to the pool: give it to nobody else."""

    def __init__(self, pool: pando.HostPool) -> None:
        self._pool = pool
        self.num_blocks = pool.num_pages
        self.block_bytes = pool.page_bytes

    def pieces(self, block: int) -> list[npt.NDArray[np.uint8]]:
        return [
            np.ctypeslib.as_array((ctypes.c_uint8 * region.size_bytes).from_address(region.address))
            for region in self._pool.page_regions(block)
        ]


class StoreLevel:
    """Puts blocks of the host into a store, and gets them back. Calls run on the store's threads;
    the blocks that a call uses are the caller's to leave alone until it has finished.

    ``pages`` is the host's memory: an array with a row of bytes per block, or a HostPool.
    ``scope`` says whose pages they are: the model, the type and layout of its KV, the rank. Whoever
    has another shares nothing. The size of a block is in the key anyway.
    """

    def __init__(self, store: pando.Store, pages: Any, scope: str) -> None:
        if not scope:
            raise ValueError("scope: expected a name of the model, its KV's layout and the rank")
        self.store = store
        self._pages: ArrayPages | HostPages = (
            HostPages(pages) if isinstance(pages, pando.HostPool) else ArrayPages(pages)
        )
        self._prefix = f"vllm/{scope}/{self._pages.block_bytes}/"

    @property
    def num_blocks(self) -> int:
        return self._pages.num_blocks

    def exists(self, keys: Sequence[bytes]) -> pando.StoreCall | None:
        """None, here and below: the store takes no more calls."""
        return self._try(self.store.exists, self._names(keys))

    def put(self, keys: Sequence[bytes], blocks: Sequence[int]) -> pando.StoreCall | None:
        return self._try(self.store.put, self._names(keys), self._memory(blocks))

    def get(self, keys: Sequence[bytes], blocks: Sequence[int]) -> pando.StoreCall | None:
        return self._try(self.store.get, self._names(keys), self._memory(blocks))

    def _names(self, keys: Sequence[bytes]) -> list[str]:
        return [self._prefix + key.hex() for key in keys]

    def _memory(self, blocks: Sequence[int]) -> list[list[npt.NDArray[np.uint8]]]:
        return [self._pages.pieces(block) for block in blocks]

    @staticmethod
    def _try(call: Any, *args: Any) -> pando.StoreCall | None:
        try:
            made: pando.StoreCall = call(*args)
        except (pando.OutOfCapacity, pando.Unavailable):
            return None
        return made


class Questions:
    """Whether the store has keys: gathered, asked together, answered once each."""

    def __init__(self, level: StoreLevel) -> None:
        self._level = level
        self._new: dict[bytes, None] = {}  # to be asked
        self._asked: set[bytes] = set()
        self._answers: dict[bytes, bool] = {}
        self._calls: list[tuple[pando.StoreCall, list[bytes]]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._new or self._calls)

    def answer(self, key: bytes) -> bool | None:
        """None: not known yet; it will be asked. Whoever comes after an answer asks again."""
        if key in self._answers:
            return self._answers.pop(key)
        if key not in self._asked:
            if key in self._new or len(self._new) >= _ASK_AT_ONCE:
                self.ask()  # somebody waits
            else:
                self._new[key] = None
        return None

    def ask(self) -> None:
        """Sends the questions that have gathered."""
        keys = [key for key in self._new if key not in self._asked]
        self._new.clear()
        if not keys:
            return
        call = self._level.exists(keys)
        if call is None:
            self.give_up(keys)
            return
        self._calls.append((call, keys))
        self._asked.update(keys)

    def poll(self) -> list[bytes]:
        """Keys that the store has turned out to have; the others are answered."""
        there: list[bytes] = []
        for call, keys in take_finished(self._calls):
            self._asked.difference_update(keys)
            done = [call.outcome(i) == pando.PageOutcome.done for i in range(len(keys))]
            there += [key for key, has in zip(keys, done, strict=True) if has]
            self.give_up(key for key, has in zip(keys, done, strict=True) if not has)
        return there

    def give_up(self, keys: Iterable[bytes]) -> None:
        """They are answered: the store has them not."""
        self._remember((key, False) for key in keys)

    def found(self, keys: Iterable[bytes]) -> None:
        """They are answered: the store has them."""
        self._remember((key, True) for key in keys)

    def drain(self) -> None:
        """Forgets what was not asked yet, and waits for the rest."""
        self._new.clear()
        for call, _ in self._calls:
            wait_for(call)

    def _remember(self, answers: Iterable[tuple[bytes, bool]]) -> None:
        self._answers.update(answers)
        while len(self._answers) > _REMEMBERED:
            del self._answers[next(iter(self._answers))]


def take_finished(
    calls: list[tuple[pando.StoreCall, _T]],
) -> list[tuple[pando.StoreCall, _T]]:
    """Takes those out that are finished."""
    done: list[tuple[pando.StoreCall, _T]] = []
    rest: list[tuple[pando.StoreCall, _T]] = []
    for item in calls:
        (done if item[0].finished else rest).append(item)
    calls[:] = rest
    return done


def wait_for(call: pando.StoreCall) -> None:
    """Until it is finished, well or not: each of its pages has an outcome."""
    try:
        call.wait()
    except pando.Error:
        pass
