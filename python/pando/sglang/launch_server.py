# SPDX-License-Identifier: Apache-2.0
"""``python -m sglang.launch_server`` with Pando registered, for where SGLang does not find it by
itself (Pando is on the path, but not installed)::

    python -m pando.sglang.launch_server --model-path … --radix-cache-backend pando

Schedulers run in processes of their own, which SGLang spawns: they import the main module, that is
this one, and so register too.
"""

from __future__ import annotations

import runpy

from pando.sglang import register

register()

if __name__ == "__main__":
    # This module stays __main__, or the processes that are spawned would not import it.
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=False)
