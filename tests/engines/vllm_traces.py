# SPDX-License-Identifier: Apache-2.0
"""Requests of a recorded trace through a whole vLLM engine: how many of their tokens were cached.

    python vllm_traces.py TRACE.jsonl[.gz] CACHE... [--requests 2000] [--host 5] [--every 8]

A trace has a JSON object a line, with `hash_ids`: one id per block of the prompt, where equal ids
mean equal content and an equal prefix. Here a block is 32 tokens that depend on its id, whatever its
size was when it was recorded, and the model is as small as vLLM's attention for the CPU allows: what
is measured is what the cache keeps. `--every 8` takes every eighth block of each prompt, which keeps
who shares what with whom; `--clip` cuts prompts off. A prompt is followed by one token, so that its
last block can be found too, and one token is generated. One request follows the other.

CACHE is the kv_transfer_config in JSON, or one of the names below; the host has room for `--host` % of
the different blocks that are fed, and the device for `--device` blocks. Each CACHE is fed to an engine
of its own. A line of JSON tells what it gave.

    none              the device alone
    lru, arc          vLLM's own offloading; another word is taken for an eviction_policy too
    pando, pando:P    PandoConnector, with its default policy or P

The environment is that of test_vllm.py: PYTHONPATH has vLLM, pando and this folder. Not a test.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BLOCK_TOKENS = 32
WORDS = 1024
CHUNK_BYTES = 2 * BLOCK_TOKENS * 32 * 4  # keys and values of one head of 32, one layer, float32


def read(path: str, requests: int, every: int, clip: int) -> list[np.ndarray]:
    """The ids of each prompt's blocks."""
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as file:
        rows = [json.loads(line) for _, line in zip(range(requests), file)]
    return [np.array(row["hash_ids"][::every][:clip], np.uint64) for row in rows if row["hash_ids"]]


def tokens(ids: np.ndarray) -> list[int]:
    """32 for each id: splitmix64 of the id and the place, never one of the special words."""
    place = np.arange(BLOCK_TOKENS, dtype=np.uint64)
    x = (ids[:, None] * np.uint64(BLOCK_TOKENS) + place) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return (10 + (x ^ (x >> np.uint64(31))) % np.uint64(WORDS - 10)).ravel().tolist()


def transfer_config(cache: str, host_bytes: int) -> dict[str, Any] | None:
    if cache == "none":
        return None
    if cache.startswith("{"):
        return json.loads(cache.replace("HOST_BYTES", str(host_bytes)))
    name, _, policy = cache.partition(":")
    if name == "pando":
        connector, extra = "PandoConnector", {"host_bytes": host_bytes}
        extra |= {"policy": policy} if policy else {}
    else:
        connector = "OffloadingConnector"
        extra = {"cpu_bytes_to_use": host_bytes, "eviction_policy": name}
    return {"kv_connector": connector, "kv_role": "kv_both", "kv_connector_extra_config": extra}


def feed(engine: Any, prompts: list[np.ndarray], limit_s: float) -> dict[str, Any]:
    """In order, until time is up."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False)
    began = time.monotonic()
    prompt_tokens = cached = fed = 0
    core = engine.llm_engine
    for ids in prompts:
        if time.monotonic() - began > limit_s:
            break
        core.add_request(str(fed), {"prompt_token_ids": [*tokens(ids), 5]}, sampling)
        while core.has_unfinished_requests():
            for answer in core.step():
                cached += answer.num_cached_tokens
        prompt_tokens += BLOCK_TOKENS * len(ids)
        fed += 1
    return {
        "requests": fed,
        "prompt_tokens": prompt_tokens,
        "cached_tokens": cached,
        "hit_percent": round(100 * cached / prompt_tokens, 2),
        "seconds": round(time.monotonic() - began, 1),
    }


def run(arguments: argparse.Namespace, cache: str) -> None:
    import models
    import vllm
    import vllm_cpu_worker
    from vllm_child import ENGINE, counters

    vllm_cpu_worker.install()
    prompts = read(arguments.trace, arguments.requests, arguments.every, arguments.clip)
    longest = max(len(ids) for ids in prompts)
    unique = len(set(np.concatenate(prompts).tolist()))
    total = sum(len(ids) for ids in prompts)
    host_chunks = max(1, int(unique * arguments.host / 100))
    device_blocks = max(arguments.device, longest + 3)
    engine_arguments: dict[str, Any] = ENGINE | {
        "model": str(models.make(Path(arguments.models) / "tiny", "tiny")),
        "max_model_len": BLOCK_TOKENS * (longest + 1),
        "max_num_batched_tokens": max(2048, BLOCK_TOKENS * 64),
        "num_gpu_blocks_override": device_blocks,
        "skip_tokenizer_init": True,
        "max_num_seqs": 1,
    }
    if transfer := transfer_config(cache, host_chunks * CHUNK_BYTES):
        engine_arguments["kv_transfer_config"] = transfer
    engine = vllm.LLM(**engine_arguments)
    result = {
        "trace": Path(arguments.trace).name,
        "cache": cache,
        **feed(engine, prompts, arguments.limit_s),
        "at_most_percent": round(100 * (1 - unique / total), 2),  # with room for everything
        "different_blocks": unique,
        "host_chunks": host_chunks,
        "device_blocks": device_blocks,
        "counters": {k: v for k, v in counters(engine).items() if "hits" in k},
    }
    print("RESULT " + json.dumps(result), flush=True)
    engine.llm_engine.engine_core.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace")
    parser.add_argument("caches", nargs="+", metavar="CACHE")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--clip", type=int, default=1_000_000)
    parser.add_argument("--host", type=float, default=5.0, help="%% of the different blocks")
    parser.add_argument("--device", type=int, default=64, help="blocks; the longest prompt fits anyway")
    parser.add_argument("--limit-s", type=float, default=480.0, dest="limit_s")
    parser.add_argument("--models", default="build/engines/out/models")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        run(arguments, arguments.caches[0])
        return 0
    failed = 0
    options = sys.argv[1:]
    for cache in arguments.caches:
        kept = [word for word in options if word not in arguments.caches]
        with tempfile.TemporaryFile("w+") as log:
            command = [sys.executable, __file__, *kept, "--here", cache]
            child = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, env=_environment())
            log.seek(0)
            text = log.read()
        lines = [line for line in text.splitlines() if line.startswith("RESULT ")]
        print(lines[0].removeprefix("RESULT ") if lines else text[-4000:], flush=True)
        failed += child.returncode != 0
    return failed


def _environment() -> dict[str, str]:
    return os.environ | {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
        "OMP_NUM_THREADS": "1",
    }


if __name__ == "__main__":
    sys.exit(main())
