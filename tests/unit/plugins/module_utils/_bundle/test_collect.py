# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Downloads on a connected host.

apt's words were recorded on Debian 13; those of dnf, rpmkeys and skopeo are forms from their manuals.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import typing as t

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._bundle.collect import (
    collect_deb,
    collect_rpm,
    deb_name,
    image_digests,
    plan_deb,
)
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Completed, Host, Probe

DEB = b"a package"
SHA = hashlib.sha256(DEB).hexdigest()
NAME = "login_1%3a4.16.0-2_amd64.deb"
URIS = "Reading package lists...\n'http://deb.example.com/pool/main/%s' %s %d SHA256:%s\n" % (NAME, NAME, len(DEB), SHA)
CONTROL = "Package: login\nVersion: 1:4.16.0-2\nArchitecture: amd64\nDescription: system login tools\n"
UNKNOWN = """E: Unable to locate package nonexist
E: Unable to locate package linux-headers-9.9
E: Couldn't find any package by glob 'linux-headers-9.9'
E: Couldn't find any package by regex 'linux-headers-9.9'
"""
UNTRUSTED = """Err:1 http://deb.example.com trixie InRelease
  Sub-process /usr/bin/sqv returned an error code (1), error message is: Missing key
E: The repository 'http://deb.example.com trixie InRelease' is not signed.
"""


class Apt:
    """Answers of the programs by words of their command lines; a download writes what it is told to."""

    def __init__(self, answers: dict[str, Probe], content: bytes = DEB) -> None:
        self.answers = answers
        self.content = content
        self.calls: list[list[str]] = []

    def __call__(self, argv: t.Sequence[str], timeout: float, env: t.Mapping[str, str] | None = None) -> Probe:
        self.calls.append(list(argv))
        if "--download-only" in argv:
            folder = next(word for word in argv if word.startswith("Dir::Cache::archives=")).split("=", 1)[1]
            with open(os.path.join(folder, NAME), "wb") as stream:
                stream.write(self.content)
        for word, answer in self.answers.items():
            if word in argv:
                return answer
        return Probe("value", Completed(0, "", ""))


def said(out: str, rc: int = 0, err: str = "") -> Probe:
    return Probe("value", Completed(rc, out, err))


def machine(tmp_path: pathlib.Path, runner: Apt) -> Host:
    status = tmp_path / "root/var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(
        "Package: tar\nStatus: install ok installed\nPriority: required\nArchitecture: amd64\nVersion: 1.35\n"
    )
    return Host(str(tmp_path / "root"), runner)


def test_apt_works_in_a_folder_of_its_own_and_verifies(tmp_path: pathlib.Path) -> None:
    apt = Apt({"--print-uris": said(URIS), "dpkg-deb": said(CONTROL)})
    work = tmp_path / "work"
    rows = collect_deb(machine(tmp_path, apt), str(work), ["login"], "required", 60)
    assert [(row["path"], row["size"], row["sha256"], row["name"], row["version"]) for row in rows] == [
        ("packages/login_4.16.0-2_amd64.deb", len(DEB), SHA, "login", "1:4.16.0-2")
    ]
    assert rows[0]["kind"] == "package"
    assert (
        work / "status"
    ).read_text() == "Package: tar\nStatus: install ok installed\nPriority: required\nArchitecture: amd64\nVersion: 0\n"
    calls = [call for call in apt.calls if call[0] == "apt-get"]
    acts = ["update", "--print-uris", "--download-only"]
    assert [next(word for word in acts if word in call) for call in calls] == acts
    for call in calls:
        for setting in ("Dir::State::status", "Dir::State::lists", "Dir::Cache::archives"):
            assert [word for word in call if word.startswith("%s=%s" % (setting, work))], setting
        assert {"APT::Get::AllowUnauthenticated=false", "Acquire::AllowInsecureRepositories=false"} <= set(call)
    # apt leaves out of its answer what it finds in the archives: the question is put over an empty folder.
    assert (
        "Dir::Cache::archives=%s/nothing" % work in calls[1] and "Dir::Cache::archives=%s/archives" % work in calls[2]
    )


def test_kept_downloads_that_do_not_belong_go(tmp_path: pathlib.Path) -> None:
    archives = tmp_path / "work/archives"
    archives.mkdir(parents=True)
    (archives / "old_1_all.deb").write_bytes(b"old")
    (archives / NAME).write_bytes(b"half a pa")
    apt = Apt({"--print-uris": said(URIS), "dpkg-deb": said(CONTROL)})
    collect_deb(machine(tmp_path, apt), str(tmp_path / "work"), ["login"], "none", 60)
    assert sorted(path.name for path in archives.glob("*.deb")) == [NAME] and (archives / NAME).read_bytes() == DEB


@pytest.mark.parametrize(
    "answers, content, words",
    [
        ({"--print-uris": said("", 100, UNKNOWN)}, DEB, ["has linux-headers-9.9, nonexist.", "EPEL"]),
        ({"update": said("", 100, UNTRUSTED)}, DEB, ["failed to read the package lists", "is not signed"]),
        (
            {"update": Probe("timeout", None, "apt-get gave no answer in 60 s")},
            DEB,
            ["gave no answer", "raise the timeout"],
        ),
        (
            {"apt-get": Probe("absent", None, "No such file or directory")},
            DEB,
            ["apt-get failed to", "supported system"],
        ),
        (
            {"--print-uris": said(URIS), "--download-only": said("", 100, "E: Failed to fetch x  404")},
            DEB,
            ["failed to download", "404"],
        ),
        (
            {"--print-uris": said(URIS), "dpkg-deb": said(CONTROL)},
            b"A package",
            ["differs from the file in the repository"],
        ),
        ({"--print-uris": said(URIS), "dpkg-deb": said("Package: login\n")}, DEB, ["is not a package"]),
    ],
)
def test_what_goes_wrong_is_said(
    tmp_path: pathlib.Path, answers: dict[str, Probe], content: bytes, words: list[str]
) -> None:
    with pytest.raises(NpuError) as caught:
        collect_deb(machine(tmp_path, Apt(answers, content)), str(tmp_path / "work"), ["login"], "none", 60)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_nothing_asked_for_is_nothing(tmp_path: pathlib.Path) -> None:
    assert plan_deb(machine(tmp_path, Apt({})), str(tmp_path / "work"), [], "none", 60) == []


def test_the_epoch_is_not_in_a_file_name() -> None:
    assert deb_name({"Package": "a", "Version": "1:2:3-4+b1~x", "Architecture": "all"}) == "a_2:3-4+b1~x_all.deb"


class Dnf(Apt):
    """dnf download writes two packages, createrepo_c an index."""

    def __call__(self, argv: t.Sequence[str], timeout: float, env: t.Mapping[str, str] | None = None) -> Probe:
        if argv[0] == "dnf":
            folder = argv[list(argv).index("--destdir") + 1]
            for name in ("make-4.3-8.el9.x86_64.rpm", "dkms-3.1.5-1.el9.noarch.rpm"):
                pathlib.Path(folder, name).write_bytes(name.encode())
        if argv[0] == "createrepo_c" and "--version" not in argv:
            pathlib.Path(argv[-1], "repodata").mkdir()
            pathlib.Path(argv[-1], "repodata/repomd.xml").write_text("<repomd/>")
        return super().__call__(argv, timeout, env)


QUERY = "dkms\t3.1.5-1.el9\tnoarch\nmake\t1:4.3-8.el9\tx86_64\n"


def test_dnf_resolves_all_and_signatures_are_checked(tmp_path: pathlib.Path) -> None:
    dnf = Dnf({"-qp": said(QUERY)})
    rows = collect_rpm(Host(str(tmp_path), dnf), str(tmp_path / "work"), ["dkms", "make"], 60)
    assert [(row["kind"], row["path"], row["name"]) for row in rows] == [
        ("package", "packages/dkms-3.1.5-1.el9.noarch.rpm", "dkms"),
        ("package", "packages/make-4.3-8.el9.x86_64.rpm", "make"),
        ("index", "repodata/repomd.xml", ""),
    ]
    assert [call[0] for call in dnf.calls] == ["dnf", "rpmkeys", "rpm", "createrepo_c", "createrepo_c"]
    assert {"--resolve", "--alldeps", "--destdir"} <= set(dnf.calls[0]) and "--checksig" in dnf.calls[1]


@pytest.mark.parametrize(
    "answers, word",
    [
        (
            {"dnf": said("", 1, "No package dkms available.\nError: No packages found")},
            "No repository of this host has dkms",
        ),
        # dnf 5, and what dnf 4 says of a kernel whose repository is not enabled.
        (
            {"dnf": said("", 1, "No match for argument: kernel-rt-devel-5.14.0-570.el9.x86_64\n")},
            "has kernel-rt-devel-5.14.0-570.el9.x86_64.*kernel-rt from",
        ),
        (
            {"dnf": said("", 1, "No package kernel-uek-devel-5.15.0-310.el9uek.x86_64 available.\n")},
            "has kernel-uek-devel-5.15.0-310.el9uek.x86_64",
        ),
        ({"rpmkeys": said("dkms-3.1.5-1.el9.noarch.rpm: digests SIGNATURES NOT OK\n", 1)}, "SIGNATURES NOT OK"),
        ({"-qp": said(QUERY), "createrepo_c": Probe("absent", None, "No such file")}, "dnf install createrepo_c"),
    ],
)
def test_what_goes_wrong_with_dnf_is_said(tmp_path: pathlib.Path, answers: dict[str, Probe], word: str) -> None:
    with pytest.raises(NpuError, match=word):
        collect_rpm(Host(str(tmp_path), Dnf(answers)), str(tmp_path / "work"), ["dkms"], 60)


DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    "reference, answers, digest, reason",
    [
        ("docker.io/r/p@" + DIGEST, {}, DIGEST, ""),
        ("docker.io/r/p:1", {"skopeo": said(DIGEST + "\n")}, DIGEST, ""),
        ("docker.io/r/p:1", {"skopeo": Probe("absent"), "crane": said(DIGEST + "\n")}, DIGEST, ""),
        (
            "docker.io/r/p:1",
            {"skopeo": Probe("absent"), "crane": Probe("absent")},
            None,
            "neither skopeo nor crane is installed on the host",
        ),
        (
            "docker.io/r/p:1",
            {"skopeo": said("", 1, "FATA[0001] unauthorized"), "crane": Probe("absent")},
            None,
            "skopeo: FATA[0001] unauthorized",
        ),
        (
            "docker.io/r/p:1",
            {"skopeo": Probe("timeout", None, "no answer"), "crane": Probe("absent")},
            None,
            "skopeo: no answer",
        ),
        ("docker.io/r/p:1", {"skopeo": said("<none>"), "crane": Probe("absent")}, None, "skopeo: no digest"),
    ],
)
def test_a_digest_that_nobody_knows_is_null(
    reference: str, answers: dict[str, Probe], digest: str | None, reason: str
) -> None:
    image = {"name": "p", "reference": reference, "target": ""}
    assert image_digests(Host("/", Apt(answers)), [image]) == [dict(image, digest=digest, reason=reason)]
