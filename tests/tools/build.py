# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the release in .work/dist: the collection tarball, its SBOM, and SHA256SUMS of both.

The same commit gives the same bytes: files are those of the commit, and times, owners and order are fixed. The tarball
is what `ansible-galaxy collection build` makes of the same files (a test compares them); written here it needs only git
and the standard library of Python 3.8.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import typing as t
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from . import sbom
from .paths import NAME, NAMESPACE, ROOT, SELF, WORK, Missing
from .stage import sources

DIST = WORK / "dist"
# What the account that builds has set for itself changes no line end, and leaves no file out.
PLAIN = ("core.autocrlf=false", "core.attributesFile=/dev/null", "tar.umask=0002", "log.showSignature=false")
SUMS = "SHA256SUMS"
READER = ROOT / "plugins" / "module_utils" / "_formats" / "yaml_read.py"
# What ansible-galaxy leaves out by itself, as far as git can track it; the manifests are written anew.
NEVER = (
    "MANIFEST.json",
    "FILES.json",
    "galaxy.yml",
    "*.pyc",
    "*.retry",
    "tests/output",
    f"{NAMESPACE}-{NAME}-*.tar.gz",
)
INFO = (
    "namespace", "name", "version", "authors", "readme", "tags", "description", "license", "license_file",
    "dependencies", "repository", "documentation", "homepage", "issues",
)  # fmt: skip


@dataclass(frozen=True)
class File:
    data: bytes
    executable: bool = False


Tree = t.Mapping[str, File]
Data = t.Dict[str, t.Any]


def git(*argv: str, root: Path = ROOT, settings: t.Sequence[str] = ()) -> bytes:
    """What git prints about the checkout. Missing when there is no git, no checkout or no commit."""
    given = [word for setting in settings for word in ("-c", setting)]
    try:
        return subprocess.run(["git", "-C", str(root), *given, *argv], capture_output=True, check=True).stdout
    except FileNotFoundError as exc:
        raise Missing("git is not on PATH. Next: apt-get install git") from exc
    except subprocess.CalledProcessError as exc:
        said = exc.stderr.decode(errors="replace").strip()
        raise Missing(f"git {argv[0]} failed in {root}: {said}. Next: clone the repository") from exc


def committed(root: Path = ROOT) -> dict[str, File]:
    """The files of the last commit by name, whatever the checkout has become since."""
    archived = git("archive", "--format=tar", "HEAD", root=root, settings=PLAIN)
    with tarfile.open(fileobj=io.BytesIO(archived)) as archive:
        members = [member for member in archive if not member.isdir() and member.name != SELF]
        return {member.name: _member(archive, member) for member in members}


def _member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> File:
    stream = archive.extractfile(member) if member.isfile() else None
    if stream is None:
        raise Missing(f"{member.name} is not a regular file. Next: make it one; a collection has no links")
    return File(stream.read(), bool(member.mode & 0o100))


def working(root: Path = ROOT) -> dict[str, File]:
    """The files of the checkout as they are, with new ones, for tests of what is not committed yet."""
    return {name: File((root / name).read_bytes(), os.access(root / name, os.X_OK)) for name in sources(root)}


def described(tree: Tree) -> Data:
    """galaxy.yml, by the reader that hosts use: the standard library has none for YAML."""
    spec = importlib.util.spec_from_file_location("yaml_read", READER)
    assert spec and spec.loader
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    found: Data = reader.load(tree["galaxy.yml"].data.decode())
    return found


def kept(tree: Tree, patterns: t.Sequence[str]) -> dict[str, File]:
    """The files that go into the tarball: none of the patterns fits the name or a directory above it."""

    def fits(name: str) -> bool:
        above = [str(part) for part in PurePosixPath(name).parents if part.name]
        return any(fnmatch.fnmatchcase(one, pattern) for one in (name, *above) for pattern in patterns)

    return {name: tree[name] for name in sorted(tree) if not fits(name)}


def content(tree: Tree) -> tuple[Data, dict[str, File | None]]:
    """(galaxy.yml, members of the tarball in order); None is a directory."""
    galaxy = described(tree)
    files = kept(tree, (*NEVER, *galaxy.get("build_ignore", ())))
    folders = {str(part) for name in files for part in PurePosixPath(name).parents if part.name}
    members: dict[str, File | None] = {name: files.get(name) for name in sorted({*files, *folders})}
    rows = [_row(".", None), *(_row(name, one) for name, one in members.items())]
    listing = _json({"files": rows, "format": 1})
    manifest = _json(
        {
            "collection_info": {key: galaxy.get(key) for key in INFO},
            "file_manifest_file": _row("FILES.json", listing),
            "format": 1,
        }
    )
    return galaxy, {"MANIFEST.json": manifest, "FILES.json": listing, **members}


def _row(name: str, one: File | None) -> Data:
    if one is None:
        return {"name": name, "ftype": "dir", "chksum_type": None, "chksum_sha256": None, "format": 1}
    return {"name": name, "ftype": "file", "chksum_type": "sha256", "chksum_sha256": sha256(one.data), "format": 1}


def _json(data: Data) -> File:
    return File(json.dumps(data, indent=1).encode())


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def packed(members: t.Mapping[str, File | None], when: int) -> bytes:
    """A gzipped tar with fixed times, owners and modes.

    Headers are written here because those of Python differ from version to version; what remains is zlib's.
    """
    parts: list[bytes] = []
    for name, one in members.items():
        data = one.data if one else b""
        parts += [_header(name, one, when), data, b"\0" * (-len(data) % 512)]
    raw, deflate = b"".join([*parts, b"\0" * 1024]), zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(raw) + deflate.flush()
    return b"\x1f\x8b\x08" + b"\0" * 5 + b"\x02\xff" + body + struct.pack("<II", zlib.crc32(raw), len(raw))


def _header(name: str, one: File | None, when: int) -> bytes:
    """The header of a member, POSIX ustar; 100 bytes of name are enough for a collection."""
    encoded = name.encode()
    if len(encoded) > 100:
        raise Missing(f"{name} has more than 100 bytes. Next: shorten it")
    mode = 0o755 if one is None or one.executable else 0o644
    fields = (
        encoded, b"%07o\0" % mode, b"0000000\0", b"0000000\0", b"%011o\0" % (len(one.data) if one else 0),
        b"%011o\0" % when, b" " * 8, b"5" if one is None else b"0", b"", b"ustar\x0000",
    )  # fmt: skip
    block = struct.pack("100s8s8s8s12s12s8s1s100s8s247x", *fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def build(target: Path, tree: Tree, when: int, commit: str) -> tuple[Path, int]:
    """(tarball, number of files in it). SBOM and SHA256SUMS are beside it; an older release in `target` goes."""
    galaxy, members = content(tree)
    tarball = target / f"{galaxy['namespace']}-{galaxy['name']}-{galaxy['version']}.tar.gz"
    archive = packed(members, when)
    texts = (tree[name].data.decode() for name in ("requirements.txt", "meta/runtime.yml"))
    told = sbom.describe(galaxy, *texts, sha256(archive), when, commit)
    results = {tarball.name: archive, tarball.name.replace(".tar.gz", ".cdx.json"): sbom.text(told)}
    results[SUMS] = "".join(f"{sha256(data)}  {name}\n" for name, data in sorted(results.items())).encode()
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.name.startswith(f"{galaxy['namespace']}-{galaxy['name']}-") or old.name == SUMS:
            old.unlink()
    for name, data in results.items():
        (target / name).write_bytes(data)
    return tarball, sum(one is not None for one in members.values())


def release(root: Path = ROOT, target: Path = DIST) -> tuple[Path, int]:
    """The release of the last commit. Its time is SOURCE_DATE_EPOCH, else that of the commit."""
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct", root=root, settings=PLAIN))
    return build(target, committed(root), when, git("rev-parse", "HEAD", root=root).decode().strip())


def main() -> int:
    try:
        tarball, files = release()
        changed = git("status", "--porcelain", "--untracked-files=no").decode().splitlines()
    except Missing as exc:
        print(f"build: {exc}", file=sys.stderr)
        return 1
    print(f"build: {tarball} ({files} files, {tarball.stat().st_size} bytes), its SBOM, {SUMS}")
    if changed:
        print(f"build: {len(changed)} changed files are not in it, because they are not committed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
