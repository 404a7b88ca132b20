# SPDX-License-Identifier: Apache-2.0
"""Pando's offloading manager beside vLLM's own, call by call, with requests of 256 chunks.

    python python/bench/offload.py OUT.json          exits 1 if a bar is missed
    python python/bench/offload.py OUT.json --once   few rounds and no verdict: does it work?

Needs vLLM (scripts/engine-env.sh vllm-0.32.0); scripts/bench-offload.sh runs it there. All managers see
the same keys in turns; a figure is the best of its rounds, in processor time, and a ratio is vLLM's
time over Pando's. The host holds 8192 chunks, and 131072 to see what grows with it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pando.vllm.manager import PandoOffloadingManager
from vllm.v1.kv_offload.base import ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

KEYS = 256
SIZES = (8192, 131072)
ONCE = "--once" in sys.argv
AT_LEAST = 2.0

Makers = dict[str, Callable[[int], Any]]
MANAGERS: Makers = {
    "vllm lru": lambda chunks: CPUOffloadingManager(chunks, cache_policy="lru"),
    "vllm arc": lambda chunks: CPUOffloadingManager(chunks, cache_policy="arc"),
    "pando lru": lambda chunks: PandoOffloadingManager(chunks, policy="lru"),
    "pando hazard": lambda chunks: PandoOffloadingManager(chunks, policy="hazard"),
}


class Requests:
    """Requests for one manager, whose host is full from the start."""

    def __init__(self, manager: Any, num_chunks: int) -> None:
        self.manager = manager
        self.number = 0
        self.times: dict[str, float] = {}
        self.stored: list[list[Any]] = []
        for _ in range(num_chunks // KEYS):
            self.store()
        self.times.clear()

    def timed(self, name: str, call: Callable[[], Any], times: int = 1) -> Any:
        start = time.process_time_ns()
        for _ in range(times):
            result = call()
        spent = (time.process_time_ns() - start) / 1000 / times
        self.times[name] = min(spent, self.times.get(name, spent))
        return result

    def look_up(self, name: str, keys: list[Any], context: Any) -> None:
        """As often as a request that waits for some steps is looked up."""
        lookup = self.manager.lookup
        self.timed(name, lambda: [lookup(key, context) for key in keys], times=5)

    def context(self, keys: list[Any]) -> Any:
        self.number += 1
        context = ReqContext(f"r{self.number}")
        for position, key in enumerate(keys):
            context.set_offload_key_position(key, 16 * (position + 1))
        self.manager.on_new_request(context)
        return context

    def store(self) -> None:
        """A prompt that nobody has seen: looked up, stored, ended."""
        keys = [make_offload_key(os.urandom(32), 0) for _ in range(KEYS)]
        context = self.context(keys)
        manager = self.manager
        begin = time.process_time_ns()
        self.look_up("lookup, absent", keys, context)
        output = self.timed("prepare_store", lambda: manager.prepare_store(keys, context))
        wanted = set(output.keys_to_store)
        self.timed("complete_store", lambda: manager.complete_store(wanted, context))
        self.timed("request_finished", lambda: manager.on_request_finished(context))
        spent = (time.process_time_ns() - begin) / 1000
        self.times["a new prompt"] = min(spent, self.times.get("a new prompt", spent))
        self.stored = [*self.stored[-4:], keys]

    def load(self) -> None:
        """The prompt before the last comes back: looked up, touched, loaded, ended."""
        keys = self.stored[0]
        context = self.context(keys)
        manager = self.manager
        if any(manager.lookup(key, context).name != "HIT" for key in keys):
            return
        begin = time.process_time_ns()
        self.look_up("lookup, there", keys, context)
        self.timed("prepare_load", lambda: manager.prepare_load(keys, context))
        self.timed("complete_load", lambda: manager.complete_load(keys, context))
        self.timed("touch", lambda: manager.touch(keys, context))
        self.timed("request_finished, loaded", lambda: manager.on_request_finished(context))
        spent = (time.process_time_ns() - begin) / 1000
        self.times["a prompt again"] = min(spent, self.times.get("a prompt again", spent))


def measure(num_chunks: int) -> dict[str, dict[str, float]]:
    sides = {name: Requests(make(num_chunks), num_chunks) for name, make in MANAGERS.items()}
    for _ in range(1 if ONCE else 60):
        for side in sides.values():
            side.store()
            side.load()
    return {name: side.times for name, side in sides.items()}


def main() -> int:
    figures = {str(size): measure(size) for size in SIZES}
    missed = []
    for size, sides in figures.items():
        print(f"\n{size} chunks on the host; µs for {KEYS} keys")
        print(f"{'':26}" + "".join(f"{name:>14}" for name in sides) + f"{'lru ratio':>12}")
        for call in sides["pando lru"]:
            row = [times.get(call, float("nan")) for times in sides.values()]
            ratio = sides["vllm lru"][call] / sides["pando lru"][call]
            print(f"{call:26}" + "".join(f"{value:14.1f}" for value in row) + f"{ratio:12.1f}")
            if ratio < AT_LEAST and not ONCE:
                missed.append(f"{call} at {size} chunks: {ratio:.1f}, expected {AT_LEAST}")
    with open(sys.argv[1], "w") as file:
        json.dump(figures, file, indent=1)
    for miss in missed:
        print(f"missed: {miss}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
