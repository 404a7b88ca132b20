# SPDX-License-Identifier: Apache-2.0
"""One whole vLLM engine on a GPU, timed.

    python vllm_gpu_child.py SPEC.json

Started by gpu_vllm.py; gpu_pair.py names the steps, gpu_workload.py has the model and what is asked.
The spec: ``cache`` (stock or pando), ``mode`` (plain, host or file), ``host`` (size of the host tier,
in devices), ``store`` (a folder) and ``shape`` (8b or tiny). vLLM's own workers copy. Its engine core
runs in another process, which imports this module again: what is at its end happens in both.

PANDO_VLLM_ARGUMENTS, in JSON, are arguments of the engine in place of the ones here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import gpu_pair
from gpu_workload import (
    ANSWER_TOKENS,
    DEVICE_TOKENS,
    LARGEST_WEIGHT,
    Workload,
    model_folder,
    token_bytes,
)

# Without torch.compile, which would take longer than the measurement; graphs for decoding alone.
COMPILATION = {
    "mode": 0,
    "cudagraph_mode": "FULL_DECODE_ONLY",
    "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 24],
}
ENVIRONMENT = {
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",  # answers go to the other
    "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer need not be there
}


def arguments(spec: dict[str, Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = {
        "model": model_folder(spec["shape"]),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "attention_backend": "TRITON_ATTN",
        "compilation_config": COMPILATION,
        "kv_cache_memory_bytes": DEVICE_TOKENS * token_bytes(spec["shape"]),
        "gpu_memory_utilization": 0.3,  # must be free; the line above says what is taken
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 32,
        "max_model_len": 32768,
        "seed": 7,
        "disable_log_stats": True,
        "kv_transfer_config": transfer(spec),
    }
    return chosen | json.loads(os.environ.get("PANDO_VLLM_ARGUMENTS", "{}"))


def transfer(spec: dict[str, Any]) -> dict[str, Any] | None:
    """The connector; with mode plain, vLLM's own cache is the device alone."""
    host_bytes = int(spec["host"] * DEVICE_TOKENS * token_bytes(spec["shape"]))
    if spec["cache"] == "pando":
        name, extra = "PandoConnector", pando_options(spec, host_bytes)
    elif spec["mode"] == "plain":
        return None
    else:
        name, extra = "OffloadingConnector", stock_options(spec, host_bytes)
    return {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": extra}


def pando_options(spec: dict[str, Any], host_bytes: int) -> dict[str, Any]:
    options: dict[str, Any] = {"host_bytes": host_bytes}
    if spec["mode"] == "file":
        options["store"] = {"backend": "file", "directory": spec["store"]}
    return options


def stock_options(spec: dict[str, Any], host_bytes: int) -> dict[str, Any]:
    """Answers are kept too, as Pando does, so that both move the same."""
    options: dict[str, Any] = {"cpu_bytes_to_use": host_bytes, "offload_prompt_only": False}
    if spec["mode"] == "file":
        options["spec_name"] = "TieringOffloadingSpec"
        options["secondary_tiers"] = [{"type": "fs", "root_dir": spec["store"]}]
    return options


class VllmWorkload(Workload):
    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.names = itertools.count()

    async def ask(self, prompt: list[int], new_tokens: int = ANSWER_TOKENS) -> dict[str, Any]:
        from vllm import SamplingParams

        sampling = SamplingParams(
            temperature=0.0, max_tokens=new_tokens, ignore_eos=True, detokenize=False
        )
        began = time.perf_counter()
        first, last = None, None
        stream = self.engine.generate(
            {"prompt_token_ids": prompt}, sampling, request_id=str(next(self.names))
        )
        async for last in stream:
            first = first or time.perf_counter() - began
        return {
            "prompt": len(prompt),
            "cached": last.num_cached_tokens or 0,
            "first_s": first,
            "output": list(last.outputs[0].token_ids),
        }


def widen_weights() -> None:
    """vLLM's dummy weights are so small that an answer depends on the last token alone. With these it
    depends on every token's KV."""
    from vllm.model_executor.model_loader import dummy_loader

    initialize = dummy_loader.initialize_single_dummy_weight
    seeds = itertools.count(1)

    def wide(tensor: Any) -> None:
        if tensor.is_floating_point() and tensor.dim() < 2:
            tensor.data.fill_(1.0)  # norms
        else:
            initialize(tensor, -LARGEST_WEIGHT, LARGEST_WEIGHT, seed=next(seeds))

    dummy_loader.initialize_single_dummy_weight = wide


async def start(spec: dict[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments(spec)))


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        engine = loop.run_until_complete(start(spec))
    except RuntimeError:
        traceback.print_exc(limit=-3)  # short: what the other process said comes before it
        sys.exit(1)
    workload = VllmWorkload(engine)
    gpu_pair.serve(lambda step: loop.run_until_complete(workload.step(step)))
    engine.shutdown()


if __name__ in ("__main__", "__mp_main__"):
    os.environ |= ENVIRONMENT
    widen_weights()
if __name__ == "__main__":
    main()
