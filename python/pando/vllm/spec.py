# SPDX-License-Identifier: Apache-2.0
"""PandoOffloadingSpec: vLLM's host tier, with Pando to say which chunk is where. The workers, which
move the bytes, are vLLM's."""

from __future__ import annotations

from typing import Any

from vllm.v1.kv_offload.cpu.spec import (  # type: ignore[import-not-found, unused-ignore]
    CPUOffloadingSpec,
)

from pando.vllm.manager import PandoOffloadingManager
from pando.vllm.options import POLICIES


class PandoOffloadingSpec(CPUOffloadingSpec):  # type: ignore[misc, unused-ignore]
    """Options are those of vLLM's CPUOffloadingSpec; ``eviction_policy`` is one of Pando's."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if self.eviction_policy not in POLICIES:
            raise ValueError(
                f"eviction_policy {self.eviction_policy!r}: PandoOffloadingSpec expects one of "
                f"{', '.join(POLICIES)}"
            )
        if self.num_chunks < 1:
            raise ValueError(
                f"a host tier of {self.extra_config.get('cpu_bytes_to_use')} bytes has no room for "
                f"one chunk of {self.kv_bytes_per_chunk} bytes: expected more of them, or smaller "
                "chunks (block_size, blocks_per_chunk)"
            )

    def get_manager(self) -> Any:
        if self._manager is None:
            first = self.config.groups[0]
            self._manager = PandoOffloadingManager(
                self.num_chunks,
                policy=self.eviction_policy,
                enable_events=self.kv_events_config.enable_kv_cache_events,
                store_threshold=int(self.extra_config.get("store_threshold", 0)),
                max_tracker_size=int(self.extra_config.get("max_tracker_size", 64_000)),
                chunk_tokens=first.tokens_per_block * self.blocks_per_chunk,
                main_group=first.group_id,
            )
        return self._manager
