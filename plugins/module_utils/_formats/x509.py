# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As much of X.509 as telling keys apart needs: serial number, subject, signature lists of the firmware.

Written by hand, because hosts have only the standard library of Python 3.8, and that reads no DER.
"""

from __future__ import annotations

import struct
import typing as t

from .._base.records import dataclass

COMMON_NAME = b"\x06\x03\x55\x04\x03"
ORGANIZATION = b"\x06\x03\x55\x04\x0a"
# a5c059a1-94e4-4aa7-87b5-ab155c2bf072, as the firmware stores it.
X509_GUID = bytes.fromhex("a159c0a5e494a74a87b5ab155c2bf072")
LIST_HEADER = 28
OWNER_SIZE = 16

Piece = t.Tuple[int, int, int, int]


@dataclass(frozen=True)
class Certificate:
    """Subject (common name, else organization, else empty), serial number in hexadecimal without leading zeros, DER."""

    subject: str
    serial: str
    der: bytes


def element(data: bytes, at: int) -> Piece:
    """(tag, start of the element, start of its contents, end) of the DER element at `at`.

    ValueError when it is cut short or no DER.
    """
    if at + 2 > len(data):
        raise ValueError("the DER data is cut short")
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        if not 0 < size <= 4 or start + size > len(data):
            raise ValueError("the length of a DER element cannot be read")
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    if start + length > len(data):
        raise ValueError("the DER data is cut short")
    return tag, at, start, start + length


def children(data: bytes, start: int, end: int) -> list[Piece]:
    """The elements between two offsets. ValueError as element()."""
    found = []
    while start < end:
        found.append(element(data, start))
        start = found[-1][3]
    return found


def serial_text(number: bytes) -> str:
    """`00 c0 ff ee` is `c0ffee`."""
    return number.hex().lstrip("0") or "0"


def common_name(name: bytes) -> str:
    """The common name in a DER name, else its organization, else empty text."""
    for wanted in (COMMON_NAME, ORGANIZATION):
        at = name.find(wanted)
        if at >= 0:
            try:
                _tag, _start, begin, end = element(name, at + len(wanted))
            except ValueError:
                continue
            return name[begin:end].decode("utf-8", "replace")
    return ""


def parse_certificate(data: bytes) -> Certificate:
    """A DER certificate. ValueError when it is none."""
    tag, _start, begin, end = element(data, 0)
    if tag != 0x30:
        raise ValueError("no certificate in DER form")
    body = element(data, begin)
    parts = children(data, body[2], body[3])
    if parts and parts[0][0] == 0xA0:
        parts = parts[1:]
    if body[0] != 0x30 or len(parts) < 5 or parts[0][0] != 0x02:
        raise ValueError("no certificate in DER form")
    return Certificate(
        common_name(data[parts[4][1] : parts[4][3]]), serial_text(data[parts[0][2] : parts[0][3]]), data[:end]
    )


def parse_signature_lists(data: bytes) -> list[Certificate]:
    """The certificates in EFI signature lists, such as the machine owner's keys; other entries are skipped.

    ValueError when the lists are cut short.
    """
    found = []
    at = 0
    while at < len(data):
        if at + LIST_HEADER > len(data):
            raise ValueError("an EFI signature list is cut short")
        kind = data[at : at + 16]
        size, header, each = struct.unpack_from("<III", data, at + 16)
        if size < LIST_HEADER or at + size > len(data):
            raise ValueError("an EFI signature list is cut short")
        entry = at + LIST_HEADER + header
        while kind == X509_GUID and each > OWNER_SIZE and entry + each <= at + size:
            try:
                found.append(parse_certificate(data[entry + OWNER_SIZE : entry + each]))
            except ValueError:
                pass
            entry += each
        at += size
    return found


def signer_serial(signature: bytes) -> str | None:
    """Serial number by which a PKCS#7 signature names its signer; None when it uses another name or cannot be read."""
    try:
        outer = element(signature, 0)
        content = children(signature, outer[2], outer[3])[1]
        signed = element(signature, content[2])
        infos = children(signature, signed[2], signed[3])[-1]
        info = element(signature, infos[2])
        parts = children(signature, info[2], info[3])
        named = children(signature, parts[1][2], parts[1][3])
    except (ValueError, IndexError):
        return None
    if parts[1][0] != 0x30 or len(named) != 2 or named[1][0] != 0x02:
        return None
    return serial_text(signature[named[1][2] : named[1][3]])
