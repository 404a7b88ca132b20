# SPDX-License-Identifier: Apache-2.0
"""Pando under vLLM's names.

:class:`BlockPool` and :class:`KVCacheManager` stand where vLLM's own do, over
:class:`pando.BlockPool` and :class:`pando.BlockCache`; :class:`OffloadingManager` says which host
blocks hold what, with a store behind them. None of it needs vLLM. ``pando.vllm.spec`` does: it is
what vLLM's factories load. docs/vllm.md says which versions were read and what was run.
"""

from pando.vllm.blocks import BlockPool, KVCacheBlock, KVCacheBlocks
from pando.vllm.manager import KVCacheManager, PrefixCacheStats
from pando.vllm.offload import OffloadingManager
from pando.vllm.store_level import StoreLevel

__all__ = [
    "BlockPool",
    "KVCacheBlock",
    "KVCacheBlocks",
    "KVCacheManager",
    "OffloadingManager",
    "PrefixCacheStats",
    "StoreLevel",
]
