# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class ItemKey:
    """What a block's hash takes in of an image or the like: its id, and where it begins
    from the block's start on.

    >>> pando.ItemKey(id='cat', offset=-3)
    ItemKey(id='cat', offset=-3)
    """


class KvEvent:
    """...

    >>> cache = pando.BlockCache(8, groups=[pando.BlockGroup(block_size=2)], events=True)
    >>> request = cache.start([1, 2, 3, 4, 5])
    >>> cache.allocate(request, 5)
    >>> event = cache.take_events()[0]
    >>> event.kind.name, event.tokens, event.block_size, len(event.hashes)
    ('stored', array([1, 2, 3, 4], dtype=int32), 2, 2)
    """


class EventPublisher:
    """...

    Options are those of EventPublisherOptions.

    >>> publisher = pando.EventPublisher(topic='kv')
    >>> publisher.publish([pando.KvEvent(kind=pando.KvEventKind.cleared)])
    True
    >>> publisher.flush()
    >>> publisher.stats.published_events
    1
    """


def block_id():
    """...

    >>> pando.block_id(pando.hash_pages([1, 2, 3, 4], 4)[0])
    -3488128144981237669
    """


def chain_start():
    """...

    >>> pando.chain_start('') is None, len(pando.chain_start('tenant'))
    (True, 32)
    """


def hash_pages():
    """...

    >>> first, second = pando.hash_pages([1, 2, 3, 4, 5], 2)
    >>> pando.hash_pages([3, 4], 2, parent=first) == [second]
    True
    """
