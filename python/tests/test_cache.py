# SPDX-License-Identifier: Apache-2.0
"""PrefixCache from Python: arrays in and out, and random calls against the dumbest reference."""

import array
import sys

import numpy as np
import pando
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule


def make_cache(tokens: int = 256, page_size: int = 1, **options):
    allocator = pando.PagedAllocator(tokens, page_size=page_size)
    return allocator, pando.PrefixCache(allocator, **options)


# What is accepted as tokens and slots.

FORMS = {
    "int32": lambda ids: np.array(ids, dtype=np.int32),
    "int64": lambda ids: np.array(ids, dtype=np.int64),
    "strided": lambda ids: np.repeat(np.array(ids, dtype=np.int32), 2)[::2],
    "read_only": lambda ids: np.frombuffer(np.array(ids, dtype=np.int32).tobytes(), dtype=np.int32),
    "array_i": lambda ids: array.array("i", ids),
    "array_q": lambda ids: array.array("q", ids),
    "memoryview": lambda ids: memoryview(np.array(ids, dtype=np.int64)),
    "list": list,
    "tuple": tuple,
}


@pytest.mark.parametrize("form", FORMS)
def test_tokens_in_any_form(form: str) -> None:
    allocator, cache = make_cache(page_size=4)
    ids = [3, 1, 4, 1, 5, 9, 2, 6]
    slots = allocator.alloc(8)
    cache.paths.insert(FORMS[form](ids), slots)
    match = cache.paths.match(FORMS[form](ids))
    assert match.length == 8
    assert match.slots.dtype == np.int64
    np.testing.assert_array_equal(match.slots, slots)
    assert cache.paths.probe(FORMS[form](ids[:4] + [7])) == 4


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    allocator, cache = make_cache(page_size=4)
    ids = torch.arange(8)
    cache.paths.insert(ids, torch.from_numpy(allocator.alloc(8)))
    out = torch.empty(8, dtype=torch.int64)
    assert cache.paths.match(ids.to(torch.int32), slots=out).length == 8
    assert out.tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    with pytest.raises(pando.InvalidArgument, match="expected one dimension of int32 or int64"):
        cache.paths.match(ids.to(torch.float32))


@pytest.mark.parametrize(
    "tokens,message",
    [
        (np.zeros(4), "expected one dimension of int32 or int64, got 1 dimensions of format 'd'"),
        (np.zeros((2, 2), dtype=np.int32), "got 2 dimensions"),
        (np.zeros(4, dtype=np.uint8), "format 'B'"),
        ([1, 2, "three"], r"tokens\[2\] is 'three': expected an integer"),
        ([1, 2**31], r"tokens\[1\] is 2147483648: expected 0 to 2147483647"),
        ([1, -2], r"tokens\[1\] is -2"),
        ([2**70], r"tokens\[0\] is 1180591620717411303424"),
        ("text", r"tokens\[0\] is 't'"),
        (7, "got int"),
    ],
)
def test_bad_tokens_are_refused_and_change_nothing(tokens, message: str) -> None:
    _, cache = make_cache()
    before = cache.inspect.digest()
    with pytest.raises(pando.InvalidArgument, match=message):
        cache.paths.match(tokens)
    with pytest.raises(pando.InvalidArgument, match="the key is empty"):
        cache.paths.match([])
    with pytest.raises(pando.Error):
        cache.paths.insert(tokens, [1, 2, 3])
    assert cache.inspect.digest() == before
    cache.check()


def test_negative_int32_is_refused_by_the_library() -> None:
    _, cache = make_cache()
    with pytest.raises(pando.InvalidArgument, match="-5"):
        cache.paths.insert(np.array([1, -5], dtype=np.int32), [1, 2])


def test_slots_to_the_callers_array() -> None:
    allocator, cache = make_cache()
    slots = allocator.alloc(4)
    cache.paths.insert([1, 2, 3, 4], slots)
    out = np.zeros(6, dtype=np.int64)
    match = cache.paths.match([1, 2, 3, 4, 5], slots=out)
    np.testing.assert_array_equal(out[:4], slots)
    assert match.slots.base is out
    assert cache.paths.match([1, 2], slots=False).slots is None
    for bad in (np.zeros(3, dtype=np.int64), np.zeros(8, dtype=np.int32), [0] * 8):
        with pytest.raises(pando.InvalidArgument, match="slots"):
            cache.paths.match([1, 2, 3, 4, 5], slots=bad)
    frozen = np.zeros(8, dtype=np.int64)
    frozen.flags.writeable = False
    with pytest.raises(pando.InvalidArgument, match="writable"):
        cache.paths.match([1, 2, 3, 4, 5], slots=frozen)


def test_returned_slots_own_their_memory() -> None:
    allocator, cache = make_cache(4096)
    slots = allocator.alloc(2048)
    cache.paths.insert(np.arange(2048), slots)
    kept = cache.paths.match(np.arange(2048)).slots
    short = cache.paths.match(np.arange(8)).slots
    del cache, allocator
    np.testing.assert_array_equal(kept, slots)
    np.testing.assert_array_equal(short, slots[:8])


# Names, errors, options.


def test_namespaces_do_not_share() -> None:
    allocator, cache = make_cache()
    cache.paths.insert([1, 2, 3], allocator.alloc(3), ns="a")
    assert cache.paths.match([1, 2, 3]).end == pando.MatchEnd.namespace_unknown
    assert cache.paths.match([1, 2, 3], ns="a").length == 3
    both = pando.make_namespace(lora="x", salt="y")
    cache.paths.insert([1, 2, 3], allocator.alloc(3), ns=both)
    assert cache.paths.match([1, 2, 3], ns=both).length == 3
    assert cache.paths.probe_many([[1, 2], [9], [1, 2, 3, 4]], ns="a") == [2, 0, 3]


def test_errors_are_the_librarys_own() -> None:
    allocator, cache = make_cache(16)
    with pytest.raises(ValueError, match="power of two"):
        pando.PagedAllocator(16, page_size=3)
    with pytest.raises(pando.OutOfCapacity, match="16"):
        allocator.alloc(17)
    match = cache.paths.match([1])
    cache.paths.insert([1, 2], allocator.alloc(2))
    found = cache.paths.match([1, 2])
    cache.evict(2)
    with pytest.raises(pando.StaleHandle):
        cache.paths.lock(found)
    assert not cache.paths.lock(match)
    with pytest.raises(pando.Unavailable):
        cache.allocate_state()
    with pytest.raises(TypeError, match="no option 'pagesize'"):
        pando.PrefixCache(allocator, pagesize=1)
    with pytest.raises(pando.InvalidArgument, match="expected a PagedAllocator"):
        pando.PrefixCache(7)
    with pytest.raises(pando.BrokenContract, match="free"):
        allocator.free([3])


@pytest.mark.parametrize("window", [1, 4, 15])
def test_a_window_may_be_smaller_than_a_page(window: int) -> None:
    slots = pando.WindowAllocator(512, 128, page_size=16)
    cache = pando.PrefixCache(slots, pando.CacheOptions(window=window))
    request = cache.start(np.arange(100))
    for end in (48, 100):
        cache.allocate(request, end)
        cache.release_window(request, end)
    cache.finish(request)
    assert cache.paths.match(np.arange(100)).length == 96
    assert cache.paths.match(np.arange(80)).length == 0
    assert cache.inspect.sizes(pando.ComponentKind.window).total == 16
    cache.check()
    with pytest.raises(ValueError, match="a window of 0 tokens"):
        pando.PrefixCache(slots, pando.CacheOptions(window=0))


def test_options_compose() -> None:
    slots = pando.WindowAllocator(512, 128, page_size=16)
    states = pando.StateAllocator(4)
    cache = pando.PrefixCache(
        slots,
        pando.CacheOptions(window=32, state=pando.StateOptions(snapshot_interval=64)),
        policy="slru",
        states=states,
        events=True,
        remember_evicted=100,
    )
    assert (cache.options.window, cache.options.events) == (32, True)
    request = cache.start(np.arange(100))
    for end in (48, 100):
        cache.allocate(request, end)
        cache.release_window(request, end)
    cache.set_snapshot(request, cache.allocate_state(), 96)
    assert request.snapshot_length == 96 and request.snapshot
    cache.finish(request)
    again = cache.start(np.arange(100))
    match = again.found
    assert match.length == 96
    assert match.snapshot
    again.release_snapshot()
    cache.abandon(again)
    cache.check()
    assert cache.inspect.sizes(pando.ComponentKind.state).total == 1


# Requests.


def test_a_request_grows_token_by_token() -> None:
    allocator, cache = make_cache(64, page_size=4)
    request = cache.start([1, 2, 3, 4, 5], priority=3, ns="mine")
    assert (request.found.length, request.ns, request.is_running) == (0, b"mine", True)
    cache.allocate(request, 3)
    assert len(request.slots) == 3
    cache.allocate(request)
    cache.checkpoint(request, 4, chunked=True)
    assert request.cached_length == 4
    for token in range(6, 30):
        request.append(token)
        cache.allocate(request)
    assert len(set(request.slots.tolist())) == 29
    cache.check()
    cache.finish(request)
    assert cache.inspect.sizes().total == 28
    assert allocator.available == 64 - 28
    with pytest.raises(pando.StaleHandle, match="finish: the request has finished"):
        cache.finish(request)
    assert not request.is_running and len(request) == 29
    with pytest.raises(pando.InvalidArgument, match="append: token -1"):
        request.append(-1)


def test_a_request_with_the_engines_slots() -> None:
    freed: list[int] = []
    slots = pando.EngineSlots(
        max_slots=64, page_size=4, free=lambda slots: freed.extend(slots.tolist())
    )
    cache = pando.PrefixCache(slots)
    request = cache.start([1, 2, 3, 4, 5, 6])
    with pytest.raises(pando.Unavailable, match="engine's own slots"):
        cache.allocate(request)
    cache.give_slots(request, [8, 9, 10, 11, 12])
    with pytest.raises(pando.InvalidArgument, match="give_slots: slot 64"):
        cache.give_slots(request, [64])
    cache.give_slots(request, np.array([13]))
    assert request.slots.tolist() == [8, 9, 10, 11, 12, 13]
    cache.finish(request)
    assert freed == [12, 13]
    cache.check()


def test_a_request_belongs_to_one_cache() -> None:
    _, cache = make_cache()
    _, other = make_cache()
    request = cache.start([1, 2])
    with pytest.raises(pando.StaleHandle, match="another cache"):
        other.allocate(request)
    with pytest.raises(pando.InvalidArgument, match="another cache"):
        other.abandon(request)
    cache.abandon(request)
    with pytest.raises(pando.StaleHandle, match="has finished"):
        cache.allocate(request)


def test_how_much_is_computed_again() -> None:
    allocator, cache = make_cache()
    cache.paths.insert([1, 2, 3, 4], allocator.alloc(4))
    for recompute, cached in ((0, 4), (1, 3), (3, 1), (9, 0), (None, 0)):
        request = cache.start([1, 2, 3, 4], recompute=recompute)
        assert request.cached_length == cached
        cache.abandon(request)


# Parts written in Python.


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sys.unraisablehook hears: as text, because keeping what it gets makes cycles."""
    seen: list[str] = []
    monkeypatch.setattr(
        sys, "unraisablehook", lambda args: seen.append(f"{args.object}: {args.exc_value}")
    )
    return seen


class Largest:
    """Evicts the largest node first."""

    name = "largest"

    def key(self, stats: pando.NodeStats) -> int:
        return 2**32 - stats.num_tokens


def test_a_policy_in_python() -> None:
    allocator, cache = make_cache(policy=Largest(), evict_whole_nodes=True)
    cache.paths.insert([1, 2], allocator.alloc(2))
    cache.paths.insert([3, 4, 5], allocator.alloc(3))
    assert cache.evict(1).tokens == 3
    assert cache.paths.probe([1, 2]) == 2


@pytest.mark.parametrize("bad", ["raises", "text", "negative"])
def test_a_policy_that_fails_is_contained(bad: str, unraisable: list[str]) -> None:
    class Bad:
        def key(self, stats):
            if bad == "raises":
                raise RuntimeError("no key today")
            return "x" if bad == "text" else -1

    allocator, cache = make_cache(policy=Bad())
    cache.paths.insert([1, 2], allocator.alloc(2))
    cache.paths.insert([3], allocator.alloc(1))
    assert cache.evict(2).tokens == 2  # as lru: the older one
    assert cache.paths.probe([3]) == 1
    cache.check()
    assert "EvictionPolicy.key" in unraisable[0]


def test_slots_of_an_engine_in_python(unraisable: list[str]) -> None:
    def free(slots: np.ndarray) -> None:
        assert slots.dtype == np.int64
        if 13 in slots:
            raise ValueError("unlucky")
        freed.extend(slots.tolist())

    freed: list[int] = []
    cache = pando.PrefixCache(pando.EngineSlots(max_slots=100, free=free))
    cache.paths.insert([1, 2, 3], [10, 11, 12])
    cache.paths.insert([1, 2, 3], [20, 21, 22])
    assert sorted(freed) == [20, 21, 22]
    cache.paths.insert([9], [13])
    assert cache.evict(1).tokens == 1
    cache.evict(3)
    assert unraisable == ["EngineSlots.free: unlucky"]


def test_a_callback_must_not_call_back() -> None:
    def free(slots: np.ndarray) -> None:
        with pytest.raises(pando.WrongThread, match="evict"):
            cache.paths.probe([1])
        asked.append(True)

    asked: list[bool] = []
    cache = pando.PrefixCache(pando.EngineSlots(max_slots=100, free=free))
    cache.paths.insert([1], [5])
    cache.evict(1)
    assert asked == [True]
    cache.check()


class Alone:
    """Ranks of one, written in Python."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.calls = 0

    def min(self, values):
        self.calls += 1
        return values

    max = min

    def barrier(self) -> None:
        self.calls += 1


def test_ranks_must_be_ranks() -> None:
    allocator = pando.PagedAllocator(16)
    pando.PrefixCache(allocator, ranks=Alone()).check()
    pando.PrefixCache(allocator, ranks=pando.make_single_rank()).check()
    with pytest.raises(pando.InvalidArgument, match="this one has no size"):
        pando.PrefixCache(allocator, ranks=type("R", (), {"rank": 0})())


# Random calls against a set of all cached page prefixes.


class CacheMachine(RuleBasedStateMachine):
    """The reference knows the slot of every cached page by its whole prefix; the tree must agree,
    and nothing may be lost: allocator + tree + requests have every slot."""

    PAGE = 4
    TOKENS = 160

    def __init__(self) -> None:
        super().__init__()
        self.allocator = pando.PagedAllocator(self.TOKENS, page_size=self.PAGE)
        self.cache = pando.PrefixCache(self.allocator)
        self.pages: dict[tuple, list[int]] = {}
        self.leases: list[tuple[pando.Lease, tuple]] = []
        self.requests: list[pando.Request] = []

    def expected(self, key: list[int]) -> list[int]:
        slots: list[int] = []
        for end in range(self.PAGE, len(key) + 1, self.PAGE):
            page = self.pages.get(tuple(key[:end]))
            if page is None:
                break
            slots += page
        return slots

    def learn(self, key: list[int], slots: list[int]) -> None:
        for end in range(self.PAGE, len(key) + 1, self.PAGE):
            self.pages.setdefault(tuple(key[:end]), slots[end - self.PAGE : end])

    keys = st.lists(st.integers(0, 2), min_size=1, max_size=20)

    @rule(key=keys, as_list=st.booleans())
    def match(self, key: list[int], as_list: bool) -> None:
        match = self.cache.paths.match(key if as_list else np.array(key, dtype=np.int32))
        assert match.slots.tolist() == self.expected(key)

    @rule(key=keys)
    def insert(self, key: list[int]) -> None:
        whole = len(key) // self.PAGE * self.PAGE
        if whole == 0:
            return
        try:
            slots = self.allocator.alloc(whole)
        except pando.OutOfCapacity:
            return
        had = len(self.expected(key))
        inserted = self.cache.paths.insert(key[:whole], slots)
        assert (inserted.length, inserted.existing) == (whole, had)
        self.learn(key[:whole], slots.tolist())

    @rule(key=keys)
    def lock(self, key: list[int]) -> None:
        match = self.cache.paths.match(key)
        self.leases.append((self.cache.paths.lock(match), tuple(key[: match.length])))

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def release(self, data) -> None:
        lease, _ = self.leases.pop(data.draw(st.integers(0, len(self.leases) - 1)))
        lease.release()
        assert not lease

    @rule(key=keys)
    def start(self, key: list[int]) -> None:
        request = self.cache.start(key)
        match = request.found
        limit = max(len(key) - 1, 0) // self.PAGE * self.PAGE
        assert request.slots[: match.length].tolist() == self.expected(key[:limit])
        try:
            self.cache.allocate(request)
        except pando.OutOfCapacity:
            self.cache.abandon(request)
            self.forget_evicted()
            return
        self.forget_evicted()
        self.requests.append(request)

    @precondition(lambda self: self.requests)
    @rule(insert=st.booleans(), data=st.data())
    def finish(self, insert: bool, data) -> None:
        request = self.requests.pop(data.draw(st.integers(0, len(self.requests) - 1)))
        key, slots = request.tokens.tolist(), request.slots.tolist()
        if not insert:
            self.cache.abandon(request)
        else:
            self.cache.finish(request)
            self.learn(key[: len(key) // self.PAGE * self.PAGE], slots)

    @rule(tokens=st.integers(0, 40))
    def evict(self, tokens: int) -> None:
        before = self.cache.inspect.sizes()
        freed = self.cache.evict(tokens).tokens
        assert freed >= min(tokens, before.evictable)
        assert self.cache.inspect.sizes().total == before.total - freed
        self.forget_evicted()

    def forget_evicted(self) -> None:
        """Which pages go is the policy's; that what is held stays is checked."""
        kept = set(self.cache.inspect.all_slots().tolist())
        self.pages = {key: slots for key, slots in self.pages.items() if slots[0] in kept}
        for _, key in self.leases:
            assert len(self.expected(list(key))) == len(key)

    @invariant()
    def every_slot_has_one_owner(self) -> None:
        self.cache.check()
        held = [slots for slots in self.pages.values()]
        owned = sorted(slot for page in held for slot in page)
        assert owned == sorted(self.cache.inspect.all_slots().tolist())
        own = sum(
            -(-len(request.slots) // self.PAGE) * self.PAGE - request.cached_length
            for request in self.requests
        )
        assert self.allocator.available + len(owned) + own == self.TOKENS

    def teardown(self) -> None:
        for lease, _ in self.leases:
            lease.release()
        for request in self.requests:
            self.cache.abandon(request)
        self.cache.check()


TestCacheAgainstReference = CacheMachine.TestCase


@given(st.lists(st.integers(0, 2**31 - 1)), st.integers(0, 6))
def test_allocators_give_back_what_they_gave(sizes: list[int], shift: int) -> None:
    page = 2**shift
    allocator = pando.PagedAllocator(64 * page, page_size=page)
    given_out = []
    for size in sizes:
        count = size % 5 * page
        try:
            given_out.append(allocator.alloc(count))
        except pando.OutOfCapacity:
            allocator.free(given_out.pop(0))
    taken = np.concatenate([np.empty(0, dtype=np.int64), *given_out])
    assert len(np.unique(taken)) == len(taken)
    assert allocator.available == allocator.capacity - len(taken)
    for slots in given_out:
        allocator.free(slots)
    allocator.check()
