# SPDX-License-Identifier: Apache-2.0
"""pando.vllm beside vLLM's own files, decision by decision.

PANDO_VLLM_SOURCES names folders with unpacked vLLM wheels (as `pip download --no-deps vllm` and
`unzip` give them), separated by colons. See vllm_source.py for how little of vLLM is imported.
"""

from __future__ import annotations

import importlib
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace as Some
from typing import Any

import numpy as np
import pytest

import vllm_source
from vllm_stand_ins import Request

import pando
import pando.vllm

SOURCES = [Path(p) for p in os.environ.get("PANDO_VLLM_SOURCES", "").split(":") if p]
pytestmark = pytest.mark.skipif(
    not SOURCES, reason="PANDO_VLLM_SOURCES names no unpacked vLLM wheel"
)
SIZE = 4
HASHER = pando.BlockHasher(SIZE, "sha256_cbor")


@pytest.fixture(params=SOURCES, ids=lambda p: p.name)
def vllm(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Finds vLLM's modules by name."""
    with vllm_source.imported(request.param):
        yield lambda name: importlib.import_module(f"vllm.{name}")


def has(vllm: Any, name: str) -> bool:
    """Whether this version has such a file."""
    try:
        return hasattr(vllm(name), "__file__")
    except ImportError:
        return False


class Hashed(Request):
    """With the hashes that vLLM's requests have."""

    num_prompt_tokens = 0
    shared_prefix_boundary = 0
    kv_cache_report_mode = "incremental"

    @property
    def block_hashes(self) -> list[bytes]:
        return HASHER.hash_blocks(self.all_token_ids)


def real_manager(vllm: Any, num_blocks: int, spec: Any, eagle: bool) -> Any:
    interface = vllm("v1.kv_cache_interface")
    config = interface.KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], spec)],
    )
    managers = vllm("v1.core.single_type_kv_cache_manager")
    if not has(vllm, "v1.kv_cache_spec_registry"):  # not in this folder
        managers.KVCacheSpecRegistry = Registry
    Registry.managers = managers
    kind = vllm("v1.core.kv_cache_manager").KVCacheManager
    options: dict[str, Any] = {"use_eagle": eagle}
    names = kind.__init__.__code__.co_varnames
    for name in ("hash_block_size", "scheduler_block_size"):
        if name in names:
            options[name] = SIZE
    return config, kind(config, 256, **options)


class Registry:
    """Which of vLLM's managers has the rules of a group."""

    managers: Any = None

    @classmethod
    def get_manager_class(cls, spec: Any, role: Any = None) -> Any:
        return getattr(cls.managers, type(spec).__name__.replace("Spec", "Manager"))


def spec_of(vllm: Any, window: int | None) -> Any:
    interface = vllm("v1.kv_cache_interface")
    shape = {"block_size": SIZE, "num_kv_heads": 1, "head_size": 1, "dtype": "float32"}
    if window is None:
        return interface.FullAttentionSpec(**shape)
    return interface.SlidingWindowSpec(**shape, sliding_window=window)


def is_newest(vllm: Any) -> bool:
    """It puts blocks without content to the front of its queue, as Pando does."""
    return hasattr(vllm("v1.core.kv_cache_utils").FreeKVCacheBlockQueue, "prepend_n")


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize("eagle", [False, True])
def test_managers_decide_alike(vllm: Any, window: int | None, eagle: bool) -> None:
    if window and eagle:
        pytest.skip("Pando drops the last block of all that it finds, vLLM looks for one more")
    # Where both queues have one order, every block must be the same one, with few blocks. Else
    # there are so many that nothing is evicted, and what is found must be as long.
    exact = is_newest(vllm) and window is None
    num_blocks = 24 if exact else 3000
    config, real = real_manager(vllm, num_blocks, spec_of(vllm, window), eagle)
    three = "0.32" if is_newest(vllm) else "0.20"
    ours = pando.vllm.KVCacheManager(config, 256, use_eagle=eagle, api=three)
    rng = random.Random(7)
    waiting: list[Hashed] = []
    running: list[Hashed] = []
    hits = refusals = 0

    def both(method: str, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return tuple(getattr(m, method)(*args, **kwargs) for m in (real, ours))  # type: ignore

    def same(a: Any, b: Any) -> bool:
        if a is None or b is None:
            assert a is b
            return False
        shown = [x.get_block_ids() for x in (a, b)]
        if not exact:
            shown = [tuple([bool(i) for i in g] for g in x) for x in shown]
        assert shown[0] == shown[1]
        return True

    for number in range(1500):
        what = rng.random()
        if what < 0.3:
            prefix = [100 * rng.randrange(2) + i for i in range(SIZE * rng.randrange(6))]
            tail = [rng.randrange(3) for _ in range(rng.randrange(1, 9))]
            waiting.append(Hashed(f"r{number}", prefix + tail))
        elif what < 0.5 and waiting:
            request = rng.choice(waiting)
            (there, here) = both("get_computed_blocks", request)
            assert there[1] == here[1]
            same(there[0], here[0])
            hits += there[1]
            new = min(rng.randrange(1, 20), request.num_tokens - there[1])
            given = [
                m.allocate_slots(request, new, found[1], found[0])
                for m, found in ((real, there), (ours, here))
            ]
            if same(*given):
                request.num_computed_tokens = there[1] + new
                waiting.remove(request)
                running.append(request)
            else:
                refusals += 1
        elif what < 0.8 and running:
            request = rng.choice(running)
            if request.num_computed_tokens == request.num_tokens:
                request.all_token_ids.append(rng.randrange(3))
            new = min(rng.randrange(1, 9), request.num_tokens - request.num_computed_tokens)
            if same(*both("allocate_slots", request, new, num_lookahead_tokens=rng.randrange(3))):
                request.num_computed_tokens += new
        elif running:
            request = rng.choice(running)
            request.finished = rng.random() < 0.7
            both("free", request)
            running.remove(request)
            if not request.finished:
                request.num_computed_tokens = 0
                waiting.append(request)
        usage = [m.usage for m in (real, ours)]
        assert usage[0] == pytest.approx(usage[1])
    assert hits > 0
    assert refusals > 0 or not exact


def test_offloading_managers_decide_alike(vllm: Any) -> None:
    """Transfers that end as soon as they begin: then the end of one is its only use."""
    if has(vllm, "v1.kv_offload.lru_manager"):
        backend = vllm("v1.kv_offload.backends.cpu").CPUBackend(block_size=16, num_blocks=8)
        real = vllm("v1.kv_offload.lru_manager").LRUOffloadingManager(backend)
        api = "0.11"
        context: tuple[Any, ...] = ()
    else:
        real = vllm("v1.kv_offload.cpu.manager").CPUOffloadingManager(8)
        api = "0.32" if has(vllm, "v1.kv_offload.base") else "0.20"
        context = (object(),)
        if api == "0.32":
            context = (vllm("v1.kv_offload.base").ReqContext("r"),)
    ours = pando.vllm.OffloadingManager(8, api=api)
    late = context if api == "0.32" else ()  # touch and complete_* got theirs later
    rng = random.Random(3)
    hits = evictions = 0
    for _ in range(800):
        names = rng.sample(range(20), rng.randrange(1, 5))
        keys = [bytes([i]) * 32 + bytes(4) for i in names]
        if api == "0.11":  # it may evict what it is asked to keep; newer ones do not
            keys = [k for k in keys if not ours.lookup([k])]
        outputs = [m.prepare_store(keys, *context) for m in (real, ours)]
        if outputs[0] is None or outputs[1] is None:
            assert outputs[0] is outputs[1]
            continue
        names_of = ("keys_to_store", "evicted_keys")
        if api == "0.11":
            names_of = ("block_hashes_to_store", "block_hashes_evicted")
        for name in names_of:
            assert getattr(outputs[0], name) == getattr(outputs[1], name)
        evictions += len(getattr(outputs[0], names_of[1]))
        for m, output in zip((real, ours), outputs, strict=True):
            m.complete_store(getattr(output, names_of[0]), *late)
            m.touch(keys, *late)  # as vLLM's connector does
        asked = [bytes([i]) * 32 + bytes(4) for i in range(20)]
        if api == "0.11":
            found = [[m.lookup([k]) for k in asked] for m in (real, ours)]
        else:
            found = [[getattr(m.lookup(k, *context), "name", None) for k in asked]
                     for m in (real, ours)]
            if api == "0.20":
                found = [[m.lookup(k, *context) for k in asked] for m in (real, ours)]
        assert found[0] == found[1]
        there = [k for k in asked if ours._keyed.find(k)][:2]
        hits += len(there)
        for m in (real, ours):
            assert len(m.prepare_load(there, *context).block_ids) == len(there)
            m.complete_load(there, *late)
            m.touch(there, *late)
    assert hits > 0 and evictions > 0


def offloading_config(vllm: Any, extra: dict[str, Any]) -> Any:
    """As 0.32 has it."""
    config = vllm("v1.kv_offload.config")
    return config.OffloadingConfig(
        groups=(),
        worker_kv_bytes_per_block=1024,
        enable_kv_cache_events=True,
        extra_config=extra,
        engine_id="e",
        model=config.OffloadingModelConfig("org/model", "bfloat16"),
        cache=config.OffloadingCacheConfig(16, 1),
        parallel=config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False),
    )


def test_the_factory_makes_our_spec_by_its_module_path(vllm: Any) -> None:
    extra = {
        "spec_name": "PandoOffloadingSpec",
        "spec_module_path": "pando.vllm.spec",
        "num_cpu_blocks": 4,
        "cpu_bytes_to_use": 4 * 4096,
    }
    config = Some(
        kv_transfer_config=Some(kv_connector_extra_config=extra),
        cache_config=Some(block_size=16),
        parallel_config=Some(world_size=1),
        kv_events_config=Some(enable_kv_cache_events=True),
    )
    group = Some(kv_cache_spec=Some(block_size=16))
    tensors = [Some(size=40960)]
    args: tuple[Any, ...] = (config,)
    if has(vllm, "v1.kv_offload.base"):
        args = (offloading_config(vllm, extra),)
    elif has(vllm, "v1.kv_offload.cpu.spec"):
        cache = Some(num_blocks=10, kv_cache_groups=[group], kv_cache_tensors=tensors)
        args = (config, cache)
    spec = vllm("v1.kv_offload.factory").OffloadingSpecFactory.create_spec(*args)
    manager = spec.get_manager()
    assert isinstance(manager, pando.vllm.OffloadingManager)
    assert manager.num_blocks == 4
    assert spec.get_manager() is manager
    api = importlib.import_module("pando.vllm.spec").api_of_vllm()
    key = bytes(36)
    output = manager.prepare_store([key])
    manager.complete_store([key])
    assert type(output.store_spec).__module__.startswith("vllm.")
    assert [event.removed for event in manager.take_events()] == [False]
    if api == "0.11":
        assert manager.lookup([key]) == 1
    elif api == "0.20":
        assert manager.lookup(key, None) is True
    else:
        assert manager.lookup(key, None) is vllm("v1.kv_offload.base").LookupResult.HIT


def test_a_store_of_ours_is_a_tier_of_vllm_s(vllm: Any) -> None:
    if not has(vllm, "v1.kv_offload.tiering.base"):
        pytest.skip("this version has no tiers")
    base = vllm("v1.kv_offload.base")
    tiering = vllm("v1.kv_offload.tiering.base")
    shape = offloading_config(vllm, {})
    memory = np.zeros((4, 64), np.uint8)
    tier = vllm("v1.kv_offload.tiering.factory").SecondaryTierFactory.create_secondary_tier(
        {"type": "PandoTier", "module_path": "pando.vllm.spec", "backend": "memory"},
        memoryview(memory),
        Some(config=shape),
    )
    assert isinstance(tier, tiering.SecondaryTierManager)
    context = base.ReqContext("r")
    memory[1] = 7
    job = tiering.TransferJob(1, [b"a" * 36], np.array([1]), False, context)
    tier.submit_store(job)
    tier.drain_jobs()
    assert [(r.job_id, r.success) for r in tier.get_finished_jobs()] == [(1, True)]

    def lookup(key: bytes) -> Any:
        while (found := tier.lookup(key, context)) is base.LookupResult.RETRY:
            tier.on_schedule_end(None)
        return found

    assert lookup(b"a" * 36) is base.LookupResult.HIT
    assert lookup(b"b" * 36) is base.LookupResult.MISS
    tier.submit_load(
        tiering.TransferJob(2, [b"a" * 36, b"b" * 36], np.array([3, 0]), True, context)
    )
    tier.drain_jobs()
    (result,) = tier.get_finished_jobs()
    assert (result.success, list(result.successful_keys)) == (False, [b"a" * 36])
    assert (memory[3] == 7).all()
    assert not tier.has_pending_work()
    tier.shutdown()
