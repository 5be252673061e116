# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The apt repository that the role configures: without a valid signature apt takes nothing from it.

The apt of this machine reads the role's own source file, in folders of its own; nothing is installed.
"""

from __future__ import annotations

import hashlib
import typing as t
from pathlib import Path

import jinja2
import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.command import run_command
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.plugins.module_utils._host.probe import Probe
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt import Apt
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Transaction

from tests.tools.paths import ROOT
from tests.unit.plugins.signing import OLD, Keys, made_keys

NAME = "npu-signature-sample"
PACKAGE = (
    "Package: %s\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: a sample\n"
    "Filename: ./a.deb\nSize: 1\nSHA256: %s\n\n" % (NAME, hashlib.sha256(b"x").hexdigest())
)
TEMPLATE = ROOT / "roles" / "rbln_driver" / "templates" / "rebellions-npu.sources.j2"
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
    """A flat repository in `folder`, its source file made from the role's template, and apt for it alone."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder, self.keys, self.key = folder, keys, folder / "key.asc"
        for name in ("repo", "parts", "trusted", "lists/partial", "archives/partial"):
            (folder / name).mkdir(parents=True)
        (folder / "status").write_text("", encoding="utf-8")
        wanted = {"rbln_driver_repository": {"url": "file:%s/repo" % folder, "suite": "./", "key": "k"}}
        # As Ansible renders a template.
        template = jinja2.Environment(trim_blocks=True).from_string(TEMPLATE.read_text(encoding="utf-8"))
        text = template.render(__rbln_driver_wanted=wanted)
        assert "Signed-By: /etc/apt/keyrings/rebellions-npu.asc" in text
        text = text.replace("/etc/apt/keyrings/rebellions-npu.asc", str(self.key))
        (folder / "parts" / "rebellions-npu.sources").write_text(text + "\n", encoding="utf-8")
        self.publish("vendor")
        self.key.write_bytes((keys.home / "vendor.asc").read_bytes())

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
