# SPDX-License-Identifier: Apache-2.0
"""What SGLang asks a cache about itself: sizes, kinds, texts, events, and things about nodes.

A part of :class:`pando.sglang.prefix_cache.PandoPrefixCache`; changes nothing.
"""

from __future__ import annotations

from typing import Any

import pando
from pando.sglang.allocators import AllocatorBridge
from pando.sglang.events import EventLog
from pando.sglang.nodes import Node, Root
from pando.sglang.tensors import NumpySlots


class Reports:
    """Needs the members below from the class that it is a part of."""

    root_node: Root
    sliding_window_size: int | None
    enable_kv_cache_events: bool
    _cache: pando.PrefixCache
    _bridge: AllocatorBridge
    _slots: NumpySlots
    _events: EventLog

    def evictable_size(self) -> int:
        return self._inspect.sizes().evictable

    full_evictable_size = evictable_size

    def protected_size(self) -> int:
        return self._inspect.sizes().protected_tokens

    full_protected_size = protected_size

    def swa_evictable_size(self) -> int:
        if self.sliding_window_size is None:
            return 0
        return self._inspect.sizes(pando.ComponentKind.window).evictable

    def swa_protected_size(self) -> int:
        if self.sliding_window_size is None:
            return 0
        return self._inspect.sizes(pando.ComponentKind.window).protected_tokens

    def total_size(self) -> Any:
        """Tokens; with a window a pair, as SGLang's caches of that kind have it."""
        total = self._inspect.sizes().total
        if self.sliding_window_size is None:
            return total
        return total, self._inspect.sizes(pando.ComponentKind.window).total

    def supports_swa(self) -> bool:
        return self.sliding_window_size is not None

    def supports_mamba(self) -> bool:
        return False

    def is_chunk_cache(self) -> bool:
        return False

    def is_tree_cache(self) -> bool:
        return True

    def sanity_check(self) -> None:
        """Raises if an invariant of the tree is broken. O(tree)."""
        self._cache.check()

    def pretty_print(self) -> None:
        print(self._inspect.dump())
        print(f"#tokens: {self._inspect.sizes().total}")

    def available_and_evictable_str(self) -> str:
        return self._bridge.available_text(self.evictable_size(), self.swa_evictable_size())

    def all_values_flatten(self) -> Any:
        return self._slots.to_engine(self._inspect.all_slots())

    def take_events(self) -> list[Any]:
        """What was stored and removed since the last call, as SGLang's events."""
        if not self.enable_kv_cache_events:
            return []
        self._events.add(self._cache.take_events())
        return self._events.take()

    def pop_storage_prefetch_miss(self, req_id: Any) -> bool:
        """In 0.5.19: whether a store lacked pages of a waiting request, to ask for them again.
        Pando asks a store once per request, as SGLang's cache for dense models does."""
        return False

    def root_node_handle(self, extra_key: str | None = None) -> Root:
        return self.root_node

    def is_root(self, node: Any) -> bool:
        return node is self.root_node

    def is_backuped(self, node: Any) -> bool:
        return bool(node.backuped)

    def get_last_hash_value(self, node: Any) -> str | None:
        return node.get_last_hash_value()  # type: ignore[no-any-return]

    def get_prefix_hash_values(self, node: Any) -> list[str]:
        return node.get_prefix_hash_values()  # type: ignore[no-any-return]

    def page_hashes(self, node: Node) -> list[str]:
        """Of the whole matched prefix; none where tokens are not kept."""
        return []
