# SPDX-License-Identifier: Apache-2.0
"""What Python adds to the comments of the headers, see python/docstrings.py."""

import numpy as np
import pando


class ReplayResults:
    """...

    to_dict() has all of it, as `pando replay --json` writes it; docs/formats.md has
    the names.
    """

    def prefill_tokens_saved(self):
        """Tokens of the inputs that need not be computed."""

    def misses(self):
        """Blocks that had to be computed, by why."""

    def series(self):
        """Over the trace: a column for each figure, in at most 256 stretches."""

    def to_dict(self):
        """As `pando replay --json` writes it."""


class PlanCurve:
    def capacity_blocks(self):
        """Capacities of its points, in blocks."""

    def hit_ratio(self):
        """Hit ratios of its points, by blocks."""


class Plan:
    def token_bytes(self):
        """Bytes of a token, where a model was given; else None."""

    def to_dict(self):
        """As `pando plan --json` writes it, without the advice in words."""


class BlockStory:
    """Blocks [begin, end) of a request's input, and what was found of them. Where a
    block has several findings, that of its first token that is not cached.
    """

    def begin(self):
        """First block."""

    def end(self):
        """Behind the last block."""


def replay():
    """Sends a trace through a cache and says how it did. Options are those of `pando
    replay`; those of the trace are open_trace()'s. Sizes are tokens, or a text:
    '64GiB' (with `model`), '9139blocks', '5%' of the trace's different blocks.
    Other threads run meanwhile, and Ctrl-C ends it. `progress(share, requests)` is
    called some 20 times a second; if it returns False, the trace ends there.

    >>> trace = pando.generate('chat', requests=200, seed=1)
    >>> results = pando.replay(trace, device='50%', host=100_000)
    >>> results.requests, 0 < results.hit_ratio_blocks < 1
    (200, True)
    >>> results.to_dict()['settings']['policy']
    'lru'
    """


def plan():
    """The hit ratio of a trace at every capacity: of lru in one pass, of the policies
    in `policy` by a set of replays, and of the best possible. `at`: capacities to
    plan for exactly. Of more different blocks than `max_blocks`, only a sample is
    looked at. Ctrl-C and `progress` work while the trace is read, not while curves
    are made.

    >>> plan = pando.plan(pando.generate('chat', requests=200, seed=1))
    >>> curve = plan.curve('lru')
    >>> bool((np.diff(curve.hit_ratio) >= 0).all())
    True
    >>> [curve.policy for curve in plan.curves]
    ['lru', 'optimum', 'ceiling']
    """


def why():
    """Why a request of a trace, counted from 1, hit or missed, block by block: replays
    everything before it. Options are those of `pando why`.

    >>> story = pando.why(pando.generate('chat', requests=50, seed=1), 40)
    >>> story.request, story.blocks[0].finding.name
    (40, 'on_device')
    """
