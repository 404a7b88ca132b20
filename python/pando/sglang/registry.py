# SPDX-License-Identifier: Apache-2.0
"""How SGLang comes to make a cache of ours: the name in its registry, and the factory behind it.

The factory refuses, before the server accepts a request, whatever the plug-in cannot do, see
``refusals.py``.
"""

from __future__ import annotations

import logging
from typing import Any

from pando.sglang.arguments import add_choices, resolved
from pando.sglang.interface import Interface, Unsupported, import_sglang
from pando.sglang.prefix_cache import PandoPrefixCache, cache_class
from pando.sglang.refusals import refuse_context

NAME = "pando"
logger = logging.getLogger("pando.sglang")


def register(name: str = NAME) -> None:
    """Makes ``--radix-cache-backend pando`` known to SGLang in this process, and the policies and
    stores that come with it. Twice is harmless. To be called before arguments are parsed."""
    registry = import_sglang("sglang.srt.mem_cache.registry")
    if not hasattr(registry, "register_radix_cache_backend"):
        raise Unsupported("this SGLang has no registry of radix caches: expected 0.5.13 or later")
    present = registry.get_radix_cache_factory(name)
    if present is create_cache:
        return
    if present is not None:
        raise ValueError(f"SGLang knows a radix cache {name!r} already, which is not Pando's")
    registry.register_radix_cache_backend(name, create_cache)
    add_choices()
    hooks = import_sglang("sglang.srt.plugins.hook_registry")
    for method in ("prepare_for_extend", "prepare_for_decode"):
        target = f"sglang.srt.managers.schedule_batch.ScheduleBatch.{method}"
        hooks.HookRegistry.register(target, _tell_rows_written, hooks.HookType.AFTER)


def is_registered(name: str | None) -> bool:
    """Whether ``--radix-cache-backend name`` is Pando's cache."""
    if not name:
        return False
    registry = import_sglang("sglang.srt.mem_cache.registry")
    return registry.get_radix_cache_factory(name) is create_cache


def _tell_rows_written(_result: Any, batch: Any, *_: Any, **__: Any) -> None:
    """After a batch is prepared, and before its computation begins."""
    if getattr(batch.tree_cache, "reads_rows_early", False):
        batch.tree_cache.rows_written()


def create_cache(context: Any) -> Any:
    """The factory: a cache for SGLang's TreeCacheBuildContext."""
    if context.disable_radix_cache:
        # Nothing is to be kept, so there is nothing to do for us: SGLang has caches for that.
        registry = import_sglang("sglang.srt.mem_cache.registry")
        return registry.default_radix_cache_factory(context)
    refuse_context(context)
    interface = Interface.installed()
    window = None
    if context.is_hybrid_swa:
        window = context.params.sliding_window_size
        if window is None:
            raise Unsupported("a model with sliding-window layers, but sliding_window_size is None")
    if context.enable_hierarchical_cache:
        from pando.sglang.hicache import PandoHiCache
        from pando.sglang.host_setup import host_setup

        cache = cache_class(interface, PandoHiCache)(
            context.params, sliding_window_size=window, host=host_setup(context)
        )
        context.tp_worker.register_hicache_layer_transfer_counter(cache.layer_done_counter)
    else:
        cache = cache_class(interface, PandoPrefixCache)(
            context.params, sliding_window_size=window
        )
    # With a draft model, and between prefill and decode servers, others write rows too.
    cache.reads_rows_early = (
        resolved(context, "speculative_algorithm") is None
        and resolved(context, "disaggregation_mode", "null") == "null"
        and resolved(context, "dllm_algorithm") is None
    )
    logger.info(
        "Pando keeps the prefixes: pages of %d, policy %s, window %s, host tier %s",
        cache.page_size,
        cache.eviction_policy,
        window,
        cache.has_host_tier,
    )
    return cache
