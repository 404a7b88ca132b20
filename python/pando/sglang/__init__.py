# SPDX-License-Identifier: Apache-2.0
"""Pando as the prefix cache of SGLang: ``--radix-cache-backend pando``.

Installed as a package, Pando is found by SGLang itself, in every process that it starts (the entry
point ``sglang.srt.plugins``). Elsewhere, :func:`register` makes the name known::

    import pando.sglang
    pando.sglang.register()

or start the server with ``python -m pando.sglang.launch_server --radix-cache-backend pando …``.
Importing this needs no SGLang; using it does, and says so. See docs/sglang.md.
"""

from pando.sglang.interface import Unsupported
from pando.sglang.registry import NAME, create_cache, register

__all__ = ["NAME", "Unsupported", "create_cache", "register"]
