# SPDX-License-Identifier: Apache-2.0
"""What an offloading manager answers with: the shapes of vLLM's, for use without it.

Inside vLLM, :class:`OffloadTypes` carries vLLM's own classes to the manager: its workers and
connectors compare and dispatch on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

import numpy as np
import numpy.typing as npt


class LookupResult(Enum):
    """What became of a question, as 0.32 answers it."""

    MISS = auto()
    HIT = auto()
    HIT_PENDING = auto()
    RETRY = auto()


class CPULoadStoreSpec:
    """Host blocks to read from or to write to."""

    def __init__(self, block_ids: Sequence[int]) -> None:
        self.block_ids: npt.NDArray[np.int64] = np.array(block_ids, dtype=np.int64)

    @staticmethod
    def medium() -> str:
        return "CPU"

    @property
    def chunk_ids(self) -> npt.NDArray[np.int64]:
        return self.block_ids

    def __repr__(self) -> str:
        return f"CPULoadStoreSpec({self.block_ids.tolist()})"


@dataclass
class PrepareStoreOutput:
    """Which blocks are to be written where, and which were evicted for it."""

    keys_to_store: list[bytes]
    store_spec: Any
    evicted_keys: list[bytes]

    @property
    def block_hashes_to_store(self) -> list[bytes]:
        """Its name in 0.11."""
        return self.keys_to_store

    @property
    def block_hashes_evicted(self) -> list[bytes]:
        """Its name in 0.11."""
        return self.evicted_keys


@dataclass
class OffloadingEvent:
    """Blocks that the host has got, or has no more."""

    keys: list[bytes]
    medium: Any
    removed: bool
    block_size: int = 0
    locality: Any = None
    ownership: str | None = None
    removal_expected: bool = False

    @property
    def block_hashes(self) -> list[bytes]:
        """Its name in 0.11."""
        return self.keys


@dataclass
class RequestOffloadingContext:
    """How a request's blocks are offloaded; None: as vLLM does unless told."""

    policy: Any = None


@dataclass(frozen=True)
class OffloadTypes:
    """Classes that answers are made of, and how a lookup is answered."""

    load_store_spec: Callable[[list[int]], Any] = CPULoadStoreSpec
    medium: Any = "CPU"
    request_context: Callable[[], Any] = RequestOffloadingContext
    load_source: Any = "CPU"
    # A block that is there, is not, is being written, is asked for.
    hit: Any = True
    miss: Any = False
    pending: Any = False
    retry: Any = None


@dataclass(frozen=True)
class _Own32(OffloadTypes):
    hit: Any = field(default=LookupResult.HIT)
    miss: Any = field(default=LookupResult.MISS)
    pending: Any = field(default=LookupResult.HIT_PENDING)
    retry: Any = field(default=LookupResult.RETRY)


def own_types(api: str) -> OffloadTypes:
    """Pando's own classes, as this version's callers read them."""
    if api not in ("0.11", "0.20", "0.32"):
        raise ValueError(f"api: expected '0.11', '0.20' or '0.32', got {api!r}")
    return _Own32() if api == "0.32" else OffloadTypes()
