# SPDX-License-Identifier: Apache-2.0
"""One whole SGLang engine on a GPU, timed.

    python sglang_gpu_child.py SPEC.json

Started by gpu_sglang.py, which names the steps. The model has the shape of an 8B Llama and random
weights from a seed; requests carry token ids. The spec: ``cache`` (stock or pando), ``mode`` (plain,
host or file), ``page``, ``layout``, ``store`` (a folder) and ``shape`` (8b or tiny). The workload is
conversations over common system prompts that together are larger than the device; the steps:

- ``warm``: a few requests that nothing is taken of;
- ``turn``: the next turn of every conversation, one request at a time, streamed: time to the first
  token, cached tokens, output of each;
- ``burst``: the next turn of all conversations at once: its wall time, times to the first token;
- ``decode``: 16 short prompts with long answers: tokens decoded per second.

With PANDO_TIMES=FILE the scheduler writes how long each call of its cache took.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import gpu_pair

SHAPES = {
    "8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    "tiny": {
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
    },
}
DEVICE_TOKENS = 65536
CONVERSATIONS = 24
SYSTEM_TOKENS, FIRST_TOKENS, TURN_TOKENS, ANSWER_TOKENS = 2048, 1500, 200, 16


def model_folder(shape: str) -> str:
    folder = Path("/tmp/pando-engine-model") / shape
    folder.mkdir(parents=True, exist_ok=True)
    config = SHAPES[shape] | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
    }
    (folder / "config.json").write_text(json.dumps(config))
    ends = {name: config[name] for name in ("bos_token_id", "eos_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(ends))
    return str(folder)


def arguments(spec: dict[str, Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "model_path": model_folder(spec["shape"]),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "attention_backend": "triton",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "cuda_graph_max_bs_decode": 16,
        "disable_prefill_cuda_graph": True,
        "page_size": spec["page"],
        "max_total_tokens": DEVICE_TOKENS,
        "mem_fraction_static": 0.6,
        "chunked_prefill_size": 8192,
        "context_length": 65536,
        "random_seed": 7,
        "log_level": "warning",
    }
    if spec["mode"] != "plain":
        layout = spec["layout"]
        chosen |= {
            "enable_hierarchical_cache": True,
            "hicache_ratio": 3.0,
            "hicache_write_policy": "write_through",
            "hicache_mem_layout": layout,
            "hicache_io_backend": "direct" if layout == "page_first_direct" else "kernel",
        }
    if spec["mode"] == "file":
        chosen |= {
            "hicache_storage_backend": "file",
            "hicache_storage_prefetch_policy": "wait_complete",
        }
    if spec["cache"] == "pando":
        chosen |= {"radix_cache_backend": "pando", "port": 34000}  # other ports are chosen near it
    return chosen


class Workload:
    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.random = random.Random(5)
        systems = [self.tokens(SYSTEM_TOKENS) for _ in range(3)]
        self.conversations = [
            systems[i % 3] + self.tokens(FIRST_TOKENS) for i in range(CONVERSATIONS)
        ]

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(1000, 120000) for _ in range(count)]

    async def ask(self, prompt: list[int], new_tokens: int = ANSWER_TOKENS) -> dict[str, Any]:
        sampling = {"temperature": 0.0, "max_new_tokens": new_tokens, "ignore_eos": True}
        began = time.perf_counter()
        first, last = None, None
        stream = await self.engine.async_generate(
            input_ids=prompt, sampling_params=sampling, stream=True
        )
        async for last in stream:
            first = first or time.perf_counter() - began
        return {
            "prompt": len(prompt),
            "cached": last["meta_info"].get("cached_tokens") or 0,
            "first_s": first,
            "output": list(last.get("output_ids") or [])[-new_tokens:],
        }

    async def step(self, name: str) -> Any:
        return await {"warm": self.warm, "turn": self.turn, "burst": self.burst, "decode": self.decode}[name]()

    async def warm(self) -> None:
        """Two bursts of prompts that share nothing with the conversations, and one that decodes."""
        for length in (300, 5000, 40):
            await self.ask(self.tokens(length))
        for _ in range(2):
            await asyncio.gather(*(self.ask(self.tokens(500)) for _ in range(CONVERSATIONS)))
        await self.decode()

    async def turn(self) -> list[dict[str, Any]]:
        answers = []
        for number, conversation in enumerate(self.conversations):
            answer = await self.ask(conversation)
            answers.append(answer)
            self.conversations[number] = conversation + answer["output"] + self.tokens(TURN_TOKENS)
        return answers

    async def burst(self) -> dict[str, Any]:
        began = time.perf_counter()
        answers = await asyncio.gather(*(self.ask(each) for each in self.conversations))
        wall = time.perf_counter() - began
        self.conversations = [each + self.tokens(TURN_TOKENS) for each in self.conversations]
        return {
            "wall_s": wall,
            "first_s": [answer["first_s"] for answer in answers],
            "prompt": sum(answer["prompt"] for answer in answers),
            "cached": sum(answer["cached"] for answer in answers),
        }

    async def decode(self) -> float:
        began = time.perf_counter()
        await asyncio.gather(*(self.ask(self.tokens(128), 256) for _ in range(16)))
        return 16 * 256 / (time.perf_counter() - began)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = spec["store"]
    import sglang

    engine = sglang.Engine(**arguments(spec))
    workload = Workload(engine)
    gpu_pair.serve(lambda step: engine.loop.run_until_complete(workload.step(step)))
    engine.shutdown()


def time_the_caches_calls(file: str) -> None:
    """Wraps the calls that the scheduler makes, in Pando's cache and in SGLang's own."""
    import atexit
    import functools

    from sglang.srt.mem_cache.hiradix_cache import HiRadixCache
    from sglang.srt.mem_cache.radix_cache import RadixCache

    from pando.sglang.hicache import PandoHiCache
    from pando.sglang.prefix_cache import PandoPrefixCache

    times: dict[str, list[float]] = {}

    def timed(call: Any, name: str) -> Any:
        @functools.wraps(call)
        def wrapper(*args: Any, **more: Any) -> Any:
            began = time.perf_counter()
            try:
                return call(*args, **more)
            finally:
                times.setdefault(name, []).append(time.perf_counter() - began)

        return wrapper

    for owner in (RadixCache, HiRadixCache, PandoPrefixCache, PandoHiCache):
        for name in (
            "match_prefix",
            "cache_unfinished_req",
            "cache_finished_req",
            "evict",
            "init_load_back",
            "ready_to_load_host_cache",
            "check_hicache_events",
            "inc_lock_ref",
            "dec_lock_ref",
        ):
            if name in vars(owner):
                setattr(owner, name, timed(getattr(owner, name), f"{owner.__name__}.{name}"))

    def write() -> None:
        if times:
            Path(file).write_text(json.dumps(times))

    atexit.register(write)
    import threading

    def often() -> None:
        while True:
            time.sleep(2)
            write()

    threading.Thread(target=often, daemon=True).start()


if os.environ.get("PANDO_TIMES") and __name__ != "__main__":
    time_the_caches_calls(os.environ["PANDO_TIMES"])

if __name__ == "__main__":
    main()
