# SPDX-License-Identifier: Apache-2.0
"""Makes Pando's names known to vLLM: a connector, a spec, a tier and policies of eviction."""

from __future__ import annotations

import importlib
import logging
from typing import Any

from pando.vllm import options

logger = logging.getLogger("pando.vllm")

# vLLM's registries: module, class, how one adds a name, and what is added. Each name is loaded when
# it is first asked for.
_FACTORIES: list[tuple[str, str, str, list[tuple[str, str, str]]]] = [
    (
        "vllm.distributed.kv_transfer.kv_connector.factory",
        "KVConnectorFactory",
        "register_connector",
        [(options.CONNECTOR, "pando.vllm.connector", "PandoConnector")],
    ),
    (
        "vllm.v1.kv_offload.factory",
        "OffloadingSpecFactory",
        "register_spec",
        [(options.SPEC, "pando.vllm.spec", "PandoOffloadingSpec")],
    ),
    (
        "vllm.v1.kv_offload.tiering.factory",
        "SecondaryTierFactory",
        "register_tier",
        [(options.TIER, "pando.vllm.tier", "PandoTier")],
    ),
    (
        "vllm.v1.kv_offload.cpu.policies.factory",
        "CachePolicyFactory",
        "register_cache_policy",
        [
            (name, "pando.vllm.policies", f"{name.capitalize()}CachePolicy")
            for name in options.POLICIES
            if name != "lru"  # which vLLM has
        ],
    ),
]


def register() -> None:
    """Called by vLLM in every process, before it reads its configuration. Twice is harmless. A vLLM
    without one of the registries goes on without what would be in it, and says so."""
    for module, name, add, entries in _FACTORIES:
        try:
            factory: Any = getattr(importlib.import_module(module), name)
            present = factory._registry
        except (ImportError, AttributeError) as error:
            logger.warning(
                "pando.vllm: this vLLM has no %s.%s (%s), so %s cannot be chosen; expected "
                "vLLM 0.32",
                module,
                name,
                error,
                " and ".join(entry for entry, _, _ in entries),
            )
            continue
        for entry in entries:
            if entry[0] not in present:
                getattr(factory, add)(*entry)
    options.settle_host_bytes()
