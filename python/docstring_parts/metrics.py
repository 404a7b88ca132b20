# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class Metrics:
    """...

    >>> metrics = pando.Metrics(labels={'rank': '0'})
    >>> cache = pando.BlockCache(100, observer=metrics)
    >>> request = cache.start(range(40))
    >>> metrics.collect(cache)
    >>> 'rank="0"' in metrics.text()
    True
    """

    def __init__(self):
        """`labels` are on every metric. Counters per tenant, for the first `max_tenants`
        that come; `tenant_of` says whose a namespace is.
        """
