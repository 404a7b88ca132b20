# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what vLLM hands to its KV cache manager, with vLLM's attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class FullAttentionSpec:
    block_size: int


@dataclass
class SlidingWindowSpec:
    block_size: int
    sliding_window: int


@dataclass
class ChunkedLocalAttentionSpec:
    block_size: int
    attention_chunk_size: int


@dataclass
class MambaSpec:
    block_size: int
    mamba_cache_mode: str = "all"
    num_speculative_blocks: int = 0


def config(num_blocks: int, *specs: Any) -> Any:
    groups = [SimpleNamespace(kv_cache_spec=spec, layer_names=["l"]) for spec in specs]
    return SimpleNamespace(num_blocks=num_blocks, kv_cache_groups=groups, kv_cache_tensors=[])


@dataclass
class Request:
    request_id: str
    all_token_ids: list[int]
    num_computed_tokens: int = 0
    lora_request: Any = None
    cache_salt: str | None = None
    mm_features: list[Any] = field(default_factory=list)
    prompt_embeds: Any = None
    skip_reading_prefix_cache: bool = False
    num_preemptions: int = 0
    num_in_flight_tokens: int = 0
    finished: bool = False
    status: Any = None

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.all_token_ids)

    def is_finished(self) -> bool:
        return self.finished


def lora(name: str, adapter_id: int = 7) -> Any:
    return SimpleNamespace(lora_name=name, adapter_id=adapter_id, lora_path=f"/{name}")


def feature(identifier: str, offset: int, length: int) -> Any:
    position = SimpleNamespace(offset=offset, length=length)
    return SimpleNamespace(identifier=identifier, mm_position=position)
