# SPDX-License-Identifier: Apache-2.0
"""Stands in for FlashInfer, which is too large to carry to a GPU machine without a package index.

With Triton attention SGLang needs its norms and its activation alone: norm.py and activation.py have
them in torch, for both caches of a comparison. Every other name is there and cannot be used."""

import importlib.abc
import importlib.machinery
import sys
import types

__version__ = "0.6.14"
_REAL = ("flashinfer.norm", "flashinfer.activation")


class Unusable:
    def __init__(self, *_args, **_kwargs):
        raise RuntimeError("FlashInfer is not installed: this is a stand-in")


def _any_name(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Unusable


class _AnyModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.startswith("flashinfer.") and name not in _REAL:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = _any_name
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, _AnyModule())
from . import activation, norm  # noqa: E402

__getattr__ = _any_name
