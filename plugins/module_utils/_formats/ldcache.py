# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cache of the dynamic loader, /etc/ld.so.cache, in the format glibc-ld.so.cache1.1, which glibc reads since 2.2.

It imports little: the start of a container waits for it.
"""

from __future__ import annotations

import re
import struct

MAGIC = b"glibc-ld.so.cache1.1"
# glibc before 2.32 puts a table in a still older format in front of the one that it reads.
OLD_MAGIC = b"ld.so-1.7.0"
HEADER = struct.Struct("=20sIIB3xI12x")
ENTRY = struct.Struct("=iIIIQ")
OLD_HEADER, OLD_ENTRY, ALIGN = 16, 12, 8
EXTENSION = struct.Struct("=II")
SECTION = struct.Struct("=IIII")
EXTENSION_MAGIC = 0xEAA42174
HWCAPS = 1
LITTLE, BIG = 2, 3
LITTLE_ENDIAN = struct.pack("=H", 1) == struct.pack("<H", 1)


class Entry:
    """A name that programs ask for, the file that they get, and for which machines."""

    __slots__ = ("flags", "hwcap", "name", "path", "version")

    def __init__(self, flags: int, name: bytes, path: bytes, version: int = 0, hwcap: int = 0) -> None:
        self.flags, self.name, self.path, self.version, self.hwcap = flags, name, path, version, hwcap


def parse(data: bytes) -> tuple[list[Entry], list[bytes]]:
    """The entries in the order of the file, and the names of hardware levels that their `hwcap` counts.

    ValueError when it is no cache of this machine's byte order.
    """
    try:
        return _parse(data)
    except (struct.error, IndexError) as exc:
        raise ValueError("the cache is cut off") from exc


def _parse(data: bytes) -> tuple[list[Entry], list[bytes]]:
    if data.startswith(OLD_MAGIC):
        number = struct.unpack_from("=I", data, OLD_HEADER - 4)[0]
        data = data[-(-(OLD_HEADER + number * OLD_ENTRY) // ALIGN) * ALIGN :]
    magic, number, _length, order, extension = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ValueError("it is no loader cache")
    if order not in (0, LITTLE if LITTLE_ENDIAN else BIG):
        raise ValueError("the cache is for another byte order")
    if HEADER.size + number * ENTRY.size > len(data):
        raise ValueError("the cache is cut off")

    def text(offset: int) -> bytes:
        end = data.find(b"\0", offset)
        if end < 0:
            raise ValueError("the cache is cut off")
        return data[offset:end]

    entries = [
        Entry(flags, text(name), text(path), version, hwcap)
        for flags, name, path, version, hwcap in ENTRY.iter_unpack(
            data[HEADER.size : HEADER.size + number * ENTRY.size]
        )
    ]
    levels: list[bytes] = []
    if extension:
        magic, count = EXTENSION.unpack_from(data, extension)
        for place in range(count if magic == EXTENSION_MAGIC else 0):
            tag, _flags, offset, size = SECTION.unpack_from(data, extension + EXTENSION.size + place * SECTION.size)
            if tag == HWCAPS:
                levels = [text(struct.unpack_from("=I", data, offset + at)[0]) for at in range(0, size - size % 4, 4)]
    return entries, levels


def dump(entries: list[Entry], levels: list[bytes]) -> bytes:
    """The bytes of a cache; `entries` are in the order of the loader, see insert()."""
    start = HEADER.size + len(entries) * ENTRY.size
    strings = bytearray()
    known: dict[bytes, int] = {}

    def add(value: bytes) -> int:
        if value not in known:
            known[value] = start + len(strings)
            strings.extend(value + b"\0")
        return known[value]

    table = b"".join(
        ENTRY.pack(entry.flags, add(entry.name), add(entry.path), entry.version, entry.hwcap) for entry in entries
    )
    offsets = [add(level) for level in levels]
    length = len(strings)
    strings.extend(b"\0" * (-(start + length) % 4))
    extension = start + len(strings) if levels else 0
    tail = b""
    if levels:
        places = extension + EXTENSION.size + SECTION.size
        tail = EXTENSION.pack(EXTENSION_MAGIC, 1) + SECTION.pack(HWCAPS, 0, places, 4 * len(offsets))
        tail += struct.pack("=%dI" % len(offsets), *offsets)
    head = HEADER.pack(MAGIC, len(entries), length, LITTLE if LITTLE_ENDIAN else BIG, extension)
    return head + table + bytes(strings) + tail


def rank(name: bytes) -> list[tuple[int, int]]:
    """What the loader compares: runs of digits as numbers, which come after all other bytes."""
    found: list[tuple[int, int]] = []
    for digits, other in re.findall(rb"([0-9]+)|([^0-9]+)", name):
        found.extend([(1, int(digits))] if digits else [(0, byte) for byte in other])
    return found


def insert(entries: list[Entry], new: Entry) -> None:
    """Put an entry where the loader's search, from the highest rank to the lowest, finds it first.

    Entries of the same name and machine go away: the loader would mix the files of two releases.
    """
    wanted = rank(new.name)
    low, high = 0, len(entries)
    while low < high:
        middle = (low + high) // 2
        if rank(entries[middle].name) > wanted:
            low = middle + 1
        else:
            high = middle
    end = low
    while end < len(entries) and rank(entries[end].name) == wanted:
        end += 1
    entries[low:end] = [new] + [entry for entry in entries[low:end] if entry.flags != new.flags]
