# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small set of files that belong to us on a host: compared by fingerprint, installed and removed as a whole.

The first line of a program (#!) names the interpreter of each host, so a fingerprint leaves it out.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import posixpath
import stat
import typing as t
import zlib

from .._base.model import NpuError
from .files import (
    DIRECTORY_MODE,
    explain,
    make_directory,
    remove_empty_directory,
    remove_file,
    staged_prefix,
    sync_directory,
    take_lock,
    write_bytes,
    write_link,
)
from .host import TIMEOUT, Host
from .unpacked import LINK, Unfit, judge

Entry = t.Mapping[str, t.Any]
TRY_SECONDS = 60.0

FILE_MODE = 0o644
COMPILE_TIMEOUT = 120.0
# A rule, not a list of trusted files: each release has other ones, and Python compiles them there.
LET = (
    "Let it run: with fapolicyd put `allow perm=any all : dir=%s/` in /etc/fapolicyd/rules.d/60-npu.rules and restart "
    "fapolicyd, with SELinux read ausearch -m avc. Then run again."
)

# For AnsibleModule and for the action plugin: the module that installs the host tool.
ARGUMENTS: dict[str, dict[str, t.Any]] = {
    "state": {"type": "str", "choices": ["present", "stopped", "absent"], "default": "present"},
    "config": {"type": "dict", "default": {}},
    "units": {"type": "bool", "default": True},
    "observed": {"type": "dict", "default": {}},
    "interpreter": {"type": "str"},
    "root": {"type": "str", "default": "/"},
}


def fingerprint(content: bytes, mode: int) -> str:
    """Fingerprint of the bytes, without an interpreter line, and of the mode."""
    body = content.partition(b"\n")[2] if content.startswith(b"#!") else content
    return "%04o:%s" % (mode, hashlib.sha256(body).hexdigest())


def link_fingerprint(target: str) -> str:
    return "link:%s" % target


def file_entry(path: str, content: bytes, mode: int) -> dict[str, t.Any]:
    """A file as it is sent to the host: compressed, in base64."""
    return {
        "path": path,
        "mode": mode,
        "content": base64.b64encode(zlib.compress(content, 9)).decode("ascii"),
        "fingerprint": fingerprint(content, mode),
    }


def link_entry(path: str, target: str) -> dict[str, t.Any]:
    return {"path": path, "target": target, "fingerprint": link_fingerprint(target)}


def unpacked_fingerprint(digest: str) -> str:
    return "unpacked:%s" % digest


def unpacked_entry(path: str, digest: str, program: str) -> dict[str, t.Any]:
    """A folder with the sources of `program`, a file that the host has, as unpacked.py describes it."""
    return {"path": path, "digest": digest, "program": program, "fingerprint": unpacked_fingerprint(digest)}


def combined(prints: t.Mapping[str, str | None]) -> str:
    """One digest for a set of paths and their fingerprints."""
    text = "".join("%s\0%s\n" % (path, prints[path]) for path in sorted(prints))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def on_host(host: Host, path: str) -> str | None:
    """Fingerprint of the file at `path`, or None when it cannot be read."""
    info = host.stat(path, follow=False)
    if not info.ok:
        return None
    if info.value.kind == "link":
        return link_fingerprint(host.readlink(path).get(""))
    if info.value.kind == "dir":
        return unpacked_fingerprint(_unpacked_on_host(host, path))
    content = host.read_bytes(path)
    if not content.ok:
        return None
    found = fingerprint(content.value, info.value.mode)
    return found + ":no interpreter" if host.root == "/" and _lacks_interpreter(host, content.value) else found


def _lacks_interpreter(host: Host, content: bytes) -> bool:
    line = content.partition(b"\n")[0].decode("utf-8", "replace")
    return line.startswith("#!") and not host.exists(line[2:].strip())


def _unpacked_on_host(host: Host, path: str) -> str:
    """The digest of the sources in a folder that can be run and has nothing else; else what is wrong with it."""
    names: list[str] = [name for name in host.listdir(path).get([]) if name != LINK]
    if len(names) != 1:
        return "%d folders" % len(names)
    try:
        # Whose Python it is that compiled an image's folder is not known here.
        judge(host.real(host.resolve(path).value), names[0], compiled=host.root == "/")
    except Unfit as exc:
        return exc.code
    except OSError as exc:
        return str(exc.strerror)
    return names[0]


def compare_files(host: Host, wanted: t.Mapping[str, str] | None) -> dict[str, t.Any]:
    """{current: bool or None (unknown), sha256: digest of the present files or None, wanted, differing: [paths]}."""
    if not wanted:
        return {"current": None, "sha256": None, "wanted": None, "differing": []}
    found = {path: on_host(host, path) for path in wanted}
    differing = sorted(path for path in wanted if found[path] != wanted[path])
    there = any(value is not None for value in found.values())
    return {
        "current": not differing,
        "sha256": combined(found) if there else None,
        "wanted": combined(wanted),
        "differing": differing,
    }


def install(host: Host, entries: t.Sequence[Entry], interpreter: str, dry: bool = False) -> list[str]:
    """Install every entry; returns the changed paths. `interpreter` becomes the first line of programs."""
    changed = []
    for entry in entries:
        path = str(entry["path"])
        if on_host(host, path) == entry["fingerprint"]:
            continue
        changed.append(path)
        if dry:
            continue
        if "target" in entry:
            write_link(host, path, str(entry["target"]))
            continue
        if "program" in entry:
            unpack(host, path, str(entry["digest"]), str(entry["program"]), interpreter)
            continue
        content = zlib.decompress(base64.b64decode(str(entry["content"])))
        if content.startswith(b"#!"):
            content = b"#!" + interpreter.encode("utf-8") + b"\n" + content.partition(b"\n")[2]
        write_bytes(host, path, content, int(entry["mode"]))
    return changed


def install_and_try(host: Host, entries: t.Sequence[Entry], interpreter: str, dry: bool = False) -> list[str]:
    """Install every entry and, on this machine, run what is new among the programs; the changed paths."""
    # What is made of a program is last: a host that does not let it run is told so in words about the program.
    made = [entry for entry in entries if "program" in entry]
    first = [entry for entry in entries if "program" not in entry]
    changed = install(host, first, interpreter, dry)
    if host.root == "/" and not dry:
        require_running(host, first, changed)
    return changed + install(host, made, interpreter, dry)


def require_running(host: Host, entries: t.Sequence[Entry], changed: t.Collection[str]) -> None:
    """Run each program that is among the `changed` paths. NpuError for one that the host does not let run.

    That one loses the right to run, so that the next run tries it again; runtimes would start no container with such a
    hook. It stays, since it can be trusted only where it is.
    """
    for entry in entries:
        path = str(entry["path"])
        if path not in changed or not int(entry.get("mode", 0)) & 0o111:
            continue
        done = host.run([path, "--help"], TRY_SECONDS)
        # A loaded machine denies nothing, and containers with an older specification need the program.
        if done.state == TIMEOUT or (done.ok and done.value.rc == 0):
            continue
        said = " ".join(done.value.err.split())[-300:] or "code %d" % done.value.rc if done.ok else done.detail
        try:
            os.chmod(host.real(host.resolve(path).get(path)), FILE_MODE)
        except OSError as exc:
            raise explain(exc, path, "changed") from exc
        raise NpuError(
            "This host does not let %s run: %s." % (path, said.rstrip(".")),
            LET % posixpath.dirname(path),
        )


def unpack(host: Host, path: str, digest: str, program: str, interpreter: str) -> None:
    """Replace the folder `path` by the sources of `program` and what `interpreter` compiles of them, synced to disk.

    All that is in the old folder goes with it. Of two runs at once, one waits for the other. NpuError when that fails.
    """
    try:
        directory = make_directory(host, posixpath.dirname(path))
        with _alone(directory, path):
            _replace(host, directory, path, digest, program, interpreter)
    except PermissionError as exc:
        raise NpuError(explain(exc, path, "written").message, LET % posixpath.dirname(path)) from exc
    except OSError as exc:
        raise explain(exc, path, "written") from exc


@contextlib.contextmanager
def _alone(directory: str, path: str) -> t.Iterator[None]:
    """Hold the lock of the folder in which `path` is made and removed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        take_lock(descriptor, posixpath.dirname(path), COMPILE_TIMEOUT, "another run installs or removes the host tool")
        yield
    finally:
        os.close(descriptor)


def _replace(host: Host, directory: str, path: str, digest: str, program: str, interpreter: str) -> None:
    # No look at a host needs it.
    import zipfile

    new, old = _beside(directory, path)
    for left in (new, old):
        _remove_tree(left)
    os.mkdir(new, 0o700)
    folder = posixpath.join(new, digest)
    os.symlink(interpreter, posixpath.join(new, LINK))
    with zipfile.ZipFile(host.real(program)) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/" in name])
    if host.root == "/":
        _compile(host, interpreter, folder, path)
    _settle(new)
    real = posixpath.join(directory, posixpath.basename(path))
    if os.path.lexists(real):
        os.rename(real, old)
    os.rename(new, real)
    _remove_tree(old)
    sync_directory(directory)


def _compile(host: Host, interpreter: str, folder: str, path: str) -> None:
    done = host.run([interpreter, "-ISE", "-m", "compileall", "-q", folder], COMPILE_TIMEOUT)
    if not done.ok or done.value.rc:
        said = done.value.out.strip()[-300:] or done.value.err.strip()[-300:] if done.ok else done.detail
        raise NpuError(
            "%s cannot compile the host tool: %s." % (interpreter, said.rstrip(".")),
            LET % posixpath.dirname(path) if "PermissionError" in said else "Repair this Python and try again.",
        )


def _settle(folder: str) -> None:
    """Modes for everybody to read and for root to write, whatever the umask is; files and names on the disk."""
    for at, _directories, files in os.walk(folder):
        os.chmod(at, DIRECTORY_MODE)
        for name in files:
            path = os.path.join(at, name)
            if not os.path.islink(path):
                with open(path, "rb") as stream:
                    os.fchmod(stream.fileno(), FILE_MODE)
                    os.fsync(stream.fileno())
        sync_directory(at)


def _beside(directory: str, path: str) -> list[str]:
    """The folders beside `path` in which it is made and to which the old one goes; a killed run may leave them."""
    return [posixpath.join(directory, staged_prefix(posixpath.basename(path)) + word) for word in ("new", "old")]


def _remove_tree(real: str) -> bool:
    """Remove a folder of this machine, or what is in its place; False when there is nothing."""
    import shutil

    try:
        if not stat.S_ISDIR(os.lstat(real).st_mode):
            os.unlink(real)
            return True
        shutil.rmtree(real)
    except FileNotFoundError:
        return False
    return True


def remove_folder(host: Host, path: str, dry: bool = False) -> bool:
    """Remove the folder `path`, all that is in it, and what is left beside it; False when nothing is there."""
    parent = host.resolve(posixpath.dirname(path))
    if not parent.ok:
        return False
    directory = host.real(parent.value)
    every = [posixpath.join(directory, posixpath.basename(path)), *_beside(directory, path)]
    if dry:
        return any(os.path.lexists(one) for one in every)
    try:
        with _alone(directory, path):
            return True in [_remove_tree(one) for one in every]
    except OSError as exc:
        raise explain(exc, path, "removed") from exc


def remove(
    host: Host, paths: t.Sequence[str], directories: t.Sequence[str], dry: bool = False, folders: t.Sequence[str] = ()
) -> list[str]:
    """Remove the paths, of which `folders` with all that is in them, then the empty ones of `directories`.

    Returns what was removed.
    """
    gone = [path for path in paths if (remove_folder if path in folders else remove_file)(host, path, dry)]
    return gone + [directory for directory in directories if remove_empty_directory(host, directory, dry)]
