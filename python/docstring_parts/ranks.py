# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class Ranks:
    """Ranks that mirror one cache agree through this. Any object with `rank`, `size`,
    `min(values)`, `max(values)` and `barrier()` can take its place.

    >>> ranks = pando.make_single_rank()
    >>> ranks.rank, ranks.size, ranks.min([3, 4])
    (0, 1, array([3, 4]))
    """

    def min(self):
        """The least that any rank gave, in each place."""

    def max(self):
        """The greatest that any rank gave, in each place."""


def make_single_rank():
    """...

    >>> pando.make_single_rank().size
    1
    """


def make_thread_ranks():
    """...

    `timeout`: how many seconds the others wait for one that does not come.

    >>> [ranks.rank for ranks in pando.make_thread_ranks(2)]
    [0, 1]
    """
