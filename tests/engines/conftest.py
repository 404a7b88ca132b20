# SPDX-License-Identifier: Apache-2.0
"""Prints, at the end, cached tokens side by side; and writes them to PANDO_ENGINES_OUT, a file for
each engine: cached-sglang.json, cached-vllm.json."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

_rows: list[dict[str, Any]] = []


@pytest.fixture
def record(request: Any) -> Any:
    """record(version, configuration, stock, ours)"""
    engine = request.module.__name__.rpartition("test_")[2]

    def add(version: str, configuration: str, stock: Any, ours: Any) -> None:
        _rows.append(
            {
                "engine": engine,
                "version": version,
                "configuration": configuration,
                "requests": len(ours.requests),
                "prompt_tokens": sum(request["prompt"] for request in ours.requests),
                "cached_stock": stock.cached(),
                "cached_pando": ours.cached(),
            }
        )

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _rows:
        return
    terminalreporter.section("cached tokens")
    layout = "{engine:6} {version:>7} {configuration:28} {requests:4} requests {prompt_tokens:6} tokens, cached: {cached_stock:6} engine {cached_pando:6} pando"
    for row in _rows:
        terminalreporter.write_line(layout.format(**row))
    out = Path(os.environ.get("PANDO_ENGINES_OUT", "build/engines/out"))
    out.mkdir(parents=True, exist_ok=True)
    for engine in {row["engine"] for row in _rows}:
        rows = [row for row in _rows if row["engine"] == engine]
        (out / f"cached-{engine}.json").write_text(json.dumps(rows, indent=1))
