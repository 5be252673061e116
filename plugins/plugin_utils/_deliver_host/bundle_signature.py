# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signature of a bundle's manifest on the controller."""

from __future__ import annotations

import os

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import MANIFEST
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.signature import (
    KEYS_LIMIT,
    LIMIT,
    SIGNATURE,
    public_keys,
    verify,
)
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host, open_file


def verify_folder(folder: str, text: str, keyring: str) -> None:
    """NpuError unless the signature in the folder is one of the manifest `text`, by a key in the file `keyring`."""
    keys, path = public_keys(read_keyring(keyring), keyring), os.path.join(folder, SIGNATURE)
    try:
        with open(path, "rb", opener=open_file) as stream:
            signature = stream.read(LIMIT)
    except OSError as exc:
        raise NpuError(
            "A keyring is set, and the signature %s cannot be read: %s." % (path, exc.strerror or exc),
            "Copy it from where the bundle was signed (gpg --armor --detach-sign %s); nothing was changed." % MANIFEST,
        ) from exc
    verify(Host(), text.encode("utf-8"), signature, keys, os.path.join(folder, MANIFEST))


def read_keyring(path: str) -> bytes:
    """The content of a file with public keys."""
    try:
        with open(path, "rb", opener=open_file) as stream:
            return stream.read(KEYS_LIMIT)
    except OSError as exc:
        raise NpuError(
            "The keyring %s cannot be read on the controller: %s." % (path, exc.strerror or exc), "Correct keyring."
        ) from exc
