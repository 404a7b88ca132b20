# SPDX-License-Identifier: Apache-2.0
"""Chunks of vLLM's host tier as pages of a :class:`pando.Store`: what PandoTier asks of a store."""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import pando

_ASK_AT_ONCE = 128  # keys of one question
_REMEMBERED = 65536  # answers that nobody has come back for
_FRESH_S = 1.0  # after which an answer is asked for again: others may write to the store too
_LONGEST_NAME = 96  # bytes of a scope in a key
_T = TypeVar("_T")


class HostPages:
    """Puts chunks of the host into a store, and gets them back. Calls run on the store's threads; the
    chunks that a call uses are the caller's to leave alone until it has finished. pando.Error: the
    store takes no more calls.

    ``memory`` has a row of bytes per chunk; it is used where it is, and let go of by :meth:`close`.
    Whoever has another ``scope`` shares nothing. The size of a chunk is in the key anyway.
    """

    def __init__(self, store: pando.Store, memory: Any, scope: str) -> None:
        rows: npt.NDArray[Any] = np.asarray(memory)
        if rows.ndim < 2 or not rows.flags.c_contiguous:
            raise ValueError(
                f"host memory of shape {rows.shape}: expected the bytes of a chunk in each row, one "
                "behind the other"
            )
        name = urllib.parse.quote(scope, safe="")
        if len(name) > _LONGEST_NAME:
            name = name[-_LONGEST_NAME:]  # a digest is at its end
        self._store = store
        self._rows: npt.NDArray[np.uint8] | None = rows.reshape(len(rows), -1).view(np.uint8)
        self._prefix = f"vllm-{name}-{self._rows.shape[1]}-"

    def exists(self, keys: Sequence[bytes]) -> pando.StoreCall:
        return self._store.exists(self._names(keys))

    def put(self, keys: Sequence[bytes], chunks: Sequence[int]) -> pando.StoreCall:
        return self._store.put(self._names(keys), self._memory(chunks))

    def get(self, keys: Sequence[bytes], chunks: Sequence[int]) -> pando.StoreCall:
        return self._store.get(self._names(keys), self._memory(chunks))

    def close(self) -> None:
        """The store, after what runs; then nothing here refers to the host's memory."""
        self._store.close()
        self._rows = None

    def _names(self, keys: Sequence[bytes]) -> list[str]:
        return [self._prefix + key.hex() for key in keys]

    def _memory(self, chunks: Sequence[int]) -> list[npt.NDArray[np.uint8]]:
        if self._rows is None:
            raise RuntimeError("the host's pages are closed")
        return [self._rows[chunk] for chunk in chunks]


class Questions:
    """Whether the store has keys: gathered, asked together, answered once each."""

    def __init__(self, pages: HostPages) -> None:
        self._pages = pages
        self._new: dict[bytes, None] = {}  # to be asked
        self._asked: set[bytes] = set()
        self._answers: dict[bytes, tuple[bool, float]] = {}  # and when it was given
        self._calls: list[tuple[pando.StoreCall, list[bytes]]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._new or self._calls)

    def answer(self, key: bytes) -> bool | None:
        """None: not known yet; it will be asked. Whoever comes after an answer asks again."""
        if key in self._answers:
            there, since = self._answers.pop(key)
            if time.monotonic() - since < _FRESH_S:
                return there
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
        try:
            call = self._pages.exists(keys)
        except pando.Error:  # it takes no more: then it has none of them
            self._remember((key, False) for key in keys)
            return
        self._calls.append((call, keys))
        self._asked.update(keys)

    def poll(self, trouble: Callable[[str, int, str], None]) -> list[bytes]:
        """Keys that the store has turned out to have; the others are answered. `trouble` hears of
        questions that failed."""
        there: list[bytes] = []
        for call, keys in take_finished(self._calls):
            self._asked.difference_update(keys)
            answers = list(zip(keys, call.outcomes, strict=True))
            there += [key for key, outcome in answers if outcome == pando.PageOutcome.done]
            absent = [key for key, outcome in answers if outcome != pando.PageOutcome.done]
            self._remember((key, False) for key in absent)
            failed = sum(outcome != pando.PageOutcome.missing for _, outcome in answers)
            failed -= len(answers) - len(absent)
            if failed:
                trouble("not looked up", failed, reason_of(call, pando.PageOutcome.failed))
        return there

    def found(self, keys: Iterable[bytes]) -> None:
        """They are answered: the store has them."""
        self._remember((key, True) for key in keys)

    def forget(self, keys: Iterable[bytes]) -> None:
        """They were written meanwhile: what was answered before may be wrong."""
        for key in keys:
            self._answers.pop(key, None)

    def drain(self) -> None:
        """Forgets what was not asked yet, and waits for the rest."""
        self._new.clear()
        for call, _ in self._calls:
            wait_for(call)

    def _remember(self, answers: Iterable[tuple[bytes, bool]]) -> None:
        now = time.monotonic()
        self._answers.update((key, (there, now)) for key, there in answers)
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


def reason_of(call: pando.StoreCall, outcome: pando.PageOutcome) -> str:
    """Why pages of a finished call have this outcome."""
    if outcome == pando.PageOutcome.missing:
        return "the store has them no more"
    if outcome == pando.PageOutcome.damaged:
        return "what the store has is not what was put; they count as misses"
    try:
        call.wait()
    except pando.Error as error:
        return str(error)
    return "the call was stopped"
