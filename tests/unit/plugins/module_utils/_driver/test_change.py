# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One change of the driver: what is looked at first, what happens in which order, what is noted.

Failures and kills are in test_crash.py.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._driver import (
    cards,
    journal,
    sources,
)
from ansible_collections.rebellions.npu.plugins.module_utils._driver import (
    change as driver_change,
)
from ansible_collections.rebellions.npu.plugins.module_utils._driver import (
    material as driver_material,
)
from ansible_collections.rebellions.npu.plugins.module_utils._driver.build import module_lack
from ansible_collections.rebellions.npu.plugins.module_utils._driver.remove import DriverRemoval
from ansible_collections.rebellions.npu.plugins.module_utils._driver.request import Unfit
from ansible_collections.rebellions.npu.plugins.module_utils._driver.units import InUse
from ansible_collections.rebellions.npu.plugins.module_utils._host.handles import Holder
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Completed, Probe
from ansible_collections.rebellions.npu.plugins.module_utils._npu.firmware import FlashFailed
from ansible_collections.rebellions.npu.plugins.module_utils._packages.changes import Change
from ansible_collections.rebellions.npu.tests.unit.fixtures import driver_machine
from ansible_collections.rebellions.npu.tests.unit.fixtures.driver_machine import (
    AFTER,
    DAEMON,
    ERROR,
    KMD,
    MODULE,
    SERVICES,
    STATE,
    UTC,
    Killed,
    Machine,
    change,
    having,
    memory,
    upgrade,
)  # fmt: skip
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import KERNEL, module_file

UNINSTALL = ["--uninstall"]


@pytest.fixture(name="base")
def base_fixture() -> t.Iterator[Path]:
    with memory() as path:
        yield path


@pytest.fixture(name="machine")
def machine_fixture(base: Path) -> Machine:
    """Driver 3.2.2 from a runfile, with two services that use it."""
    return having(base / "root", uninstall=UNINSTALL)


@pytest.fixture(name="empty")
def empty_fixture(base: Path) -> Machine:
    return Machine(base / "root")


def mode(machine: Machine, path: str) -> int:
    return stat.S_IMODE(os.stat(machine.tree.real(path)).st_mode)


# -- the order of things


def test_an_upgrade_step_by_step(machine: Machine) -> None:
    result = upgrade(machine, by="jo", prerequisites=[], hold=True)
    assert machine.acts == [
        "stop vllm.service", "stop exporter.service", "stop rbln-smd.service", "unload", "repair", "run 3.4.0", "load",
        "start rbln-smd.service",
        "prove 3.4.0", "hold rebellions-kmd", "start exporter.service", "start vllm.service",
    ]  # fmt: skip
    assert [step["step"] for step in result["steps"]] == ["stop", "unload", "install", "load", "start", "validate"]
    assert all(isinstance(step["seconds"], float) for step in result["steps"])
    del result["steps"]
    assert result == {
        "changed": True, "outcome": "upgraded", "version": "3.4.0", "previous": "3.2.2", "in_use": [], "simulated": [],
        "reason": "",
        "reboot_required": False, "warnings": [], "firmware": [], "failed": False,
    }  # fmt: skip


def test_the_stamp_says_where_the_driver_came_from(machine: Machine) -> None:
    before = machine.record("driver.json")
    files = machine.runfile("3.4.0")
    upgrade(machine, files=[{**files[0], "sha256": files[0]["sha256"].upper()}], by="jo on node1")
    assert machine.record("driver.json") == {
        "schema": 1,
        "version": "3.4.0",
        "source": "runfile",
        "files": [{"name": "rebellions-3.4.0.run", "sha256": files[0]["sha256"]}],
        "packages": [{"name": KMD, "version": "3.4.0"}],
        "held": [KMD],
        "held_kernel": [],
        "installed": {"time": UTC, "by": "jo on node1"},
        "previous": {"version": "3.2.2", "source": "runfile"},
    }
    assert before["previous"] is None
    assert (mode(machine, STATE), mode(machine, STATE + "/driver.json"), mode(machine, STATE + "/kept")) == (
        0o755,
        0o644,
        0o700,
    )
    assert sorted(os.listdir(machine.tree.real(STATE))) == ["driver.json", "kept"]


def test_the_journal_says_what_has_begun(machine: Machine) -> None:
    with pytest.raises(Killed):
        machine.trouble = {"load": "before"}
        upgrade(machine, by="jo")
    files = machine.runfile("3.4.0")
    assert machine.record("journal.json") == {
        "id": UTC, "started": UTC, "by": "jo", "direction": "forward", "step": "load",
        "done": ["stop", "unload", "install"], "touched": True,
        "opaque": True, "flashed": None,
        "wanted": {"version": "3.4.0", "source": "runfile", "files": [files[0]["sha256"]], "names": []},
        "previous": {"version": "3.2.2", "module": "3.2.2", "kept": True, "loaded": True,
                     "stamp": machine.record("driver.json"), "held": [KMD], "failed": []},
        "before": {KMD: "3.2.2"}, "stopped": [*SERVICES, DAEMON], "reboot": False, "reason": "",
    }  # fmt: skip
    assert mode(machine, STATE + "/journal.json") == 0o600


def test_only_services_that_run_are_stopped_and_started(machine: Machine) -> None:
    machine.active.discard("vllm.service")
    upgrade(machine)
    assert [act for act in machine.acts if act.split()[0] in ("stop", "start")] == [
        "stop exporter.service", "stop rbln-smd.service", "start rbln-smd.service", "start exporter.service",
    ]  # fmt: skip


def test_a_service_that_does_not_start_again_is_told(machine: Machine) -> None:
    machine.trouble = {"start vllm.service": ERROR}
    result = upgrade(machine)
    assert (result["outcome"], result["failed"]) == ("upgraded", False)
    assert result["warnings"] == [
        (
            "systemctl start vllm.service failed: start vllm.service has failed. "
            "Next: Read `systemctl status vllm.service` on the host."
        )
    ]


# -- packages


def test_packages_from_a_repository_are_fetched_at_the_simulated_version(empty: Machine) -> None:
    empty.repository.update(["%s=1:3.4.0-2" % KMD, "%s=3.2.2" % KMD])
    result = change(empty, source="package", names=[KMD], version="3.4.0").run().to_dict()
    # The machine's module carries the version of its package, so the proof would compare text; the request counts here.
    assert empty.acts[:3] == ["download %s=1:3.4.0-2" % KMD, "repair", "apply %s=1:3.4.0-2" % KMD]
    assert result["simulated"] == [{"act": "install", "name": KMD, "old": None, "new": "1:3.4.0-2"}]


def test_a_version_that_no_repository_has_is_refused_first(machine: Machine) -> None:
    machine.repository.update(["%s=3.3.0" % KMD, "%s=3.2.2" % KMD])
    before = machine.look()
    with pytest.raises(
        NpuError, match="^No repository of this host has %s in version 3.4.0; available: 3.3.0, 3.2.2. " % KMD
    ):
        change(machine, source="package", names=[KMD], version="3.4.0").run().to_dict()
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)


def test_a_repository_that_was_left_out_is_the_cause_of_a_version_that_is_not_found(machine: Machine) -> None:
    told = "Left out, signature not accepted: the repository rebellions-npu."
    machine.manager.left_out = [told]
    with pytest.raises(NpuError) as caught:
        change(machine, source="package", names=[KMD], version="3.4.0").run()
    assert caught.value.message.endswith("available: none. " + told)
    assert caught.value.next_step.startswith("Repair the repository that was left out")


def test_the_newest_of_the_source_is_installed_noted_and_kept_under_its_own_version(empty: Machine) -> None:
    empty.repository.update(["%s=3.4.0" % KMD, "%s=3.2.2" % KMD])
    result = change(empty, source="package", names=[KMD]).run().to_dict()
    assert (result["outcome"], result["failed"], result["reason"]) == ("installed", False, "")
    assert (empty.record("driver.json")["version"], empty.kept) == ("3.4.0", ["package-3.4.0"])


@pytest.mark.parametrize(
    "beside",
    [
        Change("remove", "linux-image-6.8.0-117-generic", "6.8"),
        Change("upgrade", "libc6", "1", "2"),
        Change("install", "curl", None, "8"),
    ],
)
def test_changes_beyond_the_plan_are_refused_with_their_names(machine: Machine, beside: Change) -> None:
    machine.beside = [beside]
    before = machine.look()
    with pytest.raises(NpuError, match="^The package manager would also %s %s. " % (beside.act, beside.name)):
        upgrade(machine, source="package", files=machine.debs("3.4.0"))
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)
    assert (
        upgrade(machine, source="package", files=machine.debs("3.4.0"), allowed=[beside.name])["outcome"] == "upgraded"
    )


@pytest.mark.parametrize(
    "beside, fine",
    [(Change("install", "gcc-13-base", None, "13"), True), (Change("upgrade", "libc6", "1", "2"), False)],
)
def test_prerequisites_bring_new_packages_and_change_none(machine: Machine, beside: Change, fine: bool) -> None:
    machine.repository.add("gcc=13")
    machine.beside = [beside]
    before = machine.look()
    if fine:
        upgrade(machine, prerequisites=["gcc"])
        assert machine.acts[0] == "apply gcc=13"
        return
    with pytest.raises(NpuError, match="^The package manager would also upgrade libc6. "):
        upgrade(machine, prerequisites=["gcc"])
    assert (machine.acts, machine.look()) == ([], before)


def test_what_dpkg_left_of_others_is_finished_only_when_that_is_asked_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.repository.add("gcc=13")
    monkeypatch.setattr(machine.manager, "unfinished", lambda: ["gcc", "nginx", "rebellions-kmd"])
    before = machine.look()
    with pytest.raises(
        NpuError, match="^The package manager was interrupted, and has not finished nginx. Next: Run dpkg"
    ):
        upgrade(machine, prerequisites=["gcc"])
    assert (machine.acts, machine.look()) == ([], before)
    assert upgrade(machine, prerequisites=["gcc"], repair=True)["outcome"] == "upgraded"
    assert machine.acts[0] == "repair"


def test_H11_what_is_seen_and_left_alone_is_a_warning(machine: Machine) -> None:
    machine.manager.warnings.append("Two versions of site-agent are installed.")
    assert "Two versions of site-agent are installed." in upgrade(machine)["warnings"]


def test_packages_that_the_host_excludes_are_installed_when_they_are_allowed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H09: what is allowed by name is also allowed past an exclude or a lock."""
    machine.repository.add("gcc=13")
    asked: list[bool] = []
    plain = machine.manager.apply
    monkeypatch.setattr(machine.manager, "apply", lambda one: (asked.append(one.allow_held), plain(one))[1])
    for allowed in (["kernel*"], ["g*"]):
        upgrade(machine, version="3.4.0" if allowed == ["g*"] else "3.2.2", prerequisites=["gcc"], allowed=allowed)
    assert [asked[0], asked[-1]] == [False, True] and len(asked) == 2


def test_a_file_that_is_another_is_refused_first(machine: Machine) -> None:
    before = machine.look()
    with pytest.raises(NpuError, match="is missing or does not have the SHA-256 %s" % ("0" * 64)):
        upgrade(machine, files=[{**machine.runfile("3.4.0")[0], "sha256": "0" * 64}])
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)


# -- holds


def test_what_was_held_before_is_not_ours(machine: Machine) -> None:
    machine.packages["linux-image-generic"] = "6.8.0"
    machine.held.add("linux-generic")
    result = upgrade(machine, hold_kernel=["linux-generic", "linux-image-generic"])
    stamp = machine.record("driver.json")
    assert (stamp["held"], stamp["held_kernel"], result["warnings"]) == ([KMD], ["linux-image-generic"], [])
    assert machine.held == {KMD, "linux-generic", "linux-image-generic"}
    upgrade(machine, "3.6.0", hold_kernel=["linux-generic", "linux-image-generic"])
    assert machine.record("driver.json")["held_kernel"] == ["linux-image-generic"]


@pytest.mark.parametrize("unfit, hold", [(False, True), (False, False), (True, True)])
def test_a_hold_of_the_users_own_outlives_an_installer(empty: Machine, unfit: bool, hold: bool) -> None:
    change(empty, source="runfile", version="3.2.2", files=empty.runfile("3.2.2"), hold=False).run().to_dict()
    empty.held.add(KMD)
    empty.unfit.update({"3.4.0"} if unfit else set())
    upgrade(empty, hold=hold)
    assert (empty.held, empty.record("driver.json")["held"]) == ({KMD}, [])


def test_a_hold_that_cannot_be_had_is_told_and_not_noted(empty: Machine) -> None:
    empty.trouble = {"hold %s" % KMD: ERROR}
    result = change(empty, source="package", version="3.4.0", files=empty.debs("3.4.0")).run().to_dict()
    assert (result["outcome"], result["warnings"], empty.record("driver.json")["held"]) == (
        "installed",
        ["hold %s has failed. Next: None." % KMD],
        [],
    )


def test_nothing_is_held_unasked(empty: Machine) -> None:
    change(empty, source="package", version="3.4.0", files=empty.debs("3.4.0"), hold=False).run().to_dict()
    assert (empty.held, empty.record("driver.json")["held"]) == (set(), [])


# -- what is kept


@pytest.mark.parametrize(
    "keep, kept", [(0, []), (1, ["3.4.0", "3.6.0"]), (2, ["3.4.0", "3.6.0"]), (3, ["3.2.2", "3.4.0", "3.6.0"])]
)
def test_the_last_good_versions_are_kept_and_no_more(machine: Machine, keep: int, kept: list[str]) -> None:
    upgrade(machine, "3.4.0", keep=3)
    upgrade(machine, "3.6.0", keep=keep)
    assert machine.kept == ["runfile-" + version for version in kept]


def test_a_driver_of_others_is_kept_where_its_packages_can_be_had(empty: Machine) -> None:
    empty.put("3.2.2")
    empty.repository.add("%s=3.2.2" % KMD)
    result = change(empty, source="package", version="3.4.0", files=empty.debs("3.4.0")).run().to_dict()
    assert (result["warnings"], empty.kept) == ([], ["package-3.2.2", "package-3.4.0"])


@pytest.mark.parametrize("rollback", [True, False])
def test_no_way_back_is_told_before(empty: Machine, rollback: bool) -> None:
    empty.put("3.2.2")
    result = (
        change(empty, source="package", version="3.4.0", files=empty.debs("3.4.0"), rollback=rollback).run().to_dict()
    )
    assert result["warnings"] == ["The host keeps no copy of driver 3.2.2: a rollback to it is not possible."]
    assert ("download %s=3.2.2" % KMD in empty.acts) is rollback


def test_a_driver_is_found_among_the_kept_by_its_release(machine: Machine) -> None:
    """The module may say 3.2.2-rebel1 where the inputs say 3.2.2."""
    machine.on_disk = "3.2.2-rebel1"
    machine.unfit.add("3.4.0")
    result = upgrade(machine)
    assert result["warnings"] == [] and "run 3.2.2" in machine.acts


def test_kept_drivers_that_cannot_be_cleared_away_do_no_harm(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: t.Any) -> None:
        raise NpuError("kept cannot be removed.", "See why.")

    monkeypatch.setattr(driver_change, "prune", fail)
    result = upgrade(machine)
    assert (result["outcome"], result["warnings"]) == ("upgraded", ["kept cannot be removed. Next: See why."])
    assert (machine.loaded, machine.record("journal.json"), machine.active) == ("3.4.0", None, {DAEMON, *SERVICES})


# -- the legacy package


@pytest.mark.parametrize("version, retired", [("3.4.0", True), ("2.1.0", False)])
def test_the_package_of_former_releases_goes_before_a_driver_of_the_new_form(
    empty: Machine, version: str, retired: bool
) -> None:
    empty.put("2.0.1", "rebellions")
    empty.loaded = "2.0.1"
    result = upgrade(empty, version)
    assert ("apply -rebellions" in empty.acts) is retired
    assert result["outcome"] == "upgraded" and ("rebellions" in empty.packages) is not retired


# -- reload, firmware, kernels, nothing


def test_a_reload_unloads_and_loads_what_is_on_disk(machine: Machine) -> None:
    machine.loaded = "3.2.0"
    result = change(machine, source="runfile", install=False, reload=True, services=list(SERVICES)).run().to_dict()
    assert (result["outcome"], machine.loaded, machine.active) == ("prepared", "3.2.2", {DAEMON, *SERVICES})
    assert machine.acts.index("unload") < machine.acts.index("load")


def test_builds_and_holds_alone_disturb_nobody(machine: Machine) -> None:
    machine.repository.add("gcc=13")
    stamp = machine.record("driver.json")
    result = (
        change(
            machine,
            source="runfile",
            install=False,
            prerequisites=["gcc"],
            kernels=["6.9.0-1"],
            hold_kernel=["linux-generic"],
        )
        .run()
        .to_dict()
    )
    assert machine.acts == ["apply gcc=13", "dkms autoinstall -k 6.9.0-1", "hold linux-generic"]
    assert (result["outcome"], machine.record("driver.json")) == (
        "prepared",
        {**stamp, "held_kernel": ["linux-generic"]},
    )


def test_a_build_that_is_noted_and_was_found_wanting_is_made_again(machine: Machine) -> None:
    tree, version = machine.tree, "/var/lib/dkms/rebellions/3.2.2"
    tree.folder(version + "/6.9.0-1/x86_64/module").link(
        "/var/lib/dkms/rebellions/kernel-6.9.0-1-x86_64", version + "/6.9.0-1/x86_64"
    )
    change(machine, source="runfile", install=False, kernels=["6.9.0-1"]).run().to_dict()
    assert machine.acts == ["dkms %s --force -m rebellions -v 3.2.2 -k 6.9.0-1" % act for act in ("build", "install")]


def test_a_build_that_fails_is_told(machine: Machine) -> None:
    machine.trouble = {"dkms autoinstall -k 6.9.0-1": ERROR}
    result = upgrade(machine, kernels=["6.9.0-1", "6.10.0-1"])
    assert result["warnings"] == [
        "Building the module failed for kernel 6.9.0-1: dkms autoinstall -k 6.9.0-1 has failed."
    ]
    assert "dkms autoinstall -k 6.10.0-1" in machine.acts and result["outcome"] == "upgraded"


def test_success_of_dkms_without_a_module_is_told(machine: Machine) -> None:
    """DKMS ends with 0 where it has nothing of this driver to build, or where the kernel has a module it keeps."""
    machine.builds = False
    result = upgrade(machine, kernels=["6.9.0-1"])
    assert result["warnings"] == [
        "Building the module failed for kernel 6.9.0-1: kernel 6.9.0-1 has no module file of rebellions"
    ]
    assert result["outcome"] == "upgraded"


def test_a_module_of_another_version_is_not_what_was_to_be_built(machine: Machine) -> None:
    machine.builds = False
    machine.tree.write(MODULE.replace(KERNEL, "6.9.0-1"), module_file("3.2.2"))
    result = upgrade(machine, kernels=["6.9.0-1"])
    assert len(result["warnings"]) == 1 and result["warnings"][0].endswith("rebellions.ko is 3.2.2, not 3.4.0")


def test_the_failure_of_another_module_is_none_of_the_driver(machine: Machine) -> None:
    """autoinstall builds every module: it fails when any does, and ours may be built all the same."""
    machine.tree.write(MODULE.replace(KERNEL, "6.9.0-1"), module_file("3.4.0"))
    machine.trouble = {"dkms autoinstall -k 6.9.0-1": ERROR}
    assert upgrade(machine, kernels=["6.9.0-1"])["warnings"] == []


@pytest.mark.parametrize("built, lack", [("AAAA", ""), ("BBBB", "is not the module that DKMS has built")])
def test_a_module_without_a_version_is_that_of_dkms(machine: Machine, built: str, lack: str) -> None:
    tree, folder = machine.tree, "/var/lib/dkms/rebellions/3.2.2/%s/x86_64" % KERNEL
    tree.write(MODULE, module_file("", srcversion="AAAA"))
    tree.write(folder + "/module/rebellions.ko", module_file("", srcversion=built))
    tree.link("/var/lib/dkms/rebellions/kernel-%s-x86_64" % KERNEL, folder)
    found = module_lack(machine.host, machine.profile, KERNEL, "3.2.2")
    assert found.endswith(lack) and bool(found) == bool(lack)


CARD = {"address": "0000:83:00.0", "ok": True, "detail": "SUCCESS [O]"}
OTHER_CARD = {"address": "0000:84:00.0", "ok": False, "detail": "FAIL [X]"}


def test_firmware_is_flashed_under_a_driver_that_has_passed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def flash(host: t.Any, profile: t.Any, directory: str) -> list[dict[str, t.Any]]:
        seen.append((directory, machine.loaded, sorted(machine.active), list(machine.acts)))
        return [CARD]

    monkeypatch.setattr(cards, "flash", flash)
    result = upgrade(machine, firmware="/usr/lib/firmware/rebellions", timeout=60)
    assert [row[:3] for row in seen] == [("/usr/lib/firmware/rebellions", None, [])] and "prove 3.4.0" in seen[0][3]
    assert (result["firmware"], result["outcome"], machine.acts.count("prove 3.4.0")) == ([CARD], "upgraded", 2)


def test_cards_that_still_carry_the_firmware_before_do_not_fail_the_driver_they_are_flashed_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.failing = ["firmware_is_driver"]
    assert upgrade(machine)["outcome"] == "rolled_back"

    def flash(*arguments: t.Any, **keys: t.Any) -> list[dict[str, t.Any]]:
        machine.failing = []
        return [CARD]

    monkeypatch.setattr(cards, "flash", flash)
    assert upgrade(machine, firmware="/fw")["outcome"] == "upgraded"


def failing(monkeypatch: pytest.MonkeyPatch, error: NpuError) -> None:
    def fail(*arguments: t.Any, **keys: t.Any) -> None:
        raise error

    monkeypatch.setattr(cards, "flash", fail)


def test_firmware_that_cannot_be_flashed_leaves_the_driver_at_work(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = machine.look()
    failing(monkeypatch, NpuError("rbln-flash is not on this host.", "Install it."))
    result = change(machine, source="runfile", install=False, firmware="/fw", services=list(SERVICES)).run().to_dict()
    assert (result["outcome"], result["failed"], result["firmware"]) == ("firmware_failed", True, [])
    assert result["reason"] == "No card was flashed: rbln-flash is not on this host. Next: Install it."
    assert (machine.look(), machine.record("journal.json")) == (before, None)


def test_a_card_that_fails_does_not_take_a_new_driver_back(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, FlashFailed("Flashing ended with code 1.", "By hand.", [CARD, OTHER_CARD]))
    result = upgrade(machine, firmware="/fw")
    assert (result["outcome"], result["failed"], result["reason"]) == (
        "firmware_failed",
        True,
        "Flashing ended with code 1. Next: By hand.",
    )
    assert (result["firmware"], machine.loaded, machine.record("driver.json")["version"]) == (
        [CARD, OTHER_CARD],
        "3.4.0",
        "3.4.0",
    )
    assert (machine.record("journal.json"), machine.record("refused.json"), machine.active) == (
        None,
        None,
        {DAEMON, *SERVICES},
    )


def test_the_next_step_of_a_failed_validation_is_the_only_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_machine, "Unfit", lambda text: Unfit(text + " Next: Reload it."))
    machine.unfit.add("3.4.0")
    assert upgrade(machine)["reason"] == (
        "Driver 3.4.0 does not work. Next: Reload it. "
        "Or try another version or file; this one is refused from now on unless retry is set."
    )


def test_a_driver_that_does_not_pass_with_new_firmware_is_left_stopped_and_the_cards_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flash(*arguments: t.Any, **keys: t.Any) -> list[dict[str, t.Any]]:
        machine.unfit.add("3.4.0")
        return [CARD]

    monkeypatch.setattr(cards, "flash", flash)
    result = upgrade(machine, firmware="/fw")
    assert (result["outcome"], machine.loaded, machine.record("refused.json")) == ("left_stopped", None, None)
    assert result["reason"] == "These cards were flashed: 0000:83:00.0. Driver 3.4.0 does not work."


def test_a_change_that_was_cut_off_while_it_flashed_loads_and_validates_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, t.cast(NpuError, Killed("flash")))
    with pytest.raises(Killed):
        upgrade(machine, firmware="/fw")
    assert machine.loaded is None
    result = upgrade(machine)
    assert (result["outcome"], machine.loaded) == ("upgraded", "3.4.0")
    assert machine.acts == [
        "load", "start rbln-smd.service", "prove 3.4.0", "hold rebellions-kmd", "start exporter.service",
        "start vllm.service",
    ]  # fmt: skip


# -- what others take the host for


def test_ready_files_go_with_the_first_service_and_stay_when_the_change_is_refused(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = machine.profile.validation_dir
    machine.tree.write(folder + "/driver-ready", "").write(folder + "/toolkit-ready", "")
    refusing = change(machine, source="runfile", version="3.4.0", files=machine.runfile("3.4.0"))

    user = Holder("process", 4200, "python3", ("rbln0",))

    def used(tell: t.Callable[[str], None]) -> None:
        raise InUse("The NPUs are in use.", "Stop them.", [user])

    monkeypatch.setattr(refusing.units, "refuse_or_wait", used)
    with pytest.raises(NpuError, match="in use"):
        refusing.run()
    assert [row["pid"] for row in refusing.result.to_dict()["in_use"]] == [4200]
    assert sorted(os.listdir(machine.tree.real(folder))) == ["driver-ready", "toolkit-ready"]
    machine.trouble = {"stop vllm.service": ERROR}
    assert upgrade(machine)["outcome"] == "restored"
    assert os.listdir(machine.tree.real(folder)) == []


# -- what is looked at first, and a way back with little to go on


@pytest.mark.parametrize(
    ("flag", "place", "words"),
    [
        (os.ST_RDONLY, "/usr", "/usr is on a file system that is mounted read-only"),
        (os.ST_NOEXEC, "", "mounted noexec"),
        (os.ST_RDONLY, "", "read-only"),
    ],
)
def test_a_file_system_that_cannot_take_the_driver_is_refused_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, flag: int, place: str, words: str
) -> None:
    monkeypatch.setattr(
        driver_material,
        "mount_flags",
        lambda host, path: flag if path == (place or machine.profile.runfile_stamp_dir) else 0,
    )
    before = machine.look()
    with pytest.raises(NpuError, match=words):
        upgrade(machine)
    # In check mode too.
    with pytest.raises(NpuError, match=words):
        change(machine, source="runfile", version="3.4.0").foresee()
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)


# -- H16: where an installer unpacks itself


@pytest.mark.parametrize(
    "asked, noexec, place",
    [
        ("", (), "incoming"),
        ("", ("/var/lib/rbln",), "/opt"),
        ("", ("/var/lib/rbln", "/opt"), "/root"),
        ("/srv/tmp", ("/var/lib/rbln", "/opt"), "/srv/tmp"),
        ("/srv/tmp", ("/srv/tmp",), ""),
        ("", ("/var/lib/rbln", "/opt", "/root"), ""),
        ("srv", (), ""),
    ],
)
def test_H16_noexec_tmp_runfile_gets_a_directory_where_programs_run(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, asked: str, noexec: tuple[str, ...], place: str
) -> None:
    """H16: TMPDIR is on a file system that is mounted exec, or nothing is stopped."""
    for path in ("/opt", "/root", "/srv/tmp"):
        machine.tree.folder(path)
    shown = {machine.profile.runfile_stamp_dir: "/var/lib/rbln"}
    monkeypatch.setattr(
        driver_material, "mount_flags", lambda host, path: os.ST_NOEXEC if shown.get(path, path) in noexec else 0
    )
    seen: list[str] = []

    def hear(*arguments: t.Any) -> None:
        seen.append(str(arguments[5]))
        assert stat.S_IMODE(os.stat(arguments[5]).st_mode) == 0o700
        execute(*arguments)

    execute = sources.execute
    monkeypatch.setattr(sources, "execute", hear)
    before = machine.look()
    if place:
        assert upgrade(machine, temporary_directory=asked)["outcome"] == "upgraded"
        assert [place in path for path in seen] == [True] and not os.path.exists(seen[0])
        assert not os.path.exists(machine.tree.real(STATE + "/incoming"))
        return
    with pytest.raises(NpuError, match="no directory to unpack itself and run what it unpacks: ") as caught:
        upgrade(machine, temporary_directory=asked)
    assert "Set temporary_directory to one that is writable and mounted exec" in caught.value.next_step
    assert (machine.acts, machine.look(), seen) == ([], before, [])


@pytest.mark.parametrize(
    "answer, words",
    [
        (Probe("denied", None, "Permission denied"), "does not let a program run (Permission denied)"),
        (Probe("value", Completed(126, "", "fapolicyd: no\n")), "does not let a program run (fapolicyd: no)"),
    ],
)
def test_H16_a_policy_that_denies_programs_is_found_by_trying_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, answer: Probe, words: str
) -> None:
    def run(argv: t.Sequence[str], *rest: t.Any) -> Probe:
        return answer if argv[0].endswith("-installer/try") else machine.run(argv, *rest)

    monkeypatch.setattr(machine.host, "_runner", run)
    with pytest.raises(NpuError, match=re.escape(words)):
        upgrade(machine)
    assert machine.acts == []


def test_H16_room_for_what_is_unpacked_is_looked_at_first(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_material, "free_bytes", lambda host, path: 3)
    with pytest.raises(NpuError, match="has 0 MiB free, and 1 MiB may be needed"):
        upgrade(machine)
    assert machine.acts == []


def test_H16_a_removal_by_the_installer_is_refused_before_it_stops_anything(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_material, "mount_flags", lambda host, path: os.ST_NOEXEC)
    removal = change(machine, DriverRemoval, source="runfile", state="absent", uninstall=UNINSTALL)
    with pytest.raises(NpuError, match="mounted noexec"):
        removal.run()
    assert machine.acts == [] and machine.loaded == "3.2.2"


def test_the_way_back_needs_no_journal(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = machine.look(), journal.write_record

    def full(host: t.Any, path: str, record: t.Mapping[str, t.Any]) -> None:
        if record["step"] == "load" or record["direction"] == "back":
            raise NpuError("No space left on device.", "Make room.")
        write(host, path, record)

    monkeypatch.setattr(journal, "write_record", full)
    result = upgrade(machine)
    assert (result["outcome"], machine.look()) == ("rolled_back", before)
    assert result["reason"] == "No space left on device. Next: Make room." and result["warnings"] == [
        "No space left on device. Next: Make room."
    ]
    assert sorted(os.listdir(machine.tree.real(STATE))) == ["driver.json", "kept"]


def test_a_note_that_cannot_be_removed_does_not_stop_a_host_that_works(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, remove = journal.write_record, journal.remove_file

    def forward_only(host: t.Any, path: str, record: t.Mapping[str, t.Any]) -> None:
        if record["step"] == "load":
            monkeypatch.setattr(journal, "remove_file", readonly)
            raise NpuError("Read-only.", "Mount it.")
        write(host, path, record)

    def readonly(*arguments: t.Any) -> bool:
        raise NpuError("Still read-only.", "Mount it.")

    monkeypatch.setattr(journal, "write_record", forward_only)
    result = upgrade(machine)
    assert (result["outcome"], machine.loaded) == ("rolled_back", "3.2.2")
    assert "Still read-only. Next: Mount it." in result["warnings"]
    monkeypatch.setattr(journal, "write_record", write)
    monkeypatch.setattr(journal, "remove_file", remove)
    assert upgrade(machine)["outcome"] == "upgraded"


def test_a_damaged_copy_is_none(machine: Machine) -> None:
    machine.tree.write(STATE + "/kept/runfile-3.2.2/rebellions-3.2.2.run", "driver 9.9.9\n")
    result = upgrade(machine)
    assert (
        len([text for text in result["warnings"] if "is damaged (rebellions-3.2.2.run) and is not used" in text]) == 1
    ), result["warnings"]
    assert any("keeps no copy" in text for text in result["warnings"]) and result["outcome"] == "upgraded"


# -- a module that does not let go


def busy(machine: Machine) -> None:
    """A process that the run may not stop holds the module until the host reboots."""
    machine.active.add("other.service")


def rebooted(machine: Machine) -> None:
    machine.active = {DAEMON}
    machine.loaded = machine.on_disk


def test_a_module_in_use_is_an_error_where_no_reboot_is_allowed(machine: Machine) -> None:
    busy(machine)
    before = machine.look()
    result = upgrade(machine)
    assert (result["outcome"], result["failed"]) == ("restored", True)
    assert result["reason"].startswith("rebellions cannot be unloaded: Module rebellions is in use.")
    assert machine.look() == before


def test_a_module_in_use_waits_for_a_reboot_and_is_proven_after_it(machine: Machine) -> None:
    busy(machine)
    result = upgrade(machine, reboot_allowed=True)
    assert (result["outcome"], result["reboot_required"], result["failed"]) == ("reboot_required", True, False)
    assert (machine.on_disk, machine.loaded, machine.record("journal.json")["reboot"]) == ("3.4.0", "3.2.2", True)
    assert machine.record("driver.json")["version"] == "3.2.2"
    rebooted(machine)
    result = upgrade(machine, reboot_allowed=True)
    assert (result["outcome"], result["previous"]) == ("upgraded", "3.2.2")
    assert "run 3.4.0" not in machine.acts and "prove 3.4.0" in machine.acts
    assert (machine.record("driver.json")["version"], machine.active, machine.record("journal.json")) == (
        "3.4.0",
        {DAEMON, *SERVICES},
        None,
    )


def test_a_reboot_waits_for_a_module_that_is_there(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installer that ends with 0 and leaves the module before it: known before the host reboots into it."""
    busy(machine)
    monkeypatch.setattr(machine, "put", lambda version, name=KMD: machine.packages.update({name: version}))
    result = upgrade(machine, reboot_allowed=True)
    assert (result["outcome"], result["reboot_required"]) == ("rolled_back", False), result
    assert "The driver is installed, and its module is not: /lib/modules/" in result["reason"]
    assert "rebellions.ko is 3.2.2, not 3.4.0." in result["reason"]


def test_a_driver_that_does_not_work_after_the_reboot_goes_back(machine: Machine) -> None:
    busy(machine)
    upgrade(machine, reboot_allowed=True)
    rebooted(machine)
    machine.unfit.add("3.4.0")
    result = upgrade(machine, reboot_allowed=True)
    assert (result["outcome"], machine.loaded, machine.active) == ("rolled_back", "3.2.2", {DAEMON, *SERVICES})


# -- the way back


def test_checks_that_failed_before_do_not_count_against_the_way_back(machine: Machine) -> None:
    machine.failing = ["firmware_is_one"]
    result = upgrade(machine)
    assert (result["outcome"], machine.loaded) == ("rolled_back", "3.2.2")


def test_packages_that_came_are_gone_after_the_way_back(machine: Machine) -> None:
    machine.unfit.add("3.4.0")
    files = [*machine.debs("3.4.0"), *machine.debs("3.4.0", "rebellions-tools")]
    result = upgrade(machine, source="package", files=files)
    assert (result["outcome"], machine.packages) == ("rolled_back", {KMD: "3.2.2"})
    # First, since their files may be in the way.
    assert machine.acts.index("apply -rebellions-tools") < machine.acts.index("run 3.2.2", machine.acts.index("unload"))


def test_a_removal_that_would_take_more_than_the_driver_is_refused(empty: Machine) -> None:
    empty.unfit.add("3.4.0")
    run = change(empty, source="package", version="3.4.0", files=empty.debs("3.4.0"))
    install = run.parts.install

    def and_then(material: t.Any) -> None:
        install(material)
        empty.beside = [Change("remove", "libc6", "2")]

    run.parts.install = and_then  # type: ignore[method-assign]
    result = run.run().to_dict()
    assert result["outcome"] == "left_stopped" and "would also remove libc6" in result["reason"]


# -- interrupted by others


def test_a_journal_that_cannot_be_read_is_a_change_of_which_nothing_is_known(machine: Machine) -> None:
    machine.tree.write(STATE + "/journal.json", "{")
    result = upgrade(machine)
    assert (result["outcome"], result["previous"], machine.loaded, machine.record("journal.json")) == (
        "upgraded",
        "3.2.2",
        "3.4.0",
        None,
    )
    assert result["warnings"] == ["An earlier change was interrupted at an unknown step; this run takes it over."]


def test_a_change_of_which_nothing_is_known_is_undone_by_leaving_the_host_alone(machine: Machine) -> None:
    before = machine.look()
    machine.tree.write(STATE + "/journal.json", "[]")
    result = change(machine, source="package", install=False).run().to_dict()
    assert (result["outcome"], result["failed"], machine.look(), machine.record("journal.json")) == (
        "restored",
        False,
        before,
        None,
    )


def test_two_changes_at_once_are_refused(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LOCK_WAIT", 0.1)
    before = machine.look()
    descriptor = os.open(machine.tree.real(STATE), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(NpuError, match="another change of the driver runs on this host"):
            upgrade(machine)
    finally:
        os.close(descriptor)
    assert (machine.acts, machine.look()) == ([], before)
    assert upgrade(machine)["outcome"] == "upgraded"


# -- what is foreseen


def test_foreseeing_changes_nothing(machine: Machine) -> None:
    machine.repository.update(["%s=3.4.0" % KMD])
    before = machine.look()
    result = (
        change(machine, source="package", names=[KMD], version="3.4.0", services=list(SERVICES)).foresee().to_dict()
    )
    assert (result["changed"], result["simulated"]) == (
        True,
        [{"act": "upgrade", "name": KMD, "old": "3.2.2", "new": "3.4.0"}],
    )
    assert (machine.acts, machine.look(), machine.record("journal.json")) == ([], before, None)
    assert change(machine, source="runfile", install=False).foresee().to_dict()["in_use"] == []
    asked = change(machine, source="package", names=[KMD], version="3.4.0")
    asked.parts.manager.warnings += ["The repository epel is left out."] * 2
    assert asked.foresee().warnings == ["The repository epel is left out."]


def test_foreseeing_refuses_what_the_change_would_refuse(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle that is not placed, users that may not be stopped: nothing of it is known only later."""
    before = machine.look()
    for source in ("package", "runfile"):
        asked = change(machine, source=source, version="3.4.0", bundle=str(tmp_path / "none"))
        with pytest.raises(NpuError, match=r"Place the bundle first \(playbook bundle_place\)"):
            asked.foresee()
        assert asked.result.changed is False
    found = [Holder("process", 4200, "python3", ("rbln0",))]
    for policy, refused in (("refuse", True), ("wait", False), ("stop", False)):
        asked = change(machine, source="runfile", version="3.4.0", in_use=policy)
        monkeypatch.setattr(asked.units, "_find", lambda: found)
        try:
            asked.foresee()
        except InUse as exc:
            assert "The NPUs are in use: python3" in str(exc) and refused
        # Whether users end in time is known later.
        assert asked.result.changed is not refused and len(asked.result.in_use) == 1
    assert (machine.acts, machine.look()) == ([], before)


def test_an_installer_that_breaks_off_leaves_its_last_words(machine: Machine) -> None:
    machine.trouble = {"run 3.4.0": ERROR}
    result = upgrade(machine)
    assert result["outcome"] == "rolled_back"
    assert (
        result["reason"]
        == "rebellions-3.4.0.run ended with code 1: run 3.4.0 has failed. Next: Read its log on the host."
    )


def test_a_refusal_is_forgiven_when_the_version_works(machine: Machine) -> None:
    machine.unfit.add("3.4.0")
    upgrade(machine)
    files = machine.runfile("3.4.0")
    assert machine.record("refused.json") == {
        "refused": [
            {"version": "3.4.0", "sha256": files[0]["sha256"], "reason": "Driver 3.4.0 does not work.", "time": UTC}
        ]
    }
    machine.unfit.clear()
    assert upgrade(machine)["outcome"] == "upgraded"
    assert machine.record("refused.json") is None


def test_an_installed_driver_that_was_not_loaded_is_loaded_by_the_way_back(machine: Machine) -> None:
    machine.active.clear()
    machine.loaded = None
    machine.trouble = {"run 3.4.0": ERROR}
    result = upgrade(machine)
    assert (result["outcome"], machine.loaded, machine.tree.real(MODULE).exists()) == ("rolled_back", "3.2.2", True)


def test_a_second_kill_after_another_loses_no_unit(machine: Machine) -> None:
    machine.trouble = {"stop exporter.service": AFTER}
    with pytest.raises(Killed):
        upgrade(machine)
    machine.trouble = {"unload": AFTER}
    with pytest.raises(Killed):
        upgrade(machine, services=["vllm.service"])
    machine.trouble = {}
    assert upgrade(machine, services=[])["outcome"] == "upgraded"
    assert machine.active == {DAEMON, *SERVICES}
