# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of the driver that others meet.

Runs after one that failed or was cut off, people who put a driver back by hand, device events, and late users.
"""

from __future__ import annotations

import os
import signal
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._checks.ready_files import MARKERS, marker_path
from ansible_collections.rebellions.npu.plugins.module_utils._driver import cards, units
from ansible_collections.rebellions.npu.plugins.module_utils._driver import change as driver_change
from ansible_collections.rebellions.npu.plugins.module_utils._driver.remove import DriverRemoval
from ansible_collections.rebellions.npu.plugins.module_utils._host.handles import Holder
from ansible_collections.rebellions.npu.plugins.module_utils._npu.firmware import FlashFailed
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import (
    AFTER,
    BEFORE,
    DAEMON,
    ERROR,
    KMD,
    MODULE,
    SERVICES,
    Killed,
    Machine,
    change,
    having,
    memory,
    upgrade,
)  # fmt: skip

CARD = {"address": "0000:83:00.0", "ok": True, "detail": "SUCCESS [O]"}


@pytest.fixture(name="machine")
def machine_fixture() -> t.Iterator[Machine]:
    """Driver 3.2.2 from a runfile, with two services that use it."""
    with memory() as path:
        yield having(path / "root")


def cut_off(machine: Machine, trouble: dict[int | str, str], **keys: t.Any) -> None:
    machine.trouble = trouble
    with pytest.raises(Killed):
        upgrade(machine, **keys)
    machine.trouble = {}


def remove(machine: Machine, **keys: t.Any) -> dict[str, t.Any]:
    return (
        change(
            machine,
            DriverRemoval,
            **{"state": "absent", "source": "runfile", "install": False, "services": list(SERVICES), **keys},
        )
        .run()
        .to_dict()
    )


def ready(machine: Machine) -> list[str]:
    return [name for name in MARKERS if machine.tree.real(marker_path(machine.profile, name)).exists()]


def on_load(machine: Machine, act: t.Callable[[], t.Any]) -> None:
    """Do something whenever the module is loaded, as the events of its devices do."""
    load = machine._load

    def loading() -> t.Any:
        done = load()
        act()
        return done

    machine._load = loading  # type: ignore[method-assign]


def write_ready(machine: Machine) -> None:
    for name in MARKERS:
        machine.tree.write(marker_path(machine.profile, name), "")


def flashing(monkeypatch: pytest.MonkeyPatch, act: t.Callable[[], t.Any]) -> None:
    monkeypatch.setattr(cards, "flash", lambda host, profile, directory: act())


# -- taken over


def test_cut_off_while_it_is_noted_and_booted_the_driver_is_loaded_before_the_change_counts(machine: Machine) -> None:
    cut_off(machine, {"hold " + KMD: BEFORE})
    machine.loaded = None
    machine.active.clear()
    assert (upgrade(machine)["outcome"], machine.loaded, DAEMON in machine.active) == ("upgraded", "3.4.0", True)


def test_cut_off_while_it_is_noted_nothing_is_stopped_when_the_driver_still_passes(machine: Machine) -> None:
    cut_off(machine, {"hold " + KMD: BEFORE})
    assert upgrade(machine)["outcome"] == "upgraded"
    assert machine.acts == ["prove 3.4.0", "hold " + KMD, "start exporter.service", "start vllm.service"]


def test_after_a_failure_without_a_way_back_the_next_run_installs_again(machine: Machine) -> None:
    machine.trouble = {"load": ERROR}
    assert upgrade(machine, rollback=False)["outcome"] == "left_stopped"
    machine.trouble = {}
    machine.tree.real(MODULE).unlink()
    machine.packages.clear()
    machine.write_packages()
    result = upgrade(machine, rollback=False)
    assert (result["outcome"], "run 3.4.0" in machine.acts, machine.loaded) == ("upgraded", True, "3.4.0")


def test_what_a_person_has_put_back_is_not_taken_for_what_was_installed(machine: Machine) -> None:
    cut_off(machine, {"load": BEFORE})
    machine.put("3.2.2")
    result = upgrade(machine)
    assert (result["outcome"], machine.loaded, machine.record("refused.json")) == ("upgraded", "3.4.0", None)


# -- reload


def stopped(machine: Machine) -> dict[str, t.Any]:
    machine.loaded = None
    machine.active.clear()
    return machine.look()


def test_a_driver_that_was_not_loaded_and_does_not_pass_is_unloaded_again_and_remembered(machine: Machine) -> None:
    before = stopped(machine)
    machine.unfit.add("3.2.2")
    result = change(machine, source="package", install=False, reload=True).run().to_dict()
    assert (result["outcome"], machine.look()) == ("restored", before)
    assert [entry["version"] for entry in machine.record("refused.json")["refused"]] == ["3.2.2"]
    machine.unfit.clear()
    assert change(machine, source="package", install=False, reload=True).run().to_dict()["outcome"] == "prepared"
    assert (machine.loaded, machine.record("refused.json")) == ("3.2.2", None)


def test_what_is_at_work_goes_on_while_modules_are_built(machine: Machine) -> None:
    change(machine, source="package", install=False, reload=True, kernels=["6.9.0-1"]).run().to_dict()
    assert machine.acts.index("dkms autoinstall -k 6.9.0-1") < machine.acts.index("unload")
    upgrade(machine, kernels=["6.9.0-1"])
    assert machine.acts.index("prove 3.4.0") < machine.acts.index("dkms autoinstall -k 6.9.0-1")


# -- ready files


def test_events_of_devices_make_nobody_ready_in_the_middle_of_a_change(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_load(machine, lambda: write_ready(machine))
    seen: list[list[str]] = []

    def flash() -> t.Any:
        seen.append(ready(machine))
        return [CARD]

    flashing(monkeypatch, flash)
    assert (upgrade(machine, firmware="/fw")["outcome"], seen) == ("upgraded", [[]])


@pytest.mark.parametrize("rollback, outcome", [(False, "left_stopped"), (True, "rolled_back")])
def test_a_change_that_fails_leaves_no_ready_file_of_its_own(machine: Machine, rollback: bool, outcome: str) -> None:
    write_ready(machine)
    machine.unfit.add("3.4.0")
    on_load(machine, lambda: write_ready(machine) if machine.loaded == "3.4.0" else None)
    assert (upgrade(machine, rollback=rollback)["outcome"], ready(machine)) == (outcome, [])


# -- firmware


def test_cards_that_were_flashed_before_a_kill_are_not_forgotten(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flash() -> t.Any:
        with machine.act("flash"):
            return [CARD]

    flashing(monkeypatch, flash)
    cut_off(machine, {"flash": AFTER}, firmware="/fw")
    assert machine.record("journal.json")["flashed"] == []
    machine.unfit.add("3.4.0")
    result = upgrade(machine)
    assert (result["outcome"], machine.loaded) == ("left_stopped", None)
    assert result["reason"] == "Which cards were flashed is not known. Driver 3.4.0 does not work."


def test_a_tool_that_does_not_end_leaves_the_driver_unloaded(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def flash() -> t.Any:
        raise FlashFailed("Flashing did not end: killed.", "Ask.", hung=True)

    flashing(monkeypatch, flash)
    result = upgrade(machine, firmware="/fw")
    assert (result["outcome"], machine.loaded, machine.active & set(SERVICES)) == ("left_stopped", None, set())
    assert result["reason"] == "Which cards were flashed is not known. Flashing did not end: killed. Next: Ask."


def test_what_cannot_be_noted_after_a_flash_does_not_unload_a_driver_that_has_passed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: t.Any) -> None:
        raise NpuError("No space left on device.", "Make room.")

    flashing(monkeypatch, lambda: [CARD])
    with monkeypatch.context() as patch:
        patch.setattr(driver_change.Journal, "write_stamp", full)
        result = upgrade(machine, firmware="/fw")
    assert (result["outcome"], machine.loaded, machine.active) == ("firmware_failed", "3.4.0", {DAEMON, *SERVICES})
    assert "No space left" in result["reason"] and "These cards were flashed: 0000:83:00.0." in result["reason"]
    again = upgrade(machine)
    assert (again["outcome"], machine.record("driver.json")["version"], machine.record("journal.json")) == (
        "upgraded",
        "3.4.0",
        None,
    )


# -- users


def test_a_pod_that_comes_late_gets_no_signal_and_a_process_that_comes_late_is_asked_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = change(machine, source="runfile", version="3.4.0", in_use="stop")
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(units, "GRACE", 0.05)
    first, late, pod = (Holder("process", pid, "p%d" % pid) for pid in (4001, 4002, 4003))
    machine.tree.write("/proc/4003/cgroup", "0::/kubepods.slice/kubepods-pod1.slice/cri.scope\n")
    looks = [[first], [first, late], [late, pod]]
    monkeypatch.setattr(work.units, "_find", lambda: looks.pop(0))
    machine.active.clear()
    work.journal.record = {"stopped": []}
    with pytest.raises(NpuError, match="Pods use the NPUs: p4003"):
        work.units.stop(work.journal)
    assert sent == [(4001, signal.SIGTERM), (4002, signal.SIGTERM)]


# -- removal


def test_a_removal_is_refused_while_systemd_does_not_answer_or_the_package_manager_is_busy(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, run = machine.look(), machine._run

    def silent(argv: list[str], pass_fds: t.Sequence[int]) -> tuple[int, str, str]:
        return (1, "", "Failed to connect to bus") if argv[:2] == ["systemctl", "is-active"] else run(argv, pass_fds)

    with monkeypatch.context() as patch:
        patch.setattr(machine, "_run", silent)
        with pytest.raises(NpuError, match="does not report whether .* runs: Failed to connect to bus"):
            remove(machine)
    with monkeypatch.context() as patch:
        patch.setattr(machine.manager, "busy", lambda: "unattended-upgr (pid 7)")
        with pytest.raises(NpuError, match="in use by unattended-upgr"):
            remove(machine)
    assert (machine.look(), machine.acts) == (before, [])


def test_a_removal_that_cannot_unload_starts_everything_again_it_can(machine: Machine) -> None:
    machine.trouble = {"unload": ERROR, "start " + DAEMON: ERROR}
    result = remove(machine)
    assert (result["outcome"], result["failed"], machine.active) == ("restored", True, set(SERVICES))
    assert any(DAEMON in text for text in result["warnings"])


# -- packages


def test_check_mode_does_not_know_a_repository_that_is_not_placed_yet_and_reads_no_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path / "root")
    read: list[str] = []
    monkeypatch.setattr(machine.manager, "refresh", read.append)
    result = change(machine, source="package", version="3.4.0", names=[KMD]).foresee().to_dict()
    assert (result["simulated"], result["changed"], machine.acts, read) == ([], True, [], [])
    assert (
        len(result["warnings"]) == 1
        and "known only when the source is in place: No repository of this host has %s" % KMD in result["warnings"][0]
    )


def test_packages_that_came_go_with_the_way_back_to_a_driver_without_packages(machine: Machine) -> None:
    machine.packages.clear()
    machine.held.clear()
    machine.write_packages()
    machine.unfit.add("3.4.0")
    upgrade(machine, source="package", files=machine.debs("3.4.0"))
    assert "apply -" + KMD in machine.acts
