# SPDX-License-Identifier: Apache-2.0
"""SGLang's side of the interface, as the version at hand has it.

Versions differ in names and fields, so what is there is looked at once, here. Nothing else in this
package imports SGLang.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

SUPPORTED = "0.5.13 to 0.5.20"

_MISSING = (
    "pando.sglang needs SGLang ({versions}), which cannot be imported here: {why}. Install it with "
    "`pip install 'sglang>=0.5.13,<0.5.21'` into the same environment."
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
    """The types that results are made of."""

    base: type
    match_result: Any
    insert_result: Any
    evict_result: Any
    inc_lock_result: Any
    dec_lock_result: Any

    @staticmethod
    def of(module: Any) -> Interface:
        """From ``sglang.srt.mem_cache.base_prefix_cache``, or what stands in for it."""
        base = getattr(module, "BasePrefixCache", None)
        if base is None:
            raise Unsupported(_unknown("there is no BasePrefixCache"))
        if not hasattr(base, "cache_unfinished_req"):
            raise Unsupported(_unknown("BasePrefixCache has no cache_unfinished_req"))
        match_result = getattr(module, "MatchResult", None)
        fields = getattr(match_result, "_fields", ())
        for field in ("device_indices", "last_device_node", "last_host_node", "best_match_node"):
            if field not in fields:
                raise Unsupported(_unknown(f"MatchResult has no {field}"))
        try:
            return Interface(
                base=base,
                match_result=match_result,
                insert_result=module.InsertResult,
                evict_result=module.EvictResult,
                inc_lock_result=module.IncLockRefResult,
                dec_lock_result=module.DecLockRefResult,
            )
        except AttributeError as error:
            raise Unsupported(_unknown(str(error))) from error

    @staticmethod
    def installed() -> Interface:
        return Interface.of(import_sglang("sglang.srt.mem_cache.base_prefix_cache"))


def _unknown(what: str) -> str:
    return _UNKNOWN.format(found=sglang_version(), what=what, versions=SUPPORTED)
