# SPDX-License-Identifier: Apache-2.0
"""KV events with the fields of vLLM's, for code that reads them by name.

vLLM's own classes are msgspec structs; :class:`pando.EventPublisher` sends events in vLLM's wire
form without either.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ExternalHash = bytes | int


@dataclass
class KVCacheEvent:
    """What is common to all of them: nothing."""


@dataclass
class BlockStored(KVCacheEvent):
    """Blocks that follow each other, behind ``parent_block_hash``, are found from now on."""

    block_hashes: list[ExternalHash]
    parent_block_hash: ExternalHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = "GPU"
    lora_name: str | None = None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None


@dataclass
class BlockRemoved(KVCacheEvent):
    """No block has these contents any more."""

    block_hashes: list[ExternalHash]
    medium: str | None = "GPU"
    group_idx: int | None = None


@dataclass
class AllBlocksCleared(KVCacheEvent):
    """Nothing is cached any more."""


def use_int_hashes() -> bool:
    """As vLLM reads VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES: numbers, unless it says 0."""
    return os.environ.get("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "1") != "0"


def external_hash(value: bytes, as_int: bool) -> ExternalHash:
    """The hash as events have it: its bytes, or their low 64 bits."""
    return int.from_bytes(value, "big") & ((1 << 64) - 1) if as_int else value


def external_hashes(values: Sequence[bytes], as_int: bool) -> list[ExternalHash]:
    return [external_hash(value, as_int) for value in values]
