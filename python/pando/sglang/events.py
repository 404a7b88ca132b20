# SPDX-License-Identifier: Apache-2.0
"""The library's KV events as SGLang's, for its publisher and the routers behind it."""

from __future__ import annotations

import re
from typing import Any

import pando
from pando.sglang.interface import import_sglang

_MEDIA = {"device": "GPU", "host": "CPU_PINNED", "disk": "DISK", "external": "EXTERNAL"}
_PART = re.compile(rb"([a-z])(\d+):")


def salt_of(namespace: bytes) -> str | None:
    """The salt in a namespace, see pando.make_namespace()."""
    at = 0
    while part := _PART.match(namespace, at):
        at = part.end() + int(part[2])
        if part[1] == b"s":
            return namespace[part.end() : at].decode()
    return None


class EventTypes:
    """SGLang's event classes, or what stands in for them."""

    def __init__(self, module: Any = None) -> None:
        if module is None:
            module = import_sglang("sglang.srt.disaggregation.kv_events")
        self.stored = module.BlockStored
        self.removed = module.BlockRemoved
        self.cleared = module.AllBlocksCleared
        fields = getattr(self.stored, "__struct_fields__", None) or self.stored.__annotations__
        self._has_salt = "cache_salt" in fields

    def convert(self, events: list[pando.KvEvent], *, bigram: bool) -> list[Any]:
        return [self._convert(event, bigram) for event in events]

    def _convert(self, event: pando.KvEvent, bigram: bool) -> Any:
        if event.kind == pando.KvEventKind.cleared:
            return self.cleared()
        medium = _MEDIA[event.medium.name]
        hashes = [pando.block_id(page) for page in event.hashes]
        if event.kind == pando.KvEventKind.removed:
            return self.removed(block_hashes=hashes, medium=medium)
        tokens: list[Any] = event.tokens.tolist()
        if bigram:
            tokens = list(zip(tokens, tokens[1:]))
        more = {"cache_salt": salt_of(event.ns)} if self._has_salt else {}
        return self.stored(
            block_hashes=hashes,
            parent_block_hash=None if event.parent is None else pando.block_id(event.parent),
            token_ids=tokens,
            block_size=event.block_size,
            lora_id=None,
            medium=medium,
            **more,
        )
