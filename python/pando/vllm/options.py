# SPDX-License-Identifier: Apache-2.0
"""What ``kv_connector_extra_config`` of a PandoConnector may say, and what that is in the options of
vLLM's offloading, on which it stands.

The size of the host tier, unless given, is decided once, in the first process that loads the
plug-in, and handed to the others in the environment: scheduler and workers must agree on it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import pando

CONNECTOR = "PandoConnector"
SPEC = "PandoOffloadingSpec"
TIER = "pando"
POLICIES = ("lru", "lfu", "fifo", "filo", "mru", "slru", "hazard")
DEFAULT_POLICY = "hazard"

_HOST_SHARE = 0.5  # of what is free
_SHARED_MEMORY = "/dev/shm"  # where vLLM maps its host tier
_HOST_BYTES = "PANDO_VLLM_HOST_BYTES"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

# Options of vLLM's offloading that mean the same here, and are handed on.
_HANDED_ON = (
    "block_size",
    "blocks_per_chunk",
    "canonical_layout",
    "offload_prompt_only",
    "self_describing_kv_events",
    "store_threshold",
    "max_tracker_size",
    "backpressure",
)
_OWN = ("host_bytes", "policy", "store")
_STORE = ("backend", "scope", "timeout", "locality")


def translate(given: Mapping[str, Any], num_engines: int = 1) -> dict[str, Any]:
    """Options of a PandoConnector, as options of vLLM's OffloadingConnector. ValueError: something
    in them is unknown or cannot be."""
    unknown = [name for name in given if name not in (*_OWN, *_HANDED_ON)]
    if unknown:
        raise ValueError(
            f"{CONNECTOR}: kv_connector_extra_config has {', '.join(map(repr, unknown))}; expected "
            f"some of {', '.join(sorted((*_OWN, *_HANDED_ON)))}"
        )
    policy = given.get("policy", DEFAULT_POLICY)
    if policy not in POLICIES:
        raise ValueError(
            f"{CONNECTOR}: policy {policy!r}; expected one of {', '.join(POLICIES)}"
        )
    translated = {name: given[name] for name in _HANDED_ON if name in given}
    # vLLM leaves out what was generated; the next turn of a conversation begins with it.
    translated.setdefault("offload_prompt_only", False)
    translated["eviction_policy"] = policy
    if "host_bytes" in given:
        translated["cpu_bytes_to_use"] = parse_bytes("host_bytes", given["host_bytes"])
    else:
        translated["cpu_bytes_to_use"] = settle_host_bytes() // max(num_engines, 1)
    if given.get("store") is None:
        return translated | {"spec_name": SPEC}
    if int(given.get("store_threshold", 0)) >= 2:
        raise ValueError(
            f"{CONNECTOR}: store_threshold {given['store_threshold']} with a store: vLLM's tiers "
            "take every chunk; expected one of the two"
        )
    tier = _tier(given["store"])
    return translated | {"spec_name": "TieringOffloadingSpec", "secondary_tiers": [tier]}


def _tier(store: Any) -> dict[str, Any]:
    """A store's options: its backend's beside the tier's own."""
    if not isinstance(store, Mapping) or "backend" not in store:
        raise ValueError(
            f"{CONNECTOR}: store {store!r}; expected for instance "
            '{"backend": "file", "directory": "/kv"}'
        )
    names = pando.registered_stores()
    if store["backend"] not in names:
        raise ValueError(
            f"{CONNECTOR}: store of backend {store['backend']!r}; expected one of "
            f"{', '.join(names)}"
        )
    tier = {name: store[name] for name in _STORE if name in store}
    tier["options"] = {name: value for name, value in store.items() if name not in _STORE}
    return tier | {"type": TIER}


def parse_bytes(name: str, given: Any) -> int:
    """A number of bytes, or a text such as "8GiB" or "500 MB" (powers of two, both)."""
    number = given
    if isinstance(given, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", given, re.IGNORECASE)
        number = float(match[1]) * _UNITS[match[2].upper()] if match else 0
    if isinstance(number, bool) or not isinstance(number, int | float) or number < 1:
        raise ValueError(
            f'{CONNECTOR}: {name} {given!r}; expected a number of bytes, or a text such as "8GiB"'
        )
    return int(number)


def settle_host_bytes() -> int:
    """Half of the memory that is free, and of the shared memory, when this is first called in this
    process or one that has started it."""
    if _HOST_BYTES not in os.environ:
        free = pando.available_memory()
        if os.path.isdir(_SHARED_MEMORY):
            shared = os.statvfs(_SHARED_MEMORY)
            free = min(free, shared.f_bavail * shared.f_frsize)
        os.environ[_HOST_BYTES] = str(int(free * _HOST_SHARE))
    return int(os.environ[_HOST_BYTES])
