# SPDX-License-Identifier: Apache-2.0
"""pando.vllm.BlockPool and KVCacheManager, against a small and plain model of vLLM's algorithm."""

from __future__ import annotations

import doctest
import hashlib
import importlib
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import vllm_stand_ins as stand_ins
from canonical_cbor import cbor
from vllm_stand_ins import Request, config

import pando
import pando.vllm

SIZE = 4  # tokens of a block, in all of these


def manager(num_blocks: int = 20, *specs: Any, **options: Any) -> pando.vllm.KVCacheManager:
    return pando.vllm.KVCacheManager(
        config(num_blocks, *(specs or (stand_ins.FullAttentionSpec(SIZE),))), 128, **options
    )


def ids(blocks: pando.vllm.KVCacheBlocks | None, group: int = 0) -> list[int]:
    assert blocks is not None
    found = blocks.get_block_ids()
    assert found is not None
    return found[group]


def run(m: pando.vllm.KVCacheManager, request: Request) -> list[int]:
    """Prefills all tokens that the request has. Returns what was found for it."""
    blocks, length = m.get_computed_blocks(request)
    assert m.allocate_slots(request, request.num_tokens - length, length, blocks) is not None
    request.num_computed_tokens = request.num_tokens
    return ids(blocks)


# ---- The model -------------------------------------------------------------------------------


class Model:
    """vLLM's block pool and its managers for one group, in lists and dicts.

    Blocks are found by all tokens up to their end. The free queue is that of 0.32. One rule is
    Pando's: a request that ends lets go of what its window has passed before the rest.
    """

    def __init__(self, num_blocks: int, window: int | None = None, eagle: bool = False) -> None:
        self.free = list(range(1, num_blocks))
        self.key: dict[int, tuple[int, ...]] = {}
        self.refs = [0] * num_blocks
        self.window = window
        self.eagle = eagle
        self.blocks: dict[str, list[int]] = {}
        self.cached: dict[str, int] = {}  # tokens

    def find(self, key: tuple[int, ...]) -> int | None:
        same = [block for block, k in self.key.items() if k == key]
        return same[0] if same else None  # the one that was cached first

    def computed(self, tokens: list[int]) -> list[int]:
        most = (len(tokens) - 1) // SIZE
        found = [self.find(tuple(tokens[: (i + 1) * SIZE])) for i in range(most)]
        if self.window is None:
            run = next((i for i, block in enumerate(found) if block is None), most)
            hits = [block for block in found[:run] if block is not None]
            return hits[:-1] if self.eagle and hits else hits
        needed = -(-(self.window - 1) // SIZE)
        row = 0
        for i in reversed(range(most)):
            row = row + 1 if found[i] is not None else 0
            if row == needed:
                return [0] * i + [block or 0 for block in found[i : i + needed]]
        return [block or 0 for block in found[:row]]

    def take(self, num_blocks: int) -> list[int]:
        taken, self.free = self.free[:num_blocks], self.free[num_blocks:]
        for block in taken:
            self.key.pop(block, None)
            self.refs[block] = 1
        return taken

    def let_go(self, blocks: list[int]) -> None:
        front, back = [], []
        for block in blocks:
            if block == 0:
                continue
            self.refs[block] -= 1
            if self.refs[block] == 0:
                (back if block in self.key else front).append(block)
        self.free = front + self.free + back

    def skip(self, name: str, num_computed: int) -> None:
        if self.window is None or name not in self.blocks:
            return
        blocks = self.blocks[name]
        end = min(max(0, num_computed - self.window + 1) // SIZE, len(blocks))
        gone = [blocks[i] for i in reversed(range(end))]
        blocks[:end] = [0] * end
        self.let_go(gone)

    def allocate(
        self, name: str, tokens: list[int], computed: int, end: int, hits: list[int], ahead: int
    ) -> list[int] | None:
        self.skip(name, computed)
        have = self.blocks.get(name, [])
        new = max(0, -(-(end + ahead) // SIZE) - len(have) - len(hits))
        if new + sum(self.refs[block] == 0 for block in hits if block) > len(self.free):
            return None
        for block in hits:
            if block:
                if self.refs[block] == 0:
                    self.free.remove(block)
                self.refs[block] += 1
        taken = self.take(new)
        self.blocks[name] = have + hits + taken
        done = self.cached.get(name, len(hits) * SIZE)
        self.cached[name] = max(done, min(end, len(tokens)))
        for i in range(done // SIZE, self.cached[name] // SIZE):
            block = self.blocks[name][i]
            if block:
                self.key[block] = tuple(tokens[: (i + 1) * SIZE])
        return taken

    def end(self, name: str) -> None:
        if name in self.blocks:
            self.skip(name, self.cached[name])
            self.let_go(self.blocks.pop(name)[::-1])
            del self.cached[name]


class Machine(RuleBasedStateMachine):
    """A scheduler's calls, at random, on both."""

    window: int | None = None
    eagle = False
    num_blocks = 14

    def __init__(self) -> None:
        super().__init__()
        spec = (
            stand_ins.FullAttentionSpec(SIZE)
            if self.window is None
            else stand_ins.SlidingWindowSpec(SIZE, self.window)
        )
        self.m = manager(self.num_blocks, spec, use_eagle=self.eagle, hash_function="keyed")
        self.model = Model(self.num_blocks, self.window, self.eagle)
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.count = 0

    def pick(self, requests: list[Request], at: int) -> Request:
        return requests[at % len(requests)]

    @rule(
        shared=st.integers(0, 5),
        kind=st.integers(0, 1),
        tail=st.lists(st.integers(0, 2), min_size=1, max_size=9),
    )
    def arrive(self, shared: int, kind: int, tail: list[int]) -> None:
        prefix = [100 * kind + i for i in range(shared * SIZE)]
        self.count += 1
        self.waiting.append(Request(f"r{self.count}", prefix + tail))

    @precondition(lambda self: self.waiting)
    @rule(at=st.integers(0, 9), chunk=st.integers(1, 30))
    def admit(self, at: int, chunk: int) -> None:
        request = self.pick(self.waiting, at)
        blocks, length = self.m.get_computed_blocks(request)
        hits = self.model.computed(request.all_token_ids)
        assert ids(blocks) == hits
        assert length == len(hits) * SIZE
        new = min(chunk, request.num_tokens - length)
        given = self.m.allocate_slots(request, new, length, blocks)
        want = self.model.allocate(
            request.request_id, request.all_token_ids, 0, length + new, hits, 0
        )
        assert (None if given is None else ids(given)) == want
        if given is not None:
            request.num_computed_tokens = length + new
            self.waiting.remove(request)
            self.running.append(request)

    @precondition(lambda self: self.running)
    @rule(at=st.integers(0, 9), chunk=st.integers(1, 9), ahead=st.integers(0, 3))
    def step(self, at: int, chunk: int, ahead: int) -> None:
        """The next chunk of a prefill, or a token that was sampled."""
        request = self.pick(self.running, at)
        if request.num_computed_tokens == request.num_tokens:
            request.all_token_ids.append(len(request.all_token_ids) % 3)
        new = min(chunk, request.num_tokens - request.num_computed_tokens)
        given = self.m.allocate_slots(request, new, num_lookahead_tokens=ahead)
        want = self.model.allocate(
            request.request_id,
            request.all_token_ids,
            request.num_computed_tokens,
            request.num_computed_tokens + new,
            [],
            ahead,
        )
        assert (None if given is None else ids(given)) == want
        if given is not None:
            request.num_computed_tokens += new

    @precondition(lambda self: self.running)
    @rule(at=st.integers(0, 9), finished=st.booleans())
    def leave(self, at: int, finished: bool) -> None:
        request = self.pick(self.running, at)
        request.finished = finished
        self.m.free(request)
        self.model.end(request.request_id)
        self.running.remove(request)
        if not finished:  # preempted
            request.num_computed_tokens = 0
            request.num_preemptions += 1
            self.waiting.append(request)

    @rule(blocks=st.sets(st.integers(1, 13), max_size=3))
    def evict(self, blocks: set[int]) -> None:
        self.m.evict_blocks(blocks)
        for block in blocks:
            self.model.key.pop(block, None)

    @rule()
    def reset(self) -> None:
        assert self.m.reset_prefix_cache() == (not self.running)
        if not self.running:
            self.model.key.clear()

    @invariant()
    def agree(self) -> None:
        pool = self.m.block_pool
        assert pool.pool.free_blocks().tolist() == self.model.free
        assert [block.ref_cnt for block in pool.blocks] == self.model.refs
        assert [block.block_id for block in pool.blocks if block.block_hash] == sorted(
            self.model.key
        )
        for request in self.running:
            name = request.request_id
            assert self.m.get_block_ids(name)[0] == self.model.blocks[name]
        held = sum(refs > 0 for refs in self.model.refs)
        assert self.m.usage == pytest.approx(held / (self.num_blocks - 1))
        self.m.cache.check()


class WindowMachine(Machine):
    window = 7


class EagleMachine(Machine):
    eagle = True


for machine in (Machine, WindowMachine, EagleMachine):
    machine.TestCase.settings = settings(
        max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
    )
TestFull = Machine.TestCase
TestWindow = WindowMachine.TestCase
TestEagle = EagleMachine.TestCase


# ---- The manager, rule by rule ---------------------------------------------------------------


def test_a_request_finds_what_another_computed() -> None:
    m = manager()
    assert run(m, Request("a", list(range(10)))) == []
    assert run(m, Request("b", list(range(8)) + [50])) == [1, 2]
    assert m.get_num_common_prefix_blocks("a") == [2]
    assert m.get_num_common_prefix_blocks("nobody") == [0]


def test_a_hit_leaves_a_token() -> None:
    m = manager()
    run(m, Request("a", list(range(8))))
    assert m.get_computed_blocks(Request("b", list(range(8))))[1] == 4
    assert m.get_computed_blocks(Request("c", list(range(9))))[1] == 8


def test_no_room_is_none_and_changes_nothing() -> None:
    m = manager(5)
    run(m, Request("a", list(range(12))))
    before = m.block_pool.pool.free_blocks().tolist()
    late = Request("b", list(range(8)) + list(range(50, 62)))
    blocks, length = m.get_computed_blocks(late)
    assert length == 8
    assert m.allocate_slots(late, 12, length, blocks) is None
    assert m.block_pool.pool.free_blocks().tolist() == before
    assert m.get_block_ids("b") == ([],)
    assert [block.ref_cnt for block in blocks.blocks[0]] == [1, 1]


def test_what_sets_requests_apart() -> None:
    m = manager(60)
    tokens = list(range(9))
    variants: list[dict[str, Any]] = [
        {},
        {"lora_request": stand_ins.lora("french")},
        {"cache_salt": "french"},
        {"mm_features": [stand_ins.feature("cat", 1, 2)]},
        {"mm_features": [stand_ins.feature("cat", 2, 2)]},
        {"prompt_embeds": np.ones((9, 4), np.float32)},
        {"prompt_embeds": np.zeros((9, 4), np.float32)},
    ]
    for i, keys in enumerate(variants):
        assert run(m, Request(f"first{i}", tokens, **keys)) == []
    for i, keys in enumerate(variants):
        assert len(run(m, Request(f"second{i}", tokens, **keys))) == 2
    m.get_computed_blocks(Request("skips", tokens, skip_reading_prefix_cache=True))
    assert m.get_computed_blocks(Request("s", tokens, skip_reading_prefix_cache=True))[1] == 0


def test_blocks_that_a_connector_fills_are_cached_when_they_have_arrived() -> None:
    m = manager()
    request = Request("a", list(range(10)))
    new = m.allocate_slots(
        request, 0, num_external_computed_tokens=8, delay_cache_blocks=True
    )
    assert len(ids(new)) == 2
    request.num_computed_tokens = 8
    other = Request("b", list(range(10)))
    assert m.get_computed_blocks(other)[1] == 0
    m.cache_blocks(request, 4)  # only half of it came
    assert m.get_computed_blocks(other)[1] == 4
    m.cache_blocks(request, 8)
    assert m.get_computed_blocks(other)[1] == 8
    assert m.allocate_slots(request, 2) is not None


def test_blocks_of_a_load_that_is_given_up_are_not_found() -> None:
    m = manager()
    request = Request("a", list(range(10)))
    m.allocate_slots(request, 0, num_external_computed_tokens=8, delay_cache_blocks=True)
    request.num_computed_tokens = 8
    request.finished = True
    m.free(request)
    assert m.usage == 0
    assert m.get_computed_blocks(Request("b", list(range(10))))[1] == 0


def test_drafts_are_not_cached_until_they_are_accepted() -> None:
    m = manager()
    request = Request("a", list(range(6)))
    run(m, request)
    request.all_token_ids.append(6)
    m.allocate_slots(request, 1 + 4)  # 4 drafts: block 2 would be full with them
    other = Request("b", list(range(6)) + [6, 90, 90])
    assert m.get_computed_blocks(other)[1] == 4
    request.all_token_ids += [7, 8]  # two of them were right
    request.num_computed_tokens = 8
    m.allocate_slots(request, 1)
    assert m.get_computed_blocks(Request("c", list(range(9))))[1] == 8


def test_hybrid_groups_agree_on_a_length() -> None:
    m = manager(
        60, stand_ins.FullAttentionSpec(4), stand_ins.SlidingWindowSpec(4, 8),
        hash_function="xxhash_cbor",
    )
    first = Request("a", list(range(40)))
    run(m, first)
    blocks, length = m.get_computed_blocks(Request("b", list(range(40))))
    assert length == 36
    assert ids(blocks, 1)[:7] == [0] * 7
    assert all(ids(blocks, 1)[7:])
    m.remove_skipped_blocks("a", 40)
    assert m.get_block_ids("a")[1][:8] == [0] * 8


def test_chunks_and_states() -> None:
    m = manager(60, stand_ins.ChunkedLocalAttentionSpec(4, 16))
    run(m, Request("a", list(range(30))))
    assert m.get_computed_blocks(Request("b", list(range(30))))[1] == 28
    m = manager(60, stand_ins.FullAttentionSpec(4), stand_ins.MambaSpec(8, "align"))
    run(m, Request("a", list(range(16))))
    blocks, length = m.get_computed_blocks(Request("b", list(range(20))))
    assert length == 16
    assert ids(blocks, 1)[0] == 0
    with pytest.raises(NotImplementedError, match="from a connector"):
        m.allocate_slots(Request("c", list(range(50, 70))), 4, num_external_computed_tokens=16)


def test_unknown_groups_are_named() -> None:
    class CrossAttentionSpec(stand_ins.FullAttentionSpec):
        pass

    with pytest.raises(NotImplementedError, match="CrossAttentionSpec"):
        manager(20, CrossAttentionSpec(4))
    with pytest.raises(NotImplementedError, match="2 speculative blocks"):
        manager(20, stand_ins.MambaSpec(4, num_speculative_blocks=2))
    with pytest.raises(ValueError, match="api"):
        manager(20, api="1.0")
    uniform = type("UniformTypeKVCacheSpecs", (), {})()
    uniform.kv_cache_specs = {"layer": stand_ins.SlidingWindowSpec(4, 8)}
    assert pando.vllm.manager.group_of(uniform).span == 8


def test_wrong_calls_are_refused() -> None:
    m = manager()
    request = Request("a", list(range(9)))
    with pytest.raises(ValueError, match="num_new_tokens"):
        m.allocate_slots(request, 0)
    run(m, request)
    with pytest.raises(ValueError, match="has blocks"):
        m.allocate_slots(request, 1, 4)
    with pytest.raises(ValueError, match="blocks \\[99\\]"):
        m.evict_blocks({99})
    m.free(Request("unknown", [1]))
    with pytest.raises(ValueError, match="has 3 tokens; it had 9"):
        m.get_computed_blocks(Request("a", [1, 2, 3]))
    m.free(request)
    assert m.get_computed_blocks(Request("a", [1, 2, 3]))[1] == 0  # another of this name


def test_watermark_and_reserved_blocks_are_left_alone() -> None:
    m = manager(11, watermark=0.3)
    request = Request("a", list(range(4 * 8)))
    request.status = SimpleNamespace(name="WAITING")
    assert m.allocate_slots(request, 32) is None
    assert m.allocate_slots(request, 28, full_sequence_must_fit=True) is None
    assert m.allocate_slots(request, 28, reserved_blocks=1) is None
    assert m.allocate_slots(request, 28) is not None
    assert not m.can_fit_full_sequence(Request("b", list(range(100, 120))))
    assert m.can_fit_full_sequence(Request("c", list(range(100, 112))))


def test_stats_count_what_was_asked() -> None:
    m = manager(log_stats=True)
    run(m, Request("a", list(range(9))))
    run(m, Request("b", list(range(9)), num_preemptions=1))
    stats = m.make_prefix_cache_stats()
    assert stats is not None
    assert (stats.requests, stats.queries, stats.hits) == (1, 9, 0)
    assert (stats.preempted_requests, stats.preempted_queries, stats.preempted_hits) == (1, 9, 8)
    assert m.make_prefix_cache_stats() == pando.vllm.PrefixCacheStats()
    assert manager().make_prefix_cache_stats() is None


def test_three_values_for_newer_callers() -> None:
    m = manager(api="0.32")
    assert len(m.get_computed_blocks(Request("a", [1, 2]))) == 3
    assert m.get_computed_blocks_for_connector(Request("a", [1, 2]))[3] is False


def test_new_blocks_to_be_zeroed() -> None:
    asks = config(20, stand_ins.FullAttentionSpec(4))
    asks.needs_kv_cache_zeroing = True
    m = pando.vllm.KVCacheManager(asks, 64)
    run(m, Request("a", list(range(9))))
    assert m.take_new_block_ids() == [1, 2, 3]
    assert m.take_new_block_ids() == []


def test_events_have_vllm_s_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "0")
    m = manager(3, enable_kv_cache_events=True)
    request = Request("a", list(range(8)), lora_request=stand_ins.lora("french", 3))
    run(m, request)
    (stored,) = m.take_events()
    assert isinstance(stored, pando.vllm.events.BlockStored)
    assert (stored.token_ids, stored.block_size) == (list(range(8)), 4)
    assert (stored.lora_id, stored.lora_name, stored.medium) == (3, "french", "GPU")
    assert stored.extra_keys == [("french",), ("french",)]
    first = m.block_pool.blocks[1].block_hash
    assert first is not None and stored.block_hashes[0] == first[:-4]
    request.finished = True
    m.free(request)
    run(m, Request("b", [60, 61, 62, 63, 64]))
    removed = [e for e in m.take_events() if isinstance(e, pando.vllm.events.BlockRemoved)]
    assert sum((e.block_hashes for e in removed), []) == stored.block_hashes[::-1]


# ---- Hashes ----------------------------------------------------------------------------------


def test_block_hashes_are_vllm_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 0.20.2 makes them: extra keys are (adapter, (image, offset), salt)."""

    def sha256_cbor(value: Any) -> bytes:
        return hashlib.sha256(cbor(value)).digest()

    rng = random.Random(1)
    for seed in (None, "42"):
        monkeypatch.delenv("PYTHONHASHSEED", raising=False)
        if seed is not None:
            monkeypatch.setenv("PYTHONHASHSEED", seed)
        m = manager()
        tokens = [rng.choice([5, 300, 70000, 128000]) for _ in range(14)]
        request = Request(
            "a", tokens, lora_request=stand_ins.lora("french"), cache_salt="s",
            mm_features=[stand_ins.feature("cat", 2, 4)],
        )
        run(m, request)
        parent = sha256_cbor(seed or "vllm-none-hash")
        extras: list[tuple[Any, ...]] = [
            ("french", ("cat", 2), "s"), ("french", ("cat", -2)), ("french",)
        ]
        for i, extra in enumerate(extras):
            parent = sha256_cbor((parent, tuple(tokens[4 * i : 4 * i + 4]), extra))
            key = m.block_pool.blocks[i + 1].block_hash
            assert key == parent + bytes(4)


# ---- The pool alone --------------------------------------------------------------------------


def test_block_pool_has_vllm_s_names() -> None:
    pool = pando.vllm.BlockPool(6, True, 4, enable_kv_cache_events=True)
    request = SimpleNamespace(
        request_id="a", block_hashes=[b"x" * 32, b"y" * 32], all_token_ids=list(range(8)),
        lora_request=None,
    )
    blocks = pool.get_new_blocks(2)
    assert [block.block_id for block in blocks] == [1, 2]
    assert pool.null_block.is_null and pool.null_block.ref_cnt == 0
    pool.cache_full_blocks(request, blocks, 0, 2, 4, 0)
    assert pool.get_cached_block(b"x" * 32, [0]) == [blocks[0]]
    assert pool.get_cached_block(b"x" * 32, [0, 1]) is None
    assert pool.get_cached_block(b"z" * 32, [0]) is None
    pool.touch((blocks,))
    pool.touch(blocks)
    assert [block.ref_cnt for block in blocks] == [3, 3]
    for _ in range(3):
        pool.free_blocks(reversed(blocks))
    assert pool.get_num_free_blocks() == 5
    assert pool.pool.free_blocks().tolist() == [3, 4, 5, 2, 1]
    with pytest.raises(ValueError, match="Cannot get 6"):
        pool.get_new_blocks(6)
    taken = pool.get_new_blocks(4)  # takes the tail of the request
    assert taken[-1] is blocks[1] and blocks[1].block_hash is None
    assert pool.get_usage() == 0.8
    assert not pool.reset_prefix_cache()
    pool.free_blocks(taken)
    pool.evict_blocks({1})
    assert pool.get_cached_block(b"x" * 32, [0]) is None
    assert pool.reset_prefix_cache()
    kinds = [type(event).__name__ for event in pool.take_events()]
    assert kinds == ["BlockStored", "BlockRemoved", "BlockRemoved", "AllBlocksCleared"]
    with pytest.raises(pando.BrokenContract):
        pool.free_blocks(blocks)


def test_block_pool_names_large_blocks_by_all_their_hashes() -> None:
    pool = pando.vllm.BlockPool(6, True, 2)
    request = SimpleNamespace(
        request_id="a", block_hashes=[bytes([i]) * 32 for i in range(4)], all_token_ids=[0] * 8
    )
    blocks = pool.get_new_blocks(2)
    pool.cache_full_blocks(request, blocks, 0, 2, 4, 1)
    name = b"".join(request.block_hashes[:2])
    assert pool.get_cached_block(name, [1]) == [blocks[0]]
    assert blocks[0].block_hash == name + b"\0\0\0\1"
    with pytest.raises(ValueError, match="3 full blocks"):
        pool.cache_full_blocks(request, blocks, 0, 3, 4, 1)


# ---- Documents -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["blocks", "manager", "offload"])
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"pando.vllm.{name}")
    result = doctest.testmod(module, extraglobs={"pando": pando, "np": np})
    assert result.attempted > 0 and result.failed == 0
