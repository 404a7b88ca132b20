# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class OffloadTable:
    """...

    >>> table = pando.OffloadTable(2)
    >>> request = table.start()
    >>> wanted, blocks, evicted = table.begin_write(request, [b'a', b'b'])
    >>> wanted, blocks.tolist(), evicted
    ([b'a', b'b'], [0, 1], [])
    >>> table.end_write(wanted)
    [b'a', b'b']
    >>> table.finish(request)
    >>> table.find(b'a')
    OffloadState.ready
    >>> table.begin_write(table.start(), [b'c'])[2]
    [b'b']
    """

    def __init__(self):
        """`policy`: a name as PrefixCache takes it. `block_tokens`: of a block, for policies
        that learn. The last `group_bytes` of a key number its group of layers;
        `main_group` is the one whose chain has every chunk of a prefix. `answers`: what
        find() returns for a key that is absent, being written, ready, in place of an
        OffloadState.
        """

    def find(self):
        """...

        `context` is for callers that have one, and is ignored.
        """

    def begin_write(self):
        """Which of the keys are absent, a block to write each of these to, and which keys
        had to go for them. None: there is no room, because too many blocks are being
        read or written or are among the keys. `ends`: tokens of the request up to the
        end of each key's chunk, where they are known.
        """
