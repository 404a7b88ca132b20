# SPDX-License-Identifier: Apache-2.0
"""Small models with seeded random weights, as folders that an engine loads.

    python models.py FOLDER llama | window | mla | tiny

Two runs over the same folder give the same greedy tokens, so engines can be compared token by
token. Weights are wide (initializer_range 0.2) so that the largest logit is never close to the next.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WORDS = 4096
LAYERS = 4
WINDOWED_LAYERS = (0, 2)  # of the model "window"
WINDOW = 48
ADAPTERS = ("first", "second")

_COMMON = {
    "vocab_size": WORDS,
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": 32768,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.2,
}


def make(folder: Path, kind: str) -> Path:
    """Writes the model, its tokenizer and, for llama, two LoRA adapters. Once."""
    if (folder / "done").exists():
        return folder
    import torch

    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    _write_tokenizer(folder)
    model = {"mla": _latent, "tiny": _tiny}.get(kind, _llama)()
    model.save_pretrained(folder)
    if kind == "window":
        _add_window(folder)
    if kind == "llama":
        for adapter in ADAPTERS:
            _write_adapter(folder / adapter, model)
    (folder / "done").touch()
    return folder


def _llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=256,
            intermediate_size=512,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            **_COMMON,
        )
    )


def _tiny():
    """As little to compute as vLLM's attention for the CPU allows: for measurements of caches."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            **_COMMON
            | {
                "vocab_size": 1024,
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 1,
                "num_key_value_heads": 1,
                "max_position_embeddings": 1 << 20,
            }
        )
    )


def _latent():
    """Latent attention (MLA), in the shape of DeepSeek's first model without experts."""
    from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

    return DeepseekV2ForCausalLM(
        DeepseekV2Config(
            hidden_size=256,
            intermediate_size=512,
            num_attention_heads=4,
            num_key_value_heads=4,
            q_lora_rank=None,
            kv_lora_rank=64,
            qk_nope_head_dim=32,
            qk_rope_head_dim=16,
            v_head_dim=32,
            head_dim=16,
            first_k_dense_replace=LAYERS,  # no experts
            moe_layer_freq=1,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 2.0,
                "original_max_position_embeddings": 16384,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
            tie_word_embeddings=False,
            **_COMMON,
        )
    )


def _add_window(folder: Path) -> None:
    """Tells SGLang which layers have a window; sglang_child.py gives it to them."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config |= {
        "is_hybrid_swa": True,
        "hybrid_layer_pattern": [int(layer in WINDOWED_LAYERS) for layer in range(LAYERS)],
        "sliding_window": WINDOW,
    }
    path.write_text(json.dumps(config))


def _write_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


def _write_adapter(folder: Path, model) -> None:
    """A LoRA adapter of rank 4 on the query and value projections, in PEFT's format."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    weights = {}
    for name, parameter in model.named_parameters():
        if not name.endswith(("q_proj.weight", "v_proj.weight")):
            continue
        rows, columns = parameter.shape
        stem = "base_model.model." + name.removesuffix(".weight")
        weights[f"{stem}.lora_A.weight"] = torch.randn(4, columns) * 0.1
        weights[f"{stem}.lora_B.weight"] = torch.randn(rows, 4) * 0.1
    save_file(weights, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "v_proj"],
        "bias": "none",
        "task_type": "CAUSAL_LM",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2])
