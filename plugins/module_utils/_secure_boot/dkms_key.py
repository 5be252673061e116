# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The signing key in the configuration of DKMS, and the modules of DKMS besides the driver."""

from __future__ import annotations

import fnmatch
import posixpath
import typing as t

from .._base.model import NpuError
from .._base.records import dataclass
from .._host.files import remove_file, write_bytes, write_file
from .._host.host import Host
from .._npu.driver import DKMS_DIR
from . import mok

DROP_IN = mok.FRAMEWORK_DIR + "/rebellions-npu.conf"
BACKUP = mok.FRAMEWORK_CONF + ".rebellions-npu.backup"
MARK = "# Managed by rebellions.npu: the key that kernel modules are signed with"
DKMS_PROGRAMS = ("/usr/sbin/dkms", "/usr/bin/dkms")


@dataclass(frozen=True)
class Edit:
    """A file of DKMS before and after, and a description of the change, empty when there is none."""

    path: str
    before: str
    after: str
    act: str = ""


def _lines(pair: tuple[str, str]) -> list[str]:
    return [MARK, 'mok_signing_key="%s"' % pair[0], 'mok_certificate="%s"' % pair[1]]


def _program(host: Host) -> str | None:
    for path in DKMS_PROGRAMS:
        found = host.read_text(path)
        if found.ok:
            return str(found.value)
    return None


def configure(host: Host, pair: tuple[str, str], dry: bool = False) -> Edit:
    """Configure the pair (private key, certificate) in a drop-in, or in framework.conf for old DKMS releases."""
    text, lines = _program(host), _lines(pair)
    if text is not None and "mok_signing_key" not in text:
        raise NpuError(
            "The DKMS release of this host has no setting for the signing key.",
            "Run update-secureboot-policy --new-key on Ubuntu, or install DKMS 3 elsewhere, and run again.",
        )
    if text is None or "framework.conf.d" in text:
        after, before = "\n".join(lines) + "\n", host.read_text(DROP_IN).get("")
        changed = write_file(host, DROP_IN, after, 0o644, dry)
        return Edit(DROP_IN, before, after, "configured DKMS to sign with it (%s)" % DROP_IN if changed else "")
    old = host.read_bytes(mok.FRAMEWORK_CONF)
    before = old.get(b"").decode("utf-8", "surrogateescape")
    if before.rstrip("\n").endswith("\n".join(lines)):
        return Edit(mok.FRAMEWORK_CONF, before, before)
    after = without_lines(before, lines).rstrip("\n") + "\n" + "\n".join(lines) + "\n"
    if not dry:
        if old.ok and not host.stat(BACKUP).ok:
            write_bytes(host, BACKUP, old.value, 0o600)
        write_bytes(host, mok.FRAMEWORK_CONF, after.encode("utf-8", "surrogateescape"), 0o644)
    return Edit(mok.FRAMEWORK_CONF, before, after, "configured DKMS to sign with it (%s)" % mok.FRAMEWORK_CONF)


def unconfigure(host: Host, pair: tuple[str, str], dry: bool = False) -> list[Edit]:
    """Undo configure(); one entry per changed file."""
    done = []
    if host.stat(DROP_IN, follow=False).ok:
        done.append(Edit(DROP_IN, host.read_text(DROP_IN).get(""), "", "removed %s" % DROP_IN))
        remove_file(host, DROP_IN, dry)
    text = host.read_bytes(mok.FRAMEWORK_CONF).get(b"").decode("utf-8", "surrogateescape")
    clean = without_lines(text, _lines(pair))
    if clean != text:
        done.append(Edit(mok.FRAMEWORK_CONF, text, clean, "removed our lines from %s" % mok.FRAMEWORK_CONF))
        if not dry:
            write_bytes(host, mok.FRAMEWORK_CONF, clean.encode("utf-8", "surrogateescape"), 0o644)
    if host.stat(BACKUP, follow=False).ok and not dry:
        remove_file(host, BACKUP)
    return done


def other_modules(host: Host, drivers: t.Sequence[str]) -> list[str]:
    """Modules in the tree of DKMS that match none of the patterns `drivers`."""
    names = [
        name
        for name in host.listdir(DKMS_DIR).get([])
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in drivers)
    ]
    found = [(name, host.stat(posixpath.join(DKMS_DIR, name))) for name in names]
    return [name for name, info in found if info.ok and info.value.kind == "dir"]


def without_lines(text: str, lines: t.Collection[str]) -> str:
    """The text without the given lines."""
    return "".join(line for line in text.splitlines(True) if line.rstrip("\r\n") not in lines)
