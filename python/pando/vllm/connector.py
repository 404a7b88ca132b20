# SPDX-License-Identifier: Apache-2.0
"""PandoConnector: vLLM's OffloadingConnector, chosen by one name and with options of Pando's.

vLLM's connector knows which blocks of a request hold what, in every kind of model, and its workers
copy them; which chunks are kept where is Pando's: ``manager.py`` without a store, ``policies.py`` and
``tier.py`` with one.
"""

from __future__ import annotations

import copy
from typing import Any

# Stubs: vLLM need not be installed where this is checked.
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import (  # type: ignore[import-not-found, unused-ignore]
    OffloadingConnector,
)

from pando.vllm.options import translate


def _translated(vllm_config: Any) -> Any:
    """A configuration with vLLM's options in place of ours; the one that is given stays as it is."""
    transfer = vllm_config.kv_transfer_config
    parallel = vllm_config.parallel_config
    num_engines = getattr(parallel, "data_parallel_size_local", 1)
    changed = copy.copy(vllm_config)
    changed.kv_transfer_config = copy.copy(transfer)
    changed.kv_transfer_config.kv_connector_extra_config = translate(
        transfer.kv_connector_extra_config, num_engines
    )
    return changed


class PandoConnector(OffloadingConnector):  # type: ignore[misc, unused-ignore]
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(_translated(vllm_config), role, kv_cache_config)

    @classmethod
    def build_prom_metrics(cls, vllm_config: Any, *args: Any, **kwargs: Any) -> Any:
        return super().build_prom_metrics(_translated(vllm_config), *args, **kwargs)
