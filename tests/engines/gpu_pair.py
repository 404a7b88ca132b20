# SPDX-License-Identifier: Apache-2.0
"""Two engines on one GPU, the engine's own cache and Pando's, given the same requests in turns.

A machine's clocks and its neighbours change from minute to minute, so figures of one engine after
the other do not compare. Here both are started at the same time, and each step is asked of one and
then of the other, the first of the two changing with every step. While one is asked, the processes
of the other are stopped: an idle engine spins, and would slow the other down by up to a half, since
a prefill waits for the processor that launches its kernels.

A child is a script that reads its spec, starts its engine, prints READY, and answers each name of a
step that it reads from its input with one line: ANSWER and the result in JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

READY, ANSWER = "PANDO-READY", "PANDO-ANSWER "
SLOWER_AT_MOST = 1.02
COPIES_END_S = 0.2  # after a step, to host and store


class Child:
    """A process with an engine. What else it prints is its log."""

    def __init__(self, script: Path, spec: dict[str, Any], folder: Path) -> None:
        self.name = spec["cache"]
        self._log = folder / f"{self.name}.log"
        file = folder / f"{self.name}.spec"
        file.write_text(json.dumps(spec))
        environment = dict(os.environ)
        if times := environment.get("PANDO_TIMES"):
            environment["PANDO_TIMES"] = f"{times}.{self.name}"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, script, file],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        self._line(READY)

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def ask(self, step: str) -> Any:
        self._process.stdin.write(step + "\n")
        self._process.stdin.flush()
        return json.loads(self._line(ANSWER))

    def close(self) -> None:
        """The end of its input, after which it shuts down."""
        self._process.stdin.close()

    def wait(self) -> None:
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process.stdout.close()

    def _line(self, start: str) -> str:
        for line in self._process.stdout:
            if line.startswith(start):
                return line[len(start) :]
            with self._log.open("a") as log:
                log.write(line)
        raise RuntimeError(f"{self.name} ended early:\n{self._log.read_text()[-3000:]}")


def serve(answer: Callable[[str], Any]) -> None:
    """What a child does once its engine runs, until its input ends."""
    print(READY, flush=True)
    for line in sys.stdin:
        print(ANSWER + json.dumps(answer(line.strip())), flush=True)


def run_pair(script: Path, spec: dict[str, Any], steps: list[str]) -> dict[str, list[Any]]:
    """The answers of both, in the order of `steps`. Raises RuntimeError where one ended early."""
    answers: dict[str, list[Any]] = {"stock": [], "pando": []}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        children = []
        try:
            for cache in answers:
                (folder / cache).mkdir()
                own = spec | {"cache": cache, "store": str(folder / cache)}
                children.append(Child(script, own, folder))
            for child in children:
                child.wait_ready()
            print(f"both engines ready after {time.monotonic() - began:.0f} s", flush=True)
            for child in children:
                child.stop()
            for number, step in enumerate(steps):
                for child in children if number % 2 == 0 else reversed(children):
                    child.go_on()
                    answers[child.name].append(child.ask(step))
                    time.sleep(COPIES_END_S)
                    child.stop()
        finally:
            for child in children:
                child.go_on()
                child.close()
            for child in children:
                child.wait()
    return answers


# ---- What came of it ---------------------------------------------------------------------------


def share(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


def figures(steps: list[str], answers: list[Any]) -> dict[str, float]:
    """Times to the first token are those of requests that could find something: not of turn 0."""
    turns = [answer for step, answer in zip(steps, answers) if step == "turn"]
    bursts = [answer for step, answer in zip(steps, answers) if step == "burst"]
    rates = [answer for step, answer in zip(steps, answers) if step == "decode"]
    later = [request["first_s"] for turn in turns[1:] for request in turn]
    together = [first for burst in bursts for first in burst["first_s"]]
    return {
        "cached_tokens": sum(request["cached"] for turn in turns for request in turn),
        "burst_cached_tokens": sum(burst["cached"] for burst in bursts),
        "first_token_p50_ms": 1e3 * share(later, 0.5),
        "first_token_p90_ms": 1e3 * share(later, 0.9),
        "burst_first_token_p50_ms": 1e3 * share(together, 0.5),
        "burst_first_token_p90_ms": 1e3 * share(together, 0.9),
        "burst_s": share([burst["wall_s"] for burst in bursts], 0.5),
        "decode_tokens_per_s": max(rates),
    }


def compare(script: Path, spec: dict[str, Any], turns: int, bursts: int) -> dict[str, Any]:
    """One row of the results."""
    steps = ["warm", *["turn"] * turns, *["burst"] * bursts, *["decode"] * 2]
    began = time.monotonic()
    answers = run_pair(script, spec, steps)
    outputs = {
        name: [request["output"] for step, turn in zip(steps, of) if step == "turn" for request in turn]
        for name, of in answers.items()
    }
    pairs = list(zip(outputs["stock"], outputs["pando"], strict=True))
    return spec | {
        "stock": figures(steps, answers["stock"]),
        "pando": figures(steps, answers["pando"]),
        "outputs": len(pairs),
        "outputs_equal": sum(a == b for a, b in pairs),
        "took_s": time.monotonic() - began,
    }


def problems(name: str, row: dict[str, Any]) -> list[str]:
    """Where outputs differ, hits are lost, or Pando is slower than the bar."""
    stock, ours = row["stock"], row["pando"]
    found = []
    if row["outputs_equal"] != row["outputs"]:
        found.append(f"{name}: {row['outputs_equal']} of {row['outputs']} outputs are equal")
    if ours["cached_tokens"] < stock["cached_tokens"]:
        found.append(f"{name}: {ours['cached_tokens']} cached tokens, {stock['cached_tokens']} without Pando")
    for figure in ("first_token_p50_ms", "first_token_p90_ms", "burst_s"):
        ratio = ours[figure] / stock[figure]
        if ratio > SLOWER_AT_MOST:
            found.append(f"{name}: {figure} is {ratio:.2f} of the engine's own")
    return found


COLUMNS = (
    ("cached tokens", "cached_tokens", "{:.0f}"),
    ("first token p50, ms", "first_token_p50_ms", "{:.1f}"),
    ("p90, ms", "first_token_p90_ms", "{:.1f}"),
    ("burst, s", "burst_s", "{:.2f}"),
    ("cached in bursts", "burst_cached_tokens", "{:.0f}"),
    ("first token in it p50, ms", "burst_first_token_p50_ms", "{:.0f}"),
    ("p90, ms", "burst_first_token_p90_ms", "{:.0f}"),
    ("decoded tokens/s", "decode_tokens_per_s", "{:.0f}"),
)


def table(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> str:
    """In Markdown; figures are the engine's own / Pando's."""
    heads = [*keys, "outputs equal", *(column[0] for column in COLUMNS)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [str(row[key]) for key in keys]
        cells.append(f"{row['outputs_equal']} of {row['outputs']}")
        for _, figure, form in COLUMNS:
            cells.append(" / ".join(form.format(row[name][figure]) for name in ("stock", "pando")))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def run_rows(
    engine: str,
    rows: tuple[str, ...],
    keys: tuple[str, ...],
    compare_row: Callable[[str], dict[str, Any]],
    problems_of: Callable[[str, dict[str, Any]], list[str]] = problems,
) -> int:
    """What gpu_ENGINE.py does with its arguments, a file of results and rows. Rows are added to the
    file as they end; a table of this engine's is printed at the end. The exit status: 1 if a row has
    problems."""
    results = Path(sys.argv[1])
    done: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    found = []
    for name in sys.argv[2:] or rows:
        try:
            row = compare_row(name)
        except RuntimeError as error:
            found.append(f"{name}: {error}")
            continue
        found += problems_of(name, row)
        print(json.dumps(row), flush=True)
        done.append(row)
        results.parent.mkdir(parents=True, exist_ok=True)
        results.write_text(json.dumps(done, indent=1))
    print(table([row for row in done if row["engine"] == engine], keys))
    print("\n".join(found), file=sys.stderr)
    return 1 if found else 0
