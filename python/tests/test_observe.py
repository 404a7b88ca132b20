# SPDX-License-Identifier: Apache-2.0
"""Observers of Python's, Metrics over HTTP, and recorded traces."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
import urllib.request
import weakref
from pathlib import Path
from typing import Any

import pytest

import pando

needs_metrics = pytest.mark.skipif(not hasattr(pando, "Metrics"), reason="built without metrics")


def make(observer: Any, blocks: int = 20) -> Any:
    return pando.BlockCache(
        blocks, groups=[pando.BlockGroup(block_size=4)], observer=observer
    )


def serve(cache: Any, tokens: list[int], output: int = 0, lora: str = "") -> None:
    request = cache.start(tokens, pando.RequestKeys(lora=lora))
    found = cache.match(request)
    cache.allocate(request, len(tokens) - found.length, match=found)
    cache.checkpoint(request, len(tokens))
    for i in range(output):
        request.append([i])
        cache.allocate(request, 1)
        cache.checkpoint(request, len(tokens) + i + 1)
    cache.finish(request)


class Everything:
    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *args: self.told.append((name, args))

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [args for told, args in self.told if told == name]


def test_an_observer_is_told_everything_in_order() -> None:
    observer = Everything()
    cache = make(observer)
    before = time.monotonic()
    serve(cache, [1, 2, 3, 4, 5], output=2)
    serve(cache, [1, 2, 3, 4, 9], lora="")
    with pytest.raises(pando.OutOfCapacity):
        cache.allocate(cache.start(range(100)), 100)
    cache.poll()
    calls = [info.call.name for (info,) in observer.of("on_call")]
    assert calls[:4] == ["start", "match", "allocate", "checkpoint"]
    assert calls[-1] == "poll" and "finish" in calls
    failed = [info for (info,) in observer.of("on_call") if info.error is not None]
    assert [info.error for info in failed] == [pando.OutOfCapacity]
    assert all(info.took >= 0 for (info,) in observer.of("on_call"))
    (key, match), (second, hit) = observer.of("on_match")
    assert key.tokens.tolist() == [1, 2, 3, 4, 5] and key.ns == b"" and match.length == 0
    assert second.tokens.tolist() == [1, 2, 3, 4, 9] and hit.length == 4
    first = observer.of("on_finish")[0][0]
    assert first.key.tokens.tolist() == [1, 2, 3, 4, 5, 0, 1] and first.prompt_length == 5
    assert before <= first.started <= time.monotonic()
    assert observer.of("on_poll")[0][0].idle
    assert "CallInfo(call=" in repr(observer.of("on_call")[0][0])


def test_only_the_methods_it_has_are_called() -> None:
    class OnlyFinish:
        count = 0

        def on_finish(self, request: Any) -> None:
            self.count += 1

    observer = OnlyFinish()
    serve(make(observer), [1, 2])
    assert observer.count == 1
    with pytest.raises(pando.InvalidArgument, match="on_call"):
        make(object())


def test_errors_of_observers_are_contained(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: seen.append(told.exc_type))

    class Bad:
        def on_call(self, info: Any) -> None:
            raise ValueError("no")

        def on_match(self) -> None:  # too few arguments
            ...

    cache = make(Bad())
    serve(cache, [1, 2, 3, 4, 5])
    cache.check()
    assert ValueError in seen and TypeError in seen


def test_calling_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: seen.append(told.exc_type))

    class CallsBack:
        def on_call(self, info: Any) -> None:
            cache.start([1])

    cache = make(CallsBack())
    cache.poll()
    assert seen == [pando.WrongThread]
    cache.check()


def test_several_observers_are_told_in_order() -> None:
    order: list[str] = []

    class One:
        def __init__(self, name: str) -> None:
            self.name = name

        def on_poll(self, result: Any) -> None:
            order.append(self.name)

    make([One("a"), None, One("b")]).poll()
    assert order == ["a", "b"]


def test_a_prefix_cache_tells_its_observers() -> None:
    observer = Everything()
    cache = pando.PrefixCache(pando.PagedAllocator(64, page_size=4), observer=observer)
    for tokens in ([1, 2, 3, 4, 5], [1, 2, 3, 4, 6], list(range(10, 72))):
        request = cache.start(tokens)
        cache.allocate(request)
        cache.finish(request)
    cache.poll()
    (key, match), (_, hit), _ = observer.of("on_match")
    assert key.tokens.tolist() == [1, 2, 3, 4, 5] and match.length == 0 and hit.length == 4
    inserted = observer.of("on_insert")[0]
    assert inserted[0].tokens.tolist() == [1, 2, 3, 4, 5] and inserted[1].length == 4
    tier, evicted = observer.of("on_evict")[0]
    assert tier == pando.Tier.device and evicted.tokens > 0
    finished = observer.of("on_finish")
    assert [f.prompt_length for (f,) in finished] == [5, 5, 62]
    cache.check()


@pytest.mark.parametrize("wrap", [lambda o: o, lambda o: [o, o]])
def test_a_prefix_cache_and_an_observer_that_knows_it_are_collected(wrap: Any) -> None:
    class Knows:
        cache: Any = None

        def on_call(self, info: Any) -> None: ...

    observer = Knows()
    observer.cache = pando.PrefixCache(pando.PagedAllocator(64), observer=wrap(observer))
    gone = weakref.ref(observer)
    del observer
    gc.collect()
    assert gone() is None


@needs_metrics
def test_a_cache_whose_tenants_know_it_is_collected() -> None:
    class Knows:
        cache: Any = None

        def tenant_of(self, ns: bytes) -> str:
            return "me"

    tenants = Knows()
    metrics = pando.Metrics(max_tenants=1, tenant_of=tenants.tenant_of)
    tenants.cache = [make(metrics), pando.PrefixCache(pando.PagedAllocator(4), observer=metrics)]
    gone = weakref.ref(tenants)
    del tenants, metrics
    gc.collect()
    assert gone() is None


# ---- Metrics ------------------------------------------------------------------------------------


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


@needs_metrics
def test_metrics_count_what_happened() -> None:
    metrics = pando.Metrics(labels={"rank": "7"})
    cache = make(metrics)
    serve(cache, [1, 2, 3, 4, 5], output=3)
    serve(cache, [1, 2, 3, 4, 9])
    metrics.collect(cache)
    found = samples(metrics.text())
    assert found['pando_hit_tokens_total{rank="7",tier="device"}'] == 4
    assert found['pando_request_tokens_total{rank="7",kind="prompt"}'] == 10
    assert found['pando_request_tokens_total{rank="7",kind="output"}'] == 3
    assert found['pando_blocks_cached_total{rank="7"}'] == cache.stats.cached_blocks > 0


@needs_metrics
def test_metrics_of_a_prefix_cache() -> None:
    metrics = pando.Metrics()
    cache = pando.PrefixCache(pando.PagedAllocator(64, page_size=4), observer=metrics)
    request = cache.start([1, 2, 3, 4, 5])
    cache.allocate(request)
    cache.finish(request)
    metrics.collect(cache)
    found = samples(metrics.text())
    assert found['pando_inserted_tokens_total{kind="new"}'] == 4
    assert found['pando_capacity_tokens{tier="device"}'] == 64
    with pytest.raises(TypeError):
        metrics.collect(3)  # type: ignore[call-overload]


@needs_metrics
def test_metrics_are_scraped_over_http_while_the_cache_works() -> None:
    metrics = pando.Metrics()
    port = metrics.serve()
    with pytest.raises(pando.Error):
        metrics.serve()  # once
    cache = make([metrics, Everything()])
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            serve(cache, [1, 2, 3, 4, 5])
            metrics.collect(cache)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for _ in range(5):
            with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
                assert "pando_call_duration_seconds" in reply.read().decode()
    finally:
        stop.set()
        worker.join()


@needs_metrics
def test_tenants_are_named_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def tenant_of(ns: bytes) -> str:
        asked.append(ns)
        return "t-" + ns.decode()[-1]

    metrics = pando.Metrics(max_tenants=4, tenant_of=tenant_of)
    cache = make(metrics)
    serve(cache, [1, 2, 3, 4, 5], lora="x")
    assert asked and asked[0] == b"l1:x"
    assert 'tenant="t-x"' in metrics.text()
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: seen.append(told.exc_type))

    def fails(ns: bytes) -> str:
        raise ZeroDivisionError

    bad = pando.Metrics(max_tenants=4, tenant_of=fails)
    serve(make(bad), [1, 2, 3], lora="y")
    assert ZeroDivisionError in seen and "tenant=" in bad.text()


@needs_metrics
def test_metrics_outlive_their_cache_and_are_outlived() -> None:
    metrics = pando.Metrics()
    cache = make(metrics)
    serve(cache, [1, 2, 3])
    del cache
    assert "pando_" in metrics.text()
    cache = make(pando.Metrics())
    serve(cache, [1, 2, 3])
    with pytest.raises(pando.InvalidArgument):
        pando.Metrics(labels={"not a name": "x"})


# ---- Recording ----------------------------------------------------------------------------------


def test_a_recorded_trace_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = pando.TraceRecorder(path, block_tokens=4, key=b"secret")
    cache = make(recorder)
    for _ in range(3):
        serve(cache, [1, 2, 3, 4, 5, 6, 7, 8], output=2)
    serve(cache, [1, 2, 3, 4, 9])
    assert recorder.record([1, 2, 3, 4], 5, started=time.monotonic() + 1, ns="t")
    recorder.flush()
    recorder.check()
    stats = recorder.stats
    assert stats.recorded_requests == 5 and stats.dropped_requests == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["input_length"] for line in lines] == [8, 8, 8, 5, 4]
    assert lines[0]["output_length"] == 2
    trace = pando.open_trace(path, block_tokens=4)
    requests = list(trace)
    assert requests[0].blocks.tolist() == requests[1].blocks.tolist()
    assert requests[3].blocks[0] == requests[0].blocks[0]
    assert requests[4].blocks[0] != requests[0].blocks[0]  # another namespace
    results = pando.replay(trace, device=1000)
    assert results.requests == 5 and results.hit_blocks["device"] == 2 + 2 + 1


def test_recorders_refuse_bad_files(tmp_path: Path) -> None:
    with pytest.raises(pando.Error):
        pando.TraceRecorder(tmp_path / "no" / "such" / "folder")
    with pytest.raises(pando.InvalidArgument):
        pando.TraceRecorder(tmp_path / "x", block_tokens=0)


def test_a_recorder_that_is_dropped_has_written_all(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    recorder = pando.TraceRecorder(str(path))
    for i in range(50):
        recorder.record(range(i + 1), 1)
    del recorder
    assert len(path.read_text().splitlines()) == 50


# ---- Why ----------------------------------------------------------------------------------------


def test_words_of_explanations() -> None:
    assert {f.name for f in pando.Finding} >= {"on_device", "evicted", "never_seen", "disabled"}
    assert {p.name for p in pando.Pressure} >= {"allocate", "host_room"}
    assert {c.name for c in pando.CacheCall} >= {"match", "start", "finish", "reset"}
    assert len(pando.CacheCall) == 17
