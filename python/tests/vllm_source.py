# SPDX-License-Identifier: Apache-2.0
"""Imports single files of an unpacked vLLM wheel, without its compiled parts and most of the rest.

Modules named in REAL are vLLM's own, from the folder given; every other module of vLLM, and
packages of third parties that are not installed, are empty shells whose attributes appear when
asked for. Good for the block managers, which compute with ints and lists; for nothing else.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

REAL = {
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics",
    "vllm.utils.math_utils",
    "vllm.v1.core.block_pool",
    "vllm.v1.core.kv_cache_coordinator",
    "vllm.v1.core.kv_cache_manager",
    "vllm.v1.core.kv_cache_utils",
    "vllm.v1.core.single_type_kv_cache_manager",
    "vllm.v1.kv_cache_interface",
    "vllm.v1.kv_cache_spec_registry",
    "vllm.v1.kv_offload.abstract",
    "vllm.v1.kv_offload.backend",
    "vllm.v1.kv_offload.backends.cpu",
    "vllm.v1.kv_offload.base",
    "vllm.v1.kv_offload.config",
    "vllm.v1.kv_offload.cpu",
    "vllm.v1.kv_offload.cpu.common",
    "vllm.v1.kv_offload.cpu.manager",
    "vllm.v1.kv_offload.cpu.policies.abstract",
    "vllm.v1.kv_offload.cpu.policies.arc",
    "vllm.v1.kv_offload.cpu.policies.base",
    "vllm.v1.kv_offload.cpu.policies.factory",
    "vllm.v1.kv_offload.cpu.policies.lru",
    "vllm.v1.kv_offload.cpu.shared_offload_region",
    "vllm.v1.kv_offload.cpu.spec",
    "vllm.v1.kv_offload.factory",
    "vllm.v1.kv_offload.lru_manager",
    "vllm.v1.kv_offload.mediums",
    "vllm.v1.kv_offload.spec",
    "vllm.v1.kv_offload.tiering.base",
    "vllm.v1.kv_offload.tiering.factory",
    "vllm.v1.kv_offload.tiering.manager",
    "vllm.v1.metrics.cache_hit_source",
}
_THIRD_PARTIES = {"torch", "msgspec", "zmq", "cbor2", "xxhash", "regex", "prometheus_client"}


class _Any(type):
    """A class with every attribute, such as an enum's members."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__()
        vars(made).update(kwargs)
        return made


def _shell(name: str) -> type:
    return _Any(
        name,
        (),
        {
            "__class_getitem__": classmethod(lambda cls, item: cls),
            "__init_subclass__": classmethod(lambda cls, **kwargs: None),
        },
    )


class _Shell(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value: Any = _shell(name) if name[0].isupper() else MagicMock(name=name)
        if name == "cdiv":
            value = lambda a, b: -(-a // b)  # noqa: E731
        elif name == "round_up":
            value = lambda a, b: -(-a // b) * b  # noqa: E731
        elif name == "override":
            value = lambda method: method  # noqa: E731
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root: Path) -> None:
        self.root = root

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        top = name.split(".")[0]
        if top == "vllm":
            place = self.root.joinpath(*name.split("."))
            file = place.with_suffix(".py")
            if name in REAL and file.exists():
                return importlib.util.spec_from_file_location(name, file)
            # Whoever asks which version this is must not find what it has not.
            if name.startswith("vllm.v1.kv_offload") and not (file.exists() or place.exists()):
                return None
        elif top not in _THIRD_PARTIES or importlib.machinery.PathFinder.find_spec(name, path):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Shell(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__path__ = []


@contextmanager
def imported(root: Path) -> Iterator[None]:
    """For as long as it lasts, `import vllm…` gives that."""
    finder = _Finder(root)
    before = set(sys.modules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.split(".")[0] in {"vllm", *_THIRD_PARTIES}:
                del sys.modules[name]
        if sys.modules.pop("pando.vllm.spec", None) is not None:  # it has classes of this vLLM's
            del sys.modules["pando.vllm"].spec
