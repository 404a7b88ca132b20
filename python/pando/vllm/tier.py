# SPDX-License-Identifier: Apache-2.0
"""PandoTier: a store of Pando's (files, Redis, memory, one of your own) behind vLLM's host tier.

Every chunk that reaches the host is put into the store; one that only the store has is brought back
when it is looked up. Pages are checked when they come back: a damaged one is a miss. Nothing waits
but :meth:`PandoTier.drain_jobs` and :meth:`PandoTier.shutdown`, and nothing goes wrong silently: see
:class:`Troubles`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

# vLLM need not be installed where this is checked.
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import (  # type: ignore[import-not-found, unused-ignore]
    OffloadingConnectorStats,
)
from vllm.v1.kv_offload.base import (  # type: ignore[import-not-found, unused-ignore]
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingGaugeMetadata,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.tiering.base import (  # type: ignore[import-not-found, unused-ignore]
    JobResult,
    SecondaryTierManager,
)

import pando
from pando.vllm.host_pages import HostPages, Questions, reason_of, take_finished, wait_for

logger = logging.getLogger("pando.vllm")

_METRIC = "vllm:kv_offload_pando_"  # vLLM gives out what begins with its name
_TROUBLES = f"{_METRIC}troubles"
_GAUGES = {  # by name: the field of pando.BackendStats, and what it is
    f"{_METRIC}used_bytes": ("size_bytes", "Bytes that the store holds, as far as it knows."),
    f"{_METRIC}capacity_bytes": ("capacity_bytes", "Its capacity; 0: no limit of its own."),
    f"{_METRIC}evicted_pages": ("evicted_pages", "Pages it has evicted since it was opened."),
    f"{_METRIC}damaged_pages": ("damaged_pages", "Pages it has found damaged since then."),
}
_SAY_AGAIN_S = 60.0


class Troubles:
    """What went wrong with pages, by kind: counted, and said with its reason when it first happens,
    then at most once a minute."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._untold: Counter[str] = Counter()  # to the log
        self._uncounted: Counter[str] = Counter()  # to the metrics
        self._said: dict[str, float] = {}

    def add(self, kind: str, pages: int, reason: str) -> None:
        self._untold[kind] += pages
        self._uncounted[kind] += pages
        now = time.monotonic()
        if now - self._said.get(kind, -_SAY_AGAIN_S) >= _SAY_AGAIN_S:
            self._said[kind] = now
            logger.warning("%s: %d pages %s: %s", self._store, self._untold.pop(kind), kind, reason)

    def take_counts(self) -> Counter[str]:
        taken, self._uncounted = self._uncounted, Counter()
        return taken


class PandoTier(SecondaryTierManager):  # type: ignore[misc, unused-ignore]
    """``options`` are the backend's. ``scope`` says whose pages these are, beside what vLLM says of
    the bytes (see :func:`scope_of`): the name of a set of weights, for instance."""

    medium = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        backend: str = "memory",
        options: Mapping[str, Any] | None = None,
        scope: str = "",
        timeout: float = 30.0,
        locality: str | None = None,
    ) -> None:
        super().__init__(
            offloading_spec=offloading_spec,
            primary_kv_view=primary_kv_view,
            tier_type=tier_type,
            backpressure_detector=backpressure_detector,
        )
        self.locality = None if locality is None else Locality(locality)
        self._backend = pando.make_store_backend(backend, dict(options or {}))
        self._pages = HostPages(
            pando.Store(self._backend, timeout=timeout),
            primary_kv_view,
            scope_of(offloading_spec, scope),
        )
        self._questions = Questions(self._pages)
        self._troubles = Troubles(f"{tier_type} ({backend})")
        self._jobs: list[tuple[pando.StoreCall, Any]] = []
        self._refused: list[Any] = []  # jobs that the store did not take
        tells = offloading_spec.kv_events_config.enable_kv_cache_events
        self._events: list[Any] | None = [] if tells else None

    # ---- Asking ----

    def lookup(self, key: bytes, req_context: Any) -> Any:
        self._poll()
        answer = self._questions.answer(key)
        if answer is None:
            return LookupResult.RETRY
        return LookupResult.HIT if answer else LookupResult.MISS

    def on_schedule_end(self, context: Any) -> None:
        self._questions.ask()

    def _poll(self) -> None:
        self._questions.found(self._questions.poll(self._troubles.add))

    # ---- Moving ----

    def submit_store(self, job_metadata: Any) -> None:
        self._submit(self._pages.put, job_metadata)

    def submit_load(self, job_metadata: Any) -> None:
        self._submit(self._pages.get, job_metadata)

    def _submit(self, transfer: Any, job: Any) -> None:
        try:
            call = transfer(list(job.keys), [int(chunk) for chunk in job.chunk_ids])
        except (pando.Error, IndexError) as error:  # it takes no more, or there is no such chunk
            self._troubles.add("refused", len(job.keys), str(error))
            self._refused.append(job)
        else:
            self._jobs.append((call, job))

    def get_finished_jobs(self) -> Iterable[Any]:
        self._poll()
        results = [JobResult(job_id=job.job_id, success=False) for job in self._refused]
        self._refused.clear()
        results += [self._result(call, job) for call, job in take_finished(self._jobs)]
        return results

    def _result(self, call: pando.StoreCall, job: Any) -> Any:
        outcomes = call.outcomes
        done = [
            key
            for key, outcome in zip(job.keys, outcomes, strict=True)
            if outcome == pando.PageOutcome.done
        ]
        for outcome, pages in Counter(outcomes).items():
            if outcome != pando.PageOutcome.done:
                verb = "read" if job.is_promotion else "written"
                kind = f"not {verb}, {outcome.name}"
                self._troubles.add(kind, pages, reason_of(call, outcome))
        if not job.is_promotion:
            self._questions.forget(done)
        if done and not job.is_promotion and self._events is not None:
            self._events.append(
                OffloadingEvent(
                    keys=done,
                    medium=self.medium,
                    removed=False,
                    locality=self.locality,
                    ownership=self.tier_type,
                )
            )
        whole = len(done) == len(job.keys)
        return JobResult(
            job_id=job.job_id,
            success=whole,
            successful_keys=None if whole or not job.is_promotion else done,
            transfer_time=time.monotonic() - job.submit_time,
            transfer_bytes=len(done) * self.block_size_bytes,
        )

    # ---- The rest ----

    def on_new_request(self, req_context: Any) -> Any:
        return RequestOffloadingContext()

    def has_pending_work(self) -> bool:
        return bool(self._questions.is_busy or self._jobs or self._refused)

    def take_events(self) -> Iterable[Any]:
        if self._events is None:
            return ()
        taken, self._events = self._events, []
        return taken

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        gauges = {
            name: OffloadingGaugeMetadata(documentation=text, labelnames=("tier",))
            for name, (_, text) in _GAUGES.items()
        }
        troubles = OffloadingCounterMetadata(
            documentation="Pages that a store did not take or give back, by tier and kind.",
            labelnames=("tier", "kind"),
        )
        return gauges | {_TROUBLES: troubles}

    def get_stats(self) -> Any:
        stats = OffloadingConnectorStats()
        for kind, pages in self._troubles.take_counts().items():
            stats.increase_counter(_TROUBLES, pages, (self.tier_type, kind))
        told = self._backend.stats()
        for name, (field, _) in _GAUGES.items():
            stats.set_gauge(name, getattr(told, field), (self.tier_type,))
        return stats

    def drain_jobs(self) -> None:
        for call, _ in self._jobs:
            wait_for(call)

    def shutdown(self) -> None:
        """Finishes what is under way, and lets go of the host's memory."""
        self.drain_jobs()
        self._questions.drain()
        self._jobs.clear()
        self._pages.close()


def scope_of(spec: Any, name: str = "") -> str:
    """Whose pages these are: everything that decides the bytes under a key, as far as vLLM tells it,
    in a hash, behind the model's name. `name` is the user's, and keeps apart what vLLM cannot tell
    apart."""
    config = spec.config
    parallel = config.parallel
    decides: dict[str, Any] = {
        "name": name,
        "model": config.model.name,
        "dtype": config.model.dtype,
        "layout": str(config.kv_cache_layout),
        "canonical": bool(config.canonical_layout),
        "replicated": bool(spec.replicated_layout),
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "tokens_per_hash": config.cache.tokens_per_hash,
        "groups": [
            [group.group_id, group.tokens_per_block, list(group.layer_names)]
            for group in config.groups
        ],
        "block_bytes": config.worker_kv_bytes_per_block,
    }
    if not parallel.is_parallelism_agnostic:
        decides["parallel"] = [
            parallel.tp_size,
            parallel.pp_size,
            parallel.pcp_size,
            parallel.dcp_size,
        ]
    else:
        del decides["block_bytes"]  # of one worker
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]
    model = config.model.name.rstrip("/").rpartition("/")[2]
    return f"{model} {digest}"
