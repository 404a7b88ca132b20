# SPDX-License-Identifier: Apache-2.0
"""PrefixCache over device, host and store, with real bytes: every row says for which prefix it was
computed, and is looked at after each match. The store is written in Python, and may misbehave."""

from __future__ import annotations

import sys
import time

import numpy as np
import pando
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PAGE, LAYERS, DEVICE = 4, 2, 64


class DictStore:
    """Keeps pages in a dict that outlives it."""

    def __init__(self, pages: dict[str, bytes], fault: str = "") -> None:
        self.pages, self.fault = pages, fault

    def exists(self, keys):
        return [key in self.pages for key in keys]

    def get(self, keys, pages):
        if self.fault == "raises":
            raise OSError("the network is down")
        found = []
        for key, page in zip(keys, pages):
            data = self.pages.get(key)
            if data is not None and self.fault == "lies":
                data = data[:-30] + bytes(30)
            found.append(data is not None and page.copy_from(data))
        return found

    def put(self, keys, pages):
        self.pages.update(zip(keys, [page.tobytes() for page in pages]))

    def remove(self, keys):
        for key in keys:
            self.pages.pop(key, None)

    def clear(self):
        self.pages.clear()


SHARED: dict[str, dict[str, bytes]] = {}


def make_shared_store(name: str, fault: str = "") -> DictStore:
    return DictStore(SHARED.setdefault(name, {}), fault)


pando.register_store("python-dict", make_shared_store)


class Engine:
    """Device memory for few tokens, host memory for many, and maybe a store."""

    def __init__(self, store: dict[str, object] | None = None, **options) -> None:
        geometry = pando.mha_geometry(
            num_layers=LAYERS, heads=1, head_dim=2, page_size=PAGE, dtype=pando.DType.fp32
        )
        self.allocator = pando.PagedAllocator(DEVICE, page_size=PAGE)
        self.device = pando.KvPool(geometry, capacity_tokens=DEVICE)
        self.host = pando.HostPool(self.device, ratio=8.0, keep_free_bytes=0)
        tier = pando.HostTierOptions(
            full=pando.TierPools(device=self.device, host=self.host),
            copier=pando.make_cpu_copier(),
            write_policy="write_through",
            load_back_threshold=1,
        )
        self.cache = pando.PrefixCache(self.allocator, host=tier, **options)
        if store is not None:
            self.cache.tiers.attach_storage(
                pando.StorageOptions(
                    backend="python-dict",
                    options={"prefetch_threshold": 1, **store},
                    prefetch_policy="wait_complete",
                )
            )

    def rows(self, tokens: np.ndarray) -> np.ndarray:
        """What a model would compute: each row depends on all tokens up to its own."""
        prefix = np.cumsum((tokens.astype(np.float64) + 1) * (np.arange(len(tokens)) + 1)) % 1e6
        return np.stack([prefix, prefix + 0.5], axis=-1).astype(np.float32)[:, None, :]

    def settle(self) -> None:
        deadline = time.monotonic() + 20
        while not self.cache.poll().idle:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def serve(self, tokens: np.ndarray, ns: str = "") -> dict[str, int]:
        fetched = 0
        if self.cache.tiers.has_storage:
            prefetch = self.cache.prefetch(tokens, ns=ns)
            if prefetch.id is not None:
                while not self.cache.prefetch_ready(prefetch.id):
                    self.cache.poll()
                    time.sleep(0.001)
                fetched = self.cache.end_prefetch(prefetch.id)
        request = self.cache.start(tokens, ns=ns)
        match = request.found
        loaded = self.cache.load_back(request)
        reused = request.cached_length
        assert reused == match.length + loaded.tokens
        expected = self.rows(tokens)
        for layer in range(LAYERS):
            keys = np.asarray(self.device.key(layer))  # waits for the layer
            np.testing.assert_array_equal(keys[request.slots[:reused]], expected[:reused])
        self.cache.allocate(request)
        fresh = request.slots[reused:]
        for layer in range(LAYERS):
            self.device.set(layer, fresh, [expected[reused:], expected[reused:]])
        self.cache.finish(request)
        self.settle()
        self.cache.check()
        return {"device": match.length, "host": loaded.tokens, "store": fetched}


def prompt(number: int, length: int = 41) -> np.ndarray:
    return np.arange(number * 1000, number * 1000 + length, dtype=np.int32)


def test_what_the_device_evicts_comes_back_from_the_host() -> None:
    engine = Engine()
    for number in (1, 2, 3):
        assert engine.serve(prompt(number)) == {"device": 0, "host": 0, "store": 0}
    again = engine.serve(prompt(1))
    assert again["device"] + again["host"] == 40
    assert again["host"] > 0
    assert engine.cache.tiers.stats().loaded_tokens >= again["host"]
    assert engine.cache.inspect.host_sizes().total > DEVICE


def test_a_store_in_python_serves_the_next_process() -> None:
    SHARED["restart"] = {}
    first = Engine({"name": "restart"})
    first.serve(prompt(1))
    assert first.cache.tiers.stats().stored_tokens == 40
    del first
    second = Engine({"name": "restart"})
    assert second.serve(prompt(1)) == {"device": 0, "host": 40, "store": 40}
    assert second.cache.tiers.storage_stats().read_pages == 10
    second.cache.tiers.clear_storage()
    assert SHARED["restart"] == {}
    assert "detached" in second.cache.tiers.detach_storage() or not second.cache.tiers.has_storage


@pytest.mark.parametrize("fault", ["raises", "lies"])
def test_a_store_that_fails_is_a_miss(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: heard.append(str(args.exc_value)))
    SHARED["faulty"] = {}
    good = Engine({"name": "faulty"})
    good.serve(prompt(1))
    del good
    engine = Engine({"name": "faulty", "fault": fault})
    assert engine.serve(prompt(1)) == {"device": 0, "host": 0, "store": 0}
    assert engine.serve(prompt(1))["device"] == 40  # it goes on
    assert bool(heard) == (fault == "raises")


class TwinRanks:
    """As if another rank did exactly the same, until it goes."""

    rank, size = 0, 2
    gone = False

    def min(self, values):
        if self.gone:
            raise ConnectionError("rank 1 has gone")
        return values

    max = min

    def barrier(self) -> None: ...


def test_ranks_that_fail_end_the_movement_between_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: heard.append(str(args.exc_value)))
    ranks = TwinRanks()
    engine = Engine(ranks=ranks)
    engine.serve(prompt(1))
    ranks.gone = True
    request = engine.cache.start(prompt(2))
    engine.cache.allocate(request)
    engine.cache.finish(request)  # begins a copy to the host
    assert engine.cache.poll().ranks_lost
    assert heard[0] == "rank 1 has gone"
    assert engine.cache.paths.match(prompt(2)).length == 40  # what is on the device still is
    with pytest.raises(pando.Error, match="do not reach each other"):
        Engine(ranks=ranks)


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60), st.booleans()), max_size=12))
def test_every_byte_is_that_of_its_prefix(served: list[tuple[int, int, bool]]) -> None:
    SHARED["bytes"] = {}
    engine = Engine({"name": "bytes"})
    for number, length, tenant in served:
        engine.serve(prompt(number, length), ns="tenant" if tenant else "")
