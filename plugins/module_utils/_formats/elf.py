# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The dynamic section of an ELF file, read by program headers as the loader does, in at most three reads.

Written by hand, because hosts have only the standard library of Python 3.8 and need no readelf.
"""

from __future__ import annotations

import os
import struct
import typing as t

from .._base.records import dataclass

FIRST_READ = 8192
DYNAMIC_LIMIT = 1024 * 1024
# Large C++ libraries have several MiB of names.
STRINGS_LIMIT = 64 * 1024 * 1024
# Far more than the loader sees in practice; without a limit a small file could give names of many GiB.
NAME_LIMIT = 64 * 1024
NAMES_LIMIT = 1024

PT_LOAD = 1
PT_DYNAMIC = 2
DT_NULL = 0
DT_NEEDED = 1
DT_STRTAB = 5
DT_STRSZ = 10
DT_SONAME = 14
DT_RPATH = 15
DT_RUNPATH = 29

# e_machine and EI_CLASS of the machines as uname names them, and the directory part Debian uses for them.
MACHINES: t.Mapping[str, tuple[int, int]] = {
    "x86_64": (62, 64),
    "aarch64": (183, 64),
    "i386": (3, 32),
    "i686": (3, 32),
    "ppc64le": (21, 64),
    "riscv64": (243, 64),
    "s390x": (22, 64),
}
# What the loader's cache has for a library that is for the machine and the GNU C library.
CACHE_FLAGS: t.Mapping[str, int] = {"x86_64": 0x0303, "aarch64": 0x0A03, "i386": 0x0003, "i686": 0x0003}
TRIPLETS: t.Mapping[str, str] = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "i386": "i386-linux-gnu",
    "i686": "i386-linux-gnu",
    "ppc64le": "powerpc64le-linux-gnu",
    "riscv64": "riscv64-linux-gnu",
    "s390x": "s390x-linux-gnu",
}

Reader = t.Callable[[int, int], bytes]


@dataclass(frozen=True)
class Elf:
    """What the loader needs to know: bits (32 or 64), e_machine, SONAME, NEEDED, search paths as written."""

    bits: int
    machine: int
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()

    @property
    def abi(self) -> tuple[int, int]:
        return (self.machine, self.bits)


def parse_elf(read: Reader, size: int) -> Elf:
    """Parse a file of `size` bytes with `read(length, offset)`; ValueError says what is wrong with it.

    Nothing is read past the end of the file, whatever its headers say.
    """
    head = read(FIRST_READ, 0)
    if len(head) < 52 or head[:4] != b"\x7fELF":
        raise ValueError("it is empty" if not head else "it is not an ELF file")
    if head[4] not in (1, 2) or head[5] not in (1, 2):
        raise ValueError("its ELF identification is damaged")
    bits = 64 if head[4] == 2 else 32
    order = "<" if head[5] == 1 else ">"

    def take(offset: int, length: int) -> bytes:
        if offset + length <= len(head):
            return head[offset : offset + length]
        return read(min(length, max(0, size - offset)), offset)

    try:
        machine = struct.unpack_from(order + "H", head, 18)[0]
        if bits == 64:
            phoff = struct.unpack_from(order + "Q", head, 32)[0]
            phentsize, phnum = struct.unpack_from(order + "HH", head, 54)
        else:
            phoff = struct.unpack_from(order + "I", head, 28)[0]
            phentsize, phnum = struct.unpack_from(order + "HH", head, 42)
        loads, dynamic = _segments(take(phoff, phentsize * phnum), phentsize, phnum, bits, order)
        if dynamic is None:
            return Elf(bits, machine)
        return _dynamic(take, dynamic, loads, bits, order, machine)
    except (struct.error, IndexError, OverflowError) as exc:
        raise ValueError("its ELF headers are cut off or damaged") from exc


def _segments(
    table: bytes, size: int, count: int, bits: int, order: str
) -> tuple[list[tuple[int, int, int]], tuple[int, int] | None]:
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for number in range(count):
        if bits == 64:
            kind, _flags, offset, address, _physical, length = struct.unpack_from(
                order + "IIQQQQ", table, number * size
            )
        else:
            kind, offset, address, _physical, length = struct.unpack_from(order + "IIIII", table, number * size)
        if kind == PT_LOAD:
            loads.append((address, length, offset))
        elif kind == PT_DYNAMIC:
            dynamic = (offset, length)
    return loads, dynamic


def _dynamic(
    take: t.Callable[[int, int], bytes],
    dynamic: tuple[int, int],
    loads: t.Sequence[tuple[int, int, int]],
    bits: int,
    order: str,
    machine: int,
) -> Elf:
    entry = struct.Struct(order + ("qQ" if bits == 64 else "iI"))
    data = take(dynamic[0], min(dynamic[1], DYNAMIC_LIMIT))
    values: dict[int, list[int]] = {}
    for tag, value in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
        if tag == DT_NULL:
            break
        values.setdefault(tag, []).append(value)
    wanted = (DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH)
    if not any(tag in values for tag in wanted):
        return Elf(bits, machine)
    address = values[DT_STRTAB][0] if DT_STRTAB in values else -1
    length = values[DT_STRSZ][0] if DT_STRSZ in values else 0
    for start, size, offset in loads:
        if start <= address < start + size:
            strings = take(address - start + offset, min(length, STRINGS_LIMIT))
            break
    else:
        raise ValueError("its string table is not in the file")

    if sum(len(values.get(tag, [])) for tag in wanted) > NAMES_LIMIT:
        raise ValueError("it has more than %d names" % NAMES_LIMIT)

    def text(position: int) -> str:
        end = strings.find(b"\0", position, position + NAME_LIMIT)
        if position >= len(strings) or end < 0:
            raise ValueError("a name lies outside its string table")
        return os.fsdecode(strings[position:end])

    def paths(tag: int) -> tuple[str, ...]:
        return tuple(part for value in values.get(tag, []) for part in text(value).split(":") if part)

    return Elf(
        bits,
        machine,
        text(values[DT_SONAME][0]) if DT_SONAME in values else "",
        tuple(text(value) for value in values.get(DT_NEEDED, [])),
        paths(DT_RPATH),
        paths(DT_RUNPATH),
    )
