# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The apt repository that the role configures: without a valid signature apt takes nothing from it.

The apt of this machine reads the role's own source file, in folders of its own; nothing is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.command import run_command
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.probe import VALUE, Completed, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt import Apt
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Transaction
from ansible_collections.rebellions.npu.plugins.module_utils._packages.keys import certificates
from ansible_collections.rebellions.npu.plugins.module_utils._packages.repository import Placed, Wanted, place

from tests.tools.paths import ROOT
from tests.unit.plugins.signing import OLD, Keys, made_keys

NAME = "npu-signature-sample"
PACKAGE = (
    "Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: a sample\n"
    "Filename: ./a.deb\nSize: 1\nSHA256: %s\n\n" % (NAME, hashlib.sha256(b"x").hexdigest())
)
H07 = ROOT / "tests" / "unit" / "fixtures" / "facts" / "cases" / "H07-apt-signed-by-conflict"
# What an administrator may have allowed for other repositories of the host.
CARELESS = (
    "Acquire::AllowInsecureRepositories=true",
    "Acquire::AllowWeakRepositories=true",
    "Acquire::AllowDowngradeToInsecureRepositories=true",
    "APT::Get::AllowUnauthenticated=true",
)
FAULTS = (
    "no signature",
    "no key",
    "empty key",
    "another key",
    "expired key",
    "revoked key",
    "truncated signature",
    "signature of another file",
    "changed index",
)


@pytest.fixture(name="keys", scope="module")
def keys_fixture() -> t.Iterator[Keys]:
    with made_keys() as keys:
        yield keys


class Repository:
    """A flat repository in `folder`, its source and key as the module places them, and apt for it alone."""

    def __init__(self, folder: Path, keys: Keys, key: bytes = b"") -> None:
        self.folder, self.keys, self.key = folder, keys, folder / "key.asc"
        for name in ("repo", "parts", "trusted", "lists/partial", "archives/partial", "host"):
            (folder / name).mkdir(parents=True)
        (folder / "status").write_text("", encoding="utf-8")
        found = certificates(key or (keys.home / "vendor.asc").read_bytes(), "key")
        away = Host(str(folder / "host"), runner=lambda *_given: Probe(VALUE, Completed(0, "", "")))
        place(Apt(away), Wanted("file:%s/repo" % folder, "./", ["main"], found), False)
        text = (folder / "host" / Apt.own_file[1:]).read_text(encoding="utf-8")
        assert "Signed-By: /etc/apt/keyrings/rebellions-npu.asc" in text
        text = text.replace("/etc/apt/keyrings/rebellions-npu.asc", str(self.key))
        (folder / "parts" / "rebellions-npu.sources").write_text(text, encoding="utf-8")
        self.publish("vendor")
        self.key.write_bytes((folder / "host" / Apt.own_key[1:]).read_bytes())

    def publish(self, user: str, then: str = "", index: str = PACKAGE) -> None:
        repo = self.folder / "repo"
        (repo / "Packages").write_text(index, encoding="utf-8")
        raw = index.encode()
        release = "Suite: ./\nArchitectures: all amd64\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n %s %d Packages\n"
        (repo / "Release").write_text(release % (hashlib.sha256(raw).hexdigest(), len(raw)), encoding="utf-8")
        out = ["--yes", "--local-user", user + "@example.com", "--output", str(repo / "InRelease")]
        self.keys.gpg(*out, "--clear-sign", str(repo / "Release"), then=then)

    def spoil(self, fault: str) -> None:
        repo, home = self.folder / "repo", self.keys.home
        signed = repo / "InRelease"
        if fault == "no signature":
            signed.unlink()
        elif fault == "no key":
            self.key.unlink()
        elif fault == "empty key":
            self.key.write_bytes(b"")
        elif fault == "another key":
            self.publish("other")
        elif fault == "expired key":
            self.publish("old", OLD)
            self.key.write_bytes((home / "old.asc").read_bytes())
        elif fault == "revoked key":
            self.publish("revoked")
            self.key.write_bytes((home / "ring.asc").read_bytes())
        elif fault == "truncated signature":
            signed.write_bytes(signed.read_bytes()[:-60])
        elif fault == "signature of another file":
            signed.write_bytes(signed.read_bytes().replace(b"Suite: ./", b"Suite: .//"))
        else:
            assert fault == "changed index"
            (repo / "Packages").write_text(PACKAGE.replace("Version: 1.0", "Version: 9.0"), encoding="utf-8")

    def apt(self, settings: t.Sequence[str] = ()) -> Apt:
        places = {
            "Dir::Etc::sourcelist": "/dev/null",
            "Dir::Etc::sourceparts": self.folder / "parts",
            "Dir::Etc::trusted": "/dev/null",
            "Dir::Etc::trustedparts": self.folder / "trusted",
            "Dir::State::lists": self.folder / "lists",
            "Dir::State::status": self.folder / "status",
            "Dir::State::extended_states": self.folder / "extended",
            "Dir::Cache::archives": self.folder / "archives",
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
            "APT::Sandbox::User": "root",
            "Debug::NoLocking": "true",
        }
        options = [word for one in [*("%s=%s" % item for item in places.items()), *settings] for word in ("-o", one)]

        def runner(argv: t.Sequence[str], *rest: t.Any) -> Probe:
            # A change runs below a program that limits its time.
            at = next((number for number, word in enumerate(argv) if word in ("apt-get", "apt-cache")), len(argv))
            return run_command([*argv[: at + 1], *(options if at < len(argv) else []), *argv[at + 1 :]], *rest)

        apt = Apt(Host(runner=runner), 60.0)
        # The role's source, which is elsewhere here.
        apt.own_file = apt.own_source = str(self.folder / "parts" / "rebellions-npu.sources")
        return apt


@pytest.fixture(name="repository")
def repository_fixture(tmp_path: Path, keys: Keys) -> Repository:
    return Repository(tmp_path, keys)


def simulated(apt: Apt) -> list[tuple[str, str | None]]:
    return [(one.name, one.new) for one in apt.simulate(Transaction(install=[NAME]))]


@pytest.mark.parametrize("settings", [(), CARELESS], ids=["", "careless host"])
def test_a_signed_repository_is_used(repository: Repository, settings: tuple[str, ...]) -> None:
    assert simulated(repository.apt(settings)) == [(NAME, "1.0")]


def test_each_form_of_a_key_is_one_that_apt_takes(tmp_path: Path, keys: Keys) -> None:
    """Binary, Windows lines, and several keys of which the last has signed: apt reads one armoured block only."""
    armour, other = ((keys.home / name).read_bytes() for name in ("vendor.asc", "other.asc"))
    binary = subprocess.run(["gpg", "--dearmor"], input=armour, capture_output=True, check=True).stdout
    forms = {"binary": binary, "windows": armour.replace(b"\n", b"\r\n"), "two": other + b"\n" + armour}
    for name, content in forms.items():
        assert simulated(Repository(tmp_path / name, keys, content).apt()) == [(NAME, "1.0")], name


def test_a_release_that_is_no_longer_served_has_a_remedy_of_its_own(repository: Repository) -> None:
    for name in ("Release", "InRelease"):
        (repository.folder / "repo" / name).unlink()
    with pytest.raises(NpuError, match="does not have a Release file") as caught:
        simulated(repository.apt())
    assert caught.value.next_step.startswith("Correct address and suite of this source.")


class Sources:
    """The sources of a host below `root`, read by the real apt; its apt.conf is that of this machine."""

    def __init__(self, root: Path, keys: Keys) -> None:
        self.root = root
        for name in ("etc/apt/sources.list.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "bin"):
            (root / name).mkdir(parents=True)
        (root / "var/lib/dpkg").mkdir()
        (root / "var/lib/dpkg/status").write_text("", encoding="utf-8")
        (root / "bin/sh").write_bytes(Path("/bin/sh").resolve().read_bytes()[:64])
        self.key, self.other = ((keys.home / name).read_bytes() for name in ("vendor.asc", "other.asc"))
        self.apt = Apt(Host(str(root), runner=self._run), 60.0)

    def _run(self, argv: t.Sequence[str], *rest: t.Any) -> Probe:
        where = ["-o", "Dir=%s" % self.root, "-o", "Dir::State::status=%s/var/lib/dpkg/status" % self.root]
        return run_command([argv[0], *where, *argv[1:]], *rest)

    def write(self, path: str, content: bytes) -> None:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def place(self, suite: str = "stable") -> Placed:
        return place(
            self.apt, Wanted("https://mirror.example/rbln", suite, ["main"], certificates(self.key, "")), False
        )

    def read(self) -> Completed:
        return t.cast(Completed, self.apt.host.run(["apt-get", "--print-uris", "update"], 30.0).value)

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.root / "etc/apt").rglob("*") if path.is_file())


LIST, RING = "/etc/apt/sources.list.d/rebellions.list", "/usr/share/keyrings/rebellions.gpg"


@pytest.fixture(name="sources")
def sources_fixture(tmp_path: Path, keys: Keys) -> Sources:
    return Sources(tmp_path, keys)


def test_H07_apt_itself_says_what_the_remedy_names_both_files_for(sources: Sources) -> None:
    for name in ("rebellions.list", "rebellions-npu.sources"):
        sources.write("/etc/apt/sources.list.d/" + name, (H07 / "sources.list.d" / name).read_bytes())
    done = sources.read()
    assert done.rc == 100 and "Conflicting values set for option Signed-By" in done.err
    error = sources.apt.failure(["apt-get"], done)
    assert LIST + " line 1" in error.next_step and Apt.own_file + " line 2" in error.next_step


def test_H07_the_sources_of_a_host_are_read_before_and_after(sources: Sources) -> None:
    text = (H07 / "sources.list.d" / "rebellions.list").read_bytes()
    sources.write(LIST, text)
    sources.write(RING, sources.other)
    with pytest.raises(NpuError, match="rebellions.list line 1 has this repository with another key"):
        sources.place()
    assert sources.names() == ["rebellions.list"] and sources.read().rc == 0
    # The same key, and our own file from an earlier run: apt reads nothing until that goes.
    sources.write(RING, sources.key)
    sources.write(Apt.own_file, (H07 / "sources.list.d" / "rebellions-npu.sources").read_bytes())
    assert sources.read().rc == 100
    assert sources.place()[:2] == (LIST, True)
    assert sources.names() == ["rebellions-npu.asc", "rebellions.list"]
    done = sources.read()
    assert done.rc == 0 and done.out.startswith("'https://mirror.example/rbln/dists/stable/InRelease'")
    assert sources.place().changes == []


def test_H07_a_conflict_that_only_apt_sees_takes_our_source_away_again(sources: Sources) -> None:
    """apt replaces $(ARCH) in a suite."""
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
    sources.write(LIST, b"deb [signed-by=/x.gpg] https://mirror.example/rbln stable/$(ARCH)/\n")
    with pytest.raises(
        NpuError, match="Conflicting values set for option Signed-By.*The sources of the host are as before"
    ):
        sources.place("stable/%s/" % arch)
    assert sources.names() == ["rebellions.list"] and sources.read().rc == 0


def test_sources_that_were_broken_before_are_named_and_left(sources: Sources) -> None:
    sources.write("/etc/apt/sources.list.d/site.list", b"deb https://a.example\n")
    with pytest.raises(NpuError, match="site.list.*Next: Correct the named file"):
        sources.place()
    assert sources.names() == ["site.list"]


@pytest.mark.parametrize("settings", [(), CARELESS], ids=["", "careless host"])
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_taken_without_a_valid_signature(
    repository: Repository, fault: str, settings: tuple[str, ...]
) -> None:
    repository.spoil(fault)
    with pytest.raises(NpuError) as caught:
        simulated(repository.apt(settings))
    assert NAME in caught.value.message
    remedies = {
        "changed index": "Run apt-get update again, or purge the cache of the proxy",
    }
    assert caught.value.next_step.startswith(
        remedies.get(fault, "Install the key of the repository, or correct Signed-By")
    )
    left = {path.name for path in (repository.folder / "lists").iterdir() if path.is_file()}
    assert not {name for name in left if name.endswith("Packages")}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_verified_before_is_not_replaced(repository: Repository, fault: str) -> None:
    """A repository that loses its signature cannot bring another package to a host that knows it."""
    assert simulated(repository.apt(CARELESS)) == [(NAME, "1.0")]
    repository.publish("vendor", index=PACKAGE.replace("Version: 1.0", "Version: 2.0"))
    repository.spoil(fault)
    apt = repository.apt(CARELESS)
    for source in ("", apt.own_source):
        with pytest.raises(NpuError):
            apt.refresh(source)
    assert simulated(apt) == [(NAME, "1.0")]


@pytest.mark.parametrize("fault", ["no signature", "no key", "empty key", "another key", "expired key", "revoked key"])
def test_lists_that_somebody_has_read_without_a_signature_give_no_package(
    repository: Repository, fault: str, tmp_path: Path
) -> None:
    """An unattended apt-get update of a careless host has read them before."""
    repository.spoil(fault)
    apt = repository.apt(CARELESS)
    assert apt.host.run(["apt-get", "update"], 30.0).value.rc == 0
    assert simulated(apt) == [(NAME, "1.0")]
    with pytest.raises(NpuError, match="cannot be authenticated") as caught:
        apt.download(["%s=1.0" % NAME], str(tmp_path / "kept"))
    assert caught.value.next_step.startswith("Install the key of the repository")
    assert not list((tmp_path / "kept").glob("*.deb"))
