# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The manifest, a folder held against it, and all that a bundle lacks told at once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.manifest import (
    BundleFile,
    Image,
    Manifest,
    driver_file,
    examine,
    parse_manifest,
)
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.needs import (
    Needs,
    by_digest,
    header_packages,
    lacking,
    require,
)

OS = {"id": "ubuntu", "version_id": "24.04", "architecture": "x86_64"}
KERNEL = "6.8.0-45-generic"


def one(
    path: str, content: bytes = b"x", kind: str = "package", name: str = "", version: str = "", arch: str = "amd64"
) -> BundleFile:
    return BundleFile(path, len(content), hashlib.sha256(content).hexdigest(), kind, name, version, arch)


FILES = [
    one("packages/dkms_3.0.11-1_all.deb", b"dkms", name="dkms", version="3.0.11-1", arch="all"),
    one("packages/gcc_13.2.0-7_amd64.deb", b"gcc", name="gcc", version="4:13.2.0-7"),
    one(
        "packages/linux-headers-6.8.0-45-generic_6.8.0-45.45_amd64.deb",
        b"h",
        name="linux-headers-" + KERNEL,
        version="6.8.0-45.45",
    ),
    one(
        "driver/rebellions-x86_64-3.2.2.run",
        b"run",
        kind="runfile",
        name="rebellions-x86_64-3.2.2.run",
        version="3.2.2",
        arch="",
    ),
    one("Packages", b"", kind="index"),
]
IMAGES = [Image("device_plugin", "docker.io/r/p:v1", "registry.example.internal/r/p:v1", None, "skopeo: denied")]
MANIFEST = Manifest(
    "2026-11-28T04:00:00Z", "root@build", OS, "deb", "important", [KERNEL], ["dkms", "gcc"], FILES, IMAGES
)


def test_a_manifest_comes_back_as_it_was() -> None:
    again = parse_manifest(MANIFEST.dump())
    assert again.dump() == MANIFEST.dump() and again.size == 11
    assert json.loads(MANIFEST.dump())["images"][0]["digest"] is None
    assert MANIFEST.dump() == dataclasses.replace(MANIFEST, files=FILES[::-1]).dump()


def test_time_and_collector_alone_make_no_other_bundle() -> None:
    assert MANIFEST.same_content(dataclasses.replace(MANIFEST, created="later", by="another"))
    assert not MANIFEST.same_content(dataclasses.replace(MANIFEST, kernels=[]))


def broken(**change: t.Any) -> str:
    return json.dumps(dict(json.loads(MANIFEST.dump()), **change))


def with_file(**change: t.Any) -> str:
    return broken(files=[dict(dataclasses.asdict(FILES[0]), **change)])


@pytest.mark.parametrize(
    "text, word",
    [
        ("{", "is not JSON"),
        ("[]", "not a manifest of schema 1"),
        (broken(schema=2), "not a manifest of schema 1"),
        (broken(files={}), "is not a list"),
        (broken(os=[]), "is not a list, or os is not a mapping"),
        (broken(kernels=[6.8]), "is not text"),
        (broken(files=[1]), "entry of files is not a mapping"),
        (broken(files=[dataclasses.asdict(FILES[0])] * 2), "lists a file twice"),
        (broken(images=[{"name": "x", "digest": 1}]), "entry of images"),
        (broken(created=1), "created is not text"),
        (with_file(path="../etc/passwd"), "not a valid path"),
        (with_file(path="/etc/passwd"), "not a valid path"),
        (with_file(path="packages//x"), "not a valid path"),
        (with_file(path="packages/.hidden"), "not a valid path"),
        (with_file(path="a b"), "not a valid path"),
        (with_file(path=""), "not a valid path"),
        (with_file(path=None), "not a valid path"),
        (with_file(path="packages/x\n"), "not a valid path"),
        (with_file(path="packages/\x1b[2Jx"), "not a valid path"),
        (with_file(path="packages/\u202ex"), "not a valid path"),
        (with_file(path="packages/x\0"), "not a valid path"),
        (with_file(path="packages/" + "x" * 256), "not a valid path"),
        (with_file(path="/".join("abcdefghi")), "not a valid path"),
        (with_file(path="packages/../../x"), "not a valid path"),
        (with_file(path="packages\\x"), "not a valid path"),
        (with_file(path="packages/~root"), "not a valid path"),
        (with_file(path="-x"), "not a valid path"),
        (with_file(path="manifest.json"), "not a valid path"),
        (with_file(path="apt.conf"), "not a valid path"),
        (with_file(path="apt/sources.list"), "not a valid path"),
        (with_file(path="dnf/dnf.conf"), "not a valid path"),
        (with_file(size=8 * 1024**3), "size, SHA-256 or kind"),
        (with_file(size=1.0), "size, SHA-256 or kind"),
        (with_file(sha256="a" * 64 + "\n"), "size, SHA-256 or kind"),
        (with_file(name="a\nb"), "name is not text"),
        (with_file(version="\x1b]0;x\x07"), "version is not text"),
        (with_file(version="1" * 5000), "version is not text"),
        (broken(size=0, files=[{"size": 10**30}]).replace("0" * 30, "0" * 100000), "a number has 100001 digits"),
        ("[" * 200000, "is not JSON"),
        (broken(os={"id": "../../etc", "version_id": "1", "architecture": "x"}), "a value of os is not valid"),
        (broken(os={"id": "debian", "version_id": "1/2", "architecture": "x"}), "a value of os is not valid"),
        (broken(format="zip"), "format or a value of os"),
        (broken(format=["deb"]), "format"),
        (broken(kernels=["\x1b[31m"]), "a kernel or a requested package is not text"),
        (broken(requested=["x"] * 20001), "requested has more than 20000 entries"),
        (broken(images=[{"name": "x", "digest": "\x1b"}]), "entry of images"),
        (
            broken(files=[dict(dataclasses.asdict(FILES[0]), path=path) for path in ("packages/a", "packages/a/b")]),
            "a folder of packages/a/b is also a file",
        ),
        (
            broken(files=[dict(dataclasses.asdict(FILES[0]), path="x%d" % n, size=8 * 1024**3 - 1) for n in range(9)]),
            "more than 68719476736 bytes together",
        ),
        (with_file(size=-1), "size, SHA-256 or kind"),
        (with_file(size=True), "size, SHA-256 or kind"),
        (with_file(sha256="A" * 64), "size, SHA-256 or kind"),
        (with_file(kind="virus"), "size, SHA-256 or kind"),
        (with_file(name=3), "name is not text"),
    ],
)
def test_a_bad_manifest_is_refused(text: str, word: str) -> None:
    with pytest.raises(NpuError, match=word) as caught:
        parse_manifest(text, "/b/manifest.json")
    assert str(caught.value).startswith("/b/manifest.json") and "Next: Collect" in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "packages/login_4.16.0-2+really2.41.5~deb13u1_amd64.deb",
        "packages/libstdc++6_14.2.0-19_amd64.deb",
        "packages/libfoo_1%3a2_amd64.deb",
        "packages/kernel-rt-devel-5.14.0-570.12.1.el9_6.x86_64.rpm",
        "driver/rebellions-x86_64-3.2.2.run",
        "repodata/repomd.xml",
        "Packages.gz",
        "Release",
    ],
)
def test_paths_that_bundles_have(path: str) -> None:
    assert parse_manifest(with_file(path=path)).files[0].path == path


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for entry, content in zip(FILES, (b"dkms", b"gcc", b"h", b"run", b"")):
        (tmp_path / entry.path).parent.mkdir(exist_ok=True)
        (tmp_path / entry.path).write_bytes(content)
    return tmp_path


def test_a_whole_folder_is_good(folder: pathlib.Path) -> None:
    assert examine(str(folder), FILES).good


def test_every_bad_file_is_told_with_both_sizes_and_digests(folder: pathlib.Path) -> None:
    (folder / FILES[0].path).unlink()
    (folder / FILES[1].path).write_bytes(b"gcD")
    (folder / FILES[2].path).write_bytes(b"longer")
    (folder / FILES[3].path).unlink()
    os.symlink("/etc/passwd", folder / FILES[3].path)
    (folder / FILES[4].path).unlink()
    os.mkfifo(folder / FILES[4].path)
    found = examine(str(folder), FILES)
    assert found.missing == [FILES[0]] and len(found.bad) == 5
    told = found.lines()
    assert told[0] == "packages/dkms_3.0.11-1_all.deb (4 bytes, SHA-256 %s) is missing" % FILES[0].sha256
    assert told[1].endswith("is another file: it has 3 bytes, SHA-256 " + hashlib.sha256(b"gcD").hexdigest())
    assert told[2].endswith("is another file: it has 6 bytes")


@pytest.mark.parametrize(
    "version, name, path",
    [
        ("3.2.2", "", FILES[3].path),
        ("", "rebellions-x86_64-3.2.2.run", FILES[3].path),
        ("3.4.0", "", None),
        ("", "", None),
    ],
)
def test_the_installer_of_a_version(version: str, name: str, path: str | None) -> None:
    found = driver_file(MANIFEST, version, name)
    assert (found.path if found else None) == path


ALL = Needs(
    OS,
    ("3.2.2",),
    "rebellions-x86_64-3.2.2.run",
    (),
    ("dkms", "gcc=4:13.2.0-7", "gcc=13.2.0-7"),
    (KERNEL,),
    (),
    ("docker.io/r/p:v1",),
)


def test_a_bundle_with_all_of_it_lacks_nothing() -> None:
    assert lacking(MANIFEST, ALL) == []
    assert lacking(MANIFEST, dataclasses.replace(ALL, images=["registry.example.internal/r/p:v1"])) == []


@pytest.mark.parametrize(
    "reference, expected",
    [
        ("docker.io/r/p:v1", "docker.io/r/p@sha256:1"),
        ("r.example:5000/p", "r.example:5000/p@sha256:1"),
        ("r.example:5000/p:v1", "r.example:5000/p@sha256:1"),
        ("p:v1", "p@sha256:1"),
        ("docker.io/r/p@sha256:2", "docker.io/r/p@sha256:1"),
    ],
)
def test_a_reference_by_digest(reference: str, expected: str) -> None:
    assert by_digest(reference, "sha256:1") == expected


def test_an_image_that_is_asked_for_by_digest_is_found_by_the_digest_of_its_tag() -> None:
    digest = "sha256:" + "1" * 64
    image = dataclasses.replace(MANIFEST.images[0], reference="docker.io/r/p:v1", digest=digest)
    manifest = dataclasses.replace(MANIFEST, images=[image])
    for wanted, told in (
        ("docker.io/r/p@" + digest, []),
        ("docker.io/r/p@sha256:" + "2" * 64, ["images: docker.io/r/p@sha256:%s is not in its list." % ("2" * 64)]),
        ("docker.io/r/q@" + digest, ["images: docker.io/r/q@%s is not in its list." % digest]),
    ):
        assert lacking(manifest, dataclasses.replace(ALL, images=[wanted])) == told
    require(MANIFEST, ALL, "/b")


@pytest.mark.parametrize(
    "change, words",
    [
        (
            {"os": {**OS, "version_id": "22.04"}},
            ["collected for ubuntu 24.04 x86_64, but this host is ubuntu 22.04 x86_64"],
        ),
        ({"os": {**OS, "architecture": "aarch64"}}, ["this host is ubuntu 24.04 aarch64"]),
        (
            {"driver_versions": ["3.2.2", "3.4.0"]},
            ["no installer of version 3.4.0", "It has: driver/rebellions-x86_64-3.2.2.run (3 bytes, SHA-256 "],
        ),
        ({"driver_versions": [], "runfile": "other.run"}, ["no installer other.run."]),
        ({"driver_packages": ["rebellions-kmd"]}, ["driver: no package rebellions-kmd."]),
        ({"packages": ["make", "dkms"]}, ["packages: no make."]),
        ({"packages": ["gcc=12"]}, ["packages: no gcc=12. It has: packages/gcc_13.2.0-7_amd64.deb (3 bytes, SHA-256 "]),
        (
            {"kernels": ["6.8.0-99-generic"]},
            [
                (
                    "headers of kernel 6.8.0-99-generic: no linux-headers-6.8.0-99-generic. It has: "
                    "packages/linux-headers-6.8.0-45"
                )
            ],
        ),
        ({"images": ["docker.io/x:1"]}, ["images: docker.io/x:1 is not in its list"]),
    ],
)
def test_what_is_missing_is_said_with_what_is_there(change: dict[str, t.Any], words: list[str]) -> None:
    told = lacking(MANIFEST, dataclasses.replace(ALL, **change))
    assert len(told) == 1 and all(word in told[0] for word in words), told


def test_everything_is_told_in_one_error_G01_airgap_no_internet() -> None:
    needs = dataclasses.replace(ALL, driver_versions=["3.4.0"], packages=["make", "gcc"], kernels=["6.8.0-99-generic"])
    with pytest.raises(NpuError) as caught:
        require(MANIFEST, needs, "/srv/bundle")
    text = str(caught.value)
    assert text.startswith("The bundle /srv/bundle lacks 3 items that this host needs: (1) driver: ")
    assert (
        "(2) packages: no make" in text
        and "(3) headers of kernel" in text
        and text.count("SHA-256") == 2
        and "nothing was changed" in text
    )


RPMS = [
    one(
        "packages/kernel-devel-5.14.0-570.el9_6.x86_64.rpm",
        name="kernel-devel",
        version="5.14.0-570.el9_6",
        arch="x86_64",
    )
]
EL = Manifest("", "", {"id": "rhel", "version_id": "9.6", "architecture": "x86_64"}, "rpm", "none", files=RPMS)


def test_rpm_names_carry_the_kernel_and_the_minor_release_may_differ() -> None:
    needs = Needs(os={**EL.os, "version_id": "9.8"}, kernels=["5.14.0-570.el9_6.x86_64"])
    assert lacking(EL, needs) == [
        "headers of kernel 5.14.0-570.el9_6.x86_64: no kernel-headers-5.14.0-570.el9_6.x86_64."
    ]
    assert lacking(EL, Needs(os={**EL.os, "version_id": "10.0"}))[0].startswith("it was collected for rhel 9.6")


# `uname -r` of kernels of the RHEL family, and what `dnf repoquery` calls the packages with their headers.
@pytest.mark.parametrize(
    "system, kernel, names",
    [
        (
            "rhel",
            "5.14.0-570.el9_6.x86_64",
            ["kernel-devel-5.14.0-570.el9_6.x86_64", "kernel-headers-5.14.0-570.el9_6.x86_64"],
        ),
        (
            "rocky",
            "5.14.0-570.12.1.el9_6.x86_64+rt",
            ["kernel-rt-devel-5.14.0-570.12.1.el9_6.x86_64", "kernel-headers-5.14.0-570.12.1.el9_6.x86_64"],
        ),
        (
            "rhel",
            "5.14.0-570.12.1.el9_6.aarch64+64k",
            ["kernel-64k-devel-5.14.0-570.12.1.el9_6.aarch64", "kernel-headers-5.14.0-570.12.1.el9_6.aarch64"],
        ),
        (
            "rhel",
            "5.14.0-570.el9_6.x86_64+rt-debug",
            ["kernel-rt-debug-devel-5.14.0-570.el9_6.x86_64", "kernel-headers-5.14.0-570.el9_6.x86_64"],
        ),
        (
            "rhel",
            "5.14.0-284.11.1.rt14.296.el9_2.x86_64",
            ["kernel-rt-devel-5.14.0-284.11.1.rt14.296.el9_2.x86_64", "kernel-headers"],
        ),
        ("ol", "5.15.0-310.184.5.el9uek.x86_64", ["kernel-uek-devel-5.15.0-310.184.5.el9uek.x86_64", "kernel-headers"]),
        ("ol", "5.14.0-570.12.1.0.1.el9_6.x86_64", ["kernel-devel-5.14.0-570.12.1.0.1.el9_6.x86_64", "kernel-headers"]),
    ],
)
def test_header_packages_of_the_kernels_of_enterprise_linux(system: str, kernel: str, names: list[str]) -> None:
    assert header_packages("rpm", kernel, (), system) == names
    plain, _dash, release = names[0].partition("-devel-")
    version, _dot, arch = release.rpartition(".")
    files = [
        one("packages/a.rpm", name=plain + "-devel", version=version, arch=arch),
        one("packages/b.rpm", name="kernel-headers", version="1", arch=arch),
    ]
    bundle = dataclasses.replace(EL, os={**EL.os, "id": system}, files=files)
    told = [] if names[1] == "kernel-headers" else ["headers of kernel %s: no %s." % (kernel, names[1])]
    assert [line.partition(" It has")[0] for line in lacking(bundle, Needs(kernels=[kernel]))] == told


def test_header_packages() -> None:
    assert header_packages("deb", KERNEL) == ["linux-headers-" + KERNEL]
    assert header_packages("deb", "1", ["a-{kernel}", "b-{kernel}-c"]) == ["a-1", "b-1-c"]
    with pytest.raises(NpuError, match="has no .kernel. for"):
        header_packages("deb", KERNEL, ["linux-headers"])
