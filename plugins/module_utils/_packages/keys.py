# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public keys of repositories (OpenPGP): armoured or binary, one or several in a file, and their fingerprints. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
import typing as t

from .._base.model import NpuError

KEY_LIMIT = 1024 * 1024
PUBLIC_KEY, PUBLIC_SUBKEY = 6, 14
# What a public key consists of besides: signatures, user names, trust of a keyring, padding.
PARTS = (PUBLIC_SUBKEY, 2, 10, 12, 13, 17, 21)
OTHERS = {
    5: "a private key",
    7: "a private key",
    2: "a signature",
    1: "an encrypted message",
    3: "an encrypted message",
}
FINGERPRINT = re.compile(r"^(?:[0-9A-F]{40}|[0-9A-F]{64})$")
LOOKS_LIKE_A_FINGERPRINT = re.compile(r"^(?:0x)?[0-9A-Fa-f][0-9A-Fa-f :]{6,120}[!]?$")
BLOCK = re.compile(r"^-----BEGIN (PGP [A-Z ]+|[A-Z0-9 ]+)-----[ \t]*$(.*?)^-----END \1-----[ \t]*$", re.M | re.S)
REMEDY = "Use the public key of the repository, as gpg --export --armor writes it."


class _Other(Exception):
    """Says what a file is that is no public key."""


class Certificate(t.NamedTuple):
    """One public key with its subkeys. `content` is its packets; the first fingerprint is that of the key itself."""

    content: bytes
    fingerprints: tuple[str, ...]


def _packets(data: bytes) -> t.Iterator[tuple[int, bytes, bytes]]:
    """(tag, body, whole packet). ValueError when the lengths do not fit."""
    at = 0
    while at < len(data):
        first, start = data[at], at
        if not first & 0x80 or at + 1 >= len(data):
            raise ValueError("no packet")
        if first & 0x40:
            tag, length = first & 0x3F, data[at + 1]
            size = 1 if length < 192 else 2 if length < 224 else 5
            if 224 <= length < 255:
                raise ValueError("partial length")
            if size == 2:
                length = ((length - 192) << 8) + data[at + 2] + 192
            elif size == 5:
                length = int.from_bytes(data[at + 2 : at + 6], "big")
        else:
            tag, kind = (first >> 2) & 0x0F, first & 3
            if kind == 3:
                raise ValueError("no length")
            size = 1 << kind
            length = int.from_bytes(data[at + 1 : at + 1 + size], "big")
        at += 1 + size + length
        if at > len(data):
            raise ValueError("truncated")
        yield tag, data[at - length : at], data[start:at]


def _fingerprint(body: bytes) -> str:
    version = body[0] if body else 0
    if version == 4:
        return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()
    if version in (5, 6):
        return hashlib.sha256(bytes([0x95 + version]) + len(body).to_bytes(4, "big") + body).hexdigest().upper()
    raise ValueError("version %d" % version)


def _split(data: bytes) -> list[Certificate]:
    """The certificates of binary data. _Other says what it is instead; ValueError or IndexError: it is damaged."""
    found: list[Certificate] = []
    for tag, body, whole in _packets(data):
        if tag == PUBLIC_KEY:
            found.append(Certificate(whole, (_fingerprint(body),)))
        elif not found or tag not in PARTS:
            raise _Other(OTHERS.get(tag, "no public key"))
        else:
            last = found[-1]
            prints = last.fingerprints + ((_fingerprint(body),) if tag == PUBLIC_SUBKEY else ())
            found[-1] = Certificate(last.content + whole, prints)
    return found


def _unwrapped(block: str) -> bytes:
    """The bytes of one armoured block. ValueError for text that is not base64 or does not fit its checksum."""
    lines = [line.strip() for line in block.splitlines()]
    body = [line for line in lines if line and ":" not in line]
    total = body.pop()[1:] if body and body[-1].startswith("=") and len(body[-1]) == 5 else ""
    data = base64.b64decode("".join(body), validate=True)
    if total and base64.b64decode(total, validate=True) != _crc24(data):
        raise ValueError("checksum")
    return data


def _crc24(data: bytes) -> bytes:
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return crc.to_bytes(3, "big")


def certificates(data: bytes, name: str) -> list[Certificate]:
    """The public keys in a file, each once, in their order. NpuError says once what the file is instead.

    `name` is how the error calls it.
    """
    try:
        found = _read(data)
    except _Other as exc:
        raise NpuError("%s is %s, not a public key." % (name, exc), REMEDY) from exc
    except (ValueError, IndexError) as exc:
        raise NpuError("%s is damaged: it is not a whole public key." % name, "Get it again from its source.") from exc
    return list({item.fingerprints[0]: item for item in found}.values())


def _read(data: bytes) -> list[Certificate]:
    if not data.strip():
        raise _Other("empty")
    if data[8:12] == b"KBXf":
        raise _Other("a keybox of GnuPG")
    if data[0] & 0x80 and data[:3] != b"\xef\xbb\xbf" and data[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        return _split(data)
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    found: list[Certificate] = []
    kinds = []
    for kind, block in BLOCK.findall(text):
        kinds.append(kind)
        if kind == "PGP PUBLIC KEY BLOCK":
            found += _split(_unwrapped(block))
    if text.count("-----BEGIN ") != len(kinds):
        raise ValueError("no end")
    if found and all(kind == "PGP PUBLIC KEY BLOCK" for kind in kinds):
        return found
    raise _Other(_kind(text, kinds))


def _kind(text: str, kinds: t.Sequence[str]) -> str:
    """What a text is that is not only public keys."""
    head = text.lstrip()[:200].lower()
    for name, told in (
        ("PRIVATE KEY", "a private key"),
        ("PGP SIGNATURE", "a signature"),
        ("PGP SIGNED MESSAGE", "a signed text"),
        ("PGP MESSAGE", "an encrypted message"),
        ("CERTIFICATE", "an X.509 certificate"),
    ):
        if any(name in kind for kind in kinds):
            return told
    if head.startswith(("<!doctype", "<html", "<?xml", "<head", "<body")):
        return "a web page"
    if LOOKS_LIKE_A_FINGERPRINT.match(text.strip()):
        return "a fingerprint"
    return "other text"


def armoured(found: t.Sequence[Certificate], single: bool) -> str:
    """The keys as text: in one block with `single`, else each in its own.

    Of a file with several blocks apt reads the first one only; older rpm reads one key of each block.
    """
    parts = [b"".join(item.content for item in found)] if single else [item.content for item in found]
    blocks = []
    for part in parts:
        body = base64.b64encode(part).decode("ascii")
        lines = [body[at : at + 64] for at in range(0, len(body), 64)]
        total = base64.b64encode(_crc24(part)).decode("ascii")
        blocks.append(
            "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n%s\n=%s\n-----END PGP PUBLIC KEY BLOCK-----\n"
            % ("\n".join(lines), total)
        )
    return "".join(blocks)


def clean_fingerprint(text: str) -> str:
    """`abcd 1234 ...` as 40 or 64 upper-case hexadecimal digits. NpuError for a shorter id, which is easily forged."""
    digits = re.sub(r"[\s:]|^0[xX]", "", text.strip().rstrip("!")).upper()
    if not FINGERPRINT.match(digits):
        raise NpuError(
            "%r is not a fingerprint." % text[:100], "Use all 40 (or 64) digits, as gpg --show-keys KEY writes them."
        )
    return digits


def require_fingerprints(found: t.Sequence[Certificate], wanted: t.Sequence[str], name: str) -> None:
    """NpuError unless exactly the wanted keys are there; without `wanted` any are."""
    prints = {clean_fingerprint(item) for item in wanted}
    there = {item.fingerprints[0] for item in found}
    if prints and there != prints:
        raise NpuError(
            "%s has the fingerprint %s, not %s." % (name, ", ".join(sorted(there)), ", ".join(sorted(prints))),
            "Find out which one is right from a source that you trust; nothing was changed.",
        )
