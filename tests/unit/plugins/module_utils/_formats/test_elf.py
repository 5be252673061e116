# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._formats.elf import FIRST_READ, parse_elf
from ansible_collections.rebellions.npu.tests.unit.fixtures.cdi.tree import elf


def parse(data: bytes, reads: list[tuple[int, int]] | None = None) -> Any:
    def read(length: int, offset: int) -> bytes:
        if reads is not None:
            reads.append((length, offset))
        return data[offset : offset + length]

    return parse_elf(read, len(data))


@pytest.mark.parametrize("pad", [0, FIRST_READ, 3 * FIRST_READ])
@pytest.mark.parametrize(
    "bits, machine, order", [(64, "x86_64", "<"), (64, "aarch64", "<"), (32, "i386", "<"), (64, "x86_64", ">")]
)
def test_fields(bits: int, machine: str, order: str, pad: int) -> None:
    reads: list[tuple[int, int]] = []
    found = parse(
        elf("liba.so.1", ("libb.so.2", "libc.so.6"), "$ORIGIN/x:/y", "/z", bits, machine, pad=pad, order=order), reads
    )
    assert (found.bits, found.machine) == (bits, {"x86_64": 62, "aarch64": 183, "i386": 3}[machine])
    assert (found.soname, found.needed) == ("liba.so.1", ("libb.so.2", "libc.so.6"))
    assert (found.runpath, found.rpath) == (("$ORIGIN/x", "/y"), ("/z",))
    assert len(reads) == (3 if pad else 1)


def test_nothing_dynamic() -> None:
    found = parse(elf())
    assert (found.soname, found.needed, found.abi) == ("", (), (62, 64))


def test_a_real_program() -> None:
    """The interpreter itself or, when that is linked statically, at least its machine."""
    with open(sys.executable, "rb") as stream:
        found = parse(stream.read())
    assert found.bits in (32, 64) and found.machine > 0
    assert not found.needed or any(name.startswith(("libc.", "ld-", "libpython")) for name in found.needed)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "empty"),
        (b"INPUT ( libx.so.1 )", "not an ELF"),
        (b"\x7fELF", "not an ELF"),
        (b"\x7fELF\x09" + b"\0" * 100, "identification"),
        (elf("liba.so.1")[:60], "cut off"),
        (elf("liba.so.1")[:100], "cut off"),
    ],
)
def test_damage(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(data)


def test_every_cut_ends_in_an_answer_or_a_phrase() -> None:
    """Whatever is missing at the end, the reader answers or says what is wrong; it never ends in another error."""
    data = elf("liba.so.1", ("libb.so.2",), "/x")
    outcomes = set()
    for length in range(len(data)):
        try:
            parse(data[:length])
            outcomes.add("answer")
        except ValueError:
            outcomes.add("phrase")
    assert outcomes == {"answer", "phrase"}


def test_every_changed_byte_ends_in_an_answer_or_a_phrase() -> None:
    data = elf("liba.so.1", ("libb.so.2",), "/x")
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0xFF):
            changed = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                parse(changed)
            except ValueError as exc:
                assert str(exc)


@pytest.mark.parametrize("at, size", [(32, 8), (54, 2), (56, 2)], ids=["offset", "size of one", "number"])
def test_headers_that_lie_about_the_file_read_nothing_past_its_end(at: int, size: int) -> None:
    """A read of 4 GiB takes its memory before it finds the end of the file."""
    data = bytearray(elf("liba.so.1", ("libb.so.2",), "/x", pad=3 * FIRST_READ))
    data[at : at + size] = b"\xff" * size
    reads: list[tuple[int, int]] = []
    with pytest.raises(ValueError):
        parse(bytes(data), reads)
    assert max(length for length, _offset in reads) <= len(data)


def test_names_without_end_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 1024 names"):
        parse(elf("liba.so.1", ("x",) * 2000))
    with pytest.raises(ValueError, match="outside its string table"):
        parse(elf("l" * 70000))
