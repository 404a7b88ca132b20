# SPDX-License-Identifier: Apache-2.0
"""The SGLang plug-in with stand-ins for SGLang: random lives of requests, checked at every step."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import subprocess
import sys
from array import array
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sglang_standins as standins
from sglang_engine import CheckpointEngine, Engine, InsertEngine

import pando
import pando.sglang
from pando.sglang.events import EventTypes, part_of
from pando.sglang.hicache import LayerGate, PandoHiCache
from pando.sglang.host_setup import HostSetup, adopt_pool, storage_settings
from pando.sglang.interface import Interface, Unsupported
from pando.sglang.arguments import POLICIES, model_name
from pando.sglang.prefix_cache import cache_class
from pando.sglang.tensors import DeviceSlots

HAS_TORCH = importlib.util.find_spec("torch") is not None
INTERFACE = Interface.of(standins)
BY_INSERT = Interface.of(standins.BY_INSERT)
BY_CHECKPOINT = Interface.of(standins.BY_CHECKPOINT)
# By flavor, where it is not INTERFACE and Engine.
INTERFACES = {"0.5.21": BY_INSERT, "0.5.23": BY_CHECKPOINT}
ENGINES = {"0.5.21": InsertEngine, "0.5.23": CheckpointEngine}


@dataclasses.dataclass(frozen=True)
class Setup:
    flavor: str = "0.5.16"
    page_size: int = 1
    bigram: bool = False
    window: int | None = None
    policy: str = "lru"
    disable: bool = False
    torch: bool = False
    pages: int = 48
    write_policy: str | None = None  # with a host tier
    storage: bool = False

    def __str__(self) -> str:
        parts = [self.flavor, f"page{self.page_size}", self.policy]
        parts += ["bigram"] * self.bigram + ["disabled"] * self.disable + ["torch"] * self.torch
        parts += [self.write_policy] if self.write_policy else []
        parts += ["storage"] * self.storage
        return "-".join(parts + ([f"window{self.window}"] if self.window else []))

    def engine(self, **params: Any) -> Engine:
        arrays = standins.TorchArrays() if self.torch else standins.NumpyArrays()
        flavor = standins.FLAVORS[self.flavor]
        pool = standins.ReqToTokenPool(5, 1024, arrays)
        total = self.pages * self.page_size
        total_window = 0
        if self.window is None:
            allocator: Any = flavor.allocator(total, self.page_size, arrays)
        else:
            total_window = total * 3 // 4 // self.page_size * self.page_size
            allocator = flavor.swa_allocator(total, total_window, self.page_size, arrays)
        init = standins.CacheInitParams(
            disable=self.disable,
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=allocator,
            page_size=self.page_size,
            is_eagle=self.bigram,
            eviction_policy=self.policy,
            **params,
        )
        kv_pool = None
        if self.write_policy is None:
            interface = INTERFACES.get(self.flavor, INTERFACE)
            cache = cache_class(interface)(init, sliding_window_size=self.window)
        else:
            kv_pool = standins.KvPool(total, self.page_size, 3, arrays)
            cache = cache_class(INTERFACE, PandoHiCache)(init, host=self.host_setup(kv_pool))
        return ENGINES.get(self.flavor, Engine)(
            cache,
            types=standins,
            make_req=flavor.req,
            pool=pool,
            allocator=allocator,
            total=total,
            total_window=total_window,
            window=self.window,
            bigram=self.bigram,
            exact=self.window is None,
            kv_pool=kv_pool,
        )

    def host_setup(self, kv_pool: Any) -> HostSetup:
        device = adopt_pool(kv_pool, self.page_size)
        host = pando.HostPool(device, ratio=1.5, keep_free_bytes=0)
        return HostSetup(
            options=pando.HostTierOptions(
                full=pando.TierPools(device=device, host=host),
                copier=pando.make_cpu_copier(),
                write_policy=self.write_policy,
                load_back_threshold=1,
            ),
            kv_pool=kv_pool,
            device=device,
            storage={
                "storage_backend": "memory",
                "storage_backend_extra_config_json": '{"prefetch_threshold": 1}',
                "hicache_storage_prefetch_policy": "wait_complete",
            }
            if self.storage
            else None,
        )


Operation = tuple[int, int, int, int]
OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 2**16), st.integers(0, 2**16), st.integers(0, 2**16)
    ),
    min_size=1,
    max_size=40,
)


def prompt_of(engine: Engine, a: int, b: int) -> tuple[list[int], str | None]:
    """Fresh tokens from a small vocabulary, or more of what was seen before."""
    random = np.random.default_rng(a)
    fresh = random.integers(0, 3, 1 + b % (6 * engine.page_size)).tolist()
    if engine.history and a % 3:
        tokens, key = engine.history[b % len(engine.history)]
        return tokens[: a % (len(tokens) + 1)] + fresh, key
    return fresh, (None, "lora")[a % 2]


def run(engine: Engine, operations: list[Operation]) -> None:
    for kind, a, b, c in operations:
        running = engine.running
        if kind <= 2:
            prompt, key = prompt_of(engine, a, b)
            if len(prompt) <= 900:
                engine.start(prompt, key, priority=c % 3)
        elif kind <= 6:
            if running:
                engine.step(running[a % len(running)], b % (3 * engine.page_size), c % 3)
        elif kind == 7:
            if running:
                engine.finish(running[a % len(running)], insert=b % 4 != 0)
        elif kind == 8:
            engine.cache.evict(
                standins.EvictParams(
                    num_tokens=a % (4 * engine.page_size),
                    swa_num_tokens=b % (4 * engine.page_size) if engine.window else 0,
                )
            )
        elif engine.tiers:
            if a % 2:
                engine.settle()
                engine.cache.evict_host(b % engine.total)
            engine.cache.check_hicache_events()
        elif running:
            engine.release_window_lock(running[a % len(running)])
        engine.check()
    engine.finish_all()


SETUPS = [
    *(Setup(flavor=flavor, page_size=page) for flavor in standins.FLAVORS for page in (1, 16, 64)),
    *(Setup(policy=policy, page_size=4) for policy in POLICIES),
    *(Setup(bigram=True, page_size=page) for page in (1, 4, 16)),
    Setup(bigram=True, page_size=4, flavor="0.5.23"),
    *(Setup(disable=True, page_size=page, flavor=f) for page in (1, 4) for f in standins.FLAVORS),
    *(
        Setup(flavor=flavor, window=window, page_size=page)
        for flavor in standins.FLAVORS
        for page, window in ((1, 5), (4, 8), (4, 10), (16, 32))
    ),
    Setup(window=8, page_size=4, bigram=True),
    *(
        Setup(page_size=page, write_policy=policy)
        for page in (1, 16)
        for policy in ("write_through", "write_through_selective", "write_back")
    ),
    Setup(page_size=4, bigram=True, write_policy="write_through"),
    Setup(page_size=4, torch=True, write_policy="write_through"),
    Setup(page_size=4, write_policy="write_through", storage=True),
    Setup(window=8, page_size=4, disable=True),
    *(
        Setup(torch=True, flavor=flavor, page_size=page, window=window)
        for flavor in standins.FLAVORS
        for page in (1, 16)
        for window in (None, 2 * page)
    ),
]


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_random_lives_of_requests(setup: Setup) -> None:
    if setup.torch and not HAS_TORCH:
        pytest.skip("torch is not installed")

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(OPERATIONS)
    def lives(operations: list[Operation]) -> None:
        run(setup.engine(), operations)

    lives()


# ---- One thing at a time -----------------------------------------------------------------------


def key_of(tokens: Any, extra_key: str | None = None, **more: Any) -> standins.MatchPrefixParams:
    return standins.MatchPrefixParams(standins.RadixKey(tokens, extra_key, **more))


def cached(engine: Engine, prompt: list[int], extra_key: str | None = None) -> None:
    """A request that has come and gone."""
    run_ = engine.start(prompt, extra_key)
    assert run_ is not None
    engine.step(run_, len(prompt), 0)
    engine.finish(run_, insert=True)
    engine.check()


def test_a_miss_ends_at_the_root_and_a_limit_is_kept() -> None:
    engine = Setup(page_size=2).engine()
    cache = engine.cache
    cached(engine, list(range(8)))
    tokens = array("q", range(8))
    assert cache.match_prefix(key_of(array("q", [9, 9]))).last_device_node is cache.root_node
    assert cache.match_prefix(key_of(array("q"))).last_device_node is cache.root_node
    assert len(cache.match_prefix(key_of(tokens)).device_indices) == 8
    assert len(cache.match_prefix(key_of(tokens, limit=5)).device_indices) == 4
    assert len(cache.match_prefix(key_of(tokens, limit=0)).device_indices) == 0
    assert len(cache.match_prefix(key_of(list(range(8)), limit=7)).device_indices) == 6
    assert len(cache.match_prefix(key_of(tokens, "lora")).device_indices) == 0
    assert cache.is_root(cache.root_node_handle()) and cache.root_node.parent is None


def test_salts_keep_prompts_apart() -> None:
    engine = Setup(flavor="0.5.20").engine()
    cache = engine.cache
    for salt in (None, "a", "b"):
        request = engine.make_req("r", [1, 2, 3], None, 0)
        request.cache_salt = salt
        request.kv.req_pool_idx = 1
        engine.pool.req_to_token[1, :3] = engine.allocator.alloc(3)
        cache.cache_finished_req(request, kv_len_to_handle=3)
    assert cache.total_size() == 9
    assert len(cache.match_prefix(key_of(array("q", [1, 2, 3]))).device_indices) == 3
    slots = [
        tuple(
            cache.match_prefix(key_of(array("q", [1, 2, 3]), cache_salt=salt)).device_indices
        )
        for salt in (None, "a", "b")
    ]
    assert len(set(slots)) == 3


def test_insert_leaves_duplicates_to_the_caller() -> None:
    engine = Setup(page_size=4).engine()
    tokens = array("q", range(10))
    for expected in (0, 8):
        slots = engine.allocator.alloc(8)
        params = standins.InsertParams(key=standins.RadixKey(tokens), value=slots)
        result = engine.cache.insert(params)
        assert result.prefix_len == expected
        engine.allocator.free(slots[: result.prefix_len])
        engine.check()
    short = standins.InsertParams(key=standins.RadixKey(array("q", [1])), value=None)
    assert engine.cache.insert(short).prefix_len == 0


def test_insert_with_a_window_frees_duplicates_itself() -> None:
    engine = Setup(page_size=4, window=8).engine()
    tokens = array("q", range(12))
    for expected in (0, 12):
        slots = engine._take(12)
        params = standins.InsertParams(key=standins.RadixKey(tokens), value=slots)
        assert engine.cache.insert(params).prefix_len == expected
        engine.check()


def test_locks_are_counted_and_must_be_held_to_be_released() -> None:
    engine = Setup().engine()
    cache = engine.cache
    cached(engine, [1, 2, 3, 4])
    node = cache.match_prefix(key_of(array("q", [1, 2, 3, 4]))).last_device_node
    assert (node.lock_ref, node.evicted, node.parent) == (0, False, cache.root_node)
    cache.inc_lock_ref(node)
    cache.inc_lock_ref(node)
    assert node.lock_ref == 2 and cache.protected_size() == 4
    assert cache.evict(standins.EvictParams(num_tokens=4)).num_tokens_evicted == 0
    cache.dec_lock_ref(node)
    cache.dec_lock_ref(node)
    with pytest.raises(RuntimeError, match="is not locked"):
        cache.dec_lock_ref(node)
    assert cache.evict(standins.EvictParams(num_tokens=2)).num_tokens_evicted == 2
    with pytest.raises(pando.StaleHandle):
        cache.inc_lock_ref(node)
    cache.inc_lock_ref(cache.root_node)
    cache.dec_lock_ref(cache.root_node)


def test_a_reset_voids_locks_and_gives_nothing_back() -> None:
    engine = Setup(page_size=2).engine()
    cache = engine.cache
    cached(engine, [1, 2, 3, 4])
    run_ = engine.start([1, 2, 3, 4, 5], None)
    assert run_ is not None and run_.req.last_node.lock_ref == 1
    before = engine.allocator.available_size()
    cache.reset()
    assert cache.total_size() == 0 and engine.allocator.available_size() == before
    engine.allocator.clear()
    cache.dec_lock_ref(run_.req.last_node)  # of before the reset: nothing happens
    engine.running.clear()
    cached(engine, [1, 2, 3, 4])
    assert len(cache.match_prefix(key_of(array("q", [1, 2, 3, 4]))).device_indices) == 4


def test_finished_requests_are_not_kept_where_that_is_switched_off() -> None:
    engine = Setup().engine(disable_finished_insert=True)
    run_ = engine.start([1, 2, 3], None)
    assert run_ is not None
    engine.step(run_, 3, 0)
    for token in (7, 8):
        engine.step(run_, 1, token)
    engine.finish(run_, insert=True)
    engine.check()
    assert engine.cache.total_size() == 3  # what was kept while it ran


def test_priorities_decide_what_stays() -> None:
    engine = Setup(policy="priority").engine()
    for prompt, priority in (([1, 1, 1], 5), ([2, 2, 2], 0), ([3, 3, 3], 1)):
        run_ = engine.start(prompt, None, priority)
        assert run_ is not None
        engine.step(run_, 3, 0)
        engine.finish(run_, insert=True)
    engine.cache.evict(standins.EvictParams(num_tokens=6))
    left = engine.cache.match_prefix(key_of(array("q", [1, 1, 1])))
    assert len(left.device_indices) == 3 and engine.cache.total_size() == 3


class Inserts:
    """Stands before a cache and writes down whether its inserts are a request's last."""

    def __init__(self, cache: pando.PrefixCache) -> None:
        self.cache = cache
        self.unfinished: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cache, name)

    def insert(self, *args: Any, unfinished: bool, **options: Any) -> pando.Inserted:
        self.unfinished.append(unfinished)
        return self.cache.insert(*args, unfinished=unfinished, **options)

    def insert_behind(self, *args: Any, unfinished: bool, **options: Any) -> pando.Inserted:
        self.unfinished.append(unfinished)
        return self.cache.insert_behind(*args, unfinished=unfinished, **options)


@pytest.mark.parametrize("flavor", standins.FLAVORS)
def test_a_policy_that_learns_counts_a_request_once(flavor: str) -> None:
    engine = Setup(flavor=flavor, policy="hazard", page_size=4).engine()
    engine.cache._paths = inserts = Inserts(engine.cache.core.paths)
    run_ = engine.start(list(range(16)), None)
    assert run_ is not None
    run_.req.finished = lambda: False
    for _ in range(2):
        engine.step(run_, 8, 0)
    run_.req.finished = lambda: True
    engine.finish(run_, insert=True)
    assert inserts.unfinished == [True, True, False]
    engine.check()


def test_waiting_requests_in_depth_first_order() -> None:
    engine = Setup().engine()
    for prompt in ([1, 2, 3, 4], [1, 2, 5, 6], [1, 2, 5, 7], [9, 9]):
        cached(engine, prompt)
    waiting = [[9, 9], [1, 2], [1, 2, 3, 4], [8], [1, 2, 5, 6], [1, 2, 5, 7], [9], [1, 2, 5, 7]]
    nodes = [engine.match(array("q", prompt), None).last_device_node for prompt in waiting]
    order = [waiting[i] for i in engine.cache.dfs_weight_order(nodes)]
    assert order == [
        *([1, 2, 5, 7], [1, 2, 5, 7], [1, 2, 5, 6], [1, 2, 3, 4], [1, 2]),
        *([9, 9], [9], [8]),
    ]
    assert engine.cache.dfs_weight_order([]) == []


@pytest.mark.parametrize("window", [None, 8])
def test_an_allocation_evicts_until_it_has_enough(window: int | None) -> None:
    engine = Setup(page_size=2, window=window, pages=60).engine()
    cache = engine.cache
    for prompt in range(10):
        cached(engine, [prompt, 1, 2, 3, 4, 5, 6, 7])
    free = engine.allocator.available_size if window is None else (
        engine.allocator.full_available_size
    )
    before = free()
    asked = []

    def enough() -> bool:
        asked.append(free())
        return free() >= before + 20

    limits = standins.EvictParams(num_tokens=80, swa_num_tokens=80 if window else 0)
    done = cache.evict_for_alloc(limits, allocation_reclaim_satisfied=enough)
    assert 20 <= done.num_tokens_evicted <= 36 and len(asked) > 2
    assert free() == before + done.num_tokens_evicted
    small = standins.EvictParams(num_tokens=4)
    done = cache.evict_for_alloc(small, allocation_reclaim_satisfied=lambda: False)
    assert done.num_tokens_evicted == 4  # the limit
    done = cache.evict_for_alloc(limits, allocation_reclaim_satisfied=lambda: False)
    assert cache.full_evictable_size() == 0  # nothing is left, and it ends
    assert cache.evict_for_alloc(small).num_tokens_evicted == 0
    engine.check()


def test_a_draft_that_reads_further_back_widens_the_window() -> None:
    engine = Setup(page_size=4, window=8).engine(draft_swa_window=12)
    assert engine.cache.sliding_window_size == 12 and engine.cache.draft_swa_window == 12
    assert Setup(page_size=4, window=8).engine(draft_swa_window=2).cache.sliding_window_size == 8


def short_windows_work() -> bool:
    """Whether the library has windows that are shorter than a page."""
    try:
        Setup(page_size=16, window=4).engine()
    except (pando.Error, ValueError):
        return False
    return True


@pytest.mark.skipif(
    not short_windows_work(), reason="this library has no windows shorter than a page"
)
@pytest.mark.parametrize("flavor", standins.FLAVORS)
def test_windows_shorter_than_a_page(flavor: str) -> None:
    random = np.random.default_rng(7)
    for _ in range(40):
        engine = Setup(flavor=flavor, page_size=16, window=4).engine()
        run(engine, random.integers(0, (10, 2**16, 2**16, 2**16), (40, 4)).tolist())


@pytest.mark.parametrize("flavor", ["0.5.16", "0.5.20", "0.5.23"])
def test_the_window_of_a_lock_is_released_early(flavor: str) -> None:
    engine = Setup(flavor=flavor, page_size=4, window=8).engine()
    cache = engine.cache
    cached(engine, list(range(16)))
    run_ = engine.start([*range(16), 99], None)
    assert run_ is not None
    req = run_.req
    assert cache.swa_protected_size() > 0
    if flavor == "0.5.23":
        cache.release_swa(req.lock)
        cache.release_swa(req.lock)  # once
        cache.release_swa(None)
    else:  # as 0.5.17 and 0.5.18 call it
        cache.dec_swa_lock_only(req.last_node, req.lock_name(), skip_lock_node_ids={})
        req.swa_prefix_lock_released = True
    assert cache.swa_protected_size() == 0 and cache.full_protected_size() == 16
    engine.finish_all()


@pytest.mark.parametrize("flavor", standins.FLAVORS)
@pytest.mark.parametrize("decoded", range(1, 16))
def test_a_request_may_end_when_the_window_before_it_is_gone(flavor: str, decoded: int) -> None:
    """Its lock on the window was released early, and the window of its prefix evicted since: what
    it has computed may be less than a window, and nothing that could be matched."""
    engine = Setup(flavor=flavor, page_size=4, window=10).engine()
    cached(engine, list(range(16)))
    run_ = engine.start([*range(16), 99], None)
    assert run_ is not None
    for _ in range(decoded):
        engine.step(run_, 4, 1)
    engine.release_window_lock(run_)
    engine.cache.evict(standins.EvictParams(swa_num_tokens=1000))
    engine.check()
    engine.finish_all()


def test_metrics_hear_of_evictions() -> None:
    engine = Setup().engine(enable_metrics=True)
    cached(engine, [1, 2, 3])
    engine.cache.evict(standins.EvictParams(num_tokens=2))
    assert engine.cache.metrics_collector.evicted == 2


def test_texts(capsys: pytest.CaptureFixture[str]) -> None:
    engine = Setup().engine()
    cached(engine, [1, 2, 3])
    assert "available_size=45 + evictable_size=3" in engine.cache.available_and_evictable_str()
    engine.cache.pretty_print()
    assert "#tokens: 3" in capsys.readouterr().out
    window = Setup(window=5).engine().cache
    assert "swa_available_size=36" in window.available_and_evictable_str()
    assert window.total_size() == (0, 0) and window.supports_swa()
    assert not window.supports_mamba() and window.is_tree_cache() and not window.is_chunk_cache()


# ---- Events ------------------------------------------------------------------------------------


@dataclasses.dataclass
class BlockStored:
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[Any]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    cache_salt: str | None = None


@dataclasses.dataclass
class BlockRemoved:
    block_hashes: list[int]
    medium: str | None = None


@dataclasses.dataclass
class AllBlocksCleared:
    pass


KV_EVENTS = SimpleNamespace(
    BlockStored=BlockStored, BlockRemoved=BlockRemoved, AllBlocksCleared=AllBlocksCleared
)


@pytest.mark.parametrize("bigram", [False, True])
def test_events_are_sglangs(bigram: bool) -> None:
    engine = Setup(page_size=2, bigram=bigram).engine(enable_kv_cache_events=True)
    cache = engine.cache
    cache._events.types = EventTypes(KV_EVENTS)
    tokens = [1, 2, 3, 4, 5]
    cached(engine, tokens)
    hashes = [pando.block_id(h) for h in pando.hash_pages(tokens, 2, bigram=bigram)]
    stored = cache.take_events()
    assert [event.block_hashes for event in stored] == [hashes]
    pairs = list(zip(tokens, tokens[1:]))
    assert stored[0].token_ids == (pairs if bigram else tokens[:4])
    assert (stored[0].parent_block_hash, stored[0].block_size, stored[0].medium) == (None, 2, "GPU")
    cache.evict(standins.EvictParams(num_tokens=2))
    assert cache.take_events() == [BlockRemoved([hashes[1]], "GPU")]
    cache.reset()
    assert AllBlocksCleared() in cache.take_events()
    assert Setup().engine().cache.take_events() == []


def test_salts_are_in_events() -> None:
    namespace = pando.make_namespace(salt="pepper", extra="x", lora="s1:y")
    assert part_of(namespace, b"s") == "pepper" and part_of(namespace, b"x") == "x"
    assert part_of(pando.make_namespace(extra="s3:abc"), b"s") is None
    assert part_of(b"", b"s") is None


def test_events_name_the_session_that_stored() -> None:
    @dataclasses.dataclass
    class Stored(BlockStored):
        session_id: str | None = None

    engine = Setup().engine(enable_kv_cache_events=True)
    log = engine.cache._events
    log.types = EventTypes(
        SimpleNamespace(
            BlockStored=Stored, BlockRemoved=BlockRemoved, AllBlocksCleared=AllBlocksCleared
        )
    )
    cached(engine, [1, 2])
    run_ = engine.start([7, 8, 9], None)
    assert run_ is not None
    run_.req.session_id = "talk"
    engine.step(run_, 3, 0)
    engine.cache.evict(standins.EvictParams(num_tokens=2))
    stored = [(e.session_id, e.token_ids) for e in engine.cache.take_events()[:2]]
    assert stored == [(None, [1, 2]), ("talk", [7, 8, 9])]
    assert engine.cache.take_events() == []
    engine.finish_all()


def test_salts_are_metadata_where_sglang_has_them_there() -> None:
    """0.5.18 has a class of its own for blocks with a salt."""

    @dataclasses.dataclass
    class Plain:
        block_hashes: list[int]
        parent_block_hash: int | None
        token_ids: list[Any]
        block_size: int
        lora_id: int | None
        medium: str | None = None

    @dataclasses.dataclass
    class WithMetadata(Plain):
        metadata: Any = None

    engine = Setup(flavor="0.5.20").engine(enable_kv_cache_events=True)
    engine.cache._events.types = EventTypes(
        SimpleNamespace(
            BlockStored=Plain,
            BlockStoredWithMetadata=WithMetadata,
            BlockStoredMetadata=lambda cache_salt: {"cache_salt": cache_salt},
            BlockRemoved=BlockRemoved,
            AllBlocksCleared=AllBlocksCleared,
        )
    )
    for salt in (None, "pepper"):
        request = engine.make_req("r", [1, 2], None, 0)
        request.cache_salt = salt
        request.kv.req_pool_idx = 1
        engine.pool.req_to_token[1, :2] = engine.allocator.alloc(2)
        engine.cache.cache_finished_req(request, kv_len_to_handle=2)
    plain, salted = engine.cache.take_events()
    assert type(plain) is Plain and type(salted) is WithMetadata
    assert salted.metadata == {"cache_salt": "pepper"}
    assert salted.block_hashes != plain.block_hashes


# ---- Tiers -------------------------------------------------------------------------------------


def test_storage_brings_back_what_device_and_host_have_lost() -> None:
    engine = Setup(page_size=4, write_policy="write_through", storage=True).engine()
    cache = engine.cache
    prompt = list(range(16))
    cached(engine, prompt, "lora")
    engine.settle()
    cache.evict(standins.EvictParams(num_tokens=16))
    assert cache.evict_host(16) == 16
    miss = engine.match(array("q", prompt), "lora")
    assert len(miss.device_indices) == miss.host_hit_length == 0
    assert miss.last_device_node is cache.root_node
    engine.names = 0  # a request that is not aborted
    run_ = engine.start([*prompt, 99], "lora")
    assert run_ is not None
    assert engine.prefetched == 16 and engine.loaded_back == 16
    assert len(run_.req.prefix_indices) == 16
    engine.finish_all()


def test_storage_is_attached_and_detached_at_run_time() -> None:
    engine = Setup(page_size=4, write_policy="write_through").engine()
    cache = engine.cache
    assert not cache.enable_storage and not cache.clear_storage_backend()
    done, message = cache.attach_storage_backend("mooncake")
    assert not done and "mooncake" in message and "memory" in message
    done, message = cache.attach_storage_backend("memory", "{oops")
    assert not done and not cache.enable_storage
    assert cache.attach_storage_backend("memory", hicache_storage_prefetch_policy="timeout")[0]
    assert cache.enable_storage and cache.cache_controller.storage_backend_type == "memory"
    assert type(cache.cache_controller.storage_backend).__name__ == "pando_memory"
    assert not cache.attach_storage_backend("redis")[0]
    assert cache.clear_storage_backend()
    assert cache.detach_storage_backend()[0] and cache.detach_storage_backend()[0]
    assert not cache.enable_storage
    cache.shutdown()


def test_hashes_of_a_matched_prefix() -> None:
    engine = Setup(page_size=4, write_policy="write_through").engine()
    cached(engine, list(range(9)))
    node = engine.match(array("q", range(9)), None).last_device_node
    pages = [page.hex() for page in pando.hash_pages(list(range(8)), 4)]
    assert node.get_last_hash_value() == pages[1]
    assert engine.cache.get_prefix_hash_values(node) == pages[:1]
    assert engine.cache.get_last_hash_value(engine.cache.root_node) is None
    assert engine.cache.is_backuped(node)


def test_batches_wait_only_for_their_own_loads() -> None:
    engine = Setup(page_size=4, write_policy="write_back").engine()
    cache = engine.cache
    assert cache.kv_cache.layer_transfer_counter is cache.layer_done_counter
    assert cache.ready_to_load_host_cache() == -1
    cached(engine, list(range(16)))
    cache.evict(standins.EvictParams(num_tokens=16))
    engine.settle()
    run_ = engine.start(list(range(17)), None)
    assert run_ is not None and engine.loaded_back == 16
    assert cache.ready_to_load_host_cache() == 0
    assert cache.ready_to_load_host_cache() == -1
    engine.finish_all()
    cache.reset()
    engine.allocator.clear()
    assert cache.core.inspect.host_sizes().total == 0


def test_copies_wait_for_the_streams_that_compute() -> None:
    """What a GPU does, with stand-ins for its streams."""
    engine = Setup(page_size=4, write_policy="write_through").engine()
    cache = engine.cache
    waits: list[tuple[int, int]] = []
    stream = SimpleNamespace(cuda_stream=7)
    copier = SimpleNamespace(wait_for_stream=lambda of, number: waits.append((of, number)))
    host = cache._host
    cache._host = SimpleNamespace(
        stream=lambda: stream,
        options=SimpleNamespace(copier=copier, backup_stream=0, load_stream=1),
    )
    cache.check_hicache_events()
    cache.evict(standins.EvictParams())
    cache._fence_loads()
    assert waits == [(7, 0), (7, 0), (7, 1)]
    cache.cache_controller.load_fence_stream = stream  # the forward's, in newer versions
    cache._fence_loads()
    assert waits[3:] == [(7, 1), (7, 1)]
    cache._host = host

    calls: list[tuple[int, int]] = []
    pool = SimpleNamespace(
        geometry=SimpleNamespace(first_layer=10),
        wait_layer_on=lambda layer, number: calls.append((layer, number)),
    )
    gate = LayerGate(pool, lambda: SimpleNamespace(cuda_stream=99))
    gate.wait_until(0)
    assert calls == []  # nothing is loaded for this batch
    gate.set_consumer(0)
    gate.wait_until(2)
    assert calls == [(12, 99)]


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("window", [None, 8])
def test_slots_that_live_on_a_device(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies to and from a device, which is the CPU here."""
    import torch

    monkeypatch.setattr(
        "pando.sglang.prefix_cache.slots_of",
        lambda table, device: DeviceSlots(torch, torch.device("cpu")),
    )
    random = np.random.default_rng(5)
    for _ in range(20):
        engine = Setup(torch=True, flavor="0.5.20", page_size=4, window=window).engine()
        run(engine, random.integers(0, (10, 2**16, 2**16, 2**16), (40, 4)).tolist())


def test_latent_buffers_are_adopted_and_unknown_ones_refused() -> None:
    buffer = [np.zeros((20, 1, 24), np.float16) for _ in range(2)]
    pool = adopt_pool(
        SimpleNamespace(kv_buffer=buffer, dtype=np.dtype("float16"), qk_rope_head_dim=8), 4
    )
    assert pool.num_pages == 5 and pool.geometry.planes[0].first_part == 16
    with pytest.raises(Unsupported, match="MHATokenToKVPool"):
        adopt_pool(SimpleNamespace(dtype=np.dtype("float16")), 4)
    with pytest.raises(Unsupported, match="float64"):
        adopt_pool(SimpleNamespace(kv_buffer=buffer, dtype=np.dtype("float64")), 4)
    with pytest.raises(Unsupported, match="layout nhd"):
        adopt_pool(
            SimpleNamespace(kv_buffer=buffer, dtype="float16", index_k_with_scale_buffer=1), 4
        )


def test_settings_of_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", str(tmp_path))
    assert storage_settings("file", None) == {"directory": str(tmp_path / "pando")}
    assert storage_settings("file", '{"directory": "/kv"}') == {"directory": "/kv"}
    assert storage_settings("memory", '{"hicache_storage_pass_prefix_keys": true}') == {}
    assert storage_settings("file", "@store.toml") == "@store.toml"
    assert storage_settings("redis", None) == {}


# ---- Being found by SGLang ---------------------------------------------------------------------


def fake_sglang(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules that registering looks at."""
    registry = ModuleType("sglang.srt.mem_cache.registry")
    factories: dict[str, Any] = {}
    registry.get_radix_cache_factory = factories.get  # type: ignore[attr-defined]
    registry.register_radix_cache_backend = factories.__setitem__  # type: ignore[attr-defined]
    registry.default_radix_cache_factory = (  # type: ignore[attr-defined]
        lambda context: "chunk cache"
    )
    for name in ("sglang", "sglang.srt", "sglang.srt.mem_cache", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    server_args = ModuleType("sglang.srt.server_args")
    choices = ["lru", "lfu", "slru", "priority"]
    server_args.RADIX_EVICTION_POLICY_CHOICES = choices  # type: ignore[attr-defined]
    server_args.add_radix_eviction_policy_choices = choices.extend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, server_args.__name__, server_args)
    hooks = ModuleType("sglang.srt.plugins.hook_registry")
    hooks.HookType = SimpleNamespace(  # type: ignore[attr-defined]
        BEFORE="before", AFTER="after"
    )
    hooks.HookRegistry = SimpleNamespace(  # type: ignore[attr-defined]
        register=lambda target, hook, when: registry.hooks.__setitem__(  # type: ignore[attr-defined]
            target.rpartition(".")[2], hook
        )
    )
    registry.hooks = {}  # type: ignore[attr-defined]
    registry.policies = choices  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, hooks.__name__, hooks)
    monkeypatch.setitem(sys.modules, registry.__name__, registry)
    monkeypatch.setitem(sys.modules, "sglang.srt.mem_cache.base_prefix_cache", standins)
    return registry


def context_of(setup: Setup, **fields: Any) -> Any:
    cache = setup.engine().cache
    params = standins.CacheInitParams(
        False, cache.req_to_token_pool, cache.token_to_kv_pool_allocator, setup.page_size
    )
    params.sliding_window_size = setup.window
    values = {
        "server_args": SimpleNamespace(schedule_policy="fcfs"),
        "params": params,
        "is_hybrid_swa": setup.window is not None,
        "is_hybrid_ssm": False,
        "enable_hierarchical_cache": False,
        "disable_radix_cache": False,
        "tp_worker": None,
        "tp_rank": 0,
        "tp_size": 1,
    }
    return SimpleNamespace(**(values | fields))


def test_registering_twice_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = fake_sglang(monkeypatch)
    pando.sglang.register()
    pando.sglang.register()
    assert registry.get_radix_cache_factory("pando") is pando.sglang.create_cache
    assert registry.policies == ["lru", "lfu", "slru", "priority", "fifo", "mru", "filo", "hazard"]
    registry.register_radix_cache_backend("other", print)
    with pytest.raises(ValueError, match="already"):
        pando.sglang.register("other")


def test_names_of_pando_need_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = fake_sglang(monkeypatch)
    pando.sglang.register()
    parser = argparse.ArgumentParser()
    parser.add_argument("--radix-cache-backend")
    parser.add_argument("--radix-eviction-policy", choices=registry.policies)
    parser.add_argument("--hicache-storage-backend", choices=["file", "mooncake"])
    for _ in range(2):  # filled twice, added once
        registry.hooks["add_cli_args"](None, parser)
    assert parser._actions[3].choices == ["file", "mooncake", "memory", "redis"]

    def refuse(*arguments: str) -> None:
        registry.hooks["from_cli_args"](None, parser.parse_args(arguments))

    for flag, value in (("--radix-eviction-policy", "hazard"), ("--hicache-storage-backend", "redis")):
        refuse(flag, value, "--radix-cache-backend", "pando")
        for others in ((), ("--radix-cache-backend", "flexkv")):
            with pytest.raises(Unsupported, match=f"{flag} {value}.*--radix-cache-backend pando"):
                refuse(flag, value, *others)
    refuse("--radix-eviction-policy", "lfu", "--hicache-storage-backend", "file")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"served_model_name": "name", "model_path": "/models/a"}, "name"),
        ({"served_model_name": None, "model_path": "/models/a"}, "/models/a"),
        ({"served_model_name": None}, "/models/b"),
    ],
)
def test_pages_are_stored_under_the_name_that_sglang_serves(
    fields: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sglang(monkeypatch)
    context = SimpleNamespace(
        server_args=SimpleNamespace(**fields), model_config=SimpleNamespace(model_path="/models/b")
    )
    assert model_name(context) == expected
    runtime = ModuleType("sglang.srt.runtime_context")
    monkeypatch.setitem(sys.modules, runtime.__name__, runtime)
    runtime.get_serving = lambda: SimpleNamespace(  # type: ignore[attr-defined]
        served_model_name="resolved"
    )
    assert model_name(context) == "resolved"


def test_a_long_path_is_cut_and_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sglang(monkeypatch)
    names = set()
    for start in "ab":
        arguments = SimpleNamespace(model_path=f"/{start}" + "/models" * 30 + "/llama")
        context = SimpleNamespace(server_args=arguments, model_config=SimpleNamespace())
        names.add(name := model_name(context))
        assert len(name.encode()) == 128 and name.endswith("/models/llama")
    assert len(names) == 2


def test_the_factory_makes_what_the_context_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sglang(monkeypatch)
    plain = pando.sglang.create_cache(context_of(Setup(page_size=4)))
    assert type(plain).__name__ == "PandoRadixCache" and isinstance(plain, standins.BasePrefixCache)
    window = pando.sglang.create_cache(context_of(Setup(window=5)))
    assert window.sliding_window_size == 5
    off = context_of(Setup(), disable_radix_cache=True)
    assert pando.sglang.create_cache(off) == "chunk cache"

    registered = []
    worker = SimpleNamespace(register_hicache_layer_transfer_counter=registered.append)
    context = context_of(Setup(page_size=4), enable_hierarchical_cache=True, tp_worker=worker)
    context.server_args = SimpleNamespace(
        hicache_ratio=2.0,
        hicache_size=0,
        hicache_write_policy="write_through",
        hicache_mem_layout="page_first",
        hicache_storage_backend="memory",
        hicache_storage_backend_extra_config=None,
        hicache_storage_prefetch_policy="timeout",
        served_model_name="model",
    )
    context.params.tp_cache_group = None
    allocator = context.params.token_to_kv_pool_allocator
    pool = standins.KvPool(allocator.size, 4, 2, allocator.arrays)
    allocator.get_kvcache = lambda: pool
    tiered = pando.sglang.create_cache(context)
    assert tiered.has_host_tier and tiered.enable_storage
    assert registered == [tiered.layer_done_counter]
    tiered.shutdown()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"is_hybrid_ssm": True}, "Mamba"),
        ({"is_hybrid_swa": True, "full_tokens_per_layer": 0}, "all sliding-window"),
        ({"is_hybrid_swa": True}, "sliding_window_size is None"),
        ({"server_args": SimpleNamespace(enable_lmcache=True)}, "--enable-lmcache"),
        ({"server_args": SimpleNamespace(enable_flexkv=True)}, "--enable-flexkv"),
        (
            {"server_args": SimpleNamespace(enable_unified_cache_external_linker=True)},
            "--enable-unified-cache-external-linker",
        ),
        ({"server_args": SimpleNamespace(schedule_policy="dfs-weight")}, "dfs-weight"),
        (
            {"server_args": SimpleNamespace(hicache_storage_backend="redis")},
            "redis .* expected --enable-hierarchical-cache",
        ),
        (
            {
                "enable_hierarchical_cache": True,
                "server_args": SimpleNamespace(hicache_host_memory_mode="buffer_only"),
            },
            "--hicache-host-memory-mode buffer_only .* expected cache",
        ),
        (
            {
                "enable_hierarchical_cache": True,
                "server_args": SimpleNamespace(disaggregation_decode_enable_radix_cache=True),
            },
            "--disaggregation-decode-enable-radix-cache .* expected one of the two",
        ),
    ],
)
def test_what_cannot_work_is_refused(
    fields: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sglang(monkeypatch)
    with pytest.raises(Unsupported, match=message):
        pando.sglang.create_cache(context_of(Setup(), **fields))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("eviction_policy", "oracle", "expected one of lru, lfu"),
        ("eviction_policy_config", {"a": 1}, "no settings"),
        ("enable_session_radix_cache", True, "--enable-session-radix-cache"),
        ("cache_ttl_seconds", 3.0, "time to live"),
        ("swa_gates_prefix_match", False, "start without --radix-cache-backend pando"),
        ("decoder_swa_bounded_replay", True, "--enable-decoder-swa-bounded-replay"),
        ("page_size", 8, "pages of 4 tokens"),
        ("token_to_kv_pool_allocator", None, "none was given"),
    ],
)
def test_what_the_cache_cannot_do_is_refused(field: str, value: Any, message: str) -> None:
    params = context_of(Setup(page_size=4)).params
    setattr(params, field, value)
    with pytest.raises(Unsupported, match=message):
        cache_class(INTERFACE)(params)


def test_what_an_allocator_cannot_do_with_it_is_refused() -> None:
    params = context_of(Setup(page_size=4)).params
    params.token_to_kv_pool_allocator.shard_size = 2
    with pytest.raises(Unsupported, match="--enable-kv-cache-sharding.*start without it"):
        cache_class(INTERFACE)(params)
    window = context_of(Setup(page_size=4, window=8)).params
    window.token_to_kv_pool_allocator._swa_req_ring = True
    with pytest.raises(Unsupported, match="ring per request"):
        cache_class(INTERFACE)(window, sliding_window_size=8)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"is_hybrid_swa": True}, "sliding-window layers .* expected one of the two"),
        ({"is_dsa": True}, r"sparse \(DSA\) layers"),
        ({"arguments": {"speculative_algorithm": "EAGLE"}}, "--speculative-algorithm EAGLE"),
        ({"params": {"pp_size": 2}}, "pp_size 2: expected 1"),
        ({"params": {"attn_cp_size": 4}}, "attn_cp_size 4: expected 1"),
        ({"arguments": {"hicache_mem_layout": "spiral"}}, "--hicache-mem-layout spiral: expected"),
        ({"arguments": {"hicache_storage_backend": "mooncake"}}, "mooncake.*memory, redis"),
    ],
)
def test_what_the_host_tier_cannot_do_is_refused(
    fields: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_sglang(monkeypatch)
    of_arguments, of_params = fields.pop("arguments", {}), fields.pop("params", {})
    worker = SimpleNamespace(register_hicache_layer_transfer_counter=lambda counter: None)
    context = context_of(
        Setup(page_size=4), enable_hierarchical_cache=True, tp_worker=worker, **fields
    )
    context.server_args = SimpleNamespace(served_model_name="model", **of_arguments)
    params = context.params
    params.sliding_window_size, params.tp_cache_group = 8, None
    for name, value in of_params.items():
        setattr(params, name, value)
    allocator = params.token_to_kv_pool_allocator
    pool = standins.KvPool(allocator.size, 4, 2, allocator.arrays)
    allocator.get_kvcache = lambda: pool
    with pytest.raises(Unsupported, match=message):
        pando.sglang.create_cache(context)


def test_another_interface_is_refused_with_the_versions_that_work() -> None:
    later = SimpleNamespace(BasePrefixCache=type("BasePrefixCache", (), {}))
    with pytest.raises(Unsupported, match=r"Supported: SGLang 0\.5\.13"):
        Interface.of(later)


@pytest.mark.skipif(
    importlib.util.find_spec("sglang") is not None, reason="SGLang is installed here"
)
def test_without_sglang_the_message_says_how_to_get_it() -> None:
    with pytest.raises(Unsupported, match="pip install 'sglang"):
        pando.sglang.register()


def test_the_launcher_registers_in_spawned_processes_too(tmp_path: Path) -> None:
    """With a folder that plays SGLang: its server spawns a process, as SGLang's does."""
    package = tmp_path / "sglang" / "srt" / "mem_cache"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    (package / "registry.py").write_text(
        "known = {}\n"
        "get_radix_cache_factory = known.get\n"
        "register_radix_cache_backend = known.__setitem__\n"
    )
    (package.parent / "server_args.py").write_text(
        "RADIX_EVICTION_POLICY_CHOICES = []\n"
        "add_radix_eviction_policy_choices = RADIX_EVICTION_POLICY_CHOICES.extend\n"
    )
    plugins = package.parent / "plugins"
    plugins.mkdir()
    (plugins / "__init__.py").write_text("")
    (plugins / "hook_registry.py").write_text(
        "class HookType:\n    BEFORE = AFTER = None\n"
        "class HookRegistry:\n    register = print\n"
    )
    (package / "scheduler.py").write_text(
        "from sglang.srt.mem_cache import registry\n"
        "def scheduler():\n"
        "    print('scheduler knows', *registry.known, flush=True)\n"
    )
    (tmp_path / "sglang" / "launch_server.py").write_text(
        "import multiprocessing, sys\n"
        "from sglang.srt.mem_cache.scheduler import scheduler\n"
        "if __name__ == '__main__':\n"
        "    print('arguments', *sys.argv[1:], flush=True)\n"
        "    process = multiprocessing.get_context('spawn').Process(target=scheduler)\n"
        "    process.start()\n"
        "    process.join()\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-m", "pando.sglang.launch_server", "--radix-cache-backend", "pando"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "arguments --radix-cache-backend pando" in result.stdout
    assert "scheduler knows pando" in result.stdout
