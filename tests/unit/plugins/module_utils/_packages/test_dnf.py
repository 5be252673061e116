# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""dnf and rpm. dnf 4: recorded answers of the real program; dnf 5: its published form, and what proof-dnf has seen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Completed
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Change, Transaction
from ansible_collections.rebellions.npu.plugins.module_utils._packages.dnf import Dnf
from ansible_collections.rebellions.npu.plugins.module_utils._packages.dnf_output import (
    MISSING,
    UNREACHED,
    failed_scripts,
    parse_interrupted,
    parse_locks,
    parse_transaction,
)
from ansible_collections.rebellions.npu.plugins.module_utils._packages.words import lost_sources
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import case
from ansible_collections.rebellions.npu.tests.unit.fixtures.packages.replay import DNFS, host, recorded, short

DRIVER = ("librbln", "rebellions-driver", "rebellions-fw", "rebellions-kmd")
FILES = [
    "/srv/repo/%s-3.4.0-1.el9.noarch.rpm" % name
    for name in ("rebellions-driver", "rebellions-kmd", "rebellions-fw", "librbln")
]


def full(name: str, version: str) -> str:
    return "%s%s-1.el9" % ("1:" if name == "librbln" else "", version)


@pytest.fixture(name="dnf", params=DNFS)
def dnf_fixture(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """(step) -> (manager that answers as in that step, its runner)."""
    (tmp_path / "etc/dnf/plugins").mkdir(parents=True)
    (tmp_path / "etc/dnf/plugins/versionlock.conf").write_text("[main]\nenabled = 1\n")

    def build(step: str, **more: Any) -> Any:
        steps = recorded(request.param)
        if step not in steps:
            pytest.skip("not recorded with this version")
        machine, runner = host(tmp_path, steps[step])
        return Dnf(machine, **more), runner

    return build


def test_an_install_with_its_dependencies(dnf: Any) -> None:
    manager, _runner = dnf("install")
    found = manager.simulate(Transaction(install=["rebellions-driver-3.2.2-1.el9"]))
    assert sorted(found, key=lambda change: change.name) == [
        Change("install", name, None, full(name, "3.2.2")) for name in DRIVER
    ]


@pytest.mark.parametrize(
    "step, wanted", [("upgrade", {"install": ["rebellions-driver-3.4.0-1.el9"]}), ("upgrade-files", {"files": FILES})]
)
def test_an_upgrade_has_both_versions(dnf: Any, step: str, wanted: dict[str, list[str]]) -> None:
    manager, runner = dnf(step)
    assert manager.simulate(Transaction(**wanted)) == [
        Change("upgrade", name, full(name, "3.2.2"), full(name, "3.4.0")) for name in DRIVER
    ]
    assert any("--setopt=localpkg_gpgcheck=0" in call for call in runner.calls) is (step == "upgrade-files")


def test_the_same_version_again_is_no_change(dnf: Any) -> None:
    assert dnf("same")[0].simulate(Transaction(install=["rebellions-driver-3.2.2-1.el9"])) == []


def test_older_versions(dnf: Any) -> None:
    manager, _runner = dnf("downgrade")
    found = manager.simulate(Transaction(install=["rebellions-driver-3.2.2-1.el9"], allow_downgrade=True))
    assert found == [Change("downgrade", name, full(name, "3.4.0"), full(name, "3.2.2")) for name in DRIVER]
    with pytest.raises(
        NpuError, match=r"^This would downgrade librbln \(1:3.4.0-1.el9 -> 1:3.2.2-1.el9\), downgrade rebellions-driver"
    ):
        dnf("downgrade")[0].simulate(Transaction(install=["rebellions-driver-3.2.2-1.el9"]))


def test_a_removal_takes_what_needs_it(dnf: Any) -> None:
    manager, _runner = dnf("remove")
    found = manager.simulate(Transaction(remove=["rebellions-kmd", "nosuch"]))
    assert found == [Change("remove", name, "3.2.2-1.el9") for name in ("rebellions-kmd", "rebellions-driver")]


def test_what_is_not_there_need_not_be_removed(dnf: Any) -> None:
    manager, runner = dnf("gone")
    assert (
        manager.apply(Transaction(remove=["rebellions-driver", "rebellions-kmd", "rebellions-fw", "librbln", "nosuch"]))
        == ""
    )
    assert {call[0] for call in runner.calls} == {"rpm"}


def test_what_must_go_is_erased_by_the_install(dnf: Any) -> None:
    manager, runner = dnf("conflict-swap")
    found = manager.simulate(
        Transaction(install=["rebellions"], remove=["rebellions-driver", "rebellions-kmd", "nosuch"])
    )
    assert found == [Change("install", "rebellions", None, "2.1.0-1.el9")] + [
        Change("remove", name, "3.2.2-1.el9") for name in ("rebellions-driver", "rebellions-kmd")
    ]
    assert short(runner.calls[1])[:3] == ["dnf", "--allowerasing", "install"]


def test_a_name_longer_than_its_column(dnf: Any) -> None:
    name = "a-package-with-a-name-that-is-much-longer-than-its-column-allows"
    assert dnf("long")[0].simulate(Transaction(install=[name])) == [Change("install", name, None, "1.0.0-1.el9")]


def test_held_packages_do_not_move(dnf: Any, tmp_path: Path) -> None:
    (tmp_path / "etc/dnf/plugins/versionlock.list").write_text("rebellions-kmd-0:3.2.2-1.el9.*\n")
    with pytest.raises(NpuError, match="is filtered out by exclude filtering Next: Unhold the package"):
        dnf("held")[0].simulate(Transaction(install=["rebellions-driver-3.4.0-1.el9"]))


def test_held_packages_do_not_move_by_files_either(dnf: Any) -> None:
    with pytest.raises(
        NpuError, match="^These packages are held on the host: librbln, rebellions-kmd. Next: Unhold them"
    ):
        dnf("held-files")[0].simulate(Transaction(files=FILES))


def test_held_packages_move_when_that_is_allowed(dnf: Any) -> None:
    manager, runner = dnf("held-allowed")
    assert len(manager.simulate(Transaction(install=["rebellions-driver-3.4.0-1.el9"], allow_held=True))) == 4
    assert "--disableplugin=versionlock" in runner.calls[0]


def test_holds(dnf: Any) -> None:
    assert dnf("hold")[0].hold(["rebellions-kmd", "librbln"]) == ["librbln", "rebellions-kmd"]
    assert dnf("held-list")[0].held() == ["librbln", "rebellions-kmd"]
    assert dnf("held-none")[0].held() == []


def test_a_lock_is_taken_again_at_the_new_version(tmp_path: Path) -> None:
    table = "Upgrading:\n kmd  noarch  2-1  lab  1 k\n\nTransaction Summary\n"
    answers = [
        {"argv": ["dnf", "install", "kmd-2", "--assumeno"], "rc": 1, "out": table, "err": "Operation aborted.\n"},
        {"out": "kmd\t1-1\tnoarch\n"},
        {"argv": ["dnf", "-q", "versionlock", "list"], "out": "kmd-0:1-1.*\nother-0:1-1.*\n"},
        {"argv": ["dnf", "-q", "versionlock", "delete", "kmd"]},
        {"argv": ["dnf", "install", "kmd-2"], "out": "Complete!\n"},
        {"out": "kmd\t2-1\tnoarch\nother\t1-1\tnoarch\n"},
        {"argv": ["dnf", "-q", "versionlock", "list"], "out": "other-0:1-1.*\n"},
        {"argv": ["dnf", "-q", "versionlock", "add", "kmd"]},
    ]
    machine, runner = host(tmp_path, answers)
    assert Dnf(machine).apply(Transaction(install=["kmd-2"], allow_held=True)) == "Complete!"
    assert runner.answers == []


def test_without_the_plugin_nothing_is_held_and_nothing_can_be(tmp_path: Path) -> None:
    missing = {"rc": 1, "err": "No such command: versionlock. Please use /usr/bin/dnf --help\n"}
    machine, _runner = host(tmp_path, [missing, missing, missing])
    manager = Dnf(machine)
    assert manager.held() == []
    with pytest.raises(NpuError, match="Next: Install the package python3-dnf-plugin-versionlock, or turn hold off"):
        manager.hold(["kmd"])


FAULTS = [
    (
        "conflict",
        {"install": ["rebellions"]},
        "conflicts with rebellions",
        "List all packages that must change together, each with its version, and those to",
    ),
    ("unknown", {"install": ["nosuch"]}, "Unable to find a match: nosuch", "Check the name and the version"),
    (
        "version",
        {"install": ["rebellions-kmd-9.9-1"]},
        "Unable to find a match: rebellions-kmd-9.9-1",
        "Check the name and the version",
    ),
    (
        "unmet",
        {"install": ["needy"]},
        "nothing provides nothere needed by needy-1-1.el9.noarch",
        "Check the name and the version",
    ),
]


@pytest.mark.parametrize("step, wanted, said, remedy", FAULTS)
def test_errors_of_a_simulation_have_a_remedy(
    dnf: Any, step: str, wanted: dict[str, list[str]], said: str, remedy: str
) -> None:
    manager, runner = dnf(step)
    if MISSING.search(str(runner.answers[-1])):
        # Fresh lists do not have it either.
        runner.answers += [{}, *runner.answers]
    with pytest.raises(NpuError) as caught:
        manager.simulate(Transaction(**wanted))
    assert runner.answers == []
    assert said in caught.value.message
    assert caught.value.next_step.startswith(remedy)


def test_a_script_that_failed_is_an_error_though_dnf_ends_well(dnf: Any) -> None:
    manager, runner = dnf("broken")
    with pytest.raises(NpuError) as caught:
        manager.apply(Transaction(install=["rebellions-driver-3.4.1-1.el9"]))
    assert caught.value.message == (
        "A script of a package failed: warning: %post(rebellions-kmd-3.4.1-1.el9.noarch) scriptlet failed, exit "
        "status 1"
        " | Error in POSTIN scriptlet in rpm package rebellions-kmd"
    )
    assert runner.answers == []


def test_a_damaged_file_is_found_before_anything_changes(dnf: Any) -> None:
    with pytest.raises(NpuError, match="digest: BAD.*Next: Transfer the file again"):
        dnf("flip")[0].apply(Transaction(files=["/srv/flip.rpm"]))
    with pytest.raises(NpuError, match="not an rpm package.*Next: Transfer the file again"):
        dnf("cut")[0].describe("/srv/cut.rpm")


def test_a_mirror_out_of_reach_is_told_without_its_password(dnf: Any) -> None:
    with pytest.raises(NpuError) as caught:
        dnf("mirror")[0].refresh("x")
    assert "http://********@127.0.0.1:9/x" in caught.value.message and "s3cret" not in str(caught.value)
    assert caught.value.next_step.startswith("Check that the host reaches its mirrors")


ABSENT = {"rc": 1, "out": "No match for argument: dkms\n", "err": "Error: Unable to find a match: dkms\n"}
SKIPPED = {
    "err": "Error: Failed to download metadata for repo 'epel': Cannot download repomd.xml\n",
    "out": "Ignoring repositories: epel\n",
}
DKMS = {
    "rc": 1,
    "out": "Installing:\n dkms  noarch  3.0-1.el9  epel  80 k\n\nTransaction Summary\n",
    "err": "Operation aborted.\n",
}


def test_a_repository_of_others_that_does_not_answer_holds_nothing_up(tmp_path: Path) -> None:
    machine, runner = host(tmp_path, [{**DKMS, "out": SKIPPED["out"] + DKMS["out"]}] * 2)
    manager = Dnf(machine)
    for _turn in range(2):
        found = manager.simulate(Transaction(install=["dkms"]))
        assert found == [Change("install", "dkms", None, "3.0-1.el9")]
    assert manager.warnings == ["Left out, as without an answer: the repository epel."]
    assert all("--setopt=*.skip_if_unavailable=True" in call for call in runner.calls)


# What dnf 4 and dnf 5 say of a repository without lists, to the reason.
LOST = {
    "Error: Failed to download metadata for repo 'x': repomd.xml GPG signature verification error: Bad GPG signature\n"
    "Ignoring repositories: x\n": "signature not accepted",
    'Failed to download metadata (baseurl: "https://a.example/yum/") for repository "x": repomd.xml GPG signature '
    "verification error: Bad GPG signature\n": "signature not accepted",
    'Failed to download metadata (baseurl: "https://a.example/") for repository "x"\n'
    " Librepo error: repomd.xml GPG signature verification error: Signing key not found\n": "signature not accepted",
    "Errors during downloading metadata for repository 'x':\n"
    "  - Status code: 404 for https://a.example/repodata/repomd.xml (IP: 1.2.3.4)\n"
    "Error: Failed to download metadata for repo 'x': Cannot download repomd.xml\n"
    "Ignoring repositories: x\n": "not served there",
    "Errors during downloading metadata for repository 'x':\n"
    "  - Status code: 403 for https://a.example/repodata/repomd.xml (IP: 1.2.3.4)\n": "access refused",
    "Errors during downloading metadata for repository 'x':\n"
    "  - Curl error (60): SSL peer certificate or SSH remote key was not OK for https://a.example/\n": (
        "certificate not accepted"
    ),
    "Errors during downloading metadata for repository 'x':\n"
    "  - Downloading successful, but checksum doesn't match. Calculated: 1(sha256)  Expected: 2(sha256)\n": (
        "lists damaged"
    ),
    "Errors during downloading metadata for repository 'x':\n"
    "  - Curl error (7): Couldn't connect to server for http://a.example/gpg/repodata/repomd.xml\n": (
        "as without an answer"
    ),
    # What resets a connection, a time of 401 ms and the name of a server are no cause.
    "Errors during downloading metadata for repository 'x':\n"
    "  - Curl error (35): SSL connect error for https://a.example/ [OpenSSL SSL_connect: Connection reset by peer]\n": (
        "as without an answer"
    ),
    "Errors during downloading metadata for repository 'x':\n"
    "  - Curl error (7): Couldn't connect to server for http://a.example/ [Failed to connect to a.example port 80 "
    "after 401 ms: Couldn't connect to server]\n": "as without an answer",
    "Errors during downloading metadata for repository 'x':\n"
    "  - Curl error (28): Timeout was reached for https://certificate.example/signature/repomd.xml\n": (
        "as without an answer"
    ),
}


@pytest.mark.parametrize("said", LOST)
def test_why_a_repository_was_left_out_is_said(tmp_path: Path, said: str) -> None:
    other = "Errors during downloading metadata for repository 'y':\n  - Curl error (28): Timeout was reached\n"
    machine, _runner = host(tmp_path, [{**DKMS, "out": other + said + DKMS["out"]}])
    manager = Dnf(machine)
    manager.simulate(Transaction(install=["dkms"]))
    assert manager.warnings == [
        "Left out, as without an answer: the repository y.",
        "Left out, %s: the repository x." % LOST[said],
    ]


# What dnf 5.4 writes where standard error is no terminal, with two repositories that are left out.
FIVE = """Updating and loading repositories:
 unsigned                               100% |   7.8 KiB/s |   1.5 KiB |  00m00s
>>> repomd.xml GPG signature verification error: gpgme_op_verify() error: No data
 The other one                          ???% |   0.0   B/s |  -1.0   B |  ?
>>> Curl error (7): Could not connect to server for http://127.0.0.1:9/repodata/repomd.xml [Failed to connect]
>>> Curl error (7): Could not connect to server for http://127.0.0.1:9/repodata/repomd.xml [Failed to connect]
>>> Usable URL not found
 by a second mirror                     100% |   8.2 KiB/s |   1.6 KiB |  00m00s
>>> Status code: 404 for https://mirror.example/repodata/repomd.xml (IP: 1.2.3.4) - https://mirror.example/
 lab                                    100% |   8.2 KiB/s |   1.6 KiB |  00m00s
Repositories loaded.
[1/1] kmd-0:3.4.0-1.noarch              100% |   0.0   B/s |   0.0   B |  00m00s
>>> No more mirrors to try
"""


def test_what_dnf_5_leaves_out_is_read_from_its_progress(tmp_path: Path) -> None:
    machine, _runner = host(tmp_path, [{"err": FIVE}, {"err": FIVE}])
    manager = Dnf(machine)
    assert manager.available("kmd") == []
    assert manager.left_out == [
        "Left out, signature not accepted: the repository unsigned.",
        "Left out, as without an answer: the repository The other one.",
    ]
    with pytest.raises(NpuError, match=r" Unreachable: The other one\. Signature not accepted: unsigned\."):
        manager.refresh()
    assert lost_sources(UNREACHED, FIVE.partition(" by a second")[1] + FIVE.partition(" by a second")[2]) == {}


def test_several_repositories_in_one_line_are_told_apart(tmp_path: Path) -> None:
    said = (
        "Error: Failed to download metadata for repo 'x': repomd.xml GPG signature verification error: Bad GPG "
        "signature\nError: Failed to download metadata for repo 'y': Cannot download repomd.xml\n"
        "Ignoring repositories: x, y\n"
    )
    machine, _runner = host(tmp_path, [ABSENT, {"out": said}, ABSENT])
    with pytest.raises(NpuError, match=r" Unreachable: y\. Signature not accepted: x\.") as caught:
        Dnf(machine).simulate(Transaction(install=["dkms"]))
    assert "Unreachable: x" not in caught.value.message


def test_a_repository_that_a_look_for_versions_leaves_out_is_told(tmp_path: Path) -> None:
    """The plan reads no lists anew: without this, only the version would be missing."""
    machine, runner = host(tmp_path, [{"out": "Ignoring repositories: rebellions-npu\n"}])
    manager = Dnf(machine)
    manager.lists.freeze()
    assert manager.resolve("rebellions-driver", "3.4.0") is None
    assert manager.left_out == ["Left out, as without an answer: the repository rebellions-npu."]
    assert "-q" not in runner.calls[0]


@pytest.mark.parametrize(
    "own, answers, read",
    [(False, [ABSENT, {}, DKMS], ["all"]), (True, [ABSENT, {}, ABSENT, {}, DKMS], ["own", "all"]), (True, [DKMS], [])],
)
def test_lists_are_read_when_they_are_needed(
    tmp_path: Path, own: bool, answers: list[dict[str, Any]], read: list[str]
) -> None:
    if own:
        (tmp_path / "etc/yum.repos.d").mkdir(parents=True)
        (tmp_path / "etc/yum.repos.d/rebellions-npu.repo").write_text("[rebellions-npu]\n")
    machine, runner = host(tmp_path, answers)
    assert Dnf(machine).simulate(Transaction(install=["dkms"])) == [Change("install", "dkms", None, "3.0-1.el9")]
    assert [
        "own" if "--enablerepo=rebellions-npu" in call else "all" for call in runner.calls if call[-1] == "makecache"
    ] == read
    assert all(
        ("--setopt=skip_if_unavailable=True" in call) is ("--disablerepo=*" not in call)
        for call in runner.calls
        if call[-1] == "makecache"
    )
    assert runner.answers == []


def test_the_repository_that_failed_is_named_when_something_is_missing(tmp_path: Path) -> None:
    machine, _runner = host(tmp_path, [ABSENT, SKIPPED, ABSENT])
    with pytest.raises(
        NpuError, match="Unable to find a match: dkms Updating the lists failed: dnf .* Unreachable: epel."
    ):
        Dnf(machine).simulate(Transaction(install=["dkms"]))
    machine, runner = host(tmp_path, [ABSENT, SKIPPED, DKMS])
    assert len(Dnf(machine).simulate(Transaction(install=["dkms"]))) == 1
    assert runner.calls[1][:3] == ["timeout", "--kill-after=15", "300"]


def test_who_holds_the_lock_is_named(dnf: Any) -> None:
    with pytest.raises(
        NpuError,
        match=(
            r"dnf did not end within 4 s: the lock is held by a process \(pid [0-9]+\). Last output: .*Waiting for "
            r"process"
        ),
    ):
        dnf("lock", timeout=4)[0].apply(
            Transaction(install=["a-package-with-a-name-that-is-much-longer-than-its-column-allows"])
        )


def test_the_lock_files_of_dnf_name_a_process(tmp_path: Path) -> None:
    for path, text in (
        ("var/lib/dnf/rpmdb_lock.pid", "812"),
        ("var/cache/dnf/metadata_lock.pid", "813"),
        ("proc/812/comm", "dnf-automatic\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert Dnf(host(tmp_path, [])[0]).busy() == "dnf-automatic (pid 812)"


def test_versions_and_files(dnf: Any) -> None:
    assert dnf("available")[0].available("rebellions-kmd") == ["3.4.1-1.el9", "3.4.0-1.el9", "3.2.2-1.el9"]
    assert dnf("available-epoch")[0].available("librbln") == ["1:3.4.1-1.el9", "1:3.4.0-1.el9", "1:3.2.2-1.el9"]
    assert dnf("available-epoch")[0].resolve("librbln", "3.4.0") == "1:3.4.0-1.el9"
    assert dnf("available-none")[0].available("nosuch") == []
    file = dnf("describe")[0].describe("/srv/repo/librbln-3.4.0-1.el9.noarch.rpm")
    assert file == {"name": "librbln", "version": "1:3.4.0-1.el9", "architecture": "noarch"}


def test_versions_are_compared_number_by_number(tmp_path: Path) -> None:
    machine, _runner = host(
        tmp_path, [{"out": "kmd\t3.9-1\tx86_64\n\nkmd\t3.10-1\tx86_64\nkmd\t3.11-1\tsrc\nkmd-x\t9-1\tx86_64\n"}]
    )
    assert Dnf(machine).available("kmd") == ["3.10-1", "3.9-1"]


def test_a_download_that_no_repository_has(dnf: Any) -> None:
    with pytest.raises(
        NpuError, match="^rebellions-kmd-9.9-1 cannot be downloaded.*Next: Check the name and the version"
    ):
        dnf("download-none")[0].download(["rebellions-kmd-9.9-1"], "/srv/dl")


def test_a_package_in_the_cache_is_copied(tmp_path: Path) -> None:
    cache = tmp_path / "var/cache/dnf/lab-1/packages"
    cache.mkdir(parents=True)
    (cache / "kmd-3.2-1.noarch.rpm").write_bytes(b"rpm")
    shown = {"out": "kmd\t1:3.2-1\tnoarch\n"}
    machine, _runner = host(tmp_path, [shown, shown, shown])
    assert Dnf(machine).download(["kmd"], "/keep") == ["/keep/kmd-3.2-1.noarch.rpm"]


def test_two_versions_of_one_package_are_repaired(dnf: Any) -> None:
    manager, runner = dnf("twice")
    runner.answers.insert(1, {"out": "rebellions-fw\trebellions-fw\n"})
    assert manager.unfinished() == ["rebellions-fw"]


def rows(*lines: str) -> dict[str, Any]:
    """What rpm -qa says, of names such as kmod-site-1.0-1.el9.x86_64."""
    found = [re.match(r"(.+)-([^-]+-[^-]+)\.([^.]+)$", line.split()[0]) for line in lines]
    return {"out": "".join("%s\t%s\t%s\n" % match.groups() for match in found if match)}


def provided(*lines: str) -> dict[str, Any]:
    """What the same packages provide."""
    pairs = [re.match(r"(\S+)-[^-\s]+-[^-\s]+(?: +provides (.*))?$", line) for line in lines]
    return {"out": "".join("%s\t%s\n" % (match.group(1), match.group(2) or match.group(1)) for match in pairs if match)}


H11 = "H11-rpm-duplicates"
FINISHED = {"argv": ["dnf", "history", "info", "last"]}


def test_H11_what_is_install_only_is_not_unfinished(tmp_path: Path) -> None:
    lines = case(H11, "installed-a.txt").splitlines()
    machine, runner = host(tmp_path, [rows(*lines), provided(*lines), FINISHED] * 2)
    manager = Dnf(machine)
    assert (manager.unfinished(), manager.repair(["*"]), manager.warnings) == ([], False, [])
    assert runner.answers == []


@pytest.mark.parametrize(
    "provides", ["installonlypkg(vm)", "multiversion(kernel)", "installonlypkg(kernel)", "site-many", "other"]
)
def test_H11_what_makes_a_package_install_only(tmp_path: Path, provides: str) -> None:
    (tmp_path / "etc/dnf").mkdir(parents=True)
    (tmp_path / "etc/dnf/dnf.conf").write_text("[main]\ninstallonlypkgs=site-many, mine\n")
    lines = ["kmod-a-1-1.x86_64", "kmod-a-2-1.x86_64", "mine-1-1.x86_64", "mine-2-1.x86_64"]
    answers = [rows(*lines), {"out": "kmod-a\t%s\nkmod-a\tkmod-a\n" % provides}, FINISHED]
    machine, _runner = host(tmp_path, answers)
    assert Dnf(machine).unfinished() == (["kmod-a"] if provides == "other" else [])


def test_H11_two_versions_of_what_is_not_ours_are_told_and_stay(tmp_path: Path) -> None:
    lines = case(H11, "installed-b.txt").splitlines()
    machine, runner = host(tmp_path, [rows(*lines), provided(*lines), FINISHED] * 2)
    manager = Dnf(machine)
    assert manager.repair(["rebellions*"]) is False
    assert manager.warnings == ["Two versions of site-agent are installed. They are not of the driver, so they stay."]
    # They keep dnf from nothing.
    assert manager.blocked(["rebellions*"]) == []
    assert runner.answers == [] and not any("remove" in call for call in runner.calls)


OURS = ["rebellions-kmd-3.2.2-1.el9.noarch", "rebellions-kmd-3.10.0-1.el9.noarch"]


def removing(*names: str) -> dict[str, Any]:
    table = "".join(" %s  noarch  3.2.2-1.el9  @lab  1 k\n" % name for name in names)
    return {"rc": 1, "out": "Removing:\n%s\nTransaction Summary\n" % table, "err": "Operation aborted.\n"}


def test_H11_of_ours_the_older_version_goes_and_no_other_package(tmp_path: Path) -> None:
    old = "rebellions-kmd-3.2.2-1.el9.noarch"
    start = [rows(*OURS, "site-1-1.x86_64", "site-2-1.x86_64"), provided(*OURS, "site-1-1.x86_64", "site-2-1.x86_64")]
    machine, runner = host(
        tmp_path,
        [*start, {**removing("rebellions-kmd"), "argv": ["dnf", "remove", old, "--assumeno"]},
         {"argv": ["dnf", "remove", old]}],
    )  # fmt: skip
    assert Dnf(machine).repair(["rebellions*"]) is True and runner.answers == []
    machine, runner = host(tmp_path, [*start, removing("rebellions-kmd", "site-needs-it")])
    with pytest.raises(NpuError, match="removing the older ones would also remove site-needs-it"):
        Dnf(machine).repair(["rebellions*"])
    assert runner.answers == []


def test_kernels_are_meant_to_be_there_twice(tmp_path: Path) -> None:
    found = (
        "kernel-core\t1-1\tx86_64\nkernel-core\t2-1\tx86_64\nlib\t1-1\ti686\nlib\t1-1\tx86_64\n"
        "gpg-pubkey\t1-1\t(none)\ngpg-pubkey\t2-1\t(none)\n"
    )
    machine, _runner = host(tmp_path, [{"out": found}, {"rc": 1}])
    assert Dnf(machine).repair() is False


H09 = "H09-dnf-exclude"
H15 = "H15-rhel-without-repositories"


def said(text: str) -> Completed:
    return Completed(1, text, "")


def test_H09_an_exclude_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "etc/dnf").mkdir(parents=True)
    (tmp_path / "etc/yum.repos.d").mkdir()
    machine, _runner = host(tmp_path, [])
    text = case(H09, "dnf.txt")
    error = Dnf(machine).failure(["dnf"], said(text))
    assert error.next_step.startswith(
        "Remove the package from exclude= or excludepkgs=, or add it to includepkgs=, in /etc/dnf/dnf.conf, "
        "/etc/yum.repos.d."
    )
    (tmp_path / "etc/dnf/dnf.conf").write_text(case(H09, "dnf.conf"))
    (tmp_path / "etc/yum.repos.d/a.repo").write_text("[a]\nexclude=vim kernel-devel*\n[b]\nexclude=gcc\n")
    for form in (text, "Argument 'kernel-devel-5.14.0-570.12.1.el9_6.x86_64' matches only excluded packages.\n"):
        error = Dnf(machine).failure(["dnf"], said(form))
        assert "in /etc/dnf/dnf.conf line 5 and /etc/yum.repos.d/a.repo line 2." in error.next_step
        assert "versionlock" not in error.next_step
    error = Dnf(machine).failure(
        ["dnf"], said("Argument 'kernel-devel' matches only packages excluded by versionlock.")
    )
    assert error.next_step.startswith("Unhold the package (dnf versionlock list")


def test_H09_what_may_move_though_held_is_not_excluded_either(tmp_path: Path) -> None:
    machine, _runner = host(tmp_path, [{"out": ""}] * 4)
    manager = Dnf(machine)
    for allowed in (True, False):
        (argv,) = manager._command_lines(Transaction(install=["kmd"], allow_held=allowed), False)
        assert ("--setopt=disable_excludes=all,*" in argv) is allowed
        # A kernel that dnf itself would remove to keep its number of them stays.
        assert "--setopt=installonly_limit=0" in argv


@pytest.mark.parametrize(
    "text, remedy",
    [
        (case(H15, "dnf-none.txt"), "Register the host (subscription-manager register), or configure a repository, or"),
        (case(H15, "dnf-eus.txt"), "Enable the repository of this kernel's minor release (EUS of RHEL, the vault of a"),
        (
            'This system is not registered with an entitlement server. You can use "rhc" to register.\n\n'
            "No match for argument: dkms\nError: Unable to find a match: dkms\n",
            "Register the host",
        ),
        (
            "Error: Unable to find a match: kernel-headers-5.14.0-570.112.1.el9_6.x86_64 "
            "kernel-devel-5.14.0-570.112.1.el9_6.x86_64\n",
            "Enable the repository of this kernel's",
        ),
        (
            "Error: Failed to download metadata for repo 'x': Cannot download repomd.xml: Status code: 403 for "
            "https://satellite.example/pulp/content/o/Library/content/dist/rhel9/repodata/repomd.xml (IP: 1.2.3.4)\n",
            "Renew the subscription of the host",
        ),
        (
            "  - Status code: 404 for https://dl.rockylinux.org/rocky/9.3/BaseOS/x86_64/os/repodata/repomd.xml (IP)\n",
            "Correct the address of this repository: it is not served there.",
        ),
        (
            "  - Curl error (58): Problem with the local SSL certificate for https://cdn.redhat.com/content/x [no "
            "load PEM client certificate from /etc/pki/entitlement/123.pem]\n",
            "Renew the subscription of the host",
        ),
        ("No match for argument: kernel-64k-devel-5.14.0-1.el9.aarch64\n", "Enable the repository of this kernel's"),
        ("No match for argument: kernel-devel\n", "Check the name and the version"),
        (
            "Error: Failed to download metadata for repo 'appstream': Cannot prepare internal mirrorlist: "
            "No URLs in mirrorlist\n",
            "Correct the address of this repository: it is not served there.",
        ),
        (
            "Errors during downloading metadata for repository 'base':\n  - Curl error (6): Couldn't resolve host name "
            "for http://mirrorlist.centos.org/?release=8 [Could not resolve host: mirrorlist.centos.org]\n",
            "Correct the address of this repository: it is not served there.",
        ),
        (
            "Errors during downloading metadata for repository 'rhel-9-for-x86_64-baseos-rpms':\n  - Status code: 403 "
            "for https://cdn.redhat.com/content/dist/x (IP: 1.2.3.4)\n",
            "Renew the subscription of the host",
        ),
        (
            "Error: Failed to download metadata for repo 'x': Cannot prepare internal mirrorlist: Curl error (6): "
            "Couldn't resolve host name for https://mirrors.example/x [Could not resolve host: mirrors.example]\n",
            "Check that the host reaches its mirrors",
        ),
        # passenger 2647, vector 22679.
        (
            "Error: Failed to download metadata for repo 'passenger': repomd.xml GPG signature verification error: "
            "Bad GPG signature\n",
            "Correct gpgkey of this repository",
        ),
        (
            "Error: Failed to download metadata for repo 'x': repomd.xml GPG signature verification error: Certificate "
            "0123456789ABCDEF invalid: policy violation: SHA1 is not considered secure since 2023-02-01T00:00:00Z\n",
            "Get the present key of this repository from its owner",
        ),
        ("All matches were filtered out by modular filtering for argument: x\n", "Enable the module stream"),
    ],
)
def test_H15_a_host_without_the_right_repositories(tmp_path: Path, text: str, remedy: str) -> None:
    error = Dnf(host(tmp_path, [])[0]).failure(["dnf"], said(text))
    assert error.next_step.startswith(remedy)


HISTORY = """Transaction ID : 20
End rpmdb      :  **
Return-Code    : %s
Command Line   : -y -q reinstall slow
Packages Altered:
 ** Install kmd-1:3.4.0-1.el9.noarch @lab
 ** Upgrade   other-tool-2-1.el9.noarch @lab
 ** Upgraded  other-tool-1-1.el9.noarch @@System
    Removed gone-1-1.el9.noarch @@System
"""
HISTORY_5 = """Transaction ID : 3
Status         : %s
Packages altered:
  Action  Package                 Reason Repository
  Install kmd-1:3.4.0-1.fc43.noarch User   lab
"""


@pytest.mark.parametrize(
    "text, names",
    [
        (HISTORY % "Failure: 1", ["kmd", "other-tool"]),
        (HISTORY % "Aborted", ["kmd", "other-tool"]),
        (HISTORY % "Success", []),
        (HISTORY_5 % "Started", ["kmd"]),
        (HISTORY_5 % "Error", ["kmd"]),
        (HISTORY_5 % "Ok", []),
        ("", []),
    ],
)
def test_a_transaction_that_did_not_end(text: str, names: list[str]) -> None:
    assert parse_interrupted(text) == names


KMD = {"out": "kmd\t1:3.4.0-1\tnoarch\n"}
CUT = [KMD, {"out": HISTORY % "Failure: 1"}, KMD]


def test_what_was_cut_short_is_installed_again(tmp_path: Path) -> None:
    machine, _runner = host(tmp_path, [*CUT, {"argv": ["dnf", "reinstall", "kmd"]}])
    assert Dnf(machine).repair(["kmd"]) is True


@pytest.mark.parametrize("again", [{"rc": 1}, {"rc": 0, "err": "Error in POSTIN scriptlet in rpm package kmd\n"}])
def test_what_cannot_be_installed_again_goes(tmp_path: Path, again: dict[str, Any]) -> None:
    machine, runner = host(tmp_path, [*CUT, again, {"argv": ["dnf", "remove", "kmd"]}])
    assert Dnf(machine).repair(["kmd"]) is True
    assert runner.answers == []


def test_what_is_not_ours_is_left_as_it_is(tmp_path: Path) -> None:
    machine, runner = host(tmp_path, CUT)
    assert Dnf(machine).repair(["rebellions*"]) is False
    assert runner.answers == []


TABLE_5 = """Updating and loading repositories:
Repositories loaded.
Package                     Arch    Version       Repository      Size
Upgrading:
 librbln                    x86_64  0:3.4.0-1     lab          1.1 MiB
   replacing librbln        x86_64  0:3.2.2-1     lab          1.0 MiB
Installing:
 rebellions-kmd             noarch  3.4.0-1       lab         61.5 KiB
   replacing rebellions     noarch  2.1.0-1       @System     39.2 KiB
Installing dependencies:
 dkms                       noarch  3.0.13-1      epel        84.0 KiB
Removing:
 old                        noarch  1-1           lab          1.0 KiB
Removing unused dependencies:
 older                      noarch  0-1           lab          1.0 KiB
Reinstalling:
 same                       noarch  1-1           lab          1.0 KiB
   replacing same           noarch  1-1           lab          1.0 KiB

Transaction Summary:
 Installing:         2 packages
 Removing:           1 package
"""


def test_the_table_of_dnf_5() -> None:
    assert parse_transaction(TABLE_5) == [
        Change("upgrade", "librbln", "3.2.2-1", "3.4.0-1"),
        Change("install", "rebellions-kmd", None, "3.4.0-1"),
        Change("remove", "rebellions", "2.1.0-1"),
        Change("install", "dkms", None, "3.0.13-1"),
        Change("remove", "old", "1-1"),
        Change("remove", "older", "0-1"),
        Change("reinstall", "same", "1-1", "1-1"),
    ]


TABLE_4 = """Dependencies resolved.
================================================
 Package
        Arch   Version      Repository     Size
================================================
Upgrading:
 VirtualBox-4.3
        x86_64 4.3.28_100309_fedora18-1
                            virtualbox     68 M
 acpi   x86_64 1.7-1.fc19   updates        24 k
     replacing  apm.x86_64 1.6-1.fc19
Skipping packages with conflicts:
 left   x86_64 1-1          updates        1 k
Downgrading:
 sqlite i686   3.8.3-1.fc19 updates       416 k

Transaction Summary
================================================
Upgrade  6 Packages
"""


def test_rows_that_go_on_in_the_next_line() -> None:
    assert parse_transaction(TABLE_4) == [
        Change("upgrade", "VirtualBox-4.3", None, "4.3.28_100309_fedora18-1"),
        Change("upgrade", "acpi", None, "1.7-1.fc19"),
        Change("remove", "apm", "1.6-1.fc19"),
        Change("downgrade", "sqlite", None, "3.8.3-1.fc19"),
    ]


def test_locks_of_both() -> None:
    assert parse_locks(
        "Last metadata expiration check: 0:01\nkmd-0:3.2.2-1.el9.*\n!bad-0:1-1.*\nkernel-core-0:5.14.0-570.el9.*\n"
    ) == ["kernel-core", "kmd"]
    assert parse_locks(
        "# Added by 'versionlock add' command on 2026-11-28\nPackage name: kmd\nevr = 3.4.0-1\n\nPackage name: lib\n"
        "evr = 1\n"
    ) == ["kmd", "lib"]


def test_scripts_that_failed() -> None:
    assert failed_scripts("a\nwarning: %post(x) scriptlet failed, exit status 1\nRunning scriptlet: x\n") == [
        "warning: %post(x) scriptlet failed, exit status 1"
    ]


@pytest.mark.parametrize("name", ["--installroot=/x", "kmd;x", "@group", "", "./kmd.rpm", "kmd*", "*"])
def test_text_that_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    machine, runner = host(tmp_path, [])
    with pytest.raises(NpuError, match="is not a package name"):
        Dnf(machine).simulate(Transaction(install=[name]))
    assert runner.calls == []
