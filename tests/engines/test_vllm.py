# SPDX-License-Identifier: Apache-2.0
"""Whole vLLM engines, on the CPU, once with vLLM's own offloading and once with Pando's.

Each configuration is a pair of kv_transfer_configs and a list of steps (see vllm_child.py). Both
engines get the same requests. Then: every output is equal token by token, nothing was logged as an
error, Pando's engine found at least as many cached tokens, and these stand side by side in the
report. On both sides vllm_cpu_worker.py copies, because vLLM's own worker needs a GPU.

    PANDO_VLLM  the version and where it is imported from: "0.32.0=FOLDERS", as in PYTHONPATH
    PANDO_PYTHONPATH  where pando, with its metadata, is imported from
    PANDO_ENGINES_OUT  where models, logs and results go

scripts/test-engines.sh sets them. `-k core` is the part that every change runs. An expected failure
names its reason; one that passes is a failure, so that the reason is taken out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines import HERE, OUT, Engine, Result, assert_alike, check_log, model
from vllm_child import LEAVING

VERSION, FOLDERS = os.environ.get("PANDO_VLLM", "none=").split("=", 1)
PANDO = os.environ.get("PANDO_PYTHONPATH", "")
# vLLM logs what its connectors raise while they are shut down, and goes on.
SIGNS = ("Traceback (most recent call last)", "BufferError", " ERROR ")

pytestmark = pytest.mark.skipif(not FOLDERS, reason="PANDO_VLLM names no vLLM")

DEVICE_BLOCKS = 44  # of 32 tokens
CHUNK_BYTES = 131072  # of one block of the model, all layers
HOST_BYTES = 60 * CHUNK_BYTES

CONVERSATIONS = [
    ["converse", {"turns": 40}],
    ["crowd", {}],
    ["overload", {}],
    ["converse", {"turns": 10}],
    ["idle", {}],
]
TWO_LIVES = (
    [["converse", {}], ["crowd", {}], ["idle", {}]],
    [["converse", {}], ["crowd", {}], ["converse", {"turns": 6}], ["idle", {}]],
)
KILLED = (
    [["converse", {}], ["crash", {}]],
    [["converse", {}], ["crowd", {}], ["idle", {}]],
)
ORDER = {
    "num_gpu_blocks_override": 120,
    "max_num_batched_tokens": 512,
    "max_model_len": 3600,
}


# ---- Configurations. "{store}" becomes a folder that the lives of a run share, "{redis}" a server.


def offloading(**extra: Any) -> dict[str, Any]:
    extra = {"cpu_bytes_to_use": HOST_BYTES} | extra
    return {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }


def tiering(tier: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return offloading(spec_name="TieringOffloadingSpec", secondary_tiers=[tier], **extra)


def pando_spec(**extra: Any) -> dict[str, Any]:
    return offloading(spec_name="PandoOffloadingSpec", **extra)


def pando_tier(backend: str, options: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return tiering({"type": "pando", "backend": backend, "options": options}, **extra)


def pando_connector(**extra: Any) -> dict[str, Any]:
    extra = {"host_bytes": HOST_BYTES, "policy": "lru"} | extra
    return {
        "kv_connector": "PandoConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": extra,
    }


def beside_a_recorder(connector: dict[str, Any]) -> dict[str, Any]:
    recorder = {
        "kv_connector": "RecordingConnector",
        "kv_connector_module_path": "vllm_recorder",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"file": "{store}/recorded.json"},
    }
    return {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [connector, recorder]},
    }


LRU = offloading()
ALL = offloading(offload_prompt_only=False)  # what was generated too, as PandoConnector does
ARC = offloading(eviction_policy="arc")
FS = tiering({"type": "fs", "root_dir": "{store}"})
FILE = pando_tier("file", {"directory": "{store}"})
REDIS = pando_tier("redis", {"servers": ["{redis}"], "key_prefix": "engines:"})


@dataclasses.dataclass(frozen=True)
class Configuration:
    """What Pando's engine and vLLM's own are started with, and what is done with both. Each list of
    steps is the life of one process; the next one starts where the files of the one before are."""

    name: str
    ours: dict[str, Any]
    stock: dict[str, Any]
    arguments: dict[str, Any] = dataclasses.field(default_factory=dict)
    lives: tuple[Any, ...] = (CONVERSATIONS,)
    damaged: bool = False  # Pando's files, between two lives
    core: bool = False
    gains: tuple[str, ...] = ()  # steps of which more tokens come from the cache than with vLLM's
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.name}-core" if self.core else self.name


CONFIGURATIONS = [
    Configuration("spec", pando_spec(), LRU, core=True),
    Configuration("spec-against-arc", pando_spec(), ARC),
    Configuration("spec-chunks-of-2", pando_spec(blocks_per_chunk=2), offloading(blocks_per_chunk=2)),
    Configuration(
        "spec-in-two-processes",  # API and engine core, as under `vllm serve`
        pando_spec(),
        LRU,
        lives=([["converse", {"turns": 20}], ["crowd", {}]],),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    ),
    Configuration("spec-beside-a-recorder", beside_a_recorder(pando_spec()), beside_a_recorder(LRU)),
    Configuration(
        "order",
        pando_spec(cpu_bytes_to_use=140 * CHUNK_BYTES),
        offloading(cpu_bytes_to_use=140 * CHUNK_BYTES),
        arguments=ORDER,
        lives=([["order", {}]],),
        core=True,
    ),
    Configuration("file", FILE, FS),
    Configuration("file-restart", FILE, FS, lives=TWO_LIVES, core=True),
    Configuration("file-killed", FILE, FS, lives=KILLED),
    Configuration("file-damaged", FILE, FS, lives=TWO_LIVES, damaged=True),
    Configuration("redis-restart", REDIS, FS, lives=TWO_LIVES),
    Configuration("redis-killed", REDIS, FS, lives=KILLED),
    Configuration("connector", pando_connector(), ALL, core=True),
    Configuration(
        "connector-by-one-flag",  # API and engine core agree on how much memory there is
        {"kv_connector": "PandoConnector", "kv_role": "kv_both"},
        ALL,
        lives=([["converse", {"turns": 20}], ["crowd", {}]],),
        environment={"VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    ),
    Configuration("connector-hazard", pando_connector(policy="hazard"), ALL),
    Configuration(
        "connector-beside-a-recorder", beside_a_recorder(pando_connector()), beside_a_recorder(ALL)
    ),
    Configuration(
        "connector-restart",
        pando_connector(store={"backend": "file", "directory": "{store}"}),
        FS,
        lives=TWO_LIVES,
    ),
    Configuration(
        "connector-turns",  # vLLM offloads prompts, unless told otherwise
        pando_connector(),
        LRU,
        lives=([["turns", {}]],),
        gains=("turns",),
    ),
]


# ---- Running them.


def engine(
    name: str,
    folder: Path,
    transfer: dict[str, Any],
    steps: list[Any],
    arguments: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
    redis: str = "",
) -> Engine:
    """One that is not started yet."""
    (folder / "store").mkdir(parents=True, exist_ok=True)
    text = json.dumps({"kv_transfer_config": transfer})
    text = text.replace("{store}", str(folder / "store")).replace("{redis}", redis)
    spec = {
        "steps": json.loads(json.dumps(steps).replace("{store}", str(folder / "store"))),
        "arguments": {
            "model": str(model("llama", FOLDERS)),
            "max_model_len": 1024,
            "num_gpu_blocks_override": DEVICE_BLOCKS,
            "max_num_batched_tokens": 256,
        }
        | json.loads(text)
        | (arguments or {}),
    }
    surroundings = {
        "PYTHONPATH": ":".join([FOLDERS, PANDO, str(HERE)]),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
    }
    return Engine("vllm_child.py", spec, folder, name, surroundings | (environment or {}))


_results: dict[str, Result] = {}


def run(configuration: Configuration, cache: str) -> Result:
    """Starts engine after engine, one per life. Each result is kept: vLLM's own serves several
    configurations."""
    transfer = configuration.ours if cache == "pando" else configuration.stock
    damaged = configuration.damaged and cache == "pando"
    key = json.dumps(
        [transfer, configuration.arguments, configuration.lives, configuration.environment, damaged]
    )
    if key not in _results:
        folder = OUT / f"vllm-{VERSION}" / f"{configuration.name}-{cache}"
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.ExitStack() as stack:
            redis = stack.enter_context(redis_server(folder)) if "{redis}" in key else ""
            _results[key] = _run(configuration, transfer, folder, redis, damaged)
    return _results[key]


def _run(
    configuration: Configuration, transfer: dict[str, Any], folder: Path, redis: str, damaged: bool
) -> Result:
    result = Result()
    for life, steps in enumerate(configuration.lives):
        if life > 0 and damaged:
            damage(folder / "store")
        child = engine(
            str(life), folder, transfer, steps, configuration.arguments, configuration.environment, redis
        ).start()
        status = child.wait()
        result.add(life, child.data(), child.log())
        killed = steps[-1][0] == "crash"
        assert status == (-9 if killed else 0), child.log()[-6000:]
        remove_regions(child)
    return result


def remove_regions(child: Engine) -> None:
    """Shared memory that vLLM leaves behind when it is killed, or refuses to start."""
    for region in re.findall(r"/dev/shm/vllm_offload_\S+?\.mmap", child.log()):
        Path(region).unlink(missing_ok=True)


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """A server of our own on a free port, which keeps nothing on disk."""
    if shutil.which("redis-server") is None:
        pytest.fail("there is no redis-server; scripts/bootstrap.sh installs it")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": folder}
    command = ["redis-server", *(str(word) for k, v in options.items() for word in (f"--{k}", v))]
    with (folder / "redis.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            assert process.poll() is None and time.monotonic() < deadline, "redis-server"
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def damage(store: Path) -> None:
    """Flips bits in every other page, enough of them that whoever reads the page computes nonsense."""
    pages = sorted(path for path in store.rglob("*") if path.is_file() and path.stat().st_size >= 4096)
    assert len(pages) > 20, f"only {len(pages)} pages in {store}"
    for page in pages[::2]:
        data = bytearray(page.read_bytes())
        middle = slice(len(data) // 4, 3 * len(data) // 4)
        data[middle] = bytes(byte ^ 0x41 for byte in data[middle])
        with page.open("r+b") as file:  # the file stays the one it was
            file.write(data)


# ---- Tests.


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: each.id)
def test_an_engine_answers_alike(configuration: Configuration, record: Any) -> None:
    stock = run(configuration, "stock")
    ours = run(configuration, "pando")
    for result in (stock, ours):
        for log in result.logs:
            check_log(log.split(LEAVING)[0], SIGNS)
    record(VERSION, configuration.name, stock, ours)
    assert_alike(stock, ours)
    if configuration.damaged:
        assert ours.cached() > 0
    else:
        # Of requests that come together, which are in one batch is a matter of time; and which of
        # two blocks leaves first is the policy's.
        assert ours.cached() >= 0.95 * stock.cached()
        assert ours.cached("order") >= stock.cached("order")
    for step in configuration.gains:
        assert ours.cached(step) > stock.cached(step), step
    if len(configuration.lives) > 1 and not configuration.damaged:
        assert ours.of_life(1)[0]["cached"] > 0, "nothing was found after the restart"
    if "recorder" in configuration.name:
        check_recorded(configuration)
    else:
        check_counters(configuration, ours.notes["counters"])


def check_counters(configuration: Configuration, counters: dict[str, float]) -> None:
    """Of the last life: vLLM's own metrics tell of Pando's host tier and its store."""
    assert counters["vllm:kv_offload_store_bytes"] > 0
    assert "vllm:kv_offload_cpu_cache_usage_perc" in counters
    if "secondary_tiers" in json.dumps(configuration.ours) or "store" in json.dumps(configuration.ours):
        assert counters["vllm:kv_offload_tiering_write_bytes tier=1:pando"] > 0
        assert "vllm:kv_offload_pando_used_bytes tier=pando" in counters
    damage = counters.get("vllm:kv_offload_pando_troubles tier=pando kind=not read, damaged", 0)
    assert (damage > 0) == configuration.damaged


def check_recorded(configuration: Configuration) -> None:
    """The connector beside Pando's was asked about every request and told of its end."""
    folder = OUT / f"vllm-{VERSION}" / f"{configuration.name}-pando"
    recorded = json.loads((folder / "store" / "recorded.json").read_text())
    requests = json.loads((folder / "0.json").read_text())["requests"]
    assert len(recorded["ended"]) == len(requests)
    assert set(recorded["asked"]) == set(recorded["ended"])


BY_NAME = {configuration.name: configuration for configuration in CONFIGURATIONS}


@pytest.mark.parametrize(
    "configuration",
    [
        pytest.param(BY_NAME["spec"], id="spec-core"),
        pytest.param(BY_NAME["file-restart"], id="file-restart-core"),
    ],
)
def test_an_engine_ends_without_complaint(configuration: Configuration) -> None:
    for log in run(configuration, "pando").logs:
        assert LEAVING in log
        check_log(log, SIGNS)


def test_vllms_own_tier_serves_damaged_pages() -> None:
    """What "file-damaged" is measured by: the same damage changes what vLLM's tier answers."""
    whole = run(BY_NAME["file-damaged"], "stock")
    damaged = run(dataclasses.replace(BY_NAME["file-damaged"], name="fs-damaged", ours=FS), "pando")
    outputs = [[request["output"] for request in result.requests] for result in (whole, damaged)]
    assert outputs[0] != outputs[1]


@pytest.mark.parametrize("place", ["below-a-file", "not-to-be-written"])
def test_a_directory_that_cannot_be_had_is_refused_at_the_start(place: str) -> None:
    folder = OUT / f"vllm-{VERSION}" / f"refused-{place}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "file").write_text("not a directory")
    # Root may write anywhere but in /proc.
    directory = str(folder / "file" / "store") if place == "below-a-file" else "/proc/store"
    child = engine("0", folder, pando_tier("file", {"directory": directory}), [["converse", {}]])
    status = child.start().wait()
    remove_regions(child)
    assert status != 0, "the engine has started"
    assert not child.path("json").exists()
    assert directory in child.log()


@pytest.mark.parametrize(
    "transfer",
    [
        pytest.param(FS, id="fs"),
        pytest.param(FILE, id="file"),
        pytest.param(REDIS, id="redis"),
    ],
)
def test_two_engines_share_a_store(transfer: dict[str, Any], request: Any) -> None:
    """The second engine finds what the first has computed while both run, and then the first what
    the second has."""
    folder = OUT / f"vllm-{VERSION}" / f"two-{request.node.callspec.id}"
    shutil.rmtree(folder, ignore_errors=True)
    begin = [["converse", {}], ["idle", {}]]
    more = [["converse", {"turns": 8}], ["idle", {}]]
    files = {name: {"path": f"{{store}}.{name}"} for name in ("first", "second")}
    steps = {
        "first": [*begin, ["say", files["first"]], ["wait_for", files["second"]], ["reset", {}], *more],
        "second": [["wait_for", files["first"]], *begin, *more, ["say", files["second"]]],
    }
    with contextlib.ExitStack() as stack:
        uses_redis = "{redis}" in json.dumps(transfer)
        redis = stack.enter_context(redis_server(folder)) if uses_redis else ""
        both = [engine(name, folder, transfer, steps[name], redis=redis) for name in steps]
        for child in both:
            child.start()
            stack.callback(remove_regions, child)
            stack.callback(child.kill)
        status = wait_for_all(both)
    assert status == [0, 0], "\n".join(child.log()[-3000:] for child in both)
    first, second = (child.data()["requests"] for child in both)
    assert [each["output"] for each in first] == [each["output"] for each in second]
    assert second[0]["cached"] > 0, "the second did not find what the first has computed"
    later = [sum(each["cached"] for each in requests[14:]) for requests in (first, second)]
    assert later[0] >= later[1], "the first did not find what the second has computed"


def wait_for_all(engines: list[Engine], limit_s: float = 180) -> list[int | None]:
    """Until all have ended, or one has failed: no other would hear of it."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        status = [child.process.poll() for child in engines]
        if all(each is not None for each in status) or any(each for each in status):
            break
        time.sleep(0.1)
    return [child.process.poll() for child in engines]
