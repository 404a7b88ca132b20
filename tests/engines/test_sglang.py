# SPDX-License-Identifier: Apache-2.0
"""Whole SGLang engines, on the CPU, once with SGLang's cache and once with Pando's.

Each configuration is a set of engine arguments and a list of steps (see sglang_child.py). Both
engines get the same requests. Then: every output is equal token by token, SGLang found no lost
memory, nothing was logged as an error, and cached tokens stand side by side in the report.

SGLang's hierarchical cache needs a GPU (it pins memory through the CUDA runtime), so on a CPU
engines with a host tier or storage are compared with SGLang's plain cache: outputs must be equal,
and at least as many tokens must come from the cache.

    PANDO_SGLANG  the versions: "0.5.23=FOLDERS 0.5.20=FOLDERS …", FOLDERS as in PYTHONPATH
    PANDO_PYTHONPATH  where pando, with its metadata, is imported from
    PANDO_ENGINES_OUT  where models, logs and results go

scripts/test-engines.sh sets them. `-k core` is the part that every change runs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import models
import slow_store
from engines import HERE, OUT, Engine, Result, assert_alike, check_log, model

VERSIONS = dict(item.split("=", 1) for item in os.environ.get("PANDO_SGLANG", "").split())

CONVERSATIONS = [
    ["converse", {}],
    ["crowd", {}],
    ["overload", {}],
    ["converse", {"turns": 6}],
    ["idle", {}],
    ["flush", {}],
]
TWO_LIVES = (
    [["converse", {}], ["idle", {}]],
    [["abort", {}], ["converse", {}], ["crowd", {}], ["idle", {}], ["flush", {}]],
)
HOST_TIER = {"enable_hierarchical_cache": True, "hicache_ratio": 3.0}
FETCH_SHORT = {"prefetch_threshold": 16}  # by default prompts like these are too short to fetch
STORAGE = HOST_TIER | {
    "hicache_storage_backend": "file",
    "hicache_storage_backend_extra_config": json.dumps(FETCH_SHORT),
    "hicache_storage_prefetch_policy": "wait_complete",
}


@dataclasses.dataclass(frozen=True)
class Configuration:
    """How an engine is started, and what is done with it. Each list of steps is the life of one
    process; the next one starts where the files of the one before are."""

    name: str
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    lives: tuple[Any, ...] = (CONVERSATIONS,)
    model: str = "llama"
    stock: str | None = None  # the configuration that SGLang's own cache runs; else the same
    core: bool = False
    gains: bool = False  # more tokens come from the cache than with SGLang's own
    first: tuple[int, ...] = (0, 5, 13)  # the version that can run it on a CPU
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.name}-core" if self.core else self.name


def hierarchical(policy: str, **more: Any) -> Configuration:
    arguments = HOST_TIER | {"hicache_write_policy": policy}
    return Configuration(f"host-{policy}", arguments, stock="plain", gains=True, **more)


CONFIGURATIONS = [
    Configuration("plain", core=True),
    Configuration("hazard", {"radix_eviction_policy": "hazard"}, stock="plain"),
    # SGLang retracts requests at every twentieth step, whether it has to or not.
    Configuration(
        "retraction",
        environment={"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "20"},
        lives=([["converse", {}], ["overload", {}], ["idle", {}], ["flush", {}]],),
    ),
    Configuration("window", model="window"),
    Configuration(
        "window-in-a-page",  # of which the window is three quarters
        {"page_size": 64, "max_total_tokens": 2816},
        model="window",
        first=(0, 5, 21),
    ),
    hierarchical("write_through", core=True),
    hierarchical("write_through_selective"),
    hierarchical("write_back"),
    Configuration(
        "file",
        STORAGE | {"hicache_write_policy": "write_through"},
        lives=TWO_LIVES,
        gains=True,
        stock="two-lives",
        core=True,
    ),
    Configuration(
        "abort",  # of requests whose pages are on the way from a slow store
        STORAGE | {"hicache_storage_backend": slow_store.NAME},
        lives=TWO_LIVES,
        gains=True,
        stock="two-lives",
    ),
    Configuration(
        "attach",
        HOST_TIER | {"enable_metrics": True},
        lives=(
            [
                ["converse", {}],
                ["attach", {"backend": "file", "config": FETCH_SHORT}],
                ["crowd", {}],
                ["idle", {}],
                ["detach", {}],
                ["overload", {}],
                ["converse", {"turns": 6}],
                ["idle", {}],
                ["flush", {}],
            ],
        ),
        stock="plain",
        gains=True,
    ),
    Configuration(
        "lora",
        {"enable_lora": True, "lora_backend": "torch_native", "max_loras_per_batch": 3},
        lives=([["adapters", {"names": list(models.ADAPTERS)}], ["converse", {"turns": 3}]],),
    ),
    Configuration("mla", model="mla"),
    Configuration("mla-host", HOST_TIER, model="mla", stock="mla", gains=True),
    Configuration("tensor-parallel", {"tp_size": 2}),
    Configuration(
        "tensor-parallel-file",
        STORAGE | {"tp_size": 2},
        lives=TWO_LIVES,
        stock="tensor-parallel-two-lives",
        gains=True,
    ),
]
# What SGLang's own cache runs in place of a configuration that needs a GPU there.
STOCK = {
    "two-lives": Configuration("two-lives", lives=TWO_LIVES),
    "tensor-parallel-two-lives": Configuration(
        "tensor-parallel-two-lives", {"tp_size": 2}, lives=TWO_LIVES
    ),
} | {configuration.name: configuration for configuration in CONFIGURATIONS}


def _model(kind: str) -> Path:
    return model(kind, VERSIONS[max(VERSIONS, key=_numbers)])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


_results: dict[tuple[str, str, str], Result] = {}


def run(version: str, configuration: Configuration, cache: str) -> Result:
    """Starts engine after engine, one per life. Each result is kept for those who compare with
    it; a failure shows the end of the log."""
    key = version, configuration.name, cache
    if key not in _results:
        _results[key] = _run(version, configuration, cache)
    return _results[key]


def _run(version: str, configuration: Configuration, cache: str) -> Result:
    folder = OUT / version / f"{configuration.name}-{cache}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "store").mkdir(parents=True)
    arguments = {
        "model_path": str(_model(configuration.model)),
        # The paged allocator of older versions needs Triton, so pages there are of one token.
        "page_size": 16 if _numbers(version) >= (0, 5, 21) else 1,
        "max_total_tokens": 1408,
        "chunked_prefill_size": 128,
        "schedule_policy": "lpm",
        "schedule_conservativeness": 0.1,
    } | configuration.arguments
    if cache == "pando":
        arguments["radix_cache_backend"] = "pando"
    if configuration.name == "lora":
        arguments["lora_paths"] = {
            name: str(_model("llama") / name) for name in models.ADAPTERS
        }
    outcome = Result()
    for life, steps in enumerate(configuration.lives):
        spec = {"arguments": arguments, "steps": steps}
        environment = _environment(version, configuration, folder)
        engine = Engine("sglang_child.py", spec, folder, str(life), environment).start()
        engine.wait()
        outcome.add(life, engine.data(), engine.log())
    return outcome


def _environment(version: str, configuration: Configuration, folder: Path) -> dict[str, str]:
    paths = [VERSIONS[version], os.environ["PANDO_PYTHONPATH"], str(HERE / "stubs"), str(HERE)]
    environment = {
        "PYTHONPATH": ":".join(paths),
        "SGLANG_USE_CPU_ENGINE": "1",
        "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
        "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(folder / "store"),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
    }
    if configuration.arguments.get("tp_size"):
        environment["SGLANG_CPU_OMP_THREADS_BIND"] = "0|1"  # a core for each rank
        environment["SGLANG_NCCL_SO_PATH"] = "none"  # which torch has, and no GPU
    patches = f"{configuration.model},{configuration.name}"
    return environment | configuration.environment | {"PANDO_TEST_PATCHES": patches}


# SGLang says in its log what it has lost, and what went wrong.
SIGNS = ("memory leak", "Traceback (most recent call last)", "Scheduler hit an exception")

CASES = [
    pytest.param(version, configuration, id=f"{version}-{configuration.id}")
    for version in sorted(VERSIONS, key=_numbers)
    for configuration in CONFIGURATIONS
    if _numbers(version) >= configuration.first
]


@pytest.mark.parametrize(("version", "configuration"), CASES)
def test_an_engine_answers_alike(version: str, configuration: Configuration, record: Any) -> None:
    stock = run(version, STOCK[configuration.stock or configuration.name], "stock")
    ours = run(version, configuration, "pando")
    check_log(stock.log, SIGNS)
    check_log(ours.log, SIGNS)
    record(version, configuration.name, stock, ours)
    assert_alike(stock, ours)
    if configuration.gains:
        assert ours.cached() > stock.cached()
    elif configuration.stock is None:
        # Of requests that come together, which are in one batch is a matter of time.
        assert ours.cached() >= 0.95 * stock.cached()
        assert ours.cached("converse") >= stock.cached("converse")
    for name, outcome in ours.notes.items():
        assert outcome["success"], f"{name}: {outcome['message']}"
    if len(configuration.lives) > 1:
        assert ours.of_life(1)[0]["cached"] > 0, "nothing was found after the restart"
    if configuration.name == "retraction":
        assert "retracted_reqs" in stock.log
        assert "retracted_reqs" in ours.log
    if configuration.name == "abort":
        assert "fetches were under way" in ours.log
        assert "while 0 fetches" not in ours.log
