# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class SlotMatch:
    """...

    SlotCache.find() gives them.

    >>> pando.SlotMatch(length=3, slot=1).free
    False
    """


class SlotCache:
    """...

    >>> slots = pando.SlotAllocator(4)
    >>> cache = pando.SlotCache(slots, slot_tokens=1024)
    >>> slot = cache.take()
    >>> cache.insert([1, 2, 3], slot)
    >>> cache.free(slot)
    >>> match = cache.find([1, 2, 3, 4])
    >>> match.length, match.slot, match.free
    (3, 0, True)
    >>> cache.occupy(match)  # and compute from token 3 on
    """

    def __init__(self):
        """`pool` and `copier` are for copy_kv(), both or neither: slot s is page s + 1."""
