# SPDX-License-Identifier: Apache-2.0
"""A scheduler in miniature that drives a cache as SGLang's does, and a model of what every slot
holds. It works with the stand-ins and with SGLang's own types alike.

After every operation: no slot is lost or has two owners, and the tree's invariants hold. After
every match: each slot holds what its prefix says, and the match is as long as what is cached
allows.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np


def host_view(values: Any) -> np.ndarray:
    """A NumPy array over the same memory."""
    return values if isinstance(values, np.ndarray) else values.numpy()


def host_array(slots: Any) -> np.ndarray:
    """A copy of int64."""
    return host_view(slots).astype(np.int64)


class PoolHolds:
    """What slots hold, as bytes of a KV pool: 8 in each plane and layer, all the same."""

    def __init__(self, kv_pool: Any, gate: Any) -> None:
        self.buffers = [
            [host_view(buffer).reshape(len(buffer), -1).view(np.int64)[:, 0] for buffer in layer]
            for layer in zip(kv_pool.k_buffer, kv_pool.v_buffer)
        ]
        self.gate = gate

    def __getitem__(self, slot: int) -> int:
        self.gate.set_consumer(0)
        found = set()
        for layer, planes in enumerate(self.buffers):
            self.gate.wait_until(layer)  # a load may be under way
            found.update(int(plane[slot]) for plane in planes)
        assert len(found) == 1, f"slot {slot} holds {found}"
        return found.pop()

    def __setitem__(self, slot: int, content: int) -> None:
        for planes in self.buffers:
            for plane in planes:
                plane[slot] = content


@dataclasses.dataclass
class Running:
    req: Any
    row: int
    allocated: int  # tokens that have slots
    prompt_len: int


class Engine:
    def __init__(
        self,
        cache: Any,
        *,
        types: Any,
        make_req: Any,
        pool: Any,
        allocator: Any,
        total: int,
        total_window: int = 0,
        window: int | None = None,
        bigram: bool = False,
        exact: bool | None = True,
        kv_pool: Any = None,
    ) -> None:
        self.cache = cache
        self.types = types
        self.make_req = make_req
        self.pool = pool
        self.allocator = allocator
        self.page_size = cache.page_size
        self.total, self.total_window = total, total_window
        self.window = window
        self.pair = 1 if bigram else 0
        # Whether a match is as long as what is cached allows; None: not looked at.
        self.exact = exact
        # slot -> what was computed into it
        self.holds: Any = {} if kv_pool is None else PoolHolds(kv_pool, cache.layer_done_counter)
        self.tiers = kv_pool is not None
        self.window_holds: dict[int, Any] = {}
        self.running: list[Running] = []
        self.history: list[tuple[list[int], Any]] = []
        self.rows = list(range(len(pool.req_to_token) - 1, 0, -1))
        self.names = 0
        self.loaded_back = self.prefetched = 0

    # ---- Slots ---------------------------------------------------------------------------------

    def table(self, row: int, start: int, end: int) -> np.ndarray:
        return host_array(self.pool.req_to_token[row][start:end])

    def mapping(self, slots: np.ndarray) -> np.ndarray:
        return host_array(self.allocator.full_to_swa_index_mapping)[slots]

    def _take(self, count: int) -> Any:
        if self.window is None:
            return self.allocator.alloc(count)
        full = self.allocator.full_attn_allocator.alloc(count)
        self.allocator.full_to_swa_index_mapping[full] = self.allocator.swa_attn_allocator.alloc(
            count
        )
        return full

    def _has_room(self, count: int) -> bool:
        if self.window is None:
            return self.allocator.available_size() >= count
        return (
            self.allocator.full_available_size() >= count
            and self.allocator.swa_available_size() >= count
        )

    def _evict_for(self, count: int) -> None:
        if self.window is None:
            self.cache.evict(self.types.EvictParams(num_tokens=count))
            return
        full = max(0, count - self.allocator.full_available_size())
        window = max(0, count - self.allocator.swa_available_size())
        self.cache.evict(self.types.EvictParams(num_tokens=full, swa_num_tokens=window))

    def extend(self, run: Running, to: int) -> bool:
        """Slots for tokens [allocated, to): first what is left of the open page."""
        at, page = run.allocated, self.page_size
        room = min(-at % page, to - at)
        if room:
            last = int(self.pool.req_to_token[run.row][at - 1])
            self._write(run.row, at, np.arange(last + 1, last + 1 + room))
        need = -(-(to - at - room) // page) * page
        if need and not self._has_room(need):
            self._evict_for(need)
        if need and not self._has_room(need):
            return False
        if need:
            slots = host_array(self._take(need))
            self._write(run.row, at + room, slots[: to - at - room])
        run.allocated = to
        return True

    def _write(self, row: int, start: int, slots: np.ndarray) -> None:
        self.pool.req_to_token[row][start : start + len(slots)] = self.like_table(slots)

    def like_table(self, slots: np.ndarray) -> Any:
        if isinstance(self.pool.req_to_token, np.ndarray):
            return slots
        import torch

        return torch.from_numpy(slots.astype(np.int64))

    # ---- What slots hold -----------------------------------------------------------------------

    @staticmethod
    def contents(tokens: Any, extra_key: Any) -> list[int]:
        """For each position, all that its KV depends on."""
        state, result = hash(("start", extra_key)), []
        for token in tokens:
            state = hash((state, int(token)))
            result.append(state)
        return result

    def compute(self, run: Running, end: int) -> None:
        """The forward pass: what belongs to the request's own slots is there."""
        req = run.req
        computed = self.contents(self.tokens(req)[:end], req.extra_key)
        slots = self.table(run.row, 0, end)
        windows = self.mapping(slots) if self.window is not None else None
        for i in range(req_own(req).cache_protected_len, end - self.pair):
            self.holds[int(slots[i])] = computed[i + self.pair]
            if windows is not None and windows[i] > 0:
                self.window_holds[int(windows[i])] = computed[i + self.pair]

    def verify(self, tokens: Any, extra_key: Any, slots: np.ndarray, what: str) -> None:
        computed = self.contents(tokens, extra_key)
        for i, slot in enumerate(slots):
            assert self.holds[int(slot)] == computed[i + self.pair], f"{what}: position {i}"
        if self.window is not None and len(slots):
            windows = self.mapping(slots)
            for i in range(max(0, len(slots) - self.window), len(slots)):
                assert windows[i] > 0, f"{what}: position {i} has no window"
                assert self.window_holds[int(windows[i])] == computed[i + self.pair]

    def expected_length(self, tokens: Any, extra_key: Any) -> int:
        """The longest prefix in whole pages that the tree has the slots of."""
        if not self.cache.total_size():
            return 0
        cached = {self.holds[int(slot)] for slot in self.cache.all_values_flatten()}
        computed = self.contents(tokens, extra_key)
        length = 0
        for end in range(self.page_size, len(tokens) - self.pair + 1, self.page_size):
            if computed[end - 1 + self.pair] in cached:
                length = end
        return length

    # ---- The life of a request -----------------------------------------------------------------

    @staticmethod
    def tokens(req: Any) -> Any:
        return req.origin_input_ids + req.output_ids

    def match(self, tokens: Any, extra_key: Any, limit: int | None = None) -> Any:
        key = self.types.RadixKey(tokens, extra_key)
        if limit is not None:
            if hasattr(key, "limit"):
                key.limit = limit
            else:
                key.token_ids = tokens[:limit]
        result = self.cache.match_prefix(self.types.MatchPrefixParams(key=key))
        head = tokens[: len(tokens) if limit is None else limit]
        slots = self.slots_of(result)
        self.verify(head, extra_key, slots, "match")
        if not self.cache.disable and self.exact is not None:
            expected = self.expected_length(head, extra_key)
            assert len(slots) <= expected
            assert len(slots) == expected or not self.exact
        if not len(slots) and not result.host_hit_length:
            assert result.last_device_node is self.cache.root_node
        return result

    def start(self, prompt: list[int], extra_key: Any, priority: int = 0) -> Running | None:
        if not self.rows or not prompt:
            return None
        self.names += 1
        req = self.make_req(f"r{self.names}", prompt, extra_key, priority)
        if getattr(self.cache, "enable_storage", False):
            self.prefetch(req)
        result = self.match(req.origin_input_ids, extra_key, limit=len(prompt) - 1)
        cache, own = self.cache, req_own(req)
        req.prefix_indices = self.like_table(self.slots_of(result))
        req.last_node = result.last_device_node
        req.last_host_node, req.best_match_node = result.last_host_node, result.best_match_node
        req.host_hit_length = result.host_hit_length
        locked = req.last_node
        admission = self.lock(locked)  # as the scheduler's, around what follows
        if req.host_hit_length:
            self.load_back(req)
        self.lock_for(req)
        self.unlock(locked, admission)
        own.req_pool_idx = self.rows.pop()
        own.cache_protected_len = len(req.prefix_indices)
        if self.window is not None:
            req.window().swa_evicted_seqlen = 0
        run = Running(req, own.req_pool_idx, len(req.prefix_indices), len(prompt))
        self._write(run.row, 0, host_array(req.prefix_indices))
        self.running.append(run)
        return run

    def prefetch(self, req: Any) -> None:
        """While the request waits: what storage has comes to the host."""
        cache, tokens = self.cache, req.origin_input_ids
        result = self.match(tokens, req.extra_key, limit=len(tokens) - 1)
        matched = len(self.slots_of(result)) + result.host_hit_length
        node = result.last_host_node
        assert node.backuped or node is cache.root_node
        cache.prefetch_from_storage(
            req.rid, node, tokens[matched:-1], node.get_last_hash_value(), None
        )
        if self.names % 5 == 0:
            cache.release_aborted_request(req.rid)
        while not cache.check_prefetch_progress(req.rid):
            cache.check_hicache_events()
            time.sleep(0.0005)
        loaded = cache.pop_prefetch_loaded_tokens(req.rid)
        assert loaded % self.page_size == 0
        assert cache.pop_prefetch_loaded_tokens(req.rid) == 0
        self.prefetched += loaded
        again = self.match(tokens, req.extra_key, limit=len(tokens) - 1)
        assert len(self.slots_of(again)) + again.host_hit_length >= matched + loaded

    @staticmethod
    def slots_of(result: Any) -> np.ndarray:
        return host_array(result.device_indices)

    def lock(self, node: Any) -> Any:
        return self.cache.inc_lock_ref(node).to_dec_params()

    def unlock(self, node: Any, receipt: Any) -> None:
        self.cache.dec_lock_ref(node, receipt)

    def lock_for(self, req: Any) -> None:
        req.take_lock(self.cache.inc_lock_ref(req.last_node))

    def checkpoint(self, run: Running, end: int) -> None:
        self.cache.cache_unfinished_req(run.req, chunked=end < run.prompt_len)
        assert np.array_equal(host_array(run.req.prefix_indices), self.table(run.row, 0, end))

    def release(self, req: Any, *, insert: bool) -> None:
        self.cache.cache_finished_req(req, is_insert=insert, **req.finish_arguments())

    def load_back(self, req: Any) -> None:
        loaded = self.cache.init_load_back(
            self.types.InitLoadBackParams(
                best_match_node=req.best_match_node, host_hit_length=req.host_hit_length, req=req
            )
        )
        before = host_array(req.prefix_indices)
        both = self.with_loaded(before, loaded)
        req.last_node = loaded[1]
        assert len(both) - len(before) in (0, req.host_hit_length)
        self.loaded_back += len(both) - len(before)
        req.prefix_indices = self.like_table(both)
        self.verify(self.tokens(req), req.extra_key, both, "load back")

    def with_loaded(self, before: np.ndarray, loaded: Any) -> np.ndarray:
        """The slots of a request's prefix after init_load_back()."""
        return np.concatenate([before, host_array(loaded[0])])

    def step(self, run: Running, chunk: int, token: int) -> None:
        """A chunk of the prompt, or a token."""
        req = run.req
        if run.allocated < run.prompt_len:
            end = min(run.allocated + max(chunk, 1), run.prompt_len)
            if not self.extend(run, end):
                self.finish(run, insert=False)
                return
            self.compute(run, end)
            req.fill_len = end
            self.checkpoint(run, end)
            self.verify_prefix(run, end)
            return
        req.output_ids.append(token)
        if not self.extend(run, run.allocated + 1):
            req.output_ids.pop()
            self.finish(run, insert=True)
            return
        self.compute(run, run.allocated)
        if self.window is not None:
            self.release_window(run)

    def verify_prefix(self, run: Running, end: int) -> None:
        row = self.table(run.row, 0, end)
        kept = req_own(run.req).cache_protected_len
        self.verify(self.tokens(run.req)[:end], run.req.extra_key, row[: end - self.pair], "row")
        if not self.cache.disable:
            assert kept == (end - self.pair) // self.page_size * self.page_size

    def release_window(self, run: Running) -> None:
        """As SGLang does while decoding."""
        req, page = run.req, self.page_size
        holder = req.window()
        before = max(holder.swa_evicted_seqlen, req_own(req).cache_protected_len)
        until = run.allocated - 1 - max(self.window or 0, page)
        until = max(before, until) // page * page
        holder.swa_evicted_seqlen = before
        if until > before:
            self.allocator.free_swa(self.like_table(self.table(run.row, before, until)))
            holder.swa_evicted_seqlen = until

    def release_window_lock(self, run: Running) -> None:
        req = run.req
        if self.window is None or req.swa_prefix_lock_released or req.lock_name() is None:
            return
        if run.allocated - req_own(req).cache_protected_len < self.window:
            return
        self.cache.dec_swa_lock_only(req.last_node, req.lock_name())
        req.swa_prefix_lock_released = True

    def finish(self, run: Running, *, insert: bool) -> None:
        req = run.req
        req.fill_len = min(run.allocated, len(self.tokens(req)))
        if run.allocated:
            self.compute(run, req.fill_len)
        self.history.append((list(self.tokens(req)), req.extra_key))
        self.release(req, insert=insert)
        self.running.remove(run)
        self.rows.append(run.row)

    # ---- What must hold ------------------------------------------------------------------------

    def check(self) -> None:
        cache, page = self.cache, self.page_size
        cache.sanity_check()
        own = window_own = 0
        for run in self.running:
            kept = req_own(run.req).cache_protected_len
            pages = self.table(run.row, kept, run.allocated)[::page]
            own += len(pages) * page
            if self.window is not None:
                window_own += int((self.mapping(pages) > 0).sum()) * page
        cached = cache.full_evictable_size() + cache.full_protected_size()
        if self.window is None:
            assert self.allocator.available_size() + cached + own == self.total
            assert cache.total_size() == cached
            return
        assert self.allocator.full_available_size() + cached + own == self.total
        cached = cache.swa_evictable_size() + cache.swa_protected_size()
        assert self.allocator.swa_available_size() + cached + window_own == self.total_window

    def settle(self) -> None:
        """Until nothing is under way between tiers."""
        while self.tiers and not self.cache.core.poll().idle:
            time.sleep(0.0005)
        if self.tiers:
            self.cache.check_hicache_events()

    def finish_all(self) -> None:
        for run in list(self.running):
            self.finish(run, insert=True)
        self.settle()
        self.check()
        assert self.cache.full_protected_size() == 0
        assert self.cache.swa_protected_size() == 0
        self.cache.evict(
            self.types.EvictParams(num_tokens=self.total, swa_num_tokens=self.total_window)
        )
        self.settle()
        assert self.cache.full_evictable_size() == 0
        self.check()


class InsertEngine(Engine):
    """Drives caches as SGLang 0.5.21 does."""

    def release(self, req: Any, *, insert: bool) -> None:
        if insert:
            self.cache.insert_req(req, up_to=req.fill_len)
        self.cache.free_kv_row(req.kv, [(req.kv.cache_protected_len, req.fill_len)])
        self.cache.unpin(req)


class CheckpointEngine(Engine):
    """Drives caches as SGLang does from 0.5.22 on."""

    def slots_of(self, result: Any) -> np.ndarray:  # type: ignore[override]
        slots = host_array(self.cache.path_device_indices(result.last_device_node))
        assert len(slots) == result.device_prefix_len
        return slots

    def with_loaded(self, before: np.ndarray, loaded: Any) -> np.ndarray:
        length, node = loaded
        if not length:
            return before
        slots = host_array(self.cache.path_device_indices(node))
        assert len(slots) == len(before) + length
        assert np.array_equal(slots[: len(before)], before)
        return slots

    def lock(self, node: Any) -> Any:
        return self.cache.lock(node)

    def unlock(self, node: Any, receipt: Any) -> None:
        self.cache.unlock(receipt)

    def lock_for(self, req: Any) -> None:
        req.lock = self.cache.lock(req.last_node)

    def checkpoint(self, run: Running, end: int) -> None:
        self.cache.checkpoint(run.req, up_to=end)

    def release(self, req: Any, *, insert: bool) -> None:
        if insert:
            self.cache.checkpoint(req, up_to=req.fill_len)
        self.cache.free_kv_row(req.kv, [(req.kv.cache_protected_len, req.fill_len)])
        self.cache.unlock(req.lock)
        req.lock = None

    def release_window_lock(self, run: Running) -> None:
        if self.window is None:
            return
        if run.allocated - run.req.kv.cache_protected_len >= self.window:
            self.cache.release_swa_prefix_lock(run.req)


def req_own(req: Any) -> Any:
    """Where the request keeps its row and its protected length."""
    kv = getattr(req, "kv", None)
    return kv if hasattr(kv, "cache_protected_len") else req
