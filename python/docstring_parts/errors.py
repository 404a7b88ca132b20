# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""


class Error:
    """What the library refuses or cannot do. Its subclasses say which."""


class BrokenContract:
    """A contract was broken, such as freeing a slot twice. What the object holds can no
    longer be trusted.
    """


class WrongThread:
    """Two threads, or a callback, used one cache at the same time."""
