# SPDX-License-Identifier: Apache-2.0
"""The SGLang plug-in with stand-ins for SGLang: random lives of requests, checked at every step."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import sglang_standins as standins
from sglang_engine import Engine

import pando
from pando.sglang.interface import Interface, Unsupported
from pando.sglang.prefix_cache import POLICIES, cache_class

HAS_TORCH = importlib.util.find_spec("torch") is not None
INTERFACE = Interface.of(standins)


@dataclasses.dataclass(frozen=True)
class Setup:
    flavor: str = "0.5.16"
    page_size: int = 1
    bigram: bool = False
    window: int | None = None
    policy: str = "lru"
    disable: bool = False
    torch: bool = False
    pages: int = 48

    def __str__(self) -> str:
        parts = [self.flavor, f"page{self.page_size}", self.policy]
        parts += ["bigram"] * self.bigram + ["disabled"] * self.disable + ["torch"] * self.torch
        return "-".join(parts + ([f"window{self.window}"] if self.window else []))

    def engine(self, **params: Any) -> Engine:
        arrays = standins.TorchArrays() if self.torch else standins.NumpyArrays()
        flavor = standins.FLAVORS[self.flavor]
        pool = standins.ReqToTokenPool(5, 1024, arrays)
        total = self.pages * self.page_size
        total_window = 0
        if self.window is None:
            allocator: Any = flavor.allocator(total, self.page_size, arrays)
        else:
            total_window = total * 3 // 4 // self.page_size * self.page_size
            allocator = flavor.swa_allocator(total, total_window, self.page_size, arrays)
        init = standins.CacheInitParams(
            disable=self.disable,
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=allocator,
            page_size=self.page_size,
            is_eagle=self.bigram,
            eviction_policy=self.policy,
            **params,
        )
        cache = cache_class(INTERFACE)(init, sliding_window_size=self.window)
        return Engine(
            cache,
            types=standins,
            make_req=flavor.req,
            pool=pool,
            allocator=allocator,
            total=total,
            total_window=total_window,
            window=self.window,
            bigram=self.bigram,
            exact=self.window is None,
        )


Operation = tuple[int, int, int, int]
OPERATIONS = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 2**16), st.integers(0, 2**16), st.integers(0, 2**16)
    ),
    min_size=1,
    max_size=40,
)


def prompt_of(engine: Engine, a: int, b: int) -> tuple[list[int], str | None]:
    """Fresh tokens from a small vocabulary, or more of what was seen before."""
    random = np.random.default_rng(a)
    fresh = random.integers(0, 3, 1 + b % (6 * engine.page_size)).tolist()
    if engine.history and a % 3:
        tokens, key = engine.history[b % len(engine.history)]
        return tokens[: a % (len(tokens) + 1)] + fresh, key
    return fresh, (None, "lora")[a % 2]


def run(engine: Engine, operations: list[Operation]) -> None:
    for kind, a, b, c in operations:
        running = engine.running
        if kind <= 2:
            prompt, key = prompt_of(engine, a, b)
            if len(prompt) <= 900:
                engine.start(prompt, key, priority=c % 3)
        elif kind <= 6:
            if running:
                engine.step(running[a % len(running)], b % (3 * engine.page_size), c % 3)
        elif kind == 7:
            if running:
                engine.finish(running[a % len(running)], insert=b % 4 != 0)
        elif kind == 8:
            engine.cache.evict(
                standins.EvictParams(
                    num_tokens=a % (4 * engine.page_size),
                    swa_num_tokens=b % (4 * engine.page_size) if engine.window else 0,
                )
            )
        elif running:
            engine.release_window_lock(running[a % len(running)])
        engine.check()
    engine.finish_all()


SETUPS = [
    *(Setup(flavor=flavor, page_size=page) for flavor in standins.FLAVORS for page in (1, 16, 64)),
    *(Setup(policy=policy, page_size=4) for policy in POLICIES),
    *(Setup(bigram=True, page_size=page) for page in (1, 4, 16)),
    *(Setup(disable=True, page_size=page, flavor=f) for page in (1, 4) for f in standins.FLAVORS),
    *(
        Setup(flavor=flavor, window=window, page_size=page)
        for flavor in standins.FLAVORS
        for page, window in ((1, 5), (4, 8), (4, 10), (16, 32))
    ),
    Setup(window=8, page_size=4, bigram=True),
    Setup(window=8, page_size=4, disable=True),
    *(
        Setup(torch=True, flavor=flavor, page_size=page, window=window)
        for flavor in standins.FLAVORS
        for page in (1, 16)
        for window in (None, 2 * page)
    ),
]


@pytest.mark.parametrize("setup", SETUPS, ids=str)
def test_random_lives_of_requests(setup: Setup) -> None:
    if setup.torch and not HAS_TORCH:
        pytest.skip("torch is not installed")

    @settings(
        max_examples=40,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(OPERATIONS)
    def lives(operations: list[Operation]) -> None:
        run(setup.engine(), operations)

    lives()
