# SPDX-License-Identifier: Apache-2.0
"""A prefix cache as one writes it in Python in an afternoon, with the methods that SGLang calls: a
radix tree of dicts, tokens compared one by one (or page by page), victims found with a heap over
all leaves. What pando.sglang is measured against; nothing else uses it."""

from __future__ import annotations

import heapq
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np


class Node:
    __slots__ = ("children", "parent", "key", "value", "lock_ref", "last_access")
    ticks = itertools.count()

    def __init__(self, parent: Node | None, key: Any, value: np.ndarray) -> None:
        self.children: dict[Any, Node] = {}
        self.parent = parent
        self.key = key
        self.value = value
        self.lock_ref = 0
        self.last_access = next(Node.ticks)

    def __lt__(self, other: Node) -> bool:
        return self.last_access < other.last_access


class PythonRadixCache:
    def __init__(self, req_to_token_pool: Any, allocator: Any, page_size: int) -> None:
        self.req_to_token_pool = req_to_token_pool
        self.allocator = allocator
        self.page_size = page_size
        self.evictable_size_ = 0
        self.protected_size_ = 0
        self.root = Node(None, (), np.empty(0, dtype=np.int64))
        self.root.lock_ref = 1

    # Walking.

    def _child_key(self, key: Any) -> Any:
        return key[0] if self.page_size == 1 else tuple(key[: self.page_size])

    def _common(self, left: Any, right: Any) -> int:
        if self.page_size == 1:
            length = 0
            for a, b in zip(left, right):
                if a != b:
                    break
                length += 1
            return length
        length, limit = 0, min(len(left), len(right))
        while length < limit:
            end = length + self.page_size
            if left[length:end] != right[length:end]:
                break
            length = end
        return length

    def _split(self, node: Node, length: int) -> Node:
        upper = Node(node.parent, node.key[:length], node.value[:length])
        upper.lock_ref = node.lock_ref
        upper.last_access = node.last_access
        upper.parent.children[self._child_key(upper.key)] = upper
        node.key, node.value, node.parent = node.key[length:], node.value[length:], upper
        upper.children[self._child_key(node.key)] = node
        return upper

    def _walk(self, key: Any) -> tuple[Node, list[np.ndarray], Any]:
        """The node where the key ends in the tree, the values before it, the rest of the key."""
        node, values = self.root, []
        node.last_access = next(Node.ticks)
        while len(key) >= self.page_size:
            child = node.children.get(self._child_key(key))
            if child is None:
                break
            child.last_access = next(Node.ticks)
            common = self._common(child.key, key)
            if common < len(child.key):
                child = self._split(child, common)
            values.append(child.value)
            node, key = child, key[common:]
        return node, values, key

    # What SGLang calls.

    def match_prefix(self, params: Any) -> SimpleNamespace:
        key = params.key.token_ids
        key = key[: len(key) // self.page_size * self.page_size]
        node, values, _ = self._walk(key)
        indices = np.concatenate(values) if values else self.root.value
        return SimpleNamespace(
            device_indices=indices, last_device_node=node, last_host_node=node, host_hit_length=0
        )

    def insert(self, params: Any) -> SimpleNamespace:
        key = params.key.token_ids
        key = key[: len(key) // self.page_size * self.page_size]
        node, values, rest = self._walk(key)
        prefix_len = sum(len(value) for value in values)
        if len(rest):
            leaf = Node(node, rest, params.value[prefix_len : len(key)].copy())
            node.children[self._child_key(rest)] = leaf
            self.evictable_size_ += len(rest)
        return SimpleNamespace(prefix_len=prefix_len)

    def cache_unfinished_req(self, req: Any) -> None:
        tokens = req.get_fill_ids()
        row = self.req_to_token_pool.req_to_token[req.req_pool_idx]
        slots = row[: len(tokens)].astype(np.int64)
        key = SimpleNamespace(token_ids=tokens, extra_key=req.extra_key)
        inserted = self.insert(SimpleNamespace(key=key, value=slots))
        self.allocator.free(slots[req.cache_protected_len : inserted.prefix_len])
        match = self.match_prefix(SimpleNamespace(key=key))
        length = len(match.device_indices)
        row[req.cache_protected_len : length] = match.device_indices[req.cache_protected_len :]
        self.dec_lock_ref(req.last_node)
        self.inc_lock_ref(match.last_device_node)
        req.prefix_indices = np.concatenate([match.device_indices, slots[length:]])
        req.cache_protected_len = length
        req.last_node = match.last_device_node

    def cache_finished_req(self, req: Any, *, kv_len_to_handle: int) -> None:
        tokens = (req.origin_input_ids + req.output_ids)[:kv_len_to_handle]
        slots = self.req_to_token_pool.req_to_token[req.req_pool_idx, : len(tokens)]
        slots = slots.astype(np.int64)
        whole = len(tokens) // self.page_size * self.page_size
        key = SimpleNamespace(token_ids=tokens, extra_key=req.extra_key)
        inserted = self.insert(SimpleNamespace(key=key, value=slots))
        self.allocator.free(slots[req.cache_protected_len : inserted.prefix_len])
        self.allocator.free(slots[whole:])
        self.dec_lock_ref(req.last_node)

    def evict(self, params: Any) -> None:
        leaves = [node for node in self._leaves() if node.lock_ref == 0]
        heapq.heapify(leaves)
        evicted = 0
        while evicted < params.num_tokens and leaves:
            node = heapq.heappop(leaves)
            self.allocator.free(node.value)
            evicted += len(node.value)
            self.evictable_size_ -= len(node.value)
            parent = node.parent
            del parent.children[self._child_key(node.key)]
            if not parent.children and parent.lock_ref == 0:
                heapq.heappush(leaves, parent)

    def _leaves(self) -> list[Node]:
        found, stack = [], [self.root]
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            elif node is not self.root:
                found.append(node)
        return found

    def inc_lock_ref(self, node: Node) -> None:
        while node is not self.root:
            if node.lock_ref == 0:
                self.evictable_size_ -= len(node.key)
                self.protected_size_ += len(node.key)
            node.lock_ref += 1
            node = node.parent

    def dec_lock_ref(self, node: Node) -> None:
        while node is not self.root:
            if node.lock_ref == 1:
                self.evictable_size_ += len(node.key)
                self.protected_size_ -= len(node.key)
            node.lock_ref -= 1
            node = node.parent
