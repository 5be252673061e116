# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small set of files that belong to us on a host: compared by fingerprint, installed and removed as a whole.

The first line of a program (#!) names the interpreter of each host, so a fingerprint leaves it out.
"""

from __future__ import annotations

import base64
import hashlib
import typing as t
import zlib

from .._base.model import NpuError
from .files import remove_empty_directory, remove_file, write_bytes, write_link
from .host import Host

Entry = t.Mapping[str, t.Any]
TRY_SECONDS = 60.0

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
    content = host.read_bytes(path)
    return fingerprint(content.value, info.value.mode) if content.ok else None


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
        content = zlib.decompress(base64.b64decode(str(entry["content"])))
        if content.startswith(b"#!"):
            content = b"#!" + interpreter.encode("utf-8") + b"\n" + content.partition(b"\n")[2]
        write_bytes(host, path, content, int(entry["mode"]))
    return changed


def require_running(host: Host, entries: t.Sequence[Entry], changed: t.Collection[str]) -> None:
    """Run each program that is among the `changed` paths. NpuError for one that the host does not let run.

    That one is removed, so that the next run tries it again; runtimes would start no container with such a hook.
    """
    for entry in entries:
        path = str(entry["path"])
        if path not in changed or not int(entry.get("mode", 0)) & 0o111:
            continue
        done = host.run([path, "--help"], TRY_SECONDS)
        if done.ok and done.value.rc == 0:
            continue
        said = " ".join(done.value.err.split())[-300:] or "code %d" % done.value.rc if done.ok else done.detail
        remove_file(host, path)
        raise NpuError(
            "This host does not let %s run: %s." % (path, said.rstrip(".")),
            "Let it run: with fapolicyd name it in /etc/fapolicyd/trust.d and run fapolicyd-cli --update, with SELinux "
            "read ausearch -m avc. Then run again.",
        )


def remove(host: Host, paths: t.Sequence[str], directories: t.Sequence[str], dry: bool = False) -> list[str]:
    """Remove the paths, then the empty ones of `directories`; returns what was removed."""
    gone = [path for path in paths if remove_file(host, path, dry)]
    return gone + [directory for directory in directories if remove_empty_directory(host, directory, dry)]
