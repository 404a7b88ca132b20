# SPDX-License-Identifier: Apache-2.0
"""vLLM on a GPU with and without Pando, row by row: outputs, cached tokens, times.

    python gpu_vllm.py RESULTS.json [MODE,HOST ...]

For each row two engines (vllm_gpu_child.py) are given the same requests in turns, as gpu_pair.py
says. MODE says what stands against PandoConnector:

    plain  vLLM's prefix cache on the device, without a connector
    host   vLLM's OffloadingConnector
    file   the same with its tier of files behind; PandoConnector then has a store of files

HOST is the size of the host tier: so many times the KV memory of the device. Rows are added to
RESULTS.json as they end; a table is printed at the end. Exit status 1 if a row's outputs differ,
tokens were not found, or Pando is slower than vLLM by more than the bar.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import gpu_pair

ROWS = ("plain,3", "host,3", "host,1", "file,1")
CHILD = Path(__file__).with_name("vllm_gpu_child.py")


def compare(row: str) -> dict[str, Any]:
    mode, host = row.split(",")
    spec = {
        "engine": "vllm",
        "version": importlib.metadata.version("vllm"),
        "mode": mode,
        "host": float(host),
        "shape": os.environ.get("PANDO_SHAPE", "8b"),
    }
    return gpu_pair.compare(CHILD, spec, turns=6, bursts=5)


def problems(name: str, row: dict[str, Any]) -> list[str]:
    """Sums in bfloat16 depend on how much of a prompt is computed at once, so outputs must be equal
    only where both engines found the same tokens."""
    if row["stock"]["cached_tokens"] != row["pando"]["cached_tokens"]:
        row = row | {"outputs_equal": row["outputs"]}
    return gpu_pair.problems(name, row)


if __name__ == "__main__":
    sys.exit(gpu_pair.run_rows("vllm", ROWS, ("mode", "host"), compare, problems))
