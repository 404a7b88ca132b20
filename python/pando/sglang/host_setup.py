# SPDX-License-Identifier: Apache-2.0
"""What a hierarchical cache is made of, from SGLang's arguments and pools: the device pool over its
buffers, the host pool, the copier, ranks, and the settings of a store. Refuses what cannot work.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

import pando
from pando.sglang.arguments import model_name, resolved
from pando.sglang.interface import Unsupported

# Settings of SGLang's own stores that mean nothing here: page hashes have their prefix in them.
_IGNORED_SETTINGS = ("hicache_storage_pass_prefix_keys",)


@dataclasses.dataclass
class HostSetup:
    """What a hierarchical cache is made of."""

    options: pando.HostTierOptions
    kv_pool: Any  # SGLang's
    device: pando.KvPool
    scope: pando.StoreScope = dataclasses.field(default_factory=pando.StoreScope)
    ranks: Any = None
    stream: Any = None  # () -> the CUDA stream that reads, on a GPU
    storage: dict[str, Any] | None = None  # of attach_storage_backend, at start


def host_setup(context: Any) -> HostSetup:
    """From SGLang's TreeCacheBuildContext."""
    params = context.params
    if context.is_hybrid_swa:
        raise Unsupported(
            "--enable-hierarchical-cache with sliding-window layers is not supported by "
            "pando.sglang: expected one of the two"
        )
    if getattr(context, "is_dsa", False):
        raise Unsupported("--enable-hierarchical-cache with sparse (DSA) layers is not supported")
    speculative = resolved(context, "speculative_algorithm", None)
    if speculative not in (None, "NGRAM"):
        raise Unsupported(
            f"--enable-hierarchical-cache with --speculative-algorithm {speculative}: the draft "
            "model's KV would not be kept with the target's; expected one of the two"
        )
    for parallel in ("pp_size", "attn_cp_size"):
        if getattr(params, parallel, 1) > 1:
            raise Unsupported(
                f"--enable-hierarchical-cache with {parallel} {getattr(params, parallel)}: "
                "expected 1 (tensor parallelism is supported)"
            )
    kv_pool = params.token_to_kv_pool_allocator.get_kvcache()
    device = adopt_pool(kv_pool, params.page_size)
    layout = resolved(context, "hicache_mem_layout", "layer_first")
    if not hasattr(pando.HostLayout, layout):
        known = ", ".join(item.name for item in pando.HostLayout)
        raise Unsupported(f"--hicache-mem-layout {layout}: expected one of {known}")
    size_gb = resolved(context, "hicache_size", 0) or 0
    host = pando.HostPool(
        device,
        layout=getattr(pando.HostLayout, layout),
        size_bytes=int(size_gb * 10**9) if size_gb > 0 else None,
        ratio=None if size_gb > 0 else float(resolved(context, "hicache_ratio", 2.0)),
    )
    on_gpu = device.memory_kind == pando.MemoryKind.cuda
    return HostSetup(
        options=pando.HostTierOptions(
            full=pando.TierPools(device=device, host=host),
            copier=_copier(kv_pool) if on_gpu else pando.make_cpu_copier(),
            write_policy=resolved(context, "hicache_write_policy", "write_through"),
        ),
        kv_pool=kv_pool,
        device=device,
        scope=pando.StoreScope(
            model=model_name(context),
            tp_rank=context.tp_rank,
            tp_size=context.tp_size,
            same_on_all_tp_ranks=hasattr(kv_pool, "kv_buffer"),
        ),
        ranks=_ranks(params.tp_cache_group),
        stream=_current_stream if on_gpu else None,
        storage=_storage_arguments(context),
    )


def adopt_pool(kv_pool: Any, page_size: int) -> pando.KvPool:
    """SGLang's buffers, (slots, heads, dim) per layer, as a device pool."""
    name = type(kv_pool).__name__
    if getattr(kv_pool, "kv_cache_layout", "nhd") != "nhd" or any(
        getattr(kv_pool, part, None) is not None
        for part in ("index_k_with_scale_buffer", "index_k_pool", "kv_scale_buffer", "label_buffer")
    ):
        raise Unsupported(
            f"the hierarchical cache does not know the buffers of {name}: expected a "
            "MHATokenToKVPool or a MLATokenToKVPool in the layout nhd"
        )
    dtype = _dtype_of(kv_pool.dtype)
    first = getattr(kv_pool, "start_layer", 0) or 0
    if hasattr(kv_pool, "k_buffer"):
        keys, values = list(kv_pool.k_buffer), list(kv_pool.v_buffer)
        heads, dim = int(keys[0].shape[1]), int(keys[0].shape[2])
        geometry = pando.mha_geometry(
            num_layers=len(keys),
            heads=heads,
            head_dim=dim,
            value_dim=int(values[0].shape[2]),
            page_size=page_size,
            dtype=dtype,
            first_layer=first,
        )
        return pando.KvPool.adopt(geometry, [keys, values])
    if hasattr(kv_pool, "kv_buffer"):
        latent = list(kv_pool.kv_buffer)
        rope = int(getattr(kv_pool, "qk_rope_head_dim", 0))
        geometry = pando.mla_geometry(
            num_layers=len(latent),
            nope_dim=int(latent[0].shape[-1]) - rope,
            rope_dim=rope,
            page_size=page_size,
            dtype=dtype,
            first_layer=first,
        )
        return pando.KvPool.adopt(geometry, [latent])
    raise Unsupported(
        f"the hierarchical cache does not know the buffers of {name}: expected a "
        "MHATokenToKVPool or a MLATokenToKVPool"
    )


def _dtype_of(dtype: Any) -> pando.DType:
    names = {
        "float16": "fp16",
        "bfloat16": "bf16",
        "float32": "fp32",
        "float8_e4m3fn": "fp8_e4m3",
        "float8_e5m2": "fp8_e5m2",
        "int8": "int8",
    }
    name = str(dtype).rpartition(".")[2]
    if name not in names:
        raise Unsupported(f"KV of type {dtype}: expected one of {', '.join(names)}")
    return getattr(pando.DType, names[name])  # type: ignore[no-any-return]


def _copier(kv_pool: Any) -> pando.Copier:
    import torch  # type: ignore[import-not-found, unused-ignore]

    device = torch.device(kv_pool.device)
    index = torch.cuda.current_device() if device.index is None else device.index
    return pando.make_cuda_copier(index)


def _current_stream() -> Any:
    import torch  # type: ignore[import-not-found, unused-ignore]

    return torch.cuda.current_stream()


def _ranks(group: Any) -> Any:
    if group is None:
        return None
    from pando.torch_ranks import TorchRanks

    ranks = TorchRanks(group)
    return ranks if ranks.size > 1 else None


def _storage_arguments(context: Any) -> dict[str, Any] | None:
    backend = resolved(context, "hicache_storage_backend", None)
    if backend is None:
        return None
    return {
        "storage_backend": backend,
        "storage_backend_extra_config_json": resolved(
            context, "hicache_storage_backend_extra_config", None
        ),
        "hicache_storage_prefetch_policy": resolved(
            context, "hicache_storage_prefetch_policy", None
        ),
    }


def storage_settings(backend: str, config: str | None) -> str | dict[str, Any]:
    """Settings of a store as the library reads them: a JSON text, or @ and a file's name. The ranks of
    a server, and other servers, share a directory of files."""
    if config and config.startswith("@"):
        return config
    settings: dict[str, Any] = json.loads(config) if config else {}
    for name in _IGNORED_SETTINGS:
        settings.pop(name, None)
    if backend == "file":
        # Beside SGLang's own files, which have another format.
        base = os.environ.get("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", "/tmp/hicache")
        settings.setdefault("directory", os.path.join(base, "pando"))
    return settings
