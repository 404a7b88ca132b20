# SPDX-License-Identifier: Apache-2.0
"""What is kept longer than the policy would keep it: priorities of ranges, pins, sessions, tenants.
Time is a clock of the test's."""

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pando
import pytest


class Clock:
    """Seconds that pass when told to. An exception in their place is raised."""

    def __init__(self) -> None:
        self.seconds: Any = 1000.0

    def __call__(self) -> float:
        if isinstance(self.seconds, type):
            raise self.seconds
        return self.seconds


class Kit:
    """A cache over an allocator, with a clock."""

    def __init__(self, tokens: int = 64, page_size: int = 1, policy="lru", **options) -> None:
        self.clock = Clock()
        retention = {
            name: options.pop(name)
            for name in ("max_pinned_share", "session_priority", "tenants")
            if name in options
        }
        self.allocator = pando.PagedAllocator(tokens, page_size=page_size)
        self.cache = pando.PrefixCache(
            self.allocator,
            policy=policy,
            retention=pando.RetentionOptions(now=self.clock, **retention),
            **options,
        )

    def insert(self, tokens, **options) -> pando.Inserted:
        page = self.allocator.page_size
        slots = self.allocator.alloc(-(-len(tokens) // page) * page)[: len(tokens)]
        inserted = self.cache.paths.insert(tokens, slots, **options)
        self.cache.check()
        return inserted

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.cache.poll()
        self.cache.check()


# Ranges.


def test_a_range_is_kept_above_the_rest() -> None:
    kit = Kit()
    kit.insert([1, 2, 3, 4], retention=[pando.RetentionRange(end=2, priority=5)])
    kit.insert([7, 8, 9])
    assert kit.cache.evict(5).tokens == 5
    assert (kit.cache.paths.probe([1, 2, 3, 4]), kit.cache.paths.probe([7, 8, 9])) == (2, 0)


def test_a_range_below_zero_goes_first() -> None:
    kit = Kit()
    kit.insert([7, 8, 9])
    kit.insert([1, 2, 3], retention=(pando.RetentionRange(priority=-1),))
    kit.cache.evict(3)
    assert (kit.cache.paths.probe([1, 2, 3]), kit.cache.paths.probe([7, 8, 9])) == (0, 3)


def test_a_range_ends_with_its_duration() -> None:
    kit = Kit()
    kit.insert([1, 2, 3], retention=[pando.RetentionRange(priority=5, duration=60)])
    kit.insert([7, 8, 9])
    kit.pass_time(59)
    kit.insert([4], retention=[])
    kit.cache.evict(1)
    assert kit.cache.paths.probe([1, 2, 3]) == 3
    kit.pass_time(2)
    kit.cache.evict(3)
    assert kit.cache.paths.probe([1, 2, 3]) == 0


def test_ranges_become_whole_pages() -> None:
    kit = Kit(page_size=4)
    ranges = [
        pando.RetentionRange(begin=1, end=3, priority=1),
        pando.RetentionRange(begin=4, priority=2),
    ]
    assert kit.insert(list(range(8)), retention=ranges).widened_ranges == 1


@pytest.mark.parametrize(
    "fields,message",
    [
        ({"end": 4}, r"insert: tokens \[0, 4\) are to be retained of a request of 3"),
        ({"begin": 2, "end": 2}, r"tokens \[2, 2\)"),
        ({"priority": 101}, "have priority 101; expected -100 to 100"),
        ({"duration": 0}, "retained for 0 ms; expected more than 0"),
        ({"duration": -1.5}, "retained for -1500 ms"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(fields: dict, message: str) -> None:
    kit = Kit()
    with pytest.raises(pando.InvalidArgument, match=message):
        kit.cache.paths.insert([1, 2, 3], [1, 2, 3], retention=[pando.RetentionRange(**fields)])
    with pytest.raises(pando.InvalidArgument, match=message.replace("insert", "start")):
        kit.cache.start([1, 2, 3], retention=[pando.RetentionRange(**fields)])
    assert kit.cache.inspect.num_nodes == pando.PrefixCache(kit.allocator).inspect.num_nodes


def test_a_range_in_python() -> None:
    whole = pando.RetentionRange()
    assert (whole.begin, whole.end, whole.priority, whole.duration) == (0, None, 0, None)
    some = pando.RetentionRange(begin=1, end=2, priority=3, duration=0.5)
    assert repr(some) == "RetentionRange(begin=1, end=2, priority=3, duration=0.5)"
    some.end = some.duration = None
    assert (some.end, some.duration) == (None, None)
    with pytest.raises(TypeError, match="no option 'until'"):
        pando.RetentionRange(until=3)
    with pytest.raises(pando.InvalidArgument, match="duration: not a number"):
        pando.RetentionRange(duration=float("nan"))
    with pytest.raises(TypeError):
        Kit().cache.paths.insert([1], [1], retention=["all of it"])


def test_a_request_gives_the_tree_its_ranges() -> None:
    kit = Kit(page_size=4)
    ranges = [pando.RetentionRange(end=6, priority=9)]
    request = kit.cache.start(np.arange(10), retention=ranges)
    assert request.widened_ranges == 0
    kit.cache.allocate(request)
    kit.cache.checkpoint(request, 8)
    assert request.widened_ranges == 1
    kit.cache.finish(request)
    kit.insert([99, 98, 97, 96])
    kit.cache.evict(4)
    assert kit.cache.paths.probe(np.arange(10)) == 8


def test_inserts_behind_a_lease_take_ranges_and_sessions() -> None:
    kit = Kit()
    ranges = [pando.RetentionRange(begin=1, end=3, priority=4)]
    session = kit.cache.retention.open_session()
    with kit.cache.paths.lock(kit.insert([1, 2]).match()) as lease:
        kit.cache.paths.insert_behind(
            lease, [3], kit.allocator.alloc(1), retention=ranges, session=session, unfinished=True
        )
    kit.insert([7])
    kit.cache.evict(1)
    assert kit.cache.paths.probe([1, 2, 3]) == 3
    assert kit.cache.retention.sessions()[0].tokens == 3


# Pins.


def test_a_pin_holds_what_is_there() -> None:
    kit = Kit()
    kit.insert([1, 2, 3], ns="a")
    pinned = kit.cache.retention.pin([1, 2, 3, 4], ns="a")
    assert pinned.length == 3
    (pin,) = kit.cache.retention.pins()
    assert (pin.id, pin.kind, pin.ns, pin.length) == (pinned.id, pando.PinKind.hard, b"a", 3)
    assert (pin.on_device, pin.remaining) == (True, None)
    assert kit.cache.retention.pinned_tokens == 3
    assert kit.cache.evict(3).tokens == 0
    kit.cache.retention.unpin(pinned.id)
    assert kit.cache.retention.pins() == []
    assert kit.cache.evict(3).tokens == 3
    with pytest.raises(pando.StaleHandle, match=f"unpin: there is no pin {pinned.id}"):
        kit.cache.retention.unpin(pinned.id)


def test_a_pin_ends_after_its_ttl() -> None:
    kit = Kit()
    kit.insert([1, 2, 3])
    pinned = kit.cache.retention.pin([1, 2, 3], ttl=10)
    kit.cache.retention.pin([1], ttl=0.25)
    kit.pass_time(2.5)
    assert [(pin.length, pin.remaining) for pin in kit.cache.retention.pins()] == [(3, 7.5)]
    kit.clock.seconds += 7.5
    assert kit.cache.retention.pins()[0].remaining == 0
    kit.cache.poll()
    assert (kit.cache.retention.pins(), kit.cache.retention.pinned_tokens) == ([], 0)
    with pytest.raises(pando.StaleHandle):
        kit.cache.retention.unpin(pinned.id)


def test_paths_are_pinned_once_for_each_call() -> None:
    kit = Kit()
    kit.insert([1, 2, 3])
    first, second = kit.cache.retention.pin([1, 2, 3]), kit.cache.retention.pin([1, 2])
    assert first.id != second.id
    assert kit.cache.retention.pinned_tokens == 3
    kit.cache.retention.unpin(first.id)
    assert kit.cache.retention.pinned_tokens == 2
    assert kit.cache.evict(3).tokens == 1


def test_pins_that_are_refused() -> None:
    kit = Kit(16, max_pinned_share=0.25)
    kit.insert([1, 2, 3, 4, 5])
    with pytest.raises(pando.OutOfCapacity, match="at most 4 may be, .* max_pinned_share 0.25"):
        kit.cache.retention.pin([1, 2, 3, 4, 5])
    kit.cache.retention.pin([1, 2, 3])
    with pytest.raises(pando.OutOfCapacity, match="2 tokens more beside 3 that are pinned"):
        kit.cache.retention.pin([1, 2, 3, 4, 5])
    with pytest.raises(pando.InvalidArgument, match="nothing of this key of 2 tokens"):
        kit.cache.retention.pin([8, 9])
    with pytest.raises(pando.InvalidArgument, match="a ttl of 0 ms; expected more than 0"):
        kit.cache.retention.pin([1], ttl=0)
    with pytest.raises(pando.InvalidArgument, match="ttl: not a number"):
        kit.cache.retention.pin([1], ttl=float("nan"))
    with pytest.raises(TypeError):
        kit.cache.retention.pin([1], kind="hard")
    assert len(kit.cache.retention.pins()) == 1
    kit.cache.check()


def test_a_soft_pin_lets_the_device_go_once_the_host_has_it() -> None:
    geometry = pando.mha_geometry(num_layers=1, heads=1, head_dim=4, page_size=4)
    slots = pando.PagedAllocator(64, page_size=4)
    device = pando.KvPool(geometry, capacity_tokens=64)
    host = pando.HostPool(device, ratio=2.0, keep_free_bytes=0)
    tier = pando.HostTierOptions(
        full=pando.TierPools(device=device, host=host), copier=pando.make_cpu_copier()
    )
    cache = pando.PrefixCache(slots, host=tier)
    cache.paths.insert(np.arange(8), slots.alloc(8))
    cache.retention.pin(np.arange(8), kind=pando.PinKind.soft)
    while cache.retention.pins()[0].on_device:
        cache.poll()
    assert cache.retention.pins()[0].kind == pando.PinKind.soft
    assert cache.evict(8).demoted_tokens == 8
    assert cache.tiers.evict_host(8) == 0
    assert cache.retention.pinned_tokens == 8
    cache.check()


def test_pins_end_with_a_reset() -> None:
    kit = Kit()
    kit.insert([1, 2, 3])
    kit.cache.retention.pin([1, 2, 3])
    kit.cache.reset()
    assert (kit.cache.retention.pins(), kit.cache.inspect.sizes().total) == ([], 0)


# Sessions.


def test_a_session_is_a_context_manager() -> None:
    kit = Kit(remember_evicted=100)
    with pytest.raises(KeyError), kit.cache.retention.open_session() as session:
        kit.insert([1, 2, 3], session=session)
        kit.insert([7, 8, 9])
        kit.cache.evict(3)
        assert kit.cache.paths.probe([1, 2, 3]) == 3
        (listed,) = kit.cache.retention.sessions()
        assert (listed.id, listed.active, listed.tokens) == (session.id, True, 3)
        raise KeyError
    assert (kit.cache.retention.sessions(), kit.cache.inspect.sizes().total) == ([], 0)
    (part,) = kit.cache.inspect.explain([1, 2, 3]).parts
    assert part.eviction is not None
    assert part.eviction.pressure == pando.Pressure.session_closed
    session.close()
    with pytest.raises(pando.StaleHandle, match=f"there is no session {session.id}; it has been"):
        session.touch()
    assert repr(session) == f"OpenSession(id={session.id})"


def test_what_others_have_used_stays_when_a_session_closes() -> None:
    kit = Kit()
    session = kit.cache.retention.open_session()
    kit.insert([1, 2, 3, 4], session=session)
    kit.cache.paths.match([1, 2])
    kit.cache.retention.close_session(session)
    assert kit.cache.paths.probe([1, 2, 3, 4]) == 2
    kit.cache.check()


def test_a_session_falls_back_when_idle() -> None:
    kit = Kit()
    session = kit.cache.retention.open_session(idle_after=30)
    kit.insert([1, 2, 3], session=session)
    kit.pass_time(20)
    session.touch()
    kit.pass_time(20)
    kit.cache.retention.touch(session)
    kit.pass_time(20)
    assert kit.cache.retention.sessions()[0].active
    kit.pass_time(20)
    assert not kit.cache.retention.sessions()[0].active
    kit.insert([7, 8, 9])
    kit.cache.evict(3)
    assert kit.cache.paths.probe([1, 2, 3]) == 0
    kit.cache.retention.touch(session.id)
    assert kit.cache.retention.sessions()[0].active


def test_a_session_that_is_forgotten_stays_open() -> None:
    kit = Kit()
    kit.insert([1, 2, 3], session=kit.cache.retention.open_session())
    gc.collect()
    (listed,) = kit.cache.retention.sessions()
    assert listed.tokens == 3
    kit.cache.retention.close_session(listed.id)
    assert kit.cache.retention.sessions() == []


def test_requests_of_a_session() -> None:
    kit = Kit()
    with kit.cache.retention.open_session() as session:
        request = kit.cache.start([1, 2, 3], session=session.id)
        kit.cache.allocate(request)
        kit.cache.finish(request)
        assert kit.cache.retention.sessions()[0].tokens == 3
    assert kit.cache.inspect.sizes().total == 0
    with pytest.raises(pando.StaleHandle, match="start: there is no session"):
        kit.cache.start([1, 2, 3], session=session)


def test_sessions_that_are_refused() -> None:
    kit = Kit()
    with pytest.raises(pando.InvalidArgument, match="idle_after is 0 ms; expected more than 0"):
        kit.cache.retention.open_session(idle_after=0)
    with pytest.raises(pando.StaleHandle, match="close_session: there is no session 9"):
        kit.cache.retention.close_session(9)
    with pytest.raises(pando.StaleHandle, match="insert: there is no session 9"):
        kit.cache.paths.insert([1], [1], session=9)
    for bad in (0, -1, "first", 2**70, 1.0):
        with pytest.raises(pando.InvalidArgument, match="session: expected what open_session"):
            kit.cache.paths.insert([1], [1], session=bad)
        with pytest.raises(pando.InvalidArgument, match="session: expected what open_session"):
            kit.cache.start([1], session=bad)
    with pytest.raises(TypeError):
        kit.cache.retention.touch(None)


def test_a_session_keeps_its_cache() -> None:
    kit = Kit()
    session = kit.cache.retention.open_session()
    kit.insert([1], session=session)
    del kit
    gc.collect()
    session.close()


# Tenants.

ACME = pando.make_namespace(tenant="acme")
BOLT = pando.make_namespace(tenant="bolt")


def test_nobody_takes_from_a_tenant_below_its_floor() -> None:
    kit = Kit(16, tenants=[pando.TenantOptions(name="acme", device_floor=4)])
    kit.insert([1, 2, 3, 4, 5, 6], ns=ACME)
    assert kit.cache.evict(6).tokens == 2
    assert kit.cache.evict(6, ns=BOLT).tokens == 0
    usage = kit.cache.retention.tenant_usage("acme")
    assert (usage.name, usage.device_tokens, usage.limits.device_floor) == ("acme", 4, 4)
    assert (usage.device_evictable, usage.host_tokens, usage.host_evictable) == (4, 0, 0)
    with pytest.raises(pando.OutOfCapacity, match="12 are free and 0 evictable"):
        kit.cache.paths.allocate_extend([0], [13], [0])
    assert len(kit.cache.paths.allocate_extend([0], [13], [0], ns=ACME)) == 13
    assert kit.cache.retention.tenant_usage("acme").device_tokens == 3
    assert len(kit.cache.paths.allocate_decode([14, 1, 1], [0, 0, 0], ns=ACME)) == 3
    with pytest.raises(pando.OutOfCapacity):
        kit.cache.paths.allocate_decode([1], [0])
    kit.cache.check()


def test_a_tenant_beyond_its_cap_gives_first() -> None:
    kit = Kit(64, remember_evicted=100)
    kit.cache.retention.set_tenant(pando.TenantOptions(name="acme", device_cap=4))
    kit.insert([7, 8, 9])
    kit.insert([1, 2, 3], ns=ACME)
    kit.insert([4, 5, 6], ns=ACME)
    assert kit.cache.retention.tenant_usage("acme").device_tokens == 4
    (_, part) = kit.cache.inspect.explain([1, 2, 3], ns=ACME).parts
    assert part.eviction is not None
    assert part.eviction.pressure == pando.Pressure.tenant_cap
    assert [usage.name for usage in kit.cache.retention.tenants()] == ["", "acme"]
    assert [usage.device_tokens for usage in kit.cache.retention.tenants()] == [3, 4]


def test_limits_can_change() -> None:
    kit = Kit()
    kit.cache.retention.set_tenant(pando.TenantOptions(name="acme", device_floor=8, device_cap=16))
    limits = kit.cache.retention.tenant_usage("acme").limits
    limits.device_cap = None
    kit.cache.retention.set_tenant(limits)
    assert kit.cache.retention.tenant_usage("acme").limits.device_cap is None
    assert kit.cache.retention.tenant_usage("acme").limits.device_floor == 8


def test_a_namespace_can_be_given_to_a_tenant() -> None:
    kit = Kit(tenants=[pando.TenantOptions(name="acme")])
    kit.insert([1, 2], ns="adapter")
    assert kit.cache.retention.tenant_usage("").device_tokens == 2
    kit.cache.retention.assign_namespace("adapter", "acme")
    assert kit.cache.retention.tenant_usage(b"acme").device_tokens == 2
    with pytest.raises(pando.InvalidArgument, match="unknown tenant 'bolt'; there are: '' 'acme'"):
        kit.cache.retention.assign_namespace("adapter", "bolt")
    with pytest.raises(pando.InvalidArgument, match="unknown tenant 'bolt'"):
        kit.cache.retention.tenant_usage("bolt")
    with pytest.raises(pando.InvalidArgument, match="tenant: expected str or bytes"):
        kit.cache.retention.assign_namespace("adapter", 7)


def test_names_of_tenants_need_not_be_text() -> None:
    name = b"\xff\x01"
    kit = Kit(tenants=[pando.TenantOptions(name=name)])
    kit.insert([1, 2], ns=pando.make_namespace(tenant=name))
    listed = kit.cache.retention.tenants()[1]
    assert listed.device_tokens == 2
    assert kit.cache.retention.tenant_usage(listed.name).device_tokens == 2


@pytest.mark.parametrize(
    "fields,message",
    [
        ({"device_floor": 5, "device_cap": 4}, "a floor of 5 device tokens is above its cap of 4"),
        ({"host_floor": 1}, "a share of host tokens in a cache that has none"),
        ({"device_floor": 65}, "floors add up to 65 device tokens; expected at most the 64"),
    ],
)
def test_limits_that_make_no_sense_are_refused(fields: dict, message: str) -> None:
    tenant = pando.TenantOptions(name="acme", **fields)
    with pytest.raises(pando.InvalidArgument, match=message):
        Kit(64, tenants=[tenant])
    kit = Kit(64)
    with pytest.raises(pando.InvalidArgument, match=message):
        kit.cache.retention.set_tenant(tenant)
    assert len(kit.cache.retention.tenants()) == 1


# Options and clocks.


@pytest.mark.parametrize(
    "fields,message",
    [
        ({"max_pinned_share": 1.5}, "max_pinned_share is 1.5; expected a share from 0 to 1"),
        ({"session_priority": 200}, "session_priority is 200; expected -100 to 100"),
        ({"tenants": ["a", "b", "a"]}, "tenant 'a' is listed twice"),
    ],
)
def test_options_that_make_no_sense_are_refused(fields: dict, message: str) -> None:
    tenants = [pando.TenantOptions(name=name) for name in fields.get("tenants", [])]
    options = pando.RetentionOptions(**{**fields, "tenants": tenants})
    with pytest.raises(pando.InvalidArgument, match=message):
        options.validate()
    with pytest.raises(pando.InvalidArgument, match=message):
        pando.PrefixCache(pando.PagedAllocator(16), retention=options)


def test_options_are_those_that_were_given() -> None:
    options = pando.CacheOptions()
    options.retention.max_pinned_share = 0.25
    options.retention.session_priority = -3
    options.retention.tenants = [pando.TenantOptions(name="acme", device_floor=2)]
    options.retention.now = Clock()
    cache = pando.PrefixCache(pando.PagedAllocator(16), options)
    held = cache.options.retention
    assert (held.max_pinned_share, held.session_priority, held.now) == (0.25, -3, None)
    assert [tenant.name for tenant in held.tenants] == ["acme"]
    again = pando.PrefixCache(pando.PagedAllocator(16), cache.options)
    assert len(again.retention.tenants()) == 2
    for bad in (None, {"max_pinned_share": 1}):
        with pytest.raises(TypeError):
            pando.PrefixCache(pando.PagedAllocator(16), retention=bad)
    with pytest.raises(pando.InvalidArgument, match="now: expected something to call, got int"):
        options.retention.now = 7


@pytest.mark.parametrize("bad", [ZeroDivisionError, "noon", None, np.inf, np.nan, 1e18])
def test_a_clock_that_fails_stands_still(bad, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(str(args.object)))
    kit = Kit()
    kit.insert([1])
    kit.cache.retention.pin([1], ttl=60)
    started, kit.clock.seconds = kit.clock.seconds, bad
    kit.cache.poll()
    assert kit.cache.retention.pins()[0].remaining == 60
    assert set(told) == {"RetentionOptions.now"}
    kit.clock.seconds = started
    kit.pass_time(60)
    assert kit.cache.retention.pins() == []


def test_a_clock_must_not_call_back() -> None:
    refused: list[str] = []

    def now() -> float:
        if "cache" in made:
            with pytest.raises(pando.WrongThread) as error:
                made["cache"].paths.probe([1])
            refused.append(str(error.value))
        return 1.0

    made: dict[str, pando.PrefixCache] = {}
    allocator = pando.PagedAllocator(16)
    made["cache"] = pando.PrefixCache(allocator, retention=pando.RetentionOptions(now=now))
    made["cache"].paths.insert([1], allocator.alloc(1))
    made["cache"].retention.pin([1], ttl=1)
    assert refused
    assert "pin() was under way" in refused[0]


def test_a_clock_goes_with_its_cache() -> None:
    class Engine:
        def __init__(self) -> None:
            self.cache = pando.PrefixCache(
                pando.PagedAllocator(16), retention=pando.RetentionOptions(now=self.now)
            )

        def now(self) -> float:
            return 0.0

    engine = Engine()
    engine.session = engine.cache.retention.open_session()
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None


def test_a_second_thread_is_refused() -> None:
    """While the clock of a call waits, in another thread every call is."""
    inside, leave = threading.Event(), threading.Event()

    def now() -> float:
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            assert leave.wait(10)
        return 0.0

    allocator = pando.PagedAllocator(16)
    cache = pando.PrefixCache(allocator, retention=pando.RetentionOptions(now=now))
    cache.paths.insert([1], allocator.alloc(1))
    session = cache.retention.open_session()
    thread = threading.Thread(target=lambda: cache.retention.pin([1], ttl=1))
    thread.start()
    assert inside.wait(10)
    calls = [
        lambda: cache.retention.pin([1]),
        lambda: cache.retention.unpin(1),
        cache.retention.pins,
        lambda: cache.retention.pinned_tokens,
        cache.retention.open_session,
        lambda: cache.retention.touch(session),
        session.touch,
        session.close,
        lambda: cache.retention.close_session(session),
        cache.retention.sessions,
        lambda: cache.retention.set_tenant(pando.TenantOptions(name="acme")),
        lambda: cache.retention.assign_namespace("a", ""),
        cache.retention.tenants,
        lambda: cache.retention.tenant_usage(""),
    ]
    try:
        for call in calls:
            with pytest.raises(pando.WrongThread, match=r"pin\(\) was under way"):
                call()
    finally:
        leave.set()
        thread.join()
    assert len(cache.retention.pins()) == 1
    cache.check()
