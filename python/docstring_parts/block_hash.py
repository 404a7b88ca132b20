# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class MultimodalItem:
    """...

    >>> pando.MultimodalItem(id='cat', offset=2, length=3)
    MultimodalItem(id='cat', offset=2, length=3)
    """


class RequestKeys:
    """...

    >>> cat = pando.MultimodalItem(id='cat', offset=2, length=3)
    >>> keys = pando.RequestKeys(lora='german', items=[cat])
    >>> pando.extra_keys(keys, 4, 8)
    ['german', ItemKey(id='cat', offset=-2)]
    """

    def items(self):
        """...

        A copy: assign a list to change it.
        """


class BlockHash:
    """...

    >>> pando.BlockHash(bytes(32), (1, 2)).check
    (1, 2)
    """

    def check(self):
        """...

        A pair of integers.
        """


class BlockHasher:
    """...

    >>> hasher = pando.BlockHasher(2, 'sha256_cbor')
    >>> hashes = hasher.hash_blocks([1, 2, 3, 4, 5])
    >>> len(hashes), len(hashes[0])
    (2, 32)
    >>> hashes[:1] == hasher.hash_blocks([1, 2])
    True
    """

    def hash_blocks(self):
        """The hashes of all whole blocks."""

    def extend(self):
        """`chain`, and the hashes of the whole blocks of `tokens` that it does not have
        yet. The tokens of those it has are not looked at again. With second hashes, as
        BlockPool wants them.
        """


def extra_keys():
    """...

    >>> keys = pando.RequestKeys(lora='french', salt='acme')
    >>> pando.extra_keys(keys, 0, 16), pando.extra_keys(keys, 16, 32)
    (['french', 'acme'], ['french'])
    """
