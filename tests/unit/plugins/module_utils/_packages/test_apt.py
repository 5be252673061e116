# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt and dpkg, on recorded answers of Debian 12 and Debian 13."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Completed
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt import ARCHIVES, Apt
from ansible_collections.rebellions.npu.plugins.module_utils._packages.apt_output import (
    parse_madison,
    parse_pins,
    parse_simulation,
    section,
)
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Change, Transaction
from ansible_collections.rebellions.npu.plugins.module_utils._packages.manager import manager_for
from ansible_collections.rebellions.npu.tests.unit.fixtures.packages.replay import APTS, dpkg, host, recorded, short

DRIVER = ("rebellions-driver", "rebellions-kmd", "rebellions-fw", "rbln-tools", "librbln")
INSTALLED = "install ok installed"


@pytest.fixture(name="apt", params=APTS)
def apt_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """(step) -> (manager that answers as in that step, its runner)."""
    dpkg(tmp_path, *((name, "3.2.2", INSTALLED) for name in DRIVER))

    def build(step: str, **more: Any) -> Any:
        machine, runner = host(tmp_path, recorded(request.param)[step])
        return Apt(machine, **more), runner

    return build


def test_an_install_names_its_packages_and_pins_what_depends_on_one_version(apt: Any) -> None:
    manager, runner = apt("install")
    found = manager.simulate(Transaction(install=["rebellions-driver=3.2.2"]))
    assert found == [
        Change("install", name, None, "3.2.2")
        for name in ("librbln", "rbln-tools", "rebellions-kmd", "rebellions-fw", "rebellions-driver")
    ]
    assert short(runner.calls[1])[-5:] == ["%s=3.2.2" % name for name in DRIVER]


def test_an_upgrade_has_both_versions(apt: Any) -> None:
    manager, _runner = apt("upgrade")
    assert manager.simulate(Transaction(install=["rebellions-driver=3.4.0"])) == [
        Change("upgrade", name, "3.2.2", "3.4.0") for name in DRIVER
    ]


def test_the_same_version_again_is_no_change(apt: Any) -> None:
    manager, _runner = apt("same")
    assert manager.simulate(Transaction(install=["rebellions-driver=3.2.2"])) == []


def test_the_same_version_again_runs_nothing_that_changes(apt: Any) -> None:
    manager, runner = apt("same")
    assert manager.apply(Transaction(install=["rebellions-driver=3.2.2"])) == ""
    assert len(runner.calls) == 1


def test_a_conflict_shows_what_goes(apt: Any) -> None:
    manager, _runner = apt("conflict")
    found = manager.simulate(Transaction(install=["rebellions"]))
    assert found[-1] == Change("install", "rebellions", None, "2.1.0")
    assert {(change.act, change.name, change.old) for change in found[:-1]} == {
        ("remove", name, "3.2.2") for name in DRIVER if name != "rebellions-fw"
    }


def test_a_purge_is_a_removal(apt: Any) -> None:
    manager, runner = apt("remove")
    assert manager.simulate(Transaction(remove=["rebellions-driver", "rebellions-kmd"])) == [
        Change("remove", "rebellions-driver", "3.2.2"),
        Change("remove", "rebellions-kmd", "3.2.2"),
    ]
    assert short(runner.calls[0])[-2:] == ["rebellions-driver-", "rebellions-kmd-"]


def test_what_is_not_there_need_not_be_removed(tmp_path: Path) -> None:
    dpkg(tmp_path, ("other", "1", "deinstall ok not-installed"))
    machine, runner = host(tmp_path, [])
    assert Apt(machine).simulate(Transaction(remove=["nosuch", "other"])) == []
    assert Apt(machine).apply(Transaction(remove=["nosuch", "other"])) == ""
    assert runner.calls == []


def test_held_packages_are_named(apt: Any) -> None:
    manager, _runner = apt("held")
    with pytest.raises(
        NpuError, match="^These packages are held on the host: librbln, rebellions-kmd. Next: Unhold them"
    ):
        manager.simulate(Transaction(install=["rebellions-driver=3.4.0"]))


def test_held_packages_may_change_when_that_is_allowed(apt: Any) -> None:
    manager, _runner = apt("held")
    assert len(manager.simulate(Transaction(install=["rebellions-driver=3.4.0"], allow_held=True))) == 5


def test_older_versions_are_named(apt: Any) -> None:
    manager, _runner = apt("downgrade")
    with pytest.raises(
        NpuError, match=r"This would downgrade rebellions-driver \(3.4.1 -> 3.2.2\), downgrade rebellions-kmd"
    ):
        manager.simulate(Transaction(install=["rebellions-driver=3.2.2"]))


def test_older_versions_are_a_downgrade(apt: Any) -> None:
    manager, _runner = apt("downgrade")
    assert {
        change.act
        for change in manager.simulate(Transaction(install=["rebellions-driver=3.2.2"], allow_downgrade=True))
    } == {"downgrade"}


def test_another_architecture_is_part_of_the_name(apt: Any) -> None:
    manager, _runner = apt("foreign")
    assert manager.simulate(Transaction(files=["/srv/repo/foreigner_1%3a2.0-1_i386.deb"])) == [
        Change("install", "foreigner:i386", None, "1:2.0-1")
    ]


FAULTS = [
    (
        "unknown",
        {"install": ["nosuch"]},
        "E: Unable to locate package nosuch",
        "Check the name and the version in the repositories",
    ),
    (
        "version",
        {"install": ["rebellions-driver=9.9"]},
        "E: Version '9.9' for 'rebellions-driver' was not found",
        "Check the name and the version",
    ),
    (
        "unmet",
        {"files": ["/srv/repo/needy_1.0_all.deb"]},
        "needy : Depends: nothere but it is not installable",
        "List all packages that must change together",
    ),
]


@pytest.mark.parametrize("step, wanted, said, remedy", FAULTS)
def test_errors_of_a_simulation_have_a_remedy(
    apt: Any, step: str, wanted: dict[str, list[str]], said: str, remedy: str
) -> None:
    manager, runner = apt(step)
    # Fresh lists do not have it either.
    runner.answers += [{}, *runner.answers[-1:]] if "files" not in wanted else [{}, *runner.answers]
    with pytest.raises(NpuError) as caught:
        manager.simulate(Transaction(**wanted))
    assert runner.answers == []
    assert said in caught.value.message
    assert caught.value.next_step.startswith(remedy)


CHANGES = [
    (
        "broken",
        {"install": ["rebellions-driver=3.4.1"]},
        "dpkg: error processing package",
        "Read the output of the package script",
    ),
    (
        "lock",
        {"files": ["/srv/repo/confpkg_1.0_all.deb"]},
        "the lock is held by python3 (pid ",
        "Wait until that program ends",
    ),
    (
        "nospace",
        {"files": ["/srv/repo/bigpkg_1.0_all.deb"]},
        "(No space left on device)",
        "Make room on the file systems",
    ),
    (
        "interrupted",
        {"files": ["/srv/repo/confpkg_1.0_all.deb"]},
        "E: dpkg was interrupted",
        "Run again to finish the interrupted change",
    ),
]


@pytest.mark.parametrize("step, wanted, said, remedy", CHANGES)
def test_errors_of_a_change_have_a_remedy(
    apt: Any, step: str, wanted: dict[str, list[str]], said: str, remedy: str
) -> None:
    manager, _runner = apt(step)
    with pytest.raises(NpuError) as caught:
        manager.apply(Transaction(**wanted))
    assert said in caught.value.message
    assert caught.value.next_step.startswith(remedy)


def test_a_mirror_out_of_reach_is_told_without_its_password(apt: Any) -> None:
    manager, _runner = apt("mirror")
    with pytest.raises(NpuError) as caught:
        manager.refresh()
    assert "E: Failed to fetch http://127.0.0.1:9/debian" in caught.value.message
    assert caught.value.next_step.startswith("Check that the host reaches its mirrors")


def test_dpkg_names_who_holds_its_lock(apt: Any, tmp_path: Path) -> None:
    manager, _runner = apt("lock-hold")
    with pytest.raises(NpuError, match=r"apt-mark ended with 100, the lock is held by a process \(pid [0-9]+\)"):
        manager.hold(["bash"])


def test_a_file_is_described(apt: Any) -> None:
    manager, _runner = apt("describe")
    assert manager.describe("/srv/repo/foreigner_1%3a2.0-1_i386.deb") == {
        "name": "foreigner",
        "version": "1:2.0-1",
        "architecture": "i386",
    }


def test_a_file_that_was_cut_is_no_package(apt: Any) -> None:
    manager, _runner = apt("cut")
    with pytest.raises(NpuError, match="Transfer the file again"):
        manager.describe("/srv/cut.deb")


def test_versions_and_holds(apt: Any) -> None:
    assert apt("available")[0].available("rebellions-kmd") == ["3.4.1", "3.4.0", "3.2.2"]
    assert apt("showhold")[0].held() == ["librbln", "rebellions-kmd"]


def test_sources_and_other_names_are_no_versions() -> None:
    text = " kmd | 2 | m Packages\n kmd | 3 | m Sources\n kmd-x | 4 | m Packages\n kmd | 2 | n Packages\n"
    assert parse_madison(text, "kmd") == ["2"]


def test_several_origins_and_a_list_of_what_breaks() -> None:
    text = (
        "Inst libc6 [2.36-9] (2.36-9+deb12u9 Debian:12.10/stable, Debian-Security:12/stable-security [amd64]) "
        "[libc6:amd64 ]\n"
        "Remv gone [1.0-1] [other:amd64 ]\nPurg left []\nInst same [1] (1 m [all])\n"
        "Conf libc6 (2.36-9+deb12u9 Debian:12.10/stable [amd64])\n"
    )
    assert parse_simulation(text) == [
        Change("upgrade", "libc6", "2.36-9", "2.36-9+deb12u9"),
        Change("remove", "gone", "1.0-1"),
        Change("remove", "left"),
        Change("reinstall", "same", "1", "1"),
    ]


def test_names_below_a_title() -> None:
    text = (
        "The following packages will be REMOVED:\n  a* b*\n  c\nThe following NEW packages will be installed:\n  d\n"
        "1 upgraded\n"
    )
    assert (section(text, "REMOVED"), section(text, "NEW"), section(text, "DOWNGRADED")) == (["a", "b", "c"], ["d"], [])


def test_pins_are_dependencies_on_one_version() -> None:
    text = (
        " d : Depends: kmd (= 1:3.2-1) but 2 is to be installed\n     PreDepends: fw (= 2)\n     Depends: lib (>= 3)\n"
        "     Recommends: x (= 1)\n"
    )
    assert parse_pins(text) == [("kmd", "1:3.2-1"), ("fw", "2")]


@pytest.mark.parametrize(
    "name", ["-oAPT::x=y", "kmd;reboot", "KMD", "kmd=1 2", "", "./kmd.deb", "kmd/stable", "~nkmd", "kmd-"]
)
def test_text_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    machine, runner = host(tmp_path, [])
    with pytest.raises(NpuError, match="is not a package name"):
        Apt(machine).simulate(Transaction(install=[name]))
    assert runner.calls == []


def test_holds_outlive_a_change(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", INSTALLED), ("gone", "1", "deinstall ok config-files"))
    answers = [
        {"out": "The following held packages will be changed:\n  kmd\nInst kmd [1] (2 m [all])\n"},
        {"argv": ["apt-mark", "showhold"], "out": "kmd\ngone\n"},
        {
            "argv": ["apt-get", "--purge", "--allow-change-held-packages", "--no-remove", "install", "kmd=2"],
            "out": "Setting up kmd (2) ...\n",
        },
        {"argv": ["apt-mark", "showhold"], "out": ""},
        {"argv": ["apt-mark", "hold", "kmd"]},
    ]
    machine, runner = host(tmp_path, answers)
    assert Apt(machine).apply(Transaction(install=["kmd=2"], allow_held=True)) == "Setting up kmd (2) ..."
    assert runner.answers == []


def test_what_a_transaction_permits_is_an_option_of_apt(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "2", INSTALLED))
    answers = [
        {"out": "Inst kmd [2] (1 m [all])\n"},
        {
            "argv": ["apt-get", "--allow-downgrades", "--no-remove", "install", "kmd=1"],
            "out": "Setting up kmd (1) ...\n",
        },
    ]
    machine, runner = host(tmp_path, answers)
    Apt(machine).apply(Transaction(install=["kmd=1"], allow_downgrade=True, purge=False))
    assert runner.answers == []


def test_holds_outlive_a_change_that_failed(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", INSTALLED))
    answers = [
        {"out": "Inst kmd [1] (2 m [all])\n"},
        {"out": "kmd\n"},
        {"rc": 100, "err": "E: no\n"},
        {"out": ""},
        {"argv": ["apt-mark", "hold", "kmd"], "rc": 1},
    ]
    machine, runner = host(tmp_path, answers)
    with pytest.raises(NpuError, match="E: no"):
        Apt(machine).apply(Transaction(install=["kmd=2"], allow_held=True))
    assert runner.answers == []


def test_only_what_was_not_held_is_held(tmp_path: Path) -> None:
    machine, _runner = host(
        tmp_path,
        [{"out": "a\n"}, {"argv": ["apt-mark", "hold", "b"]}, {"out": "a\nb\n"}, {"argv": ["apt-mark", "unhold", "a"]}],
    )
    manager = Apt(machine)
    assert (manager.hold(["a", "b"]), manager.unhold(["a", "c"])) == (["b"], ["a"])


def test_a_removal_alone_upgrades_nothing(tmp_path: Path) -> None:
    dpkg(tmp_path, ("tools", "1", INSTALLED))
    answers = [
        {"out": "Remv tools [1]\nInst fw [1] (2 m [all])\n"},
        {
            "argv": [
                "apt-get",
                "-s",
                "--purge",
                "--allow-downgrades",
                "--allow-change-held-packages",
                "install",
                "tools-",
                "fw=1",
            ],
            "out": "Purg tools [1]\n",
        },
    ]
    machine, _runner = host(tmp_path, answers)
    assert Apt(machine).simulate(Transaction(remove=["tools"])) == [Change("remove", "tools", "1")]


def test_nothing_to_repair_runs_nothing(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", INSTALLED), ("old", "1", "deinstall ok config-files"))
    machine, runner = host(tmp_path, [])
    assert Apt(machine).repair() is False
    assert runner.calls == []


def test_an_interrupted_run_is_finished(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", INSTALLED))
    (tmp_path / "var/lib/dpkg/updates").mkdir()
    (tmp_path / "var/lib/dpkg/updates/0001").write_text("")
    machine, _runner = host(tmp_path, [{"argv": ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"]}])
    assert Apt(machine).repair() is True


def test_what_cannot_be_finished_stays_unless_it_may_go(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", "install ok half-configured"), ("ssh", "1", "install ok unpacked"))
    broken = [{"rc": 1, "err": "dpkg: error processing package kmd\n"}, {"out": ""}, {"rc": 100}]
    machine, runner = host(tmp_path, broken)
    assert Apt(machine).repair() is True
    assert runner.answers == []
    machine, runner = host(tmp_path, [*broken, {"rc": 1}, {"rc": 1, "err": "still there\n"}])
    with pytest.raises(NpuError, match="still there"):
        Apt(machine).repair(["kmd"])
    assert [call[-2:] for call in runner.calls[-2:]] == [["--remove", "kmd"]] * 2


def test_a_repair_does_not_remove_what_is_not_ours(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", "install ok unpacked"))
    machine, runner = host(tmp_path, [{"rc": 1}, {"out": "Remv kmd [1]\nRemv ssh [1]\n"}])
    assert Apt(machine).repair() is True
    assert runner.answers == []


@pytest.mark.parametrize(
    "said",
    [
        "dpkg: error: dpkg frontend lock was locked by another process with pid 7",
        "dpkg: failed to write (No space left on device)",
    ],
)
def test_a_repair_that_cannot_work_is_an_error(tmp_path: Path, said: str) -> None:
    dpkg(tmp_path, ("kmd", "1", "install ok unpacked"))
    machine, _runner = host(tmp_path, [{"rc": 2, "err": said + "\n"}])
    with pytest.raises(NpuError, match="dpkg ended with 2"):
        Apt(machine).repair()


def test_a_script_that_never_ends_does_not_hold_the_repair(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", "install ok half-configured"))
    machine, runner = host(tmp_path, [{"rc": 124}, {"rc": 100}])
    assert Apt(machine, timeout=5000).repair() is True
    assert runner.calls[0][2] == "600"


def test_removal_scripts_that_fail_are_taken_away(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", "install ok half-configured"))
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir()
    for name in ("kmd.prerm", "kmd:amd64.postrm", "kmd-x.prerm", "kmd.list"):
        (info / name).write_text("")
    machine, _runner = host(tmp_path, [{"rc": 1}, {"rc": 100}, {"rc": 1}, {"rc": 1}])
    with pytest.raises(NpuError):
        Apt(machine).repair(["kmd"])
    assert sorted(path.name for path in info.iterdir()) == ["kmd-x.prerm", "kmd.list"]


SHOWN = {"out": "kmd\t1:3.2-1\tamd64\n"}


def test_a_package_in_the_archive_folder_is_copied(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1:3.2-1", INSTALLED))
    archive = tmp_path / ARCHIVES.lstrip("/")
    archive.mkdir(parents=True)
    (archive / "kmd_1%3a3.2-1_amd64.deb").write_bytes(b"deb")
    machine, _runner = host(tmp_path, [SHOWN])
    assert Apt(machine).download(["kmd"], "/keep") == ["/keep/kmd_1%3a3.2-1_amd64.deb"]
    assert [path.name for path in (tmp_path / "keep").iterdir()] == ["kmd_1%3a3.2-1_amd64.deb"]


def test_a_download_of_something_else_is_refused(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1:3.2-1", INSTALLED))
    machine, runner = host(tmp_path, [{"out": ""}])
    with pytest.raises(NpuError, match=r"apt-get download returned \[\], not \[\('kmd', '1:3.2-1'\)\]"):
        Apt(machine).download(["kmd"], "/keep")
    assert runner.calls[0][-1] == "kmd=1:3.2-1"
    assert list((tmp_path / "keep").iterdir()) == []


def test_a_version_that_no_repository_has_is_named(apt: Any, tmp_path: Path) -> None:
    machine, _runner = host(
        tmp_path, [{"rc": 100, "err": "E: Can't find a source to download version '1' of 'kmd:amd64'\n"}]
    )
    with pytest.raises(NpuError, match="kmd=1 cannot be downloaded.*Provide the package file"):
        Apt(machine).download(["kmd=1"], "/keep")
    assert list((tmp_path / "keep").iterdir()) == []


def test_one_source_alone_is_refreshed(tmp_path: Path) -> None:
    machine, runner = host(tmp_path, [{}])
    Apt(machine).refresh("/etc/apt/sources.list.d/driver.sources")
    assert "Dir::Etc::sourcelist=/etc/apt/sources.list.d/driver.sources" in runner.calls[0]
    assert runner.calls[0][-1] == "update"


OWN = "/etc/apt/sources.list.d/rebellions-npu.sources"
ABSENT = {"rc": 100, "err": "E: Unable to locate package dkms\n"}
DEAD = {
    "rc": 100,
    "err": "E: Failed to fetch https://joe:pw@mirror.example/debian/dists/x/InRelease  Connection timed out\n",
}
DKMS = {"out": "Inst dkms (3.0 m [all])\n"}


def own_source(root: Path, newer: bool) -> None:
    """Our source, newer than its list or older."""
    (root / OWN[1:]).parent.mkdir(parents=True)
    (root / OWN[1:]).write_text("Types: deb\nURIs: https://u:p@repo.example/rbln_x\nSuites: stable\n")
    lists = root / "var/lib/apt/lists"
    lists.mkdir(parents=True)
    (lists / "other.example_x_InRelease").write_text("x")
    (lists / "repo.example_rbln%5fx_dists_stable_InRelease").write_text("x")
    # The list has the time of the mirror's file.
    os.utime(lists / "repo.example_rbln%5fx_dists_stable_InRelease", (1e9, 1e9))
    os.utime(root / OWN[1:], (time.time() + (60 if newer else -60),) * 2)


def updates(runner: Any) -> list[str]:
    """Of each refresh what it reads: own or all."""
    return ["own" if "Dir::Etc::sourcelist=" + OWN in call else "all" for call in runner.calls if call[-1] == "update"]


@pytest.mark.parametrize(
    "own, answers, read",
    [
        (None, [ABSENT, {}, DKMS], ["all"]),
        ("older", [DKMS], []),
        ("newer", [{}, DKMS], ["own"]),
        ("newer", [{}, ABSENT, {}, DKMS], ["own", "all"]),
        ("newer", [DEAD, DKMS], ["own"]),
        ("older", [ABSENT, {}, DKMS], ["own"]),
        ("older", [ABSENT, {}, ABSENT, DEAD, DKMS], ["own", "all"]),
    ],
)
def test_lists_are_read_when_they_are_needed(
    tmp_path: Path, own: str | None, answers: list[dict[str, Any]], read: list[str]
) -> None:
    dpkg(tmp_path)
    if own:
        own_source(tmp_path, own == "newer")
    machine, runner = host(tmp_path, answers)
    manager = Apt(machine, environment={"https_proxy": "http://proxy.example:3128"})
    assert manager.simulate(Transaction(install=["dkms"])) == [Change("install", "dkms", None, "3.0")]
    assert (updates(runner), runner.answers) == (read, [])
    assert {env.get("https_proxy") for env in runner.environments} == {"http://proxy.example:3128"}


def test_the_mirror_that_failed_is_named_when_something_is_missing(tmp_path: Path) -> None:
    dpkg(tmp_path)
    machine, runner = host(tmp_path, [ABSENT, DEAD, ABSENT, ABSENT])
    manager = Apt(machine)
    for _turn in range(2):
        with pytest.raises(NpuError) as caught:
            manager.simulate(Transaction(install=["dkms"]))
        assert "Unable to locate package dkms Updating the lists failed: " in caught.value.message
        assert caught.value.message.endswith(" Unreachable: https://********@mirror.example.")
        assert caught.value.next_step.startswith("Check that the host reaches its mirrors")
    assert updates(runner) == ["all"]


def test_a_mirror_whose_signature_is_wrong_is_not_unreachable(tmp_path: Path) -> None:
    said = (
        "Err:1 http://a.example stable InRelease\n"
        "  The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 1234\n"
        "Err:2 http://b.example stable InRelease\n  Could not connect to b.example:80 (1.2.3.4). - connect (111)\n"
    )
    machine, _runner = host(tmp_path, [{"rc": 100, "out": said, "err": "E: The repository is not signed.\n"}])
    with pytest.raises(NpuError) as caught:
        Apt(machine).refresh()
    assert caught.value.message.endswith(" Unreachable: http://b.example. Signature not accepted: http://a.example.")


def test_reading_lists_has_a_limit_and_names_the_mirror(tmp_path: Path) -> None:
    machine, runner = host(tmp_path, [{"rc": 124, "out": "Err:7 http://slow.example/debian bookworm InRelease\n"}])
    with pytest.raises(NpuError, match=r"did not end within 300 s\. Unreachable: http://slow\.example\."):
        Apt(machine, 1800.0).refresh()
    assert runner.calls[0][:3] == ["timeout", "--kill-after=15", "300"]
    assert {"Acquire::http::Timeout=20", "Acquire::https::Timeout=20"} <= set(runner.calls[0])


def test_a_version_is_looked_for_in_fresh_lists(tmp_path: Path) -> None:
    machine, runner = host(tmp_path, [{}, {}, {"out": " kmd | 3.4.0-1 | m Packages\n"}])
    assert Apt(machine).resolve("kmd", "3.4.0") == "3.4.0-1"
    assert updates(runner) == ["all"]
    machine, runner = host(tmp_path, [{}, DEAD, {}])
    with pytest.raises(NpuError, match="Unreachable: "):
        Apt(machine).resolve("kmd", "3.4.0")


def test_a_file_that_the_mirror_has_replaced_is_looked_for_in_fresh_lists(tmp_path: Path) -> None:
    dpkg(tmp_path)
    gone = {"rc": 100, "err": "E: Failed to fetch http://m.example/dkms_3.0_all.deb  404  Not Found [IP: 1.2.3.4 80]\n"}
    newer = {"out": "Inst dkms (3.1 m [all])\n"}
    machine, runner = host(tmp_path, [DKMS, gone, {}, newer, {"out": "Setting up dkms (3.1)\n"}])
    assert Apt(machine).apply(Transaction(install=["dkms"])) == "Setting up dkms (3.1)"
    assert updates(runner) == ["all"]


def test_a_removal_needs_no_lists(tmp_path: Path) -> None:
    dpkg(tmp_path, ("kmd", "1", INSTALLED))
    own_source(tmp_path, True)
    gone = {"out": "Purg kmd [1]\n"}
    machine, runner = host(tmp_path, [gone, gone, {}])
    manager = Apt(machine)
    assert manager.simulate(Transaction(remove=["kmd"])) == [Change("remove", "kmd", "1")]
    manager.apply(Transaction(remove=["kmd"]))
    assert (updates(runner), runner.answers) == ([], [])


def test_with_a_bundle_the_sources_of_the_host_are_not_read(tmp_path: Path) -> None:
    dpkg(tmp_path)
    own_source(tmp_path, True)
    machine, runner = host(tmp_path, [ABSENT, {}, ABSENT])
    with pytest.raises(NpuError, match="Unable to locate package dkms"):
        manager_for(machine, "deb", bundle="/var/lib/rbln/bundle").simulate(Transaction(install=["dkms"]))
    assert updates(runner) == ["all"]
    assert {env["APT_CONFIG"] for env in runner.environments} == {"/var/lib/rbln/bundle/apt.conf"}


def test_what_left_its_configuration_is_not_installed(tmp_path: Path) -> None:
    states = ("installed", "half-configured", "config-files", "not-installed")
    dpkg(tmp_path, *((state, "1", "install ok " + state) for state in states))
    manager = Apt(host(tmp_path, [])[0])
    assert manager.installed([*states, "unknown", "installed:i386"]) == [
        "installed",
        "half-configured",
        "installed:i386",
    ]
    assert manager.unfinished() == ["half-configured"]


def test_a_journal_of_dpkg_itself_is_unfinished_work(tmp_path: Path) -> None:
    dpkg(tmp_path, ("gcc", "1", INSTALLED), ("nginx", "1", "install ok half-configured"))
    machine, _runner = host(tmp_path, [])
    assert Apt(machine).blocked(["gcc"]) == ["nginx"]
    dpkg(tmp_path, ("gcc", "1", INSTALLED))
    assert Apt(machine).blocked(["gcc"]) == []
    (tmp_path / "var/lib/dpkg/updates").mkdir()
    (tmp_path / "var/lib/dpkg/updates/0001").write_text("Package: gcc\n")
    assert Apt(machine).blocked(["gcc"]) == ["dpkg"]


@pytest.mark.parametrize(
    "text, remedy",
    [
        (
            "E: Malformed stanza 2 in source file /etc/apt/sources.list.d/x.sources (URI parse)\n"
            "E: The list of sources could not be read.\n",
            "Correct the named file",
        ),
        ("E: Type 'dbe' is not known on line 3 in source list /etc/apt/sources.list\n", "Correct the named file"),
        (
            "E: Release file for http://deb.debian.org/debian/dists/bullseye-backports/InRelease is expired (invalid "
            "since 300d). Updates for this repository will not be applied.\n",
            "Use a mirror that is up to date. For a release that is archived set Check-Valid-Until: no",
        ),
        (
            "E: Release file for http://a.example/ubuntu/dists/noble/InRelease is not valid yet (invalid for 1h)",
            "Set the clock",
        ),
        (
            "Err:1 http://deb.debian.org/debian buster Release\n  404  Not Found\n"
            "E: The repository 'http://deb.debian.org/debian buster Release' no longer has a Release file.\n",
            "Correct address and suite of this source. The releases that their distribution no longer serves",
        ),
        (
            "E: Repository 'http://a.example x InRelease' changed its 'Suite' value from 'stable' to 'oldstable'\n",
            "Run apt-get update --allow-releaseinfo-change",
        ),
        (
            "E: Unable to locate package linux-headers-6.1.0-18-amd64\nE: Couldn't find any package by glob\n",
            "Boot the newest kernel, or use the offline bundle",
        ),
        ("E: Package 'linux-headers-6.8.0-45-generic' has no installation candidate\n", "Boot the newest kernel"),
        ("E: Unable to locate package linux-headers-generic\n", "Check the name and the version"),
        (
            "W: http://a.example/x/InRelease: The key(s) in the keyring /etc/apt/keyrings/a.asc are ignored as the "
            "file is not readable by user '_apt' executing apt-key.\nW: GPG error: NO_PUBKEY EC29E2090CE3FD43\n",
            "Let every user read this keyring",
        ),
        (
            "W: http://a.example/x/InRelease: The key(s) in the keyring /etc/apt/trusted.gpg.d/a.gpg are ignored as "
            "the file has an unsupported filetype.\nE: The repository 'http://a.example x InRelease' is not signed.\n",
            "Replace this keyring",
        ),
        # collector-sidecar 522, kismet-packages 18, open-build-service 19221.
        (
            "Err:8 https://a.example/debian stable InRelease\n  Sub-process /usr/bin/sqv returned an error code (1), "
            "error message is: Signing key on 28AB6EB572779C2AD196BE22D44C1D8DB1606F22 is not bound:\n"
            "            No binding signature at time 2026-01-26T13:07:09Z   because: Policy rejected non-revocation "
            "signature (PositiveCertification) requiring second pre-image resistance   because: SHA1 is not considered "
            "secure since 2026-02-01T00:00:00Z\nE: The repository 'https://a.example/debian stable InRelease' is not "
            "signed.\n",
            "Get the present key of this repository from its owner",
        ),
        (
            "W: OpenPGP signature verification failed: https://a.example x InRelease: Sub-process /usr/bin/sqv "
            "returned an error code (1), error message is: Missing key 871920D1991BC93C, which is needed to verify "
            "signature.\n"
            "W: Failed to fetch https://a.example/x/InRelease\n",
            "Install the key of the repository",
        ),
        (
            "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem. \n",
            "Run again to finish the interrupted change",
        ),
    ],
)
def test_sources_that_apt_refuses_have_a_remedy(tmp_path: Path, text: str, remedy: str) -> None:
    error = Apt(host(tmp_path, [])[0]).failure(["apt-get", "update"], Completed(100, "", text))
    assert error.next_step.startswith(remedy)


def test_a_preference_that_forbids_a_package_is_named(tmp_path: Path) -> None:
    path = tmp_path / "etc/apt/preferences.d/no-gcc"
    path.parent.mkdir(parents=True)
    dpkg(tmp_path, ("gcc", "1", INSTALLED))
    path.write_text("Package: gcc*\nPin: release *\nPin-Priority: -1\n")
    machine, _runner = host(tmp_path, [])
    for name, remedy in (("gcc-12", "Correct the preference of apt in %s line 1" % "/etc/apt/preferences.d/no-gcc"),
                         ("dkms", "Check the name and the version")):  # fmt: skip
        text = "E: Package '%s' has no installation candidate\n" % name
        assert Apt(machine).failure(["apt-get"], Completed(100, "", text)).next_step.startswith(remedy)
