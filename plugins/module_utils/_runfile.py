# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Place an installer in a directory of root alone, verify it, run what was verified, and note what it was."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import stat
import subprocess
import tempfile
import typing as t

from ._files import remove_empty_directory, remove_file, write_file
from ._host import Host
from ._model import NpuError

CHUNK = 1024 * 1024
TAIL = 4000

# As AnsibleModule wants it, for the module and for its part on the controller.
ARGUMENTS: t.Dict[str, t.Dict[str, t.Any]] = {
    "src": {"type": "path", "required": True},
    "sha256": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "version": {"type": "str"},
    "arguments": {"type": "list", "elements": "str", "default": []},
    "directory": {"type": "path", "default": "/var/lib/rebellions-npu/driver"},
    "timeout": {"type": "float", "default": 1800},
}


def sha256_of(stream: t.BinaryIO) -> str:
    """Hex digest of everything from the stream's position on."""
    digest = hashlib.sha256()
    for block in iter(lambda: stream.read(CHUNK), b""):
        digest.update(block)
    return digest.hexdigest()


def private_directory(path: str, owner: int) -> None:
    """Make `path` a directory of `owner` with mode 0700, or NpuError when something else is in the way."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        info = os.lstat(path)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != owner:
            raise NpuError("%s is not a directory of user %d." % (path, owner), "Remove it or choose another directory.")
        if stat.S_IMODE(info.st_mode) != 0o700:
            os.chmod(path, 0o700)
    except OSError as exc:
        raise NpuError("%s cannot be made: %s." % (path, exc.strerror), "Choose another directory.") from exc


def place(source: str, directory: str, sha256: str, owner: int) -> str:
    """Copy `source` into the private directory under its base name and return the new path.

    The digest is taken of the bytes that were copied; NpuError when it differs, and then nothing is left behind.
    """
    private_directory(directory, owner)
    target = os.path.join(directory, os.path.basename(source))
    digest = hashlib.sha256()
    handle, staged = tempfile.mkstemp(dir=directory)
    try:
        with os.fdopen(handle, "wb") as out, open(source, "rb") as stream:
            for block in iter(lambda: stream.read(CHUNK), b""):
                digest.update(block)
                out.write(block)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != sha256.lower():
            raise NpuError(
                "The SHA-256 of %s on the host is %s, not %s." % (os.path.basename(source), digest.hexdigest(), sha256),
                "Transfer the file again.",
            )
        os.chmod(staged, 0o700)
        os.replace(staged, target)
    except BaseException:
        if os.path.exists(staged):
            os.unlink(staged)
        raise
    return target


def execute(path: str, sha256: str, arguments: t.Sequence[str], timeout: float) -> dict[str, t.Any]:
    """Verify the file once more and run it: {rc, output}, output being the end of both streams.

    A script has to be opened by its interpreter again, so the file is run by its path; only root can write there.
    NpuError on another digest, when it cannot be run, or past `timeout` seconds.
    """
    with open(path, "rb") as stream:
        found = sha256_of(stream)
    if found != sha256.lower():
        raise NpuError("The SHA-256 of %s is %s, not %s." % (path, found, sha256), "Remove the file and run again.")
    try:
        done = subprocess.run(  # pylint: disable=ansible-bad-function
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            cwd=os.path.dirname(path),
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise NpuError(
            "%s did not end within %g s." % (path, timeout), "Look at its log on the host; raise the timeout if it was still at work."
        ) from exc
    except OSError as exc:
        raise NpuError("%s cannot be run: %s." % (path, exc.strerror), "Check that its directory is not mounted noexec.") from exc
    return {"rc": done.returncode, "output": done.stdout.decode("utf-8", "replace")[-TAIL:]}


def note(host: Host, path: str, version: str, sha256: str) -> None:
    """Note at `path` which driver was installed, as the JSON object that the driver facts read. NpuError when that fails."""
    write_file(host, path, json.dumps({"version": version, "sha256": sha256.lower()}, sort_keys=True) + "\n")


def forget(host: Host, path: str) -> None:
    """Take the note away, and its directory when that is empty then. NpuError when that fails."""
    remove_file(host, path)
    remove_empty_directory(host, posixpath.dirname(path))
