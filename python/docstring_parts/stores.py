# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import numpy as np
import pando


class PageOutcome:
    def failed(self):
        """See StoreCall.wait()."""


class StoreCall:
    def wait(self):
        """Blocks until finished, and says what became of each page. Raises the first error,
        TimedOut and Cancelled among them; missing and damaged pages are none.
        """

    def outcomes(self):
        """What became of each page."""


class Store:
    """...

    The backend is one of the library's, or an object with the methods that
    register_store() tells of. Closing it, or dropping it, cancels what is queued and
    waits for what runs.

    >>> store = pando.Store(pando.make_memory_store())
    >>> store.put(['a', 'b'], [b'first', [b'sec', b'ond']]).wait()
    [PageOutcome.done, PageOutcome.done]
    >>> page = np.zeros(6, np.uint8)
    >>> store.get(['b'], [page]).wait(), page.tobytes()
    ([PageOutcome.done], b'second')
    >>> store.close()
    """

    def close(self):
        """Cancels what is queued and waits for what runs."""

    def get(self):
        """...

        For each key a writable buffer or a list of them.
        """

    def put(self):
        """...

        For each key a buffer or a list of them.
        """


def make_page_tag():
    """The tag of a page: of its key, and of a buffer or a list of them.

    >>> pando.make_page_tag('a', b'bytes') == pando.make_page_tag('a', [b'by', b'tes'])
    True
    """
