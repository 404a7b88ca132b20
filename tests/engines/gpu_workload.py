# SPDX-License-Identifier: Apache-2.0
"""What engines on a GPU are asked, and the shape of the model that they run.

The model has no weights and no tokenizer: an engine makes random ones from a seed, and requests carry
token ids. The workload is conversations over common system prompts that together are larger than the
device. An engine's child says how it is asked (:meth:`Workload.ask`); gpu_pair.py names the steps.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any

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
LARGEST_WEIGHT = 0.06  # of a matrix; weights of norms are 1
CONVERSATIONS = 24
SYSTEM_TOKENS, FIRST_TOKENS, TURN_TOKENS, ANSWER_TOKENS = 2048, 1500, 200, 16


def model_folder(shape: str) -> str:
    """A folder with the configuration of a Llama of this shape."""
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


def token_bytes(shape: str) -> int:
    """Bytes of one token's KV, of all layers, in bfloat16."""
    sizes = SHAPES[shape]
    keys = sizes["num_hidden_layers"] * sizes["num_key_value_heads"] * sizes["head_dim"]
    return 2 * 2 * keys


class Workload:
    """The steps that an engine is asked to take:

    - ``warm``: requests that share nothing with the conversations, and of which nothing is taken;
    - ``turn``: the next turn of every conversation, one request at a time, streamed: time to the
      first token, cached tokens, output of each;
    - ``burst``: the next turn of all conversations at once: its wall time, times to the first token;
    - ``decode``: 16 short prompts with long answers: tokens decoded per second.
    """

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
        """Tokens of the prompt, how many of them were cached, seconds to the first token (first_s),
        and the output."""
        raise NotImplementedError

    async def step(self, name: str) -> Any:
        steps = {
            "warm": self.warm,
            "turn": self.turn,
            "burst": self.burst,
            "decode": self.decode,
        }
        return await steps[name]()

    async def warm(self) -> None:
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
