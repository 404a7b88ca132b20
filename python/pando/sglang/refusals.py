# SPDX-License-Identifier: Apache-2.0
"""What the plug-in cannot do. It is refused while the server starts, before it accepts a request;
each message names the flag and says what would work.

`refuse_context` looks at the server's arguments, `refuse_params` at what a cache is made of.
"""

from __future__ import annotations

from typing import Any

from pando.sglang.arguments import POLICIES, resolved
from pando.sglang.interface import Interface, Unsupported

# Flags of other caches, which SGLang would make instead of this one.
_OTHER_CACHES = ("enable_lmcache", "enable_flexkv", "enable_unified_cache_external_linker")
_WITHOUT = "start without --radix-cache-backend pando"


def refuse_context(context: Any) -> None:
    """From SGLang's TreeCacheBuildContext."""
    if context.is_hybrid_ssm:
        raise Unsupported(
            "models with recurrent (Mamba) layers are not supported by pando.sglang: " + _WITHOUT
        )
    if context.is_hybrid_swa and getattr(context, "full_tokens_per_layer", None) == 0:
        raise Unsupported(
            "models whose layers are all sliding-window are not supported by pando.sglang: "
            + _WITHOUT
        )
    for flag in _OTHER_CACHES:
        if resolved(context, flag, False):
            raise Unsupported(
                f"--{flag.replace('_', '-')} keeps a cache of its own: expected one of the two"
            )
    if resolved(context, "schedule_policy") == "dfs-weight" and not hasattr(
        Interface.installed().base, "dfs_weight_order"
    ):
        raise Unsupported(
            "--schedule-policy dfs-weight walks SGLang's own tree nodes in this version: expected "
            "lpm, fcfs or another"
        )
    _refuse_tiers(context)


def _refuse_tiers(context: Any) -> None:
    """Combinations in which the scheduler would use a tier that this cache does not have."""
    store = resolved(context, "hicache_storage_backend")
    if store is not None and not context.enable_hierarchical_cache:
        raise Unsupported(
            f"--hicache-storage-backend {store} stores what the host tier holds: expected "
            "--enable-hierarchical-cache with it"
        )
    if context.enable_hierarchical_cache and (
        resolved(context, "hicache_host_memory_mode") == "buffer_only"
    ):
        raise Unsupported(
            "--hicache-host-memory-mode buffer_only is not supported by pando.sglang: expected "
            "cache, with which host memory is a tier"
        )
    if context.enable_hierarchical_cache and resolved(
        context, "disaggregation_decode_enable_radix_cache", False
    ):
        raise Unsupported(
            "--disaggregation-decode-enable-radix-cache with --enable-hierarchical-cache is not "
            "supported by pando.sglang: expected one of the two"
        )


def refuse_params(params: Any, policy: str) -> None:
    """From SGLang's CacheInitParams."""
    if policy not in POLICIES:
        raise Unsupported(
            f"--radix-eviction-policy {policy}: expected one of {', '.join(POLICIES)}"
        )
    if getattr(params, "eviction_policy_config", None):
        raise Unsupported(
            "--radix-eviction-policy-config: policies of Pando have no settings; expected none"
        )
    if getattr(params, "enable_session_radix_cache", False):
        raise Unsupported("--enable-session-radix-cache is not supported: start without it")
    if getattr(params, "cache_ttl_seconds", None) is not None:
        raise Unsupported("a time to live of cache entries is not supported: start without it")
    if not getattr(params, "swa_gates_prefix_match", True):
        raise Unsupported(
            "the window's KV of this model is kept per request, not in the tree "
            "(swa_gates_prefix_match is False), which pando.sglang does not support: " + _WITHOUT
        )
    if getattr(params, "decoder_swa_bounded_replay", False):
        raise Unsupported(
            "--enable-decoder-swa-bounded-replay recomputes windows behind a match, which "
            "pando.sglang does not support: start without it"
        )
    shards = getattr(params.token_to_kv_pool_allocator, "shard_size", 1)
    if shards > 1:
        raise Unsupported(
            f"--enable-kv-cache-sharding spreads pages over {shards} ranks in an order that the "
            "tree would have to keep, which pando.sglang does not support: start without it"
        )
