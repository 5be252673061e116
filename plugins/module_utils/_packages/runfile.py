# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place verified files in a directory of root, and run an installer from the verified descriptor."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import typing as t

from .._base.mask import mask
from .._base.model import NpuError
from .._host.files import explain, sync_directory
from .._host.host import Host, open_file
from .._host.private import private_directory

CHUNK = 1024 * 1024
TAIL = 4000
# A shell ends with 126 when it may not run a program: what the installer has unpacked and starts.
NOT_EXECUTED = (
    "Give it a temporary directory where programs may run (temporary_directory): the present one is on a file system "
    "mounted noexec, or a policy such as fapolicyd or SELinux denies programs there."
)
SHA256 = re.compile(r"^[0-9a-f]{64}$")

# For AnsibleModule and for the action plugin: the module that places files.
FILES_ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "files": {
        "type": "list",
        "elements": "dict",
        "required": True,
        "options": {
            "src": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "name": {"type": "str"},
            "signature": {"type": "str"},
        },
    },
    "keyring": {"type": "path"},
    "cache": {"type": "path", "default": "~/.cache/rebellions-npu/driver"},
    "ca_path": {"type": "path"},
    "directory": {"type": "path"},
    "timeout": {"type": "float", "default": 60},
}


def sha256_of(stream: t.BinaryIO) -> str:
    """Hex digest of the rest of the stream."""
    digest = hashlib.sha256()
    for block in iter(lambda: stream.read(CHUNK), b""):
        digest.update(block)
    return digest.hexdigest()


def place(source: str, directory: str, sha256: str, owner: int, name: str = "") -> str:
    """Copy `source` into the private directory under `name` (its own when empty) and return the new path.

    NpuError when the digest of the copied bytes differs; nothing is left behind.
    """
    private_directory(directory, owner)
    target = os.path.join(directory, os.path.basename(name or source))
    digest = hashlib.sha256()
    try:
        handle, staged = tempfile.mkstemp(dir=directory)
    except OSError as exc:
        raise explain(exc, target, "written") from exc
    try:
        with os.fdopen(handle, "wb") as out, open(source, "rb", opener=open_file) as stream:
            for block in iter(lambda: stream.read(CHUNK), b""):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != sha256.lower():
            raise NpuError(
                "The SHA-256 of %s on the host is %s, not %s." % (os.path.basename(target), digest.hexdigest(), sha256),
                "Transfer the file again; nothing was run.",
            )
        os.chmod(staged, 0o700)
        os.replace(staged, target)
        sync_directory(directory)
    except OSError as exc:
        raise explain(exc, target, "written") from exc
    finally:
        if os.path.exists(staged):
            os.unlink(staged)
    return target


def sha256_of_file(path: str) -> str:
    """Hex digest of a file of this machine; NpuError when it cannot be read."""
    try:
        with open(path, "rb", opener=open_file) as stream:
            return sha256_of(stream)
    except OSError as exc:
        raise explain(exc, path, "read") from exc


def verified(path: str, sha256: str) -> bool:
    """Whether the file exists with this digest."""
    try:
        with open(path, "rb", opener=open_file) as stream:
            return sha256_of(stream) == sha256.lower()
    except OSError:
        return False


def execute(
    host: Host, path: str, sha256: str, arguments: t.Sequence[str], timeout: float, directory: str = ""
) -> None:
    """Verify the file and run it from the same open descriptor (/proc/self/fd/N), so that it cannot change in between.

    `directory` is a private one for what it unpacks (TMPDIR), else that is the one it lies in. Where its own file
    system is mounted noexec it is run from `directory` too.

    NpuError on another digest, when it cannot be run, on any exit code but 0 (their meaning is not public) with the end
    of what it printed, masked, or past `timeout` seconds; what it started is then killed with it.
    """
    if directory and _noexec(path):
        path = place(path, directory, sha256, os.geteuid())
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError as exc:
        raise explain(exc, path, "read") from exc
    try:
        with os.fdopen(os.dup(descriptor), "rb") as stream:
            found = sha256_of(stream)
        if found != sha256.lower():
            raise NpuError(
                "The SHA-256 of %s is %s, not %s." % (path, found, sha256),
                "Remove the file and run again; it was not run.",
            )
        os.lseek(descriptor, 0, os.SEEK_SET)
        done = host.run(
            ["/proc/self/fd/%d" % descriptor, *arguments],
            timeout,
            {"TMPDIR": directory or os.path.dirname(path)},
            os.path.dirname(path),
            (descriptor,),
        )
    finally:
        os.close(descriptor)
    name = os.path.basename(path)
    if done.state == "timeout":
        raise NpuError(
            "%s did not end within %g s." % (name, timeout),
            "Read its log on the host; raise the timeout if it still made progress.",
        )
    if not done.ok:
        raise NpuError(
            "%s cannot be run: %s." % (name, done.detail),
            "Check that %s is not on a file system mounted noexec." % os.path.dirname(path),
        )
    if done.value.rc != 0:
        output = mask(done.value.out + done.value.err)[-TAIL:]
        raise NpuError(
            "%s ended with code %d: %s" % (name, done.value.rc, " | ".join(output.strip().splitlines()[-6:])),
            NOT_EXECUTED if done.value.rc == 126 and "ermission denied" in output else "Read its log on the host.",
        )


def _noexec(path: str) -> bool:
    """Whether a file lies on a file system that is mounted noexec; False when it cannot be told."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False
