# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import pando


class TraceRequest:
    """...

    >>> pando.TraceRequest(input_length=32, blocks=[7, 8]).blocks
    array([7, 8], dtype=uint64)
    """


class TraceIterator:
    """Over the requests of a Trace."""

    def skipped_lines(self):
        """Lines that made no sense and were skipped, with skip_bad."""


class Trace:
    """...

    >>> trace = pando.Trace([{'timestamp': 0, 'input_length': 32, 'output_length': 1,
    ...                       'hash_ids': [1, 2]}], block_tokens=16)
    >>> [request.input_length for request in trace]
    [32]
    """

    def files(self):
        """Where it is read from; none for a generated one."""

    def block_tokens(self):
        """Tokens per block. Reads the first request."""

    def write(self):
        """Writes it as JSON lines, as `pando gen` does. Returns the number of requests."""


class Model:
    def token_bytes(self):
        """Bytes of a token in all layers."""


def open_trace():
    """A trace in files: JSON lines with hash_ids or tokens, or CSV with lengths;
    plain, gzip or zstd. Several are merged by time. It is read when it is used.
    `skip_bad`: count lines that make no sense instead of stopping at them.
    `reorder`: look ahead so many requests and take the earliest first, for recorded
    traces. `same_ids`: equal ids of several files are equal blocks.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = folder.name + '/chat.jsonl'
    >>> pando.generate('chat', requests=20).write(path)
    20
    >>> len(list(pando.open_trace(path)))
    20
    >>> folder.cleanup()
    """


def generate():
    """A workload from nothing but a seed: chat, agent, rag, tree or batch. Same
    options, same trace, on every machine. Unless given, options are what is usual
    for the workload; `pando gen` has the same.

    >>> trace = pando.generate('rag', requests=5, seed=3)
    >>> len(list(trace)), trace.block_tokens
    (5, 16)
    """


def workload_names():
    """What generate() knows.

    >>> pando.workload_names()
    ['chat', 'agent', 'rag', 'tree', 'batch']
    """


def model_names():
    """The models that find_model() knows by name.

    >>> 'llama-3.1-8b' in pando.model_names()
    True
    """


def find_model():
    """...

    >>> pando.find_model(pando.model_names()[0]).token_bytes > 0
    True
    """
