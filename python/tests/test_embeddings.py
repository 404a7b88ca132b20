# SPDX-License-Identifier: Apache-2.0
"""EmbeddingCache against an OrderedDict."""

from __future__ import annotations

import gc
import hashlib
import sys
import threading
import weakref
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pando

names = st.sampled_from(["a", "b", "c", "d", "e"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names, st.integers(1, 60)),
        st.tuples(st.just("get"), names, st.just(0)),
        st.tuples(st.just("has"), names, st.just(0)),
        st.tuples(st.just("clear"), st.just(""), st.just(0)),
    ),
    max_size=60,
)


@given(steps)
def test_it_is_an_lru(operations: list[tuple[str, str, int]]) -> None:
    capacity = 100
    cache = pando.EmbeddingCache(capacity)
    model: OrderedDict[str, bytes] = OrderedDict()
    hits = misses = evictions = 0
    for call, name, size in operations:
        if call == "put":
            value = bytes(size)
            cache.put(name, value)
            model.pop(name, None)
            while sum(map(len, model.values())) + size > capacity:
                model.popitem(last=False)
                evictions += 1
            model[name] = value
        elif call == "get":
            assert cache.get(name) is model.get(name)
            hits, misses = hits + (name in model), misses + (name not in model)
            if name in model:
                model.move_to_end(name)
        elif call == "has":
            assert cache.has(name) == (name in cache) == (name in model)
        else:
            cache.clear()
            model.clear()
        cache.check()
        stats = cache.stats
        assert len(cache) == cache.size == len(model)
        assert stats.used_bytes == sum(map(len, model.values()))
        assert (stats.hits, stats.misses, stats.evictions) == (hits, misses, evictions)


def test_nothing_is_copied() -> None:
    cache = pando.EmbeddingCache(10_000)
    array = np.arange(100, dtype=np.float32).reshape(10, 10)
    cache.put(b"\xff\x00", array)
    assert cache.get(b"\xff\x00") is array and cache.stats.used_bytes == 400

    class Tensor:  # as one on a GPU: no buffer, but it says how large it is
        nbytes = 500

    tensor = Tensor()
    cache.put("gpu", tensor)
    assert cache.get("gpu") is tensor and cache.stats.used_bytes == 900
    cache.put("anything", [tensor], size_bytes=7)
    assert cache.stats.used_bytes == 907


def test_a_buffer_that_is_cached_cannot_be_resized() -> None:
    cache = pando.EmbeddingCache(100)
    value = bytearray(10)
    cache.put("a", value)
    with pytest.raises(BufferError):
        value.append(1)
    cache.clear()
    value.append(1)


def test_bad_items_change_nothing() -> None:
    cache = pando.EmbeddingCache(10)
    cache.put("a", b"12345")
    with pytest.raises(pando.OutOfCapacity, match="11 bytes"):
        cache.put("a", bytes(11))
    assert cache.get("a") == b"12345" and cache.stats.refused == 1
    for value in (None, b"", object()):
        with pytest.raises(pando.InvalidArgument):
            cache.put("b", value)
    for name in ("", 3):
        with pytest.raises(pando.InvalidArgument):
            cache.put(name, b"1")  # type: ignore[arg-type]
    with pytest.raises(pando.InvalidArgument):
        pando.EmbeddingCache(0)
    cache.check()
    assert cache.capacity_bytes == 10


def test_values_go_when_the_last_holder_does() -> None:
    cache = pando.EmbeddingCache(1000)
    value = np.zeros(10)
    gone = weakref.ref(value)
    references = sys.getrefcount(value)
    cache.put("a", value)
    assert sys.getrefcount(value) > references
    del value
    mine = cache.get("a")
    del cache
    gc.collect()
    assert mine.sum() == 0
    del mine
    assert gone() is None


def test_a_destructor_may_call_the_cache() -> None:
    cache = pando.EmbeddingCache(100)
    seen: list[bool] = []

    class Value:
        nbytes = 60

        def __del__(self) -> None:
            seen.append(cache.has("b"))

    cache.put("a", Value())
    cache.put("b", Value())
    assert seen == [True]
    cache.clear()
    assert seen == [True, False]


def test_threads_may_share_it() -> None:
    cache = pando.EmbeddingCache(1000)

    def work(seed: int) -> None:
        for i in range(500):
            name = str((i * seed) % 17)
            if cache.get(name) is None:
                cache.put(name, bytes(100))

    threads = [threading.Thread(target=work, args=(s,)) for s in (1, 3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.check()
    stats = cache.stats
    assert stats.hits + stats.misses == 1500


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=5))
def test_combined_hash(hashes: list[str]) -> None:
    text = b"".join(len(h.encode()).to_bytes(8, "little") + h.encode() for h in hashes)
    expected = hashes[0] if len(hashes) == 1 else hashlib.sha256(text).hexdigest()
    assert pando.combined_hash(hashes) == expected


def test_combined_hash_refuses_nothing() -> None:
    with pytest.raises(pando.InvalidArgument):
        pando.combined_hash([])
    with pytest.raises(pando.InvalidArgument):
        pando.combined_hash(["a", ""])
