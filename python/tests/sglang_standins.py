# SPDX-License-Identifier: Apache-2.0
"""What pando.sglang sees of SGLang: small classes with its documented signatures, over NumPy, or
over torch where it is asked for. They are stricter than the real ones: freeing what is free, or
what was never handed out, raises.

`Flavor` tells apart how generations of SGLang keep a request's bookkeeping: on the request
("0.5.13"), partly on `req.kv` ("0.5.16"), all on `req.kv` with lock receipts and segment frees
("0.5.20"), with the scheduler freeing the row of a request that ends ("0.5.21"), with one
checkpoint in place of two calls ("0.5.23"). As a module this stands in for
`sglang.srt.mem_cache.base_prefix_cache`; BY_INSERT and BY_CHECKPOINT do for the latest.
"""

from __future__ import annotations

import dataclasses
import enum
from abc import ABC, abstractmethod
from array import array
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

# ---- Parameters and results --------------------------------------------------------------------


class RadixKey:
    def __init__(
        self,
        token_ids: Any,
        extra_key: str | None = None,
        is_bigram: bool = False,
        limit: int | None = None,
        cache_salt: str | None = None,
    ) -> None:
        self.token_ids = token_ids
        self.extra_key = extra_key
        self.is_bigram = is_bigram
        self.limit = limit
        self.cache_salt = cache_salt


@dataclasses.dataclass
class MatchPrefixParams:
    key: RadixKey
    cow_mamba: bool = False
    req: Any = None


@dataclasses.dataclass
class InsertParams:
    key: RadixKey | None = None
    value: Any = None
    prev_prefix_len: int = 0
    swa_evicted_seqlen: int = 0
    chunked: bool = False
    priority: int = 0


@dataclasses.dataclass
class InsertResult:
    prefix_len: int
    last_device_node: Any = None


@dataclasses.dataclass
class EvictParams:
    num_tokens: int = 0
    swa_num_tokens: int = 0


@dataclasses.dataclass
class EvictResult:
    num_tokens_evicted: int = 0
    swa_num_tokens_evicted: int = 0


@dataclasses.dataclass
class DecLockRefParams:
    swa_uuid_for_lock: int | None = None


@dataclasses.dataclass
class IncLockRefResult:
    delta: int | None = None
    swa_uuid_for_lock: int | None = None

    def to_dec_params(self) -> DecLockRefParams:
        return DecLockRefParams(swa_uuid_for_lock=self.swa_uuid_for_lock)


@dataclasses.dataclass
class DecLockRefResult:
    delta: int | None = None


@dataclasses.dataclass
class InitLoadBackParams:
    best_match_node: Any
    host_hit_length: int
    mem_quota: int | None = None
    req: Any = None


class MatchResult(NamedTuple):
    device_indices: Any
    last_device_node: Any
    last_host_node: Any
    best_match_node: Any
    host_hit_length: int = 0
    swa_host_hit_length: int = 0
    cache_protected_len: int | None = None


class BasePrefixCache(ABC):
    @abstractmethod
    def reset(self) -> None: ...
    @abstractmethod
    def match_prefix(self, params: MatchPrefixParams) -> MatchResult: ...
    @abstractmethod
    def cache_finished_req(self, req: Any, is_insert: bool = True, **kwargs: Any) -> None: ...
    @abstractmethod
    def cache_unfinished_req(self, req: Any, **kwargs: Any) -> None: ...
    @abstractmethod
    def evict(self, params: EvictParams) -> EvictResult: ...
    @abstractmethod
    def inc_lock_ref(self, node: Any) -> IncLockRefResult: ...
    @abstractmethod
    def dec_lock_ref(self, node: Any, params: Any = None) -> DecLockRefResult: ...

    def init_metrics_collector(self) -> None:
        self.metrics_collector = SimpleNamespace(evicted=0)

    def update_eviction_metrics(self, num_evicted: int, start_time: float) -> None:
        self.metrics_collector.evicted += num_evicted


@dataclasses.dataclass
class CacheInitParams:
    disable: bool
    req_to_token_pool: Any
    token_to_kv_pool_allocator: Any
    page_size: int
    is_eagle: bool = False
    eviction_policy: str = "lru"
    disable_finished_insert: bool = False
    enable_metrics: bool = False
    enable_kv_cache_events: bool = False
    sliding_window_size: int | None = None
    draft_swa_window: int = 0


# ---- Arrays ------------------------------------------------------------------------------------


class NumpyArrays:
    def zeros(self, shape: Any, dtype: str) -> Any:
        return np.zeros(shape, dtype)

    def wrap(self, values: np.ndarray) -> Any:
        return values

    def unwrap(self, values: Any) -> np.ndarray:
        assert isinstance(values, np.ndarray), type(values)
        return values


class TorchArrays(NumpyArrays):
    def __init__(self) -> None:
        import torch

        self.torch = torch

    def zeros(self, shape: Any, dtype: str) -> Any:
        return self.torch.zeros(shape, dtype=getattr(self.torch, dtype))

    def wrap(self, values: np.ndarray) -> Any:
        return self.torch.from_numpy(values)

    def unwrap(self, values: Any) -> np.ndarray:
        assert isinstance(values, self.torch.Tensor), type(values)
        return values.numpy()


# ---- Pools -------------------------------------------------------------------------------------


class ReqToTokenPool:
    def __init__(self, size: int, max_context_len: int, arrays: NumpyArrays) -> None:
        self.req_to_token = arrays.zeros((size, max_context_len), "int32")
        self.free_slots = list(range(size))

    def write(self, indices: Any, values: Any) -> None:
        self.req_to_token[indices] = values


class PageLedger:
    """Which pages are handed out; page 0 never is."""

    def __init__(self, num_pages: int) -> None:
        self.free_pages = list(range(1, num_pages + 1))
        self.taken: set[int] = set()

    def take(self, count: int) -> list[int] | None:
        if count > len(self.free_pages):
            return None
        pages, self.free_pages = self.free_pages[:count], self.free_pages[count:]
        self.taken.update(pages)
        return pages

    def give(self, pages: set[int]) -> None:
        unknown = pages - self.taken
        if unknown:
            raise RuntimeError(f"pages {sorted(unknown)} are freed, but were not handed out")
        self.taken -= pages
        self.free_pages.extend(sorted(pages))


class PagedAllocator:
    """TokenToKVPoolAllocator at page size 1, PagedTokenToKVPoolAllocator above."""

    device = "cpu"

    def __init__(self, size: int, page_size: int, arrays: NumpyArrays) -> None:
        self.size = size
        self.page_size = page_size
        self.arrays = arrays
        self.clear()

    def clear(self) -> None:
        self.ledger = PageLedger(self.size // self.page_size)

    def available_size(self) -> int:
        return len(self.ledger.free_pages) * self.page_size

    def alloc(self, need_size: int) -> Any:
        assert need_size % self.page_size == 0
        pages = self.ledger.take(need_size // self.page_size)
        return None if pages is None else self.arrays.wrap(self._slots(pages))

    def _slots(self, pages: Any) -> np.ndarray:
        first = np.asarray(pages, np.int64)[:, None] * self.page_size
        return (first + np.arange(self.page_size)).reshape(-1)

    def extend(self, prefix_len: int, seq_len: int, last_slot: int) -> Any:
        """alloc_extend of one request: first what is left of its open page."""
        count = seq_len - prefix_len
        room = -prefix_len % self.page_size
        open_part = last_slot + 1 + np.arange(min(room, count), dtype=np.int64)
        rest = count - len(open_part)
        pages = self.ledger.take(-(-rest // self.page_size))
        if pages is None:
            return None
        return self.arrays.wrap(np.concatenate([open_part, self._slots(pages)[:rest]]))

    def free(self, free_index: Any) -> None:
        self.ledger.give({int(slot) // self.page_size for slot in self.arrays.unwrap(free_index)})


class SegmentAllocator(PagedAllocator):
    """As in 0.5.18: pages are freed by segments that begin a page."""

    def free_segment(self, free_index: Any, *, start_pos: int) -> None:
        assert start_pos % self.page_size == 0
        slots = self.arrays.unwrap(free_index)
        first = [int(slot) // self.page_size for slot in slots[:: self.page_size]]
        assert len(first) == len({int(slot) // self.page_size for slot in slots})
        self.ledger.give(set(first))


class SwaAllocator:
    """SWATokenToKVPoolAllocator: each full slot may have a window slot, 0 is none."""

    device = "cpu"

    def __init__(self, size: int, size_swa: int, page_size: int, arrays: NumpyArrays) -> None:
        self.full_attn_allocator = PagedAllocator(size, page_size, arrays)
        self.swa_attn_allocator = PagedAllocator(size_swa, page_size, arrays)
        self.size_full = size
        self.size_swa = size_swa
        self.size = min(size, size_swa)
        self.page_size = page_size
        self.arrays = arrays
        self.clear()

    def clear(self) -> None:
        self.full_attn_allocator.clear()
        self.swa_attn_allocator.clear()
        self.full_to_swa_index_mapping = self.arrays.zeros(self.size_full + self.page_size, "int64")

    def full_available_size(self) -> int:
        return self.full_attn_allocator.available_size()

    def swa_available_size(self) -> int:
        return self.swa_attn_allocator.available_size()

    def extend(self, prefix_len: int, seq_len: int, last_slot: int) -> Any:
        pages = -(-seq_len // self.page_size) - -(-prefix_len // self.page_size)
        need = pages * self.page_size
        if need > self.full_available_size() or need > self.swa_available_size():
            return None
        mapping = self.full_to_swa_index_mapping
        full = self.full_attn_allocator.extend(prefix_len, seq_len, last_slot)
        window = self.swa_attn_allocator.extend(prefix_len, seq_len, int(mapping[last_slot]))
        mapping[full] = window
        return full

    def _pages(self, free_index: Any) -> np.ndarray:
        slots = self.arrays.unwrap(free_index)
        return self.full_attn_allocator._slots(np.unique(slots // self.page_size))

    def free(self, free_index: Any) -> None:
        self.full_attn_allocator.free(free_index)
        self.free_swa(free_index)

    def free_swa(self, free_index: Any) -> None:
        slots = self._pages(free_index)
        mapping = self.arrays.unwrap(self.full_to_swa_index_mapping)
        window = mapping[slots]
        self.swa_attn_allocator.free(self.arrays.wrap(window[window > 0]))
        mapping[slots] = 0


class SegmentSwaAllocator(SwaAllocator):
    """As in 0.5.20: what has no window slot must be freed as such."""

    def free_segment(self, free_index: Any, *, start_pos: int) -> None:
        self.free_swa_segment(free_index, start_pos=start_pos)
        self.free_full_segment(free_index, start_pos=start_pos)

    def free_swa_segment(self, free_index: Any, *, start_pos: int) -> None:
        assert start_pos % self.page_size == 0
        slots = self.arrays.unwrap(free_index)[:: self.page_size]
        mapping = self.arrays.unwrap(self.full_to_swa_index_mapping)
        if (mapping[slots] == 0).any():
            raise RuntimeError("free_swa_segment: a page has no window slots")
        super().free_swa(self.arrays.wrap(np.ascontiguousarray(slots)))

    def free_full(self, free_index: Any) -> None:
        self.free_full_segment(free_index, start_pos=0)

    def free_full_segment(self, free_index: Any, *, start_pos: int) -> None:
        assert start_pos % self.page_size == 0
        mapping = self.arrays.unwrap(self.full_to_swa_index_mapping)
        if (mapping[self.arrays.unwrap(free_index)] != 0).any():
            raise RuntimeError("free_full_segment: a slot has its window slot still")
        self.full_attn_allocator.free(free_index)


class KvPool:
    """MHATokenToKVPool: a buffer of keys and one of values per layer."""

    def __init__(self, size: int, page_size: int, layers: int, arrays: NumpyArrays) -> None:
        shape = (size + page_size, 1, 2)
        self.k_buffer = [arrays.zeros(shape, "float32") for _ in range(layers)]
        self.v_buffer = [arrays.zeros(shape, "float32") for _ in range(layers)]
        self.dtype = self.k_buffer[0].dtype
        self.start_layer = 0
        self.layer_transfer_counter: Any = None

    def register_layer_transfer_counter(self, counter: Any) -> None:
        self.layer_transfer_counter = counter


# ---- Requests ----------------------------------------------------------------------------------


class Req:
    """Bookkeeping on the request, as in 0.5.13 to 0.5.15."""

    cache_salt: str | None = None

    def __init__(self, rid: str, prompt: list[int], extra_key: str | None, priority: int) -> None:
        self.rid = rid
        self.origin_input_ids = self.make_tokens(prompt)
        self.output_ids = self.make_tokens([])
        self.extra_key = extra_key
        self.priority = priority
        self.prefix_indices: Any = None
        self.last_node: Any = None
        self.last_host_node: Any = None
        self.best_match_node: Any = None
        self.host_hit_length = 0
        self.fill_len = 0
        self.init_bookkeeping()

    @staticmethod
    def make_tokens(values: Any) -> Any:
        return array("q", values)

    def init_bookkeeping(self) -> None:
        self.req_pool_idx: int | None = None
        self.cache_protected_len = 0
        self.kv_committed_len = 0
        self.swa_evicted_seqlen = 0
        self.swa_uuid_for_lock: int | None = None
        self.swa_prefix_lock_released = False

    @property
    def own(self) -> Any:
        return self

    def window(self) -> Any:
        return self

    def tokens(self) -> Any:
        return self.origin_input_ids + self.output_ids

    def get_fill_ids(self) -> Any:
        return self.tokens()[: self.fill_len]

    def pop_committed_kv_cache(self) -> int:
        return self.fill_len

    def take_lock(self, result: IncLockRefResult) -> None:
        self.swa_uuid_for_lock = result.swa_uuid_for_lock

    def lock_name(self) -> Any:
        return self.swa_uuid_for_lock

    def finish_arguments(self) -> dict[str, Any]:
        return {}


class Req16(Req):
    """The window's cursor on req.kv; the length to handle is an argument."""

    def init_bookkeeping(self) -> None:
        super().init_bookkeeping()
        del self.swa_evicted_seqlen
        self.kv = SimpleNamespace(kv_allocated_len=0, swa_evicted_seqlen=0)

    def window(self) -> Any:
        return self.kv

    def pop_committed_kv_cache(self) -> int:
        raise AssertionError("not in this version")

    def finish_arguments(self) -> dict[str, Any]:
        return {"kv_len_to_handle": self.fill_len}


class Req20(Req16):
    """All of it on req.kv; locks have receipts."""

    def init_bookkeeping(self) -> None:
        self.kv = SimpleNamespace(
            req_pool_idx=None, cache_protected_len=0, kv_allocated_len=0, swa_evicted_seqlen=0
        )
        self.lock_receipt: Any = None
        self.swa_prefix_lock_released = False

    @property
    def own(self) -> Any:
        return self.kv

    def take_lock(self, result: IncLockRefResult) -> None:
        self.lock_receipt = result.to_dec_params()

    def lock_name(self) -> Any:
        return self.lock_receipt


class Req19(Req20):
    """All of it on req.kv, but locks have names still."""

    def init_bookkeeping(self) -> None:
        super().init_bookkeeping()
        del self.lock_receipt
        self.swa_uuid_for_lock: int | None = None

    take_lock = Req.take_lock
    lock_name = Req.lock_name


class ComponentType(enum.Enum):
    SWA = "swa"


class Kv23(SimpleNamespace):
    """ReqKvInfo of 0.5.23, as far as a cache looks at it."""

    def __init__(self) -> None:
        super().__init__(
            req_pool_idx=None,
            cache_protected_len=0,
            cache_inserted_len=0,
            swa_evict_floor=0,
            evicted=0,
        )

    def get_evicted_seqlen(self, component: Any) -> int:
        return self.evicted  # type: ignore[no-any-return]

    @property
    def swa_evicted_seqlen(self) -> int:
        return self.evicted  # type: ignore[no-any-return]

    @swa_evicted_seqlen.setter
    def swa_evicted_seqlen(self, length: int) -> None:
        self.evicted = length

    def swa_dead_lo(self, page_size: int) -> int:
        return self.cache_protected_len  # type: ignore[no-any-return]


class Req21(Req20):
    def init_bookkeeping(self) -> None:
        super().init_bookkeeping()
        self.kv = Kv23()


class Req23(Req20):
    """The tree's lock is an object; tokens are those of the whole request."""

    def init_bookkeeping(self) -> None:
        self.kv = Kv23()
        self.lock: Any = None
        self.prefix_len = 0

    @property
    def full_untruncated_fill_ids(self) -> Any:
        return self.tokens()


@dataclasses.dataclass
class TreeLock:
    node: Any
    receipt: Any
    swa_released: bool = False


@dataclasses.dataclass
class DecLockRefParams23:
    component_lock_uuids: dict[Any, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class IncLockRefResult23:
    delta: int | None = None
    component_lock_uuids: dict[Any, int] = dataclasses.field(default_factory=dict)

    def to_dec_params(self) -> DecLockRefParams23:
        return DecLockRefParams23(dict(self.component_lock_uuids))


class MatchResult23(NamedTuple):
    device_prefix_len: int
    last_device_node: Any
    last_host_node: Any
    best_match_node: Any
    host_hit_length: int = 0


class BasePrefixCache23(ABC):
    """As in 0.5.23: one checkpoint, slots by path, locks as objects."""

    req_to_token_pool: Any
    token_to_kv_pool_allocator: Any

    @abstractmethod
    def reset(self) -> None: ...
    @abstractmethod
    def match_prefix(self, params: MatchPrefixParams) -> MatchResult23: ...
    @abstractmethod
    def checkpoint(self, req: Any, *, up_to: int, **kwargs: Any) -> None: ...
    @abstractmethod
    def evict(self, params: EvictParams) -> EvictResult: ...
    @abstractmethod
    def inc_lock_ref(self, node: Any) -> IncLockRefResult23: ...
    @abstractmethod
    def dec_lock_ref(self, node: Any, params: Any = None) -> DecLockRefResult: ...

    def lock(self, node: Any) -> TreeLock:
        return TreeLock(node, self.inc_lock_ref(node).to_dec_params())

    def unlock(self, lock: TreeLock | None) -> None:
        if lock is not None:
            self.dec_lock_ref(lock.node, lock.receipt)

    def free_kv_row(self, kv: Any, ranges: list[tuple[int, int]]) -> None:
        row = self.req_to_token_pool.req_to_token[kv.req_pool_idx]
        for start, end in ranges:
            dead = min(max(kv.get_evicted_seqlen(ComponentType.SWA), start), end)
            if dead > start:
                self.token_to_kv_pool_allocator.free_full_segment(row[start:dead], start_pos=start)
            if end > dead:
                self.token_to_kv_pool_allocator.free_segment(row[dead:end], start_pos=dead)


class BasePrefixCache21(BasePrefixCache):
    """As in 0.5.21: `insert_req` gives the tree what ends, the caller frees the rest."""

    free_kv_row = BasePrefixCache23.free_kv_row

    @abstractmethod
    def insert_req(self, req: Any, *, up_to: int, **kwargs: Any) -> None: ...
    @abstractmethod
    def unpin(self, req: Any) -> None: ...


BY_INSERT = SimpleNamespace(
    BasePrefixCache=BasePrefixCache21,
    MatchResult=MatchResult,
    InsertResult=InsertResult,
    EvictResult=EvictResult,
    IncLockRefResult=IncLockRefResult,
    DecLockRefResult=DecLockRefResult,
)
BY_CHECKPOINT = SimpleNamespace(
    BasePrefixCache=BasePrefixCache23,
    MatchResult=MatchResult23,
    InsertResult=InsertResult,
    EvictResult=EvictResult,
    IncLockRefResult=IncLockRefResult23,
    DecLockRefResult=DecLockRefResult,
    ComponentType=ComponentType,
)


@dataclasses.dataclass(frozen=True)
class Flavor:
    name: str
    req: type[Req]
    allocator: type[PagedAllocator]
    swa_allocator: type[SwaAllocator]


FLAVORS = {
    flavor.name: flavor
    for flavor in (
        Flavor("0.5.13", Req, PagedAllocator, SwaAllocator),
        Flavor("0.5.16", Req16, PagedAllocator, SwaAllocator),
        Flavor("0.5.20", Req20, SegmentAllocator, SegmentSwaAllocator),
        Flavor("0.5.21", Req21, SegmentAllocator, SegmentSwaAllocator),
        Flavor("0.5.23", Req23, SegmentAllocator, SegmentSwaAllocator),
    )
}
