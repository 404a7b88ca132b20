# SPDX-License-Identifier: Apache-2.0
"""Pando inside vLLM 0.32: ``--kv-transfer-config '{"kv_connector": "PandoConnector", "kv_role":
"kv_both"}'``.

Installing this package is enough: vLLM calls :func:`register` in each of its processes, through the
entry point group ``vllm.general_plugins``. From the outside in:

    options.py    what a user may say, and what that is in vLLM's own options
    connector.py  PandoConnector: vLLM's OffloadingConnector with these options
    spec.py       PandoOffloadingSpec: vLLM's workers, our manager
    manager.py    which chunk of KV is where on the host, over pando.OffloadTable
    policies.py   the same order of eviction for vLLM's own manager
    tier.py       PandoTier: a store of Pando's behind vLLM's host tier

The other modules need vLLM; this one does not.
"""

from pando.vllm.plugin import register

__all__ = ["register"]
