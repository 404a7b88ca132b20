# SPDX-License-Identifier: Apache-2.0
"""Canonical CBOR as block hashes are made of, written down apart from the library's."""

from __future__ import annotations

from typing import Any


def cbor(value: Any) -> bytes:
    """Canonical CBOR (RFC 8949, 4.2.1) of what block hashes are made of."""

    def head(major: int, number: int) -> bytes:
        if number < 24:
            return bytes([major << 5 | number])
        for extra, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
            if number < 1 << 8 * size:
                return bytes([major << 5 | extra]) + number.to_bytes(size, "big")
        raise OverflowError(number)

    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    return head(4, len(value)) + b"".join(cbor(item) for item in value)
