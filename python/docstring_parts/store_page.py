# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class StorePage:
    """A page on its way to or from a store written in Python: a sequence of buffers,
    which are memoryviews of the cache's own memory. All of them together, one after
    the other, are the value to keep under `key`; the last one is the page's tag (24
    bytes). Valid during the call only: copy what you keep.
    """

    def size_bytes(self):
        """Bytes of all buffers."""

    def addresses(self):
        """Addresses of the buffers."""

    def sizes(self):
        """Bytes of each buffer."""

    def tobytes(self):
        """All buffers as one, copied."""

    def copy_from(self):
        """Fills all buffers from one. `PageOutcome.damaged` where it is not as long as they
        are: what get() may return for the page.
        """
