# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class Arena:
    """...

    >>> arena = pando.make_malloc_arena()
    >>> arena.name, arena.kind
    ('malloc', MemoryKind.host)
    """


class Plane:
    """...

    >>> pando.Plane(name='key', heads=8, dim=128).row_bytes
    2048
    """


class Geometry:
    """...

    >>> geometry = pando.mha_geometry(num_layers=2, heads=8, head_dim=128)
    >>> geometry.token_bytes
    8192
    """

    def validate(self):
        """Raises InvalidArgument where it makes no sense."""

    def page_bytes(self):
        """Bytes of one page in all planes and layers."""

    def plane_page_bytes(self):
        """Bytes of one plane's share of a page, all layers."""


def make_malloc_arena():
    """...

    >>> pando.make_malloc_arena().name
    'malloc'
    """


def make_huge_page_arena():
    """...

    >>> pando.make_huge_page_arena().kind
    MemoryKind.host
    """


def make_user_arena():
    """Carves from memory of the caller: a writable buffer, a contiguous tensor on the
    CPU or a GPU, or a MemoryRegion, which the caller keeps alive. `kind` is that of
    the memory unless given: say `pinned` where you have pinned it.

    >>> arena = pando.make_user_arena(bytearray(4096))
    >>> arena.available_bytes
    4096
    """


def available_memory():
    """...

    >>> pando.available_memory() > 0
    True
    """


def size_of():
    """...

    >>> pando.size_of(pando.DType.bf16)
    2
    """


def mha_geometry():
    """...

    >>> [p.name for p in pando.mha_geometry(num_layers=1, heads=8, head_dim=128).planes]
    ['key', 'value']
    """


def mla_geometry():
    """...

    >>> pando.mla_geometry(num_layers=1, nope_dim=512, rope_dim=64).planes[0].dim
    576
    """


def dsa_geometry():
    """...

    >>> geometry = pando.dsa_geometry(num_layers=1, nope_dim=512, rope_dim=64, index_dim=128)
    >>> [p.name for p in geometry.planes]
    ['latent', 'index_key']
    """


def double_sparse_geometry():
    """...

    >>> geometry = pando.double_sparse_geometry(num_layers=1, heads=8, head_dim=128, label_dim=16)
    >>> geometry.plane_index('label')
    2
    """


def state_geometry():
    """...

    >>> pando.state_geometry(num_layers=2, planes=[pando.Plane(name='ssm', dim=64)]).page_size
    1
    """
