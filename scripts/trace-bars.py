#!/usr/bin/env python3
"""Replays and plans the public traces, and compares with the figures that are published for them.

    scripts/trace-bars.py DIRECTORY      with conversation.jsonl, synthetic.jsonl, agent.jsonl.gz

Hit ratios of block LRU at shares of the different blocks; the offline optimum; seconds and memory.
"""
import json
import os
import subprocess
import sys

PANDO = os.path.join(os.path.dirname(__file__), "..", "build", "release", "pando")
SHARES = ["1%", "5%", "10%", "25%", "50%"]
LRU = {
    "conversation.jsonl": [0.0525, 0.1958, 0.2789, 0.3535, 0.3631],
    "synthetic.jsonl": [0.0381, 0.1566, 0.2623, 0.4441, 0.5888],
    "agent.jsonl.gz": [0.1280, 0.7237, 0.9032, 0.9552, 0.9599],
}
CEILING = {  # furthest next use, which may also not keep a block: capacity in blocks, hit ratio
    "conversation.jsonl": [(5859, 0.353), (9139, 0.366)],
    "synthetic.jsonl": [(10981, 0.626)],
    "agent.jsonl.gz": [(1885, 0.358), (9427, 0.838)],
}
failed = 0


def check(name, measured, low, high):
    global failed
    met = low <= measured <= high
    failed += not met
    print(f"{'met   ' if met else 'MISSED'}  {name}: {measured:.4f}  (from {low:.4f} to {high:.4f})")


def pando(*arguments):
    """Its results, seconds, and peak memory in MiB."""
    before = os.times()
    with subprocess.Popen([PANDO, *arguments, "--json", "-", "--quiet"], stdout=subprocess.PIPE) as running:
        results = json.load(running.stdout)
        _, status, usage = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    return results, os.times().elapsed - before.elapsed, usage.ru_maxrss / 1024


for trace, expected in LRU.items():
    path = os.path.join(sys.argv[1], trace)
    for share, ratio in zip(SHARES, expected):
        results, seconds, mebibytes = pando("replay", path, "--device", share)
        check(f"replay {trace} at {share}", results["hit_ratio_blocks"], ratio - 0.002, ratio + 0.002)
        if trace.startswith("agent"):
            check(f"replay {trace} at {share}, seconds", seconds, 0, 10)
            check(f"replay {trace} at {share}, MiB", mebibytes, 0, 1024)
    at = ",".join(f"{blocks}blocks" for blocks, _ in CEILING[trace])
    results, seconds, mebibytes = pando("plan", path, "--at", at)
    ceiling = {p["capacity_blocks"]: p["hit_ratio_blocks"]
               for curve in results["curves"] if curve["policy"] == "ceiling" for p in curve["points"]}
    for blocks, ratio in CEILING[trace]:
        check(f"plan {trace}, ceiling at {blocks} blocks", ceiling[blocks], ratio - 0.002, ratio + 0.002)
    if trace.startswith("agent"):
        check(f"plan {trace}, seconds", seconds, 0, 5)
        check(f"plan {trace}, MiB", mebibytes, 0, 1024)
sys.exit(1 if failed else 0)
