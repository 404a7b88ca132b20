# SPDX-License-Identifier: Apache-2.0
"""vLLM's own tests of its offloading, with Pando's classes in place of vLLM's.

    pytest -p vllm_suite --noconftest FILES       of the source distribution of vLLM 0.32.0

A plug-in of pytest: when vLLM's files are collected, names in them are bound to Pando's classes.
PANDO_VLLM_SUITE says to which:

    stock    nothing is replaced: every test passes here as it is
    pando    CPUOffloadingManager, FileSystemTierManager and ExampleSecondaryTierManager

NOT_RUN names the tests that look inside vLLM's classes, with the reason: Pando has other insides.
FAILS names those that test behaviour which Pando does not have. Each is run and must fail; one that
passes is a failure, so that the entry is taken out. scripts/test-engines.sh runs both.
"""

from __future__ import annotations

import inspect
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

FILES = {
    "cpu/test_manager.py": "manager",
    "tiering/test_fs_tier.py": "file tier",
    "tiering/test_tiering_offloading.py": "tier",
}

# Tests, or classes of them, and what they look at.
_POLICY = "the policy object inside vLLM's manager"
_NUMBERS = "numbers inside vLLM's manager"
_IO = "the threads, queues and I/O functions of vLLM's tier"
_ANSWERS = "the answers that vLLM's tier keeps for each request"
_JOBS = "the list of jobs inside vLLM's example of a tier"
NOT_RUN = {
    "TestARCPolicy": "the lists of vLLM's ARC",
    "test_arc_counts_reuse_once_and_keeps_insertions_in_t1": "the lists of vLLM's ARC",
    "test_arc_reuse_wins_if_same_request_later_reinserts_key": "the lists of vLLM's ARC",
    "test_arc_ghost_hit_adapts_once_per_request_before_insertion": "the lists of vLLM's ARC",
    "test_arc_pending_chunk_is_not_a_frequency_hit": "the lists of vLLM's ARC",
    "test_cpu_manager_reports_allocation_size_on_allocation_failure": "a method inside vLLM's manager",
    "test_lru_batch_eviction_failure_is_atomic": _POLICY,
    "test_lru_repeated_pin_cycles_compact_lazy_heap_entries": _POLICY,
    "test_reset_discards_stale_request_access_classification": _POLICY,
    "test_touch_forwards_req_context_to_policy": _POLICY,
    "test_request_finish_forwards_grouped_deduplicated_accesses": _POLICY,
    "test_failed_store_records_access_once_and_uses_store_miss_hook": _POLICY,
    "test_evictable_cache_chunk_count": _NUMBERS,
    "test_filter_reused_manager": _NUMBERS,
    "test_store_threshold_does_not_hide_ready_reuse": _NUMBERS,
    "test_wait_idle_blocks_until_tasks_complete": _IO,
    "test_batch_lookup_c_extension": _IO,
    "test_shutdown_discards_pending_tasks": _IO,
    "test_store_load_roundtrip_without_o_direct": _IO,
    "test_mixed_job_results_emit_event_only_for_successful_job": _IO,
    "test_partially_failed_store_emits_no_event": _IO,
    "test_events_disabled_by_default": "the list of events inside vLLM's tier",
    "test_events_require_global_kv_events_flag": "the list of events inside vLLM's tier",
    "test_failed_load_corrects_verdict_and_removes_corrupt_file": _ANSWERS,
    "test_batched_partial_load_failure_keeps_loaded_blocks": _ANSWERS,
    # Pando's load goes on behind a bad page and keeps what follows.
    "test_batched_load_first_block_fails_marks_whole_batch": "where vLLM's load stops",
    "test_factory_forwards_locality_to_fs_tier": "the class that vLLM's factory has for 'fs'",
    "test_fs_tier_cross_tp_round_trip": "the names of vLLM's files",
    "test_ref_cnt_protection_during_cascade": _JOBS,
    "test_failed_promotion_keeps_only_successful_chunks": _JOBS,
}

# What Pando does not have, and is not to have.
FAILS: dict[str, str] = {
    "test_already_stored_chunk_not_evicted_during_prepare_store[arc]": "arc is not there",
    "test_cpu_manager_reports_cache_usage_gauge": "a host tier without room is refused",
}


# ---- What vLLM's names are bound to.


def make_manager(
    num_chunks: int,
    cache_policy: str = "lru",
    cache_policy_module_path: str | None = None,
    enable_events: bool = False,
    store_threshold: int = 1,
    max_tracker_size: int = 64_000,
) -> Any:
    """In place of CPUOffloadingManager."""
    from pando.vllm.manager import PandoOffloadingManager

    return PandoOffloadingManager(
        num_chunks,
        policy=cache_policy,
        enable_events=enable_events,
        store_threshold=store_threshold,
        max_tracker_size=max_tracker_size,
    )


def tier_classes() -> tuple[type, type]:
    from pando.vllm.tier import PandoTier
    from vllm.v1.kv_offload.base import Medium

    class FileTier(PandoTier):
        """In place of FileSystemTierManager."""

        def __init__(
            self,
            offloading_spec: Any,
            primary_kv_view: memoryview,
            tier_type: str,
            root_dir: str,
            n_read_threads: int = 16,
            n_write_threads: int = 16,
            enable_kv_events: bool = False,
            **more: Any,
        ) -> None:
            if "enable_kv_events" in inspect.signature(PandoTier).parameters:
                more["enable_kv_events"] = enable_kv_events
            options = {"directory": root_dir}
            super().__init__(
                offloading_spec, primary_kv_view, tier_type, backend="file", options=options, **more
            )
            self.file_mapper = FileMapper(Path(root_dir))

    class PatientTier(PandoTier):
        """In place of ExampleSecondaryTierManager, which is in memory and has done everything when a
        call returns."""

        medium = Medium.CPU

        def __init__(
            self, offloading_spec: Any, primary_kv_view: memoryview, tier_type: str, custom_param: int = 0
        ) -> None:
            super().__init__(spec(), primary_kv_view, tier_type)
            self.chunks = Chunks(self)

        def lookup(self, key: bytes, req_context: object = None) -> Any:
            return ask(self, [key], super().lookup)[0]

        def submit_store(self, job_metadata: Any) -> None:
            super().submit_store(job_metadata)
            super().drain_jobs()
            self.chunks.keys.update(job_metadata.keys)

        def submit_load(self, job_metadata: Any) -> None:
            super().submit_load(job_metadata)
            super().drain_jobs()

        def get_finished_jobs(self) -> Any:
            return [job for job in super().get_finished_jobs() if job.job_id != Chunks.JOB]

        def get_num_chunks(self) -> int:
            return len(self.chunks.keys)

    return FileTier, PatientTier


class FileMapper:
    """Where Pando has put the page of a key."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_file_name(self, key: bytes) -> str:
        found = self._directory.glob(f"[0-9a-f][0-9a-f]/*{key.hex()}")
        return str(next(found, self._directory / "there is none"))


class Chunks:
    """Tests put keys straight into vLLM's example of a tier: `tier.chunks[key] = True`."""

    JOB = -1  # which vLLM does not know, and must not hear of

    def __init__(self, tier: Any) -> None:
        self._tier = tier
        self.keys: set[bytes] = set()

    def __setitem__(self, key: bytes, there: bool) -> None:
        from vllm.v1.kv_offload.base import ReqContext
        from vllm.v1.kv_offload.tiering.base import TransferJob

        job = TransferJob(self.JOB, [key], np.array([0]), False, ReqContext(req_id="chunks"))
        type(self._tier).submit_store(self._tier, job)  # also where the test has mocked it


def spec() -> Any:
    """What vLLM tells a tier. Its tests of tiers that look at none of it give a mock."""
    from vllm.v1.kv_offload.base import OffloadingKVEventsConfig
    from vllm.v1.kv_offload.config import (
        OffloadingCacheConfig,
        OffloadingConfig,
        OffloadingModelConfig,
        OffloadingParallelConfig,
    )

    sizes = ("world_size", "tp_size", "pp_size", "pcp_size", "dcp_size", "data_parallel_size")
    config = OffloadingConfig(
        groups=(),
        worker_kv_bytes_per_block=0,
        enable_kv_cache_events=False,
        extra_config={},
        engine_id="tests",
        model=OffloadingModelConfig(name="model", dtype="float32"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0,
            data_parallel_index=0,
            data_parallel_rank_local=None,
            is_parallelism_agnostic=False,
            **dict.fromkeys(sizes, 1),
        ),
        replicated_layout=False,
    )
    events = OffloadingKVEventsConfig(enable_kv_cache_events=False, self_describing_kv_events=False)
    return SimpleNamespace(
        config=config, blocks_per_chunk=1, replicated_layout=False, kv_events_config=events
    )


def ask(
    tier: Any, keys: list[bytes], lookup: Any = None, ctx: Any = None, timeout: float = 5.0
) -> list[Any]:
    """As lookup_and_wait() of vLLM's tests, which looks into vLLM's tier to see when it has ended."""
    from vllm.v1.kv_offload.base import LookupResult, ScheduleEndContext

    lookup = lookup or tier.lookup
    answers: dict[bytes, Any] = {}
    deadline = time.monotonic() + timeout
    while len(answers) < len(set(keys)) and time.monotonic() < deadline:
        for key in keys:
            if key not in answers and (answer := lookup(key, ctx)) is not LookupResult.RETRY:
                answers[key] = answer
        tier.on_schedule_end(ScheduleEndContext(new_req_ids=[], preempted_req_ids=()))
        time.sleep(0.001)
    return [answers.get(key, LookupResult.RETRY) for key in keys]


# ---- The plug-in.


def pytest_configure(config: Any) -> None:
    for marker in ("cpu_test", "skip_global_cleanup"):
        config.addinivalue_line("markers", f"{marker}: of vLLM's")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if os.environ.get("PANDO_VLLM_SUITE", "stock") != "pando":
        return
    file_tier, patient_tier = tier_classes()
    names = {
        "manager": {"CPUOffloadingManager": make_manager},
        "file tier": {
            "FileSystemTierManager": file_tier,
            "lookup_and_wait": lambda tier, keys, ctx=None, timeout=5.0: ask(
                tier, keys, ctx=ctx, timeout=timeout
            ),
        },
        "tier": {"ExampleSecondaryTierManager": patient_tier},
    }
    seen: set[str] = set()
    for item in items:
        what = next(kind for end, kind in FILES.items() if str(item.path).endswith(end))
        for name, value in names[what].items():
            setattr(item.module, name, value)
        known = {item.name, item.originalname, item.cls.__name__ if item.cls else ""}
        seen |= known
        for name in known & NOT_RUN.keys():
            item.add_marker(pytest.mark.skip(reason=f"looks at {NOT_RUN[name]}"))
        for name in known & FAILS.keys():
            item.add_marker(pytest.mark.xfail(reason=FAILS[name], strict=True))
    unknown = (NOT_RUN.keys() | FAILS.keys()) - seen
    if unknown and len({item.path for item in items}) == len(FILES):
        raise pytest.UsageError(f"vllm_suite: vLLM has no such tests: {sorted(unknown)}")
