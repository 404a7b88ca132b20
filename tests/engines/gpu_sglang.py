# SPDX-License-Identifier: Apache-2.0
"""SGLang on a GPU with and without Pando, row by row: outputs, cached tokens, times.

    python gpu_sglang.py RESULTS.json [MODE,PAGE,LAYOUT ...]

For each row two engines are started one after the other (sglang_gpu_child.py) and given the same
requests. An engine is started once before the first row, so that compiled kernels are there for
both. Rows are added to RESULTS.json as they end; a table is printed at the end. Exit status 1 if a
row's outputs differ, or Pando is slower than SGLang by more than the bar.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
SLOWER_AT_MOST = 1.02
LIMIT_S = 170
CHILD = Path(__file__).with_name("sglang_gpu_child.py")


def start(row: str, cache: str, *, turns: int = 10, bursts: int = 5) -> dict[str, Any] | None:
    """One engine's results; nothing where it did not come to an end."""
    mode, page, layout = row.split(",")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        spec = {
            "mode": mode,
            "page": int(page),
            "layout": layout,
            "cache": cache,
            "shape": os.environ.get("PANDO_SHAPE", "8b"),
            "store": folder,
            "turns": turns,
            "bursts": bursts,
        }
        files = {end: Path(folder) / f"run.{end}" for end in ("spec", "json", "log")}
        files["spec"].write_text(json.dumps(spec))
        with files["log"].open("w") as log:
            command = [sys.executable, CHILD, files["spec"], files["json"]]
            try:
                subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                print(f"{row} {cache}: no end after {LIMIT_S} s", file=sys.stderr)
        if not files["json"].exists():
            print(f"{row} {cache} failed:\n{files['log'].read_text()[-3000:]}", file=sys.stderr)
            return None
        return json.loads(files["json"].read_text())


def share(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def figures(result: dict[str, Any]) -> dict[str, float]:
    later = [request["first_s"] for request in result["serial"] if request["turn"] > 0]
    together = [first for burst in result["bursts"] for first in burst["first_s"]]
    return {
        "cached_tokens": sum(request["cached"] for request in result["serial"]),
        "burst_cached_tokens": sum(burst["cached"] for burst in result["bursts"]),
        "first_token_p50_ms": 1e3 * share(later, 0.5),
        "first_token_p90_ms": 1e3 * share(later, 0.9),
        "burst_first_token_p50_ms": 1e3 * share(together, 0.5),
        "burst_first_token_p90_ms": 1e3 * share(together, 0.9),
        "burst_s": sum(burst["wall_s"] for burst in result["bursts"]) / len(result["bursts"]),
        "decode_tokens_per_s": result["decode_tokens_per_s"],
    }


def compare(row: str) -> dict[str, Any]:
    stock, ours = start(row, "stock"), start(row, "pando")
    mode, page, layout = row.split(",")
    compared: dict[str, Any] = {"engine": "sglang", "mode": mode, "page": int(page), "layout": layout}
    for name, result in (("stock", stock), ("pando", ours)):
        if result is not None:
            compared["version"] = result["version"]
            compared[name] = figures(result)
    if stock is not None and ours is not None:
        pairs = list(zip(stock["serial"], ours["serial"], strict=True))
        compared["outputs"] = len(pairs)
        compared["outputs_equal"] = sum(a["output"] == b["output"] for a, b in pairs)
    print(json.dumps(compared), flush=True)
    return compared


def problems(row: dict[str, Any]) -> list[str]:
    name = f"{row['mode']}, pages of {row['page']}, {row['layout']}"
    if "pando" not in row:
        return [f"{name}: no engine with Pando came to an end"]
    if "stock" not in row:
        return []
    found = []
    if row["outputs_equal"] != row["outputs"]:
        found.append(f"{name}: {row['outputs_equal']} of {row['outputs']} outputs are equal")
    for figure in ("first_token_p50_ms", "first_token_p90_ms", "burst_s"):
        ratio = row["pando"][figure] / row["stock"][figure]
        if ratio > SLOWER_AT_MOST:
            found.append(f"{name}: {figure} {ratio:.2f} of SGLang's")
    return found


def table(rows: list[dict[str, Any]]) -> str:
    """Figures of SGLang / Pando."""
    lines = [
        "| cache | page | layout | outputs equal | cached tokens | first token p50, ms | p90, ms |"
        " burst, s | first token in it p50, ms | p90, ms | decoded tokens/s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    columns = (
        ("cached_tokens", "{:.0f}"),
        ("first_token_p50_ms", "{:.1f}"),
        ("first_token_p90_ms", "{:.1f}"),
        ("burst_s", "{:.2f}"),
        ("burst_first_token_p50_ms", "{:.0f}"),
        ("burst_first_token_p90_ms", "{:.0f}"),
        ("decode_tokens_per_s", "{:.0f}"),
    )
    for row in rows:
        cells = [row["mode"], str(row["page"]), row["layout"]]
        cells.append(f"{row.get('outputs_equal', '–')} of {row.get('outputs', '–')}")
        for figure, form in columns:
            pair = (row[name][figure] if name in row else None for name in ("stock", "pando"))
            cells.append(" / ".join("–" if value is None else form.format(value) for value in pair))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    results = Path(sys.argv[1])
    rows: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    if not os.environ.get("PANDO_WARM"):
        start("plain,64,layer_first", "stock", turns=1, bursts=1)
    for row in sys.argv[2:] or ROWS:
        rows.append(compare(row))
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(rows, indent=1))
    print(table(rows))
    found = [problem for row in rows for problem in problems(row)]
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
