# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything of the driver goes, what others own stays, and the proof is a look that finds nothing."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._driver.remove import DriverRemoval
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Change, Transaction
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import (
    AFTER,
    BEFORE,
    DAEMON,
    ERROR,
    KMD,
    MODULE,
    SERVICES,
    STATE,
    Killed,
    Machine,
    change,
    having,
    memory,
)  # fmt: skip
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL

LEFT = ["/etc/modules-load.d/rbln.conf", "/etc/udev/rules.d/70-rbln.rules", "/usr/bin/rbln-smi"]


@pytest.fixture(name="base")
def base_fixture() -> t.Iterator[Path]:
    with memory() as path:
        yield path


def filled(base: Path, **keys: t.Any) -> Machine:
    machine = having(base / "root", **keys)
    for path in LEFT:
        machine.tree.write(path, "x")
    return machine


def remove(machine: Machine, **keys: t.Any) -> dict[str, t.Any]:
    keys = {"source": "runfile", "state": "absent", "install": False, "services": list(SERVICES), **keys}
    return change(machine, DriverRemoval, **keys).run().to_dict()


def assert_gone(machine: Machine) -> None:
    assert (machine.loaded, machine.on_disk, machine.packages, machine.held) == (None, None, {}, set())
    assert not machine.tree.real(STATE).exists()
    assert not [path for path in LEFT if machine.tree.real(path).exists()]


# -- removing


@pytest.mark.parametrize("source", ["runfile", "package"])
def test_all_of_the_driver_goes(base: Path, source: str) -> None:
    machine = filled(base, source=source, uninstall=["--uninstall"])
    result = remove(machine)
    assert (result["outcome"], result["changed"], result["failed"], result["left"], result["reason"]) == (
        "removed",
        True,
        False,
        [],
        "",
    )
    assert_gone(machine)
    assert ("uninstall" in machine.acts) is (source == "runfile")
    again = remove(machine)
    assert (again["outcome"], again["changed"], again["failed"], machine.acts) == ("unchanged", False, False, [])
    assert not machine.tree.real(STATE + "/driver.json").exists()


def test_the_order_of_a_removal(base: Path) -> None:
    machine = filled(base, uninstall=["--uninstall"], hold_kernel=["linux-generic"])
    remove(machine)
    assert machine.acts == [
        "stop vllm.service", "stop exporter.service", "stop rbln-smd.service", "unload",
        "unhold rebellions-kmd linux-generic", "repair", "uninstall",
        "start exporter.service", "start vllm.service",
    ]  # fmt: skip


def test_packages_go_where_no_installer_knows_how(base: Path) -> None:
    machine = filled(base)
    result = remove(machine)
    assert (result["packages"], result["outcome"]) == ([KMD], "removed")
    assert "apply -%s" % KMD in machine.acts
    assert_gone(machine)


def test_uninstall_arguments_given_now_count(base: Path) -> None:
    machine = filled(base)
    remove(machine, uninstall=["--uninstall", "--yes"])
    assert "uninstall" in machine.acts
    assert_gone(machine)


def test_dkms_trees_are_unregistered_and_what_stays_is_deleted(base: Path) -> None:
    machine = filled(base)
    name = "/var/lib/dkms/rebellions/3.2.2"
    machine.tree.write(name + "/%s/x86_64/module/rebellions.ko" % KERNEL, "x").write(name + "/source/dkms.conf", "x")
    machine.active -= set(SERVICES)
    machine.trouble = {"dkms remove rebellions/3.2.2 --all": ERROR}
    result = remove(machine, services=[])
    assert "dkms remove rebellions/3.2.2 --all" in machine.acts
    assert result["warnings"] == ["dkms could not remove rebellions/3.2.2; its tree was deleted."]
    assert not machine.tree.real("/var/lib/dkms/rebellions").exists()
    assert_gone(machine)


def test_modules_of_every_kernel_go_and_their_lists_are_made_anew(base: Path) -> None:
    machine = filled(base)
    machine.tree.write("/lib/modules/5.15.0-1/extra/rebellions.ko", "x").folder("/lib/modules/6.1.0-9")
    remove(machine)
    assert not machine.tree.real("/lib/modules/5.15.0-1/extra/rebellions.ko").exists()
    assert [argv for argv in machine.asked if argv[0] == "depmod"] == [["depmod", "-a", "5.15.0-1"]]
    assert ["systemctl", "daemon-reload"] in machine.asked and ["udevadm", "control", "--reload"] in machine.asked


def test_what_a_package_of_somebody_else_owns_stays_and_does_not_count(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = filled(base)
    plain = machine._run

    def run(argv: list[str], pass_fds: t.Sequence[int]) -> tuple[int, str, str]:
        return (1, "other: /usr/bin/rbln-smi\n", "") if argv[:2] == ["dpkg", "-S"] else plain(argv, pass_fds)

    monkeypatch.setattr(machine, "_run", run)
    result = remove(machine)
    assert (result["outcome"], result["failed"], result["left"]) == ("removed", False, [])
    assert (
        machine.tree.real("/usr/bin/rbln-smi").exists()
        and not machine.tree.real("/etc/udev/rules.d/70-rbln.rules").exists()
    )


def test_libraries_go_and_the_cache_of_the_loader_is_made_anew(base: Path) -> None:
    machine = filled(base)
    machine.tree.write("/usr/lib/x86_64-linux-gnu/librbln-ccl.so.3.2.2", "x").link(
        "/usr/lib/x86_64-linux-gnu/librbln-ccl.so", "librbln-ccl.so.3.2.2"
    )
    machine.tree.write("/usr/lib64/libibverbs/librbln-rdmav34.so", "x")
    remove(machine)
    assert (
        list(machine.tree.real("/usr/lib/x86_64-linux-gnu").iterdir())
        + list(machine.tree.real("/usr/lib64/libibverbs").iterdir())
        == []
    )
    assert ["ldconfig"] in machine.asked


# -- notes


def test_a_clean_host_stays_clean(base: Path) -> None:
    machine = Machine(base / "root")
    for look in (False, True):
        result = remove(machine, look=look, uninstall=["--uninstall"])
        assert (result["outcome"], result["changed"], result["failed"], result["installer"]) == (
            "unchanged",
            False,
            False,
            False,
        )
    assert machine.acts == [] and not machine.tree.real(STATE).exists()


@pytest.mark.parametrize(
    "name",
    [
        "driver.json",
        "refused.json",
        "tainted.json",
        "kept/runfile-3.2.2/x",
        "incoming/a.run",
        ".driver.json.x1.tmp",
        "",
    ],
)
def test_any_note_of_ours_is_left_until_it_is_taken_away(base: Path, name: str) -> None:
    machine = Machine(base / "root")
    machine.tree.folder(STATE)
    if name:
        machine.tree.write(STATE + "/" + name, "{}")
    machine.active.update(SERVICES)
    result = remove(machine)
    assert (result["outcome"], result["changed"], result["failed"], result["left"]) == ("removed", True, False, [])
    # There is no driver, so nothing is stopped for it.
    assert machine.acts == [] and not machine.tree.real(STATE).exists()


def test_a_bundle_and_keys_in_the_directory_stay(base: Path) -> None:
    machine = filled(base)
    for name in ("/bundle/manifest.json", "/secure-boot/mok.key"):
        machine.tree.write(STATE + name, "x")
    result = remove(machine)
    assert (result["outcome"], result["left"]) == ("removed", [])
    assert sorted(path.name for path in machine.tree.real(STATE).iterdir()) == ["bundle", "secure-boot"]
    again = remove(machine)
    assert (again["outcome"], again["changed"]) == ("unchanged", False)


def test_holds_that_were_made_for_a_driver_of_somebody_else_are_let_go_of_and_the_driver_stays(base: Path) -> None:
    machine = having(base / "root")
    machine.tree.real(STATE + "/driver.json").unlink()
    machine.held.clear()
    change(machine, source="package", install=False, hold_kernel=["linux-generic"]).run().to_dict()
    assert machine.held == {"linux-generic"}
    result = remove(machine, source="package", notes_only=True)
    assert (result["outcome"], result["changed"], result["left"], machine.acts) == (
        "removed",
        True,
        [],
        ["unhold linux-generic"],
    )
    assert (machine.loaded, machine.packages, machine.held) == ("3.2.2", {KMD: "3.2.2"}, set())
    assert not machine.tree.real(STATE).exists()
    again = remove(machine, source="package", notes_only=True)
    assert (again["outcome"], again["changed"]) == ("unchanged", False)


def test_with_the_notes_an_interrupted_change_is_undone_first(base: Path) -> None:
    machine = having(base / "root")
    machine.trouble = {"load": BEFORE}
    with pytest.raises(Killed):
        change(machine, source="package", install=False, reload=True, services=list(SERVICES)).run().to_dict()
    machine.trouble = {}
    result = remove(machine, source="package", notes_only=True)
    assert (result["outcome"], result["failed"], machine.loaded, machine.active) == (
        "removed",
        False,
        "3.2.2",
        {DAEMON, *SERVICES},
    )
    assert machine.packages == {KMD: "3.2.2"} and not machine.tree.real(STATE).exists()


# -- looking, and the installer


def test_a_look_refuses_as_the_removal_would_and_changes_nothing(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = filled(base)
    before = machine.look()
    result = remove(machine, look=True)
    assert (result["outcome"], result["changed"], result["failed"], machine.acts, machine.look()) == (
        "unchanged",
        False,
        False,
        [],
        before,
    )
    machine.beside = [Change("remove", "libc6", "2")]
    with pytest.raises(NpuError, match="would also remove libc6"):
        remove(machine, look=True)
    machine.beside = []
    removal = change(machine, DriverRemoval, source="runfile", state="absent", look=True)

    def used(_tell: object) -> None:
        raise NpuError("The NPUs are in use.", "Stop them.")

    monkeypatch.setattr(removal.units, "refuse_or_wait", used)
    with pytest.raises(NpuError, match="in use"):
        removal.run().to_dict()
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)


def by_hand(base: Path) -> Machine:
    """A driver of which no installer is kept, and whose files only its installer knows."""
    machine = having(base / "root", keep=0)
    machine.active -= set(SERVICES)
    return machine


def test_an_installer_that_is_given_removes_where_none_is_kept(base: Path) -> None:
    machine = by_hand(base)
    uninstall = ["--uninstall"]
    assert remove(machine, look=True, uninstall=uninstall)["installer"] is True
    assert remove(machine, look=True)["installer"] is False
    files = machine.runfile("3.2.2")
    # Arguments of unpacking belong to installing alone.
    result = remove(machine, uninstall=uninstall, files=files, extract=["--extract", "{directory}"])
    assert (result["outcome"], result["failed"], "uninstall" in machine.acts) == ("removed", False, True)
    assert_gone(machine)


def test_a_kept_installer_goes_before_one_that_is_given(base: Path) -> None:
    machine = filled(base)
    assert remove(machine, look=True, uninstall=["--uninstall"])["installer"] is False
    remove(machine, uninstall=["--uninstall"], files=machine.runfile("9.9.9"))
    assert "uninstall" in machine.acts
    assert_gone(machine)


def test_an_installer_that_differs_is_refused_first(base: Path) -> None:
    machine = by_hand(base)
    before = machine.look()
    with pytest.raises(NpuError, match="is missing or does not have the SHA-256"):
        remove(machine, uninstall=["--uninstall"], files=[{**machine.runfile("3.2.2")[0], "sha256": "0" * 64}])
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)


# -- refusals and faults


def test_a_removal_that_would_take_more_is_refused(base: Path) -> None:
    machine = filled(base)
    before = machine.look()
    machine.beside = [Change("remove", "libc6", "2")]
    with pytest.raises(NpuError, match="would also remove libc6"):
        remove(machine)
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)
    machine.beside = []
    assert remove(machine)["outcome"] == "removed"
    assert_gone(machine)


def test_a_half_installed_package_is_repaired_before_its_removal_is_looked_at(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = filled(base)
    asked: list[tuple[str, ...]] = []
    plain = machine.manager.simulate

    def simulate(transaction: Transaction) -> list[Change]:
        asked.append(tuple(machine.acts))
        return plain(transaction)

    monkeypatch.setattr(machine.manager, "unfinished", lambda: [KMD])
    monkeypatch.setattr(machine.manager, "simulate", simulate)
    assert remove(machine)["outcome"] == "removed"
    assert len(asked) == 1 and asked[0][-1] == "repair"


def test_what_dpkg_left_of_others_stops_a_removal_too(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = filled(base)
    monkeypatch.setattr(machine.manager, "unfinished", lambda: ["nginx"])
    before = machine.look()
    with pytest.raises(
        NpuError, match="^The package manager was interrupted, and has not finished nginx. Next: Run dpkg"
    ):
        remove(machine)
    assert (machine.acts, machine.look()) == ([], before)
    assert remove(machine, repair=True)["outcome"] == "removed"


@pytest.mark.parametrize("absent", ["rbln-extra-tools", "cuda-unrelated"])
def test_packages_to_remove_besides_are_named(base: Path, absent: str) -> None:
    machine = filled(base)
    machine.packages[absent] = "1"
    remove(machine, absent=[absent])
    assert absent not in machine.packages


def test_packages_to_remove_besides_go_before_the_installer_removes(base: Path) -> None:
    machine = filled(base, uninstall=["--uninstall"])
    machine.packages["npu-app"] = "1"
    machine.write_packages()
    remove(machine, absent=["npu-app"])
    assert machine.acts.index("apply -npu-app") < machine.acts.index("uninstall")
    assert_gone(machine)


def test_what_is_removed_and_not_purged_is_purged(base: Path) -> None:
    machine = filled(base)
    machine.shells.add("rebellions-kmd-old")
    machine.write_packages()
    remove(machine)
    assert machine.shells == set() and "apply -%s -rebellions-kmd-old" % KMD in machine.acts


def test_a_module_that_does_not_let_go_is_an_error_and_nothing_is_removed(base: Path) -> None:
    machine = filled(base)
    machine.active.add("other.service")
    active = set(machine.active)
    result = remove(machine)
    assert (result["outcome"], result["failed"]) == ("restored", True)
    assert result["reason"].startswith("rebellions cannot be unloaded")
    assert (machine.packages, machine.on_disk, machine.active) == ({KMD: "3.2.2"}, "3.2.2", active)
    assert machine.record("journal.json") is None


def test_foreseeing_names_what_is_there_and_changes_nothing(base: Path) -> None:
    machine = filled(base)
    before = machine.look()
    result = change(machine, DriverRemoval, source="runfile", state="absent").foresee().to_dict()
    notes = ["%s/%s" % (machine.profile.runfile_stamp_dir, name) for name in ("driver.json", "kept")]
    assert result["left"] == [KMD, "rebellions (loaded)", *sorted([*LEFT, MODULE]), *notes]
    assert (result["changed"], machine.acts, machine.look()) == (True, [], before)


def test_a_removal_that_broke_off_can_be_undone(base: Path) -> None:
    machine = filled(base, uninstall=["--uninstall"])
    machine.trouble = {"uninstall": AFTER}
    with pytest.raises(Killed):
        remove(machine)
    assert (machine.record("journal.json")["touched"], machine.packages) == (True, {})
    machine.trouble = {}
    result = change(machine, source="runfile", install=False, services=list(SERVICES)).run().to_dict()
    assert (result["outcome"], result["failed"], machine.loaded, machine.packages) == (
        "rolled_back",
        False,
        "3.2.2",
        {KMD: "3.2.2"},
    )
    assert machine.active == {DAEMON, *SERVICES}


def test_a_removal_that_goes_on_does_not_say_that_all_is_as_before(base: Path) -> None:
    machine = filled(base, uninstall=["--uninstall"])
    machine.trouble = {"uninstall": AFTER}
    with pytest.raises(Killed):
        remove(machine)
    machine.loaded, machine.trouble = "3.2.2", {"unload": ERROR}
    result = remove(machine)
    assert (result["outcome"], result["failed"], machine.record("journal.json")["touched"]) == (
        "unfinished",
        True,
        True,
    )


@pytest.mark.parametrize("mode", [BEFORE, AFTER, ERROR])
def test_a_removal_that_broke_off_anywhere_is_finished_by_the_next_run(base: Path, mode: str) -> None:
    clean = filled(base / "clean", uninstall=["--uninstall"], hold_kernel=["linux-generic"])
    remove(clean)
    acts = list(clean.acts)
    for number, act in enumerate(acts):
        machine = filled(base / str(number), uninstall=["--uninstall"], hold_kernel=["linux-generic"])
        machine.trouble = {number: mode}
        if mode == ERROR and act.startswith("start "):
            assert remove(machine)["warnings"]
            continue
        if mode == ERROR:
            first = remove(machine)
            assert first["failed"] is True
            assert first["outcome"] in ("restored", "unfinished"), act
            # What is put back owes nothing; what is half removed is finished by the next run.
            assert (machine.record("journal.json") is None) == (first["outcome"] == "restored"), act
        else:
            with pytest.raises(Killed):
                remove(machine)
            assert machine.record("journal.json") is not None
        machine.trouble = {}
        result = remove(machine)
        assert (result["outcome"], result["failed"]) == ("removed", False), act
        assert_gone(machine)
        assert DAEMON not in machine.active
