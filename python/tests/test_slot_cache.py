# SPDX-License-Identifier: Apache-2.0
"""SlotCache against a dict of what each slot holds."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import pando

keys = st.lists(st.integers(0, 2), min_size=1, max_size=8)
SLOTS = 4


def common(a: list[int], b: list[int]) -> int:
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


class SlotCacheMachine(RuleBasedStateMachine):
    """What is known of a slot is what it holds."""

    @initialize()
    def create(self) -> None:
        self.slots = pando.SlotAllocator(SLOTS)
        self.cache = pando.SlotCache(self.slots, 8, hash_seed=1)
        self.held: dict[int, list[int]] = {}
        self.taken: set[int] = set()

    @rule()
    def take(self) -> None:
        slot = self.cache.take()
        assert (slot is None) == (len(self.taken) == SLOTS)
        if slot is not None:
            unknown = [s for s in range(SLOTS) if s not in self.taken and s not in self.held]
            assert not unknown or slot == unknown[0]
            self.taken.add(slot)
            self.held.pop(slot, None)

    @rule()
    def take_behind_its_back(self) -> None:
        slot = self.slots.alloc()
        if slot is not None:
            self.taken.add(slot)
            self.held.pop(slot, None)

    @rule(key=keys, which=st.integers(0, SLOTS - 1))
    def insert(self, key: list[int], which: int) -> None:
        if which in self.taken:
            self.cache.insert(np.array(key, dtype=np.int32), which)
            self.held[which] = key

    @rule(which=st.integers(0, SLOTS - 1), through_cache=st.booleans())
    def free(self, which: int, through_cache: bool) -> None:
        if which in self.taken:
            (self.cache if through_cache else self.slots).free(which)
            self.taken.discard(which)

    @rule(key=keys, occupy=st.booleans())
    def find(self, key: list[int], occupy: bool) -> None:
        longest = max((common(key, h) for h in self.held.values()), default=0)
        probed = self.cache.probe(key)
        match = self.cache.find(key)
        assert (match is None) == (probed is None) == (longest == 0)
        if match is None:
            return
        assert match.length == longest == common(key, self.held[match.slot])
        best = [s for s, h in self.held.items() if common(key, h) == longest]
        assert match.free == any(s not in self.taken for s in best)
        if occupy and match.free:
            self.cache.occupy(match)
            self.taken.add(match.slot)
            self.held[match.slot] = key[:longest]

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "cache"):
            self.cache.check()
            assert self.cache.stats.num_sequences == len(self.held)
            assert self.slots.free_count == SLOTS - len(self.taken)


TestSlotCacheModel = SlotCacheMachine.TestCase
TestSlotCacheModel.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def make(**options: Any) -> tuple[Any, Any]:
    slots = pando.SlotAllocator(SLOTS)
    return slots, pando.SlotCache(slots, 8, **options)


def test_namespaces_share_nothing() -> None:
    _, cache = make()
    slot = cache.take()
    cache.insert([1, 2, 3], slot, "a")
    assert cache.find([1, 2, 3]) is None and cache.find([1, 2, 3], b"a").length == 3


def test_pins_keep_a_slot() -> None:
    _, cache = make()
    slot = cache.take()
    cache.insert([1, 2, 3], slot)
    cache.free(slot)
    cache.pin([1, 2])
    assert cache.stats.num_pinned == 1
    assert {cache.take() for _ in range(SLOTS)} == {1, 2, 3, None}
    with pytest.raises(pando.InUse):
        cache.clear()
    cache.release([1, 2])
    with pytest.raises(pando.NotFound):
        cache.release([1, 2])
    with pytest.raises(pando.NotFound):
        cache.pin([7])
    assert cache.take() == slot
    cache.clear()


def test_old_matches_are_refused() -> None:
    _, cache = make()
    slot = cache.take()
    cache.insert([1, 2, 3], slot)
    cache.free(slot)
    match = cache.find([1, 2])
    cache.occupy(match)
    with pytest.raises(pando.Error):
        cache.occupy(match)
    with pytest.raises(pando.Error):
        cache.occupy(pando.SlotMatch(slot=99, length=1))
    cache.check()


def test_bad_calls_change_nothing() -> None:
    slots, cache = make()
    for call in (lambda: cache.insert([], 0), lambda: cache.insert([1], 99)):
        with pytest.raises(pando.InvalidArgument):
            call()
    with pytest.raises(pando.InvalidArgument, match="never been handed out"):
        cache.insert([1], 0)
    with pytest.raises(pando.InvalidArgument, match="slot holds 8"):
        cache.insert(range(9), cache.take())
    with pytest.raises(pando.BrokenContract):
        cache.free(3)
    with pytest.raises(pando.Unavailable):
        cache.copy_kv([1], 0)
    with pytest.raises(pando.Error):
        pando.SlotCache(slots, 8)  # one cache at most on an allocator
    with pytest.raises(pando.InvalidArgument, match="slot_tokens"):
        pando.SlotCache(pando.SlotAllocator(2), 0)
    assert "0" in cache.dump() and cache.memory_bytes > 0


def test_the_allocator_outlives_and_is_outlived() -> None:
    slots, cache = make()
    slot = cache.take()
    cache.insert([1, 2], slot)
    del slots
    gc.collect()
    assert cache.find([1, 2]).slot == slot
    slots, cache = make()
    cache.insert([1], cache.take())
    del cache
    gc.collect()
    slots.free(0)
    assert slots.alloc() == 0
    again = pando.SlotCache(slots, 8)
    assert again.find([1]) is None
