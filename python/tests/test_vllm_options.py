# SPDX-License-Identifier: Apache-2.0
"""Options of PandoConnector, in the words of vLLM's offloading. Needs no vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from pando.vllm import options, plugin


def test_nothing_need_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PANDO_VLLM_HOST_BYTES", "8000")
    assert options.translate({}) == {
        "spec_name": "PandoOffloadingSpec",
        "eviction_policy": "hazard",
        "cpu_bytes_to_use": 8000,
        "offload_prompt_only": False,
    }
    assert options.translate({}, num_engines=2)["cpu_bytes_to_use"] == 4000


def test_the_size_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scheduler and workers are processes of their own, and must agree."""
    monkeypatch.delenv("PANDO_VLLM_HOST_BYTES", raising=False)
    monkeypatch.setattr(options.pando, "available_memory", lambda: 1000)
    assert options.settle_host_bytes() == 500
    monkeypatch.setattr(options.pando, "available_memory", lambda: 10)
    assert options.settle_host_bytes() == 500


def test_a_store_makes_tiers() -> None:
    given = {
        "host_bytes": "2GiB",
        "policy": "lru",
        "block_size": 64,
        "store": {"backend": "file", "directory": "/kv", "capacity_bytes": 10, "timeout": 3},
    }
    assert options.translate(given) == {
        "spec_name": "TieringOffloadingSpec",
        "eviction_policy": "lru",
        "cpu_bytes_to_use": 2 << 30,
        "offload_prompt_only": False,
        "block_size": 64,
        "secondary_tiers": [
            {
                "type": "pando",
                "backend": "file",
                "timeout": 3,
                "options": {"directory": "/kv", "capacity_bytes": 10},
            }
        ],
    }


def test_another_vllm_is_told_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PANDO_VLLM_HOST_BYTES", "1")
    monkeypatch.setattr(
        plugin, "_FACTORIES", [("no.such.module", "Factory", "add", [("Name", "module", "class")])]
    )
    plugin.register()
    assert "no no.such.module.Factory" in caplog.text
    assert "Name cannot be chosen; expected vLLM 0.32" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [(5, 5), ("5", 5), ("4KiB", 4096), ("1.5 GB", 3 << 29), ("2t", 2 << 40), (1e9, 10**9)],
)
def test_sizes(text: Any, expected: int) -> None:
    assert options.parse_bytes("host_bytes", text) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hosst_bytes": 5}, "has 'hosst_bytes'; expected some of .*host_bytes"),
        ({"policy": "best"}, "policy 'best'; expected one of lru"),
        ({"host_bytes": 0}, "host_bytes 0; expected a number of bytes"),
        ({"host_bytes": "many"}, "host_bytes 'many'"),
        ({"host_bytes": True}, "host_bytes True"),
        ({"store": "file"}, "store 'file'; expected for instance"),
        ({"store": {"backend": "tape"}}, "backend 'tape'; expected one of .*file"),
        ({"store": {"backend": "memory"}, "store_threshold": 2}, "store_threshold 2 with a store"),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options.translate(given)
