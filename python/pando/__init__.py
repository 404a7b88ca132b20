# SPDX-License-Identifier: Apache-2.0
"""Pando: the KV-cache manager for LLM inference engines.

Finds the longest prefix of a request whose keys and values exist already, owns the slots they live
in, and moves them between device, host, disk and a shared store. Names are those of the C++
library. Start with :class:`PrefixCache`.
"""

from pando import _core
from pando._core import *  # noqa: F403

__version__: str = getattr(_core, "__version__")  # stubs leave such names out
