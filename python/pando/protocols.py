# SPDX-License-Identifier: Apache-2.0
"""What objects written in Python must have to take the place of the library's own.

Nothing here is a base class: any object with these methods will do. What they raise is contained:
``sys.unraisablehook`` hears of it, and the cache goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    from pando._core import NodeStats


class EvictionPolicy(Protocol):
    """Which cached prefix goes first: the one with the smallest key.

    A policy that raises gets the key of ``lru`` for that node.
    """

    def key(self, stats: NodeStats, /) -> int | tuple[int, int]:
        """Unsigned 64-bit values: one, or two of which the second decides between equals."""


class Ranks(Protocol):
    """Ranks that mirror one cache agree through this, over ``torch.distributed`` for instance.

    Every rank makes the same calls in the same order. If one raises, the cache reports
    ``PollResult.ranks_lost`` and moves nothing between tiers any more.
    """

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

    def min(
        self, values: numpy.typing.NDArray[numpy.int64], /
    ) -> numpy.typing.NDArray[numpy.int64]:
        """The least that any rank gave, in each place."""

    def max(
        self, values: numpy.typing.NDArray[numpy.int64], /
    ) -> numpy.typing.NDArray[numpy.int64]:
        """The greatest that any rank gave, in each place."""

    def barrier(self) -> None:
        """Returns when every rank has come."""
