# SPDX-License-Identifier: Apache-2.0
"""SGLang's side of the interface, as the version at hand has it.

Versions differ in names and fields, so what is there is looked at once, here. Nothing else in this
package imports SGLang.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

SUPPORTED = "0.5.13 to 0.5.23"

_MISSING = (
    "pando.sglang needs SGLang ({versions}), which cannot be imported here: {why}. Install it with "
    "`pip install 'sglang>=0.5.13'` into the same environment."
)
_UNKNOWN = (
    "this SGLang ({found}) has another cache interface than pando.sglang knows: {what}. "
    "Supported: SGLang {versions}."
)


class Unsupported(RuntimeError):
    """What was asked for does not work with this plug-in; the message says what would."""


def sglang_version() -> str:
    try:
        return str(importlib.import_module("importlib.metadata").version("sglang"))
    except Exception:
        return "version unknown"


def import_sglang(name: str) -> Any:
    """A module of SGLang's, or an Unsupported that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(_MISSING.format(versions=SUPPORTED, why=error)) from error


@dataclasses.dataclass(frozen=True)
class Interface:
    """The types that results are made of.

    Up to 0.5.21 a match carries its slots, and requests are cached by `cache_unfinished_req` and
    `cache_finished_req`, which is `insert_req` in 0.5.21. Later ones ask for the slots of a node
    (`path_device_indices`), and `checkpoint` does both: `by_checkpoint`.
    """

    base: type
    by_checkpoint: bool
    match_result: Any
    insert_result: Any
    evict_result: Any
    inc_lock_result: Any
    dec_lock_result: Any
    window_component: Any = None  # how newer versions name the sliding window

    def locked(self, name: int) -> Any:
        """The receipt of a lock, which its release gives back."""
        fields = getattr(self.inc_lock_result, "__dataclass_fields__", {})
        if "swa_uuid_for_lock" in fields:
            return self.inc_lock_result(swa_uuid_for_lock=name)
        return self.inc_lock_result(component_lock_uuids={self.window_component: name})

    def name_of(self, receipt: Any) -> int | None:
        """Which lock a receipt is of; none where it does not say."""
        if receipt is None or isinstance(receipt, int):
            return receipt
        name = getattr(receipt, "swa_uuid_for_lock", None)
        if name is None:
            names = getattr(receipt, "component_lock_uuids", None) or {}
            name = names.get(self.window_component)
        return name

    @staticmethod
    def of(module: Any) -> Interface:
        """From ``sglang.srt.mem_cache.base_prefix_cache``, or what stands in for it."""
        base = getattr(module, "BasePrefixCache", None)
        if base is None:
            raise Unsupported(_unknown("there is no BasePrefixCache"))
        by_checkpoint = not hasattr(base, "cache_unfinished_req")
        if by_checkpoint and not hasattr(base, "checkpoint"):
            raise Unsupported(
                _unknown("BasePrefixCache has neither cache_unfinished_req nor checkpoint")
            )
        match_result = getattr(module, "MatchResult", None)
        fields = getattr(match_result, "_fields", ())
        device = "device_prefix_len" if by_checkpoint else "device_indices"
        nodes = ("last_device_node", "last_host_node", "best_match_node")
        expected = (device, *nodes, "host_hit_length")
        if fields[: len(expected)] != expected:
            raise Unsupported(_unknown(f"MatchResult has {fields}, expected {expected} first"))
        try:
            return Interface(
                base=base,
                by_checkpoint=by_checkpoint,
                match_result=match_result,
                insert_result=module.InsertResult,
                evict_result=module.EvictResult,
                inc_lock_result=module.IncLockRefResult,
                dec_lock_result=module.DecLockRefResult,
                window_component=getattr(getattr(module, "ComponentType", None), "SWA", None),
            )
        except AttributeError as error:
            raise Unsupported(_unknown(str(error))) from error

    @staticmethod
    def installed() -> Interface:
        return Interface.of(import_sglang("sglang.srt.mem_cache.base_prefix_cache"))


def _unknown(what: str) -> str:
    return _UNKNOWN.format(found=sglang_version(), what=what, versions=SUPPORTED)
