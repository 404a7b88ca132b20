# SPDX-License-Identifier: Apache-2.0
"""BlockHasher, BlockPool and BlockCache against plain Python."""

from __future__ import annotations

import gc
import hashlib
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from canonical_cbor import cbor
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import pando

# ---- Hashing ------------------------------------------------------------------------------------


def sha256_chain(tokens: list[int], size: int, seed: str, extras: list[Any]) -> list[bytes]:
    parent = hashlib.sha256(cbor(seed)).digest()
    chain = []
    for block, start in enumerate(range(0, len(tokens) - size + 1, size)):
        content = (parent, tuple(tokens[start : start + size]), extras[block])
        parent = hashlib.sha256(cbor(content)).digest()
        chain.append(parent)
    return chain


token_lists = st.lists(st.integers(0, 2**31 - 1), max_size=40)


@given(token_lists, st.integers(1, 8), st.text(max_size=8))
def test_sha256_cbor_is_that_of_a_plain_encoder(tokens: list[int], size: int, seed: str) -> None:
    hasher = pando.BlockHasher(size, "sha256_cbor", seed=seed)
    assert hasher.hash_blocks(tokens) == sha256_chain(tokens, size, seed, [None] * 40)


@given(token_lists, st.integers(1, 8), st.text(min_size=1, max_size=5), st.text(max_size=5))
def test_sha256_cbor_takes_in_adapter_and_salt(
    tokens: list[int], size: int, lora: str, salt: str
) -> None:
    hasher = pando.BlockHasher(size, pando.HashFunction.sha256_cbor, seed="0")
    extras = [(lora, salt) if salt and i == 0 else (lora,) for i in range(40)]
    hashes = hasher.hash_blocks(tokens, pando.RequestKeys(lora=lora, salt=salt))
    assert hashes == sha256_chain(tokens, size, "0", extras)


@given(token_lists, st.integers(1, 8))
def test_sglang_chain_is_that_of_hashlib(tokens: list[int], size: int) -> None:
    chain: list[bytes] = []
    for start in range(0, len(tokens) - size + 1, size):
        page = np.array(tokens[start : start + size], dtype="<u4").tobytes()
        chain.append(hashlib.sha256((chain[-1] if chain else b"") + page).digest())
    assert pando.BlockHasher(size, "sglang").hash_blocks(tokens) == chain
    assert pando.hash_pages(tokens, size) == chain


@given(token_lists, st.integers(1, 8), st.sampled_from(list(pando.HashFunction)))
def test_a_chain_extended_is_a_chain_made_at_once(
    tokens: list[int], size: int, function: pando.HashFunction
) -> None:
    hasher = pando.BlockHasher(size, function, seed=None)
    whole = hasher.extend(tokens)
    assert hasher.extend(tokens, None, hasher.extend(tokens[: len(tokens) // 2])) == whole
    assert [h.value[: hasher.hash_bytes] for h in whole] == hasher.hash_blocks(tokens)
    assert all(h.check == hasher.extend(tokens)[i].check for i, h in enumerate(whole))


def test_keyed_hashes_need_the_key() -> None:
    one, two, again = (pando.BlockHasher(2, seed=s) for s in (b"a", b"b", b"a"))
    assert one.hash_blocks([1, 2]) == again.hash_blocks([1, 2]) != two.hash_blocks([1, 2])
    assert one.hash_bytes == 16 and not one.is_shareable
    assert pando.BlockHasher(2, "sha256_cbor").is_shareable


def test_hasher_refuses_what_makes_no_sense() -> None:
    with pytest.raises(pando.InvalidArgument, match="md5"):
        pando.BlockHasher(4, "md5")
    with pytest.raises(pando.InvalidArgument):
        pando.BlockHasher(0)
    with pytest.raises(pando.InvalidArgument):
        pando.BlockHasher(2).hash_blocks([1, -2])
    with pytest.raises(pando.InvalidArgument, match="BlockHash"):
        pando.BlockHasher(2).extend([1, 2], None, [b"x"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="no option 'nonsense'"):
        pando.RequestKeys(nonsense=1)  # type: ignore[call-arg]


def test_extra_keys_are_those_of_the_block() -> None:
    keys = pando.RequestKeys(
        salt="s", items=[pando.MultimodalItem(id="cat", offset=3, length=4)]
    )
    assert pando.extra_keys(keys, 0, 2) == ["s"]
    assert pando.extra_keys(keys, 4, 8) == [pando.ItemKey(id="cat", offset=-1)]
    embeds = pando.RequestKeys(prompt_embeds=bytes(range(8)), embed_bytes=2)
    assert pando.extra_keys(embeds, 0, 2) == [hashlib.sha256(bytes(range(4))).digest()]
    assert bool(keys) and not pando.RequestKeys()


# ---- BlockPool ----------------------------------------------------------------------------------


def test_pool_takes_caches_finds_and_forgets() -> None:
    hasher = pando.BlockHasher(2)
    gone: list[tuple[int, list[int]]] = []
    evicted: list[list[int]] = []

    def on_evict(blocks: Any) -> None:
        evicted.append(blocks.tolist())
        assert all(pool.content(b).tokens.tolist() == [1, 2] for b in blocks)  # still there

    pool = pando.BlockPool(
        4,
        block_sizes=[2],
        on_evict=on_evict,
        on_gone=lambda content: gone.append((content.group, content.tokens.tolist())),
    )
    first, second = hasher.extend([1, 2, 3, 4])
    blocks = pool.take(2)
    assert blocks.dtype == np.uint32 and pool.num_free == 1
    assert pool.cache(blocks[0], first, [1, 2])
    with pytest.raises(pando.InvalidArgument, match="already"):
        pool.cache(blocks[0], first, [1, 2])
    pool.free(blocks[::-1])
    assert pool.find(first, [1, 2]) == blocks[0] and pool.find(second, [3, 4]) is None
    assert pool.find_run([first, second], [1, 2, 3, 4]).tolist() == [blocks[0]]
    assert pool.find(first, [9, 9]) is None and pool.collisions == 1
    assert pool.sizes().total == 2
    pool.check()
    with pytest.raises(pando.OutOfCapacity, match="4 blocks wanted, 3 free"):
        pool.take(4)
    pool.take(3)
    assert evicted == [[blocks[0]]] and gone == [(0, [1, 2])]
    pool.check()


def test_pool_refuses_bad_blocks() -> None:
    pool = pando.BlockPool(4, block_sizes=[2])
    with pytest.raises(pando.BrokenContract, match="block 2 is freed while nobody holds it"):
        pool.free([2])
    for call in (pool.has_content, pool.content, pool.num_holders, pool.has_twin):
        with pytest.raises(pando.InvalidArgument, match="expected 0 to 3"):
            call(4)
    with pytest.raises(pando.InvalidArgument, match="no content"):
        pool.content(1)
    with pytest.raises(pando.InvalidArgument, match="group 1"):
        pool.sizes(1)
    with pytest.raises(pando.InvalidArgument, match="tokens: expected 2"):
        pool.find(pando.BlockHasher(2).extend([1, 2])[0], [1])
    with pytest.raises(pando.InvalidArgument):
        pando.BlockPool(1)


def test_pool_callback_errors_are_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: seen.append(told.exc_type))
    pool = pando.BlockPool(2, block_sizes=[1], on_evict=lambda blocks: 1 / 0)
    block = pool.take(1)
    pool.cache(block[0], pando.BlockHasher(1).extend([5])[0], [5])
    pool.free(block)
    pool.take(1)
    pool.check()
    assert seen == [ZeroDivisionError]


def test_pool_and_a_callback_that_knows_it_are_collected() -> None:
    class Told:
        pool: Any = None

        def on_evict(self, blocks: Any) -> None: ...

    told = Told()
    told.pool = pando.BlockPool(2, on_evict=told.on_evict)
    gone = weakref.ref(told)
    del told
    gc.collect()
    assert gone() is None


# ---- BlockCache against a model -----------------------------------------------------------------

SIZE = 4
BLOCKS = 12  # without the null block


class Model:
    """Content by block, as tuples of all tokens before and in it."""

    def __init__(self) -> None:
        self.content: dict[int, tuple[int, ...]] = {}

    def hit(self, tokens: list[int]) -> int:
        known = set(self.content.values())
        length = 0
        while length + SIZE < len(tokens) and tuple(tokens[: length + SIZE]) in known:
            length += SIZE
        return length


class BlockCacheMachine(RuleBasedStateMachine):
    """Requests come and go; hits and blocks are what a dict says."""

    @initialize(function=st.sampled_from(["keyed", "sha256_cbor", "sglang"]))
    def create(self, function: str) -> None:
        self.cache = pando.BlockCache(
            BLOCKS + 1, groups=[pando.BlockGroup(block_size=SIZE)], hash=function
        )
        self.model = Model()
        self.running: list[tuple[Any, list[int]]] = []
        self.asked = self.hits = 0

    def _advance(self, request: Any, tokens: list[int]) -> None:
        blocks = request.blocks().tolist()
        for block in blocks:  # whatever a taken block held is gone
            if not any(block in r.blocks() for r, _ in self.running if r is not request):
                self.model.content.pop(block, None)
        self.cache.checkpoint(request, len(tokens))
        for i in range(len(tokens) // SIZE):
            self.model.content.setdefault(blocks[i], tuple(tokens[: (i + 1) * SIZE]))

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=24))
    def begin(self, tokens: list[int]) -> None:
        request = self.cache.start(np.array(tokens, dtype=np.int64))
        found = self.cache.match(request)
        self.asked += len(tokens)
        self.hits += found.length
        assert found.length == self.model.hit(tokens)
        blocks = found.blocks[0].tolist()
        assert [self.model.content[b] for b in blocks] == [
            tuple(tokens[: (i + 1) * SIZE]) for i in range(len(blocks))
        ]
        new = len(tokens) - found.length
        held = {b for r, _ in self.running for b in r.blocks().tolist()}
        needed = -(-len(tokens) // SIZE) - len([b for b in blocks if b in held])
        if needed > BLOCKS - len(held):
            with pytest.raises(pando.OutOfCapacity):
                self.cache.allocate(request, new, match=found)
            assert request.blocks().size == 0
            return
        self.cache.allocate(request, new, match=found)
        assert request.blocks().tolist()[: len(blocks)] == blocks
        self.running.append((request, tokens))
        self._advance(request, tokens)

    @rule(which=st.integers(0, 99), more=st.lists(st.integers(0, 1), min_size=1, max_size=6))
    def decode(self, which: int, more: list[int]) -> None:
        if not self.running:
            return
        request, tokens = self.running[which % len(self.running)]
        request.append(more)
        try:
            self.cache.allocate(request, len(more))
        except pando.OutOfCapacity:
            self._forget(which % len(self.running))  # it now has tokens without blocks
            return
        tokens.extend(more)
        self._advance(request, tokens)

    def _forget(self, index: int) -> None:
        request, _ = self.running.pop(index)
        self.cache.finish(request)

    @rule(which=st.integers(0, 99), how=st.sampled_from(["free", "preempt", "drop"]))
    def end(self, which: int, how: str) -> None:
        if not self.running:
            return
        request, _ = self.running.pop(which % len(self.running))
        if how == "free":
            self.cache.finish(request)
        elif how == "preempt":
            self.cache.preempt(request)
        del request

    @invariant()
    def accounts(self) -> None:
        if not hasattr(self, "cache"):
            return
        self.cache.check()
        held = {b for r, _ in self.running for b in r.blocks().tolist()}
        assert self.cache.pool.num_free == BLOCKS - len(held)
        assert self.cache.usage == pytest.approx(len(held) / BLOCKS)
        pool = self.cache.pool
        assert {b for b in range(1, BLOCKS + 1) if pool.has_content(b)} <= set(self.model.content)
        self.model.content = {
            b: c for b, c in self.model.content.items() if pool.has_content(b)
        }
        stats = self.cache.stats
        assert (stats.queried_tokens, stats.hit_tokens) == (self.asked, self.hits)


TestBlockCacheModel = BlockCacheMachine.TestCase
TestBlockCacheModel.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# ---- BlockCache: the rest -----------------------------------------------------------------------


def make(blocks: int = 20, **options: Any) -> Any:
    options.setdefault("groups", [pando.BlockGroup(block_size=4)])
    return pando.BlockCache(blocks, **options)


def run_once(cache: Any, tokens: list[int]) -> Any:
    request = cache.start(tokens)
    found = cache.match(request)
    cache.allocate(request, len(tokens) - found.length, match=found)
    cache.checkpoint(request, len(tokens))
    return request


def test_options_are_kept_and_checked() -> None:
    options = pando.BlockCacheOptions(num_blocks=9, hash="sglang", max_tokens=100)
    cache = pando.BlockCache(options)
    assert cache.options.num_blocks == 9 and cache.options.max_tokens == 100
    assert cache.options.hash.function == pando.HashFunction.sglang
    assert cache.hasher.function == pando.HashFunction.sglang and cache.hasher.block_size == 16
    with pytest.raises(TypeError, match="no option 'blocks'"):
        pando.BlockCache(9, blocks=1)  # type: ignore[call-overload]
    with pytest.raises(pando.InvalidArgument):
        pando.BlockCache(0)
    with pytest.raises(pando.InvalidArgument):
        pando.BlockCache(9, groups=[])
    with pytest.raises(pando.InvalidArgument, match="BlockHostOptions"):
        pando.BlockCache(9, host=3)  # type: ignore[call-overload]


def test_requests_tell_what_they_have() -> None:
    cache = make(hash="sha256_cbor")
    keys = pando.RequestKeys(lora="x")
    request = cache.start([1, 2, 3, 4, 5], keys)
    assert request.tokens.tolist() == [1, 2, 3, 4, 5] and request.tokens.dtype == np.int32
    assert request.hashes == cache.hasher.hash_blocks([1, 2, 3, 4, 5], keys)
    assert request.keys.lora == "x" and request.num_computed == 0 and not request.is_broken
    request.append(6)
    request.append([7, 8])
    assert len(request.hashes) == 2 and not request.is_running
    with pytest.raises(pando.InvalidArgument):
        request.append([9, -1])
    assert len(request.tokens) == 8
    cache.allocate(request, 8, lookahead_tokens=4, delay_caching=True)
    assert request.is_running
    assert request.blocks().size == 3
    other = cache.start([1, 2, 3, 4, 5], keys)
    assert cache.match(other).length == 0  # no checkpoint yet
    cache.checkpoint(request, 8)
    assert cache.match(other).length == 4
    assert cache.common_prefix_blocks(request) == [3] and cache.num_requests == 1
    with pytest.raises(pando.InvalidArgument, match="group 1"):
        request.blocks(1)


def test_namespaces_share_nothing() -> None:
    cache = make()
    run_once(cache, [1, 2, 3, 4, 5])
    for keys in (pando.RequestKeys(lora="a"), pando.RequestKeys(salt="a")):
        assert cache.match(cache.start([1, 2, 3, 4, 5], keys)).length == 0
    assert cache.match(cache.start([1, 2, 3, 4, 5])).length == 4


def test_stale_hits_are_refused() -> None:
    cache = make(4)
    run_once(cache, [1, 2, 3, 4, 5])
    request = cache.start([1, 2, 3, 4, 6])
    found = cache.match(request)
    assert found.length == 4
    other = cache.start(list(range(100, 112)))
    cache.allocate(other, 12)
    with pytest.raises(pando.StaleHandle, match="ask again"):
        cache.allocate(request, 1, match=found)
    cache.check()


def test_bad_calls_change_nothing() -> None:
    cache, another = make(), make()
    theirs = another.start([1, 2, 3])
    calls: list[Callable[[], Any]] = [
        lambda: cache.match(theirs),
        lambda: cache.allocate(theirs, 1),
        lambda: cache.checkpoint(theirs, 1),
        lambda: cache.finish(theirs),
        lambda: cache.preempt(theirs),
        lambda: cache.prefetch(theirs),
        lambda: cache.common_prefix_blocks(theirs),
    ]
    for call in calls:
        with pytest.raises(pando.InvalidArgument, match="another cache's"):
            call()
    with pytest.raises(pando.InvalidArgument):
        cache.start([1, -1])
    request = cache.start([1, 2, 3])
    with pytest.raises(pando.InvalidArgument):
        cache.checkpoint(request, 3)
    cache.allocate(request, 3)
    with pytest.raises(pando.InUse):
        cache.reset()
    with pytest.raises(pando.InvalidArgument, match="tokens"):
        cache.start("text")
    cache.check()
    cache.finish(request)
    cache.reset()


def test_groups_of_layers() -> None:
    window = pando.BlockGroup(kind=pando.GroupKind.sliding_window, block_size=4, span=5)
    cache = make(40, groups=[pando.BlockGroup(block_size=4), window])
    request = run_once(cache, list(range(17)))
    assert request.blocks(0).size == 5 and (request.blocks(0) > 0).all()
    assert (request.blocks(1)[:3] == pando.NULL_BLOCK).all() and request.blocks(1)[4] > 0
    found = cache.match(cache.start(list(range(17)) + [1]))
    assert found.length == 16 and len(found.blocks) == 2
    assert cache.sizes(0).total == 16 and cache.sizes(1).total > 0
    with pytest.raises(pando.InvalidArgument):
        cache.sizes(2)
    cache.check()


def test_events_tell_what_is_cached() -> None:
    cache = make(5, events=True, hash="sglang")
    request = run_once(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    (event,) = cache.take_events()
    assert event.kind == pando.KvEventKind.stored and event.tier == pando.Tier.device
    assert event.hashes == request.hashes == pando.hash_pages([1, 2, 3, 4, 5, 6, 7, 8], 4)
    assert event.parent is None and event.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    cache.finish(request)
    run_once(cache, [9] * 16)
    kinds = [e.kind for e in cache.take_events()]
    assert pando.KvEventKind.removed in kinds and cache.take_events() == []


def test_tiers_are_not_there_unless_asked_for() -> None:
    cache = make()
    assert not cache.tiers.has_storage and cache.poll().idle
    assert cache.host_sizes().total == 0 and cache.tiers.stats().loaded_tokens == 0
    assert cache.tiers.detach_storage() == "no store is attached"
    with pytest.raises(pando.Error):
        cache.tiers.clear_storage()


# ---- Tiers --------------------------------------------------------------------------------------


class DictStore:
    """A store of Python's, shared by name."""

    pages: dict[str, bytes] = {}

    def exists(self, keys: list[str]) -> list[bool]:
        return [key in self.pages for key in keys]

    def get(self, keys: list[str], pages: list[Any]) -> list[bool]:
        return [
            key in self.pages and page.copy_from(self.pages[key])
            for key, page in zip(keys, pages)
        ]

    def put(self, keys: list[str], pages: list[Any]) -> None:
        self.pages.update(zip(keys, [page.tobytes() for page in pages]))

    def remove(self, keys: list[str]) -> None:
        for key in keys:
            self.pages.pop(key, None)

    def clear(self) -> None:
        self.pages.clear()


def make_tiered(blocks: int = 8, **options: Any) -> tuple[Any, Any]:
    geometry = pando.mha_geometry(num_layers=2, heads=1, head_dim=4, page_size=4)
    device = pando.KvPool(geometry, capacity_tokens=4 * (blocks - 1))
    host = pando.HostPool(device, ratio=8.0, keep_free_bytes=0)
    pools = pando.TierPools(device=device, host=host)
    cache = make(
        blocks,
        groups=[pando.BlockGroup(block_size=4, pools=pools)],
        hash="sglang",
        host=pando.BlockHostOptions(
            copier=pando.make_cpu_copier(),
            write_policy=pando.WritePolicy.write_through,
            load_back_threshold=1,
        ),
        **options,
    )
    return cache, device


def settle(cache: Any) -> None:
    for _ in range(5000):
        if cache.poll().idle:
            return
        time.sleep(0.001)
    raise AssertionError("never idle")


def fill(device: Any, blocks: Any, value: int) -> None:
    for layer in range(2):
        for plane in (device.key(layer), device.value(layer)):
            view = np.asarray(plane)
            view.reshape(device.num_pages, -1)[blocks] = value


def compute(cache: Any, device: Any, tokens: list[int], value: int) -> None:
    """A request whose KV is all `value`, written before anybody hears of it."""
    request = cache.start(tokens)
    cache.allocate(request, len(tokens), delay_caching=True)
    fill(device, request.blocks(), value)
    cache.checkpoint(request, len(tokens))
    cache.finish(request)
    settle(cache)


def test_what_the_device_forgets_comes_back_from_the_host() -> None:
    cache, device = make_tiered()
    prompt = list(range(1, 14))
    compute(cache, device, prompt, 7)
    assert cache.tiers.stats().backed_up_tokens == 12 == cache.host_sizes().total
    cache.finish(run_once(cache, list(range(100, 128))))  # all of the device
    settle(cache)
    again = cache.start(prompt)
    found = cache.match(again)
    assert (found.length, found.host_length) == (0, 12)
    cache.allocate(again, 1, match=found)
    fill(device, again.blocks()[3:], 1)
    settle(cache)
    cache.checkpoint(again, 13)
    loaded = np.asarray(device.key(1)).reshape(device.num_pages, -1)[again.blocks()[:3]]
    assert (loaded == 7).all() and not again.is_broken
    assert cache.tiers.stats().loaded_tokens == 12 and cache.stats.host_hit_tokens == 12
    cache.check()
    del cache, device
    gc.collect()
    assert again.blocks().size == 4  # with its cache, pools and copier


def test_blocks_come_back_from_a_store_of_python() -> None:
    pando.register_store("blocks-test", DictStore)
    DictStore.pages = {}
    options = pando.StorageOptions(
        backend="blocks-test",
        options={"prefetch_threshold": 1},
        scope=pando.StoreScope(model="m"),
        prefetch_policy="wait_complete",
    )
    prompt = list(range(1, 14))
    cache, device = make_tiered()
    cache.tiers.attach_storage(options)
    assert cache.tiers.has_storage
    compute(cache, device, prompt, 5)
    assert len(DictStore.pages) == 3 and cache.tiers.storage_stats().written_pages == 3
    assert cache.tiers.detach_storage()
    del cache, device

    cache, device = make_tiered()
    cache.tiers.attach_storage(options)
    request = cache.start(prompt)
    assert cache.match(request).host_length == 0
    prefetch = cache.prefetch(request)
    assert prefetch.outcome == pando.PrefetchOutcome.started and isinstance(prefetch.id, int)
    for _ in range(5000):
        if cache.prefetch_ready(prefetch.id):
            break
        cache.poll()
        time.sleep(0.001)
    assert cache.end_prefetch(prefetch.id) == 12
    found = cache.match(request)
    assert found.host_length == 12
    cache.allocate(request, 1, match=found)
    settle(cache)
    loaded = np.asarray(device.value(0)).reshape(device.num_pages, -1)[request.blocks()[:3]]
    assert (loaded == 5).all()
    cache.tiers.clear_storage()
    assert DictStore.pages == {}
    cache.check()


def test_the_verbs_of_tiers_are_those_of_prefix_cache() -> None:
    cache, device = make_tiered()
    assert cache.tiers.under_way().puts == 0
    compute(cache, device, list(range(1, 14)), 7)
    assert cache.tiers.under_way().backups == 0 and cache.host_sizes().total == 12
    assert cache.tiers.evict_host(5) == 8  # whole blocks
    assert cache.host_sizes().total == 4
    cache.tiers.report_prefill(1000, 0.5)
    assert cache.tiers.stats().prefill_tokens_per_second == 2000
    with pytest.raises(pando.InvalidArgument):
        cache.tiers.report_prefill(1000, 0)
    cache.abort_prefetch(77)  # never was
    gate = pando.BlockHostOptions(cost_gate=pando.CostGateOptions(max_ratio=2))
    assert gate.cost_gate is not None and gate.cost_gate.max_ratio == 2


def test_ranks_mirror_a_cache() -> None:
    """Each waits for the others, without the GIL; what one has not copied yet, none has."""
    polls: list[list[int]] = [[], []]

    def run(ranks: pando.Ranks) -> None:
        cache, device = make_tiered(ranks=ranks)
        request = cache.start(list(range(1, 14)))
        cache.allocate(request, 13)
        cache.checkpoint(request, 13)
        while not cache.poll().idle:
            polls[ranks.rank].append(cache.host_sizes().total)
        polls[ranks.rank].append(cache.host_sizes().total)

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in pando.make_thread_ranks(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert polls[0] == polls[1] and polls[0][-1] == 12


def test_a_cache_dropped_while_copies_run() -> None:
    for _ in range(20):
        cache, device = make_tiered()
        cache.finish(run_once(cache, list(range(28))))
        del cache, device
    gc.collect()


# ---- Lifetimes and threads ----------------------------------------------------------------------


def test_a_request_outlives_the_name_of_its_cache() -> None:
    cache = make()
    request = run_once(cache, [1, 2, 3, 4, 5])
    pool = cache.pool
    del cache
    gc.collect()
    assert request.blocks().size == 2 and pool.num_free == 17
    del request
    gc.collect()
    assert pool.num_free == 19
    pool.check()
    with pytest.raises(pando.Unavailable, match="a cache's"):
        pool.take(1)


def test_dropping_a_request_gives_its_blocks_back() -> None:
    cache = make()
    request = run_once(cache, [1, 2, 3, 4, 5])
    del request
    assert cache.usage == 0 and cache.num_requests == 0
    assert cache.match(cache.start([1, 2, 3, 4, 5])).length == 4
    cache.check()


def test_a_request_dropped_during_a_call_is_let_go_of_at_the_next() -> None:
    class Dropper:
        requests: list[Any] = []

        def on_call(self, info: Any) -> None:
            self.requests.clear()

    dropper = Dropper()
    cache = make(observer=dropper)
    dropper.requests = [run_once(cache, [1, 2, 3, 4, 5])]
    dropper.requests = [run_once(cache, [5, 6, 7, 8, 9])]
    cache.poll()  # the observer drops it
    assert dropper.requests == []
    assert cache.usage == 0
    cache.check()


def test_a_cache_and_an_observer_that_knows_it_are_collected() -> None:
    class Knows:
        cache: Any = None

        def on_call(self, info: Any) -> None: ...

    observer = Knows()
    observer.cache = make(observer=[observer])
    observer.request = run_once(observer.cache, [1, 2, 3, 4, 5])  # type: ignore[attr-defined]
    gone = weakref.ref(observer)
    del observer
    gc.collect()
    assert gone() is None


def test_a_second_thread_is_refused_not_raced() -> None:
    class Slow:
        def on_call(self, info: Any) -> None:
            inside.set()
            leave.wait(5)

    inside, leave = threading.Event(), threading.Event()
    cache = make(observer=Slow())
    worker = threading.Thread(target=cache.poll)
    worker.start()
    assert inside.wait(5)
    with pytest.raises(pando.WrongThread, match="poll"):
        _ = cache.stats
    leave.set()
    worker.join()
    assert cache.stats.queries == 0


def test_requests_are_dropped_while_another_thread_works() -> None:
    cache = make(2000)
    requests = [cache.start(range(i, i + 40)) for i in range(100)]
    for request in requests:
        cache.allocate(request, 40)
    refused = 0
    stop = threading.Event()

    def drop() -> None:
        while requests:
            requests.pop()
            time.sleep(0.0002)
        stop.set()

    dropper = threading.Thread(target=drop)
    dropper.start()
    while not stop.is_set():
        try:
            cache.check()  # without the GIL
        except pando.WrongThread:  # a request is being let go of this very moment
            refused += 1
    dropper.join()
    del request
    cache.check()
    assert cache.usage == 0 and refused < 100


def test_nothing_leaks_at_exit() -> None:
    code = """
import pando
class Knows:
    def on_call(self, info): pass
o = Knows()
o.cache = cache = pando.BlockCache(20, observer=o, events=True)
request = cache.start(range(40)); cache.allocate(request, 40); cache.checkpoint(request, 40)
found = cache.match(cache.start(range(40)))
events = cache.take_events(); pool = cache.pool; hasher = cache.hasher
own = pando.BlockPool(4, on_evict=lambda blocks: own)
slots = pando.SlotAllocator(2); slot_cache = pando.SlotCache(slots, 8)
embeddings = pando.EmbeddingCache(100); embeddings.put('a', b'xyz')
trace = pando.generate('chat', requests=5); iterator = iter(trace); next(iterator)
results = pando.replay(trace); plan = pando.plan(trace)
if hasattr(pando, 'Metrics'): metrics = pando.Metrics(tenant_of=lambda ns: 'x'); metrics.serve()
if hasattr(pando, 'EventPublisher'): publisher = pando.EventPublisher(); publisher.publish(events)
print('end')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "end\n" and done.stderr == ""
