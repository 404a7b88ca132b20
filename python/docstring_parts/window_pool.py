# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class WindowPool:
    """...

    Page size and planes are those of the geometry, layers those given.

    >>> slots = pando.WindowAllocator(64, 16)
    >>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)
    >>> pool = pando.WindowPool(geometry, slots, full_layers=[0], window_layers=[1, 2])
    >>> pool.full.num_pages, pool.window.num_pages
    (65, 17)
    """
