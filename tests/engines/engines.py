# SPDX-License-Identifier: Apache-2.0
"""What the tests of whole engines share: models, processes with an engine each, and their results.

An engine is a process of its own that takes a list of steps (steps.py) and writes what it answered.
test_sglang.py and test_vllm.py say which engines are started and what must be true of them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
OUT = Path(os.environ.get("PANDO_ENGINES_OUT", "build/engines/out")).absolute()
LIMIT_S = 420


@dataclasses.dataclass
class Result:
    """What the engines of one configuration did, life after life."""

    requests: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)
    logs: list[str] = dataclasses.field(default_factory=list)  # of each life

    @property
    def log(self) -> str:
        return "".join(self.logs)

    def cached(self, step: str | None = None) -> int:
        return sum(
            request["cached"] for request in self.requests if step in (None, request["step"])
        )

    def of_life(self, life: int) -> list[dict[str, Any]]:
        return [request for request in self.requests if request["life"] == life]

    def add(self, life: int, data: dict[str, Any], log: str) -> None:
        self.requests += [request | {"life": life} for request in data["requests"]]
        self.notes |= data["notes"]
        self.logs.append(log)


@dataclasses.dataclass
class Engine:
    """A process with an engine; `child` is a script of this folder."""

    child: str
    spec: dict[str, Any]
    folder: Path
    name: str
    environment: dict[str, str]

    def start(self) -> Engine:
        path = self.path("spec")
        path.write_text(json.dumps(self.spec))
        with self.path("log").open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, HERE / self.child, path, self.path("json")],
                env=os.environ | self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Until it has ended: its exit status. One that does not end is killed."""
        try:
            return self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"{self.name}: no end after {limit_s} s\n{self.log()[-6000:]}")

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def path(self, end: str) -> Path:
        return self.folder / f"{self.name}.{end}"

    def log(self) -> str:
        return self.path("log").read_text(errors="replace")

    def data(self) -> dict[str, Any]:
        """What it wrote; a failure shows the end of its log."""
        if not self.path("json").exists():
            pytest.fail(f"{self.folder.name} {self.name} ended early:\n{self.log()[-6000:]}")
        return json.loads(self.path("json").read_text())


def model(kind: str, python_path: str) -> Path:
    """A folder with a model, made in a process of its own by the Transformers of that path."""
    folder = OUT / "models" / kind
    if not (folder / "done").exists():
        subprocess.run(
            [sys.executable, HERE / "models.py", folder, kind],
            env=os.environ | {"PYTHONPATH": python_path},
            check=True,
        )
    return folder


def check_log(log: str, signs: Iterable[str]) -> None:
    """Engines say what went wrong in their log."""
    for line in log.splitlines():
        for sign in signs:
            assert sign not in line, f"{line}\n{log[-6000:]}"


def assert_alike(stock: Result, ours: Result) -> None:
    """The same requests, and every output equal token by token."""
    steps = [request["step"] for request in stock.requests]
    assert [request["step"] for request in ours.requests] == steps
    for number, (theirs, mine) in enumerate(zip(stock.requests, ours.requests)):
        assert mine["output"] == theirs["output"], f"request {number} ({steps[number]})"
        assert mine["prompt"] == theirs["prompt"]
