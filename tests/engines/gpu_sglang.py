# SPDX-License-Identifier: Apache-2.0
"""SGLang on a GPU with and without Pando, row by row: outputs, cached tokens, times.

    python gpu_sglang.py RESULTS.json [MODE,PAGE,LAYOUT ...]

For each row two engines (sglang_gpu_child.py) are given the same requests in turns, as gpu_pair.py
says. Rows are added to RESULTS.json as they end; a table is printed at the end. Exit status 1 if a
row's outputs differ, tokens were not found, or Pando is slower than SGLang by more than the bar.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gpu_pair

ROWS = (
    "plain,1,layer_first",
    "plain,16,layer_first",
    "plain,64,layer_first",
    "host,64,layer_first",
    "host,64,page_first",
    "host,64,page_first_direct",
    "host,16,layer_first",
    "file,64,page_first",
)
CHILD = Path(__file__).with_name("sglang_gpu_child.py")


def compare(row: str) -> dict[str, Any]:
    mode, page, layout = row.split(",")
    spec = {
        "engine": "sglang",
        "mode": mode,
        "page": int(page),
        "layout": layout,
        "shape": os.environ.get("PANDO_SHAPE", "8b"),
    }
    return gpu_pair.compare(CHILD, spec, turns=6, bursts=5)


if __name__ == "__main__":
    sys.exit(gpu_pair.run_rows("sglang", ROWS, ("mode", "page", "layout"), compare))
