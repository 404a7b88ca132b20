# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import numpy as np
import pando


class EmbeddingCache:
    """...

    Nothing is copied: get() gives the object that put() was given, so nobody may
    change it any more.

    >>> cache = pando.EmbeddingCache(1000)
    >>> cache.put('cat', np.zeros(100))
    >>> cache.get('cat').shape, cache.get('dog')
    ((100,), None)
    >>> cache.put('dog', bytes(900))
    >>> cache.has('cat'), cache.stats.evictions
    (False, 1)
    """

    def put(self):
        """...

        The size is that of the buffer, or what `nbytes` says; give `size_bytes` for other
        objects.
        """

    def get(self):
        """The object itself, or None. Counts as a use."""


def combined_hash():
    """...

    >>> pando.combined_hash(['cat'])
    'cat'
    >>> pando.combined_hash(['ab', 'c']) == pando.combined_hash(['a', 'bc'])
    False
    """
