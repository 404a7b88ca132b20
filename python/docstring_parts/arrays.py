# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import numpy as np
import pando


class SpareBlock:
    """Memory of a large array: its base."""


def copy_slots():
    """A copy as int64, of a row of an engine's int32 table for instance.

    >>> pando.copy_slots(np.array([3, 1, 2], dtype=np.int32))
    array([3, 1, 2])
    """
