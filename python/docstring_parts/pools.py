# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import numpy as np
import pando


class PlaneMemory:
    """Where the rows of one plane are, by address. Head h of slot s in layer l starts at
    layers[l] + s // page_size * page_stride + s % page_size * token_stride +
    h * head_stride.

    >>> pando.PlaneMemory(layers=[4096], page_stride=64, token_stride=64, head_stride=16)
    PlaneMemory(layers=[4096], page_stride=64, token_stride=64, head_stride=16)
    """


class KvPool:
    """...

    `capacity_tokens` is rounded down to whole pages; a padding page, number 0, comes
    on top. Without an arena, memory of the heap.

    >>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=4)
    >>> pool = pando.KvPool(geometry, capacity_tokens=64)
    >>> pool.num_pages, pool.size_bytes
    (17, 4352)
    """

    def adopt(self):
        """A pool over an engine's own buffers, which it keeps. For each plane: a list of
        arrays, one per layer, or one array with layers as its first dimension; or a
        PlaneMemory of addresses, with num_pages. A layer is (slots, heads, dim) or
        (pages, page, heads, dim) in any strides, on the CPU or a GPU; of one head, that
        dimension may be left out. Page 0 is padding.

        >>> geometry = pando.mha_geometry(num_layers=2, heads=2, head_dim=4, page_size=16)
        >>> kv = [np.zeros((2, 10, 16, 2, 4), np.uint16) for layer in range(2)]
        >>> pool = pando.KvPool.adopt(geometry, [[t[0] for t in kv], [t[1] for t in kv]])
        >>> pool.num_pages, pool.key(1).shape
        (10, (160, 2, 4))
        """

    def view(self):
        """A plane of a layer, by number or name: (slots, heads, dim), or (pages, page,
        heads, dim) where slots are not evenly spaced or the pool is page-major. On a CPU
        this first waits for loads of that layer, see gate().

        >>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)
        >>> pool = pando.KvPool(geometry, capacity_tokens=7)
        >>> pool.view(0, 'value').shape
        (8, 2, 4)
        """

    def set(self):
        """...

        A plane's rows are an array (slots, ...) with as many elements to a row as the
        plane has, of the pool's own type (or its bits), or fp16, bf16 or fp32; with a
        scale, Rows.

        >>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4, dtype=pando.DType.fp32)
        >>> pool = pando.KvPool(geometry, capacity_tokens=7)
        >>> rows = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
        >>> pool.set(0, [3], [rows, -rows])
        >>> pool.key(0).numpy()[3, 1]
        array([4., 5., 6., 7.], dtype=float32)
        """

    def save(self):
        """Copies rows out to host memory (pinned for a GPU's pool), for restore().

        >>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)
        >>> pool = pando.KvPool(geometry, capacity_tokens=7)
        >>> saved = pool.save([1, 2])
        >>> pool.restore(saved, [5, 6])
        >>> saved.num_tokens, saved.size_bytes
        (2, 64)
        """


def row_of():
    """...

    >>> pando.row_of(pando.StateAllocator(4).alloc())
    1
    """
