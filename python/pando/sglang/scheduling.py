# SPDX-License-Identifier: Apache-2.0
"""``--schedule-policy dfs-weight``: waiting requests in depth-first order of what they share.

SGLang walks its tree for it. Here the part of the tree that matters is made from the matched slots:
a slot belongs to one place in the tree, so two matches share a path as far as their slots agree.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np


class _Branch:
    """Matches that agree up to `depth` slots: those that end there, and those that go on."""

    def __init__(self, paths: Sequence[Any], members: list[int], depth: int) -> None:
        groups: dict[int, list[int]] = {}
        self.own: list[int] = []
        for member in members:
            path = paths[member]
            if len(path) == depth:
                self.own.append(member)
            else:
                groups.setdefault(int(path[depth]), []).append(member)
        self.children = [_Branch(paths, group, _agree(paths, group)) for group in groups.values()]
        self.children.sort(key=lambda child: -child.weight)
        self.weight = len(members)

    def append_to(self, order: list[int]) -> None:
        for child in self.children:
            child.append_to(order)
        order.extend(self.own)


def _agree(paths: Sequence[Any], members: list[int]) -> int:
    """How many slots all of them have in common."""
    first = paths[members[0]]
    common = min(len(paths[member]) for member in members)
    for member in members[1:]:
        differ = np.nonzero(paths[member][:common] != first[:common])[0]
        if len(differ):
            common = int(differ[0])
    return common


def dfs_weight_order(paths: Sequence[Any]) -> list[int]:
    """Which request comes when: deeper ones first, heavier branches before lighter ones.

    >>> from pando.sglang.scheduling import dfs_weight_order
    >>> dfs_weight_order([np.array([1, 2]), np.array([7]), np.array([1, 3]), np.array([1])])
    [0, 2, 3, 1]
    """
    order: list[int] = []
    _Branch(paths, list(range(len(paths))), 0).append_to(order)
    return order
