# Copyright (c) 2026 The rebellions.npu authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A bundle: a folder with all files for hosts without a network, and a manifest with size and SHA-256 of each."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import stat
import typing as t

from .._base.model import NpuError
from .._base.records import asdict, dataclass, field, replace
from .._packages.offline import APT_CONFIG, DNF_DIRECTORY

SCHEMA = 1
MANIFEST = "manifest.json"
PACKAGES = "packages"
DRIVER = "driver"
# Kinds of files: OS package, driver package, installer, index of the repository.
PACKAGE, DRIVER_PACKAGE, RUNFILE, INDEX = "package", "driver_package", "runfile", "index"
KINDS = (PACKAGE, DRIVER_PACKAGE, RUNFILE, INDEX)
CHUNK = 1024 * 1024
FORMATS = ("deb", "rpm")
# The most that a manifest may announce: the text in bytes, files, bytes of one file (a tar header has no larger number)
# and of all together, characters of one text, names in one path, digits of a number.
MANIFEST_LIMIT = 16 * 1024 * 1024
FILES_LIMIT = 20000
FILE_LIMIT = 8 * 1024**3 - 1
TOTAL_LIMIT = 64 * 1024**3
TEXT_LIMIT = 4096
DEPTH_LIMIT = 8
DIGITS_LIMIT = 20
# Written beside the files, or by apt and dnf.
_RESERVED = (MANIFEST, APT_CONFIG, "apt", DNF_DIRECTORY)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+~:%=@,^-]{0,254}")
AGAIN = "Collect the bundle again, or copy it again from where it was collected."


@dataclass(frozen=True)
class BundleFile:
    """One file: relative path, bytes, SHA-256; name, version and architecture of a package; version of an installer."""

    path: str
    size: int
    sha256: str
    kind: str
    name: str = ""
    version: str = ""
    architecture: str = ""

    def __str__(self) -> str:
        return "%s (%d bytes, SHA-256 %s)" % (self.path, self.size, self.sha256)


@dataclass(frozen=True)
class Image:
    """A container image: its published reference, and the reference that the cluster uses.

    digest is None when it is unknown, and reason says why.
    """

    name: str
    reference: str
    target: str
    digest: str | None
    reason: str = ""


@dataclass(frozen=True)
class Manifest:
    """Content of a bundle, time (UTC), OS and kernels. `requested` are packages, the others are their dependencies."""

    created: str
    by: str
    os: t.Mapping[str, str]
    format: str
    base: str
    kernels: t.Sequence[str] = ()
    requested: t.Sequence[str] = ()
    files: t.Sequence[BundleFile] = ()
    images: t.Sequence[Image] = ()
    schema: int = SCHEMA

    @property
    def size(self) -> int:
        return sum(one.size for one in self.files)

    def of(self, *kinds: str) -> list[BundleFile]:
        return [one for one in self.files if one.kind in kinds]

    def dump(self) -> str:
        """JSON text with sorted keys and files, so that the same bundle has the same manifest."""
        data = asdict(self)
        data["files"] = [asdict(one) for one in sorted(self.files, key=lambda one: one.path)]
        data["images"] = [asdict(one) for one in sorted(self.images, key=lambda one: one.name)]
        return json.dumps(data, indent=1, sort_keys=True) + "\n"

    def same_content(self, other: Manifest) -> bool:
        """Whether only time and collector differ."""
        return replace(self, created="", by="").dump() == replace(other, created="", by="").dump()


@dataclass
class Condition:
    """A folder compared with a manifest: missing, different and unreadable files."""

    missing: list[BundleFile] = field(default_factory=list)
    wrong: list[tuple[BundleFile, int, str]] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.missing and not self.wrong

    @property
    def bad(self) -> list[BundleFile]:
        return self.missing + [one for one, _size, _digest in self.wrong]

    def lines(self) -> list[str]:
        """One line per file, with expected and present size and SHA-256."""
        told = ["%s is missing" % one for one in self.missing]
        for one, size, digest in self.wrong:
            told.append("%s is another file: it has %d bytes%s" % (one, size, ", SHA-256 " + digest if digest else ""))
        return told


def safe_name(value: t.Any) -> bool:
    """Whether a text of another machine may be the name of a file or folder: plain characters, no leading dot."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def plain(value: t.Any) -> bool:
    """Whether a value is text that can be shown: printable, in one line, not long."""
    return isinstance(value, str) and len(value) <= TEXT_LIMIT and (value.isprintable() or not value)


def _text(data: t.Mapping[str, t.Any], key: str, where: str) -> str:
    value = data.get(key, "")
    if not plain(value):
        raise NpuError("%s: %s is not text of at most %d printable characters." % (where, key, TEXT_LIMIT), AGAIN)
    return str(value)


def _path(value: t.Any, where: str) -> str:
    """A path below the folder that is not one of our own. The only rule for paths that another machine names."""
    parts = value.split("/") if isinstance(value, str) else []
    if (
        not parts
        or len(parts) > DEPTH_LIMIT
        or not all(safe_name(part) for part in parts)
        or parts[0].lower() in _RESERVED
    ):
        raise NpuError("%s: %s is not a valid path in a bundle." % (where, ascii(value)[:100]), AGAIN)
    return "/".join(parts)


def _file(data: t.Any, where: str) -> BundleFile:
    if not isinstance(data, dict):
        raise NpuError("%s: an entry of files is not a mapping." % where, AGAIN)
    path, size, sha256, kind = _path(data.get("path"), where), data.get("size"), data.get("sha256"), data.get("kind")
    if (
        not isinstance(size, int)
        or isinstance(size, bool)
        or not 0 <= size <= FILE_LIMIT
        or not isinstance(sha256, str)
        or not _DIGEST.fullmatch(sha256)
        or kind not in KINDS
    ):
        raise NpuError("%s: size, SHA-256 or kind of %s is not valid." % (where, path), AGAIN)
    return BundleFile(
        path, size, sha256, kind, *(_text(data, key, where) for key in ("name", "version", "architecture"))
    )


def _number(digits: str) -> int:
    if len(digits) > DIGITS_LIMIT:
        raise ValueError("a number has %d digits" % len(digits))
    return int(digits)


def parse_manifest(text: str, where: str = MANIFEST) -> Manifest:
    """NpuError names `where` when the text is not a manifest of this schema."""
    try:
        data = json.loads(text, parse_int=_number)
    except (ValueError, RecursionError) as exc:
        raise NpuError("%s is not JSON: %s." % (where, exc), AGAIN) from exc
    return manifest_of(data, where)


def manifest_of(data: t.Any, where: str) -> Manifest:
    """A manifest from data of another machine. NpuError names `where` when a value, a path or a size is not valid."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise NpuError(
            "%s is not a manifest of schema %d." % (where, SCHEMA),
            "Collect the bundle with the same version of this collection.",
        )
    lists = {key: data.get(key) for key in ("files", "images", "kernels", "requested")}
    if not all(isinstance(value, list) for value in lists.values()) or not isinstance(data.get("os"), dict):
        raise NpuError("%s: files, images, kernels or requested is not a list, or os is not a mapping." % where, AGAIN)
    for key, value in lists.items():
        if len(value or ()) > FILES_LIMIT:
            raise NpuError("%s: %s has more than %d entries." % (where, key, FILES_LIMIT), AGAIN)
    if not all(plain(item) for key in ("kernels", "requested") for item in lists[key] or ()):
        raise NpuError("%s: a kernel or a requested package is not text." % where, AGAIN)
    files = [_file(item, where) for item in lists["files"] or ()]
    _together(files, where)
    images = []
    for item in lists["images"] or ():
        if not isinstance(item, dict) or not (item.get("digest") is None or plain(item["digest"])):
            raise NpuError("%s: an entry of images is not valid." % where, AGAIN)
        words = {key: _text(item, key, where) for key in ("name", "reference", "target", "reason")}
        images.append(Image(digest=item.get("digest"), **words))
    system = {key: _text(data["os"], key, where) for key in ("id", "version_id", "architecture")}
    if not all(safe_name(value) or not value for value in system.values()) or data.get("format") not in FORMATS:
        raise NpuError("%s: format or a value of os is not valid." % where, AGAIN)
    return Manifest(
        os=system,
        kernels=lists["kernels"] or (),
        requested=lists["requested"] or (),
        files=files,
        images=images,
        created=_text(data, "created", where),
        by=_text(data, "by", where),
        format=_text(data, "format", where),
        base=_text(data, "base", where),
    )


def _together(files: t.Sequence[BundleFile], where: str) -> None:
    """NpuError when two files get in each other's way, or all are too much."""
    names = {one.path for one in files}
    if len(names) != len(files):
        raise NpuError("%s lists a file twice." % where, AGAIN)
    for one in files:
        parts = one.path.split("/")
        if any("/".join(parts[:depth]) in names for depth in range(1, len(parts))):
            raise NpuError("%s: a folder of %s is also a file." % (where, one.path), AGAIN)
    if sum(one.size for one in files) > TOTAL_LIMIT:
        raise NpuError("%s: the files have more than %d bytes together." % (where, TOTAL_LIMIT), AGAIN)


def digest_of(stream: t.BinaryIO) -> str:
    """Hex SHA-256 of the rest of the stream."""
    digest = hashlib.sha256()
    for block in iter(lambda: stream.read(CHUNK), b""):
        digest.update(block)
    return digest.hexdigest()


def examine(folder: str, files: t.Iterable[BundleFile]) -> Condition:
    """Compare a folder of this machine with a manifest. Links are not followed."""
    found = Condition()
    for one in files:
        path = os.path.join(folder, *one.path.split("/"))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            found.missing.append(one)
            continue
        except OSError:
            found.wrong.append((one, 0, ""))
            continue
        with os.fdopen(descriptor, "rb") as stream:
            info = os.fstat(stream.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size != one.size:
                found.wrong.append((one, info.st_size, ""))
                continue
            digest = digest_of(stream)
        if digest != one.sha256:
            found.wrong.append((one, one.size, digest))
    return found


def driver_file(manifest: Manifest, version: str, name: str = "") -> BundleFile | None:
    """The installer of a driver version in the bundle, by its version or its file name, else None."""
    for one in manifest.of(RUNFILE):
        if (version and one.version == version) or (name and posixpath.basename(one.path) == name):
            return one
    return None
