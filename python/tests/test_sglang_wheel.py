# SPDX-License-Identifier: Apache-2.0
"""The plug-in inside SGLang's own code: its registry, pools, allocators, keys and results, on the
CPU, beside SGLang's own caches.

Needs torch and an SGLang wheel: `scripts/test-engines.sh` provides them. Modules that SGLang imports
and that are not installed (kernels, model libraries, HTTP) are stubbed with empty ones, see
sglang_stubs.py; requests are stand-ins with the fields that this SGLang keeps on its own, because
SGLang's need a tokenizer. Skipped where torch or SGLang is missing; with PANDO_SGLANG_PYTHON set to
an interpreter that has both, the tests run there.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
ELSEWHERE = os.environ.get("PANDO_SGLANG_PYTHON")


def _missing() -> str | None:
    for name in ("torch", "sglang"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: run scripts/test-engines.sh"
    return None


if _missing() is not None and not ELSEWHERE:
    pytest.skip(_missing() or "", allow_module_level=True)

if _missing() is not None:

    def test_in_another_interpreter() -> None:
        command = [str(ELSEWHERE), "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
        environment = {k: v for k, v in os.environ.items() if k != "PANDO_SGLANG_PYTHON"}
        subprocess.run(command, check=True, env=environment)

else:
    import warnings

    import sglang_standins as standins
    from sglang_engine import CheckpointEngine, Engine, InsertEngine
    from sglang_stubs import stub_missing_modules

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stub_missing_modules()
        import torch

        base = importlib.import_module("sglang.srt.mem_cache.base_prefix_cache")
        registry = importlib.import_module("sglang.srt.mem_cache.registry")
        radix = importlib.import_module("sglang.srt.mem_cache.radix_cache")
        memory = importlib.import_module("sglang.srt.mem_cache.memory_pool")
        swa_memory = importlib.import_module("sglang.srt.mem_cache.swa_memory_pool")
        init_params = importlib.import_module("sglang.srt.mem_cache.cache_init_params")
        BY_CHECKPOINT = "device_prefix_len" in base.MatchResult._fields
        BY_INSERT = hasattr(base.BasePrefixCache, "insert_req")
        schedule_batch = (  # tells where requests keep their bookkeeping; later ones on req.kv
            None
            if BY_CHECKPOINT
            else importlib.import_module("sglang.srt.managers.schedule_batch")
        )
        allocators = importlib.import_module("sglang.srt.mem_cache.allocator")
        swa_allocators = importlib.import_module("sglang.srt.mem_cache.allocator.swa")

    import pando.sglang
    from pando.sglang.arguments import POLICIES
    from pando.sglang.interface import Unsupported

    TYPES = SimpleNamespace(
        **{name: value for name, value in vars(base).items() if not name.startswith("__")}
    )
    TYPES.RadixKey = radix.RadixKey
    KV_INFO = getattr(schedule_batch, "ReqKvInfo", None)
    KV_FIELDS = getattr(KV_INFO, "__dataclass_fields__", {})

    def flavor() -> standins.Flavor:
        if BY_CHECKPOINT:
            return standins.FLAVORS["0.5.23"]
        if BY_INSERT:
            return standins.FLAVORS["0.5.21"]
        if "cache_protected_len" in KV_FIELDS:
            if "lock_receipt" not in inspect.getsource(schedule_batch.Req):
                return dataclasses.replace(standins.FLAVORS["0.5.20"], req=standins.Req19)
            return standins.FLAVORS["0.5.20"]
        return standins.FLAVORS["0.5.16" if "swa_evicted_seqlen" in KV_FIELDS else "0.5.13"]

    def swa_pool(size: int, size_swa: int, page_size: int) -> Any:
        arguments: dict[str, Any] = {
            "size": size,
            "size_swa": size_swa,
            "page_size": page_size,
            "dtype": torch.float32,
            "head_num": 1,
            "head_dim": 2,
            "swa_attention_layer_ids": [0],
            "full_attention_layer_ids": [1],
            "device": "cpu",
        }
        parameters = inspect.signature(swa_memory.SWAKVPool).parameters
        if "enable_kvcache_transpose" in parameters:
            arguments["enable_kvcache_transpose"] = False
        return swa_memory.SWAKVPool(**arguments)

    def mha_pool(size: int, page_size: int) -> Any:
        arguments: dict[str, Any] = {
            "size": size,
            "page_size": page_size,
            "dtype": torch.float32,
            "head_num": 1,
            "head_dim": 2,
            "layer_num": 3,
            "device": "cpu",
            "enable_memory_saver": False,
            "enable_alt_stream": False,
            "enable_kv_cache_copy": False,
        }
        known = inspect.signature(memory.MHATokenToKVPool).parameters
        return memory.MHATokenToKVPool(**{k: v for k, v in arguments.items() if k in known})

    class Pools:
        def __init__(
            self, pages: int, page_size: int, window: int | None, *, with_kv: bool = False
        ) -> None:
            self.kv_pool = mha_pool(pages * page_size, page_size) if with_kv else None
            self.total = pages * page_size
            self.total_window = 0
            self.rows = memory.ReqToTokenPool(8, 1024, "cpu", False)
            if window is not None:
                self.total_window = self.total * 3 // 4 // page_size * page_size
                self.allocator = swa_allocators.SWATokenToKVPoolAllocator(
                    self.total,
                    self.total_window,
                    page_size,
                    torch.float32,
                    "cpu",
                    swa_pool(self.total, self.total_window, page_size),
                    False,
                )
            elif page_size == 1:
                self.allocator = allocators.TokenToKVPoolAllocator(
                    self.total, torch.float32, "cpu", self.kv_pool, False
                )
            else:
                self.allocator = allocators.PagedTokenToKVPoolAllocator(
                    self.total, page_size, torch.float32, "cpu", self.kv_pool, False
                )

        def params(self, page_size: int, **fields: Any) -> Any:
            return init_params.CacheInitParams(
                disable=False,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                page_size=page_size,
                **fields,
            )

    class Worker:
        """The part of TpModelWorker that a hierarchical cache meets."""

        counter: Any = None

        def register_hicache_layer_transfer_counter(self, counter: Any) -> None:
            self.counter = counter

    def server_arguments(**fields: Any) -> SimpleNamespace:
        return SimpleNamespace(
            radix_cache_backend="pando",
            enable_streaming_session=False,
            enable_session_radix_cache=False,
            enable_lmcache=False,
            schedule_policy="fcfs",
            **fields,
        )

    def context(params: Any, **fields: Any) -> Any:
        values: dict[str, Any] = {
            "server_args": server_arguments(),
            "params": params,
            "is_hybrid_swa": False,
            "is_hybrid_ssm": False,
            "enable_hierarchical_cache": False,
            "disable_radix_cache": False,
            "effective_chunked_prefill_size": None,
            "tp_worker": None,
            "model_config": None,
            "tp_size": 1,
            "tp_rank": 0,
            "tp_group": None,
        }
        known = registry.TreeCacheBuildContext.__dataclass_fields__
        values = {name: value for name, value in (values | fields).items() if name in known}
        return registry.TreeCacheBuildContext(**values)

    def engine(
        page_size: int,
        *,
        ours: bool,
        window: int | None = None,
        bigram: bool = False,
        pages: int = 48,
        tiers: dict[str, Any] | None = None,
        **more: Any,
    ) -> Engine:
        """`more`: fields of CacheInitParams."""
        pools = Pools(pages, page_size, window, with_kv=tiers is not None)
        params = pools.params(page_size, is_eagle=bigram, sliding_window_size=window, **more)
        if ours:
            pando.sglang.register()
            factory = registry.get_radix_cache_factory("pando")
            fields: dict[str, Any] = {"is_hybrid_swa": window is not None}
            if tiers is not None:
                fields |= {"enable_hierarchical_cache": True, "tp_worker": Worker()}
                fields["server_args"] = server_arguments(**tiers)
            cache = factory(context(params, **fields))
            assert isinstance(cache, base.BasePrefixCache)
        elif window is None:
            cache = radix.RadixCache(params)
            cache.sanity_check = lambda: None
            cache.full_evictable_size = cache.evictable_size
            cache.full_protected_size = cache.protected_size
        else:
            swa_radix = importlib.import_module("sglang.srt.mem_cache.swa_radix_cache")
            cache = swa_radix.SWARadixCache(params)
        kind = CheckpointEngine if BY_CHECKPOINT else InsertEngine if BY_INSERT else Engine
        return kind(
            cache,
            types=TYPES,
            make_req=flavor().req,
            pool=pools.rows,
            allocator=pools.allocator,
            total=pools.total,
            total_window=pools.total_window,
            window=window,
            bigram=bigram,
            exact=window is None if ours else None,
            kv_pool=pools.kv_pool,
        )

    CASES = [
        pytest.param(page, window, bigram, id=f"page{page}-window{window}-bigram{bigram}")
        for page, window, bigram in (
            (1, None, False),
            (16, None, False),
            (64, None, False),
            (1, None, True),
            (4, None, True),
            (1, 6, False),
            (4, 8, False),
        )
    ]

    def prompts(seed: int, count: int, page_size: int) -> list[tuple[list[int], str | None]]:
        random = np.random.default_rng(seed)
        seen: list[tuple[list[int], str | None]] = []
        for _ in range(count):
            fresh = random.integers(0, 3, int(random.integers(1, 5 * page_size + 2))).tolist()
            key = (None, "lora")[int(random.integers(0, 2))]
            if seen and random.integers(0, 3):
                tokens, key = seen[int(random.integers(0, len(seen)))]
                fresh = tokens[: int(random.integers(0, len(tokens) + 1))] + fresh
            if len(fresh) > 800:
                fresh = fresh[:800]
            seen.append((fresh, key))
        return seen

    @pytest.mark.parametrize(("page_size", "window", "bigram"), CASES)
    @pytest.mark.parametrize("seed", range(6))
    def test_lives_of_requests(
        page_size: int, window: int | None, bigram: bool, seed: int
    ) -> None:
        """Under memory pressure: contents, conservation and invariants at every step."""
        random = np.random.default_rng(seed)
        engine_ = engine(page_size, ours=True, window=window, bigram=bigram)
        for prompt, key in prompts(seed, 30, page_size):
            engine_.start(prompt, key)
            for _ in range(int(random.integers(0, 8))):
                if engine_.running:
                    run = engine_.running[int(random.integers(0, len(engine_.running)))]
                    engine_.step(run, int(random.integers(1, 3 * page_size)), 1)
                    engine_.check()
            while len(engine_.running) > int(random.integers(0, 5)):
                engine_.finish(engine_.running[0], insert=bool(random.integers(0, 4)))
                engine_.check()
        engine_.finish_all()

    @pytest.mark.parametrize(("page_size", "window", "bigram"), CASES)
    @pytest.mark.parametrize("seed", range(4))
    def test_as_long_matches_as_sglang(
        page_size: int, window: int | None, bigram: bool, seed: int
    ) -> None:
        """Request by request, without pressure, beside SGLang's own cache."""
        if window is not None and importlib.util.find_spec(
            "sglang.srt.mem_cache.swa_radix_cache"
        ) is None:
            pytest.skip("this SGLang has no SWARadixCache")
        both = [
            engine(page_size, ours=ours, window=window, bigram=bigram, pages=4000)
            for ours in (True, False)
        ]
        random = np.random.default_rng(seed)
        hits = 0
        for prompt, key in prompts(seed, 40, page_size):
            runs = [e.start(prompt, key) for e in both]
            assert runs[0] is not None and runs[1] is not None
            lengths = [len(run.req.prefix_indices) for run in runs]
            assert lengths[0] == lengths[1]
            hits += lengths[0] > 0
            chunk, outputs = int(random.integers(1, 4 * page_size)), random.integers(0, 3, 5)
            insert = bool(random.integers(0, 5))
            for e, run in zip(both, runs):
                while run.allocated < run.prompt_len:
                    e.step(run, chunk, 0)
                for token in outputs:
                    e.step(run, 1, int(token))
                e.finish(run, insert=insert)
                e.check()
        assert hits > 5
        for e in both:
            e.check()
        mine, theirs = both[0].cache, both[1].cache
        if window is None:
            assert mine.evictable_size() == theirs.evictable_size()

    @pytest.mark.parametrize("write_policy", ["write_through", "write_back"])
    @pytest.mark.parametrize("page_size", [4, 16])
    def test_host_tier_over_sglangs_buffers(page_size: int, write_policy: str) -> None:
        """SGLang's own MHATokenToKVPool, whose bytes are checked after every load back."""
        tiers = {
            "hicache_ratio": 2.0,
            "hicache_size": 0,
            "hicache_write_policy": write_policy,
            "hicache_mem_layout": "layer_first",
            "hicache_storage_backend": "memory",
            "hicache_storage_backend_extra_config": '{"prefetch_threshold": 1}',
            "hicache_storage_prefetch_policy": "wait_complete",
            "served_model_name": "test",
            "speculative_algorithm": None,
        }
        engine_ = engine(page_size, ours=True, tiers=tiers, pages=60)
        random = np.random.default_rng(1)
        for prompt, key in prompts(3, 60, page_size):
            run = engine_.start(prompt, key)
            while run is not None and run in engine_.running and run.allocated < run.prompt_len:
                engine_.step(run, 4 * page_size, 1)
                engine_.cache.check_hicache_events()
            if run in engine_.running:
                engine_.finish(run, insert=True)
            engine_.check()
            if random.integers(0, 2):
                engine_.cache.evict(base.EvictParams(num_tokens=20 * page_size))
            if random.integers(0, 5) == 0:
                engine_.settle()
                engine_.cache.evict_host(100 * page_size)
        assert engine_.loaded_back > 0
        if write_policy == "write_through":
            assert engine_.prefetched > 0
        engine_.finish_all()
        engine_.cache.shutdown()

    def test_pages_are_stored_under_the_models_path(tmp_path: Path) -> None:
        """Without --served-model-name, which SGLang then fills in somewhere of its own."""
        tiers = {
            "hicache_ratio": 2.0,
            "hicache_storage_backend": "file",
            "hicache_storage_backend_extra_config": f'{{"directory": "{tmp_path}"}}',
            "served_model_name": None,
            "model_path": "/models/a",
        }
        engine_ = engine(4, ours=True, tiers=tiers)
        assert engine_.cache.enable_storage
        assert engine_.cache._host.scope.model == "/models/a"
        engine_.cache.shutdown()

    # ---- The command line ----------------------------------------------------------------------

    def command_line(*arguments: str) -> Any:
        """As SGLang's prepare_server_args() reads it. SGLang looks at no model named dummy."""
        server_args = importlib.import_module("sglang.srt.server_args").ServerArgs
        pando.sglang.register()
        importlib.import_module("sglang.srt.plugins.hook_registry").HookRegistry.apply_hooks()
        parser = argparse.ArgumentParser()
        server_args.add_cli_args(parser)
        return server_args.from_cli_args(
            parser.parse_args(["--model-path", "dummy", *arguments])
        )

    NAMES = [
        *(("--radix-eviction-policy", policy) for policy in POLICIES),
        *(("--hicache-storage-backend", store) for store in pando.registered_stores()),
    ]

    @pytest.mark.parametrize(("flag", "value"), NAMES)
    def test_the_command_line_takes_names_of_pando(flag: str, value: str) -> None:
        for _ in range(2):
            arguments = command_line("--radix-cache-backend", "pando", flag, value)
            assert getattr(arguments, flag[2:].replace("-", "_")) == value
        choices = importlib.import_module("sglang.srt.server_args").RADIX_EVICTION_POLICY_CHOICES
        assert len(set(choices)) == len(choices)

    @pytest.mark.parametrize(("flag", "value"), NAMES)
    def test_names_of_pando_are_refused_without_it(flag: str, value: str) -> None:
        if value in ("lru", "lfu", "slru", "priority", "file"):  # SGLang's own
            assert getattr(command_line(flag, value), flag[2:].replace("-", "_")) == value
            return
        with pytest.raises(Unsupported, match=f"{flag} {value}.*add --radix-cache-backend pando"):
            command_line(flag, value)

    def test_other_names_stay_refused(capsys: pytest.CaptureFixture[str]) -> None:
        for flag in ("--radix-eviction-policy", "--hicache-storage-backend"):
            with pytest.raises(SystemExit):
                command_line("--radix-cache-backend", "pando", flag, "oracle")
            assert "invalid choice: 'oracle'" in capsys.readouterr().err

    # ---- Events --------------------------------------------------------------------------------

    def stored_pages(events: list[Any], page_size: int) -> list[dict[str, Any]]:
        """One entry per page, however events were put together."""
        pages = []
        for event in events:
            if "block_size" not in event.__struct_fields__:
                continue
            fields = {name: getattr(event, name) for name in event.__struct_fields__}
            parent = fields.pop("parent_block_hash")
            tokens, hashes = fields.pop("token_ids"), fields.pop("block_hashes")
            for i, hash_ in enumerate(hashes):
                page = {"tokens": tokens[i * page_size : (i + 1) * page_size]}
                pages.append(fields | page | {"hash": hash_, "parent": parent})
                parent = hash_
        return pages

    SALTED = "cache_salt" in inspect.signature(radix.RadixKey.__init__).parameters
    NAMED = "kv_event_lora_names" in init_params.CacheInitParams.__dataclass_fields__
    recorder = importlib.import_module("sglang.srt.mem_cache.events") if NAMED else None
    BY_REQUEST = getattr(recorder, "KvEventLoraNames", None)
    ADAPTER = "a" * 32

    def events_of(ours: bool, page_size: int, bigram: bool, dynamo: bool) -> Any:
        more: dict[str, Any] = {"enable_kv_cache_events": True}
        if NAMED:
            names = (BY_REQUEST or recorder.LoRANameTable)()
            if BY_REQUEST is None:
                names.register(lora_id=ADAPTER, lora_name="adapter")
            else:
                names.register(SimpleNamespace(extra_key=ADAPTER, lora_id=ADAPTER), "adapter")
            names.register(lora_id="b" * 32, lora_name="loaded")
            more |= {"kv_event_lora_names": names, "dynamo_kv_event_format": dynamo}
        e = engine(page_size, ours=ours, bigram=bigram, pages=400, **more)
        for salt in (None, "pepper") if SALTED else (None,):
            for extra in (None, ADAPTER, "b" * 32, "other"):
                for length in (2 * page_size, 4 * page_size + 1):  # the second goes on
                    tokens = standins.Req.make_tokens(range(length))
                    key = radix.RadixKey(tokens, extra, **({"cache_salt": salt} if salt else {}))
                    if bigram and hasattr(key, "maybe_to_bigram_view") and not ours:
                        key, _ = key.maybe_to_bigram_view(True)
                    slots = e.allocator.alloc(-(-length // page_size) * page_size)[:length]
                    result = e.cache.insert(base.InsertParams(key=key, value=slots))
                    if result.prefix_len:
                        e.allocator.free(slots[: result.prefix_len])
        return e, e.cache.take_events()

    @pytest.mark.parametrize("dynamo", [False, True] if NAMED else [False])
    @pytest.mark.parametrize("bigram", [False, True])
    def test_subscribers_see_what_sglangs_cache_would_send(bigram: bool, dynamo: bool) -> None:
        page_size = 4
        (mine_engine, mine), (_, theirs) = (
            events_of(ours, page_size, bigram, dynamo) for ours in (True, False)
        )
        pages, expected = (stored_pages(events, page_size) for events in (mine, theirs))
        assert len(pages) == len(expected) >= 12
        seen: set[int] = set()
        for page, want in zip(pages, expected):
            hashes = page.pop("hash"), page.pop("parent")
            wanted = want.pop("hash"), want.pop("parent")
            assert page == want  # tokens, size, medium, salt, session, adapter, metadata
            # Hashes are names without a meaning. They are SGLang's where there is no extra key.
            if len(seen) < 4:
                assert hashes == wanted
            assert (hashes[1] is None) == (wanted[1] is None)
            assert hashes[1] is None or hashes[1] in seen
            assert hashes[0] not in seen  # of another namespace it is another page
            seen.add(hashes[0])
        if NAMED:
            found = {page["lora_name"] for page in pages}
            named = {"adapter", "loaded"} if dynamo else {"adapter"} if BY_REQUEST else set()
            assert found == {None} | named
        mine_engine.cache.evict(base.EvictParams(num_tokens=10_000))
        removed = [h for event in mine_engine.cache.take_events() for h in event.block_hashes]
        assert set(removed) == seen

    def test_insert_leaves_duplicates_to_the_caller() -> None:
        caches = [engine(4, ours=ours) for ours in (True, False)]
        for e in caches:
            results = []
            for _ in range(2):
                slots = e.allocator.alloc(8)
                key = radix.RadixKey(standins.Req.make_tokens(range(10)), None)
                result = e.cache.insert(base.InsertParams(key=key, value=slots))
                results.append(result.prefix_len)
                e.allocator.free(slots[: result.prefix_len])
            assert results == [0, 8]
            assert e.allocator.available_size() + e.cache.evictable_size() == e.total

    def test_made_through_create_tree_cache() -> None:
        pando.sglang.register()
        pando.sglang.register()
        pools = Pools(8, 4, None)
        try:
            cache = registry.create_tree_cache(context(pools.params(4)))
        except ValueError as error:
            pytest.skip(f"this SGLang reads its arguments from a running server: {error}")
        assert type(cache).__name__ == "PandoRadixCache"

    def test_found_through_the_entry_point(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As SGLang finds it where Pando is installed: by the entry point in pyproject.toml."""
        import tomllib

        project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text())["project"]
        group = "sglang.srt.plugins"
        (name, value), *_ = project["entry-points"][group].items()
        info = tmp_path / "pando-0.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pando\nVersion: 0.0\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        registry._RADIX_CACHE_REGISTRY.pop("pando", None)
        plugins = importlib.import_module(group)
        monkeypatch.setattr(plugins, "_plugins_loaded", False)
        plugins.load_plugins()
        assert registry.get_radix_cache_factory("pando") is pando.sglang.create_cache

    def test_what_is_not_supported_is_refused() -> None:
        pools = Pools(8, 4, None)
        with pytest.raises(Unsupported, match="Mamba"):
            pando.sglang.create_cache(context(pools.params(4), is_hybrid_ssm=True))
        with pytest.raises(Unsupported, match="expected one of lru"):
            pando.sglang.create_cache(context(pools.params(4, eviction_policy="oracle")))
        known = init_params.CacheInitParams.__dataclass_fields__
        for field, value, message in (
            ("eviction_policy", "tlru", "tlru: expected one of lru"),
            ("eviction_policy_config", {"a": 1}, "--radix-eviction-policy-config"),
            ("enable_session_radix_cache", True, "--enable-session-radix-cache"),
            ("swa_gates_prefix_match", False, "swa_gates_prefix_match"),
            ("decoder_swa_bounded_replay", True, "--enable-decoder-swa-bounded-replay"),
        ):
            if field in known:
                with pytest.raises(Unsupported, match=message):
                    pando.sglang.create_cache(context(pools.params(4, **{field: value})))
        store = server_arguments(hicache_storage_backend="redis")
        with pytest.raises(Unsupported, match="expected --enable-hierarchical-cache"):
            pando.sglang.create_cache(context(pools.params(4), server_args=store))

    def test_kv_sharding_is_refused() -> None:
        if importlib.util.find_spec("sglang.srt.mem_cache.allocator.page_interleave") is None:
            pytest.skip("this SGLang does not shard KV by pages")
        interleave = importlib.import_module("sglang.srt.mem_cache.allocator.page_interleave")
        pools = Pools(8, 4, None)
        allocator = object.__new__(interleave.PageInterleavePoolAllocator)
        allocator.shard_size = 2
        assert interleave.page_interleave_shard_size(allocator) == 2
        pools.allocator = allocator
        with pytest.raises(Unsupported, match="--enable-kv-cache-sharding"):
            pando.sglang.create_cache(context(pools.params(4)))

    def test_a_draft_widens_the_window() -> None:
        if "draft_swa_window" not in init_params.CacheInitParams.__dataclass_fields__:
            pytest.skip("this SGLang has no drafts that read the window's pool")
        cache = engine(4, ours=True, window=8, draft_swa_window=12).cache
        assert cache.sliding_window_size == cache.swa_retain_window == 12

    def test_windows_shorter_than_a_page() -> None:
        try:
            engine(16, ours=True, window=4)
        except (pando.Error, ValueError) as error:
            pytest.skip(f"this library has no windows shorter than a page: {error}")
        test_lives_of_requests(16, 4, False, 1)
