# SPDX-License-Identifier: Apache-2.0
"""The hierarchical cache: host memory behind the device, and a store behind that.

SGLang's KV buffers are adopted as a device pool and mirrored by a host pool; copies run on the
copier's threads and streams, and `check_hicache_events` applies what has finished. A layer that is
being loaded is waited for by :class:`LayerGate`, which SGLang's pools ask before they read it.
"""

from __future__ import annotations

import atexit
import logging
import time
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np

import pando
from pando.sglang.host_setup import HostSetup, storage_settings
from pando.sglang.interface import Unsupported
from pando.sglang.nodes import Node
from pando.sglang.prefix_cache import PandoPrefixCache, _head, namespace_of

logger = logging.getLogger("pando.sglang")

_RESET_TIMEOUT_S = 30.0


# ---- Waiting for layers ------------------------------------------------------------------------


class LayerGate:
    """What SGLang calls its layer-done counter: reads of a layer wait for loads of it."""

    def __init__(self, pool: pando.KvPool, stream: Any) -> None:
        self._pool = pool
        self._stream = stream
        self.consumer_index = -1

    def set_consumer(self, index: int) -> None:
        """Of the batch that runs next: -1 when nothing is being loaded for it."""
        self.consumer_index = index

    def wait_until(self, layer: int) -> None:
        """`layer` counts from the first one here."""
        if self.consumer_index < 0:
            return
        layer += self._pool.geometry.first_layer
        if self._stream is None:
            self._pool.wait_layer(layer)
        else:
            self._pool.wait_layer_on(layer, self._stream().cuda_stream)

    def update_producer(self) -> int:
        return 0

    def reset(self) -> None:
        self.consumer_index = -1


class _HostView:
    """What SGLang's metrics look at, in tokens."""

    def __init__(self, host: pando.HostPool) -> None:
        self._host = host
        self.page_size = host.geometry.page_size
        self.size = self.logical_size = host.num_pages * self.page_size

    def available_size(self) -> int:
        return self._host.available_pages * self.page_size

    def destroy(self) -> None:
        """The memory goes with the cache."""


class _Controller:
    """The few things of SGLang's cache controller that its scheduler looks at."""

    def __init__(self, gate: LayerGate, host: pando.HostPool) -> None:
        self.layer_done_counter = gate
        self.mem_pool_host = _HostView(host)
        self.storage_backend: Any = None
        self.storage_backend_type: str | None = None
        self.load_fence_stream: Any = None

    def set_draft_kv_pool(self, *_: Any) -> None:
        raise Unsupported("the KV of a draft model is not kept by the hierarchical cache")


# ---- The cache ---------------------------------------------------------------------------------


class PandoHiCache(PandoPrefixCache):
    """A cache with a host tier, and with storage where it is attached."""

    has_host_tier = True
    hicache_storage_pass_prefix_keys = False

    def __init__(
        self, params: Any, *, host: HostSetup, sliding_window_size: int | None = None
    ) -> None:
        self._host = host
        self._loading = False
        self._prefetches: dict[Any, int] = {}
        self._fetched: dict[Any, int] = {}
        self.layer_done_counter = LayerGate(host.device, host.stream)
        mirror = host.options.full.host
        if mirror is None:
            raise Unsupported("the hierarchical cache needs a host pool")
        self.cache_controller = _Controller(self.layer_done_counter, mirror)
        self.kv_cache = host.kv_pool
        self.token_to_kv_pool_host = _HostView(mirror)
        super().__init__(params, sliding_window_size=sliding_window_size)
        self._keep_tokens = True
        if hasattr(host.kv_pool, "register_layer_transfer_counter"):
            host.kv_pool.register_layer_transfer_counter(self.layer_done_counter)
        if host.storage is not None:
            done, message = self.attach_storage_backend(**host.storage)
            if not done:
                raise Unsupported(message)
        # SGLang's processes may end without a word.
        atexit.register(_shut_down, weakref.ref(self))

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"host": self._host.options, "ranks": self._host.ranks}

    # ---- Matching and loading back -------------------------------------------------------------

    def _matched(self, match: pando.Match, node: Node) -> Any:
        """The node of a miss is no root where there is storage: a prefetch begins there, and needs
        to know the namespace."""
        device_node = node if match.length else self.root_node
        return self._match_result(match, device_node, node)

    def init_load_back(self, params: Any) -> Any:
        """All that the host has of the match, or nothing."""
        node = params.best_match_node
        match = node.match
        device_node = node if match is not None and match.length else self.root_node
        nothing = (0 if self._by_checkpoint else self._no_slots), device_node
        if match is None or match.host_length == 0:
            return nothing
        self._fence_loads()
        whole = match.length + match.host_length
        slots = np.empty(whole, np.int64)
        try:
            lease = self._paths.lock(match)
        except pando.StaleHandle:  # something else was loaded meanwhile
            return nothing
        with lease:
            loaded = self._paths.load_back(lease, slots, quota_tokens=params.mem_quota).tokens
            if loaded == 0:
                self._bridge.flush()
                return nothing
            tokens = _head(node.tokens, whole + self._spare_tokens)
            wanted = None if self._by_checkpoint else False
            again = self._paths.match(tokens, ns=node.namespace, slots=wanted)
        self._bridge.flush()
        self._loading = True
        fresh = Node(self, again, node.tokens, node.namespace)
        if self._by_checkpoint:
            return loaded, fresh
        return self._slots.to_engine(slots[match.length :]), fresh

    def ready_to_load_host_cache(self) -> int:
        """Loads are under way already; says whether the next batch must wait for them."""
        loading, self._loading = self._loading, False
        return 0 if loading else -1

    def is_load_back_event_done(self, consumer_index: int) -> bool:
        return True

    # What is under way, as SGLang asks: it counts them before it flushes, attaches or detaches.

    @property
    def ongoing_write_through(self) -> range:
        return range(self._cache.tiers.under_way().backups)

    @property
    def ongoing_load_back(self) -> range:
        return range(self._cache.tiers.under_way().loads)

    @property
    def ongoing_prefetch(self) -> range:
        return range(self._cache.tiers.under_way().fetches)

    @property
    def ongoing_backup(self) -> range:
        return range(self._cache.tiers.under_way().puts)

    def check_hicache_events(self) -> None:
        self._fence_backups()
        result = self._cache.poll()
        self._bridge.flush()
        if result.failures:
            logger.warning("%d copies between tiers failed: they count as misses", result.failures)

    flush_write_through_acks = check_hicache_events

    def evict_host(self, num_tokens: int) -> int:
        return self._cache.tiers.evict_host(num_tokens)

    # What a backup reads must have been computed; what a load writes must have been read.

    def _fence_backups(self) -> None:
        self._fence(self._host.options.backup_stream)

    def _fence_loads(self) -> None:
        self._fence(self._host.options.load_stream)

    def _fence(self, copier_stream: int) -> None:
        copier = self._host.options.copier
        if self._host.stream is None or copier is None:
            return
        streams = [self._host.stream()]
        if self.cache_controller.load_fence_stream is not None:
            streams.append(self.cache_controller.load_fence_stream)
        for stream in streams:
            copier.wait_for_stream(stream.cuda_stream, copier_stream)

    def _insert_for(self, *args: Any, **kwargs: Any) -> Any:
        self._fence_backups()
        return super()._insert_for(*args, **kwargs)

    def evict(self, params: Any) -> Any:
        """What is being copied to the host is held until poll() has seen the copy end."""
        self._fence_backups()
        result = super().evict(params)
        missing = params.num_tokens - result.num_tokens_evicted
        if missing > 0 and self._cache.poll().backups:
            evicted = self._cache.evict(missing)
            self._bridge.flush()
            result.num_tokens_evicted += evicted.tokens
        return result

    # ---- Storage -------------------------------------------------------------------------------

    def attach_storage_backend(
        self,
        storage_backend: str,
        storage_backend_extra_config_json: str | None = None,
        served_model_name: str | None = None,
        hicache_storage_prefetch_policy: str | None = None,
        hicache_write_policy: str | None = None,
    ) -> tuple[bool, str]:
        scope = self._host.scope
        if served_model_name:
            scope.model = served_model_name
        try:
            message = self._cache.tiers.attach_storage(
                pando.StorageOptions(
                    backend=storage_backend,
                    options=storage_settings(storage_backend, storage_backend_extra_config_json),
                    scope=scope,
                    prefetch_policy=hicache_storage_prefetch_policy,
                    write_policy=hicache_write_policy,
                )
            )
        except (pando.Error, ValueError) as error:
            return False, f"{storage_backend}: {error}"
        self.enable_storage = True
        self.cache_controller.storage_backend_type = storage_backend
        self.cache_controller.storage_backend = _Named(storage_backend)
        return True, message

    def detach_storage_backend(self) -> tuple[bool, str]:
        try:
            message = self._cache.tiers.detach_storage()
        except pando.Error as error:
            return False, str(error)
        self._bridge.flush()
        self._prefetches.clear()
        self._fetched.clear()
        self.enable_storage = False
        self.cache_controller.storage_backend = None
        self.cache_controller.storage_backend_type = None
        return True, message

    def clear_storage_backend(self) -> bool:
        if not self.enable_storage:
            logger.warning("clear_storage_backend: no storage is attached")
            return False
        try:
            self._cache.tiers.clear_storage()
        except pando.Error as error:
            logger.error("clear_storage_backend: %s", error)
            return False
        return True

    def shutdown(self) -> None:
        if self.enable_storage:
            self.detach_storage_backend()

    release_host_resources = shutdown

    def prefetch_from_storage(
        self,
        req_id: Any,
        last_host_node: Any,
        new_input_tokens: Any,
        last_hash: str | None = None,
        prefix_keys: list[str] | None = None,
        *,
        matched_prefix_tokens: Any = None,
        extra_key: str | None = None,
        cache_salt: str | None = None,
        **_: Any,
    ) -> None:
        """Begins to bring what the store has of this prompt to the host. `req_id` is any name."""
        if not self.enable_storage or not len(new_input_tokens):
            return
        namespace = last_host_node.namespace
        if matched_prefix_tokens is not None:
            namespace = namespace_of(SimpleNamespace(extra_key=extra_key, cache_salt=cache_salt))
        else:
            match = last_host_node.match
            known = match.length + match.host_length if match is not None else 0
            matched_prefix_tokens = last_host_node.tokens[:known]
        tokens = new_input_tokens
        if len(matched_prefix_tokens):
            tokens = matched_prefix_tokens + new_input_tokens
        self.release_aborted_request(req_id)
        prefetch = self._cache.prefetch(tokens, ns=namespace)
        if prefetch.id is not None:
            self._prefetches[req_id] = prefetch.id

    def can_terminate_prefetch(self, req_id: Any) -> bool:
        prefetch = self._prefetches.get(req_id)
        return prefetch is None or self._cache.prefetch_ready(prefetch)

    def check_prefetch_progress(self, req_id: Any) -> bool:
        """Whether the request may go on; what has arrived is then in the tree."""
        if not self.can_terminate_prefetch(req_id):
            return False
        self.terminate_prefetch(req_id)
        return True

    def terminate_prefetch(self, req_id: Any) -> None:
        prefetch = self._prefetches.pop(req_id, None)
        if prefetch is not None:
            self._fetched[req_id] = self._cache.end_prefetch(prefetch)

    def pop_prefetch_loaded_tokens(self, req_id: Any) -> int:
        return self._fetched.pop(req_id, 0)

    def release_aborted_request(self, req_id: Any) -> None:
        self._fetched.pop(req_id, None)
        prefetch = self._prefetches.pop(req_id, None)
        if prefetch is not None:
            self._cache.abort_prefetch(prefetch)

    # ---- The rest ------------------------------------------------------------------------------

    def reset(self) -> None:
        for prefetch in self._prefetches.values():
            self._cache.abort_prefetch(prefetch)
        self._prefetches.clear()
        self._fetched.clear()
        self._loading = False
        self.layer_done_counter.reset()
        deadline = time.monotonic() + _RESET_TIMEOUT_S
        while not self._cache.poll().idle and time.monotonic() < deadline:
            time.sleep(0.001)  # copies hold what they read and write
        super().reset()

    def page_hashes(self, node: Any) -> list[str]:
        if node.match is None:
            return []
        length = node.match.length + node.match.host_length
        tokens = _head(node.tokens, length + self._spare_tokens)
        pages = pando.hash_pages(
            tokens,
            self.page_size,
            bigram=self.is_eagle,
            parent=pando.chain_start(node.namespace),
        )
        return [page.hex() for page in pages]


def _shut_down(cache: weakref.ref[PandoHiCache]) -> None:
    if (alive := cache()) is not None:
        alive.shutdown()


class _Named:
    """So that reports can name the store by the type of this."""

    def __new__(cls, name: str) -> Any:
        return object.__new__(type(f"pando_{name}", (), {}))
