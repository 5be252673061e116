# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A flat apt repository as text: index, Release file, and the dpkg status of a minimal host.

Written by hand, because python3-apt and apt-ftparchive are on few hosts.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import typing as t

from .._base.model import NpuError

BASES = ("none", "required", "important", "host")
# apt refuses a date in the future; a fixed date makes the files reproducible.
DATE = "Sat, 01 Jan 2000 00:00:00 UTC"
_OURS = ("filename", "size", "md5sum", "sha1", "sha256", "sha512", "status")
_URI = re.compile(r"^'([^']+)' (\S+) ([0-9]+)(?: SHA256:([0-9a-f]{64}))?\s*$", re.M)

Stanza = t.Dict[str, str]


class Package(t.NamedTuple):
    """A package of the repository: the fields of its control file, and the file below the repository's root."""

    control: Stanza
    path: str
    size: int
    sha256: str


def parse_stanzas(text: str) -> list[Stanza]:
    """Paragraphs of `Field: value` with continuation lines, values as written. NpuError for any other line."""
    found: list[Stanza] = []
    current: Stanza = {}
    last = ""
    for line in text.splitlines():
        if not line.strip():
            if current:
                found.append(current)
            current, last = {}, ""
        elif line[0] in " \t" and last:
            current[last] += "\n" + line
        else:
            name, colon, value = line.partition(":")
            if not colon or not name or " " in name:
                raise NpuError("%r is not a field of a control file." % line[:80], "Download the package again.")
            last = name
            current[last] = value.strip()
    if current:
        found.append(current)
    return found


def _stanza(fields: t.Iterable[tuple[str, str]]) -> str:
    return "".join("%s: %s\n" % row if row[1] else "%s:\n" % row[0] for row in fields)


def packages_index(packages: t.Iterable[Package]) -> str:
    """The text of `Packages`, sorted, so that it is reproducible."""
    parts = []
    for one in sorted(
        packages,
        key=lambda item: (item.control["Package"], item.control["Version"], item.control["Architecture"], item.path),
    ):
        fields = [("Package", one.control["Package"])]
        fields += [
            row
            for row in one.control.items()
            if row[0].lower() not in _OURS and row[0] not in ("Package", "Description")
        ]
        fields += [("Filename", "./" + one.path), ("Size", str(one.size)), ("SHA256", one.sha256)]
        fields += [row for row in one.control.items() if row[0] == "Description"]
        parts.append(_stanza(fields))
    return "\n".join(parts)


def compress(content: bytes) -> bytes:
    """gzip without name and time."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=out, mtime=0) as stream:
        stream.write(content)
    return out.getvalue()


def release(files: t.Mapping[str, bytes], architectures: t.Iterable[str], label: str) -> str:
    """The text of `Release` over the index files of a flat repository."""
    names = sorted(set(architectures) - {"all"})
    head = _stanza(
        [("Origin", label), ("Label", label), ("Date", DATE), ("Architectures", " ".join(names)), ("SHA256", "")]
    )
    return head + "".join(
        " %s %d %s\n" % (hashlib.sha256(files[name]).hexdigest(), len(files[name]), name) for name in sorted(files)
    )


def repository(packages: t.Sequence[Package], label: str) -> dict[str, bytes]:
    """{name: content} of the three files that make a folder a flat repository."""
    index = packages_index(packages).encode("utf-8")
    files = {"Packages": index, "Packages.gz": compress(index)}
    text = release(files, (one.control["Architecture"] for one in packages), label)
    return dict(files, Release=text.encode("utf-8"))


def parse_uris(text: str) -> list[dict[str, t.Any]]:
    """Files in the output of `apt-get --print-uris`: [{uri, name, size, sha256 or None}]; size in bytes."""
    return [
        {"uri": uri, "name": name, "size": int(size), "sha256": digest or None}
        for uri, name, size, digest in _URI.findall(text)
    ]


def _alternatives(stanza: Stanza) -> t.Iterator[list[str]]:
    for field in ("Pre-Depends", "Depends"):
        for group in stanza.get(field, "").split(","):
            names = [re.split(r"[\s(:\[]", part.strip())[0] for part in group.split("|")]
            if any(names):
                yield names


def base_status(status: str, base: str) -> str:
    """The dpkg status of a fresh host, derived from that of a connected one; base is one of BASES.

    none: nothing installed. required, important: the installed packages of that priority and what they depend on, at
    version 0, so that every dependency that asks for a version is met from the repositories and not by what this host
    happens to have. host: as it is.
    """
    if base == "host":
        return status
    installed = {
        item["Package"]: item for item in parse_stanzas(status) if item.get("Status", "").endswith(" installed")
    }
    wanted = {"none": (), "required": ("required",), "important": ("required", "important")}[base]
    provided: dict[str, str] = {}
    for name, item in sorted(installed.items()):
        for part in item.get("Provides", "").split(","):
            provided.setdefault(part.strip().split(" ")[0], name)
    todo = [
        name
        for name, item in installed.items()
        if wanted and (item.get("Priority") in wanted or item.get("Essential") == "yes")
    ]
    chosen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in chosen:
            continue
        chosen.add(name)
        for names in _alternatives(installed[name]):
            real = [one if one in installed else provided.get(one, "") for one in names]
            todo += [one for one in real if one][:1]
    kept = ("Priority", "Architecture", "Multi-Arch", "Provides")
    rows = []
    for name in sorted(chosen):
        fields = [("Package", name), ("Status", "install ok installed")]
        fields += [(key, installed[name][key]) for key in kept if installed[name].get(key)]
        rows.append(_stanza(fields + [("Version", "0")]))
    return "\n".join(rows)
