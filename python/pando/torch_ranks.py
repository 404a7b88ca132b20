# SPDX-License-Identifier: Apache-2.0
"""Ranks that agree over ``torch.distributed``: for engines that run one process per GPU.

The group must move CPU tensors (gloo): what is agreed on are a few integers in host memory, and
nothing of it may wait for a GPU. Every rank makes the same calls in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.int64]


class TorchRanks:
    """Takes the place of :class:`pando.Ranks`, see :class:`pando.protocols.Ranks`."""

    def __init__(self, group: Any = None) -> None:
        """`group`: a process group of torch.distributed; None is the default one."""
        try:
            import torch.distributed as distributed  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise RuntimeError("TorchRanks needs torch, which is not installed") from error
        backend = str(distributed.get_backend(group))
        if "gloo" not in backend and "mpi" not in backend:
            raise ValueError(
                f"TorchRanks: the group's backend is {backend}; expected one that moves CPU "
                "tensors: make it with torch.distributed.new_group(backend='gloo')"
            )
        self._distributed = distributed
        self._group = group
        self._rank = int(distributed.get_rank(group))
        self._size = int(distributed.get_world_size(group))

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    def min(self, values: Values, /) -> Values:
        return self._reduce(values, self._distributed.ReduceOp.MIN)

    def max(self, values: Values, /) -> Values:
        return self._reduce(values, self._distributed.ReduceOp.MAX)

    def barrier(self) -> None:
        self._distributed.barrier(group=self._group)

    def _reduce(self, values: Values, operation: Any) -> Values:
        import torch  # type: ignore[import-not-found, unused-ignore]

        tensor = torch.from_numpy(np.array(values, dtype=np.int64))  # a copy: it is overwritten
        self._distributed.all_reduce(tensor, op=operation, group=self._group)
        result: Values = tensor.numpy()
        return result
