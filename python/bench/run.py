# SPDX-License-Identifier: Apache-2.0
"""The Python package against its limits: what a call costs beyond its C++ time, and the SGLang
plug-in beside a prefix cache in plain Python with the same interface (python_radix.py).

    python python/bench/run.py OUT.json            exits 1 if a bar is missed
    python python/bench/run.py OUT.json --once     few rounds and no verdict: does it work?

Both sides of a ratio run in turns, in this process; each figure is a median of rounds, or the ratio
of the best rounds where calls are timed one by one.
"""

from __future__ import annotations

import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
import timeit
from array import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pando
from python_radix import PythonRadixCache

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests"))
import sglang_standins as standins  # noqa: E402

from pando.sglang.interface import Interface  # noqa: E402
from pando.sglang.prefix_cache import cache_class  # noqa: E402

TOKENS = 8192
LEAVES = 100_000
ONCE = "--once" in sys.argv


def rounds(count: int) -> range:
    return range(1 if ONCE else count)


BARS: dict[str, Callable[[float], bool]] = {
    "match_numpy_overhead_us": lambda value: value <= 1.5,
    "match_list_ns_per_token": lambda value: value <= 30,
    "adapter_speedup_page1": lambda value: value >= 10,
    "adapter_speedup_page64": lambda value: value >= 10,
    "evict_speedup_100k": lambda value: value >= 1000,
    "import_ms": lambda value: value < 100,
}


def seconds(call: Callable[[], object], number: int) -> float:
    """Of processor time: what others do on this machine does not count."""
    return timeit.timeit(call, number=number, timer=time.process_time) / number


# What a call costs.


def match_overheads() -> dict[str, float]:
    allocator = pando.PagedAllocator(2 * TOKENS)
    cache = pando.PrefixCache(allocator)
    paths = cache.paths
    tokens = np.arange(TOKENS, dtype=np.int32)
    paths.insert(tokens, allocator.alloc(TOKENS))
    wide, listed, out = tokens.astype(np.int64), tokens.tolist(), np.empty(TOKENS, np.int64)
    measured = []
    for _ in rounds(21):
        in_cpp = pando._core._time_match(cache, tokens, out, 1000)
        measured.append(
            (
                in_cpp,
                seconds(lambda: paths.match(tokens), 1000) - in_cpp,
                seconds(lambda: paths.match(tokens, slots=out), 1000) - in_cpp,
                seconds(lambda: paths.match(wide), 1000) - in_cpp,
                seconds(lambda: paths.match(listed), 50) - in_cpp,
            )
        )
    in_cpp, numpy, into, int64, as_list = (statistics.median(column) for column in zip(*measured))
    return {
        "match_cpp_us": in_cpp * 1e6,
        "match_numpy_overhead_us": numpy * 1e6,
        "match_into_overhead_us": into * 1e6,
        "match_int64_overhead_us": int64 * 1e6,
        "match_list_ns_per_token": as_list * 1e9 / TOKENS,
    }


def import_ms() -> float:
    """By the clock; NumPy is imported with the first array."""
    code = "import time; a = time.perf_counter(); import pando; print(time.perf_counter() - a)"

    def run() -> float:
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        return float(done.stdout)

    run()
    return statistics.median(run() for _ in rounds(11)) * 1e3


# The plug-in beside plain Python.


class Slots:
    """Hands out slots upwards and takes everything back: next to nothing, the same for both."""

    device = "cpu"

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.size = 1 << 30
        self.next = page_size

    def alloc(self, count: int) -> np.ndarray:
        pages = -(-count // self.page_size)
        first, self.next = self.next, self.next + pages * self.page_size
        return np.arange(first, first + count)

    def free(self, slots: Any) -> None:
        pass

    def available_size(self) -> int:
        return self.size - self.next


class Req(standins.FLAVORS["0.5.16"].req):
    def get_fill_ids(self) -> array[int]:
        return self.fill_ids  # made by the engine, whose time is not the cache's


class Bench:
    """A cache, and the requests of an engine that calls it as SGLang does."""

    def __init__(self, make: Callable[[Any, Slots, int], Any], page_size: int) -> None:
        self.pool = SimpleNamespace(req_to_token=np.zeros((4, 3 * TOKENS), dtype=np.int32))
        self.pool.write = self.pool.req_to_token.__setitem__
        self.slots = Slots(page_size)
        self.cache = make(self.pool, self.slots, page_size)
        self.seconds = 0.0  # inside the cache

    def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        result = method(*arguments, **named)
        self.seconds += time.perf_counter() - begin
        return result

    def match(self, tokens: array[int]) -> Any:
        key = standins.RadixKey(tokens, None)
        return self.call(self.cache.match_prefix, standins.MatchPrefixParams(key=key))

    def serve(self, prompt: array[int], answer: array[int]) -> int:
        """Match and lock, prefill, one chunk, the answer; as many tokens as were cached."""
        prompt = prompt[:]  # as a tokenizer has just made it
        match = self.match(prompt)
        req = Req("r", [], None, 0)
        req.origin_input_ids, req.output_ids = prompt, answer
        req.req_pool_idx = 0
        req.last_node = match.last_device_node
        req.prefix_indices = match.device_indices
        req.cache_protected_len = cached = len(match.device_indices)
        self.call(self.cache.inc_lock_ref, req.last_node)
        row = self.pool.req_to_token[0]
        row[:cached] = match.device_indices
        row[cached : len(prompt)] = self.slots.alloc(len(prompt) - cached)
        req.fill_ids = prompt
        self.call(self.cache.cache_unfinished_req, req)
        length = len(prompt) + len(answer)
        row[len(prompt) : length] = self.slots.alloc(len(answer))
        self.call(self.cache.cache_finished_req, req, kv_len_to_handle=length)
        return cached


def make_pando(pool: Any, slots: Slots, page_size: int) -> Any:
    params = standins.CacheInitParams(
        disable=False,
        req_to_token_pool=pool,
        token_to_kv_pool_allocator=slots,
        page_size=page_size,
    )
    return cache_class(Interface.of(standins))(params)


def conversations(users: int, turns: int) -> list[tuple[array[int], array[int]]]:
    """Users of one system prompt whose turns repeat what was said, up to 8192 tokens and more."""
    random = np.random.default_rng(1)
    fresh = lambda count: array("q", random.integers(0, 100_000, count).tolist())  # noqa: E731
    system, requests = fresh(TOKENS // 2), []
    for _ in range(users):
        history = system
        for _ in range(turns):
            prompt, answer = history + fresh(TOKENS // 8), fresh(TOKENS // 32)
            requests.append((prompt, answer))
            history = prompt + answer
    return requests


def adapter_speedup(page_size: int) -> dict[str, float]:
    """Whole requests, each call that SGLang makes for one; and matches alone. What is reported is
    the smaller ratio of the two."""
    requests = conversations(users=24, turns=4)
    prompt = requests[3][0]
    best = {name: [math.inf, math.inf] for name in ("serve", "match")}
    for _ in rounds(9):
        benches = [Bench(make, page_size) for make in (PythonRadixCache, make_pando)]
        found = [[bench.serve(*request) for request in requests] for bench in benches]
        assert found[0] == found[1], "both must find the same"
        assert sum(found[0]) > 0
        for side, bench in enumerate(benches):
            best["serve"][side] = min(best["serve"][side], bench.seconds)
        for side, bench in enumerate(benches):
            for _ in range(20):
                bench.seconds = 0.0
                bench.match(prompt)
                best["match"][side] = min(best["match"][side], bench.seconds)
    serve, match = (plain / ours for plain, ours in best.values())
    return {
        f"adapter_speedup_page{page_size}": min(serve, match),
        f"adapter_serve_speedup_page{page_size}": serve,
        f"adapter_match_speedup_page{page_size}": match,
        f"adapter_match_us_page{page_size}": best["match"][1] * 1e6,
    }


def evict_speedup() -> dict[str, float]:
    """One leaf at a time out of 100 000, as a full cache does for every new page."""
    benches = [Bench(make, 1) for make in (PythonRadixCache, make_pando)]
    for bench in benches:
        for leaf in range(LEAVES):
            key = standins.RadixKey(array("q", [leaf, 1, 2, 3]))
            value = np.arange(4 * leaf + 1, 4 * leaf + 5)
            bench.cache.insert(standins.InsertParams(key=key, value=value))
    params = standins.EvictParams(num_tokens=4)
    plain, ours = (
        statistics.median(seconds(lambda: bench.cache.evict(params), number) for _ in rounds(7))
        for bench, number in zip(benches, (1, 1000))
    )
    return {"evict_speedup_100k": plain / ours, "evict_us": ours * 1e6}


def main(out: str) -> int:
    # As in any process that has once freed a large block: from then on the C library no longer gives
    # every smaller one back to the kernel, and arrays of either side do not pay for page faults.
    bytes(16 << 20)
    results = match_overheads()
    for page_size in (1, 64):
        results |= adapter_speedup(page_size)
    results |= evict_speedup()
    results["import_ms"] = import_ms()
    pathlib.Path(out).write_text(json.dumps(results, indent=2) + "\n")
    missed = 0
    for name, value in results.items():
        met = BARS.get(name)
        verdict = "" if met is None else "met" if met(value) else "MISSED"
        missed += verdict == "MISSED"
        print(f"{name:32} {value:12.4g}  {verdict}")
    return 1 if missed and not ONCE else 0


if __name__ == "__main__":
    sys.exit(main(*itertools.islice(sys.argv, 1, 2)))
