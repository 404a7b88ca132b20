# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class HostPool:
    """...

    Its size is either `ratio` (of the device pool's pages) or `size_bytes`. Without
    an arena, memory of the heap; pinned where the device is a GPU.

    >>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=4)
    >>> device = pando.KvPool(geometry, capacity_tokens=64)
    >>> host = pando.HostPool(device, ratio=2.0, keep_free_bytes=0)
    >>> host.num_pages, host.alloc(2), host.state(1)
    (32, array([0, 1]), PageState.reserved)
    """

    def page_bytes(self):
        """Bytes of a page in all planes and layers."""

    def read_page(self):
        """Copies a page out, to `out` or a new array of uint8: planes one after the other,
        each in the order of the layout.
        """

    def region(self):
        """All of its memory, as a network card wants it registered."""
