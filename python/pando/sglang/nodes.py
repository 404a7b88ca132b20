# SPDX-License-Identifier: Apache-2.0
"""What SGLang holds in place of a tree node.

A scheduler keeps the node that a match ended at, counts locks on it, and asks a few things of it.
Nodes of the tree are the library's; a :class:`Node` names the end of one match and its locks.
:class:`Root` is where nothing was matched; there is one per cache, compared with ``is``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pando import Match


class Node:
    """The end of one match."""

    __slots__ = ("locks", "match", "namespace", "owner", "tokens")

    def __init__(self, owner: Any, match: Match, tokens: Any, namespace: str | bytes) -> None:
        self.owner = owner
        self.match = match
        self.tokens = tokens  # of the whole prompt, kept only where somebody may ask for them
        self.namespace = namespace
        self.locks: list[int] = []  # names of leases that the owner holds for it

    @property
    def id(self) -> int:
        node = self.match.node or self.match.host_node
        return (node.generation << 32) | node.index

    @property
    def parent(self) -> Root:
        return self.owner.root_node  # type: ignore[no-any-return]

    @property
    def lock_ref(self) -> int:
        return len(self.locks)

    @property
    def evicted(self) -> bool:
        """Nothing of it is on the device."""
        return self.match.length == 0

    @property
    def backuped(self) -> bool:
        """The host may have all of it, so that a prefetch can go on from here."""
        return self.owner.has_host_tier  # type: ignore[no-any-return]

    @property
    def children(self) -> dict[Any, Any]:
        return {}

    def get_last_hash_value(self) -> str | None:
        hashes = self.owner.page_hashes(self)
        return hashes[-1] if hashes else None

    def get_prefix_hash_values(self, node: Any = None) -> list[str]:
        """Of the pages before the last one: the library has no other boundary to offer."""
        return self.owner.page_hashes(self)[:-1]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Node(id={self.id}, length={self.match.length}, locks={len(self.locks)})"


class Root:
    """Where every prompt begins. Holding it holds nothing."""

    __slots__ = ("children", "owner")

    id = 0
    parent = None
    lock_ref = 1
    evicted = False
    backuped = True
    match = None
    namespace = ""
    tokens = ()
    locks = ()

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.children: dict[Any, Any] = {}

    def get_last_hash_value(self) -> None:
        return None

    def get_prefix_hash_values(self, node: Any = None) -> list[str]:
        return []

    def __repr__(self) -> str:
        return "Root()"
