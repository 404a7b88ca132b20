# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class Config:
    """...

    In Python a dict is one too.

    >>> config = pando.Config({'capacity_bytes': '64MiB', 'direct': False})
    >>> config.bytes('capacity_bytes'), config.boolean('direct', True)
    (67108864, False)
    >>> pando.Config.parse('{"depth": 4}').to_dict()
    {'depth': 4}
    """

    def refuse_unknown(self):
        """Raises InvalidArgument that lists what is not among `known`."""

    def to_dict(self):
        """All that is given, by name."""
