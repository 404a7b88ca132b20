# SPDX-License-Identifier: Apache-2.0
"""The library's KV events as SGLang's, for its publisher and the routers behind it.

Fields that SGLang's events have in the version at hand are filled as its own caches fill them:
`cache_salt` (in 0.5.18 inside `metadata`), `session_id`, `lora_name`. Salt and extra key are read
back from the namespace that the plug-in made of them.
"""

from __future__ import annotations

import re
from typing import Any

import pando
from pando.sglang.interface import import_sglang

_MEDIA = {"device": "GPU", "host": "CPU_PINNED", "store": "EXTERNAL"}
_PART = re.compile(rb"([a-z])(\d+):")


def part_of(namespace: bytes, letter: bytes) -> str | None:
    """A part of a namespace, see pando.make_namespace(): `s` is the salt, `x` the extra key."""
    at = 0
    while part := _PART.match(namespace, at):
        at = part.end() + int(part[2])
        if part[1] == letter:
            return namespace[part.end() : at].decode()
    return None


class EventTypes:
    """SGLang's event classes, or what stands in for them, and the fields that they have here."""

    def __init__(self, module: Any = None) -> None:
        if module is None:
            module = import_sglang("sglang.srt.disaggregation.kv_events")
        self.stored = module.BlockStored
        self.removed = module.BlockRemoved
        self.cleared = module.AllBlocksCleared
        # 0.5.18 and 0.5.19 have a class of its own for blocks with a salt.
        self.stored_with_metadata = getattr(module, "BlockStoredWithMetadata", None)
        self.metadata = getattr(module, "BlockStoredMetadata", None)
        fields = getattr(self.stored, "__struct_fields__", None) or self.stored.__annotations__
        self.optional = {"cache_salt", "session_id", "lora_name"} & set(fields)


class EventLog:
    """Events in SGLang's form, in order, until they are taken."""

    def __init__(
        self, *, bigram: bool = False, lora_names: Any = None, dynamo: bool = False
    ) -> None:
        """`lora_names`: SGLang's table of names of adapters. The format `dynamo` (0.5.22 on) looks
        them up by the adapter's id, the other one (0.5.23) by extra keys that requests had."""
        self._bigram = bigram
        self._lora_name = None
        if lora_names is not None:
            self._lora_name = lora_names.resolve if dynamo else getattr(lora_names, "get", None)
        self._events: list[Any] = []
        self.types: EventTypes | None = None  # SGLang's, imported with the first event

    def add(self, events: list[pando.KvEvent], session_id: str | None = None) -> None:
        """`session_id`: whose request stored these, where it is one of a session."""
        if events and self.types is None:
            self.types = EventTypes()
        self._events += [self._convert(event, session_id) for event in events]

    def take(self) -> list[Any]:
        events, self._events = self._events, []
        return events

    def _convert(self, event: pando.KvEvent, session_id: str | None) -> Any:
        types = self.types
        assert types is not None
        if event.kind == pando.KvEventKind.cleared:
            return types.cleared()
        medium = _MEDIA[event.tier.name]
        hashes = [pando.block_id(page) for page in event.hashes]
        if event.kind == pando.KvEventKind.removed:
            return types.removed(block_hashes=hashes, medium=medium)
        tokens: list[Any] = event.tokens.tolist()
        if self._bigram:
            tokens = list(zip(tokens, tokens[1:]))
        fields: dict[str, Any] = {
            "block_hashes": hashes,
            "parent_block_hash": None if event.parent is None else pando.block_id(event.parent),
            "token_ids": tokens,
            "block_size": event.block_size,
            "lora_id": None,
            "medium": medium,
        }
        salt = part_of(event.ns, b"s")
        optional = {
            "cache_salt": salt,
            "session_id": session_id,
            "lora_name": self._lora_name(part_of(event.ns, b"x")) if self._lora_name else None,
        }
        fields |= {name: value for name, value in optional.items() if name in types.optional}
        if salt is not None and types.stored_with_metadata and types.metadata:
            return types.stored_with_metadata(**fields, metadata=types.metadata(cache_salt=salt))
        return types.stored(**fields)
