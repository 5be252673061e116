# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode against the run that follows it, item by item, on a node of a real cluster.

For each change: check mode writes nothing; the same tasks change; their differences, the objects of the cluster and the
labels and gates of the node are those that were foretold.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import typing as t

from tests.integration._hosts import Fingerprint, Hosts, difference, fingerprint
from tests.integration._play import FOLDER, STAGED, Data, Run, play, runfile
from tests.lab import Lab
from tests.proofs._proof import Proof
from tests.tools.stage import stage

HOST, KIND = "ft-a", "containerd17"
WORK = "Work for the cluster"
# What check mode says of a step whose result is known only later, and the task that makes it. Whether it changes
# something is known only then too.
LATER = {
    "CDI | Say that the spec is known only later": "CDI | Write the spec",
    "Say that the proof is known only later": "Prove the host and write the ready files",
}
OURS = ("/etc/containerd", "/etc/cdi", "/run/cdi", "/run/rbln", "/etc/systemd/system", "/usr/local/libexec")
NEW: Data = {**runfile("3.4.0"), "rbln_driver_replace": True, "rbln_driver_in_use": "stop"}
OLD: Data = {**NEW, **runfile("3.2.2")}


def _out(hosts: Hosts) -> None:
    """Take CDI out of the configuration of containerd, as its administrator may."""
    tasks = [
        {"name": "Take out", "rebellions.npu.rbln_runtime_config": {"state": "absent", "runtime": ["containerd"]}},
        {"name": "Restart", "ansible.builtin.systemd_service": {"name": "containerd", "state": "restarted"}},
    ]
    book = FOLDER / "out.json"
    book.write_text(json.dumps([{"name": "Out", "hosts": "npu_nodes", "gather_facts": False, "tasks": tasks}]))
    play(book, hosts.inventory(HOST)).good([HOST])


def _spoil(hosts: Hosts) -> None:
    """Make the CDI specification stale."""
    hosts.lab.exec(HOST, "for f in /run/cdi/rbln* /etc/cdi/rbln*; do [ ! -f $f ] || sed -i s/rbln0/rbln9/ $f; done")


def _nothing(_hosts: Hosts) -> None:
    pass


class Change(t.NamedTuple):
    """What is done to the host before it, the playbook, and its inputs."""

    before: t.Callable[[Hosts], None]
    book: str
    inputs: Data


PLUGIN = {"image": {"repository": "npu-device-plugin", "tag": "1"}, "env": {"LOG": "debug"}}
CHANGES = {
    "from nothing": Change(_nothing, "site", {}),
    "nothing": Change(_nothing, "site", {}),
    "runtime configuration": Change(_out, "site", {}),
    "CDI specification": Change(_spoil, "site", {}),
    "driver up": Change(_nothing, "site", NEW),
    "driver down": Change(_nothing, "site", OLD),
    "an operand": Change(_nothing, "site", {"rbln_operands_device_plugin": PLUGIN}),
    "removal": Change(_nothing, "remove", {}),
}


def changed(run: Run) -> list[str]:
    """The tasks that changed something, in order, once each."""
    names = [name.split(" : ")[-1] for name in run.changed(HOST)]
    return list(dict.fromkeys(LATER.get(name, name) for name in names))


def differences(run: Run) -> dict[str, t.Any]:
    """{task: its differences} of the tasks that changed something."""
    return {
        one.task.split(" : ")[-1]: one.data["diff"]
        for one in run.results
        if one.state == "changed" and one.data.get("diff") and not one.task.endswith(WORK)
    }


def compare(hosts: Hosts, told: Run, real: Run, before: Fingerprint, exists: bool) -> str:
    """What was compared; AssertionError for what was not foretold."""
    later = [name.split(" : ")[-1] for name in told.changed(HOST)]
    unknown = {LATER[name] for name in later if name in LATER}
    foretold, happened = changed(told), changed(real)
    assert [name for name in foretold if name not in unknown] == [name for name in happened if name not in unknown], (
        foretold,
        happened,
    )
    said, made = differences(told), differences(real)
    for name in said.keys() | made.keys():
        assert name in unknown or said.get(name) == made.get(name), (name, said.get(name), made.get(name))
    works = [[one.data for one in run.of(WORK) if one.state in ("ok", "changed")] for run in (told, real)]
    assert len(works[0]) == len(works[1]) == 1
    (plan,), (work,) = works
    assert plan["objects"] == work["objects"], (plan["objects"], work["objects"])
    node = plan["nodes"][HOST]
    assert (node["before"], node["after"]) == (work["nodes"][HOST]["before"], work["nodes"][HOST]["after"])
    if node["changed"]:
        assert node["after"] == hosts.labels(HOST), (node["after"], hosts.labels(HOST))
    shown = [{one["after_header"]: one for one in given["diff"]} for given in (plan, work)]
    assert set(shown[0]) == set(shown[1])
    # The API server shows no object of a namespace that does not exist yet.
    assert not exists or shown[0] == shown[1]
    after = fingerprint(hosts.lab, HOST, times=False)
    files = [line for line in difference(before, after) if line[1:].startswith(OURS)]
    assert bool(files) <= bool(foretold), files
    return "%d tasks, %d differences, %d objects, %d labels, %d files" % (
        len(happened),
        len(made),
        sum(1 for action in work["objects"].values() if action != "unchanged"),
        len(node["after"]) if node["changed"] else 0,
        len(files),
    )


def main() -> int:
    proof = Proof("foretell")
    if os.geteuid() != 0:
        print(
            "proof-foretell starts a system container and needs root. Next: sudo make proof-foretell", file=sys.stderr
        )
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    stage(target=STAGED)
    hosts = Hosts(Lab(), {HOST: KIND}, kube=True)
    try:
        hosts.virgin(HOST)
        for name, change in CHANGES.items():
            with proof.part(name) as part:
                change.before(hosts)
                before = fingerprint(hosts.lab, HOST, times=False)
                where = hosts.inventory(HOST, **change.inputs)
                told = play(change.book, where, "--check", "--diff").good([HOST])
                checked = fingerprint(hosts.lab, HOST, times=False)
                touched = [line for line in difference(before, checked) if line[1:].startswith(OURS)]
                assert touched == [], touched
                real = play(change.book, where, "--diff").good([HOST])
                # A change that does not take place would prove nothing.
                assert bool(changed(real)) is (name != "nothing"), changed(real)
                part.note = compare(hosts, told, real, before, name != "from nothing")
                part.good()
    finally:
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
