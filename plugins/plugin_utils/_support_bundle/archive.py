# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of a support bundle: README.md, manifest.json, and a folder for each host and cluster.

It is written beside its place with mode 0600 and renamed at the end; one part at a time is in memory.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
import time
import typing as t

from ansible_collections.rebellions.npu.plugins.module_utils._base.mask import MASK
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.files import explain

from .._objects.names import INPUT
from .parts import CLUSTER, COLLECTED, FAILED, HOST, MODULE, Part, Store

SCHEMA = 1
MODE = 0o600
SUFFIX = ".tar.gz"
STEM = INPUT.replace("_", "-") + MODULE
PATH = INPUT + MODULE + "_path"
FOLDERS = {HOST: "hosts", CLUSTER: "clusters"}
# Of the manifest that is kept in memory while it is written.
SPOOL = 8 * 1024 * 1024

README = """\
# Support bundle

Made {created} by the playbook `support` of the collection rebellions.npu.

| path | what it is |
|---|---|
| `manifest.json` | each source: where from, how it ended, size, SHA-256, whether it was cut; each host and cluster |
| `hosts/NAME/observation.json` | what the playbooks see of the host; read `checks` of `{observed}` first |
| `hosts/NAME/...` | outputs and files by subject: `npu`, `kernel`, `journal`, `runtime`, `module`, `packages`, ... |
| `clusters/NAME/...` | our objects, nodes with NPUs, pods, events, logs; in `.json` one object a line |

- `state` in the manifest is `value`, `absent`, `denied`, `timeout`, `too_large` or `failed`; `detail` says why. A file
  that is `cut` has the newest lines of a log, else the first ones. A command that ended badly has what it printed.
- Secrets are `{mask}`. {serials}
- A host or cluster that could not be asked is in the manifest with its reason.

{table}
"""


def stamp(now: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))


def place(given: str, directory: str, now: float) -> str:
    """The path of the archive. NpuError where it is taken, or where nothing can be written.

    An empty input, or a directory, gets a dated name.
    """
    path = os.path.join(directory, os.path.expanduser(given))
    if not given or os.path.isdir(path) or given.endswith("/"):
        path = os.path.join(path, "%s-%s%s" % (STEM, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now)), SUFFIX))
    folder = os.path.dirname(path)
    if os.path.lexists(path):
        raise NpuError("%s is %s, which exists." % (PATH, path), "Remove it, or name another file.")
    if not os.path.isdir(folder):
        raise NpuError("%s is in %s, which is no directory." % (PATH, folder), "Make it, or name another one.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NpuError("%s is in %s, where this user cannot write." % (PATH, folder), "Name another directory.")
    return path


def folder_names(kind: str, names: t.Iterable[str]) -> dict[str, str]:
    """{name: its folder in the archive}: names of hosts and clusters are no paths, and two never share one."""
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:80] or kind
        one = "%s/%s" % (FOLDERS[kind], plain)
        if one in found.values():
            one += "-" + hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
        found[name] = one
    return found


class Writer:
    """A tar file that is packed as it is written. All entries are plain files of one time and owner."""

    def __init__(self, stream: t.IO[bytes], top: str, now: float) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w:gz", format=tarfile.PAX_FORMAT, compresslevel=6)
        self._top, self._now = top, int(now)

    def add(self, name: str, stream: t.IO[bytes], size: int) -> None:
        info = tarfile.TarInfo("%s/%s" % (self._top, name))
        info.size, info.mode, info.mtime = size, MODE, self._now
        self._tar.addfile(info, stream)

    def add_text(self, name: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        self.add(name, io.BytesIO(data), len(data))

    def close(self) -> None:
        self._tar.close()


class Bundle:
    """What is in the archive, in the order of the hosts and clusters of the run."""

    def __init__(self, store: Store, about: t.Mapping[str, t.Any], now: float) -> None:
        self._store, self._about, self._now = store, about, now
        self._parts: list[tuple[str, str, str]] = []
        self.summaries: dict[str, dict[str, dict[str, t.Any]]] = {HOST: {}, CLUSTER: {}}
        self.files = self.size = 0

    def take(self, kind: str, names: t.Sequence[str], missing: t.Callable[[str], str]) -> None:
        """Count the parts of these names; `missing` says why there is none of a name."""
        for name, folder in folder_names(kind, names).items():
            part = self._store.read(kind, name) or Part(kind, name, FAILED, missing(name))
            kept = [record for record in part.records if record["size"]]
            size = sum(record["size"] for record in kept)
            gone = sorted(record["name"] for record in part.records if record["state"] not in ("value", "absent"))
            self.summaries[kind][name] = {
                **part.summary(), "folder": folder if kept else None, "files": len(kept), "size": size, "failed": gone,
            }  # fmt: skip
            self.files, self.size = self.files + len(kept), self.size + size
            self._parts.append((kind, name, folder))

    def write(self, path: str, table: t.Iterable[str]) -> tuple[int, str]:
        """(size, SHA-256) of the archive at `path`. NpuError, and no file, where that fails."""
        folder, base = os.path.split(path)
        top = base[: -len(SUFFIX)] if base.endswith(SUFFIX) else base.partition(".")[0] or STEM
        staged = ""
        try:
            # mkstemp gives mode 0600.
            descriptor, staged = tempfile.mkstemp(prefix=".%s." % base[:100], suffix=".tmp", dir=folder)
            with os.fdopen(descriptor, "w+b") as stream:
                self._fill(Writer(stream, top, self._now), table)
                stream.flush()
                os.fsync(stream.fileno())
                size = stream.tell()
                stream.seek(0)
                digest = hashlib.sha256()
                for block in iter(lambda: stream.read(1 << 20), b""):
                    digest.update(block)
            _put(staged, path)
        except OSError as exc:
            raise explain(exc, path, "written") from exc
        finally:
            if staged:
                with contextlib.suppress(OSError):
                    os.unlink(staged)
        return size, digest.hexdigest()

    def _fill(self, writer: Writer, table: t.Iterable[str]) -> None:
        kept, hidden = "Serial numbers are kept.", "Serial numbers are `SERIAL-1` and so on, for each host anew."
        serials = kept if self._about["serials"] else hidden
        readme = README.format(
            created=stamp(self._now),
            mask=MASK,
            serials=serials,
            observed=INPUT + "observed",
            table="\n".join(table),
        )
        writer.add_text("README.md", readme)
        with tempfile.SpooledTemporaryFile(SPOOL) as manifest:
            self._manifest(manifest)
            size = manifest.tell()
            manifest.seek(0)
            writer.add("manifest.json", t.cast("t.IO[bytes]", manifest), size)
        for kind, name, folder in self._parts:
            part = self._store.read(kind, name, texts=True)
            if part is None:
                continue
            names = [record["name"] for record in part.records if record["size"]]
            for one, text in zip(names, part.texts):
                writer.add_text("%s/%s" % (folder, one), text)
        writer.close()

    def _manifest(self, stream: t.Any) -> None:
        """One record a line: those of a thousand hosts need not be in memory together."""
        head = {"schema": SCHEMA, "created": stamp(self._now), **self._about}
        head.update(hosts=self.summaries[HOST], clusters=self.summaries[CLUSTER])
        stream.write(json.dumps(head, indent=1, sort_keys=True)[:-2].encode() + b',\n "files": [')
        between = b"\n  "
        for kind, name, folder in self._parts:
            part = self._store.read(kind, name)
            for record in part.records if part else ():
                path = "%s/%s" % (folder, record["name"]) if record["size"] else None
                line = {**record, "path": path, kind: name}
                stream.write(between + json.dumps(line, sort_keys=True).encode())
                between = b",\n  "
        stream.write(b"\n ]\n}\n")


def _put(staged: str, path: str) -> None:
    """Give a file its name; one that has come there meanwhile stays, where the file system can say so."""
    try:
        os.link(staged, path)
    except OSError as exc:
        if exc.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
            raise
        os.rename(staged, path)


def collected(summaries: t.Mapping[str, t.Mapping[str, t.Any]]) -> int:
    return sum(one["state"] == COLLECTED for one in summaries.values())
