# SPDX-License-Identifier: Apache-2.0
"""A cache belongs to one thread at a time: long calls let others run, and a second caller is told."""

import subprocess
import sys
import textwrap
import threading

import numpy as np
import pando
import pytest

LONG = 4_000_000


def test_a_second_thread_is_refused_while_a_call_runs() -> None:
    """The cache and its allocator share one guard; another cache does not mind."""
    allocator = pando.PagedAllocator(LONG)
    cache = pando.PrefixCache(allocator)
    key = np.arange(LONG, dtype=np.int32)
    cache.paths.insert(key, allocator.alloc(LONG))
    other = pando.PrefixCache(pando.PagedAllocator(16))
    out = np.empty(LONG, dtype=np.int64)
    stop = threading.Event()
    refused: list[str] = []

    def intrude() -> None:
        while not stop.is_set():
            assert other.paths.probe([1]) == 0
            try:
                cache.inspect.sizes()
                allocator.alloc(0)
            except pando.WrongThread as error:
                refused.append(str(error))

    thread = threading.Thread(target=intrude)
    thread.start()
    served = 0
    try:
        for _ in range(200):
            try:
                assert cache.paths.match(key, slots=out).length == LONG
                served += 1
            except pando.WrongThread:
                continue
            if refused:
                break
    finally:
        stop.set()
        thread.join()
    assert served
    assert refused
    assert "match() was under way" in refused[0]
    cache.check()


def test_threads_may_take_turns() -> None:
    allocator = pando.PagedAllocator(4096, page_size=16)
    cache = pando.PrefixCache(allocator)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def serve(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            for _ in range(200):
                tokens = random.integers(0, 3, size=random.integers(1, 100))
                with lock:
                    request = cache.start(tokens)
                    cache.allocate(request)
                    cache.finish(request)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    cache.check()
    assert allocator.available + cache.inspect.sizes().total == 4096


def test_a_lease_dropped_by_another_thread_is_released_in_time() -> None:
    allocator = pando.PagedAllocator(LONG)
    cache = pando.PrefixCache(allocator)
    key = np.arange(LONG, dtype=np.int32)
    cache.paths.insert(key, allocator.alloc(LONG))
    out = np.empty(LONG, dtype=np.int64)
    leases = [cache.paths.lock(cache.paths.match(key[:10], slots=False)) for _ in range(200)]

    def drop() -> None:
        with pytest.warns(ResourceWarning):
            while leases:
                leases.pop()

    thread = threading.Thread(target=drop)
    thread.start()
    while thread.is_alive():
        cache.paths.match(key, slots=out)
    thread.join()
    cache.paths.match(key[:10], slots=False)
    assert cache.inspect.sizes().protected_tokens == 0
    cache.check()


def test_the_first_arrays_may_be_made_by_several_threads() -> None:
    """NumPy is imported then, which lets other threads run."""
    script = """
        import sys, threading
        sys.setswitchinterval(1e-6)
        import pando
        threads = [threading.Thread(target=pando.PagedAllocator(8).alloc, args=(2,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)


def test_caches_that_mirror_each_other_are_made_by_several_threads() -> None:
    """Each waits for the others, without the GIL; time is that of the clock furthest behind."""
    pins: list[list[int]] = [[], []]

    def run(ranks: pando.Ranks) -> None:
        clock = iter(float(second) for second in range(1, 1000, 1 + ranks.rank))
        allocator = pando.PagedAllocator(16)
        cache = pando.PrefixCache(
            allocator, ranks=ranks, retention=pando.RetentionOptions(now=lambda: next(clock))
        )
        cache.paths.insert([1, 2], allocator.alloc(2))
        cache.retention.pin([1, 2], ttl=3)
        for _ in range(6):
            cache.poll()
            pins[ranks.rank].append(len(cache.retention.pins()))

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in pando.make_thread_ranks(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pins[0] == pins[1]
    assert (pins[0][0], pins[0][-1]) == (1, 0)


def test_ranks_agree_across_threads() -> None:
    given = [[5, -1, 7], [3, 4, 9], [8, 0, 0]]
    results: list[tuple[list[int], list[int]]] = [([], [])] * 3

    def run(ranks: pando.Ranks) -> None:
        mine = np.array(given[ranks.rank])
        results[ranks.rank] = (ranks.min(mine).tolist(), ranks.max(mine).tolist())
        ranks.barrier()

    threads = [threading.Thread(target=run, args=(ranks,)) for ranks in pando.make_thread_ranks(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [([3, -1, 0], [8, 4, 9])] * 3
