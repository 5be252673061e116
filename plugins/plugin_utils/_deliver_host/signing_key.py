# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key that signs a repository, on the controller: a file, an address or text; judged before it is sent."""

from __future__ import annotations

import os
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._packages.keys import (
    KEY_LIMIT,
    LOOKS_LIKE_A_FINGERPRINT,
    armoured,
    certificates,
    require_fingerprints,
)

from .driver_files import is_address, open_url, safe

INLINE = "-----BEGIN"


def is_file(key: str) -> bool:
    """Whether `key` is the path of a file, rather than an address or the key itself."""
    return not is_address(key) and INLINE not in key


def signing_key(key: str, fingerprints: t.Sequence[str], timeout: float = 60.0, ca_path: str | None = None) -> str:
    """The key as armoured text. NpuError when it cannot be read, is no public key, or is another one."""
    if is_address(key):
        name = safe(key)
        if key.startswith("http://") and not fingerprints:
            raise NpuError(
                "The key %s would be read without https, and its fingerprint is not set." % name,
                "Set fingerprint, or use an https address.",
            )
        data = _fetched(key, name, timeout, ca_path)
    elif INLINE in key:
        name, data = "The key", key.encode("utf-8")
    else:
        name, data = key, _read(key)
    found = certificates(data, name)
    require_fingerprints(found, fingerprints, name)
    return armoured(found, single=False)


def _fetched(key: str, name: str, timeout: float, ca_path: str | None) -> bytes:
    try:
        with open_url(key, timeout, ca_path) as answer:
            data = bytes(answer.read(KEY_LIMIT + 1))
    except Exception as exc:
        raise NpuError(
            "%s cannot be downloaded: %s." % (name, str(exc).rstrip(".")),
            "Check the address, the proxy and the certificate authority.",
        ) from exc
    return _limited(data, name)


def _read(path: str) -> bytes:
    if LOOKS_LIKE_A_FINGERPRINT.match(path):
        # certificates() says so.
        return path.encode("utf-8")
    try:
        with open(os.path.expanduser(path), "rb") as stream:
            return _limited(stream.read(KEY_LIMIT + 1), path)
    except OSError as exc:
        raise NpuError("%s cannot be read on the controller: %s." % (path, exc.strerror), "Check the path.") from exc


def _limited(data: bytes, name: str) -> bytes:
    if len(data) > KEY_LIMIT:
        raise NpuError("%s has more than %d bytes." % (name, KEY_LIMIT), "Use the public key of the repository alone.")
    return data
