# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The detached signature of a bundle's manifest, verified by gpgv on the machine that reads the manifest.

gpgv knows only the keys that it is given: neither the user's keys nor a web of trust can make a signature valid.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import tempfile

from .._base.model import NpuError
from .._host.host import Host
from .manifest import MANIFEST

SIGNATURE = MANIFEST + ".asc"
# Bytes of a signature, and of a file with public keys.
LIMIT, KEYS_LIMIT = 64 * 1024, 4 * 1024 * 1024
_BLOCK = re.compile(
    rb"^-----BEGIN PGP PUBLIC KEY BLOCK-----[ \t]*$(.*?)^-----END PGP PUBLIC KEY BLOCK-----[ \t]*$", re.M | re.S
)
_BAD = ("BADSIG", "ERRSIG", "EXPSIG", "EXPKEYSIG", "REVKEYSIG")


def public_keys(content: bytes, where: str) -> bytes:
    """The keys of a file as gpgv takes them, from binary or armored ones. NpuError when the file has no key."""
    content = content.replace(b"\r\n", b"\n")
    blocks = _BLOCK.findall(content)
    try:
        keys = b"".join(_decoded(block) for block in blocks) if blocks else content
    except binascii.Error:
        keys = b""
    # The first byte of a packet has its highest bit set.
    if keys[:1] < b"\x80":
        raise NpuError(
            "%s has no public key." % where, "Export the public key of the signer into it (gpg --armor --export)."
        )
    return keys


def _decoded(block: bytes) -> bytes:
    """The packets of an armored block: what is behind the headers and the empty line, without the checksum."""
    _headers, _empty, body = block.partition(b"\n\n")
    return base64.b64decode(b"".join(line for line in body.split() if not line.startswith(b"=")), validate=True)


def verify(host: Host, content: bytes, signature: bytes, keys: bytes, where: str) -> None:
    """NpuError unless `signature` is a detached signature of `content` by one of `keys`, and valid now."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, data in (("keys", keys), ("signature", signature), ("content", content)):
            paths.append(os.path.join(folder, name))
            with open(paths[-1], "wb") as stream:
                stream.write(data)
        argv = ["gpgv", "--homedir", folder, "--status-fd", "1", "--keyring", paths[0], paths[1], paths[2]]
        done = host.run(argv, 60.0)
    if done.state == "absent":
        raise NpuError(
            "The signature of %s cannot be verified: gpgv is not installed." % where,
            "Install it (gpgv or gnupg2), or give the SHA-256 of the manifest instead of a keyring.",
        )
    words = [line.split()[1] for line in done.value.out.splitlines() if line.startswith("[GNUPG:] ")] if done.ok else []
    good = words.count("GOODSIG") == words.count("VALIDSIG") == 1 and not set(words).intersection(_BAD)
    if not good or done.value.rc != 0:
        said = " ".join((done.value.err if done.ok else done.detail).split())
        raise NpuError(
            "%s has no valid signature: %s." % (where, "".join(one for one in said if one.isprintable())[:300]),
            "Get the bundle, its signature and the key from a trusted source; nothing was changed.",
        )
