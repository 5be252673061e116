# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Everything of the driver goes, what others own stays, and the proof is a look that finds nothing."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.rebellions.npu.plugins.module_utils._driver_remove import DriverRemoval, owned, residue
from ansible_collections.rebellions.npu.plugins.module_utils._host import VALUE, Completed, Host, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._package_manager import Change
from ansible_collections.rebellions.npu.plugins.module_utils._vendor_rebellions import PROFILE
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import (
    AFTER, BEFORE, DAEMON, ERROR, KMD, MODULE, SERVICES, STATE, Killed, Machine, change, having, memory,
)  # fmt: skip
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL, Tree

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


def remove(machine: Machine, **keys: t.Any) -> t.Dict[str, t.Any]:
    keys = {"source": "runfile", "state": "absent", "install": False, "services": list(SERVICES), **keys}
    return change(machine, DriverRemoval, **keys).run()


def assert_gone(machine: Machine) -> None:
    assert (machine.loaded, machine.on_disk, machine.packages, machine.held) == (None, None, {}, set())
    assert not machine.tree.real(STATE).exists()
    assert not [path for path in LEFT if machine.tree.real(path).exists()]


# -- what counts as left


def test_residue_is_found_by_name_only(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    ours = [
        "/etc/udev/rules.d/70-rbln.rules", "/etc/udev/rules.d/71-rbln-smd.rules", "/usr/lib/udev/rules.d/60-rebellions.rules", "/etc/modprobe.d/rbln.conf",
        "/etc/modules-load.d/rebellions.conf", "/usr/lib/systemd/system/rbln-smd.service", "/usr/local/bin/rbln-stat",
        "/lib/modules/%s/updates/dkms/rebellions.ko.zst" % KERNEL, "/lib/modules/5.15/extra/rebellions.ko", "/usr/src/rebellions-3.4.0/Makefile",
        "/var/lib/dkms/rebellions/3.4.0/x",
    ]  # fmt: skip
    others = [
        "/etc/udev/rules.d/70-rbln-host.rules", "/etc/udev/rules.d/99-other.rules", "/etc/modprobe.d/nouveau.conf", "/usr/bin/rbln-ctk",
        "/lib/modules/%s/updates/dkms/nvidia.ko" % KERNEL, "/usr/src/rebellions-tools/x", "/var/lib/dkms/nvidia/x", "/usr/src/linux-headers-6.8/x",
    ]  # fmt: skip
    for path in ours + others:
        tree.write(path, "x")
    expected = [path for path in ours if not path.startswith(("/usr/src", "/var/lib/dkms"))] + ["/usr/src/rebellions-3.4.0", "/var/lib/dkms/rebellions"]
    assert residue(tree.host(), PROFILE) == sorted(expected)


def test_a_file_below_lib_is_found_once_where_lib_is_a_link(tmp_path: Path) -> None:
    tree = Tree(tmp_path).write("/usr/lib/udev/rules.d/70-rbln.rules", "x").link("/lib", "usr/lib")
    assert residue(tree.host(), PROFILE) == ["/usr/lib/udev/rules.d/70-rbln.rules"]


def test_what_a_package_owns_is_asked_of_both_package_managers() -> None:
    def run(argv: t.Sequence[str], timeout: float, env: t.Any) -> Probe:
        known = {"dpkg": "/a", "rpm": "/b"}
        return Probe(VALUE, Completed(0 if argv[-1] == known[argv[0]] else 1, "", "")) if argv[-1] != "/none" else Probe("absent")

    assert owned(Host("/nowhere", run), ["/a", "/b", "/c", "/none"]) == {"/a", "/b"}


# -- removing


@pytest.mark.parametrize("source", ["runfile", "package"])
def test_all_of_the_driver_goes(base: Path, source: str) -> None:
    machine = filled(base, source=source, uninstall=["--uninstall"])
    result = remove(machine)
    assert (result["outcome"], result["changed"], result["failed"], result["left"], result["reason"]) == ("removed", True, False, [], "")
    assert_gone(machine)
    assert ("uninstall" in machine.acts) is (source == "runfile")
    again = remove(machine)
    assert (again["outcome"], again["changed"], again["failed"], machine.acts) == ("unchanged", False, False, [])
    assert not machine.tree.real(STATE + "/driver.json").exists()


def test_the_order_of_a_removal(base: Path) -> None:
    machine = filled(base, uninstall=["--uninstall"], hold_kernel=["linux-generic"])
    remove(machine)
    assert machine.acts == [
        "stop vllm.service", "stop exporter.service", "stop rbln-smd.service", "unload", "unhold rebellions-kmd linux-generic", "repair", "uninstall",
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
    assert result["warnings"] == ["dkms did not remove rebellions/3.2.2; its tree is deleted."]
    assert not machine.tree.real("/var/lib/dkms/rebellions").exists()
    assert_gone(machine)


def test_modules_of_every_kernel_go_and_their_lists_are_made_anew(base: Path) -> None:
    machine = filled(base)
    machine.tree.write("/lib/modules/5.15.0-1/extra/rebellions.ko", "x").folder("/lib/modules/6.1.0-9")
    remove(machine)
    assert not machine.tree.real("/lib/modules/5.15.0-1/extra/rebellions.ko").exists()
    assert [argv for argv in machine.asked if argv[0] == "depmod"] == [["depmod", "-a", "5.15.0-1"]]
    assert ["systemctl", "daemon-reload"] in machine.asked and ["udevadm", "control", "--reload"] in machine.asked


def test_what_a_package_owns_stays_and_is_named(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = filled(base)
    plain = machine._run

    def run(argv: t.List[str], pass_fds: t.Sequence[int]) -> t.Tuple[int, str, str]:
        return (0, "other: /usr/bin/rbln-smi", "") if argv == ["dpkg", "-S", "/usr/bin/rbln-smi"] else plain(argv, pass_fds)

    monkeypatch.setattr(machine, "_run", run)
    result = remove(machine)
    assert (result["failed"], result["left"], result["reason"]) == (True, ["/usr/bin/rbln-smi"], "Something is left on the host: /usr/bin/rbln-smi.")
    assert machine.tree.real("/usr/bin/rbln-smi").exists() and not machine.tree.real("/etc/udev/rules.d/70-rbln.rules").exists()


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


def test_a_half_installed_package_is_repaired_before_its_removal_is_looked_at(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = filled(base)
    asked: t.List[t.Tuple[str, ...]] = []
    plain = machine.manager.simulate

    def simulate(**keys: t.Any) -> t.List[Change]:
        asked.append(tuple(machine.acts))
        return plain(**keys)

    monkeypatch.setattr(machine.manager, "unfinished", lambda: [KMD])
    monkeypatch.setattr(machine.manager, "simulate", simulate)
    assert remove(machine)["outcome"] == "removed"
    assert len(asked) == 1 and asked[0][-1] == "repair"


@pytest.mark.parametrize("absent", ["rbln-extra-tools", "cuda-unrelated"])
def test_packages_to_remove_besides_are_named(base: Path, absent: str) -> None:
    machine = filled(base)
    machine.packages[absent] = "1"
    remove(machine, absent=[absent])
    assert absent not in machine.packages


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
    result = change(machine, DriverRemoval, source="runfile", state="absent").foresee()
    assert result["left"] == [KMD, "rebellions (loaded)", *sorted([*LEFT, MODULE]), machine.profile.runfile_stamp_dir]
    assert (result["changed"], machine.acts, machine.look()) == (True, [], before)


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
