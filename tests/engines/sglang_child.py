# SPDX-License-Identifier: Apache-2.0
"""One whole SGLang engine on the CPU, driven through a list of steps.

    python sglang_child.py SPEC.json RESULT.json

The spec: ``arguments`` of the engine, the ``steps`` to take (methods of :class:`Steps`, with their
arguments), and ``window`` where the model has windowed layers. The result: for every request its
prompt length, how many of its tokens were cached, and what was generated. SGLang's own checks for
lost memory are on and end the engine where they find something.

SGLang's processes import this module again, so what is at its end happens in each of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from typing import Any

from models import WINDOW, WINDOWED_LAYERS

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


class Steps:
    """What can be done with an engine. The requests depend on the seed and on what the engine
    answered, and on nothing else: two engines that answer alike are asked alike."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.random = random.Random(5)
        self.requests: list[dict[str, Any]] = []
        self.talks: list[list[int]] = []
        self.system = self.words(100)
        self.notes: dict[str, Any] = {}

    def words(self, count: int) -> list[int]:
        return [self.random.randrange(10, 1000) for _ in range(count)]

    def ask(
        self, prompts: Any, new_tokens: int, step: str, ignore_eos: bool = True, **more: Any
    ) -> list[list[int]]:
        """One prompt, or several at once."""
        many = isinstance(prompts[0], list)
        sampling = {"temperature": 0, "max_new_tokens": new_tokens, "ignore_eos": ignore_eos}
        answers = self.engine.generate(
            input_ids=prompts, sampling_params=[sampling] * len(prompts) if many else sampling, **more
        )
        answers = answers if many else [answers]
        for answer in answers:
            meta = answer["meta_info"]
            self.requests.append(
                {
                    "step": step,
                    "prompt": meta["prompt_tokens"],
                    "cached": meta["cached_tokens"],
                    "output": answer["output_ids"],
                }
            )
        return [answer["output_ids"] for answer in answers]

    def converse(self, turns: int = 14, talks: int = 10) -> None:
        """Conversations that grow, one request after the other; together they do not fit."""
        self._begin_talks(talks)
        for _ in range(turns):
            talk = self.random.choice(self.talks)
            talk += self.words(self.random.randrange(3, 30))
            talk += self.ask(self.system + talk, 3, "converse")[0]

    def _begin_talks(self, talks: int) -> None:
        while len(self.talks) < talks:
            self.talks.append(self.words(self.random.randrange(40, 200)))

    def crowd(self, rounds: int = 2, size: int = 8) -> None:
        """Prompts with common beginnings, all at once."""
        for _ in range(rounds):
            prompts = [
                self.system
                + self.random.choice(self.talks)[: self.random.randrange(10, 400)]
                + self.words(self.random.randrange(1, 40))
                for _ in range(size)
            ]
            self.ask(prompts, 6, "crowd")

    def overload(self, size: int = 8, prompt: int = 60, new_tokens: int = 150) -> None:
        """Answers that together are longer than the device has room for. They may end early, so
        SGLang admits more of them than fit; 0.5.23 then has to retract one, older versions admit
        fewer. (The configuration "retraction" retracts in all of them.)"""
        prompts = [self.words(prompt) for _ in range(size)]
        self.ask(prompts, new_tokens, "overload", ignore_eos=False)

    def adapters(self, names: list[str], rounds: int = 2) -> None:
        """The same prompt with each adapter and without: none may see another's KV."""
        prompt = self.words(120)
        for _ in range(rounds):
            for name in [*names, None]:
                self.ask(prompt, 4, f"adapter {name}", lora_path=name)

    def abort(self, talks: int = 10, after_s: float = 0.005) -> None:
        """Sends the prompts that conversations begin with and aborts them at once, after a restart
        while their pages come from the store; then asks for one of them."""
        self._begin_talks(talks)
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
        self.ask(prompts[0], 4, "after an abort")

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
        self.ask(self.system, 4, "after a flush")

    def idle(self, seconds: float = 1.5) -> None:
        """Long enough for SGLang to look for lost memory."""
        time.sleep(seconds)


def main() -> None:
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    import sglang

    began = time.monotonic()
    engine = sglang.Engine(**ENGINE | spec["arguments"])
    started = time.monotonic()
    steps = Steps(engine)
    for name, keywords in spec["steps"]:
        getattr(steps, name)(**keywords)
    result = {
        "version": sglang.__version__,
        "start_s": started - began,
        "steps_s": time.monotonic() - started,
        "requests": steps.requests,
        "notes": steps.notes,
    }
    with open(sys.argv[2], "w") as file:
        json.dump(result, file)
    engine.shutdown()


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
