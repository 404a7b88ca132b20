# SPDX-License-Identifier: Apache-2.0
"""SGLang's command line: Pando's names among its choices, and where a version keeps a value.

SGLang's parser refuses the name of a policy or a store that is not among a flag's choices.
:func:`add_choices` adds Pando's: policies through SGLang's function for it, stores to the parser
once SGLang has filled it, because there is no function for those. The added names mean something to
Pando's cache alone, so a command line that has one and chooses another cache is refused.
Called by ``registry.py`` in every process; the parser is used in the first.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pando
from pando.sglang.interface import Unsupported, import_sglang

POLICIES = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru", "hazard")

_ARGUMENTS = "sglang.srt.server_args.ServerArgs"
_LONGEST_NAME = 128  # bytes of a model's name in a store's keys
_STORE_FLAG = "--hicache-storage-backend"
# Functions of sglang.srt.runtime_context that hold the values SGLang has settled on; older versions
# have none of them and keep everything on the ServerArgs.
_GROUPS = ("get_memory", "get_serving", "get_model", "get_schedule", "get_spec", "get_disagg")

# What was added, by the name of the argument: SGLang's own caches know none of it.
_added: dict[str, set[str]] = {"radix_eviction_policy": set(), "hicache_storage_backend": set()}


def add_choices() -> None:
    """Makes SGLang's parser accept Pando's policies and stores. Twice is harmless."""
    server_args = import_sglang("sglang.srt.server_args")
    known = server_args.RADIX_EVICTION_POLICY_CHOICES
    missing = [name for name in POLICIES if name not in known]
    server_args.add_radix_eviction_policy_choices(missing)
    _added["radix_eviction_policy"].update(missing)

    hooks = import_sglang("sglang.srt.plugins.hook_registry")
    for method, hook, when in (
        ("add_cli_args", _add_stores, hooks.HookType.AFTER),
        ("from_cli_args", _refuse_without_pando, hooks.HookType.BEFORE),
    ):
        hooks.HookRegistry.register(f"{_ARGUMENTS}.{method}", hook, when)


def _add_stores(_result: Any, parser: Any) -> None:
    """After ServerArgs.add_cli_args(parser)."""
    for action in parser._actions:
        if _STORE_FLAG in action.option_strings and action.choices is not None:
            missing = [name for name in pando.registered_stores() if name not in action.choices]
            action.choices = [*action.choices, *missing]
            _added["hicache_storage_backend"].update(missing)


def _refuse_without_pando(_class: Any, arguments: Any) -> None:
    """Before ServerArgs.from_cli_args(arguments): what the parser would have refused by itself."""
    from pando.sglang.registry import NAME, is_registered

    if is_registered(getattr(arguments, "radix_cache_backend", None)):
        return
    for argument, names in _added.items():
        value = getattr(arguments, argument, None)
        if value in names:
            raise Unsupported(
                f"--{argument.replace('_', '-')} {value} is a name of Pando's, which SGLang's own "
                f"caches do not know: add --radix-cache-backend {NAME}, or choose another"
            )


def resolved(context: Any, name: str, default: Any = None) -> Any:
    """A server argument of a TreeCacheBuildContext, after SGLang has filled in what was not said:
    in a group of the runtime context, or on the arguments themselves."""
    for group in _GROUPS:
        try:
            runtime = import_sglang("sglang.srt.runtime_context")
            value = getattr(getattr(runtime, group)(), name)
        except Exception:  # another version, another group, or no server that is running
            continue
        if value is not None:
            return value
    value = getattr(context.server_args, name, None)
    return default if value is None else value


def model_name(context: Any) -> str:
    """What pages of this model are stored under. SGLang's default is the model's path; one that is
    longer than a store's keys allow is cut, and told from others by its hash."""
    name = resolved(context, "served_model_name") or resolved(context, "model_path")
    name = str(name or getattr(context.model_config, "model_path", ""))
    if len(name.encode()) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    end = name.encode()[17 - _LONGEST_NAME :].decode(errors="ignore")
    return f"{digest}-{end}"
