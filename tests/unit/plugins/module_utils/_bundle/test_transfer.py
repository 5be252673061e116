# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the other side packs writes the files that were announced, where the manifest says, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import pathlib
import tarfile
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import BundleFile, examine
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.transfer import pack, packed_size, unpack

BODIES = {"packages/a.deb": b"a" * 700, "driver/d.run": b"#!/bin/sh\n", "Packages": b""}
FILES = [BundleFile(path, len(body), hashlib.sha256(body).hexdigest(), "package") for path, body in BODIES.items()]
A, D, EMPTY = FILES


def entry(name: str, body: bytes = b"", **more: t.Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(body)
    for key, value in more.items():
        setattr(member, key, value)
    return member, body


def archive(folder: pathlib.Path, *entries: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> str:
    path = str(folder / "x.tar")
    with tarfile.open(path, "w", format=form) as tar:
        for member, body in entries:
            tar.addfile(member, io.BytesIO(body))
    return path


GOOD = [entry(one.sha256, body) for one, body in zip(FILES, BODIES.values())]


def watched(tmp_path: pathlib.Path) -> dict[str, bytes]:
    """{path: content} of everything below a folder, except the archive; links and devices by what they are."""
    found = {}
    for path in sorted(tmp_path.rglob("*")):
        if path.name != "x.tar":
            kind = b"link" if path.is_symlink() else path.read_bytes() if path.is_file() else b"folder"
            found[str(path.relative_to(tmp_path))] = kind
    return found


@pytest.fixture(name="private")
def private_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "home/.ssh").mkdir(parents=True)
    (tmp_path / "home/.ssh/authorized_keys").write_bytes(b"mine")
    (tmp_path / "home/in").mkdir(mode=0o700)
    return tmp_path / "home/in"


def test_what_is_packed_comes_out(tmp_path: pathlib.Path, private: pathlib.Path) -> None:
    for path, body in BODIES.items():
        (tmp_path / "from" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / path).write_bytes(body)
    pack({one.sha256: str(tmp_path / "from" / one.path) for one in FILES}, str(tmp_path / "x.tar"))
    unpack(str(tmp_path / "x.tar"), str(private), FILES)
    assert {path: (private / path).read_bytes() for path in BODIES} == BODIES and examine(str(private), FILES).good
    assert 0 <= packed_size(FILES) - (tmp_path / "x.tar").stat().st_size < 2 * tarfile.RECORDSIZE
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert sorted(tar.getnames()) == sorted(one.sha256 for one in FILES)


def test_files_with_the_same_content_come_once(tmp_path: pathlib.Path, private: pathlib.Path) -> None:
    twin = BundleFile("packages/twin.deb", A.size, A.sha256, "package")
    unpack(archive(tmp_path, GOOD[0]), str(private), [A, twin])
    assert (private / twin.path).read_bytes() == (private / A.path).read_bytes() == BODIES[A.path]


def test_a_file_may_lack_and_other_content_is_found_by_examine(tmp_path: pathlib.Path, private: pathlib.Path) -> None:
    unpack(archive(tmp_path, entry(A.sha256, b"b" * A.size)), str(private), FILES)
    found = examine(str(private), FILES)
    assert [one.path for one in found.missing] == [D.path, EMPTY.path] and [row[0] for row in found.wrong] == [A]


HOSTILE: dict[str, list[tuple[tarfile.TarInfo, bytes]]] = {
    "traversal": [entry("../.ssh/authorized_keys", b"evil")],
    "traversal behind a folder": [entry("packages/../../.ssh/authorized_keys", b"evil")],
    "absolute": [entry("/tmp/evil", b"evil")],
    "a path of the manifest": [entry(D.path, BODIES[D.path])],
    "a digest that was not announced": [entry("0" * 64, b"evil")],
    "a digest in capitals": [entry(D.sha256.upper(), BODIES[D.path])],
    "a digest with a slash": [entry(D.sha256 + "/", BODIES[D.path])],
    "no name": [entry("", b"evil")],
    "control characters": [entry("\x1b[2J\x07", b"evil")],
    "symbolic link": [entry(D.sha256, type=tarfile.SYMTYPE, linkname="../.ssh/authorized_keys")],
    "through a link": [entry("packages", type=tarfile.SYMTYPE, linkname="../.ssh"), entry("packages/x", b"evil")],
    "hard link": [entry(D.sha256, type=tarfile.LNKTYPE, linkname="../.ssh/authorized_keys")],
    "character device": [entry(D.sha256, type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "block device": [entry(D.sha256, type=tarfile.BLKTYPE, devmajor=8, devminor=0)],
    "pipe": [entry(D.sha256, type=tarfile.FIFOTYPE)],
    "folder": [entry(D.sha256, type=tarfile.DIRTYPE)],
    "contiguous file": [entry(D.sha256, BODIES[D.path], type=tarfile.CONTTYPE)],
    "file of the oldest format": [entry(D.sha256, BODIES[D.path], type=tarfile.AREGTYPE)],
    "sparse file": [entry(D.sha256, BODIES[D.path], type=tarfile.GNUTYPE_SPARSE)],
    "unknown type": [entry(D.sha256, BODIES[D.path], type=b"Z")],
    "duplicate": [GOOD[1], GOOD[1]],
    "longer than announced": [entry(D.sha256, BODIES[D.path] + b"x")],
    "shorter than announced": [entry(D.sha256, b"#!")],
    "many": [GOOD[1], *(entry("%064x" % number, b"") for number in range(1000))],
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_archive_writes_nothing_outside(tmp_path: pathlib.Path, private: pathlib.Path, name: str) -> None:
    before = watched(tmp_path)
    path = archive(tmp_path, *HOSTILE[name])
    with pytest.raises(NpuError, match="not announced|is another file: the archive has") as caught:
        unpack(path, str(private), FILES)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 400
    added = {key: value for key, value in watched(tmp_path).items() if before.get(key) != value}
    assert set(added) <= {"home/in/driver", "home/in/" + D.path} and b"link" not in added.values()


@pytest.mark.parametrize(
    "form, member",
    [
        (tarfile.PAX_FORMAT, entry(D.sha256, BODIES[D.path], pax_headers={"path": "../.ssh/authorized_keys"})),
        (tarfile.PAX_FORMAT, entry(D.sha256, BODIES[D.path], pax_headers={"size": "99999999999999"})),
        (tarfile.PAX_FORMAT, entry(D.sha256, BODIES[D.path], pax_headers={"comment": "x" * 20_000_000})),
        (tarfile.GNU_FORMAT, entry("x" * 5_000_000, BODIES[D.path])),
        (tarfile.GNU_FORMAT, entry(D.sha256, type=tarfile.SYMTYPE, linkname="y" * 5_000_000)),
    ],
    ids=["path of pax", "size of pax", "huge pax", "huge GNU name", "huge GNU link"],
)
def test_no_header_speaks_for_the_next(
    tmp_path: pathlib.Path, private: pathlib.Path, form: int, member: tuple[tarfile.TarInfo, bytes]
) -> None:
    with pytest.raises(NpuError, match="not announced"):
        unpack(archive(tmp_path, member, form=form), str(private), FILES)
    assert list(private.iterdir()) == []


def header(**change: t.Any) -> bytearray:
    return bytearray(entry(D.sha256, BODIES[D.path], **change)[0].tobuf(tarfile.USTAR_FORMAT))


def summed(head: bytearray) -> bytes:
    head[148:156] = b"%06o\0 " % (sum(head[:148]) + sum(head[156:]) + 8 * 32)
    return bytes(head)


def size_field(value: bytes) -> bytes:
    head = header()
    head[124:136] = value
    return summed(head)


END = bytes(1024)
DATA = BODIES[D.path].ljust(512, b"\0")


@pytest.mark.parametrize(
    "content, word",
    [
        (b"", "damaged or ends too early"),
        (b"x" * 100, "damaged or ends too early"),
        (bytes(header())[:300], "damaged or ends too early"),
        (bytes(header()), "damaged or ends too early"),
        (bytes(header()) + b"#!", "damaged or ends too early"),
        (bytes(header()) + DATA, "damaged or ends too early"),
        (b"\xff" * 2048, "damaged or ends too early"),
        (bytes(header()[:-1]) + b"x" + DATA + END, "damaged or ends too early"),
        (size_field(b"7" * 11 + b"\0") + DATA + END, "the archive has 8589934591 bytes"),
        (size_field(b"\x80" + b"\x7f" * 11) + DATA + END, "the archive has"),
        (size_field(b"\xff" * 12) + DATA + END, "the archive has -1 bytes"),
        (size_field(b"99999999999\0") + DATA + END, "damaged or ends too early"),
        (bytes(header()) + DATA + END + b"evil", "goes on after its end"),
        (bytes(header()) + DATA + END + bytes(20000), "goes on after its end"),
        (bytes(header()) + DATA + bytes(512) + bytes(header()) + DATA + END, "goes on after its end"),
        (gzip.compress(bytes(header()) + DATA + END + bytes(1000000)), "damaged or ends too early"),
    ],
    ids=range(16),
)
def test_a_damaged_archive_is_refused(tmp_path: pathlib.Path, private: pathlib.Path, content: bytes, word: str) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(NpuError, match=word):
        unpack(str(tmp_path / "x.tar"), str(private), FILES)
    assert set(watched(private)) <= {"driver", D.path}


def test_an_archive_of_real_tar_with_these_names_is_read(tmp_path: pathlib.Path, private: pathlib.Path) -> None:
    (tmp_path / "x.tar").write_bytes(bytes(header()) + DATA + END)
    unpack(str(tmp_path / "x.tar"), str(private), FILES)
    assert watched(private) == {"driver": b"folder", D.path: BODIES[D.path]}


def test_a_file_that_is_there_is_never_followed(tmp_path: pathlib.Path, private: pathlib.Path) -> None:
    (private / "Packages").symlink_to(private.parent / ".ssh/authorized_keys")
    with pytest.raises(FileExistsError):
        unpack(archive(tmp_path, GOOD[2]), str(private), FILES)
    assert (private.parent / ".ssh/authorized_keys").read_bytes() == b"mine"


def test_a_file_that_a_header_cannot_count_is_named(tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "big", "wb") as stream:
        os.ftruncate(stream.fileno(), 8 * 1024**3)
    with pytest.raises(NpuError, match="big has more than 8589934591 bytes"):
        pack({"0" * 64: str(tmp_path / "big")}, str(tmp_path / "x.tar"))
