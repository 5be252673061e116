# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbook doctor on nodes of a real cluster, fault after fault: each is named first or second.

All faults are passes of one run of Ansible: a fault on each host, the doctor, and its undoing.
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from tests.integration._faults import FAULTS, FORGET, NOT_REACHED, TOOL, Fault
from tests.integration._hosts import Hosts
from tests.integration._play import FOLDER, STAGED, Data, play
from tests.lab._base import until

A, B = "it-a", "it-b"
SHOW = "Show the causes"
# What the lab's hosts lack is no fault of a test: their images are there, and nothing knows the registry's name.
NAME = "grep -q lab.local /etc/hosts || echo 192.0.2.1 lab.local >>/etc/hosts"
SETTLE = "%s ready --wait 30 >/dev/null" % TOOL


def paired() -> list[dict[str, Fault]]:
    """A fault for each host in each pass, no two of which need other inputs."""
    left, passes = list(FAULTS), list[t.Dict[str, Fault]]()
    while left:
        first = left.pop(0)
        place = first.host or A
        other = B if place == A else A
        second = next((one for one in left if one.host in ("", other) and one.given == first.given), None)
        one: dict[str, Fault] = {place: first}
        if second is not None:
            left.remove(second)
            one[other] = second
        passes.append(one)
    return passes


def shell(name: str, lines: t.Mapping[str, str]) -> Data:
    """A play that runs a line on each host."""
    task = {
        "name": name,
        # Whether it worked is what the doctor says.
        "ansible.builtin.raw": "{{ lines[inventory_hostname] }}; true",
        "when": "inventory_hostname in lines",
        "become": True,
    }
    return {"name": name, "hosts": "npu_nodes", "gather_facts": False, "vars": {"lines": lines}, "tasks": [task]}


def diagnose(hosts: Hosts, passes: t.Sequence[t.Mapping[str, Fault]]) -> list[Data]:
    """What the doctor says in each pass, and at last of hosts without a fault."""
    book: list[Data] = [shell("Begin", {host: NAME for host in (A, B)})]
    doctor = str(STAGED / "playbooks" / "doctor.yml")
    given = {"rbln_doctor_format": "json"}
    for one in passes:
        inputs = next(iter(one.values())).given
        book.append(shell("Make", {host: fault.make for host, fault in one.items()}))
        book.append({"name": "Doctor", "import_playbook": doctor, "vars": {**given, **inputs}})
        book.append(shell("Undo", {host: "%s; %s; %s" % (fault.undo, NAME, SETTLE) for host, fault in one.items()}))
    book.append({"name": "Doctor", "import_playbook": doctor, "vars": given})
    path = FOLDER / "faults.yml"
    path.write_text(json.dumps(book))
    run = play(path, hosts.inventory(A, B), timeout=900)
    assert run.code == 0, [(one.host, one.task, one.msg) for one in run.failed()]
    return [one.data["doctor"] for one in run.of(SHOW)]


@pytest.fixture(scope="module")
def well(nodes: Hosts) -> t.Iterator[Hosts]:
    nodes.done(A, B)
    # After the tests before, the device plugins may still be starting.
    until(90, "the NPUs of both nodes", lambda: nodes.allocatable() == {A: "2", B: "2"})
    nodes.state.update({A: "dirty", B: "dirty"})
    yield nodes
    for host in (A, B):
        nodes.lab.exec(host, FORGET)


def ids(said: Data, host: str) -> list[str]:
    return [cause["id"] for cause in said["hosts"][host]["causes"]]


def test_each_fault_of_a_host_is_named_first_or_second(well: Hosts) -> None:
    passes = paired()
    said = diagnose(well, passes)
    assert len(said) == len(passes) + 1 and len(FAULTS) >= 30
    told = {fault.name: ids(one, host) for one, faults in zip(said, passes) for host, fault in faults.items()}
    wrong = {fault.name: told[fault.name] for fault in FAULTS if not set(fault.causes) & set(told[fault.name][:2])}
    assert wrong == {} and len(told) == len(FAULTS)
    # Nothing is left of them on the hosts. The kubelets may still count the devices anew.
    left = {cause["id"] for host in (A, B) for cause in said[-1]["hosts"][host]["causes"]}
    assert left <= {"npus_not_allocatable", "plugin_not_registered"}


def test_a_host_that_is_not_reached_is_an_answer(well: Hosts, tmp_path: Path) -> None:
    hosts = {**{name: given for name, (given, _cause) in NOT_REACHED.items()}, A: {}}
    where = well.inventory(*hosts, host_vars=hosts, rbln_kubeconfig="")
    run = play("doctor", where, extra={"rbln_doctor_format": "json"})
    assert run.code == 0, (run.out[-3000:], run.err)
    (shown,) = run.of(SHOW)
    told = {name: ids(shown.data["doctor"], name)[:1] for name in NOT_REACHED}
    assert told == {name: [cause] for name, (_given, cause) in NOT_REACHED.items()}
    assert {shown.data["doctor"]["hosts"][name]["state"] for name in NOT_REACHED} == {"not_reached"}
    # The others are looked at all the same, and nothing was changed.
    assert shown.data["doctor"]["hosts"][A]["state"] in ("ok", "warnings") and run.changed() == []
    strict = play("doctor", where, "--limit", "no-port,%s" % A, extra={"rbln_doctor_exit": True})
    assert strict.code == 2 and [one.host for one in strict.failed()] == ["no-port"]
    assert strict.failed()[0].msg.startswith("host_unreachable: ")
