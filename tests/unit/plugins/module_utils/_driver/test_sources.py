# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a driver is installed from: files, an installer that only unpacks, packages of a repository, what is kept."""

from __future__ import annotations

import os
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._driver import sources as parts
from ansible_collections.rebellions.npu.plugins.module_utils._driver.material import material_of
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import Request
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import KMD, STATE, UTC, Machine, memory
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree

INNER = {
    "sub/rebellions-kmd_3.4.0.deb": "package rebellions-kmd 3.4.0\n",
    "librbln_3.4.0.deb": "package librbln 3.4.0\n",
    "notes.txt": "x",
}


@pytest.fixture(name="machine")
def machine_fixture() -> t.Iterator[Machine]:
    with memory() as path:
        yield Machine(path / "root")


def made(machine: Machine, manager: bool = True, **keys: t.Any) -> parts.Parts:
    return parts.Parts(machine.host, machine.profile, Request(**keys), machine.manager if manager else None)


# -- packages that are here

DPKG = """Package: rebellions-kmd
Status: install ok half-configured
Architecture: amd64
Version: 3.2.2

Package: librbln
Status: hold ok installed
Architecture: amd64
Version: 3.2.2-1

Package: rebellions-tools
Status: deinstall ok config-files
Architecture: amd64
Version: 3.1.0

Package: dpkg
Status: install ok installed
Architecture: amd64
Version: 1.22
"""


def test_packages_that_are_half_there_count_and_those_that_left_their_configuration_do_not(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/var/lib/dpkg/status", DPKG)
    assert parts.vendor_packages(tree.host(), PROFILE) == {"rebellions-kmd": "3.2.2", "librbln": "3.2.2-1"}


def test_no_database_is_no_package_and_one_that_cannot_be_asked_is_an_error(tmp_path: Path) -> None:
    tree = Tree(tmp_path).folder("/etc")
    assert parts.vendor_packages(tree.host(), PROFILE) == {}
    tree.write("/var/lib/rpm/rpmdb.sqlite", "x")
    host = Host(str(tmp_path), lambda *arguments: Probe(VALUE, Completed(1, "", "db error")))
    with pytest.raises(
        NpuError, match="^The installed packages cannot be read: rpm -qa ended with 1: db error. Next: Run as root.$"
    ):
        parts.vendor_packages(host, PROFILE)


@pytest.mark.parametrize(
    "name, patterns, fits",
    [
        ("librbln1", ["librbln*"], True),
        ("librbln1", ["rbln*"], False),
        ("a", [], False),
        ("A", ["a"], False),
        ("x", ["a", "x"], True),
    ],
)
def test_patterns(name: str, patterns: list[str], fits: bool) -> None:
    assert parts.matches(name, patterns) is fits


# -- what to install from


def test_an_installer_that_is_run_is_not_simulated(machine: Machine) -> None:
    files = machine.runfile("3.4.0")
    found, changes = made(
        machine, files=files, version="3.4.0", arguments=["--silent"], uninstall=["--uninstall"], names=["x"]
    ).material()
    assert (found.source, found.version, found.files, found.arguments, found.uninstall) == (
        "runfile",
        "3.4.0",
        files,
        ["--silent"],
        ["--uninstall"],
    )
    assert (changes, machine.asked) == ([], [])


class Unpacker:
    """Runs an installer whose only act is to fill the directory that it is given."""

    def __init__(self, machine: Machine, content: t.Mapping[str, str]) -> None:
        self.machine, self.content, self.calls = machine, content, []  # type: ignore[var-annotated]
        machine.host._runner = self.run

    def run(
        self,
        argv: t.Sequence[str],
        timeout: float,
        env: t.Any = None,
        cwd: t.Any = None,
        pass_fds: t.Sequence[int] = (),
    ) -> Probe:
        if argv[0].endswith("-installer/try"):
            return Probe(VALUE, Completed(0, "", ""))
        assert stat.S_IMODE(os.stat(env["TMPDIR"]).st_mode) == 0o700
        self.calls.append(list(argv[1:]))
        directory = Path(argv[-1].partition("=")[2])
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and os.listdir(directory) == []
        for name, text in self.content.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(text, encoding="utf-8")
        return Probe(VALUE, Completed(0, "", ""))


@pytest.mark.parametrize(
    "patterns, names", [([], ["librbln", "rebellions-kmd"]), (["rebellions-*"], ["rebellions-kmd"])]
)
def test_packages_in_an_installer_are_simulated_and_installed_by_the_package_manager(
    machine: Machine, patterns: list[str], names: list[str]
) -> None:
    unpacker = Unpacker(machine, INNER)
    work = made(
        machine,
        files=machine.runfile("3.4.0"),
        version="3.4.0",
        extract=["--noexec", "--target={directory}"],
        packages=patterns,
    )
    for _again in range(2):
        found, changes = work.material()
        assert (found.source, found.arguments, found.uninstall) == ("package", (), ())
        assert sorted(change.name for change in changes) == names
        assert sorted(os.path.basename(item["path"]).partition("_")[0] for item in found.files) == names
    directory = machine.host.real(machine.profile.runfile_stamp_dir) + "/incoming/extracted"
    assert unpacker.calls == [["--noexec", "--target=" + directory]] * 2
    work.install(found)
    assert machine.packages == dict.fromkeys(names, "3.4.0")


@pytest.mark.parametrize("content, patterns", [({}, []), ({"a.rpm": "x"}, []), (INNER, ["nothing-*"])])
def test_an_installer_that_unpacks_nothing_that_fits_is_refused(
    machine: Machine, content: dict[str, str], patterns: list[str]
) -> None:
    Unpacker(machine, content)
    work = made(machine, files=machine.runfile("3.4.0"), extract=["--target={directory}"], packages=patterns)
    with pytest.raises(NpuError, match="^The runfile contains no matching .deb package."):
        work.material()


def test_packages_need_a_package_manager(machine: Machine) -> None:
    with pytest.raises(
        NpuError,
        match="^This host has neither a dpkg nor an rpm database. Next: Use a runfile that needs no package manager.$",
    ):
        made(machine, manager=False, source="package", names=["a"]).material()
    work = made(machine, manager=False, files=machine.runfile("3.4.0"), version="3.4.0")
    work.install(work.material()[0])
    assert (machine.on_disk, machine.acts) == ("3.4.0", ["run 3.4.0"])


def test_names_and_files_are_installed_together(machine: Machine) -> None:
    machine.repository.update(["%s=3.4.0-1" % KMD, "%s=3.2.2-1" % KMD])
    work = made(machine, source="package", version="3.4.0", names=[KMD], files=machine.debs("3.4.0", "librbln"))
    found, changes = work.material()
    assert [(change.name, change.new) for change in changes] == [(KMD, "3.4.0-1"), ("librbln", "3.4.0")]
    assert [os.path.basename(item["path"]) for item in found.files] == [
        "librbln_3.4.0.deb",
        "rebellions-kmd_3.4.0-1.deb",
    ]
    assert machine.acts == ["download %s=3.4.0-1" % KMD]


@pytest.mark.parametrize("name", ["%s=3.2.2-1" % KMD])
def test_a_name_with_a_version_is_taken_as_it_is(machine: Machine, name: str) -> None:
    machine.repository.add(name)
    assert [change.new for change in made(machine, source="package", version="3.4.0", names=[name]).simulate()] == [
        "3.2.2-1"
    ]


def test_a_file_that_was_damaged_since_is_not_installed(machine: Machine) -> None:
    work = made(machine, source="package", files=machine.debs("3.4.0"))
    found, _changes = work.material()
    Path(found.files[0]["path"]).write_text("package rebellions-kmd 6.6.6\n", encoding="utf-8")
    with pytest.raises(NpuError, match="rebellions-kmd_3.4.0.deb is damaged. Next: Transfer the files again.$"):
        work.install(found)
    assert machine.packages == {}


# -- what is kept


def test_a_kept_driver_is_installed_as_it_was(machine: Machine) -> None:
    work = made(
        machine, files=machine.runfile("3.4.0"), version="3.4.0", arguments=["--silent"], uninstall=["--uninstall"]
    )
    machine.put("3.4.0")
    kept = work.keep(work.material()[0], UTC)
    work.clear_incoming()
    assert not machine.tree.real(STATE + "/incoming").exists()
    again = material_of(t.cast(t.Any, work.kept("3.4.0")))
    assert (again.source, again.version, again.arguments, again.uninstall) == (
        "runfile",
        "3.4.0",
        ["--silent"],
        ["--uninstall"],
    )
    assert again.files == [{"path": kept.path + "/rebellions-3.4.0.run", "sha256": kept.files[0]["sha256"]}]
    assert (kept.packages, kept.time) == ([{"name": KMD, "version": "3.4.0"}], UTC)
    machine.on_disk = None
    work.put_back(again, [KMD])
    assert machine.on_disk == "3.4.0"


@pytest.mark.parametrize(
    "wanted, found",
    [("3.4.0", "3.4.0"), ("3.4.0-rebel1", "3.4.0"), ("3.4", "3.4.0"), ("3.4.1", None), (None, None), ("", None)],
)
def test_a_kept_driver_is_found_by_its_version_or_release(
    machine: Machine, wanted: str | None, found: str | None
) -> None:
    work = made(machine, files=machine.runfile("3.4.0"), version="3.4.0")
    work.keep(work.material()[0], UTC)
    assert getattr(work.kept(wanted), "version", None) == found


def test_the_very_version_comes_before_the_same_release(machine: Machine) -> None:
    for version, time in (("3.4.0", "2026-01-01T00:00:00Z"), ("3.4.0-rebel2", "2026-02-01T00:00:00Z")):
        work = made(machine, files=machine.runfile(version), version=version)
        work.keep(work.material()[0], time)
    assert [t.cast(t.Any, work.kept(version)).version for version in ("3.4.0", "3.4.0-rebel2", "3.4.0-x")] == [
        "3.4.0",
        "3.4.0-rebel2",
        "3.4.0-rebel2",
    ]


def test_installed_packages_are_kept_where_a_repository_has_them(machine: Machine) -> None:
    machine.repository.update(["%s=3.2.2" % KMD, "librbln=3.2.2-1"])
    work = made(machine)
    assert work.keep_installed("3.2.2", {KMD: "3.2.2", "librbln": "3.2.2-1"}, UTC) is True
    kept = t.cast(t.Any, work.kept("3.2.2"))
    assert (kept.source, [item["name"] for item in kept.files]) == (
        "package",
        ["librbln_3.2.2-1.deb", "rebellions-kmd_3.2.2.deb"],
    )
    assert work.keep_installed("3.1.0", {KMD: "3.1.0"}, UTC) is False and work.kept("3.1.0") is None


# -- taking away


@pytest.mark.parametrize("before, gone", [([], [KMD, "librbln"]), ([KMD], ["librbln"]), ([KMD, "librbln"], [])])
def test_only_what_came_is_taken_away(machine: Machine, before: list[str], gone: list[str]) -> None:
    machine.put("3.4.0")
    machine.packages.update({"librbln": "3.4.0", "curl": "8"})
    machine.held.add("librbln")
    machine.write_packages()
    assert made(machine).remove(None, before) == sorted(gone)
    assert sorted(machine.packages) == sorted({KMD, "librbln", "curl"} - set(gone))
