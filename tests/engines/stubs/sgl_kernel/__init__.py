# SPDX-License-Identifier: Apache-2.0
"""Stands in for SGLang's CUDA kernels on a machine without a GPU: every name is there, and every
call raises. With the arguments that sglang_child.py starts an engine with, none is called."""

__version__ = "0.4.10"
__path__: list[str] = []


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args, **_kwargs):
        raise RuntimeError(f"sgl_kernel.{name} was called: there are no CUDA kernels here")

    return missing
