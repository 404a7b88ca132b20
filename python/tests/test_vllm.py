# SPDX-License-Identifier: Apache-2.0
"""The parts of pando.vllm beside vLLM's own, call by call. Needs vLLM (scripts/test-engines.sh);
whole engines are in tests/engines/test_vllm.py."""

from __future__ import annotations

import logging
import mmap
import random
from pathlib import Path
from types import SimpleNamespace as Some
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm.v1.kv_offload.base", reason="vLLM 0.32 is not installed")

import pando.vllm
from pando.vllm import options
from pando.vllm.manager import PandoOffloadingManager
from pando.vllm.spec import PandoOffloadingSpec
from pando.vllm.tier import PandoTier, scope_of
from vllm.v1.kv_offload import base, config
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager
from vllm.v1.kv_offload.cpu.policies.factory import CachePolicyFactory
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

pando.vllm.register()


def key(number: int, group: int = 0) -> Any:
    return base.make_offload_key(number.to_bytes(32, "big"), group)


class Requests:
    """The same random life of requests, for any number of managers: prompts are paths of a tree,
    written part by part; transfers overlap, fail, and end after their request."""

    def __init__(self, managers: list[Any], seed: int, groups: int = 2) -> None:
        self.managers = managers
        self.random = random.Random(seed)
        self.groups = groups
        self.contexts: dict[int, list[Any]] = {}
        self.done: dict[int, int] = {}
        self.stores: list[tuple[list[Any], list[Any]]] = []
        self.loads: list[tuple[list[Any], list[Any]]] = []
        self.evicted = self.hits = 0
        self.number = 0

    def chunk(self, prompt: int, position: int) -> int:
        branch = prompt // 4 if position < 3 else prompt // 2 if position < 6 else prompt
        return branch * 1000 + position + (0 if position < 3 else 10**6)

    def keys(self, prompt: int, first: int, last: int) -> list[Any]:
        return [
            key(self.chunk(prompt, position), group)
            for group in range(self.groups)
            for position in range(first, last)
        ]

    def step(self) -> None:
        what = self.random.choice(
            [self.begin, self.store, self.store, self.load, self.end_store, self.end_load, self.end]
        )
        what()
        asked = [key(self.random.randrange(20) * 1000 + self.random.randrange(8)) for _ in range(4)]
        self.all_say(lambda m, c: [m.lookup(one, None).name for one in asked])

    def all_say(self, ask: Any, contexts: list[Any] | None = None) -> Any:
        answers = [
            ask(manager, context)
            for manager, context in zip(
                self.managers, contexts or [None] * len(self.managers), strict=True
            )
        ]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    def begin(self) -> None:
        prompt = self.random.randrange(20)
        if prompt in self.contexts or len(self.contexts) > 5:
            return
        self.number += 1
        self.contexts[prompt] = [base.ReqContext(f"r{self.number}") for _ in self.managers]
        self.done[prompt] = 0
        for context in self.contexts[prompt]:
            for group in range(self.groups):
                for position in range(12):
                    one = key(self.chunk(prompt, position), group)
                    context.set_offload_key_position(one, 16 * (position + 1))

    def store(self) -> None:
        if not self.contexts:
            return
        prompt = self.random.choice(list(self.contexts))
        first = self.done[prompt]
        last = min(first + self.random.randrange(1, 4), 12)
        keys = self.keys(prompt, first, last)
        contexts = self.contexts[prompt]

        def prepare(manager: Any, context: Any) -> Any:
            output = manager.prepare_store(list(keys), context)
            return None if output is None else (output.keys_to_store, output.evicted_keys)

        said = self.all_say(prepare, contexts)
        if said is None:
            return
        self.done[prompt] = last
        self.evicted += len(said[1])
        if said[0]:
            self.stores.append((said[0], contexts))

    def end_store(self) -> None:
        if self.stores:
            keys, contexts = self.stores.pop(self.random.randrange(len(self.stores)))
            success = self.random.random() < 0.9
            self.all_say(lambda m, c: m.complete_store(set(keys), c, success), contexts)

    def load(self) -> None:
        if not self.contexts:
            return
        prompt = self.random.choice(list(self.contexts))
        keys = self.keys(prompt, 0, self.random.randrange(1, 6))
        contexts = self.contexts[prompt]
        if all(self.managers[0].lookup(one, None) is base.LookupResult.HIT for one in keys):
            self.hits += 1
            self.all_say(lambda m, c: len(m.prepare_load(keys, c).block_ids), contexts)
            self.loads.append((keys, contexts))

    def end_load(self) -> None:
        if self.loads:
            keys, contexts = self.loads.pop(self.random.randrange(len(self.loads)))
            self.all_say(lambda m, c: m.complete_load(keys, c), contexts)

    def end(self) -> None:
        if self.contexts:
            contexts = self.contexts.pop(self.random.choice(list(self.contexts)))
            self.all_say(lambda m, c: m.on_request_finished(c), contexts)


@pytest.fixture
def lru_of_ours() -> str:
    name = "pando-lru"
    if name not in CachePolicyFactory._registry:
        CachePolicyFactory.register_cache_policy(name, "pando.vllm.policies", "PandoCachePolicy")
    return name


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_chunks", [14, 40, 150])
def test_managers_decide_alike(seed: int, num_chunks: int, lru_of_ours: str) -> None:
    """vLLM's manager with vLLM's LRU, the same with our order, and ours: every answer, every victim."""
    managers = [
        CPUOffloadingManager(num_chunks, cache_policy="lru"),
        CPUOffloadingManager(num_chunks, cache_policy=lru_of_ours),
        PandoOffloadingManager(num_chunks, policy="lru"),
    ]
    requests = Requests(managers, seed)
    for _ in range(1500):
        requests.step()
        managers[2].table.check()
        managers[1]._policy._table.check()
    assert requests.hits > 0
    assert requests.evicted > 0 or num_chunks == 150


@pytest.mark.parametrize("policy", options.POLICIES)
def test_every_policy_runs_in_both_managers(policy: str) -> None:
    for manager in (
        PandoOffloadingManager(30, policy=policy),
        CPUOffloadingManager(30, cache_policy=policy),
    ):
        requests = Requests([manager], seed=1)
        for _ in range(1500):
            requests.step()
        assert requests.evicted > 0 and requests.hits > 0


def test_a_reset_forgets_what_is_under_way() -> None:
    manager = PandoOffloadingManager(4)
    context = base.ReqContext("r")
    manager.prepare_store([key(1)], context)
    manager.reset_cache()
    assert manager.lookup(key(1), context) is base.LookupResult.MISS
    manager.prepare_store([key(2)], context)
    manager.complete_store([key(2)], context)
    manager.on_request_finished(context)
    assert manager.lookup(key(2), context) is base.LookupResult.HIT
    manager.table.check()


def test_events_and_statistics() -> None:
    manager = PandoOffloadingManager(1, enable_events=True)
    for number in (1, 2):
        context = base.ReqContext(f"r{number}")
        manager.prepare_store([key(number)], context)
        manager.complete_store([key(number)], context)
        manager.on_request_finished(context)
    events = [(event.keys, event.removed, event.medium) for event in manager.take_events()]
    cpu = base.Medium.CPU
    assert events == [([key(1)], False, cpu), ([key(1)], True, cpu), ([key(2)], False, cpu)]
    assert list(manager.take_events()) == []
    manager.prepare_load([key(2)], base.ReqContext("r3"))
    reduced = manager.get_stats().reduce()
    assert reduced["vllm:kv_offload_cpu_cache_read_usage_perc"] == 1.0
    assert reduced["vllm:kv_offload_cpu_cache_write_usage_perc"] == 0.0
    assert reduced["vllm:kv_offload_cpu_allocation_size_count"] == 2


def test_what_is_offered_too_seldom_is_not_stored() -> None:
    manager = PandoOffloadingManager(4, store_threshold=2)
    context = base.ReqContext("r")
    assert manager.prepare_store([key(1)], context).keys_to_store == []
    assert manager.prepare_store([key(1), key(2)], context).keys_to_store == [key(1)]
    assert manager.get_stats().reduce()["vllm:kv_offload_stores_skipped"] == 2


# ---- Spec --------------------------------------------------------------------------------------


def offloading_config(extra: dict[str, Any], **changed: Any) -> Any:
    fields: dict[str, Any] = {
        "groups": (config.OffloadingGroupConfig(16, ("layer.0", "layer.1"), 0),),
        "worker_kv_bytes_per_block": 4096,
        "enable_kv_cache_events": True,
        "extra_config": extra,
        "engine_id": "e",
        "model": config.OffloadingModelConfig("org/model", "bfloat16"),
        "cache": config.OffloadingCacheConfig(16, 1),
        "parallel": config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False),
    }
    return config.OffloadingConfig(**fields | changed)


def test_the_spec_makes_our_manager() -> None:
    spec = PandoOffloadingSpec(
        offloading_config({"cpu_bytes_to_use": 4 * 4096, "eviction_policy": "hazard"})
    )
    manager = spec.get_manager()
    assert isinstance(manager, PandoOffloadingManager)
    assert (manager.table.num_blocks, manager.table.policy) == (4, "hazard")
    assert spec.get_manager() is manager


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"cpu_bytes_to_use": 4096, "eviction_policy": "arc"}, "'arc'.*expects one of lru"),
        ({"cpu_bytes_to_use": 100}, "100 bytes has no room for one chunk of 4096"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PandoOffloadingSpec(offloading_config(extra))


# ---- Tier --------------------------------------------------------------------------------------


def spec_of(**changed: Any) -> Any:
    made = offloading_config({}, **changed)
    return Some(
        config=made,
        replicated_layout=False,
        kv_events_config=Some(enable_kv_cache_events=made.enable_kv_cache_events),
    )


class Tier:
    """A tier over memory of its own, as vLLM makes it."""

    def __init__(self, **settings: Any) -> None:
        self.mapping = mmap.mmap(-1, 8 * 4096)
        self.view = memoryview(self.mapping).cast("B", (8, 4096))
        self.memory = np.asarray(self.view)
        self.tier = SecondaryTierFactory.create_secondary_tier(
            {"type": "pando"} | settings, self.view, spec_of()
        )
        self.jobs = 0

    def move(self, keys: list[Any], chunks: list[int], promotion: bool) -> Any:
        self.jobs += 1
        job = TransferJob(self.jobs, keys, np.array(chunks), promotion, base.ReqContext("r"))
        (self.tier.submit_load if promotion else self.tier.submit_store)(job)
        self.tier.drain_jobs()
        (result,) = self.tier.get_finished_jobs()
        assert result.job_id == self.jobs
        return result

    def lookup(self, one: Any) -> str:
        while (found := self.tier.lookup(one, None)) is base.LookupResult.RETRY:
            self.tier.on_schedule_end(None)
        return found.name

    def troubles(self) -> dict[str, float]:
        return {
            name.rpartition("', '")[2].rstrip("')"): value
            for name, value in self.tier.get_stats().reduce().items()
            if "troubles" in name
        }


def test_a_chunk_goes_to_the_store_and_comes_back() -> None:
    tier = Tier(backend="memory")
    assert isinstance(tier.tier, PandoTier)
    tier.memory[1] = 7
    assert tier.move([key(1)], [1], promotion=False).success
    assert (tier.lookup(key(1)), tier.lookup(key(2))) == ("HIT", "MISS")
    result = tier.move([key(1), key(2)], [3, 0], promotion=True)
    assert (result.success, list(result.successful_keys)) == (False, [key(1)])
    assert (tier.memory[3] == 7).all()
    (event,) = tier.tier.take_events()
    assert (event.keys, event.removed) == ([key(1)], False)
    assert (event.medium, event.ownership) == (base.Medium.STORAGE, "pando")
    assert not tier.tier.has_pending_work()


def test_an_answer_from_before_a_store_is_not_given() -> None:
    """vLLM asks for more keys than it comes back for."""
    tier = Tier(backend="memory")
    assert tier.tier.lookup(key(1), None) is base.LookupResult.RETRY
    tier.tier.on_schedule_end(None)
    while tier.tier.has_pending_work():
        list(tier.tier.get_finished_jobs())  # the answer is no, and nobody comes for it
    tier.move([key(1)], [1], promotion=False)
    assert tier.lookup(key(1)) == "HIT"


def test_shutdown_lets_go_of_the_memory() -> None:
    tier = Tier(backend="memory")
    tier.move([key(1)], [1], promotion=False)
    tier.tier.shutdown()
    del tier.memory
    tier.view.release()
    tier.mapping.close()  # BufferError if anything still refers to it


def test_damage_is_a_miss_that_is_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier(backend="file", options={"directory": str(tmp_path / "kv"), "min_free_bytes": 0})
    tier.memory[1] = 7
    tier.move([key(n) for n in range(3)], [1, 1, 1], promotion=False)
    for file in (tmp_path / "kv").glob("??/*"):
        data = bytearray(file.read_bytes())
        data[5000] ^= 1
        file.write_bytes(data)
    with caplog.at_level(logging.WARNING, "pando.vllm"):
        for _ in range(3):
            tier.memory[2] = 0
            tier.move([key(n) for n in range(3)], [2, 3, 4], promotion=True)
    assert not (tier.memory[2:5] == 7).all(axis=1).any()
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("pando (file): 3 pages not read, damaged: what the store has is not")
    assert len(said) == 2  # the second time they are missing; then nothing is said for a minute
    assert tier.troubles() == {"not read, damaged": 3, "not read, missing": 6}
    assert tier.troubles() == {}
    tier.tier.shutdown()


def test_a_full_store_is_logged_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tier = Tier(
        backend="file", options={"directory": str(tmp_path), "min_free_bytes": 1 << 60}
    )
    with caplog.at_level(logging.WARNING, "pando.vllm"):
        assert not tier.move([key(1)], [1], promotion=False).success
    assert "1 pages not written, failed: " in caplog.text and "no room" in caplog.text
    assert tier.troubles() == {"not written, failed": 1}
    tier.tier.shutdown()


def test_a_server_that_is_away_makes_misses(caplog: pytest.LogCaptureFixture) -> None:
    """It may come back, so it is no reason not to start."""
    tier = Tier(backend="redis", options={"servers": ["127.0.0.1:1"]})
    with caplog.at_level(logging.WARNING, "pando.vllm"):
        for number in range(5):
            assert tier.lookup(key(number)) == "MISS"
            assert not tier.move([key(number)], [1], promotion=False).success
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2  # once for each kind
    assert all("127.0.0.1:1: Connection refused" in one for one in said)
    assert tier.troubles() == {"not looked up": 5, "not written, failed": 5}
    tier.tier.shutdown()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"backend": "tape"}, "tape"),
        ({"backend": "file"}, "directory"),
        ({"backend": "file", "options": {"directory": "/proc/kv"}}, "/proc/kv"),
        ({"backend": "file", "options": {"directory": "/tmp/x", "sise": 3}}, "sise"),
    ],
)
def test_a_store_that_cannot_be_is_refused_at_start(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises((pando.Error, ValueError), match=message):
        Tier(**settings)


def test_scopes_differ_where_the_bytes_may() -> None:
    parallel = config.OffloadingParallelConfig
    scopes = [
        scope_of(spec_of()),
        scope_of(spec_of(), "weights of June"),
        scope_of(spec_of(model=config.OffloadingModelConfig("org/model", "fp8"))),
        scope_of(spec_of(model=config.OffloadingModelConfig("other/model", "bfloat16"))),
        scope_of(spec_of(canonical_layout=True)),
        scope_of(spec_of(kv_cache_layout="LBHNC")),
        scope_of(spec_of(worker_kv_bytes_per_block=8192)),
        scope_of(spec_of(cache=config.OffloadingCacheConfig(16, 2))),
        scope_of(spec_of(groups=(config.OffloadingGroupConfig(16, ("layer.0",), 0),))),
        scope_of(spec_of(parallel=parallel(0, 2, 2, 1, 1, 1, 0, 1, None, False))),
        scope_of(spec_of(parallel=parallel(0, 2, 2, 1, 1, 1, 0, 1, None, True))),
    ]
    assert len(set(scopes)) == len(scopes)
    assert all(scope.startswith("model ") for scope in scopes)
    # Where bytes are the same however the model is split, so is the scope.
    agnostic = [parallel(0, n, n, 1, 1, 1, 0, 1, None, True) for n in (1, 2)]
    assert len({scope_of(spec_of(parallel=one)) for one in agnostic}) == 1
