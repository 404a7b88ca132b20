# SPDX-License-Identifier: Apache-2.0
"""pando.vllm.OffloadingManager: host blocks by key, and a store behind them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import pando
import pando.vllm
from pando.vllm.offload_types import LookupResult

BLOCK_BYTES = 64


def key(i: int) -> bytes:
    return i.to_bytes(32, "big") + b"\0\0\0\1"


def keys(*numbers: int) -> list[bytes]:
    return [key(i) for i in numbers]


def store(m: pando.vllm.OffloadingManager, *numbers: int) -> list[int]:
    output = m.prepare_store(keys(*numbers))
    assert output is not None
    m.complete_store(output.keys_to_store)
    return output.store_spec.block_ids.tolist()


# ---- On the host -----------------------------------------------------------------------------


class Machine(RuleBasedStateMachine):
    """Random transfers against an ordered dict: a use moves a block to its end, and the end of a
    transfer is one."""

    num_blocks = 6

    def __init__(self) -> None:
        super().__init__()
        self.m = pando.vllm.OffloadingManager(self.num_blocks, api="0.11", enable_events=True)
        self.ready: dict[bytes, int] = {}  # readable, the least recently used first: its loads
        self.writing: set[bytes] = set()

    def used(self, key: bytes) -> None:
        self.ready[key] = self.ready.pop(key)

    @rule(names=st.lists(st.integers(0, 12), min_size=1, max_size=5, unique=True))
    def prepare_store(self, names: list[int]) -> None:
        wanted = [k for k in keys(*names) if k not in self.ready and k not in self.writing]
        asked = set(keys(*names))
        room = self.num_blocks - len(self.ready) - len(self.writing)
        idle = [k for k, loads in self.ready.items() if not loads and k not in asked]
        output = self.m.prepare_store(keys(*names))
        if len(wanted) > room + len(idle):
            assert output is None
            return
        assert output is not None
        assert output.keys_to_store == wanted
        assert output.evicted_keys == idle[: max(0, len(wanted) - room)]
        assert len(set(output.store_spec.block_ids.tolist())) == len(wanted)
        for k in output.evicted_keys:
            del self.ready[k]
        if wanted:
            for k in reversed(keys(*names)):
                if k in self.ready:
                    self.used(k)
        self.writing.update(wanted)

    @rule(names=st.lists(st.integers(0, 12), max_size=5, unique=True), success=st.booleans())
    def complete_store(self, names: list[int], success: bool) -> None:
        done = [k for k in keys(*names) if k in self.writing]
        self.m.complete_store(keys(*names), success)
        self.writing.difference_update(done)
        if success:
            self.ready.update((k, 0) for k in reversed(done))

    @rule(names=st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True))
    def load(self, names: list[int]) -> None:
        if any(k not in self.ready for k in keys(*names)):
            with pytest.raises(KeyError):
                self.m.prepare_load(keys(*names))
            return
        ids = self.m.prepare_load(keys(*names)).block_ids.tolist()
        assert len(set(ids)) == len(names)
        for k in keys(*names):
            self.ready[k] += 1

    @rule(names=st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True))
    def complete_load(self, names: list[int]) -> None:
        if any(not self.ready.get(k) for k in keys(*names)):
            with pytest.raises(KeyError):
                self.m.complete_load(keys(*names))
            return
        self.m.complete_load(keys(*names))
        for k in reversed(keys(*names)):
            self.ready[k] -= 1
            if self.ready[k] == 0:
                self.used(k)

    @rule(names=st.lists(st.integers(0, 12), max_size=6, unique=True))
    def touch(self, names: list[int]) -> None:
        self.m.touch(keys(*names))
        for k in reversed(keys(*names)):
            if k in self.ready:
                self.used(k)

    @rule()
    def reset(self) -> None:
        self.m.reset_cache()
        self.ready.clear()
        self.writing.clear()

    @invariant()
    def agree(self) -> None:
        for i in range(13):
            assert self.m.lookup([key(i)]) == (key(i) in self.ready)
        pool = self.m._keyed.pool
        pool.check()
        held = len(self.writing) + sum(loads > 0 for loads in self.ready.values())
        assert pool.num_blocks - 1 - pool.num_free == held


Machine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=40, deadline=None, derandomize=True
)
TestHost = Machine.TestCase


def test_lookup_answers_as_each_version_asks() -> None:
    old = pando.vllm.OffloadingManager(4, api="0.11")
    middle = pando.vllm.OffloadingManager(4, api="0.20")
    new = pando.vllm.OffloadingManager(4, api="0.32")
    for m in (old, middle, new):
        store(m, 1, 2)
        m.prepare_store(keys(3))
    assert old.lookup(iter(keys(1, 2, 3))) == 2
    assert old.lookup(keys(9, 1)) == 0
    assert [middle.lookup(k, object()) for k in keys(1, 3, 4)] == [True, False, False]
    assert [new.lookup(k, object()) for k in keys(1, 3, 4)] == [
        LookupResult.HIT, LookupResult.HIT_PENDING, LookupResult.MISS,
    ]
    new.complete_store(keys(3), object(), False)
    assert new.lookup(key(3), object()) is LookupResult.MISS
    assert new.on_new_request(object()) is not None
    assert new.get_stats() is None and not new.has_pending_work()


def test_events_tell_what_came_and_went() -> None:
    m = pando.vllm.OffloadingManager(2, block_size=16, enable_events=True)
    store(m, 1, 2)
    store(m, 3)
    told = [(e.keys, e.removed, e.medium, e.block_size) for e in m.take_events()]
    assert told == [
        (keys(1, 2), False, "CPU", 16), (keys(2), True, "CPU", 16), (keys(3), False, "CPU", 16),
    ]
    assert list(m.take_events()) == []


def test_names_of_both_generations() -> None:
    m = pando.vllm.OffloadingManager(1)
    store(m, 1)
    output = m.prepare_store(keys(2))
    assert output is not None
    assert output.block_hashes_to_store == output.keys_to_store == keys(2)
    assert output.block_hashes_evicted == output.evicted_keys == keys(1)
    assert output.store_spec.medium() == "CPU"
    assert output.store_spec.chunk_ids.tolist() == [0]


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="num_blocks"):
        pando.vllm.OffloadingManager(0)
    with pytest.raises(ValueError, match="api"):
        pando.vllm.OffloadingManager(1, api="0.1")
    memory = pando.Store(pando.make_memory_store())
    with pytest.raises(ValueError, match="scope"):
        pando.vllm.StoreLevel(memory, np.zeros((2, 8), np.uint8), "")
    with pytest.raises(ValueError, match="shape \\(2,\\)"):
        pando.vllm.StoreLevel(memory, np.zeros(2, np.uint8), "model")
    level = pando.vllm.StoreLevel(memory, np.zeros((2, 8), np.uint8), "model")
    with pytest.raises(ValueError, match="2 host blocks"):
        pando.vllm.OffloadingManager(3, store_level=level)


# ---- With a store ----------------------------------------------------------------------------


class Tiered:
    """A manager over memory that it can see, with the worker's part played by the test."""

    def __init__(self, backend: Any, num_blocks: int = 2, api: str = "0.20") -> None:
        self.pages = np.zeros((num_blocks, BLOCK_BYTES), np.uint8)
        self.store = pando.Store(backend)
        level = pando.vllm.StoreLevel(self.store, self.pages, "org/model bf16 tp0")
        self.m = pando.vllm.OffloadingManager(
            num_blocks, store_level=level, api=api, enable_events=True
        )

    def write(self, *numbers: int) -> None:
        output = self.m.prepare_store(keys(*numbers))
        assert output is not None
        by_key = dict(zip(output.keys_to_store, output.store_spec.block_ids, strict=True))
        for i in numbers:
            self.pages[by_key[key(i)]] = i
        self.m.complete_store(output.keys_to_store)
        self.settle()

    def settle(self) -> None:
        while self.m.has_pending_work():  # as an engine that has nothing else to do
            self.m.on_schedule_end(None)

    def find(self, number: int) -> bool:
        """As a scheduler that comes back while it is told to."""
        while (found := self.m.lookup(key(number), None)) is None:
            self.settle()
        return bool(found)

    def read(self, number: int) -> int:
        block = int(self.m.prepare_load(keys(number)).block_ids[0])
        values = set(self.pages[block].tolist())
        self.m.complete_load(keys(number))
        assert len(values) == 1
        return values.pop()


@contextmanager
def redis_server() -> Iterator[str]:
    """On a socket of this test alone; its path must be short."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed")
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/s"
        process = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", path, "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 10
            while not Path(path).exists():
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            yield f"unix:{path}"
        finally:
            process.terminate()
            process.wait(10)


@pytest.fixture(params=["memory", "file", "redis"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield pando.make_memory_store()
    elif request.param == "file":
        yield pando.make_store_backend(
            "file", {"directory": str(tmp_path / "pages"), "min_free_bytes": 0}
        )
    else:
        with redis_server() as address:
            yield pando.make_redis_store([address])


def test_what_the_host_evicts_comes_back_from_the_store(backend: Any) -> None:
    tiered = Tiered(backend)
    for i in range(1, 9):
        tiered.write(i)
    assert [i for i in range(1, 9) if tiered.m._keyed.find(key(i))] == [7, 8]
    for i in (3, 1, 8, 5):
        assert tiered.find(i)
        assert tiered.read(i) == i
    assert not tiered.find(99)
    assert tiered.m.num_failed_puts == 0
    tiered.store.close()


def test_many_are_asked_for_together_and_counted_from_the_first(backend: Any) -> None:
    tiered = Tiered(backend, num_blocks=4, api="0.11")
    for i in range(1, 9):
        tiered.write(i)
    assert tiered.m.lookup(keys(1, 2, 3, 99)) == 0
    tiered.settle()
    assert tiered.m.lookup(keys(1, 2, 3, 99)) == 3
    tiered.store.close()


def test_another_scope_shares_nothing() -> None:
    backend = pando.make_memory_store()
    first = Tiered(backend)
    first.write(1)
    pages = np.zeros((2, BLOCK_BYTES), np.uint8)
    other = pando.Store(backend)
    m = pando.vllm.OffloadingManager(
        2, store_level=pando.vllm.StoreLevel(other, pages, "another-model")
    )
    m.lookup(key(1), None)
    while m.has_pending_work():
        m.on_schedule_end(None)
    assert m.lookup(key(1), None) is False


def test_a_block_on_its_way_to_the_store_is_not_evicted() -> None:
    """Nor is it read as anything but what was put."""

    gate = threading.Event()

    class Level(pando.vllm.StoreLevel):
        """A level whose puts have not finished until the test says so."""

        def put(self, keys: Any, blocks: Any) -> Any:
            call = super().put(keys, blocks)
            return Held(call)

    class Held:
        def __init__(self, call: Any) -> None:
            self.call = call

        @property
        def finished(self) -> bool:
            return gate.is_set() and self.call.finished

        def wait(self) -> Any:
            return self.call.wait()

        def outcome(self, i: int) -> Any:
            return self.call.outcome(i)

    memory = pando.Store(pando.make_memory_store())
    level = Level(memory, np.zeros((2, BLOCK_BYTES), np.uint8), "model")
    m = pando.vllm.OffloadingManager(2, store_level=level)
    store(m, 1, 2)
    assert m.lookup(key(1), None) is True  # readable
    assert m.prepare_store(keys(3)) is None  # but in use
    gate.set()
    m.shutdown()
    assert m.prepare_store(keys(3)) is not None


def test_a_store_that_fails_is_a_miss() -> None:
    faulty = pando.make_faulty_store(
        pando.make_memory_store(),
        pando.StoreFaults(seed=1, error=0.3, flipped_bit=0.2, short_read=0.2),
    )
    tiered = Tiered(faulty, num_blocks=3)
    for i in range(1, 30):
        tiered.write(i)
    found = 0
    for i in range(1, 30):
        if tiered.find(i):
            assert tiered.read(i) == i
            found += 1
    assert 0 < found < 29
    assert tiered.m.num_failed_puts > 0
    tiered.store.close()


def test_pages_of_a_host_pool() -> None:
    geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=4)
    device = pando.KvPool(geometry, capacity_tokens=16)
    host = pando.HostPool(device, ratio=1.0, keep_free_bytes=0)
    store_ = pando.Store(pando.make_memory_store())
    level = pando.vllm.StoreLevel(store_, host, "model")
    pieces = level._pages.pieces(0)
    for piece in pieces:
        piece[:] = 7
    level.put([b"k"], [0]).wait()  # type: ignore[union-attr]
    level.get([b"k"], [2]).wait()  # type: ignore[union-attr]
    assert all((piece == 7).all() for piece in level._pages.pieces(2))
    assert level.num_blocks == host.num_pages


def test_specs_say_that_vllm_is_missing() -> None:
    if importlib.util.find_spec("vllm") is not None:
        pytest.skip("vLLM is installed")
    from pando.vllm import spec

    with pytest.raises(ImportError, match="PandoOffloadingSpec needs vllm.v1.kv_offload"):
        spec.PandoOffloadingSpec(object())
    with pytest.raises(ImportError, match="PandoTier needs"):
        spec.PandoTier(object(), memoryview(b""), "PandoTier")
