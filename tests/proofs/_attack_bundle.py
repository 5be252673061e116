# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives and manifests of a bundle that are not what they should be."""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import json
import os
import posixpath
import random
import re
import tarfile
import typing as t
from pathlib import Path

from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import (
    PACKAGE,
    BundleFile,
    Image,
    Manifest,
    examine,
    parse_manifest,
)
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.transfer import unpack

from tests.proofs._attack_answers import RAW, VALUES, Targets, choose, put
from tests.proofs._attack_play import CONTROL

GOOD = {"packages/a_1_all.deb": b"first", "packages/b_1_all.deb": b"second" * 100, "driver/r-3.2.2.run": b"#!"}
SHA = "5" * 64
MANY = 3000


DIGESTS = {path: hashlib.sha256(data).hexdigest() for path, data in GOOD.items()}


def wanted() -> list[BundleFile]:
    return [BundleFile(path, len(data), DIGESTS[path], PACKAGE) for path, data in GOOD.items()]


def file(name: str, data: bytes, **more: t.Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    for key, value in more.items():
        setattr(member, key, value)
    return member, data


def members(source: random.Random, home: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """The files of the bundle with one kind of surprise among them."""
    good = [file(DIGESTS[path], data) for path, data in GOOD.items()]
    path = source.choice(sorted(GOOD))
    name = source.choice([DIGESTS[path], DIGESTS[path], path])
    key = home / ".ssh/authorized_keys"
    up = "../" * 20 + str(home).lstrip("/")
    link = {"type": source.choice([tarfile.SYMTYPE, tarfile.LNKTYPE])}
    odd: list[list[tuple[tarfile.TarInfo, bytes]]] = [
        [],
        [file(up + "/pwn", b"x")],
        [file(str(home / "pwn"), b"x")],
        [file("packages/../../../pwn", b"x")],
        [file("./" + name, b"x")],
        [file(name, b"", linkname=str(key), **link)],
        [file(name, b"", linkname=up + "/.bashrc", **link), file(name, b"x")],
        [file("packages", b"", linkname=str(home), type=tarfile.SYMTYPE)],
        [file("packages", b"", linkname=str(home), type=tarfile.SYMTYPE), file("packages/pwn", b"x")],
        [file("driver", b"", type=tarfile.DIRTYPE, mode=0o777)],
        [file(name, b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5)],
        [file(name, b"", type=tarfile.BLKTYPE, devmajor=8, devminor=0)],
        [file(name, b"", type=tarfile.FIFOTYPE)],
        [file(name, b"other"), file(name, b"other again")],
        [file(name, b"x" * 200_000)],
        [file(name, b"x", mode=0o6777, uid=0)],
        [file("many/%d" % number, b"") for number in range(MANY)],
        [file("packages/\x1b[2J\n.deb", b"x"), file("packages/" + "n" * 5000, b"x"), file("", b"x")],
        [file(name, b"x", pax_headers={"path": up + "/pwn", "size": "99999999999"})],
        [file("other", b"x", pax_headers={"path": name, "comment": "c" * 2_000_000})],
        [file(name, b"x", type=tarfile.CONTTYPE), file(name, b"x", type=b"Z")],
    ]
    chosen = source.choice(odd)
    at = source.randrange(len(good) + 1)
    return good[:at] + chosen + good[at if source.random() < 0.7 else min(at + 1, len(good)) :]


def archive(source: random.Random, home: Path) -> bytes:
    plain = source.random() < 0.15
    kind = source.choice([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=kind) as tar:
        for member, data in [file(DIGESTS[path], GOOD[path]) for path in GOOD] if plain else members(source, home):
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    data = out.getvalue()
    act = 7 if plain else source.randrange(8)
    if act == 0:
        return data[: source.randrange(len(data))]
    if act == 1:
        at = source.randrange(len(data))
        return data[:at] + source.randbytes(source.randrange(1, 600)) + data[at + 300 :]
    if act == 2:
        return data + source.randbytes(2000)
    if act == 3:
        # A size field of another member: huge, negative or not a number.
        head = 512 * source.randrange(max(len(data) // 512, 1)) + 124
        field = source.choice([b"77777777777\0", b"\x80" + b"\xff" * 11, b"\xff" * 12, b"not a size\0\0"])
        data = data[:head] + field + data[head + 12 :]
        block = bytearray(data[head - 124 : head + 388])
        if len(block) == 512:
            block[148:156] = b" " * 8
            block[148:156] = b"%06o\0 " % sum(block)
            data = data[: head - 124] + bytes(block) + data[head + 388 :]
        return data
    if act == 4:
        return gzip.compress(data + b"\0" * 30_000_000, 1) if source.random() < 0.1 else gzip.compress(data, 1)
    return data


def one_archive(source: random.Random, folder: Path) -> str:
    """Unpack one archive; how it ended. What is in the folder then are whole files of the bundle, and nothing else."""
    home, target = folder / "home", folder / "target"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/authorized_keys").write_text("key\n")
    (home / ".bashrc").write_text("# shell\n")
    target.mkdir()
    data = archive(source, home)
    (folder / "files.tar").write_bytes(data)
    files = wanted()
    try:
        unpack(str(folder / "files.tar"), str(target), files)
        ended = "unpacked" if examine(str(target), files).good else "incomplete"
    except NpuError as exc:
        ended = "refused"
        assert "Next: " in str(exc) and not CONTROL.search(str(exc)), repr(str(exc))
    there = sorted(path.relative_to(home).as_posix() for path in home.rglob("*"))
    assert there == [".bashrc", ".ssh", ".ssh/authorized_keys"], there
    assert (home / ".ssh/authorized_keys").read_text() == "key\n" and (home / ".bashrc").read_text() == "# shell\n"
    beside = sorted(path.name for path in folder.iterdir())
    assert beside == ["files.tar", "home", "target"], beside
    for path in target.rglob("*"):
        name = path.relative_to(target).as_posix()
        if path.is_dir() and not path.is_symlink():
            assert name in ("packages", "driver"), name
            continue
        assert name in GOOD and path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1, name
        assert path.stat().st_size <= len(GOOD[name]) + 1, "%s has %d bytes" % (name, path.stat().st_size)
    return ended


def one_manifest(source: random.Random, to: Targets) -> str:
    """Read one crafted manifest; how it ended. What it takes stays below a folder and is plain."""
    image = Image("validator", "docker.io/a/b:1", "lab.local/a/b:1", "sha256:" + SHA)
    system = {"id": "ubuntu", "version_id": "24.04", "architecture": "x86_64"}
    when = "2026-01-01T00:00:00Z"
    good = Manifest(when, "me@here", system, "deb", "important", ["6.8.0"], ["dkms"], wanted(), [image])
    data = copy.deepcopy(json.loads(good.dump()))
    for _one in range(source.choice((1, 1, 3))):
        make, kinds = VALUES[source.choice(sorted(VALUES))]
        put(data, choose(source, data, kinds, True), source.choice(make(to)))
    text = json.dumps(data)
    for word, raw in RAW.items():
        text = text.replace(word, raw)
    try:
        taken = parse_manifest(text)
    except NpuError as exc:
        assert "Next: " in str(exc) and not CONTROL.search(str(exc)), repr(str(exc))[:500]
        return "refused"
    seen: set[str] = set()
    for one in taken.files:
        path = one.path
        assert re.fullmatch(r"[A-Za-z0-9_+~:%=@,^./-]{1,300}", path), repr(path)[:300]
        assert posixpath.normpath(path) == path and not path.startswith(("/", ".", "-")) and ".." not in path.split("/")
        assert path not in seen and 0 <= one.size < 2**50 and re.fullmatch("[0-9a-f]{64}", one.sha256), one
        seen.add(path)
        assert not any(os.path.dirname(path) == other for other in seen), "%s is a file and a folder" % path
    assert len(taken.files) <= 100_000
    told = json.dumps([str(one) for one in taken.files] + [taken.format, taken.base, taken.by], ensure_ascii=False)
    assert not CONTROL.search(told), repr(told)[:500]
    return "taken"
