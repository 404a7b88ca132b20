# SPDX-License-Identifier: Apache-2.0
"""One whole SGLang engine on a GPU, timed.

    python sglang_gpu_child.py SPEC.json

Started by gpu_sglang.py; gpu_pair.py names the steps, gpu_workload.py has the model and what is asked.
The spec: ``cache`` (stock or pando), ``mode`` (plain, host or file), ``page``, ``layout``, ``store``
(a folder) and ``shape`` (8b or tiny).

With PANDO_TIMES=FILE the scheduler writes how long each call of its cache took.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import gpu_pair
from gpu_workload import (
    ANSWER_TOKENS,
    DEVICE_TOKENS,
    LARGEST_WEIGHT,
    Workload,
    model_folder,
)


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


class SglangWorkload(Workload):
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


def widen_weights() -> None:
    """SGLang's dummy weights are so small that an answer depends on the last token alone. With these it
    depends on every token's KV."""
    import torch
    from sglang.srt.model_loader import loader

    def initialize(model: torch.nn.Module) -> None:
        for seed, weights in enumerate(model.state_dict().values(), start=1):
            if not weights.is_floating_point():
                continue
            if weights.dim() < 2:
                weights.fill_(1.0)  # norms
            else:
                generator = torch.Generator(device=weights.device).manual_seed(seed)
                weights.uniform_(-LARGEST_WEIGHT, LARGEST_WEIGHT, generator=generator)

    loader.initialize_dummy_weights = initialize


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    os.environ["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"] = spec["store"]
    import sglang

    engine = sglang.Engine(**arguments(spec))
    workload = SglangWorkload(engine)
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


if __name__ == "__mp_main__":  # the scheduler's process
    widen_weights()
    if os.environ.get("PANDO_TIMES"):
        time_the_caches_calls(os.environ["PANDO_TIMES"])

if __name__ == "__main__":
    main()
