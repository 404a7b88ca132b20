# SPDX-License-Identifier: Apache-2.0
"""Traces, replays and plans: against the command, against each other, against plain Python."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pando

ROOT = Path(__file__).parents[2]


def command() -> str:
    """The pando command: PANDO_COMMAND, or that of a release build."""
    for path in (os.environ.get("PANDO_COMMAND", ""), str(ROOT / "build/release/pando")):
        if path and os.access(path, os.X_OK):
            return path
    pytest.skip("there is no pando command; set PANDO_COMMAND")


def timeless(results: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run."""
    left = {k: v for k, v in results.items() if k not in ("operations", "memory", "wall_seconds")}
    return {**left, "operations": {k: v["count"] for k, v in results["operations"].items()}}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "chat.jsonl"
    assert pando.generate("chat", requests=400, seed=5).write(path) == 400
    return path


# ---- Traces -------------------------------------------------------------------------------------


def test_a_trace_is_read_as_often_as_wanted(chat: Path) -> None:
    trace = pando.open_trace(chat)
    first = [(r.arrival_s, r.input_length, r.blocks.tolist()) for r in trace]
    assert first == [(r.arrival_s, r.input_length, r.blocks.tolist()) for r in trace]
    assert len(first) == 400 and trace.files == [str(chat)] and trace.block_tokens == 16
    assert all(-(-length // 16) == len(blocks) for _, length, blocks in first)


def test_what_is_generated_is_what_the_command_generates(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for workload in pando.workload_names():
        pando.generate(workload, requests=50, seed=9, rate=2.5).write(ours)
        subprocess.run(
            [command(), "gen", workload, "--requests", "50", "--seed", "9", "--rate", "2.5"]
            + ["--quiet", "-o", str(theirs)],
            check=True,
        )
        assert ours.read_bytes() == theirs.read_bytes(), workload


def test_traces_from_python() -> None:
    lines = [
        {"timestamp": 1000 * i, "input_length": 8, "output_length": 2, "hash_ids": [1, 10 + i]}
        for i in range(4)
    ]
    trace = pando.Trace(lines, block_tokens=4)
    requests = list(trace)
    assert [r.arrival_s for r in requests] == [0, 1, 2, 3] and trace.block_tokens == 4
    again = pando.Trace(requests, block_tokens=4)
    assert [r.blocks.tolist() for r in again] == [r.blocks.tolist() for r in requests]
    results = pando.replay(again, device=1000)
    assert results.hit_blocks == {"device": 3} and results.unique_blocks == 5
    tokens = pando.Trace([{"tokens": list(range(40)), "output_length": 1, "timestamp": 0}] * 2)
    results = pando.replay(tokens, page_size=4, device=1000)
    assert results.requests == 2 and results.hit_ratio_blocks > 0
    assert results.to_dict()["trace"]["format"] == "tokens"


def test_bad_traces_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(pando.InvalidArgument, match="request 1"):
        pando.Trace([{"input_length": "many"}])
    with pytest.raises(pando.NotFound, match="no requests"):
        pando.replay(pando.Trace([], block_tokens=4))
    with pytest.raises(pando.Error, match="nowhere"):
        pando.replay(tmp_path / "nowhere")
    bad = tmp_path / "bad.jsonl"
    good = pando.generate("batch", requests=2)
    good.write(bad)
    bad.write_text(bad.read_text() + "nonsense\n")
    with pytest.raises(pando.Error, match="bad.jsonl"):
        list(pando.open_trace(bad))
    reading = iter(pando.open_trace(bad, skip_bad=True))
    assert len(list(reading)) == 2 and reading.skipped_lines == 1
    with pytest.raises(pando.InvalidArgument, match="standard input"):
        pando.open_trace(["-", "-"])
    with pytest.raises(pando.InvalidArgument, match="none"):
        pando.open_trace([])
    with pytest.raises(pando.InvalidArgument, match="picnic"):
        pando.generate("picnic")
    with pytest.raises(TypeError, match="no option 'turn'"):
        pando.generate("chat", turn=3)  # type: ignore[call-arg]
    with pytest.raises(pando.InvalidArgument, match="requests"):
        pando.generate("chat", requests="many")  # type: ignore[arg-type]


def test_several_files_and_compressed_ones(chat: Path, tmp_path: Path) -> None:
    packed = tmp_path / "chat.jsonl.gz"
    packed.write_bytes(gzip.compress(chat.read_bytes()))
    both = pando.open_trace([chat, packed], same_ids=True)
    assert len(list(both)) == 800
    assert pando.replay(both).unique_blocks == pando.replay(chat).unique_blocks
    apart = pando.open_trace([chat, packed])
    assert pando.replay(apart).unique_blocks == 2 * pando.replay(chat).unique_blocks


def test_models() -> None:
    names = pando.model_names()
    assert names and pando.find_model(names[0]).name
    with pytest.raises(pando.Error):
        pando.find_model("no-such-model")


# ---- Replaying ----------------------------------------------------------------------------------

FLAGS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    (
        {"page_size": 16, "device": "20%", "policy": "lfu"},
        ["--page", "16", "--device", "20%", "--policy", "lfu"],
    ),
    (
        {"device": 40_000, "host": "10%", "write_policy": "write_through_selective", "bytes": True},
        ["--device", "40000tok", "--host", "10%", "--write-policy", "write_through_selective"]
        + ["--bytes"],
    ),
    (
        {"device": 60_000, "window": 256, "window_share": 0.9, "namespaces": "session"},
        ["--device", "60000tok", "--window", "256", "--window-share", "0.9"]
        + ["--namespaces", "session"],
    ),
    (
        {"mode": "timed", "device": 80_000, "max_running": 4, "speed": 2.0, "prefill_rate": 9000},
        ["--mode", "timed", "--device", "80000tok", "--max-running", "4", "--speed", "2"]
        + ["--prefill-rate", "9000"],
    ),
    ({"device": "2GiB", "model": "llama-3.1-8b"}, ["--device", "2GiB", "--model", "llama-3.1-8b"]),
]


@pytest.mark.parametrize(("options", "flags"), FLAGS)
def test_a_replay_is_that_of_the_command(
    chat: Path, tmp_path: Path, options: dict[str, Any], flags: list[str]
) -> None:
    if "model" in options and options["model"] not in pando.model_names():
        options = {**options, "model": pando.model_names()[0]}
        flags = [*flags[:-1], pando.model_names()[0]]
    path = tmp_path / "results.json"
    subprocess.run(
        [command(), "replay", str(chat), *flags, "--json", str(path), "--quiet"], check=True
    )
    results = pando.replay(chat, **options)
    assert timeless(results.to_dict()) == timeless(json.loads(path.read_text()))


def test_attributes_are_those_of_the_dict(chat: Path) -> None:
    results = pando.replay(chat, device="10%", host="20%", check_every=100)
    told = results.to_dict()
    for name in ("requests", "blocks", "unique_blocks", "hit_ratio_blocks", "hit_ratio_tokens"):
        assert getattr(results, name) == told[name]
    assert results.misses == told["misses"]
    for tier, figures in told["tiers"].items():
        for name in ("hit_blocks", "hit_tokens", "capacity_tokens", "peak_tokens"):
            assert getattr(results, name)[tier] == figures[name]
    assert set(results.hit_blocks) == {"device", "host"}
    series = results.series
    assert series["end_request"].tolist() == [p["end_request"] for p in told["series"]]
    assert np.allclose(series["hit_ratio_device"], [p["hit_ratio_device"] for p in told["series"]])
    assert results.backed_up_tokens == told["tokens_moved"]["device_to_host"] > 0
    assert repr(results).startswith("ReplayResults(requests=400")


requests = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=20)


def chained(rows: list[list[int]]) -> list[list[int]]:
    """Ids that mean equal content and equal prefix."""
    names: dict[tuple[int, ...], int] = {}
    return [
        [names.setdefault(tuple(row[: i + 1]), len(names)) for i in range(len(row))]
        for row in rows
    ]


def lru_hits(rows: list[list[int]], capacity: int) -> int:
    """A plain LRU of blocks where the ends of prefixes go first."""
    cached: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in rows:
        row = row[:capacity]
        known = 0
        while known < len(row) and row[known] in cached:
            known += 1
        hits += known
        for block in reversed(row):
            cached.pop(block, None)
            cached[block] = None
        while len(cached) > capacity:
            cached.popitem(last=False)
    return hits


@settings(deadline=None, max_examples=60)
@given(requests, st.integers(1, 8))
def test_hits_of_small_traces_are_those_of_a_plain_lru(
    rows: list[list[int]], capacity: int
) -> None:
    rows = chained(rows)
    lines = [
        {"timestamp": i, "input_length": 4 * len(row), "output_length": 1, "hash_ids": row}
        for i, row in enumerate(rows)
    ]
    results = pando.replay(pando.Trace(lines, block_tokens=4), device=4 * capacity, check_every=1)
    assert results.hit_blocks["device"] == lru_hits(rows, capacity)


def test_bad_options_are_refused_before_anything_runs(chat: Path) -> None:
    for options in (
        {"device": "many"},
        {"device": True},
        {"device": 0},
        {"policy": "nonsense"},
        {"mode": "slow"},
        {"namespaces": "all"},
        {"write_policy": "never"},
        {"window": "wide"},
        {"device": "64GiB"},  # without a model nobody knows how many tokens that is
        {"store": 1000},  # needs a host
        {"page_size": 3},
    ):
        with pytest.raises(pando.Error):
            pando.replay(chat, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'size'"):
        pando.replay(chat, size=3)  # type: ignore[call-arg]


def test_progress_is_told_and_may_stop(chat: Path) -> None:
    told: list[tuple[float, int]] = []

    def progress(share: float, count: int) -> bool:
        told.append((share, count))
        return False

    results = pando.replay(chat, progress=progress)
    assert len(told) == 1 and results.requests == 0

    def fails(share: float, count: int) -> bool:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        pando.replay(chat, progress=fails)
    with pytest.raises(KeyError, match="stop"):
        pando.plan(chat, progress=fails)


def test_other_threads_run_meanwhile() -> None:
    trace = pando.generate("agent", requests=3000, seed=2)
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    pando.replay(trace, device="10%")
    stop.set()
    thread.join()
    assert counted[0] > 3


@pytest.mark.parametrize(
    "call", ["replay(trace, device=100_000)", "plan(trace)", "why(trace, 10**9)"]
)
def test_ctrl_c_ends_it(call: str) -> None:
    code = f"""
import pando
trace = pando.generate('agent', requests=10**8, seed=2)
print('begin', flush=True)
try:
    pando.{call}
except KeyboardInterrupt:
    print('interrupted')
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "begin\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert out == "interrupted\n" and err == "" and process.returncode == 0


# ---- Planning and explaining --------------------------------------------------------------------


def test_a_plan_is_that_of_replays(chat: Path) -> None:
    plan = pando.plan(chat, policy="lfu", at=["200blocks", 16 * 500])
    assert [c.policy for c in plan.curves] == ["lru", "lfu", "optimum", "ceiling"]
    assert plan.requests == 400 and plan.block_tokens == 16 and plan.sample_rate == 1
    lru = plan.curve("lru")
    assert lru.capacity_blocks.dtype == np.uint64 and lru.hit_ratio.dtype == np.float64
    assert {200, 500} <= set(lru.capacity_blocks.tolist())
    assert (np.diff(lru.capacity_blocks.astype(int)) > 0).all()
    whole = pando.replay(chat, device=16 * plan.unique_blocks)
    assert plan.infinite_hit_ratio == pytest.approx(whole.hit_ratio_blocks)
    for policy in ("lru", "lfu"):
        curve = plan.curve(policy)
        for blocks in (200, 500):
            results = pando.replay(chat, device=16 * blocks, policy=policy)
            assert curve.at(blocks) == pytest.approx(results.hit_ratio_blocks, abs=0.02)
    ceiling, optimum = plan.curve("ceiling"), plan.curve("optimum")
    assert (ceiling.hit_ratio >= optimum.hit_ratio - 1e-12).all()
    assert plan.knee_blocks in lru.capacity_blocks
    with pytest.raises(pando.NotFound, match="nobody"):
        plan.curve("nobody")


def test_a_plan_is_that_of_the_command(chat: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    model = pando.model_names()[0]
    subprocess.run(
        [command(), "plan", str(chat), "--policy", "lfu", "--model", model]
        + ["--json", str(path), "--quiet"],
        check=True,
    )
    told = json.loads(path.read_text())
    del told["recommendation"]["text"]  # words for people
    assert pando.plan(chat, policy=["lfu"], model=model).to_dict() == told


def test_bad_plans_are_refused(chat: Path) -> None:
    for options in ({"at": ["5%"]}, {"policy": "nonsense"}, {"at": ["1GiB"]}, {"model": "x"}):
        with pytest.raises(pando.Error):
            pando.plan(chat, **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pando.plan(chat, device=3)  # type: ignore[call-arg]


def test_why_tells_of_every_block(chat: Path, tmp_path: Path) -> None:
    story = pando.why(chat, 300, device="5%")
    assert story.request == 300 and story.blocks[0].begin == 0
    assert story.blocks[-1].end == story.num_blocks
    assert all(a.end == b.begin for a, b in zip(story.blocks, story.blocks[1:]))
    for part in story.blocks:
        assert (part.eviction is not None) == (part.finding == pando.Finding.evicted)
    path = tmp_path / "why.json"
    subprocess.run(
        [command(), "why", str(chat), "--request", "300", "--device", "5%"]
        + ["--json", str(path), "--quiet"],
        check=True,
    )
    told = json.loads(path.read_text())
    assert [(p["from_block"], p["to_block"]) for p in told["parts"]] == [
        (p.begin, p.end) for p in story.blocks
    ]
    with pytest.raises(pando.NotFound, match="the trace has 400"):
        pando.why(chat, 401)
