#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the machine code of one GPU in a shared library, so that the library packs small.

    thin-fatbin.py ARCH LIBRARY.so ...        (ARCH: 90 for Hopper)

nvcc puts code for every architecture into the section .nv_fatbin: containers of entries, each a
header and its code. CUDA takes the entry that fits the GPU and does not look into the others, so
those are overwritten with zeros where they are: headers and offsets stay as they were. PTX is kept
where a container has no machine code for ARCH.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes behind it
_MAGIC = 0xBA55ED50
_ENTRY = struct.Struct("<HHIQIIHHI")  # kind, -, bytes of this header, of the code, …, architecture
_PTX, _MACHINE_CODE = 1, 2
_SECTION = struct.Struct("<IIQQQQIIQQ")


class Entry(NamedTuple):
    kind: int
    arch: int
    begin: int  # of its code, in the file
    end: int


def section(data: bytes, name: bytes) -> range:
    """Where a section of a 64-bit ELF file lies; empty if there is none."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [_SECTION.unpack_from(data, table + index * size) for index in range(count)]
    for header in headers:
        begin = headers[names][4] + header[0]
        if data[begin : data.index(b"\0", begin)] == name:
            return range(header[4], header[4] + header[5])
    return range(0)


def containers(data: bytes, where: range) -> Iterator[list[Entry]]:
    at = where.start
    while at < where.stop:
        magic, _, header, size = _CONTAINER.unpack_from(data, at)
        if magic != _MAGIC:
            at += 8  # containers are aligned
            continue
        at, end = at + header, at + header + size
        entries = []
        while at < end:
            kind, _, header, size, *_, arch = _ENTRY.unpack_from(data, at)
            entries.append(Entry(kind, arch, at + header, at + header + size))
            at += header + size
        yield entries


def needed(entries: list[Entry], arch: int) -> set[Entry]:
    exact = {e for e in entries if e.kind == _MACHINE_CODE and e.arch == arch}
    return exact or {e for e in entries if e.kind == _PTX and e.arch <= arch}


def thin(path: Path, arch: int) -> None:
    data = bytearray(path.read_bytes())
    kept = dropped = 0
    for entries in containers(data, section(data, b".nv_fatbin")):
        keep = needed(entries, arch)
        for entry in entries:
            if entry in keep:
                kept += entry.end - entry.begin
            else:
                dropped += entry.end - entry.begin
                data[entry.begin : entry.end] = bytes(entry.end - entry.begin)
    path.write_bytes(data)
    print(f"{path.name}: {kept >> 10} KiB of GPU code kept, {dropped >> 10} KiB zeroed")


if __name__ == "__main__":
    for library in sys.argv[2:]:
        thin(Path(library), int(sys.argv[1]))
