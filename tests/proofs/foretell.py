# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check mode and the plan against the run that follows them, item by item, on a node of a real cluster.

For each change: plan and check mode write nothing and show the same screen; the same tasks change; their differences,
the objects of the cluster, the labels and gates of the node, the versions and the totals are those that were foretold.
Words of the command line name changes; only these are then made, in their order.
"""

from __future__ import annotations

import collections
import json
import os
import re
import shutil
import sys
import typing as t

from tests.integration._driver import CHANGE
from tests.integration._hosts import Fingerprint, Hosts, difference, fingerprint, started
from tests.integration._play import FOLDER, STAGED, Data, Run, play, runfile
from tests.lab import Lab
from tests.proofs._proof import Part, Proof, named
from tests.tools.stage import stage

HOST, KIND = "ft-a", "containerd17"
PLUGIN = "lab.local/npu-device-plugin"
WORK, SHOW, PROOF = "Work for the cluster", "Show the plan", "Prove the host and write the ready files"
# What check mode says of a step whose result is known only later, and the task that makes it. Whether it changes
# something is known only then too.
LATER = {
    "CDI | Say that the spec is known only later": "CDI | Write the spec",
    "Say that the proof is known only later": PROOF,
}
TRANSACTION = "Transaction | " + CHANGE
# What check mode says of the packages of an installer.
INSTALLED = "are known after the installation"
# The first removes what the second still finds in check mode, and folders are empty only then.
REMOVED = ("Absent | Stop the host tool", "Absent | Remove the host tool")
FOLDERS = {"/usr/local/libexec/rebellions-npu", "/etc/rebellions-npu", "/run/rbln/validations", "/run/rbln"}
# {task that changes a host: the steps of the plan that it is for, by the beginning of their ids}
STEPS = {
    TRANSACTION: ("driver.",),
    "Source | Verify and send the files": ("driver.install",),
    "Act | Take the toolkit's ready file away": ("toolkit.",),
    "Host tool | Install the program with its units": ("toolkit.host_tool",),
    "CDI | Write the spec": ("toolkit.cdi",),
    "Runtime | Switch CDI on": ("toolkit.runtime.",),
    "Restart | Restart the unit": ("toolkit.runtime.", "toolkit.restart."),
    PROOF: ("validator.markers",),
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
    hosts.lab.exec(HOST, "sed -i s/nosuid/suid/ /run/cdi/rbln.yaml")


def _break(hosts: Hosts) -> None:
    """A device that says that it is broken, beside a change that the run makes."""
    _out(hosts)
    hosts.lab.exec(HOST, "echo 3 >/sys/class/rebellions/rbln0/status")


def _mend(hosts: Hosts) -> None:
    hosts.lab.exec(HOST, "echo 0 >/sys/class/rebellions/rbln0/status")


def _tag(tag: str) -> t.Callable[[Hosts], None]:
    """Give the node the image of the device plugin under another tag."""

    def act(hosts: Hosts) -> None:
        hosts.lab.exec(HOST, "ctr -n k8s.io images tag --force %s:1 %s:%s" % (PLUGIN, PLUGIN, tag))

    return act


def _nothing(_hosts: Hosts) -> None:
    pass


class Change(t.NamedTuple):
    """What is done to the host before it, the playbook, its inputs, and the check for which the host fails."""

    before: t.Callable[[Hosts], None]
    book: str
    inputs: Data
    fails: str = ""


def _plugin(tag: str, **more: t.Any) -> Data:
    return {"rbln_operands_device_plugin": {"image": {"repository": "npu-device-plugin", "tag": tag}}, **more}


CHANGES = {
    "from nothing": Change(_nothing, "site", {}),
    "nothing": Change(_nothing, "site", {}),
    "runtime configuration": Change(_out, "site", {}),
    "CDI specification": Change(_spoil, "site", {}),
    "a broken device": Change(_break, "site", {}, "device_status"),
    "its repair": Change(_mend, "site", {}),
    "driver up": Change(_nothing, "site", NEW),
    "driver down": Change(_nothing, "site", OLD),
    "an operand's image": Change(_tag("2"), "site", _plugin("2")),
    "an image that is tried first": Change(_tag("3"), "site", _plugin("3", rbln_operands_rollback=True)),
    "removal": Change(_nothing, "remove", {}),
}


def ended(run: Run, change: Change) -> Run:
    """This run if it ended as it has to: well, or with the one failure of the host."""
    if not change.fails:
        return run.good([HOST])
    failed = run.failed(HOST)
    assert run.code == 2 and [one.play for one in failed] == ["5 Result"], (run.code, failed, run.err[-1000:])
    assert change.fails in failed[0].msg, failed[0].msg
    return run


def changed(run: Run) -> list[str]:
    """The tasks that changed something, in order, once each."""
    names = [name.split(" : ")[-1] for name in run.changed(HOST)]
    return list(dict.fromkeys(LATER.get(name, name) for name in names))


def later(told: Run) -> set[str]:
    """The tasks of which check mode knows that they come, and not whether they change something."""
    names = [name.split(" : ")[-1] for name in told.changed(HOST)]
    return {LATER[name] for name in names if name in LATER}


def differences(run: Run) -> dict[str, t.Any]:
    """{task: its differences} of the tasks that changed something."""
    return {
        one.task.split(" : ")[-1]: one.data["diff"]
        for one in run.results
        if one.state == "changed" and one.data.get("diff") and not one.task.endswith(WORK)
    }


def works(run: Run) -> list[Data]:
    return [one.data for one in run.of(WORK) if one.state in ("ok", "changed")]


def version(hosts: Hosts) -> str:
    """The driver that the host has loaded, in the words of the screen."""
    found = hosts.lab.exec(HOST, "cat /sys/module/rebellions/version 2>/dev/null || :").stdout.strip()
    return found or "not installed"


class Before(t.NamedTuple):
    """The host before a change: its files, its driver, and since when containerd runs."""

    files: Fingerprint
    version: str
    started: str


def look(hosts: Hosts) -> Before:
    return Before(fingerprint(hosts.lab, HOST, times=False), version(hosts), started(hosts.lab, HOST))


def untouched(hosts: Hosts, before: Before, what: str) -> None:
    """AssertionError where the host is another one than before."""
    after = look(hosts)
    files = [line for line in difference(before.files, after.files) if line[1:].startswith(OURS)]
    assert (files, after[1:]) == ([], before[1:]), (what, files, after[1:], before[1:])


def compare_host(hosts: Hosts, told: Run, real: Run, before: Before) -> str:
    """What of the host was compared; AssertionError for what was not foretold."""
    unknown, foretold, happened = later(told), changed(told), changed(real)
    sure = [[name for name in names if name not in unknown] for names in (foretold, happened)]
    assert sure[0] == sure[1], (foretold, happened)
    said, made = differences(told), differences(real)
    if INSTALLED in str(said.get(TRANSACTION)):
        # Only the installer knows its packages; what they replace is known.
        said[TRANSACTION] = {**made[TRANSACTION], "before": said[TRANSACTION]["before"]}
    for found in (said, made):
        gone = [str(found.pop(name)["before"]) for name in REMOVED if name in found]
        found["host tool"] = sorted({path for paths in gone for path in paths.split()} - FOLDERS)
    odd = [name for name in said.keys() | made.keys() if name not in unknown and said.get(name) != made.get(name)]
    assert odd == [], [(name, said.get(name), made.get(name)) for name in odd]
    messages = [[one.msg for one in run.failed(HOST)] for run in (told, real)]
    assert messages[0] == messages[1], messages
    files = [line for line in difference(before.files, look(hosts).files) if line[1:].startswith(OURS)]
    assert bool(files) <= bool(foretold), files
    return "%d tasks, %d differences, %d files" % (len(happened), len(made) - 1, len(files))


def compare_cluster(hosts: Hosts, told: Run, real: Run, exists: bool) -> str:
    """The same of the cluster; `exists`: the API server shows no object of a namespace that does not exist yet."""
    found = [works(run) for run in (told, real)]
    assert len(found[0]) == len(found[1]) <= 1, found
    if not found[0]:
        return "no cluster"
    (plan,), (work,) = found
    assert plan["objects"] == work["objects"], (plan["objects"], work["objects"])
    assert plan["changed"] == work["changed"], (plan["changed"], work["changed"])
    nodes = [{key: one["nodes"][HOST][key] for key in ("changed", "before", "after")} for one in (plan, work)]
    assert nodes[0] == nodes[1], nodes
    if nodes[1]["changed"]:
        assert nodes[1]["after"] == hosts.labels(HOST), (nodes[1]["after"], hosts.labels(HOST))
    shown = [{one["after_header"]: one for one in given["diff"]} for given in (plan, work)]
    assert set(shown[0]) == set(shown[1]), [set(one) for one in shown]
    assert not exists or shown[0] == shown[1], shown
    return "%d objects, %d labels" % (
        sum(1 for action in work["objects"].values() if action != "unchanged"),
        len(nodes[1]["after"]) if nodes[1]["changed"] else 0,
    )


def compare_screen(hosts: Hosts, plan: Run, told: Run, real: Run, before: Before) -> str:
    """The same of the screen of the plan: its steps, its versions, what it says of a restart, and its totals."""
    shown = plan.one(SHOW, HOST).data
    lines, totals = shown["msg"], shown["totals"]
    # The name of the cluster is that of its API server in both.
    assert lines == told.one(SHOW, HOST).data["msg"], (lines, told.one(SHOW, HOST).data["msg"])
    steps = [step["id"] for step in plan.one("rbln_preflight : Plan", HOST).data["steps"]]
    acts = [name for name in changed(real) if name != WORK]
    assert sorted(set(acts) - set(STEPS)) == [], acts
    for name in acts:
        assert [step for step in steps if step.startswith(STEPS[name])], (name, steps)
    done = [*acts, *later(told)] if not real.failed(HOST) else [*acts, PROOF]
    for step in steps:
        assert [name for name in done if step.startswith(STEPS[name])], (step, acts)
    assert len([line for line in lines if " -> " in line and line.startswith("  ") and "label" not in line]) == len(
        steps
    ), lines
    assert ("Hosts: 1 to change, 0 as wanted." if acts else "Hosts: 0 to change, 1 as wanted.") in lines, lines
    words = re.search(r"^  driver +(\S.*?) -> (\S+)", "\n".join(lines), re.M)
    assert (words.groups() if words else (before.version,) * 2) == (before.version, version(hosts)), lines
    restart = any("containerd restarts" in line for line in lines)
    assert restart is (started(hosts.lab, HOST) != before.started), lines
    if works(real):
        (work,) = works(real)
        counted = collections.Counter(work["objects"].values())
        happened = {
            "create": counted["created"],
            "modify": counted["changed"],
            "remove": counted["deleted"],
            "label": int(work["nodes"][HOST]["changed"]),
        }
        assert {key: totals[key] for key in happened} == happened, (totals, happened)
        line = "Clusters: %(create)d to create, %(modify)d to change, %(remove)d to remove, %(label)d node" % happened
        assert any(one.startswith(line) for one in lines), (line, lines)
    return "%d lines" % len(lines)


def prove(hosts: Hosts, name: str, change: Change, part: Part) -> None:
    change.before(hosts)
    before, where = look(hosts), hosts.inventory(HOST, **change.inputs)
    plan = play("plan", where).good([HOST]) if change.book == "site" else None
    told = ended(play(change.book, where, "--check", "--diff"), change)
    untouched(hosts, before, "plan and check mode")
    real = ended(play(change.book, where, "--diff"), change)
    # A change that does not take place would prove nothing.
    assert bool(changed(real)) is (name != "nothing"), changed(real)
    notes = [compare_host(hosts, told, real, before), compare_cluster(hosts, told, real, name != "from nothing")]
    if plan:
        notes.append(compare_screen(hosts, plan, told, real, before))
    part.note = ", ".join(notes)
    part.good()


def main() -> int:
    chosen = named(CHANGES, sys.argv[1:])
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
        for name in [one for one in CHANGES if one in chosen or not chosen]:
            with proof.part(name) as part:
                prove(hosts, name, CHANGES[name], part)
    finally:
        hosts.leave()
        shutil.rmtree(FOLDER, ignore_errors=True)
    return proof.close()


if __name__ == "__main__":
    sys.exit(main())
