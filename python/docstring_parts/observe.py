# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class CallInfo:
    def took(self):
        """How long it took, in seconds."""

    def error(self):
        """The class of the error; None: it succeeded."""


class Key:
    """What a prompt is looked up by, as observers are told of it."""


class FinishedRequest:
    def started(self):
        """When start() was called, as time.monotonic() counts."""


class TraceRecorder:
    """...

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> recorder = pando.TraceRecorder(folder.name + '/trace.jsonl', block_tokens=4)
    >>> recorder.record([1, 2, 3, 4, 5], output_length=7)
    True
    >>> recorder.flush()
    >>> recorder.stats.recorded_requests
    1
    >>> folder.cleanup()
    """

    def __init__(self):
        """`block_tokens` share an id. Ids are alike where `key` and block_tokens are;
        whoever knows the key can test guesses of prompts. A file that would grow beyond
        `max_file_bytes` becomes path.1, and so on.
        """

    def record(self):
        """...

        `started`: as time.monotonic() counts; now unless given.
        """

    def check(self):
        """Raises the last error of the file; nothing after a line that could be written
        again.
        """
