# SPDX-License-Identifier: Apache-2.0
"""Objects may be dropped in any order: arrays outlive caches, caches outlive leases, and what is
forgotten is reported."""

import gc
import itertools
import subprocess
import sys
import textwrap
import warnings
import weakref

import numpy as np
import pando
import pytest


def parts():
    allocator = pando.PagedAllocator(64)
    cache = pando.PrefixCache(allocator)
    cache.paths.insert([1, 2, 3], allocator.alloc(3))
    match = cache.paths.match([1, 2, 3])
    lease = cache.paths.lock(match)
    request = cache.start([1, 2, 3, 4])
    cache.allocate(request)
    table = pando.RequestTable(2, 8)
    table.write(table.alloc(), 0, match.slots)
    return {
        "allocator": allocator,
        "cache": cache,
        "slots": match.slots,
        "match": match,
        "lease": lease,
        "request": request,
        "row": table.row(0),
        "state": allocator.backup_state(),
    }


@pytest.mark.parametrize("order", list(itertools.permutations(["allocator", "cache", "lease", "request"])))
def test_any_order(order: tuple[str, ...]) -> None:
    held = parts()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for name in order:
            del held[name]
            gc.collect()
        assert {str(w.message).split()[1] for w in told} == {"pando.Lease", "pando.Request"}
    assert held["slots"].tolist() == [1, 2, 3]
    assert held["row"].tolist()[:3] == [1, 2, 3]


def test_a_forgotten_lease_is_released() -> None:
    allocator = pando.PagedAllocator(64)
    cache = pando.PrefixCache(allocator)
    cache.paths.insert([1, 2, 3], allocator.alloc(3))
    lease = cache.paths.lock(cache.paths.match([1, 2, 3]))
    assert cache.inspect.sizes().protected_tokens == 3
    with pytest.warns(ResourceWarning, match="Lease was forgotten"):
        del lease
    assert cache.inspect.sizes().protected_tokens == 0


def test_a_forgotten_request_gives_back_its_slots() -> None:
    allocator = pando.PagedAllocator(64, page_size=4)
    cache = pando.PrefixCache(allocator)
    request = cache.start(np.arange(10))
    cache.allocate(request)
    assert allocator.available == 52
    with pytest.warns(ResourceWarning, match="Request was forgotten"):
        del request
    assert allocator.available == 64
    cache.check()


def test_a_lease_is_a_context_manager() -> None:
    allocator = pando.PagedAllocator(64)
    cache = pando.PrefixCache(allocator)
    cache.paths.insert([1, 2, 3], allocator.alloc(3))
    with pytest.raises(KeyError), cache.paths.lock(cache.paths.match([1, 2, 3])) as lease:
        assert lease
        assert cache.evict(3).tokens == 0
        raise KeyError
    assert not lease
    lease.release()
    assert cache.evict(3).tokens == 3
    cache.paths.insert([5], allocator.alloc(1))
    with pytest.raises(pando.InUse), cache.paths.lock(cache.paths.match([5])):
        cache.reset()


def test_a_cache_goes_when_nobody_needs_it() -> None:
    class Policy:
        def key(self, stats):
            return stats.last_access

    policy = Policy()
    gone = weakref.ref(policy)
    allocator = pando.PagedAllocator(64)
    cache = pando.PrefixCache(allocator, policy=policy)
    del policy
    assert gone() is not None
    del cache
    gc.collect()
    assert gone() is None


def test_a_cycle_through_callbacks_is_collected() -> None:
    class Engine:
        def __init__(self) -> None:
            self.cache = pando.PrefixCache(
                pando.EngineSlots(max_slots=10, free=self.free), policy=self
            )

        def free(self, slots: np.ndarray) -> None: ...

        def key(self, stats: pando.NodeStats) -> int:
            return stats.created

    engine = Engine()
    engine.cache.paths.insert([1], [1])
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None


def test_nothing_leaks_at_exit() -> None:
    """nanobind says at exit what is left over: nothing, also of what was still in use."""
    script = """
        import numpy as np, pando
        allocator = pando.PagedAllocator(1024, page_size=16)
        cache = pando.PrefixCache(allocator, events=True)
        request = cache.start(np.arange(100))
        cache.allocate(request)
        cache.finish(request)
        lease = cache.paths.lock(cache.paths.match(np.arange(100)))
        slots = pando.EngineSlots(max_slots=10, free=lambda slots: cache)
        engine = pando.PrefixCache(slots)
        retention = pando.RetentionOptions(now=lambda: float(len(kept_longer)))
        kept_longer = [pando.PrefixCache(pando.PagedAllocator(64), retention=retention)]
        kept_longer.append(kept_longer[0].retention.open_session())
        request = kept_longer[0].start([1, 2], session=kept_longer[1])
        kept_longer[0].allocate(request)
        kept_longer[0].finish(request)
        kept_longer[0].retention.pin([1, 2], ttl=9)
        try:
            cache.paths.match("text")
        except pando.Error as error:
            kept = error
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert "leak" not in done.stderr, done.stderr
