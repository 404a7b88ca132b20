# SPDX-License-Identifier: Apache-2.0
"""Stores: the library's backends, and backends written in Python, however they misbehave."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pando
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pando import PageOutcome

DONE, MISSING, DAMAGED, FAILED = (
    PageOutcome.done,
    PageOutcome.missing,
    PageOutcome.damaged,
    PageOutcome.failed,
)


class DictStore:
    """As the documentation has it."""

    def __init__(self, **options: Any) -> None:
        self.pages: dict[str, bytes] = {}
        self.options = options
        self.calls: list[tuple[str, int]] = []

    def exists(self, keys: list[str]) -> list[bool]:
        self.calls.append(("exists", len(keys)))
        return [key in self.pages for key in keys]

    def get(self, keys: list[str], pages: list[pando.StorePage]) -> Any:
        self.calls.append(("get", len(keys)))
        return [
            key in self.pages and page.copy_from(self.pages[key]) for key, page in zip(keys, pages)
        ]

    def put(self, keys: list[str], pages: list[pando.StorePage]) -> Any:
        self.calls.append(("put", len(keys)))
        for key, page in zip(keys, pages):
            self.pages[key] = page.tobytes()

    def remove(self, keys: list[str]) -> Any:
        self.calls.append(("remove", len(keys)))
        for key in keys:
            self.pages.pop(key, None)

    def clear(self) -> None:
        self.pages.clear()

    def list(self) -> Any:
        return [(key, len(value)) for key, value in self.pages.items()]

    def stats(self) -> Any:
        return {"num_pages": len(self.pages), "size_bytes": sum(map(len, self.pages.values()))}


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went to sys.unraisablehook: texts, so that no frame is kept."""
    heard: list[str] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda u: heard.append(f"{u.object}: {u.exc_value!r}")
    )
    return heard


# ---- Through a Store.


def backends(tmp_path: Path) -> dict[str, Any]:
    return {
        "memory": pando.make_memory_store(),
        "file": pando.make_file_store(tmp_path / "pages", min_free_bytes=0),
        "python": DictStore(),
    }


@pytest.mark.parametrize("name", ["memory", "file", "python"])
def test_pages_come_back_as_they_were_put(name: str, tmp_path: Path) -> None:
    with pando.Store(backends(tmp_path)[name]) as store:
        first = np.arange(1000, dtype=np.int32)
        pieces = [b"abc", bytearray(b"defgh"), memoryview(b"ij")]
        call = store.put(["a", "b"], [first, pieces])
        assert call.wait() == [DONE, DONE] and call.finished and len(call) == 2
        assert store.exists(["b", "c", "a"]).wait() == [DONE, MISSING, DONE]
        out = np.zeros(1000, np.int32)
        parts: list[Any] = [bytearray(1), np.zeros(9, np.uint8)]
        call = store.get(["a", "b", "c"], [out, parts, bytearray(4)])
        assert call.wait() == [DONE, DONE, MISSING]
        assert call.num_leading == 2 and call.outcome(-1) == MISSING
        assert (out == first).all() and b"".join(bytes(part) for part in parts) == b"abcdefghij"
        stats = store.stats()
        assert stats.read_pages == 2 and stats.read_bytes == 4010 and stats.missing_pages == 1
        assert stats.backend.num_pages == 2
        assert store.remove(["a", "zzz"]).wait() == [DONE, DONE]
        assert store.exists(["a"]).outcomes in ([PageOutcome.pending], [MISSING])
        assert store.clear().wait() == []
        assert store.exists(["a", "b"]).wait() == [MISSING, MISSING]


def test_a_page_of_another_size_is_never_a_hit() -> None:
    with pando.Store(DictStore()) as store:
        store.put(["a"], [b"12345678"]).wait()
        assert store.get(["a"], [bytearray(7)]).wait() == [DAMAGED]
        assert store.exists(["a"]).wait() == [MISSING], "what is damaged is removed"


@pytest.mark.parametrize(
    ("keys", "buffers"),
    [
        (["a"], []),
        (["a"], b"x"),
        (["a"], [b"read only"]),
        (["a"], [np.zeros((4, 4))[:, 1]]),
        (["a"], [3]),
        (["a"], [[bytearray(2), None]]),
        (["a"], [bytearray()]),
        (["a"], [[]]),
        ([""], [bytearray(1)]),
    ],
)
def test_bad_buffers_are_refused(keys: list[str], buffers: Any) -> None:
    with pando.Store(pando.make_memory_store()) as store:
        with pytest.raises(pando.InvalidArgument):
            store.get(keys, buffers)
        assert store.stats().pending_read_pages == 0


def test_options_of_a_store_are_checked() -> None:
    for options in (
        {"num_read_threads": 0},
        {"max_queued_pages": 0},
        {"timeout": 0.0},
        {"timeout": float("nan")},
    ):
        with pytest.raises(pando.InvalidArgument):
            pando.Store(pando.make_memory_store(), **options)
    with pytest.raises(pando.InvalidArgument, match="this int has no exists"):
        pando.Store(3)
    with pytest.raises(pando.InvalidArgument, match="has no clear"):
        pando.Store(type("Half", (), dict.fromkeys(["exists", "get", "put", "remove"])))


def test_a_closed_store_says_so() -> None:
    store = pando.Store(pando.make_memory_store())
    store.close()
    store.close()
    with pytest.raises(pando.Unavailable, match="closed"):
        store.exists(["a"])


def test_buffers_are_held_until_the_call_has_finished() -> None:
    gate = threading.Event()

    class Slow(DictStore):
        def put(self, keys: list[str], pages: list[pando.StorePage]) -> None:
            gate.wait(30)
            super().put(keys, pages)

    backend = Slow()
    store = pando.Store(backend)
    page = np.full(1 << 16, 7, np.uint8)
    seen = weakref.ref(page)
    store.put(["a"], [page])  # neither call nor page is kept
    held = bytearray(100)
    second = store.put(["b"], [held])
    del page
    gc.collect()
    assert seen() is not None
    with pytest.raises(BufferError):
        held.extend(b"more")
    gate.set()
    second.wait()
    held.extend(b"more")
    store.close()
    del store
    gc.collect()
    assert seen() is None
    assert backend.pages["a"][:-24] == b"\7" * (1 << 16)


def test_a_store_dropped_while_calls_run_waits_for_them() -> None:
    started = threading.Event()

    class Slow(DictStore):
        def get(self, keys: list[str], pages: list[pando.StorePage]) -> Any:
            started.set()
            time.sleep(0.05)
            return super().get(keys, pages)

    for _ in range(5):
        started.clear()
        store = pando.Store(Slow(), num_read_threads=2)
        calls = [store.get(["a"], [bytearray(8)]) for _ in range(6)]
        started.wait(10)
        del store
        gc.collect()
        assert all(call.finished for call in calls)
        for call in calls[2:]:
            with pytest.raises(pando.Cancelled):
                call.wait()


def test_deadlines_and_cancelling_hold_for_queued_calls() -> None:
    gate = threading.Event()

    class Stuck(DictStore):
        def exists(self, keys: list[str]) -> list[bool]:
            gate.wait(30)
            return super().exists(keys)

    store = pando.Store(Stuck())
    running = store.exists(["a"])
    late = store.exists(["b"], timeout=0.02)
    with pytest.raises(pando.TimedOut):
        late.wait()
    called_off = store.exists(["c"])
    called_off.cancel()
    assert called_off.finished and called_off.outcome(0) == PageOutcome.pending
    gate.set()
    assert running.wait() == [MISSING]
    assert store.stats().timed_out_calls == 1


# ---- Stores of Python's: what they are given.


def test_pages_show_buffers_of_the_callers_memory() -> None:
    seen: dict[str, Any] = {}

    class Looking(DictStore):
        batch_pages = 3

        def put(self, keys: list[str], pages: list[pando.StorePage]) -> list[bool]:
            page = pages[0]
            seen["key"], seen["sizes"], seen["addresses"] = page.key, page.sizes, page.addresses
            seen["views"] = [(type(b), b.readonly, len(b), b.format) for b in page]
            seen["repr"], seen["len"] = repr(page), len(page)
            with pytest.raises(IndexError):
                page[3]
            with pytest.raises(BufferError):
                memoryview(page)  # type: ignore[arg-type]
            with pytest.raises(pando.InvalidArgument, match="being put"):
                page.copy_from(b"")
            with pytest.raises(TypeError):
                page[0][0] = 1
            super().put(keys, pages)
            return [True] * len(keys)

        def get(self, keys: list[str], pages: list[pando.StorePage]) -> Any:
            self.calls.append(("get", len(keys)))
            for key, page in zip(keys, pages):
                at = 0
                for buffer in page:  # the other way to fill a page
                    buffer[:] = self.pages[key][at : at + len(buffer)]
                    at += len(buffer)
                assert at == page.size_bytes
            return np.ones(len(keys), bool)

    backend = Looking()
    with pando.Store(backend) as store:
        a, b = np.arange(10, dtype=np.uint8), np.arange(6, dtype=np.uint8)
        store.put([f"k{i}" for i in range(8)], [[a, b]] * 8).wait()
        assert [c for c in backend.calls if c[0] == "put"] == [("put", 3), ("put", 3), ("put", 2)]
        assert seen["sizes"] == [10, 6, 24] and seen["len"] == 3 and "k6 of 40" in seen["repr"]
        assert seen["addresses"][:2] == [a.ctypes.data, b.ctypes.data]
        assert seen["views"] == [(memoryview, True, n, "B") for n in (10, 6, 24)]
        out = bytearray(16)
        assert store.get(["k7"], [out]).wait() == [DONE]
        assert out == a.tobytes() + b.tobytes()
    tag = pando.make_page_tag("k7", [a, b])
    expected = b"".join(
        v.to_bytes(8, "little") for v in (tag.size_bytes, tag.checksum_low, tag.checksum_high)
    )
    assert backend.pages["k7"] == a.tobytes() + b.tobytes() + expected


def test_memory_of_tags_is_told_once() -> None:
    told: list[tuple[int, int]] = []

    class Registering(DictStore):
        batch_pages = 4

        def register_memory(self, address: int, size_bytes: int) -> None:
            told.append((address, size_bytes))

        def put(self, keys: list[str], pages: list[pando.StorePage]) -> None:
            for page in pages:
                address, size_bytes = page.addresses[-1], page.sizes[-1]
                assert told[0][0] <= address <= told[0][0] + told[0][1] - size_bytes
            super().put(keys, pages)

    with pando.Store(Registering()) as store:
        for i in range(3):
            store.put([f"{i}-{j}" for j in range(9)], [b"x"] * 9).wait()
    assert [size for _, size in told] == [4 * 24]


def test_list_and_stats_of_a_python_store() -> None:
    store = DictStore()
    backend = pando.make_faulty_store(store, pando.StoreFaults())  # any backend around it
    assert backend.put(["a", "b"], [b"12", b"345"]) == [DONE, DONE]
    assert sorted((p.key, p.size_bytes) for p in backend.list()) == [("a", 2), ("b", 3)]
    assert backend.stats().num_pages == 2 and backend.name == "DictStore"
    backend.clear()
    assert store.pages == {}
    bare = {name: getattr(DictStore, name) for name in ("exists", "get", "put", "remove", "clear")}
    with pytest.raises(pando.Unavailable, match="has no list"):
        pando.make_faulty_store(type("Bare", (), bare)(), pando.StoreFaults()).list()


# ---- Stores of Python's: what they do wrong.


class Wrong(DictStore):
    def __init__(self, **answers: Any) -> None:
        super().__init__()
        self.answers = answers

    def __getattribute__(self, name: str) -> Any:
        answers = object.__getattribute__(self, "__dict__").get("answers", {})
        return answers[name] if name in answers else object.__getattribute__(self, name)


def raising(*args: Any) -> Any:
    raise RuntimeError("the wire is cut")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (raising, "the wire is cut"),
        (lambda *a: [True], "returned 1 answers: expected 2"),
        (lambda *a: [True] * 3, "returned 3 answers"),
        (lambda *a: None, "returned NoneType"),
        (lambda *a: 7, "returned int"),
        (lambda *a: [1, 1], "said 1 of page 0"),
        (lambda *a: ["yes", "yes"], "said 'yes'"),
        (lambda *a: [None, None], "said None"),
        (lambda *a: [PageOutcome.failed] * 2, "could not"),
        (lambda *a: [PageOutcome.pending] * 2, "could not"),
        (lambda: None, "TypeError"),
        (None, "TypeError"),
    ],
)
@pytest.mark.parametrize("method", ["exists", "get"])
def test_nonsense_fails_the_pages_of_that_call(
    answer: Any, message: str, method: str, unraisable: list[str]
) -> None:
    backend = Wrong()
    with pando.Store(backend) as store:
        store.put(["a", "b"], [b"1", b"2"]).wait()
        backend.answers[method] = answer
        if method == "exists":
            call = store.exists(["a", "b"])
        else:
            call = store.get(["a", "b"], [bytearray(1), bytearray(1)])
        with pytest.raises(pando.IoError, match=message):
            call.wait()
        assert call.outcomes == [FAILED, FAILED]
        backend.answers.clear()
        out = bytearray(1)
        assert store.get(["b"], [out]).wait() == [DONE] and out == b"2", "and it goes on"


@pytest.mark.parametrize("method", ["put", "remove", "clear"])
def test_failing_writes_are_told(method: str, unraisable: list[str]) -> None:
    backend = Wrong(**{method: raising})
    with pando.Store(backend) as store:
        if method == "clear":
            call = store.clear()
        else:
            call = store.put(["a"], [b"1"]) if method == "put" else store.remove(["a"])
        with pytest.raises(pando.IoError, match="the wire is cut"):
            call.wait()
    assert len(unraisable) == 1 and f"Wrong.{method}" in unraisable[0]


def test_pages_that_are_not_taken_have_failed() -> None:
    class Picky(DictStore):
        def put(self, keys: list[str], pages: list[pando.StorePage]) -> list[bool]:
            return [key == "good" for key in keys]

    with pando.Store(Picky()) as store:
        call = store.put(["bad", "good"], [b"1", b"2"])
        with pytest.raises(pando.IoError, match="did not take it"):
            call.wait()
        assert call.outcomes == [FAILED, DONE]


def test_lies_are_never_hits() -> None:
    """Nothing filled, other pages' bytes, cut, damaged, of another key: all found out."""

    class Liar(DictStore):
        how = "nothing"

        def get(self, keys: list[str], pages: list[pando.StorePage]) -> list[Any]:
            for key, page in zip(keys, pages):
                value = bytearray(self.pages[key])
                if self.how == "other":
                    value = bytearray(self.pages["b" if key == "a" else "a"])
                elif self.how == "bit":
                    value[3] ^= 16
                elif self.how == "tag":
                    value[-1] ^= 1
                elif self.how == "cut":
                    value[-30:] = bytes(30)
                elif self.how == "moved":
                    value = value[1:] + value[:1]
                if self.how != "nothing":
                    page.copy_from(value)
            return [True] * len(keys)

    for how in ("nothing", "other", "bit", "tag", "cut", "moved"):
        backend = Liar()
        with pando.Store(backend) as store:
            store.put(["a", "b"], [b"A" * 64, b"B" * 64]).wait()
            backend.how = how
            assert store.get(["a", "b"], [bytearray(64), bytearray(64)]).wait() == [DAMAGED] * 2
            assert backend.pages == {}, "what is damaged is removed"
            assert store.stats().damaged_pages == 2


def test_a_store_that_forgets_says_missing() -> None:
    class Forgetful(DictStore):
        def put(self, keys: list[str], pages: list[pando.StorePage]) -> None:
            pass

    with pando.Store(Forgetful()) as store:
        assert store.put(["a"], [b"1"]).wait() == [DONE]
        assert store.get(["a"], [bytearray(1)]).wait() == [MISSING]


@pytest.mark.parametrize(
    "keep",
    [
        lambda page: page[0][:4],
        lambda page: np.frombuffer(page[0], np.uint8),
        lambda page: [b[:] for b in page],
    ],
)
def test_kept_views_fail_the_call(keep: Any, unraisable: list[str]) -> None:
    kept: list[Any] = []

    class Keeping(DictStore):
        def put(self, keys: list[str], pages: list[pando.StorePage]) -> None:
            kept.extend(keep(page) for page in pages)

    with pando.Store(Keeping()) as store:
        page = np.zeros(64, np.uint8)
        with pytest.raises(pando.IoError, match="kept a view of page a"):
            store.put(["a"], [page]).wait()
        kept.clear()


def test_pages_and_views_end_with_their_call() -> None:
    kept: list[Any] = []

    class Keeping(DictStore):
        def put(self, keys: list[str], pages: list[pando.StorePage]) -> None:
            kept.extend([pages[0], pages[0][0]])
            pages.clear()  # it is a list of its own

    with pando.Store(Keeping()) as store:
        assert store.put(["a"], [b"bytes"]).wait() == [DONE]
    page, view = kept
    with pytest.raises(ValueError, match="released"):
        view[0]
    for use in (lambda: page[0], page.tobytes, lambda: page.addresses, lambda: page.sizes):
        with pytest.raises(pando.InvalidArgument, match="has ended"):
            use()
    assert page.key == "a"
    with pytest.raises(TypeError):
        pando.StorePage()
    with pytest.raises((TypeError, BufferError, SystemError)):
        memoryview(pando.StorePage.__new__(pando.StorePage))  # type: ignore[arg-type]


def test_a_python_store_may_use_pando_itself() -> None:
    """A store of two levels: Python in front of the library's, called from the Store's threads."""

    class Levels:
        def __init__(self) -> None:
            self.inner = pando.Store(pando.make_memory_store())

        def exists(self, keys: list[str]) -> list[bool]:
            return [o == DONE for o in self.inner.exists(keys).wait()]

        def get(self, keys: list[str], pages: list[pando.StorePage]) -> list[PageOutcome]:
            return self.inner.get(keys, [list(page) for page in pages]).wait()

        def put(self, keys: list[str], pages: list[pando.StorePage]) -> list[bool]:
            outcomes = self.inner.put(keys, [[bytes(b) for b in page] for page in pages]).wait()
            return [o == DONE for o in outcomes]

        def remove(self, keys: list[str]) -> None:
            self.inner.remove(keys).wait()

        def clear(self) -> None:
            self.inner.clear().wait()

    with pando.Store(Levels()) as store:
        store.put(["a"], [b"bytes"]).wait()
        out = bytearray(5)
        assert store.get(["a", "b"], [out, bytearray(5)]).wait() == [DONE, MISSING]
        assert out == b"bytes"


# ---- Against a model.

KEYS = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.binary(min_size=1, max_size=40)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(KEYS, VALUES), max_size=5)),
        st.tuples(st.just("get"), st.lists(KEYS, max_size=5)),
        st.tuples(st.just("exists"), st.lists(KEYS, max_size=5)),
        st.tuples(st.just("remove"), st.lists(KEYS, max_size=3)),
        st.tuples(st.just("clear"), st.just([])),
    ),
    max_size=20,
)


@given(OPS, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_python_store_behaves_like_a_dict(ops: list[tuple[str, Any]], batch_pages: int) -> None:
    backend = DictStore()
    backend.batch_pages = batch_pages  # type: ignore[attr-defined]
    model: dict[str, bytes] = {}
    with pando.Store(backend) as store:
        for op, arg in ops:
            if op == "put":
                keys, values = [k for k, _ in arg], [v for _, v in arg]
                assert store.put(keys, values).wait() == [DONE] * len(arg)
                model.update(zip(keys, values))
            elif op == "get":
                outs = [bytearray(len(model.get(k, b"?"))) for k in arg]
                expected = [DONE if k in model else MISSING for k in arg]
                assert store.get(arg, outs).wait() == expected
                assert all(outs[i] == model[k] for i, k in enumerate(arg) if k in model)
            elif op == "exists":
                assert store.exists(arg).wait() == [DONE if k in model else MISSING for k in arg]
            elif op == "remove":
                store.remove(arg).wait()
                for key in arg:
                    model.pop(key, None)
            else:
                store.clear().wait()
                model.clear()
        listed = pando.make_faulty_store(backend, pando.StoreFaults()).list()
        assert {p.key: p.size_bytes for p in listed} == {k: len(v) for k, v in model.items()}


@given(
    st.integers(0, 2**32),
    st.floats(0, 0.4),
    st.floats(0, 0.4),
    st.floats(0, 0.4),
    st.floats(0, 0.4),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_faults_never_give_other_bytes(
    seed: int, error: float, short_read: float, flipped_bit: float, stale: float
) -> None:
    faults = pando.StoreFaults(
        seed=seed, error=error, short_read=short_read, flipped_bit=flipped_bit, stale=stale
    )
    backend = pando.make_faulty_store(DictStore(), faults)
    values = {f"k{i}": bytes([i]) * 100 for i in range(20)}
    with pando.Store(backend, num_read_threads=2, num_write_threads=2) as store:
        puts = [store.put([k], [v]) for k, v in values.items()]
        for call in puts:
            try:
                call.wait()
            except pando.Error:
                pass
        outs = {k: bytearray(100) for k in values}
        gets = {k: store.get([k], [outs[k]]) for k in values}
        for key, call in gets.items():
            try:
                call.wait()
            except pando.Error:
                continue
            if call.outcome(0) == DONE:
                assert outs[key] == values[key]


def test_many_threads_on_one_store() -> None:
    backend = DictStore()
    errors: list[BaseException] = []
    with pando.Store(backend, num_read_threads=4, num_write_threads=2) as store:

        def work(worker: int) -> None:
            try:
                for i in range(60):
                    key, value = f"{worker}-{i % 10}", os.urandom(256)
                    store.remove([key]).wait()
                    store.put([key], [value]).wait()
                    out = bytearray(256)
                    assert store.get([key], [out]).wait() == [DONE]
                    assert out == value
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert errors == []


# ---- By name.

names = iter(f"test-{os.getpid()}-{i}" for i in range(1000))


def test_a_registered_factory_gets_its_options() -> None:
    name = next(names)
    made: list[DictStore] = []

    def factory(**options: Any) -> DictStore:
        made.append(DictStore(**options))
        return made[-1]

    pando.register_store(name, factory)
    assert name in pando.registered_stores()
    options = {"host": "h", "port": 1, "fast": True, "share": 0.5, "nodes": ["a", "b"]}
    backend = pando.make_store_backend(name, options)
    assert made[0].options == options
    pando.make_store_backend(name, '{"port": 2}')
    assert made[1].options == {"port": 2}
    assert backend.put(["k"], [b"v"]) == [DONE] and list(made[0].pages) == ["k"]
    with pytest.raises(pando.InvalidArgument, match="already"):
        pando.register_store(name, factory)
    with pytest.raises(pando.InvalidArgument, match="visible ASCII"):
        pando.register_store("two words", factory)
    with pytest.raises(pando.InvalidArgument, match="something to call"):
        pando.register_store(next(names), 3)  # type: ignore[arg-type]


def test_a_factory_that_fails_says_why() -> None:
    class Strict(DictStore):
        def __init__(self, server: str) -> None:
            super().__init__()
            if server == "gone":
                raise ConnectionError("nobody answers")

    name = next(names)
    pando.register_store(name, Strict)
    with pytest.raises(pando.InvalidArgument, match="unexpected keyword argument 'sever'"):
        pando.make_store_backend(name, {"sever": "x"})
    with pytest.raises(pando.Unavailable, match="ConnectionError: nobody answers"):
        pando.make_store_backend(name, {"server": "gone"})
    pando.make_store_backend(name, {"server": "x"})
    name = next(names)
    pando.register_store(name, lambda: 3)
    with pytest.raises(pando.InvalidArgument, match="this int has no exists"):
        pando.make_store_backend(name)
    with pytest.raises(pando.NotFound, match="there is no store 'nope'"):
        pando.make_store_backend("nope")
    with pytest.raises(pando.InvalidArgument, match="unknown option"):
        pando.make_store_backend("memory", {"capacity": 3})


def test_a_factory_may_return_a_backend_of_the_library() -> None:
    name = next(names)
    pando.register_store(name, pando.make_memory_store)
    backend = pando.make_store_backend(name, {"capacity_bytes": 100})
    assert backend.name == "memory" and backend.stats().capacity_bytes == 100


# ---- Config.


def test_config_reads_what_it_should_be() -> None:
    config = pando.Config(
        {"flag": True, "count": 3, "share": 0.5, "name": "x", "nodes": ("a", "b"), "size": "2KiB"}
    )
    assert config.boolean("flag") is True and config.boolean("other", True) is True
    assert config.integer("count") == 3 and config.number("count") == 3.0
    assert config.number("share") == 0.5 and config.text("name") == "x"
    assert config.list("nodes") == ["a", "b"] and config.list("name") == ["x"]
    assert config.bytes("size") == 2048 and config.bytes("none", 7) == 7
    assert "flag" in config and not config.has("z") and len(config) == 6
    assert pando.Config(config) == config
    assert config.to_dict()["nodes"] == ["a", "b"]
    with pytest.raises(pando.InvalidArgument, match="count must be text, got an integer"):
        config.text("count")
    taken = config.extract(["flag", "zzz"])
    assert taken.to_dict() == {"flag": True} and "flag" not in config
    with pytest.raises(pando.InvalidArgument, match="unknown options"):
        config.refuse_unknown(["count"])
    config.set("late", 4)
    assert config.integer("late") == 4


@pytest.mark.parametrize(
    "options",
    [{"a": None}, {"a": {}}, {"a": [1]}, {"a": float("inf")}, {"a": 2**70}, {1: 2}, 3, "nonsense"],
)
def test_config_refuses_what_it_cannot_hold(options: Any) -> None:
    with pytest.raises(pando.InvalidArgument):
        pando.Config(options)


def test_config_reads_files(tmp_path: Path) -> None:
    path = tmp_path / "options.json"
    path.write_text('{"depth": 4, "direct": false}')
    assert pando.Config.parse(f"@{path}").to_dict() == {"depth": 4, "direct": False}
    with pytest.raises(pando.NotFound):
        pando.Config.parse(f"@{tmp_path}/none.json")


# ---- Keys.


def test_keys_say_what_they_are_of() -> None:
    geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4)
    scope = pando.StoreScope(model="org/m", tp_rank=1, tp_size=2)
    space = pando.KeySpace(scope, geometry, pando.HostLayout.page_first)
    page = bytes(range(32))
    parts = pando.parse_key(space.key(page))
    assert parts is not None and parts.hash == page and parts.model == "org-m"
    assert parts.tp == pando.RankOf(rank=1, size=2) and parts.pp is None
    assert parts.component == pando.ComponentKind.full and space.suffix in space.key(page)
    assert space.writes
    shared = pando.StoreScope(tp_rank=1, tp_size=2, same_on_all_tp_ranks=True)
    assert not pando.KeySpace(shared, geometry, pando.HostLayout.page_first).writes
    other = pando.KeySpace(scope, geometry, pando.HostLayout.page_head)
    assert other.key(page) != space.key(page)
    with pytest.raises(pando.InvalidArgument, match="3 bytes; expected 32"):
        space.key(b"abc")
    with pytest.raises(pando.InvalidArgument):
        outside = pando.StoreScope(tp_rank=3, tp_size=2)
        pando.KeySpace(outside, geometry, pando.HostLayout.page_first)


def test_pages_of_sglang_are_imported(tmp_path: Path) -> None:
    geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4)
    space = pando.KeySpace(pando.StoreScope(model="m"), geometry, pando.HostLayout.page_first)
    pages = {os.urandom(32): os.urandom(128) for _ in range(3)}
    for page, value in pages.items():
        (tmp_path / f"{space.sglang_name(page)}.bin").write_bytes(value)
    (tmp_path / "README").write_text("not a page")
    store = DictStore()
    report = pando.import_sglang_pages(tmp_path, space, 128, store)
    assert (report.imported_pages, report.refused_files) == (3, 1)
    assert {key: value[:-24] for key, value in store.pages.items()} == {
        space.key(page): value for page, value in pages.items()
    }
    with pytest.raises(pando.IoError):
        pando.import_sglang_pages(tmp_path / "none", space, 128, pando.make_memory_store())


# ---- Backends of the library.


def test_file_store_is_found_again(tmp_path: Path) -> None:
    with pando.Store(pando.make_file_store(tmp_path / "s", min_free_bytes=0)) as store:
        store.put(["a"], [b"x" * 5000]).wait()
    del store
    gc.collect()
    backend = pando.make_store_backend(
        "file", {"directory": str(tmp_path / "s"), "min_free_bytes": 0}
    )
    out = bytearray(5000)
    assert backend.get(["a"], [out]) == [DONE] and out == b"x" * 5000
    second = pando.make_file_store(tmp_path / "s", min_free_bytes=0)  # what one puts, others find
    assert second.put(["b"], [b"y" * 100]) == [DONE]
    assert backend.exists(["a", "b"]) == [DONE, DONE]
    with pytest.raises(pando.Error, match="capacity"):
        pando.make_file_store(tmp_path / "s", capacity_bytes=1 << 20)
    with pytest.raises(pando.Error):
        pando.make_file_store("")


def test_memory_store_evicts_beyond_its_capacity() -> None:
    backend = pando.make_memory_store(capacity_bytes=250)
    backend.put(["a", "b", "c"], [b"1" * 100] * 3)
    assert backend.stats().evicted_pages == 1
    assert backend.exists(["a", "b", "c"]) == [MISSING, DONE, DONE]
    with pytest.raises(pando.InvalidArgument, match=r"keys\[0\] is empty"):
        backend.remove([""])


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[str]:
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir"]
    process = subprocess.Popen([*command, str(tmp_path)], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.2).close()
                break
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def test_redis_store(redis_server: str) -> None:
    backend = pando.make_redis_store([redis_server], key_prefix="t:", io_timeout=2.0)
    with pando.Store(backend) as store:
        value = os.urandom(100_000)
        assert store.put(["a", "b"], [value, b"2"]).wait() == [DONE, DONE]
        out = bytearray(100_000)
        assert store.get(["a", "c"], [out, bytearray(1)]).wait() == [DONE, MISSING]
        assert out == value
        assert sorted(p.key for p in backend.list()) == ["a", "b"]
        store.clear().wait()
        assert store.exists(["a"]).wait() == [MISSING]


def test_redis_that_is_gone_fails_pages() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    try:
        backend = pando.make_redis_store([address], connect_timeout=0.2, ttl=10.0)
    except pando.Error:
        return
    with pando.Store(backend) as store, pytest.raises(pando.Error):
        store.exists(["a"], timeout=1.0).wait()


# ---- The end of the interpreter.

PREAMBLE = """
import threading, time
import pando

class Slow:
    def exists(self, keys): time.sleep(0.3); return [False] * len(keys)
    def get(self, keys, pages): time.sleep(0.3); return [False] * len(keys)
    def put(self, keys, pages): time.sleep(0.3)
    def remove(self, keys): pass
    def clear(self): pass
"""


def run_to_the_end(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PREAMBLE + script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "script",
    [
        # Calls that run, and calls that wait, when the script ends.
        "store = pando.Store(Slow(), num_read_threads=3)\n"
        "calls = [store.get([str(i)], [bytearray(8)]) for i in range(50)]\n"
        "time.sleep(0.1)",
        # One that uses the library itself, and waits.
        "inner = pando.Store(Slow())\n"
        "class Levels(Slow):\n"
        "    def exists(self, keys):\n"
        "        time.sleep(0.2)\n"
        "        try: inner.exists(keys).wait()\n"
        "        except pando.Error: pass\n"
        "        return [True] * len(keys)\n"
        "store = pando.Store(Levels()); call = store.exists(['a']); time.sleep(0.1)",
        # In a cycle, which only the collector finds.
        "class Node: pass\n"
        "n = Node(); n.me = n; n.store = pando.Store(Slow()); n.call = n.store.put(['a'], [b'x'])",
        # A factory, its store, and a store made of it.
        "pando.register_store('slow', lambda **o: Slow())\n"
        "backend = pando.make_store_backend('slow')\n"
        "store = pando.Store(backend); call = store.exists(['a'])",
        # Used by what runs after the modules have begun to go.
        "store = pando.Store(Slow())\n"
        "class Last:\n"
        "    def __del__(self, store=store): store.exists(['a']); store.close()\n"
        "last = Last()",
        # Pools, views and transfers.
        "import numpy as np\n"
        "g = pando.mha_geometry(num_layers=4, heads=8, head_dim=64, page_size=16)\n"
        "device = pando.KvPool(g, 8192); host = pando.HostPool(device, ratio=1.0, "
        "keep_free_bytes=0)\n"
        "copier = pando.make_cpu_copier(); pages = host.alloc(512); host.protect_write(pages)\n"
        "moves = [copier.backup(device, host, np.arange(1, 513), pages) for i in range(4)]\n"
        "view = device.key(0).numpy()",
    ],
)
def test_the_interpreter_ends_cleanly(script: str) -> None:
    assert run_to_the_end(script) == ""


def test_daemon_threads_do_not_disturb_the_end() -> None:
    """They come back to Python when it is going; what their frames hold is never freed."""
    errors = run_to_the_end(
        "store = pando.Store(Slow(), num_read_threads=2)\n"
        "calls = [store.exists([str(i)]) for i in range(6)]\n"
        "for call in calls: threading.Thread(target=call.wait, daemon=True).start()\n"
        "time.sleep(0.1)"
    )
    assert all("nanobind" in line or line.startswith((" ", "See")) for line in errors.splitlines())
