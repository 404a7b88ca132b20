# SPDX-License-Identifier: Apache-2.0
"""A Llama of Transformers whose keys and values live in Pando's pages.

Prompts share a long prefix. Each is computed twice: by the model alone, and with what the cache
has: the rows of the prefix are gathered from the pool by slot and handed to the model as its past,
only the rest is computed, and its rows go to the pool. Both must give the same logits. The two
computations add up the same products in matrices of other shapes, so the last bits may differ: the
largest difference is printed, and has to be rounding.

The model is small and its weights are random: what is shown is that reuse changes nothing, and that
time to the first token falls with the tokens left to compute. Needs torch and transformers.

    python examples/transformers_llama.py
    python examples/transformers_llama.py --device cuda --prefix 8192
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pando
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

PAGE_SIZE = 16
TOLERANCE = 2e-5  # of logits of about 1, in float32


class PagedLlama:
    """The model, the pool that its keys and values are in, and the cache that knows which."""

    def __init__(self, device: str, capacity_tokens: int) -> None:
        torch.manual_seed(0)
        self.config = LlamaConfig(
            vocab_size=2048,
            hidden_size=256,
            intermediate_size=1024,
            num_hidden_layers=4,
            num_attention_heads=8,
            num_key_value_heads=4,
            max_position_embeddings=65536,
        )
        self.device = torch.device(device)
        self.model = LlamaForCausalLM(self.config).to(self.device, torch.float32).eval()
        heads, head_dim = 4, 256 // 8
        geometry = pando.mha_geometry(
            num_layers=4, heads=heads, head_dim=head_dim, page_size=PAGE_SIZE,
            dtype=pando.DType.fp32,
        )
        # The engine's own tensors, wherever it wants them; page 0 is padding.
        num_pages = capacity_tokens // PAGE_SIZE + 1
        shape = (2, 4, num_pages, PAGE_SIZE, heads, head_dim)
        memory = torch.zeros(shape, device=self.device)
        self.pool = pando.KvPool.adopt(geometry, [memory[0], memory[1]])
        # By layer and plane, (slots, heads, dim): no copies, what is written here is in the pool.
        self.rows = [
            [torch.from_dlpack(self.pool.view(layer, plane)) for plane in ("key", "value")]
            for layer in range(4)
        ]
        self.cache = pando.PrefixCache(pando.PagedAllocator(capacity_tokens, page_size=PAGE_SIZE))

    def logits(self, tokens: np.ndarray, past: DynamicCache) -> torch.Tensor:
        """Of the next token; `past` has the keys and values of what came before, then of all."""
        ids = torch.as_tensor(tokens, dtype=torch.long, device=self.device)[None]
        out = self.model.model(input_ids=ids, past_key_values=past, use_cache=True)
        return self.model.lm_head(out.last_hidden_state[0, -1])

    def alone(self, prompt: np.ndarray) -> torch.Tensor:
        return self.logits(prompt, DynamicCache())

    def cached(self, prompt: np.ndarray) -> tuple[torch.Tensor, int]:
        """The logits, and how many tokens did not have to be computed."""
        request = self.cache.start(prompt)
        length = request.cached_length
        try:
            self.cache.allocate(request)
            slots = torch.as_tensor(request.slots, device=self.device)
            past = DynamicCache()
            if length:
                for layer, planes in enumerate(self.rows):
                    key, value = (rows[slots[:length]].transpose(0, 1)[None] for rows in planes)
                    past.update(key, value, layer)
            logits = self.logits(prompt[length:], past)
            for layer, planes in enumerate(self.rows):
                for rows, computed in zip(planes, rows_of(past, layer)):
                    rows[slots[length:]] = computed[0, :, length:].transpose(0, 1)
        except BaseException:
            self.cache.abandon(request)
            raise
        self.cache.finish(request)  # whole pages can be found from now on
        return logits, length


def rows_of(cache: DynamicCache, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values, (1, heads, tokens, dim)."""
    if hasattr(cache, "layers"):
        return cache.layers[layer].keys, cache.layers[layer].values
    return cache.key_cache[layer], cache.value_cache[layer]  # before 4.56


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--prefix", type=int, default=1024, help="tokens that all prompts share")
    parser.add_argument("--question", type=int, default=48, help="tokens of each one's own")
    parser.add_argument("--prompts", type=int, default=4)
    args = parser.parse_args()

    room = args.prefix + (args.question + 2 * PAGE_SIZE) * args.prompts
    llama = PagedLlama(args.device, room // PAGE_SIZE * PAGE_SIZE)
    rng = np.random.default_rng(0)
    prefix = rng.integers(0, 2048, args.prefix, dtype=np.int32)
    prompts = [
        np.concatenate([prefix, rng.integers(0, 2048, args.question, dtype=np.int32)])
        for _ in range(args.prompts)
    ]

    def timed(work):
        if args.device.startswith("cuda"):
            torch.cuda.synchronize()
        start = time.perf_counter()
        result = work()
        if args.device.startswith("cuda"):
            torch.cuda.synchronize()
        return result, (time.perf_counter() - start) * 1000

    with torch.inference_mode():
        llama.alone(prompts[0])  # the first pass loads kernels and the like
        for number, prompt in enumerate(prompts):
            alone, alone_ms = timed(lambda p=prompt: llama.alone(p))
            (cached, length), cached_ms = timed(lambda p=prompt: llama.cached(p))
            difference = float((alone - cached).abs().max())
            assert torch.allclose(alone, cached, rtol=0, atol=TOLERANCE), difference
            assert int(alone.argmax()) == int(cached.argmax())
            print(
                f"prompt {number}: {length:5} of {len(prompt)} tokens cached, first token after "
                f"{cached_ms:7.1f} ms, {alone_ms:7.1f} ms without; next token "
                f"{int(cached.argmax())} either way, logits up to {float(alone.abs().max()):.2f} differ by at most "
                f"{difference:.1e}"
            )
            expected = 0 if number == 0 else args.prefix // PAGE_SIZE * PAGE_SIZE
            assert length == expected, (length, expected)
        # The comparison sees errors: with keys and values off by a percent it would fail.
        for planes in llama.rows:
            for rows in planes:
                rows.mul_(1.01)
        off = float((alone - llama.cached(prompt)[0]).abs().max())
        assert off > 10 * TOLERANCE, off
        print(f"with keys and values off by 1 % the logits differ by {off:.1e}")
    llama.cache.check()


if __name__ == "__main__":
    main()
