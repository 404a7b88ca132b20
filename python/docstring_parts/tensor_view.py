# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class TensorView:
    """Part of a pool as a tensor, without a copy; the pool stays as long as the view or
    an array made of it does. `numpy()` for NumPy, which knows neither bf16 nor fp8:
    there it has their bits. Everything that reads DLPack gets the true type:
    `torch.from_dlpack(view)`.

    >>> geometry = pando.mha_geometry(num_layers=1, heads=2, head_dim=4)
    >>> view = pando.KvPool(geometry, capacity_tokens=7).key(0)
    >>> view.shape, view.dtype, view.numpy().dtype.name
    ((8, 2, 4), DType.bf16, 'uint16')
    """

    def kind(self):
        """Where the memory is."""

    def address(self):
        """Where the first element is."""

    def numpy(self):
        """A NumPy array over the memory: writing to it writes to the pool."""
