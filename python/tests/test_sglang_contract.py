# SPDX-License-Identifier: Apache-2.0
"""Nothing in the plug-in may end a server by an attribute that is not there.

Reads the sources of the SGLang at hand for everything that its scheduler side uses of a cache (see
sglang_usage.py) and looks for it in ours: the attribute must be there, and a call must fit its
parameters. What is missing on purpose is in ABSENT, with the reason why no server that starts gets
there, and the versions in which SGLang uses it; an entry that is not used there any more fails.

Run by `scripts/test-engines.sh` for each version; skipped where there is no SGLang.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
for module in ("torch", "sglang"):
    if importlib.util.find_spec(module) is None:
        pytest.skip(
            f"{module} is not installed: run scripts/test-engines.sh", allow_module_level=True
        )

import sglang_standins as standins
import sglang_usage
from sglang_stubs import stub_missing_modules

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    stub_missing_modules()
    from pando.sglang.interface import Interface, sglang_version

    INTERFACE = Interface.installed()

import pando
from pando.sglang.hicache import PandoHiCache
from pando.sglang.host_setup import HostSetup, adopt_pool
from pando.sglang.nodes import Node
from pando.sglang.prefix_cache import cache_class

FOLDER = Path(str(importlib.util.find_spec("sglang").submodule_search_locations[0])).parent
USES = sglang_usage.uses(FOLDER)
VERSION = int(re.match(r"0\.5\.(\d+)", sglang_version())[1])


class Absent(NamedTuple):
    """Why an attribute may be missing, and from which 0.5.x on to which it is used."""

    reason: str
    first: int = 13
    last: int = 23


TIERS = "only with --enable-hierarchical-cache, whose cache has it; a store without it is refused"
MAMBA = "only for models with recurrent layers, which are refused"
SESSIONS = "only with --enable-session-radix-cache, which is refused"
UNIFIED = "only behind isinstance(…, UnifiedRadixCache)"
DECODE = (
    "only with --disaggregation-decode-enable-radix-cache and --enable-hierarchical-cache, which "
    "are refused together"
)
RETRACTION = (
    "only with --disaggregation-decode-retraction-backup=host_pool, which SGLang refuses for "
    "caches that are not its own"
)
LINKER = "only with --enable-unified-cache-external-linker, which is refused"
DRAFTS = "only for a draft model with --enable-hierarchical-cache, which is refused"
BUFFERS = "only with --hicache-host-memory-mode buffer_only, which is refused"
RECEIVE = (
    "only with --disaggregation-decode-host-receive-threshold below 1, which implies "
    "--disaggregation-decode-retraction-backup=host_pool, which SGLang refuses"
)

ABSENT = {
    ("cache", "all_mamba_values_flatten"): Absent(MAMBA),
    ("cache", "mamba_evictable_size"): Absent(MAMBA),
    ("cache", "mamba_protected_size"): Absent(MAMBA),
    ("cache", "query_storage_hit_length"): Absent(DECODE),
    ("cache", "has_ongoing_prefetch"): Absent(DECODE, 20),
    ("cache", "has_free_load_back_slot"): Absent(DECODE, 22),
    ("cache", "ensure_session_generation"): Absent(SESSIONS, 17),
    ("cache", "open_radix_session"): Absent(SESSIONS, 17),
    ("cache", "register_hicache_draft_pools"): Absent(DRAFTS, 18, 18),
    ("cache", "register_sidecar_pool"): Absent(DRAFTS, 19),
    ("cache", "validate_retraction_host_capacity"): Absent(RETRACTION, 18),
    ("cache", "advance_unpublished_req"): Absent(UNIFIED, 21),
    ("cache", "host_pool_group"): Absent(f"{UNIFIED}, or {RECEIVE}", 21),
    ("cache", "sidecar_pool_specs"): Absent(f"{UNIFIED}, or {RECEIVE}", 21),
    ("cache", "plan_staged_splice"): Absent(BUFFERS, 19, 19),
    ("cache", "buffer_pipeline"): Absent(BUFFERS, 19, 19),  # later on SGLang's base class
    ("cache", "components"): Absent(UNIFIED, 23),
    ("cache", "tree_core"): Absent(f"{UNIFIED}, or {DECODE}", 22),
    ("cache", "linker"): Absent(UNIFIED, 22),
    ("cache", "inc_host_lock_ref"): Absent(UNIFIED, 22),
    ("cache", "dec_host_lock_ref"): Absent(UNIFIED, 22),
    ("cache", "finish_external_linker_loads"): Absent(LINKER, 22),
    ("cache", "has_pending_cache_operations"): Absent("only with --enable-lmcache, refused", 21),
    ("cache", "bind_prefetch_ticket"): Absent(
        "only with a pp_prefetch_command_group, that is pipeline parallelism over a host tier, "
        "which is refused",
        21,
    ),
    ("node", "req"): Absent("a node of a session's history, which is no node of a cache"),
}
# Of the cache without tiers.
ABSENT_WITHOUT_TIERS = {
    ("cache", "attach_storage_backend"): Absent(TIERS),
    ("cache", "detach_storage_backend"): Absent(TIERS),
    ("cache", "clear_storage_backend"): Absent(TIERS),
    ("cache", "check_prefetch_progress"): Absent(TIERS),
    ("cache", "pop_prefetch_loaded_tokens"): Absent(TIERS),
    ("cache", "prefetch_from_storage"): Absent(TIERS),
    ("cache", "hicache_storage_pass_prefix_keys"): Absent(TIERS),
    ("cache", "is_load_back_event_done"): Absent(TIERS),
    ("cache", "ongoing_write_through"): Absent(TIERS),
    ("cache", "ongoing_load_back"): Absent(TIERS),
    ("cache", "ongoing_prefetch"): Absent(TIERS),
    ("cache", "ongoing_backup"): Absent(TIERS),
    ("cache", "release_aborted_request"): Absent(TIERS, 13, 19),
    ("cache", "terminate_prefetch"): Absent(TIERS, 13, 18),
    ("cache", "evict_host"): Absent(RECEIVE, 21),
}


def caches() -> dict[str, Any]:
    """The caches of this SGLang's kind, over stand-ins for its pools."""
    arrays = standins.NumpyArrays()
    made: dict[str, Any] = {}
    for name in ("plain", "window", "tiers"):
        window = 8 if name == "window" else None
        allocator: Any = (
            standins.SegmentAllocator(64, 4, arrays)
            if window is None
            else standins.SegmentSwaAllocator(64, 48, 4, arrays)
        )
        pool = standins.ReqToTokenPool(4, 64, arrays)
        params = standins.CacheInitParams(False, pool, allocator, 4)
        if name != "tiers":
            made[name] = cache_class(INTERFACE)(params, sliding_window_size=window)
        else:
            kv_pool = standins.KvPool(64, 4, 2, arrays)
            device = adopt_pool(kv_pool, 4)
            host = pando.HostPool(device, ratio=1.5, keep_free_bytes=0)
            tier = pando.TierPools(device=device, host=host)
            options = pando.HostTierOptions(full=tier, copier=pando.make_cpu_copier())
            setup = HostSetup(options=options, kv_pool=kv_pool, device=device)
            made[name] = cache_class(INTERFACE, PandoHiCache)(params, host=setup)
    return made


CACHES = caches()


def teardown_module() -> None:
    CACHES.clear()  # or they would outlive the interpreter


def absent_from(name: str) -> dict[tuple[str, str], Absent]:
    table = ABSENT | ({} if name == "tiers" else ABSENT_WITHOUT_TIERS)
    return {key: why for key, why in table.items() if why.first <= VERSION <= why.last}


def holders(cache: Any, kind: str) -> list[Any]:
    """What an attribute of this kind is looked for on; all of them must have it."""
    if kind == "controller":
        return [] if cache.cache_controller is None else [cache.cache_controller]
    if kind == "node":
        match = cache.core.paths.match([1, 2, 3, 4], ns="")
        return [cache.root_node, Node(cache, match, None, "")]
    return [cache]


@pytest.mark.parametrize("name", CACHES)
def test_what_the_scheduler_uses_is_there(name: str) -> None:
    allowed = absent_from(name)
    missing = {
        f"{kind}.{attribute}": [use.where for use in where[:3]]
        for (kind, attribute), where in USES.items()
        if (kind, attribute) not in allowed
        and any(attribute not in dir(holder) for holder in holders(CACHES[name], kind))
    }
    assert not missing


@pytest.mark.parametrize("name", CACHES)
def test_calls_of_the_scheduler_fit(name: str) -> None:
    wrong = []
    for (kind, attribute), where in USES.items():
        for holder in holders(CACHES[name], kind):
            if not callable(method := getattr(type(holder), attribute, None)):
                continue
            signature = inspect.signature(method)
            for use in where:
                if use.positional is None:
                    continue
                try:
                    signature.bind(
                        holder, *[None] * use.positional, **dict.fromkeys(use.keywords)
                    )
                except TypeError as error:
                    wrong.append(f"{use.where}: {attribute}: {error}")
    assert not wrong


def test_what_is_absent_on_purpose_is_still_used() -> None:
    for name, cache in CACHES.items():
        entries = set(absent_from(name))
        assert not entries - set(USES), "take these out of the table, or end their versions"
        there = {
            (kind, attribute)
            for kind, attribute in entries
            if all(attribute in dir(holder) for holder in holders(cache, kind))
        }
        assert not there, "these are there: take them out of the table, or end their versions"


def test_the_sources_are_read() -> None:
    """What is certainly used is found, so that an empty list cannot pass for a good one."""
    assert {("cache", "match_prefix"), ("cache", "evictable_size")} <= set(USES)
    assert len(USES) > 60
