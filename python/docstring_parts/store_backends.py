# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class StoreBackend:
    """What keeps the bytes of a Store. Its calls run on the calling thread, and say what
    became of each page.

    >>> backend = pando.make_memory_store()
    >>> backend.put(['a'], [b'bytes'])
    [PageOutcome.done]
    >>> backend.list()
    [StoredPage(key='a', size_bytes=5)]
    """

    def list(self):
        """All pages, in any order."""


class StoreFaults:
    def max_delay(self):
        """Of `delay` and `hang`, in seconds."""


def make_file_store():
    """...

    `direct`: past the page cache; `sync`: a page that is done survives a power cut;
    `depth`: requests at the device at a time, per call.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     backend = pando.make_file_store(directory, min_free_bytes=0)
    ...     with pando.Store(backend) as store:
    ...         store.put(['page'], [b'bytes']).wait()
    [PageOutcome.done]
    """


def make_redis_store():
    """...

    Servers are "host:port" or "unix:/path"; clear() removes what begins with
    `key_prefix`; pages go after `ttl` seconds unless read.
    """


def make_memory_store():
    """...

    `capacity_bytes` of 0: no limit.

    >>> pando.make_memory_store(1 << 20).stats().capacity_bytes
    1048576
    """


def make_faulty_store():
    """...

    >>> faults = pando.StoreFaults(flipped_bit=1.0)
    >>> backend = pando.make_faulty_store(pando.make_memory_store(), faults)
    >>> backend.put(['a'], [b'bytes']), backend.get(['a'], [bytearray(5)])
    ([PageOutcome.done], [PageOutcome.damaged])
    """


def registered_stores():
    """...

    >>> {'file', 'memory', 'redis'} <= set(pando.registered_stores())
    True
    """


def make_store_backend():
    """...

    >>> pando.make_store_backend('memory', {'capacity_bytes': '1MiB'}).name
    'memory'
    """
