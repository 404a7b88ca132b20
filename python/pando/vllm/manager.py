# SPDX-License-Identifier: Apache-2.0
"""vLLM's KVCacheManager over :class:`pando.BlockCache`.

A scheduler written against vLLM's names asks it for cached prefixes and for room. Requests and
configuration are read by attribute, so vLLM's own objects serve and stand-ins do; vLLM need not be
installed. docs/vllm.md says what differs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pando
from pando.vllm import events
from pando.vllm.blocks import KVCacheBlock, KVCacheBlocks, make_block_hash_with_group_id

# By the name of the class: subclasses may have rules of their own, so they are not taken for these.
_FULL = {"FullAttentionSpec", "MLAAttentionSpec", "TQFullAttentionSpec"}
_WINDOW = {"SlidingWindowSpec", "SlidingWindowMLASpec"}


def group_of(spec: Any, scale: int = 1) -> pando.BlockGroup:
    """The group that a KVCacheSpec describes; ``scale`` ranks share the tokens of a block.

    NotImplementedError names a spec that has no counterpart here.
    """
    name = type(spec).__name__
    if name == "UniformTypeKVCacheSpecs":  # layers that differ in their bytes alone
        return group_of(next(iter(spec.kv_cache_specs.values())), scale)
    if name in _FULL:
        return pando.BlockGroup(block_size=spec.block_size * scale)
    if scale != 1:
        raise NotImplementedError(f"{name} with context parallelism")
    if name in _WINDOW:
        return pando.BlockGroup(
            kind=pando.GroupKind.sliding_window,
            block_size=spec.block_size,
            span=spec.sliding_window,
        )
    if name == "ChunkedLocalAttentionSpec":
        return pando.BlockGroup(
            kind=pando.GroupKind.chunked_local,
            block_size=spec.block_size,
            span=spec.attention_chunk_size,
        )
    if name == "MambaSpec":
        if getattr(spec, "num_speculative_blocks", 0):
            raise NotImplementedError(
                f"MambaSpec with {spec.num_speculative_blocks} speculative blocks; expected none"
            )
        return pando.BlockGroup(
            kind=pando.GroupKind.recurrent,
            block_size=spec.block_size,
            # 0.11 knows no modes: every block has its state. "none" is not cached anyway.
            every_state=getattr(spec, "mamba_cache_mode", "all") != "align",
        )
    raise NotImplementedError(
        f"a KV cache group of {name}; expected one of {sorted(_FULL | _WINDOW)}, "
        "ChunkedLocalAttentionSpec, MambaSpec"
    )


def keys_of(request: Any) -> pando.RequestKeys | None:
    """What keeps a request's blocks apart from others with equal tokens; None: nothing."""
    keys: dict[str, Any] = {}
    lora = getattr(request, "lora_request", None)
    if lora:
        keys["lora"] = lora.lora_name
    salt = getattr(request, "cache_salt", None)
    if salt:
        keys["salt"] = salt
    features = getattr(request, "mm_features", None)
    if features:
        keys["items"] = [
            pando.MultimodalItem(
                id=feature.identifier,
                offset=feature.mm_position.offset,
                length=feature.mm_position.length,
            )
            for feature in features
        ]
    embeds = getattr(request, "prompt_embeds", None)
    if embeds is not None:
        rows = _as_bytes(embeds)
        keys["prompt_embeds"] = rows.tobytes()
        keys["embed_bytes"] = rows.shape[1]
    return pando.RequestKeys(**keys) if keys else None


def _as_bytes(embeds: Any) -> np.ndarray[Any, Any]:
    """A row of bytes per token, of a tensor (also of bfloat16) or an array."""
    if hasattr(embeds, "contiguous"):
        import torch

        embeds = embeds.detach().cpu().contiguous().view(torch.uint8).numpy()
    rows: np.ndarray[Any, Any] = np.ascontiguousarray(embeds)
    return rows.reshape(len(rows), -1).view(np.uint8)


@dataclass
class PrefixCacheStats:
    """Queries and hits, in tokens, since the last make_prefix_cache_stats()."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    def record(self, num_tokens: int, num_hits: int, preempted: bool) -> None:
        if preempted:
            self.preempted_requests += 1
            self.preempted_queries += num_tokens
            self.preempted_hits += num_hits
        else:
            self.requests += 1
            self.queries += num_tokens
            self.hits += num_hits


class _Entry:
    """A request as the cache knows it."""

    __slots__ = ("cached", "delayed", "num_tokens", "request", "running")

    def __init__(self, request: pando.BlockRequest, num_tokens: int) -> None:
        self.request = request
        self.num_tokens = num_tokens
        self.let_go()

    def let_go(self) -> None:
        self.running = False  # has blocks
        self.cached = 0  # tokens whose full blocks others may find
        self.delayed = False  # what is behind `cached` waits for cache_blocks()


class PoolView:
    """The blocks of a KVCacheManager, with the names of vLLM's BlockPool that look at them and
    change nothing."""

    def __init__(self, cache: pando.BlockCache, enable_caching: bool) -> None:
        self._cache = cache
        self.pool = cache.pool
        self._hash_bytes = cache.hasher.hash_bytes
        self.num_gpu_blocks = self.pool.num_blocks
        self.enable_caching = enable_caching
        self.blocks = [KVCacheBlock(i, self) for i in range(self.num_gpu_blocks)]
        self.null_block = self.blocks[0]

    def ref_cnt_of(self, block_id: int) -> int:
        return self.pool.num_holders(block_id)

    def hash_of(self, block_id: int) -> bytes | None:
        if not self.pool.has_content(block_id):
            return None
        content = self.pool.content(block_id)
        value = content.hash.value[: self._hash_bytes]
        return make_block_hash_with_group_id(value, content.group)

    def get_num_free_blocks(self) -> int:
        return self.pool.num_free

    def get_usage(self) -> float:
        return self.pool.usage

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """These are not found any more; whoever holds them goes on."""
        ids = list(block_ids)
        wrong = [i for i in ids if not 0 <= i < self.num_gpu_blocks]
        if wrong:
            raise ValueError(f"blocks {wrong}: expected 0 to {self.num_gpu_blocks - 1}")
        self._cache.forget(ids)

    def reset_prefix_cache(self) -> bool:
        """Forgets all contents. False, and nothing changes, while a request has blocks."""
        try:
            self._cache.reset()
        except pando.InUse:
            return False
        return True


class KVCacheManager:
    """Prefix reuse and blocks for requests, with vLLM's names.

    ``kv_cache_config`` has ``num_blocks`` and ``kv_cache_groups``, each with a ``kv_cache_spec``.
    The other arguments are those of vLLM 0.11 to 0.32, and three of Pando's own:

    - ``hash_function``: "sha256_cbor" or "xxhash_cbor", as in vLLM, or "keyed", which is faster and
      for one process. ``hash_seed``: PYTHONHASHSEED unless given.
    - ``api``: whose calls it answers; "0.32" where get_computed_blocks() is to give three values.

    >>> import pando.vllm
    >>> from types import SimpleNamespace as Some
    >>> class FullAttentionSpec(Some): ...
    >>> group = Some(kv_cache_spec=FullAttentionSpec(block_size=4))
    >>> manager = pando.vllm.KVCacheManager(Some(num_blocks=9, kv_cache_groups=[group]), 64)
    >>> def request(name, tokens):
    ...     return Some(request_id=name, all_token_ids=tokens, num_tokens=len(tokens),
    ...                 num_computed_tokens=0, skip_reading_prefix_cache=False)
    >>> first = request("a", [1, 2, 3, 4, 5, 6])
    >>> manager.allocate_slots(first, 6).get_block_ids()
    ([1, 2],)
    >>> second = request("b", [1, 2, 3, 4, 9])
    >>> blocks, num_tokens = manager.get_computed_blocks(second)
    >>> blocks.get_block_ids(), num_tokens
    (([1],), 4)
    >>> manager.allocate_slots(second, 1, num_tokens, blocks).get_block_ids()
    ([3],)
    >>> manager.free(first)
    >>> manager.free(second)
    >>> manager.usage
    0.0
    """

    def __init__(
        self,
        kv_cache_config: Any,
        max_model_len: int,
        *,
        hash_block_size: int | None = None,
        scheduler_block_size: int | None = None,
        max_num_batched_tokens: int | None = None,
        max_in_flight_tokens: int | None = None,
        enable_caching: bool = True,
        use_eagle: bool = False,
        num_prefill_lookahead: int = 0,
        log_stats: bool = False,
        enable_kv_cache_events: bool = False,
        dcp_world_size: int = 1,
        pcp_world_size: int = 1,
        metrics_collector: object | None = None,
        watermark: float = 0.0,
        enable_mamba_shared_prefix_checkpoint: bool = False,
        hash_function: pando.HashFunction | str = "sha256_cbor",
        hash_seed: str | None = None,
        api: str = "0.20",
    ) -> None:
        if api not in ("0.11", "0.20", "0.32"):
            raise ValueError(f"api: expected '0.11', '0.20' or '0.32', got {api!r}")
        if num_prefill_lookahead or enable_mamba_shared_prefix_checkpoint:
            raise NotImplementedError(
                "num_prefill_lookahead and enable_mamba_shared_prefix_checkpoint: expected none"
            )
        if metrics_collector is not None:
            raise NotImplementedError("metrics_collector: expected None; Pando has its own metrics")
        # Tell the allocator of vLLM nothing that is wrong here: the sizes follow from the groups.
        del hash_block_size, scheduler_block_size, max_num_batched_tokens, max_in_flight_tokens
        specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
        scale = dcp_world_size * pcp_world_size
        if scale > 1 and len(specs) > 1:
            raise NotImplementedError(f"context parallelism with {len(specs)} KV cache groups")
        groups = [group_of(spec, scale) for spec in specs]
        if hash_seed is None and hash_function != "keyed":
            hash_seed = os.environ.get("PYTHONHASHSEED")
        self.cache = pando.BlockCache(
            kv_cache_config.num_blocks,
            groups=groups,
            hash=pando.BlockHashOptions(function=hash_function, seed=hash_seed),
            caching=enable_caching,
            events=enable_kv_cache_events,
            recompute_last_block=use_eagle,
            max_tokens=max_model_len,
        )
        self.kv_cache_config = kv_cache_config
        self.max_model_len = max_model_len
        self.enable_caching = enable_caching
        self.enable_kv_cache_events = enable_kv_cache_events
        self.use_eagle = use_eagle
        self.log_stats = log_stats
        self.num_kv_cache_groups = len(groups)
        self.block_pool = PoolView(self.cache, enable_caching)
        self.watermark_blocks = int(watermark * kv_cache_config.num_blocks)
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.empty_kv_cache_blocks = KVCacheBlocks(tuple(() for _ in groups))
        self._groups = groups
        self._block_sizes = [group.block_size for group in groups]
        self._three_values = api == "0.32"
        self._entries: dict[str, _Entry] = {}
        self._adapters: dict[bytes, tuple[int | None, str]] = {}  # by namespace, for events
        self._as_int = events.use_int_hashes()
        self._to_zero: list[int] | None = (
            [] if getattr(kv_cache_config, "needs_kv_cache_zeroing", False) else None
        )

    # ---- Requests ----

    def _entry(self, request: Any) -> _Entry:
        """The request, with all tokens that it has by now."""
        entry = self._entries.get(request.request_id)
        if entry is None:
            keys = keys_of(request)
            tokens = np.asarray(request.all_token_ids, dtype=np.int32)
            entry = _Entry(self.cache.start(tokens, keys), len(tokens))
            self._entries[request.request_id] = entry
            lora = getattr(request, "lora_request", None)
            if lora and self.enable_kv_cache_events:
                ns = pando.make_namespace(lora=lora.lora_name, salt=keys.salt if keys else "")
                self._adapters[ns] = (getattr(lora, "adapter_id", None), lora.lora_name)
        elif request.num_tokens > entry.num_tokens:
            new = request.all_token_ids[entry.num_tokens : request.num_tokens]
            self.cache.append(entry.request, np.asarray(new, dtype=np.int32))
            entry.num_tokens = request.num_tokens
        return entry

    def _advance(self, entry: _Entry, num_computed: int) -> None:
        """So many tokens are computed: blocks that no window needs any more are let go of."""
        limit = entry.cached if entry.delayed else entry.num_tokens
        num_computed = min(num_computed, limit)
        if entry.running and num_computed > entry.request.num_computed:
            self.cache.advance(entry.request, num_computed)

    def _blocks(self, blocks: Iterable[Sequence[int]]) -> KVCacheBlocks:
        pool = self.block_pool.blocks
        return self.create_kv_cache_blocks(
            tuple([pool[int(block)] for block in group] for group in blocks)
        )

    # ---- Finding ----

    def prefix_cache_lookup_enabled(self, request: Any) -> bool:
        """Whether the request may use what others have computed."""
        return self.enable_caching and not getattr(request, "skip_reading_prefix_cache", False)

    def get_computed_blocks(self, request: Any) -> Any:
        """The longest cached prefix that leaves a token to compute: its blocks, and its tokens.

        With ``api="0.32"`` a third value, vLLM's shared-prefix boundary: always 0.
        """
        blocks, length = self.empty_kv_cache_blocks, 0
        if self.prefix_cache_lookup_enabled(request):
            found = self.cache.get_computed(self._entry(request).request)
            blocks, length = self._blocks(found.blocks), found.length
            if not self._three_values:  # there the scheduler says it itself
                self.record_prefix_cache_stats(request, length)
        return (blocks, length, 0) if self._three_values else (blocks, length)

    def get_computed_blocks_for_connector(self, request: Any) -> Any:
        """The same; groups never disagree here, which is what the last value tells."""
        return (*self.get_computed_blocks(request), False)

    def record_prefix_cache_stats(self, request: Any, num_hits: int) -> None:
        if self.prefix_cache_stats is None or not self.prefix_cache_lookup_enabled(request):
            return
        preempted = getattr(request, "num_preemptions", 0) > 0
        self.prefix_cache_stats.record(request.num_tokens, num_hits, preempted)

    # ---- Room ----

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_lookahead_tokens: int = 0,
        num_external_computed_tokens: int = 0,
        delay_cache_blocks: bool = False,
        num_encoder_tokens: int = 0,
        full_sequence_must_fit: bool = False,
        reserved_blocks: int = 0,
        has_scheduled_reqs: bool = True,
        skip_zeroing_group_ids: Sequence[int] = (),
    ) -> KVCacheBlocks | None:
        """Blocks for the next tokens of a request, behind those computed, just found
        (``num_new_computed_tokens``), and about to come from a connector
        (``num_external_computed_tokens``).

        Returns the blocks that are new. None: there is no room, and nobody's blocks have changed.
        """
        if num_encoder_tokens:
            raise NotImplementedError(f"{num_encoder_tokens} encoder tokens: expected none")
        if num_new_tokens + num_external_computed_tokens + num_new_computed_tokens == 0:
            raise ValueError("num_new_tokens must be greater than 0: nothing is computed either")
        entry = self._entry(request)
        found = num_new_computed_tokens
        if found and entry.running:
            raise ValueError(
                f"request {request.request_id!r} has blocks, and {found} tokens are said to be "
                "newly found for it; expected none"
            )
        in_flight = getattr(request, "num_in_flight_tokens", 0)
        self._advance(entry, request.num_computed_tokens - in_flight)
        total = min(
            request.num_computed_tokens + found + num_external_computed_tokens, self.max_model_len
        )
        end = min(total + num_new_tokens, self.max_model_len)
        slots_end = min(end + num_lookahead_tokens, self.max_model_len)
        start = entry.request.num_computed if entry.running else found

        spare = reserved_blocks
        if has_scheduled_reqs and _is_waiting(request):
            spare += self.watermark_blocks
        if full_sequence_must_fit and not self._fits(
            entry, min(request.num_tokens, self.max_model_len), found, spare - reserved_blocks
        ):
            return None
        if spare and not self._fits(entry, slots_end, found, spare):
            return None

        had = [max(len(entry.request.blocks(g)), found // size)
               for g, size in enumerate(self._block_sizes)]
        try:
            self.cache.allocate(
                entry.request,
                max(0, end - start),
                computed=pando.ComputedBlocks(found) if found else None,
                lookahead_tokens=slots_end - end,
                delay_caching=delay_cache_blocks,
            )
        except pando.OutOfCapacity:
            return None
        if not entry.running:
            entry.running = True
            entry.cached = found
        entry.delayed = delay_cache_blocks
        if not delay_cache_blocks:
            entry.cached = max(entry.cached, min(end, entry.num_tokens))
        new = [entry.request.blocks(g)[n:] for g, n in enumerate(had)]
        if self._to_zero is not None:
            self._note_for_zeroing(new)
        return self._blocks(new)

    def _fits(self, entry: _Entry, num_tokens: int, found: int, spare: int) -> bool:
        """Whether blocks up to so many tokens, beside those found, leave `spare` ones."""
        needed = spare
        computed = self.cache.get_computed(entry.request).blocks if found else []
        for g, size in enumerate(self._block_sizes):
            have = len(entry.request.blocks(g)) + found // size
            needed += max(0, -(-num_tokens // size) - have)
            if found:
                needed += sum(
                    1
                    for block in computed[g][: found // size]
                    if block and self.block_pool.ref_cnt_of(int(block)) == 0
                )
        return needed <= self.block_pool.get_num_free_blocks()

    def can_fit_full_sequence(
        self,
        request: Any,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: KVCacheBlocks | None = None,
        num_external_computed_tokens: int = 0,
        num_encoder_tokens: int = 0,
    ) -> bool:
        """Whether there is room for all tokens of the request, as if no window let go of any."""
        entry = self._entry(request)
        num_tokens = min(request.num_tokens, self.max_model_len)
        return self._fits(entry, num_tokens, num_new_computed_tokens, 0)

    def _note_for_zeroing(self, new: Sequence[Sequence[int]]) -> None:
        assert self._to_zero is not None
        for group, blocks in zip(self._groups, new, strict=True):
            if group.kind != pando.GroupKind.recurrent:
                self._to_zero.extend(int(block) for block in blocks if block)

    def take_new_block_ids(self) -> list[int]:
        """Blocks of attention since the last call, where the config asks for them to be zeroed."""
        if self._to_zero is None:
            return []
        taken, self._to_zero = self._to_zero, []
        return taken

    def cache_blocks(self, request: Any, num_computed_tokens: int) -> None:
        """Others may find the full blocks of so many tokens, which are computed or have arrived."""
        if not self.enable_caching:
            return
        entry = self._entry(request)
        entry.cached = max(entry.cached, min(num_computed_tokens, entry.num_tokens))
        self._advance(entry, entry.cached)

    def remove_skipped_blocks(
        self, request_id: str, total_computed_tokens: int, num_prompt_tokens: int | None = None
    ) -> None:
        """Lets go of blocks that no token behind so many can see; null blocks take their place."""
        entry = self._entries.get(request_id)
        if entry is not None:
            self._advance(entry, total_computed_tokens)

    def free(self, request: Any) -> None:
        """Lets go of the request's blocks, the last first. One that is preempted may come again."""
        entry = self._entries.get(request.request_id)
        if entry is None:
            return
        if entry.running:
            # What vLLM has cached stays so, computed or not: its scheduler counts tokens as
            # computed when it sends them off.
            if entry.cached > entry.request.num_computed:
                try:
                    self.cache.advance(entry.request, entry.cached)
                except pando.InvalidArgument:
                    pass  # a state in the middle of a step of drafts: there is none, so not cached
            self.cache.free(entry.request)
            entry.let_go()
        is_finished = getattr(request, "is_finished", None)
        if is_finished is None or is_finished():
            del self._entries[request.request_id]

    # ---- Forgetting ----

    def evict_blocks(self, block_ids: Iterable[int]) -> None:
        """These are not found any more, as after a load that failed; whoever holds them goes on."""
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        """Forgets all contents. False, and nothing changes, while a request has blocks."""
        if not self.block_pool.reset_prefix_cache():
            return False
        if self.prefix_cache_stats is not None:
            self.prefix_cache_stats.reset = True
        return True

    # ---- Looking ----

    @property
    def usage(self) -> float:
        """Share of the blocks that is held."""
        return self.cache.usage

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        """What was asked and found since the last call; None without ``log_stats``."""
        stats = self.prefix_cache_stats
        if stats is not None:
            self.prefix_cache_stats = PrefixCacheStats()
        return stats

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        """By group: blocks from the start that all requests with blocks share."""
        entry = self._entries.get(running_request_id)
        if entry is None or not entry.running or not self.enable_caching:
            return [0] * self.num_kv_cache_groups
        return list(self.cache.common_prefix_blocks(entry.request))

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        entry = self._entries.get(request_id)
        if entry is None:
            return self.empty_kv_cache_blocks
        return self._blocks([entry.request.blocks(g) for g in range(self.num_kv_cache_groups)])

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        ids = self.get_blocks(request_id).get_block_ids()
        assert ids is not None
        return ids

    def get_block_ids_for_computed_tokens(
        self, request_id: str, num_computed_tokens: int
    ) -> tuple[list[int], ...]:
        """The blocks that so many tokens reach into."""
        return tuple(
            ids if group.kind == pando.GroupKind.recurrent
            else ids[: -(-num_computed_tokens // group.block_size)]
            for group, ids in zip(self._groups, self.get_block_ids(request_id), strict=True)
        )

    def create_kv_cache_blocks(
        self, blocks: tuple[Sequence[KVCacheBlock], ...]
    ) -> KVCacheBlocks:
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    def new_step_starts(self) -> None:
        """Nothing waits for a step here."""

    def take_events(self) -> list[events.KVCacheEvent]:
        """What was stored and removed since the last call, with vLLM's fields.

        For a publisher that sends them in vLLM's wire form, take ``cache.take_events()`` and give
        it to :class:`pando.EventPublisher`.
        """
        return [self._event(event) for event in self.cache.take_events()]

    def _event(self, event: pando.KvEvent) -> events.KVCacheEvent:
        if event.kind == pando.KvEvent.Kind.cleared:
            return events.AllBlocksCleared()
        hashes = events.external_hashes(event.hashes, self._as_int)
        if event.kind == pando.KvEvent.Kind.removed:
            return events.BlockRemoved(hashes, group_idx=event.group)
        parent = event.parent
        lora_id, lora_name = self._adapters.get(event.ns, (None, None))
        return events.BlockStored(
            block_hashes=hashes,
            parent_block_hash=None if parent is None
            else events.external_hash(parent, self._as_int),
            token_ids=event.tokens.tolist(),
            block_size=event.block_size,
            lora_id=lora_id,
            lora_name=lora_name,
            extra_keys=_extra_keys(event),
            group_idx=event.group,
        )


def _extra_keys(event: pando.KvEvent) -> list[tuple[Any, ...] | None] | None:
    """An image as vLLM gives it: a pair of its hash and where it begins."""
    if not event.extra_keys:
        return None
    return [
        tuple((key.id, key.offset) if isinstance(key, pando.ItemKey) else key for key in of_block)
        or None
        for of_block in event.extra_keys
    ]


def _is_waiting(request: Any) -> bool:
    return getattr(getattr(request, "status", None), "name", "") in ("WAITING", "PREEMPTED")


__all__ = ["KVCacheManager", "PoolView", "PrefixCacheStats", "group_of", "keys_of"]
