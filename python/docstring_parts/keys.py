# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class StoreScope:
    """...

    >>> pando.StoreScope(model='org/model', tp_rank=1, tp_size=4).tp_rank
    1
    """

    def validate(self):
        """Raises InvalidArgument where it makes no sense."""


class KeySpace:
    """...

    >>> geometry = pando.mha_geometry(num_layers=2, heads=8, head_dim=128)
    >>> space = pando.KeySpace(pando.StoreScope(model='org/model'), geometry, pando.HostLayout.page_first)
    >>> parts = pando.parse_key(space.key(bytes(32)))
    >>> parts.model, parts.hash == bytes(32)
    ('org-model', True)
    """


def parse_key():
    """...

    >>> pando.parse_key('nonsense') is None
    True
    """


def import_sglang_pages():
    """...

    >>> import tempfile
    >>> geometry = pando.mha_geometry(num_layers=2, heads=1, head_dim=8, page_size=4)
    >>> space = pando.KeySpace(pando.StoreScope(model='m'), geometry,
    ...                        pando.HostLayout.page_first)
    >>> with tempfile.TemporaryDirectory() as empty:
    ...     report = pando.import_sglang_pages(empty, space, geometry.page_bytes,
    ...                                        pando.make_memory_store())
    >>> report.imported_pages
    0
    """
