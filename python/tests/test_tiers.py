# SPDX-License-Identifier: Apache-2.0
"""Options and results of the tiers, on their own: what holds what, and what is refused."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pando
import pytest


def pools() -> tuple[pando.KvPool, pando.HostPool]:
    geometry = pando.mha_geometry(num_layers=1, heads=1, head_dim=4)
    device = pando.KvPool(geometry, 16)
    return device, pando.HostPool(device, ratio=1.0, keep_free_bytes=0)


def test_tier_pools_hold_their_pools() -> None:
    device, host = pools()
    both = pando.TierPools(device=device, host=host)
    assert both.device is device and both.host is host
    both.host = None
    assert both.host is None
    assert pando.TierPools().device is None
    with pytest.raises(pando.InvalidArgument, match="expected a KvPool or None, got HostPool"):
        pando.TierPools(device=host)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no option 'gpu'"):
        pando.TierPools(gpu=device)  # type: ignore[call-arg]


def test_host_tier_options_hold_what_they_name() -> None:
    device, host = pools()
    copier = pando.make_cpu_copier()
    options = pando.HostTierOptions(
        full=pando.TierPools(device=device, host=host),
        copier=copier,
        write_policy="write_back",
        cost_gate=pando.CostGateOptions(max_ratio=2.0),
    )
    assert options.full.device is device and options.copier is copier
    assert options.window.device is None and options.state.host is None
    assert options.write_policy == pando.WritePolicy.write_back
    assert options.load_back_threshold == 10 and options.backup_stream == 0
    assert options.cost_gate is not None and options.cost_gate.max_ratio == 2.0
    options.cost_gate = None
    options.window = None
    options.write_policy = pando.WritePolicy.write_through
    assert options.cost_gate is None and options.window.host is None
    text = repr(options)
    assert "write_through" in text and "load_stream=1" in text
    del copier, device, host
    gc.collect()
    assert options.full.host is not None and options.full.host.num_pages == 16
    assert options.copier is not None and options.copier.num_streams == 3


@pytest.mark.parametrize(
    "fields",
    [
        {"copier": 3},
        {"full": "pools"},
        {"write_policy": "sometimes"},
        {"write_policy": 7},
    ],
)
def test_host_tier_options_refuse_nonsense(fields: dict[str, Any]) -> None:
    with pytest.raises(pando.InvalidArgument):
        pando.HostTierOptions(**fields)


def test_policies_have_names() -> None:
    for policy in (
        pando.WritePolicy.write_through,
        pando.WritePolicy.write_through_selective,
        pando.WritePolicy.write_back,
    ):
        assert pando.parse_write_policy(policy.name) == policy
    for prefetch in (
        pando.PrefetchPolicy.best_effort,
        pando.PrefetchPolicy.wait_complete,
        pando.PrefetchPolicy.timeout,
    ):
        assert pando.parse_prefetch_policy(prefetch.name) == prefetch
    with pytest.raises(pando.InvalidArgument, match="sometimes"):
        pando.parse_prefetch_policy("sometimes")


def test_storage_options_take_a_dict_or_text() -> None:
    storage = pando.StorageOptions(
        backend="file", options={"directory": "/x", "depth": 4, "direct": False, "nodes": ["a"]}
    )
    assert json.loads(storage.options) == {
        "directory": "/x",
        "depth": 4,
        "direct": False,
        "nodes": ["a"],
    }
    assert pando.Config.parse(storage.options).integer("depth") == 4
    storage.options = "@/etc/pando.toml"
    assert storage.options == "@/etc/pando.toml"
    with pytest.raises(pando.InvalidArgument):
        storage.options = {"a": object()}
    with pytest.raises(pando.InvalidArgument):
        storage.options = 3  # type: ignore[assignment]
    assert storage.options == "@/etc/pando.toml"
    storage.queues.timeout = 1.5
    storage.scope.model = "m"
    assert storage.queues.timeout == 1.5 and storage.scope.model == "m"
    assert storage.prefetch_policy is None
    storage.prefetch_policy = "timeout"
    assert storage.prefetch_policy == "timeout"


def test_a_clock_of_pythons(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([1.5, 2.5])
    storage = pando.StorageOptions(backend="memory", now=lambda: next(ticks))
    assert storage.now is not None
    assert storage.now() == 1.5 and storage.now() == 2.5
    heard: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda u: heard.append(str(u.object)))
    assert storage.now() > 0, "one that fails is replaced by the steady clock"
    assert len(heard) == 1
    storage.now = None
    assert storage.now is None
    with pytest.raises(pando.InvalidArgument, match="something to call"):
        setattr(storage, "now", 3)


def test_a_clock_goes_with_its_options() -> None:
    class Clock:
        def __call__(self) -> float:
            return 0.0

    clock = Clock()
    seen = weakref.ref(clock)
    storage = pando.StorageOptions(backend="memory", now=clock)
    del clock
    gc.collect()
    assert seen() is not None
    del storage
    gc.collect()
    assert seen() is None


def test_options_are_checked() -> None:
    options = pando.PrefetchOptions(policy="wait_complete", timeout_base=-1.0)
    assert options.policy == pando.PrefetchPolicy.wait_complete and options.max_tokens is None
    with pytest.raises(pando.InvalidArgument, match="prefetch_timeout_base"):
        options.validate()
    assert pando.LoadBackOptions(quota_tokens=5).order == pando.LoadOrder.by_layer
    with pytest.raises(TypeError):
        pando.LoadBack()  # what only the library makes
