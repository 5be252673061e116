# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What passes, what fails, and that the ready files follow."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rebellions.npu.plugins.module_utils._base.model import NpuError
from ansible_collections.rebellions.npu.plugins.module_utils._base.rebellions import PROFILE
from ansible_collections.rebellions.npu.plugins.module_utils._checks import prove as _prove
from ansible_collections.rebellions.npu.plugins.module_utils._checks.prove import Proof, Rules, prove
from ansible_collections.rebellions.npu.plugins.module_utils._checks.ready_files import remove_markers
from ansible_collections.rebellions.npu.plugins.module_utils._host.host import Host
from ansible_collections.rebellions.npu.tests.unit.fixtures.facts.tree import Tree
from ansible_collections.rebellions.npu.tests.unit.fixtures.validate.data import CASES, cdi, changed, facts, runtimes

DIR = "/run/rbln/validations"
ALL = [".driver-ctr-ready", "driver-ready", "toolkit-ready"]
SPEC = "/var/run/cdi/rbln.yaml"
PODMAN = runtimes(name="podman")
BROKEN = changed(facts(), "driver", "loaded", False)
UNCLEAR = changed(facts(), "driver", "loaded", None)
WRITE = Rules(markers="write")


class Machine:
    def __init__(self, root: Path) -> None:
        self.tree = Tree(root).write(SPEC, (CASES / "C08-cdi-stale-libs" / "rbln.yaml").read_text(encoding="utf-8"))
        self.host = Host(str(root))

    def prove(
        self, rules: Rules, look: dict[str, Any] | None = None, found: dict[str, Any] | None = None, **wanted: Any
    ) -> Proof:
        return prove(
            PROFILE,
            self.host,
            facts() if look is None else look,
            PODMAN,
            cdi() if found is None else found,
            wanted,
            rules,
        )

    def markers(self) -> list[str]:
        return self.host.listdir(DIR).get([])


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_all_good_writes_all_and_the_second_time_nothing(machine: Machine) -> None:
    dry = machine.prove(replace(WRITE, dry=True))
    assert machine.markers() == [] and len(dry.changes) == 3
    proof = machine.prove(WRITE)
    assert proof.state == "passed" and proof.failed == proof.unknown == [] and machine.markers() == ALL
    written = [change for change in proof.changes if change["act"] == "written"]
    assert [change["path"].rsplit("/", 1)[1] for change in written] == ALL
    times = {name: machine.host.stat(DIR + "/" + name).value.mtime for name in ALL}
    again = machine.prove(WRITE)
    assert again.changes == [] and again.state == "passed"
    assert times == {name: machine.host.stat(DIR + "/" + name).value.mtime for name in ALL}


@pytest.mark.parametrize("_id", ["W01-ready-before-driver"])
def test_ready_files_come_after_the_driver_and_go_when_a_later_check_fails(machine: Machine, _id: str) -> None:
    proof = machine.prove(WRITE, BROKEN)
    assert proof.state == "failed" and "driver_loaded" in proof.failed and machine.markers() == []
    assert machine.prove(WRITE).state == "passed" and machine.markers() == ALL
    assert machine.prove(WRITE, found=cdi(state="stale", changed=True)).failed == ["cdi_spec_current"]
    assert machine.markers() == ALL[:2]
    machine.prove(WRITE)
    assert machine.markers() == ALL
    proof = machine.prove(WRITE, BROKEN)
    assert machine.markers() == [] and [change["act"] for change in proof.changes] == ["removed"] * 3


def test_unknown_has_not_passed_and_leaves_the_files_as_they_are(machine: Machine) -> None:
    proof = machine.prove(WRITE, UNCLEAR)
    assert proof.state == "unknown" and proof.unknown == ["driver_loaded"] and proof.failed == []
    assert machine.markers() == []
    machine.prove(WRITE)
    assert machine.prove(WRITE, UNCLEAR).changes == [] and machine.markers() == ALL
    assert machine.prove(replace(WRITE, unknown_blocks=False), UNCLEAR).state == "passed"


def test_toolkit_is_not_ready_before_the_driver(machine: Machine) -> None:
    rules = replace(WRITE, scopes=("toolkit",))
    assert machine.prove(rules).state == "passed" and machine.markers() == []
    machine.prove(replace(WRITE, scopes=("driver",)))
    assert machine.markers() == ALL[:2]
    machine.prove(rules)
    assert machine.markers() == ALL


NOTE = "/var/lib/rbln/journal.json"


def test_no_ready_file_while_the_driver_is_changed(machine: Machine) -> None:
    machine.tree.write(NOTE, "{}")
    proof = machine.prove(WRITE)
    assert (proof.state, proof.unknown, proof.changes, machine.markers()) == ("unknown", ["driver_change"], [], [])
    assert [check.next_step for check in proof.checks if check.name == "driver_change"] == [
        "Wait until the change ends, or run site.yml again to finish it."
    ]
    machine.tree.real(NOTE).unlink()
    assert machine.prove(WRITE).state == "passed" and machine.markers() == ALL


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "during the write"])
@pytest.mark.parametrize("ended", [False, True], ids=["runs", "has ended"])
def test_a_change_that_begins_in_the_middle_of_a_proof_gets_no_ready_file_back(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, after: bool, ended: bool
) -> None:
    machine.prove(WRITE)
    machine.prove(replace(WRITE, markers="remove", scopes=()))
    real, begun = _prove.write_file, []

    def change() -> None:
        begun.append(True)
        machine.tree.write(NOTE, "{}")
        remove_markers(machine.host, PROFILE)
        if ended:
            machine.tree.real(NOTE).unlink()

    def write_file(*args: Any, **keys: Any) -> bool:
        if not begun and not after:
            change()
        done = real(*args, **keys)
        if not begun:
            change()
        return done

    def run_checks(*args: Any) -> Any:
        if not begun and not after:
            change()
        return real_checks(*args)

    real_checks = _prove.run_checks
    monkeypatch.setattr(_prove, "write_file", write_file)
    monkeypatch.setattr(_prove, "run_checks", run_checks)
    proof = machine.prove(WRITE)
    assert begun and machine.markers() == [] and proof.unknown == ["driver_change"] and proof.changes == []


def test_no_driver_ready_on_a_host_whose_npus_are_for_virtual_machines(machine: Machine) -> None:
    machine.prove(WRITE)
    look = changed(changed(facts(), "npus", 0, "state", "passthrough"), "npus", 1, "state", "passthrough")
    proof = machine.prove(replace(WRITE, scopes=("driver",)), look)
    assert proof.state == "passed" and machine.markers() == []


@pytest.mark.parametrize("mode, left", [("keep", ALL), ("remove", []), ("remove_toolkit", ALL[:2])])
@pytest.mark.parametrize("dry", [True, False])
def test_other_modes(machine: Machine, mode: str, left: list[str], dry: bool) -> None:
    machine.prove(WRITE)
    proof = machine.prove(Rules(scopes=(), markers=mode, dry=dry), {}, {})
    assert machine.markers() == (ALL if dry else left) and proof.checks == []
    assert len(proof.changes) == 3 - len(left) and proof.to_dict()["changed"] is (left != ALL)
    assert machine.prove(Rules(markers="keep"), BROKEN).changes == []


def test_the_mark_of_a_driver_that_was_in_a_container_goes_with_the_ready_files(machine: Machine) -> None:
    mark = DIR + "/.driver-ctr-stopped"
    machine.tree.write(mark, "")
    machine.prove(WRITE)
    assert machine.markers() == [ALL[0], ".driver-ctr-stopped", *ALL[1:]]
    proof = machine.prove(Rules(scopes=(), markers="remove"), {}, {})
    assert machine.markers() == [] and {"path": mark, "act": "removed"} in proof.changes


def test_a_specification_with_right_contents_gets_a_new_time(machine: Machine) -> None:
    os.utime(machine.tree.real(SPEC), (1000, 1000))
    proof = machine.prove(WRITE)
    assert {"path": SPEC, "act": "renewed"} in proof.changes
    assert machine.host.stat(SPEC).value.mtime >= machine.host.stat(DIR + "/driver-ready").value.mtime
    assert {check.name: check.ok for check in proof.checks}["cdi_spec_fresh"] is True
    assert machine.prove(WRITE).changes == []
    os.utime(machine.tree.real(SPEC), (1000, 1000))
    stale = machine.prove(WRITE, found=cdi(state="stale", changed=True))
    assert machine.host.stat(SPEC).value.mtime == 1000 and "cdi_spec_fresh" in stale.failed


@pytest.mark.parametrize(
    "blocking, failed",
    [
        (["error"], ["driver_loaded"]),
        (["error", "warning"], ["driver_loaded", "daemon_running"]),
        (["warning"], ["daemon_running"]),
        (["daemon_running"], ["daemon_running"]),
        (["driver_loaded", "daemon_running"], ["driver_loaded", "daemon_running"]),
        ([], []),
    ],
)
def test_what_blocks_is_an_input(machine: Machine, blocking: list[str], failed: list[str]) -> None:
    look = changed(BROKEN, "daemon", "state", "failed")
    proof = machine.prove(Rules(blocking=blocking), look)
    assert proof.failed == failed and proof.state == ("failed" if failed else "passed")
    assert len([check for check in proof.checks if check.ok is False]) == 2


@pytest.mark.parametrize(
    "rules, words",
    [
        (Rules(blocking=("errors",)), "'errors'"),
        (Rules(scopes=("driver", "cluster")), "'cluster'"),
        (Rules(markers="maybe"), "'maybe'"),
    ],
)
def test_bad_rules_are_refused_before_anything_is_touched(machine: Machine, rules: Rules, words: str) -> None:
    with pytest.raises(NpuError) as raised:
        machine.prove(rules)
    assert words in raised.value.message and raised.value.next_step and machine.markers() == []


def test_message_names_every_check_that_stands_in_the_way_and_one_next_step(machine: Machine) -> None:
    look = changed(BROKEN, "npus", 1, "status", {"raw": None, "name": None, "word": "normal"})
    message = machine.prove(Rules(), look).message()
    assert message.startswith("1 check failed, 1 check is not known. ")
    assert "driver/driver_loaded: the kernel module rebellions is not loaded. |" in message
    assert "driver/device_status: not known" in message and "cdi" not in message
    assert message.count("Next: ") == 1 and message.partition("Next: ")[2].startswith("Run modprobe")


@pytest.mark.parametrize(
    ("failed", "unknown", "counts"),
    [
        (["a"], [], "1 check failed. "),
        (["a", "b"], [], "2 checks failed. "),
        ([], ["a"], "1 check is not known. "),
        ([], ["a", "b"], "2 checks are not known. "),
        (["a", "b"], ["c", "d"], "2 checks failed, 2 checks are not known. "),
    ],
)
def test_message_says_only_what_is(failed: list[str], unknown: list[str], counts: str) -> None:
    assert Proof(failed=failed, unknown=unknown).message() == counts


@pytest.mark.parametrize("_id", ["U06-noop-upgrade"])
def test_same_driver_is_proven_and_another_loaded_one_is_not(machine: Machine, _id: str) -> None:
    assert machine.prove(WRITE, driver_version="3.2.2").state == "passed"
    assert machine.prove(WRITE, driver_version="3.2.2").changes == []
    proof = machine.prove(Rules(), changed(facts(), "driver", "version_loaded", "3.0.0"), driver_version="3.2.2")
    assert {"driver_on_disk_is_loaded", "driver_is_wanted"} <= set(proof.failed)
    assert "reboot" in [check for check in proof.checks if check.name == "driver_on_disk_is_loaded"][0].next_step
