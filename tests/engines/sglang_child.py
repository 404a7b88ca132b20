# SPDX-License-Identifier: Apache-2.0
"""One whole SGLang engine on the CPU, driven through a list of steps.

    python sglang_child.py SPEC.json RESULT.json

The spec: ``arguments`` of the engine, the ``steps`` to take (methods of :class:`SglangSteps`, with their
arguments), and ``window`` where the model has windowed layers. The result: for every request its
prompt length, how many of its tokens were cached, and what was generated. SGLang's own checks for
lost memory are on and end the engine where they find something.

SGLang's processes import this module again, so what is at its end happens in each of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from models import WINDOW, WINDOWED_LAYERS
from steps import Steps, drive

ENGINE = {
    "device": "cpu",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "dtype": "float32",
    "disable_cuda_graph": True,
    "skip_server_warmup": True,
    "enable_cache_report": True,
    "mem_fraction_static": 0.1,
    "max_running_requests": 8,
    "random_seed": 3,
    "log_level": "info",
}


class SglangSteps(Steps):
    """What can be done with an engine of SGLang beside asking it."""

    def generate(
        self,
        prompts: list[list[int]],
        new_tokens: int,
        ignore_eos: bool,
        adapter: str | None = None,
    ) -> list[tuple[int, int, list[int]]]:
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": ignore_eos}
        answers = self.engine.generate(
            input_ids=prompts, sampling_params=[sampling] * len(prompts), lora_path=adapter
        )
        return [
            (meta["prompt_tokens"], meta["cached_tokens"], answer["output_ids"])
            for answer in answers
            for meta in [answer["meta_info"]]
        ]

    def abort(self, talks: int = 10, after_s: float = 0.005) -> None:
        """Sends the prompts that conversations begin with and aborts them at once, after a restart
        while their pages come from the store; then asks for one of them."""
        self.begin_talks(talks)
        prompts = [self.system + talk for talk in self.talks]

        async def one(name: str, prompt: list[int]) -> None:
            stream = await self.engine.async_generate(
                input_ids=prompt, sampling_params={"max_new_tokens": 64}, rid=name, stream=True
            )
            async for _ in stream:
                pass

        async def all_of_them() -> None:
            tasks = [
                asyncio.ensure_future(one(f"aborted-{i}", prompt))
                for i, prompt in enumerate(prompts)
            ]
            await asyncio.sleep(after_s)
            for i in range(len(prompts)):
                self.engine.tokenizer_manager.abort_request(f"aborted-{i}")
            await asyncio.wait(tasks, timeout=60)

        self.engine.loop.run_until_complete(all_of_them())
        self.ask([prompts[0]], 4, "after an abort")

    def attach(self, backend: str, config: dict[str, Any] | None = None) -> None:
        manager = self.engine.tokenizer_manager
        self._until_idle(
            "attach",
            lambda: manager.attach_hicache_storage(
                backend, json.dumps(config) if config else None, "wait_complete", "write_through"
            ),
        )

    def detach(self) -> None:
        self._until_idle("detach", self.engine.tokenizer_manager.detach_hicache_storage)

    def _until_idle(self, name: str, call: Any) -> None:
        """SGLang refuses while anything is under way; asked again it must come to an end."""
        deadline = time.monotonic() + 30
        while True:
            outcome = self.engine.loop.run_until_complete(call())
            if outcome.success or time.monotonic() > deadline or "not idle" not in outcome.message:
                break
            time.sleep(0.1)
        self.notes[name] = {"success": outcome.success, "message": outcome.message}

    def flush(self) -> None:
        self.engine.loop.run_until_complete(self.engine.tokenizer_manager.flush_cache(30.0))
        self.ask([self.system], 4, "after a flush")

    def idle(self, seconds: float = 1.5) -> None:
        """Long enough for SGLang to look for lost memory."""
        time.sleep(seconds)


def main() -> None:
    import sglang

    steps = drive(SglangSteps, lambda **more: sglang.Engine(**ENGINE | more), sglang.__version__)
    steps.engine.shutdown()


def give_llama_a_window() -> None:
    """Makes some layers of SGLang's Llama windowed. Its attention for the CPU reads their rows by
    the slots of the full layers, so those are translated here, for both caches alike."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
    from sglang.srt.models.llama import LlamaAttention, LlamaForCausalLM

    make_attention = LlamaAttention.__init__

    def make_windowed(self: Any, *args: Any, **kwargs: Any) -> None:
        make_attention(self, *args, **kwargs)
        if self.attn.layer_id in WINDOWED_LAYERS:
            self.attn.sliding_window_size = WINDOW

    LlamaAttention.__init__ = make_windowed
    LlamaForCausalLM.get_attention_sliding_window_size = lambda self: WINDOW

    def translating(run: Any) -> Any:
        def run_translated(
            self: Any, query: Any, output: Any, keys: Any, values: Any, table: Any, *args: Any, **more: Any
        ) -> Any:
            window = more.get("sliding_window_size")
            if window is not None and window > -1:
                table = self.token_to_kv_pool.translate_loc_from_full_to_swa(table.long())
            return run(self, query, output, keys, values, table, *args, **more)

        return run_translated

    for name in ("_run_sdpa_forward_extend", "_run_sdpa_forward_decode"):
        setattr(TorchNativeAttnBackend, name, translating(getattr(TorchNativeAttnBackend, name)))


def make_pinned_memory_plain() -> None:
    """SGLang's adapters ask for pinned memory, which needs a CUDA driver."""
    import torch

    for name in ("tensor", "empty", "zeros"):
        make = getattr(torch, name)
        setattr(
            torch, name, lambda *args, _make=make, **more: _make(*args, **more | {"pin_memory": False})
        )
    torch.Tensor.pin_memory = lambda self, *_: self


def attend_to_latent_rows() -> None:
    """Latent attention has two ways to compute a prefill; SGLang's attention for the CPU knows the
    one that reads latent rows from the pool."""
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import (
        AttnForwardMethod,
    )
    from sglang.srt.models.deepseek_v2 import DeepseekV2AttentionMLA

    DeepseekV2AttentionMLA.dispatch_attn_forward_method = lambda *_: AttnForwardMethod.MLA


def add_the_slow_store() -> None:
    import slow_store

    slow_store.install()


# By the name of a model: what SGLang lacks for it on a CPU, the same for both caches. By the name of
# a configuration: what it needs.
PATCHES = {
    "window": give_llama_a_window,
    "mla": attend_to_latent_rows,
    "lora": make_pinned_memory_plain,
    "abort": add_the_slow_store,
}
for name in set(os.environ.get("PANDO_TEST_PATCHES", "").split(",")) & set(PATCHES):
    PATCHES[name]()

if __name__ == "__main__":
    main()
