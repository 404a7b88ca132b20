# SPDX-License-Identifier: Apache-2.0
"""SGLang's BasePrefixCache over a :class:`pando.PrefixCache`.

:class:`PandoPrefixCache` has the methods; :func:`cache_class` puts them on SGLang's base class.
Called by SGLang's scheduler from one thread. SGLang's allocator owns every slot that is free, the
tree those that are cached, a request the rest: [cache_protected_len, ...) of its row.

Per call there is one walk of the tree (two for `cache_unfinished_req`, which also needs to know
where it ended), and no Python work that grows with the number of tokens beyond slicing.
"""

from __future__ import annotations

import functools
import itertools
import time
from array import array
from typing import Any, Callable

import numpy as np

import pando
from pando.sglang.allocators import bridge_of
from pando.sglang.events import EventLog
from pando.sglang.interface import Interface
from pando.sglang.nodes import Node, Root
from pando.sglang.refusals import refuse_params
from pando.sglang.reports import Reports
from pando.sglang.scheduling import dfs_weight_order
from pando.sglang.tensors import slots_of

# How much is evicted between two questions whether an allocation has enough: few enough pages that
# little is evicted in vain, and enough that asking costs little.
_RECLAIM_STEP_PAGES = 8


def _head(tokens: Any, length: int) -> Any:
    """The first tokens, as a view where there can be one."""
    if len(tokens) == length:
        return tokens
    if isinstance(tokens, array):
        return memoryview(tokens)[:length]
    return tokens[:length]


def namespace_of(holder: Any) -> str | bytes:
    """What keeps equal tokens apart, in one text: of a key, or of a request."""
    extra_key, cache_salt = holder.extra_key, getattr(holder, "cache_salt", None)
    return _namespace(extra_key, cache_salt) if extra_key or cache_salt else ""


@functools.lru_cache(maxsize=4096)
def _namespace(extra_key: str | None, cache_salt: str | None) -> bytes:
    return pando.make_namespace(salt=cache_salt or "", extra=extra_key or "")


def _all_from(req: Any, start: int) -> Any:
    """What a request was given and has generated, from a position on."""
    given = len(req.origin_input_ids)
    if start >= given:
        return req.output_ids[start - given :]
    return req.origin_input_ids[start:] + req.output_ids


def _will_insert_more(req: Any, chunked: bool) -> bool:
    """Of a request that makes a checkpoint, which one that ends does too."""
    finished = getattr(req, "finished", None)
    return not finished() if callable(finished) else chunked


def _window_unlocked(req: Any) -> bool:
    """Whether a request holds its prefix without the window: it was released early."""
    lock = getattr(req, "lock", None)
    return bool(getattr(req, "swa_prefix_lock_released", False)) or (
        lock is not None and lock.swa_released
    )


def _bookkeeping(req: Any) -> Any:
    """Where a request keeps its row and its protected length: itself, or its `kv`."""
    kv = getattr(req, "kv", None)
    return kv if hasattr(kv, "cache_protected_len") else req


class PandoPrefixCache(Reports):
    """The methods that SGLang calls. Made by the factory in ``registry.py``."""

    interface: Interface  # set by cache_class
    metrics_collector: Any = None
    cache_controller: Any = None
    enable_session_radix_cache = False
    has_host_tier = False
    enable_storage = False
    reads_rows_early = False  # every writer of rows is followed by rows_written()

    def __init__(self, params: Any, *, sliding_window_size: int | None = None) -> None:
        """`params`: SGLang's CacheInitParams. A window size makes it a cache for models with
        sliding-window layers, whose allocator has two sides."""
        self.disable = bool(params.disable)
        self.req_to_token_pool = params.req_to_token_pool
        self.token_to_kv_pool_allocator = params.token_to_kv_pool_allocator
        self.page_size = int(params.page_size)
        self.is_eagle = bool(getattr(params, "is_eagle", False))
        self.disable_finished_insert = bool(getattr(params, "disable_finished_insert", False))
        self.enable_kv_cache_events = bool(getattr(params, "enable_kv_cache_events", False))
        self.eviction_policy = str(getattr(params, "eviction_policy", "lru")).lower()
        # A draft model may read further back in the window's pool than the model itself: what is
        # kept, locked and matched is then the longer of the two.
        self.draft_swa_window = int(getattr(params, "draft_swa_window", 0) or 0)
        if sliding_window_size is not None:
            sliding_window_size = max(sliding_window_size, self.draft_swa_window)
        self.sliding_window_size = sliding_window_size
        refuse_params(params, self.eviction_policy)

        table = getattr(self.req_to_token_pool, "req_to_token", None)
        self._slots = slots_of(table, getattr(self.token_to_kv_pool_allocator, "device", "cpu"))
        self._bridge = bridge_of(
            self.token_to_kv_pool_allocator,
            self.page_size,
            self._slots,
            window=sliding_window_size is not None,
        )
        self._spare_tokens = 1 if self.is_eagle else 0  # n tokens are n - 1 pairs
        self._lock_ids = itertools.count(1)
        self._leases: dict[int, pando.Lease] = {}
        self._keep_tokens = False
        self.root_node = Root(self)
        self._by_checkpoint = self.interface.by_checkpoint
        self._no_slots = self._slots.empty()
        self._no_path = np.empty(0, np.int64)
        self._make_result = self.interface.match_result
        self._empty_match = self._match_result(None, self.root_node, None)
        self._locked = self.interface.inc_lock_result()
        self._locked_nothing = self.interface.inc_lock_result(delta=0)
        self._unlocked = self.interface.dec_lock_result(delta=0)
        self._events = EventLog(
            bigram=self.is_eagle,
            lora_names=getattr(params, "kv_event_lora_names", None),
            dynamo=bool(getattr(params, "dynamo_kv_event_format", False)),
        )
        self._cache = pando.PrefixCache(
            self._bridge.engine_slots(loads=self.has_host_tier),
            policy=self.eviction_policy,
            **self._options(),
        )
        self._paths = self._cache.paths
        self._inspect = self._cache.inspect
        if getattr(params, "enable_metrics", False):
            self.init_metrics_collector()  # type: ignore[attr-defined]

    def _options(self) -> dict[str, Any]:
        return {
            "bigram": self.is_eagle,
            "disabled": self.disable,
            "events": self.enable_kv_cache_events,
            "window": self.sliding_window_size,
            "partial_pages": False,  # SGLang has no use for rows of a partly matched page
        }

    @property
    def core(self) -> pando.PrefixCache:
        """The cache below, for explain(), dump() and statistics."""
        return self._cache

    def rows_written(self) -> None:
        """SGLang has prepared a batch, and will begin to compute it next."""
        self._slots.rows_written()

    # ---- Matching ------------------------------------------------------------------------------

    def _match_result(self, match: Any, node: Any, host_node: Any) -> Any:
        """Positional, because keywords take as long as a match. A result by length: slots are
        asked for later (path_device_indices)."""
        if match is None:
            return self._make_result(
                0 if self._by_checkpoint else self._no_slots, node, node, node, 0
            )
        device = match.length if self._by_checkpoint else self._slots.to_engine(match.slots)
        return self._make_result(device, node, host_node, host_node, match.host_length)

    def match_prefix(self, params: Any) -> Any:
        key = params.key
        tokens = key.token_ids
        length = len(tokens)
        limit = getattr(key, "limit", None)
        if limit is not None and limit < length:
            length = limit
        if self.disable or length <= self._spare_tokens:
            return self._empty_match
        namespace = namespace_of(key)
        if length != len(tokens):
            tokens = _head(tokens, length)
        match = self._paths.match(tokens, ns=namespace)
        if match.length == 0 and match.host_length == 0 and not self.enable_storage:
            return self._empty_match
        node = Node(self, match, key.token_ids if self._keep_tokens else None, namespace)
        return self._matched(match, node)

    def _matched(self, match: pando.Match, node: Node) -> Any:
        return self._match_result(match, node, node)

    def path_device_indices(self, node: Any) -> Any:
        """The slots of a matched prefix."""
        if node.match is None or node.match.length == 0:
            return self._no_slots
        return self._slots.to_engine(node.match.slots)

    def touch_prefix(self, key: Any) -> None:
        """Makes the path of a prompt the most recently used."""
        tokens = key.token_ids
        limit = getattr(key, "limit", None)
        length = len(tokens) if limit is None else min(len(tokens), limit)
        if not self.disable and length > self._spare_tokens:
            namespace = namespace_of(key)
            self._paths.match(_head(tokens, length), ns=namespace, slots=False)

    def supports_fast_match_prefix(self) -> bool:
        """SGLang would then match every waiting request at every step, whatever its policy."""
        return False

    def dfs_weight_order(self, node_handles: Any) -> list[int]:
        """Of waiting requests, by what their prefixes share."""
        paths = [
            self._no_path if node.match is None or node.match.slots is None else node.match.slots
            for node in node_handles
        ]
        return dfs_weight_order(paths)

    # ---- Locks ---------------------------------------------------------------------------------

    def inc_lock_ref(self, node: Any) -> Any:
        if self.disable or node is self.root_node:
            return self._locked_nothing
        name = self._lock(node)
        return self._locked if self.sliding_window_size is None else self.interface.locked(name)

    def _lock(self, node: Node) -> int:
        name = next(self._lock_ids)
        self._leases[name] = self._paths.lock(node.match)
        node.locks.append(name)
        return name

    def dec_lock_ref(self, node: Any, params: Any = None, skip_swa: bool = False) -> Any:
        if self.disable or node is self.root_node:
            return self._unlocked
        locks = node.locks
        if not locks:
            raise RuntimeError(f"dec_lock_ref: {node!r} is not locked")
        name = None if params is None else self.interface.name_of(params)
        if name is not None and name in locks:
            locks.remove(name)
        else:
            name = locks.pop()
        lease = self._leases.pop(name, None)
        if lease is not None:  # a reset has let go of it
            lease.release()
            self._bridge.flush()
        return self._unlocked

    def dec_swa_lock_only(
        self, node: Any, lock: Any = None, skip_lock_node_ids: Any = None
    ) -> None:
        """Lets go of the window alone: the request has moved past it.

        `skip_lock_node_ids` (0.5.17 and 0.5.18) names nodes whose window was gone when the lock was
        taken, so that SGLang does not count them twice. A lease knows what it holds."""
        if self.disable or node is self.root_node or node is None:
            return
        name = self.interface.name_of(lock)
        if name is None or name not in node.locks:
            name = node.locks[-1]
        lease = self._leases.get(name)
        if lease is not None:
            lease.release_window()
            self._bridge.flush()

    def release_swa_prefix_lock(self, req: Any) -> None:
        """The same for the lock that a request holds."""
        self.release_swa(req.lock)

    def release_swa(self, lock: Any) -> None:
        """The same for a TreeLock, once."""
        if lock is not None and not lock.swa_released:
            self.dec_swa_lock_only(lock.node, lock.receipt)
            lock.swa_released = True

    # ---- Requests ------------------------------------------------------------------------------

    def cache_finished_req(
        self, req: Any, is_insert: bool = True, *, kv_len_to_handle: int | None = None, **_: Any
    ) -> None:
        if kv_len_to_handle is None:
            kv_len_to_handle = req.pop_committed_kv_cache()
        own = _bookkeeping(req)
        table, row = self.req_to_token_pool.req_to_token, own.req_pool_idx
        kept = own.cache_protected_len // self.page_size * self.page_size
        if self.disable:
            self._bridge.free_row(table, row, kept, kv_len_to_handle)
            return
        length = min(len(req.origin_input_ids) + len(req.output_ids), kv_len_to_handle)
        if is_insert:
            kept = self._insert_finished(req, own, length, kept)
        self._bridge.free_row(table, row, kept, length)
        self._unlock_request(req)

    def insert_req(self, req: Any, *, up_to: int, **_: Any) -> None:
        """In 0.5.21, of a request that ends: `release_kv_cache` frees what is not protected then,
        and calls unpin()."""
        own = req.kv
        kept = own.cache_protected_len // self.page_size * self.page_size
        if not self.disable:
            length = min(len(req.origin_input_ids) + len(req.output_ids), up_to)
            own.cache_protected_len = self._insert_finished(req, own, length, kept)

    def unpin(self, req: Any) -> None:
        self._unlock_request(req)

    def _insert_finished(self, req: Any, own: Any, length: int, kept: int) -> int:
        """How much of a request that ends is the tree's then; `kept` is already."""
        if self.disable_finished_insert:
            return kept
        slots = self._slots.host_row(self.req_to_token_pool.req_to_token, own.req_pool_idx, length)
        inserted = self._insert_for(req, lambda start: _all_from(req, start), slots, kept)
        self._bridge.flush()
        return kept if inserted is None else inserted.length

    def cache_unfinished_req(self, req: Any, chunked: bool = False, **_: Any) -> None:
        own = _bookkeeping(req)
        tokens = req.get_fill_ids() if hasattr(req, "get_fill_ids") else req.fill_ids
        table, row = self.req_to_token_pool.req_to_token, own.req_pool_idx
        slots = self._slots.host_row(table, row, len(tokens))
        node, fresh = self._checkpoint(req, own, tokens, slots, chunked, unfinished=True)
        if fresh is None:  # the request goes on with the slots it has
            req.prefix_indices = self._slots.row(table, row, slots)
        else:
            req.prefix_indices = self._slots.to_engine(fresh)
        if node is not None and not node.locks:
            name = self._lock(node)
            self._unlock_request(req)
            self._set_receipt(req, name)
        if node is not None:
            req.last_node = node
        self._bridge.flush()

    def checkpoint(self, req: Any, *, up_to: int, **_: Any) -> None:
        """Of a running request, and of one that ends: `release_kv_cache` frees what is not
        protected then."""
        if self.disable:
            return
        own = req.kv
        tokens = _head(req.full_untruncated_fill_ids, up_to)
        slots = self._slots.host_row(self.req_to_token_pool.req_to_token, own.req_pool_idx, up_to)
        chunked = up_to < len(req.origin_input_ids)
        unfinished = _will_insert_more(req, chunked)
        node, _fresh = self._checkpoint(req, own, tokens, slots, chunked, unfinished)
        if node is not None:
            if self._keep_tokens:
                node.tokens = req.full_untruncated_fill_ids
            lock = self.lock(node)  # type: ignore[attr-defined]
            self.unlock(req.lock)  # type: ignore[attr-defined]
            req.lock, req.last_node = lock, node
        self._bridge.flush()

    def _checkpoint(
        self,
        req: Any,
        own: Any,
        tokens: Any,
        slots: np.ndarray,
        chunked: bool,
        unfinished: bool,
    ) -> tuple[Node | None, np.ndarray | None]:
        """Gives the tree what is computed. Its end, if it took anything, and all slots of the
        request anew, if the tree had some of them already."""
        protected = own.cache_protected_len // self.page_size * self.page_size
        # Without windows the request's lease just grows, and nothing changes but its end.
        grows = self.sliding_window_size is None and not self._by_checkpoint
        inserted = None
        if not self.disable:
            inserted = self._insert_for(
                req, lambda start: tokens[start:], slots, protected, chunked, unfinished, grows
            )
        if inserted is None:
            return None, None
        kept = inserted.length
        namespace = namespace_of(req)
        fresh = np.empty(len(tokens), np.int64) if inserted.existing > protected else None
        if fresh is None and grows:
            match = inserted.match()
        else:
            match = self._paths.match(tokens, ns=namespace, slots=fresh)
        if match.length != kept:
            raise RuntimeError(
                f"{kept} tokens of a request were cached, of which {match.length} can be matched "
                f"({match.end}): expected all"
            )
        if fresh is not None:
            fresh[kept:] = slots[kept:]
            self.req_to_token_pool.write(
                (own.req_pool_idx, slice(protected, kept)),
                self._slots.to_engine(fresh[protected:kept]),
            )
        own.cache_protected_len = kept
        node = Node(self, match, tokens if self._keep_tokens else None, namespace)
        if grows and self._lease_on(req.last_node, kept) is not None:
            node.locks.append(req.last_node.locks.pop())
        return node, fresh

    def _insert_for(
        self,
        req: Any,
        tokens_from: Callable[[int], Any],
        slots: np.ndarray,
        protected: int,
        chunked: bool = False,
        unfinished: bool = False,
        grows: bool = False,
    ) -> pando.Inserted | None:
        """Gives the tree a request's tokens, one for each slot; `tokens_from` a position on, at
        least these. `unfinished`: the request will insert more. `grows`: its lease is to hold all
        of it. Nothing where there is nothing to give: no whole page, or no window at its end (a
        window may be shorter than a page: then one page that was not released is enough)."""
        page_size = self.page_size
        length = (len(slots) - self._spare_tokens) // page_size * page_size
        if length <= 0 or length < protected:
            return None
        released = 0
        if self.sliding_window_size is not None:
            released = self._window_released(req) // page_size * page_size
            # The window before `protected` may be evicted once its lock is released.
            if released > protected or _window_unlocked(req):
                if length < max(released, protected) + self.sliding_window_size:
                    return None
        options = {
            "ns": namespace_of(req),
            "priority": getattr(req, "priority", 0) or 0,
            "chunked": chunked,
            "unfinished": unfinished,
            "window_released": released,
        }
        session = getattr(req, "session_id", None) if self.enable_kv_cache_events else None
        if session is not None:
            self._events.add(self._cache.take_events())  # not this session's
        lease = self._lease_on(req.last_node, protected)
        if lease is None:
            tokens = _head(tokens_from(0), len(slots))
            inserted = self._paths.insert(tokens, slots, owned_by_tree=protected, **options)
        else:
            tokens = _head(tokens_from(protected), len(slots) - protected)
            inserted = self._paths.insert_behind(
                lease, tokens, slots[protected:], extend_lease=grows, **options
            )
        if session is not None:
            self._events.add(self._cache.take_events(), session)
        return inserted

    def _lease_on(self, node: Any, length: int) -> pando.Lease | None:
        """The one that a request has on its node, if it holds exactly so many tokens."""
        if node is None or len(node.locks) != 1:
            return None
        lease = self._leases.get(node.locks[-1])
        return lease if lease is not None and lease.length == length > 0 else None

    def _window_released(self, req: Any) -> int:
        kv = getattr(req, "kv", None)
        keeps = hasattr(kv, "swa_evicted_seqlen") or hasattr(kv, "get_evicted_seqlen")
        return self._released(kv if keeps else req)

    def _released(self, holder: Any) -> int:
        """How far the window's slots have been given back already."""
        if hasattr(holder, "get_evicted_seqlen"):
            return int(holder.get_evicted_seqlen(self.interface.window_component) or 0)
        return getattr(holder, "swa_evicted_seqlen", 0) or 0

    def _unlock_request(self, req: Any) -> None:
        node = req.last_node
        if node is None:
            return
        receipt = getattr(req, "lock_receipt", None)
        self.dec_lock_ref(node, receipt or getattr(req, "swa_uuid_for_lock", None))
        if self.sliding_window_size is not None:
            req.swa_prefix_lock_released = False

    def _set_receipt(self, req: Any, name: int) -> None:
        if hasattr(req, "lock_receipt"):
            req.lock_receipt = self.interface.locked(name).to_dec_params()
        elif self.sliding_window_size is not None:
            req.swa_uuid_for_lock = name

    # ---- Inserting and evicting ----------------------------------------------------------------

    def insert(self, params: Any) -> Any:
        """SGLang's contract: without a window the caller frees what the tree had already, that is
        [protected, prefix_len); with one the cache does."""
        if self.disable:
            return self.interface.insert_result(prefix_len=0)
        key = params.key
        tokens = key.token_ids
        limit = getattr(key, "limit", None)
        length = len(tokens) if limit is None else min(len(tokens), limit)
        if (length - self._spare_tokens) // self.page_size == 0:
            return self.interface.insert_result(prefix_len=0)
        tokens = _head(tokens, length)
        namespace = namespace_of(key)
        value = params.value
        given = np.asarray(tokens) if value is None else self._slots.to_host(value)
        slots = np.zeros(length, np.int64)  # a last token without a pair has no slot
        if self.sliding_window_size is None:
            owned = self._paths.match(tokens, ns=namespace, slots=slots).length
            slots[owned : len(given)] = given[owned:length]
        else:
            owned = params.prev_prefix_len // self.page_size * self.page_size
            slots[: len(given)] = given[:length]
        inserted = self._paths.insert(
            tokens,
            slots,
            ns=namespace,
            owned_by_tree=owned,
            priority=params.priority or 0,
            chunked=getattr(params, "chunked", False),
            window_released=self._released(params) if self.sliding_window_size else 0,
        )
        self._bridge.flush()
        return self.interface.insert_result(prefix_len=inserted.existing)

    def evict(self, params: Any) -> Any:
        if self.disable:
            return self.interface.evict_result()
        start = time.perf_counter()
        if self.sliding_window_size is None:
            evicted = self._cache.evict(params.num_tokens)
        else:
            evicted = self._cache.evict(params.num_tokens, window_tokens=params.swa_num_tokens)
        self._bridge.flush()
        if self.metrics_collector is not None:
            self.update_eviction_metrics(evicted.tokens, start)  # type: ignore[attr-defined]
        return self.interface.evict_result(
            num_tokens_evicted=evicted.tokens, swa_num_tokens_evicted=evicted.window_tokens
        )

    def evict_for_alloc(
        self, params: Any, *, allocation_reclaim_satisfied: Callable[[], bool] | None = None
    ) -> Any:
        """Evicts what an allocation is short of. With a predicate, `params` are upper limits, and
        eviction goes on in steps until the allocator says that it has enough."""
        if allocation_reclaim_satisfied is None:
            return self.evict(params)
        tokens = window_tokens = 0
        step = _RECLAIM_STEP_PAGES * self.page_size
        while not allocation_reclaim_satisfied():
            done = self.evict(
                type(params)(
                    num_tokens=min(step, max(params.num_tokens - tokens, 0)),
                    swa_num_tokens=min(step, max(params.swa_num_tokens - window_tokens, 0)),
                )
            )
            if done.num_tokens_evicted == done.swa_num_tokens_evicted == 0:
                break  # the limits are reached, or nothing is left
            tokens += done.num_tokens_evicted
            window_tokens += done.swa_num_tokens_evicted
        return self.interface.evict_result(
            num_tokens_evicted=tokens, swa_num_tokens_evicted=window_tokens
        )

    def reset(self) -> None:
        """As SGLang's, it gives nothing back: the engine clears its allocator with it. Locks that
        are still held are void."""
        for lease in self._leases.values():
            lease.release()
        self._leases.clear()
        self._cache.reset()
        self._bridge.forget()


@functools.cache
def cache_class(interface: Interface, kind: type = PandoPrefixCache) -> type:
    """The methods of `kind` on the base class of this SGLang."""
    return type("PandoRadixCache", (kind, interface.base), {"interface": interface})
