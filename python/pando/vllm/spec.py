# SPDX-License-Identifier: Apache-2.0
"""What vLLM's factories load by module path. Needs vLLM; without it, the classes say so when made.

``--kv-transfer-config`` for the host tier (0.11 and later)::

    {"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
     "kv_connector_extra_config": {
        "spec_name": "PandoOffloadingSpec", "spec_module_path": "pando.vllm.spec",
        "cpu_bytes_to_use": 8000000000}}

and, in the versions that have tiers, for a store behind vLLM's own host tier::

     "kv_connector_extra_config": {
        "spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8000000000,
        "secondary_tiers": [{"type": "PandoTier", "module_path": "pando.vllm.spec",
                             "backend": "file", "options": {"directory": "/kv"}}]}
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import pando
from pando.vllm.offload import OffloadingManager
from pando.vllm.offload_types import OffloadTypes
from pando.vllm.store_level import Questions, StoreLevel, take_finished, wait_for


def _import(*places: tuple[str, str]) -> Any:
    """The first of these that vLLM has, or None."""
    for module, name in places:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


_CPU_SPEC: Any = _import(
    ("vllm.v1.kv_offload.cpu.spec", "CPUOffloadingSpec"),
    ("vllm.v1.kv_offload.cpu", "CPUOffloadingSpec"),
)
_TIER: Any = _import(("vllm.v1.kv_offload.tiering.base", "SecondaryTierManager"))


def _absent(name: str, what: str) -> ImportError:
    return ImportError(
        f"pando.vllm.spec.{name} needs {what}, which could not be imported. Install vLLM in this "
        "environment (docs/vllm.md says which versions were read); without it, "
        "pando.vllm.OffloadingManager works alone."
    )


def api_of_vllm() -> str:
    """Whose calls the vLLM that is installed makes: "0.11", "0.20" or "0.32"."""
    if _import(("vllm.v1.kv_offload.base", "LookupResult")) is not None:
        return "0.32"
    if _import(("vllm.v1.kv_offload.abstract", "OffloadKey")) is not None:
        return "0.20"
    return "0.11"


def types_of_vllm() -> OffloadTypes:
    """vLLM's own classes, for what its connectors compare and dispatch on."""
    spec = _import(
        ("vllm.v1.kv_offload.cpu.common", "CPULoadStoreSpec"),
        ("vllm.v1.kv_offload.mediums", "CPULoadStoreSpec"),
    )
    if api_of_vllm() != "0.32":
        return OffloadTypes(load_store_spec=spec, medium=spec.medium())
    base = importlib.import_module("vllm.v1.kv_offload.base")
    result = base.LookupResult
    source = _import(("vllm.v1.metrics.cache_hit_source", "CacheHitSource"))
    return OffloadTypes(
        load_store_spec=spec,
        medium=base.Medium.CPU,
        request_context=base.RequestOffloadingContext,
        load_source=source.HOST if source is not None else None,
        hit=result.HIT,
        miss=result.MISS,
        pending=result.HIT_PENDING,
        retry=result.RETRY,
    )


class PandoOffloadingSpec(_CPU_SPEC or object):  # type: ignore[misc]
    """vLLM's CPU offloading, with Pando to say which host block holds what. Its workers, which move
    the bytes, are vLLM's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if _CPU_SPEC is None:
            raise _absent("PandoOffloadingSpec", "vllm.v1.kv_offload.cpu")
        self._manager: Any = None
        super().__init__(*args, **kwargs)
        policy = self.extra_config.get("eviction_policy", "lru")
        if policy != "lru":
            raise ValueError(f"eviction_policy: expected 'lru', got {policy!r}")
        if int(self.extra_config.get("store_threshold", 0)) >= 2:
            raise ValueError("store_threshold: expected 0 or 1; every block offered is stored")

    def get_manager(self) -> Any:
        if self._manager is None:
            self._manager = OffloadingManager(
                self._num_host_blocks(),
                block_size=int(getattr(self, "offloaded_block_size", 0)),
                enable_events=self._wants_events(),
                types=types_of_vllm(),
            )
        return self._manager

    def _num_host_blocks(self) -> int:
        for name in ("num_chunks", "num_blocks", "num_cpu_blocks"):  # 0.32, 0.20, 0.11
            number = getattr(self, name, None)
            if number is not None:
                return int(number)
        raise RuntimeError("this vLLM's CPUOffloadingSpec does not say how many blocks it has")

    def _wants_events(self) -> bool:
        config = getattr(self, "kv_events_config", None)
        if config is None:
            config = getattr(self.vllm_config, "kv_events_config", None)
        return bool(config is not None and config.enable_kv_cache_events)


class PandoTier(_TIER or object):  # type: ignore[misc]
    """A store of Pando's as a secondary tier of vLLM's: "memory", "file", "redis", or one of your
    own by name. Pages are checked when they come back; a damaged one is a miss.

    ``options`` are the backend's. ``scope`` says whose pages they are; unless given, the model, its
    type and the parallel layout, as far as vLLM tells them.
    """

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        backend: str = "memory",
        options: dict[str, Any] | None = None,
        scope: str | None = None,
        timeout: float = 30.0,
        locality: str | None = None,
    ) -> None:
        if _TIER is None:
            raise _absent("PandoTier", "vllm.v1.kv_offload.tiering (0.32)")
        super().__init__(
            offloading_spec=offloading_spec,
            primary_kv_view=primary_kv_view,
            tier_type=tier_type,
            backpressure_detector=backpressure_detector,
        )
        base = importlib.import_module("vllm.v1.kv_offload.base")
        self._results = base.LookupResult
        self._new_context = base.RequestOffloadingContext
        self._job_result = importlib.import_module("vllm.v1.kv_offload.tiering.base").JobResult
        if locality is not None:
            self.locality = base.Locality(locality)
        self._store = pando.Store(pando.make_store_backend(backend, options), timeout=timeout)
        self._level = StoreLevel(self._store, primary_kv_view, scope or scope_of(offloading_spec))
        self._questions = Questions(self._level)
        self._jobs: list[tuple[pando.StoreCall, Any]] = []
        self._refused: list[Any] = []  # jobs that the store did not take

    def lookup(self, key: bytes, req_context: object = None) -> Any:
        self._poll()
        answer = self._questions.answer(key)
        if answer is None:
            return self._results.RETRY
        return self._results.HIT if answer else self._results.MISS

    def submit_store(self, job_metadata: Any) -> None:
        self._submit(self._level.put, job_metadata)

    def submit_load(self, job_metadata: Any) -> None:
        self._submit(self._level.get, job_metadata)

    def _submit(self, transfer: Any, job: Any) -> None:
        call = transfer(list(job.keys), [int(chunk) for chunk in job.chunk_ids])
        if call is None:
            self._refused.append(job)
        else:
            self._jobs.append((call, job))

    def get_finished_jobs(self) -> Iterable[Any]:
        self._poll()
        results = [self._job_result(job_id=job.job_id, success=False) for job in self._refused]
        self._refused.clear()
        for call, job in take_finished(self._jobs):
            done = [
                key
                for i, key in enumerate(job.keys)
                if call.outcome(i) == pando.PageOutcome.done
            ]
            whole = len(done) == len(job.keys)
            results.append(
                self._job_result(
                    job_id=job.job_id,
                    success=whole,
                    successful_keys=None if whole or not job.is_promotion else done,
                )
            )
        return results

    def _poll(self) -> None:
        self._questions.found(self._questions.poll())

    def on_new_request(self, req_context: object = None) -> Any:
        return self._new_context()

    def on_schedule_end(self, context: object = None) -> None:
        self._questions.ask()

    def has_pending_work(self) -> bool:
        return bool(self._questions.is_busy or self._jobs or self._refused)

    def drain_jobs(self) -> None:
        for call, _ in self._jobs:
            wait_for(call)

    def shutdown(self) -> None:
        self.drain_jobs()
        self._store.close()


def scope_of(spec: Any) -> str:
    """Model, type of its KV, and how it is split over workers."""
    config = spec.config
    parallel = config.parallel
    parts = [config.model.name, config.model.dtype, str(config.kv_cache_layout)]
    parts += [f"chunk{config.cache.blocks_per_chunk}", f"hash{config.cache.tokens_per_hash}"]
    if not parallel.is_parallelism_agnostic:
        parts.append(f"tp{parallel.tp_size}pp{parallel.pp_size}")
        parts.append(f"pcp{parallel.pcp_size}dcp{parallel.dcp_size}")
    return " ".join(parts)


__all__ = ["PandoOffloadingSpec", "PandoTier", "api_of_vllm", "scope_of", "types_of_vllm"]
