# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class HazardOptions:
    """...

    PrefixCache takes them as `policy`.

    >>> policy = pando.HazardOptions(cost_aware=True, attention_tokens=20000)
    >>> cache = pando.PrefixCache(pando.PagedAllocator(64), policy=policy)
    >>> cache = pando.PrefixCache(pando.PagedAllocator(64), policy='hazard')   # without
    """

    def validate(self):
        """Raises InvalidArgument where it makes no sense."""
