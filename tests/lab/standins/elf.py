# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small valid ELF files, made without a compiler.

Shared objects with a dynamic section, and a module file that modinfo reads.
"""

from __future__ import annotations

import struct
import typing as t

_X86_64 = 62


def _header(kind: int, sections_at: int, sections: int, names: int, programs: int = 0) -> bytes:
    ident = b"\x7fELF" + bytes([2, 1, 1, 0]) + bytes(8)
    return ident + struct.pack(
        "<HHIQQQIHHHHHH",
        kind,
        _X86_64,
        1,
        0,
        64 if programs else 0,
        sections_at,
        0,
        64,
        56 if programs else 0,
        programs,
        64,
        sections,
        names,
    )


def _section(
    name: int,
    kind: int,
    flags: int,
    at: int,
    size: int,
    link: int = 0,
    info: int = 0,
    align: int = 1,
    entry: int = 0,
    address: int | None = None,
) -> bytes:
    return struct.pack(
        "<IIQQQQIIQQ",
        name,
        kind,
        flags,
        (at if flags & 2 else 0) if address is None else address,
        at,
        size,
        link,
        info,
        align,
        entry,
    )


def _pad(data: bytes, align: int = 8) -> bytes:
    return data + bytes(-len(data) % align)


def shared_object(soname: str, needed: t.Sequence[str] = (), marker: str = "") -> bytes:
    """A 64-bit x86 library: DT_SONAME, DT_NEEDED, and text in .rodata; readable by sections and by segments."""
    strings = bytearray(b"\0")

    def add(text: str) -> int:
        at = len(strings)
        strings.extend(text.encode() + b"\0")
        return at

    dynamic = [(1, add(name)) for name in needed] + [(14, add(soname))]
    table = _pad(bytes(strings))
    strings_at = 64 + 2 * 56
    dynamic_at = strings_at + len(table)
    dynamic += [(5, strings_at), (10, len(table)), (0, 0)]
    entries = b"".join(struct.pack("<qQ", tag, value) for tag, value in dynamic)
    data = _pad(marker.encode() + b"\0")
    data_at = dynamic_at + len(entries)
    names = b"\0.dynstr\0.dynamic\0.rodata\0.shstrtab\0"
    names_at = data_at + len(data)
    sections_at = names_at + len(_pad(names))
    total = sections_at + 5 * 64
    programs = struct.pack("<IIQQQQQQ", 1, 4, 0, 0, 0, total, total, 0x1000) + struct.pack(
        "<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, dynamic_at, len(entries), len(entries), 8
    )
    sections = (
        bytes(64)
        + _section(1, 3, 2, strings_at, len(table))
        + _section(9, 6, 2, dynamic_at, len(entries), 1, 0, 8, 16)
        + _section(18, 1, 2, data_at, len(data))
        + _section(26, 3, 0, names_at, len(names))
    )
    return _header(3, sections_at, 5, 4, 2) + programs + table + entries + data + _pad(names) + sections


def kernel_module(fields: t.Mapping[str, str]) -> bytes:
    """A relocatable file with .modinfo, as modinfo and depmod read it; no kernel can load it."""
    info = _pad(b"".join(("%s=%s" % item).encode() + b"\0" for item in fields.items()))
    names = b"\0.modinfo\0.symtab\0.strtab\0.shstrtab\0"
    symbols = bytes(24)
    info_at = 64
    symbols_at = info_at + len(info)
    strings_at = symbols_at + len(symbols)
    names_at = strings_at + 8
    sections_at = names_at + len(_pad(names))
    sections = (
        bytes(64)
        + _section(1, 1, 2, info_at, len(info), address=0)
        + _section(10, 2, 0, symbols_at, len(symbols), 3, 1, 8, 24)
        + _section(18, 3, 0, strings_at, 1)
        + _section(26, 3, 0, names_at, len(names))
    )
    return _header(1, sections_at, 5, 4) + info + symbols + bytes(8) + _pad(names) + sections
