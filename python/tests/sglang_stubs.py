# SPDX-License-Identifier: Apache-2.0
"""Lets SGLang's own cache code be imported where most of what SGLang depends on is not installed.

Importing `sglang.srt.mem_cache` pulls in model configurations, HTTP, kernels and much else that no
cache uses. `stub_missing_modules()` answers the import of any third-party module that is absent
(never SGLang's, torch or NumPy) with an empty one whose attributes are inert classes, so that what
is tested - allocators, pools, keys, trees, the registry - is SGLang's real code. `stubbed` lists
what was made up.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

REAL = ("sglang", "torch", "numpy", "pando", "msgspec", "dill")
stubbed: list[str] = []


class _Inert(type):
    """A class that gives another such for every attribute, call, subscript and operator."""

    def __new__(mcs, name: str, bases: Any, members: Any, **_: Any) -> Any:
        return super().__new__(mcs, name, bases, members)

    def __init__(cls, name: str, bases: Any, members: Any, **_: Any) -> None:
        super().__init__(name, bases, members)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name not in ("__func__", "__class_validators__"):
            raise AttributeError(name)
        return _inert(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        # A decorator leaves what it decorates as it is.
        if len(args) == 1 and not kwargs and isinstance(args[0], (type, types.FunctionType)):
            return args[0]
        if cls.__dict__.get("_made_up"):
            return cls
        return type.__call__(cls)  # a subclass of SGLang's: arguments mean nothing here

    def __getitem__(cls, item: Any) -> Any:
        return cls

    def __setitem__(cls, item: Any, value: Any) -> None:
        pass

    def __contains__(cls, item: Any) -> bool:
        return False

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __iter__(cls) -> Any:
        return iter(())

    def __bool__(cls) -> bool:
        return False

    def __lt__(cls, other: Any) -> bool:
        return False

    __le__ = __gt__ = __ge__ = __lt__


def _inert(name: str) -> Any:
    return _Inert(name, (), {"_made_up": True})


class _StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "0.0.0"
        if name.startswith("__"):
            raise AttributeError(name)
        value = _inert(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last on the path: asked for what nobody else has found."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        top = fullname.partition(".")[0]
        if top in REAL or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        if "." in fullname and not isinstance(sys.modules.get(top), _StubModule):
            return None  # a part of something that is installed
        if not _imported_by_sglang():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        stubbed.append(spec.name)
        return _StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _imported_by_sglang() -> bool:
    """torch and others look for optional packages: they shall not find any."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("importlib", "_frozen_importlib", __name__)):
            return bool(name.partition(".")[0] == "sglang")
        frame = frame.f_back  # type: ignore[assignment]
    return False


def stub_missing_modules() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
