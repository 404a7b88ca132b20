# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import numpy as np
import pando


class Rows:
    """...

    `data` is an array, or an address with dtype and stride.

    >>> pando.Rows(np.ones((3, 8), np.float16), scale=0.5).scale
    0.5
    """
