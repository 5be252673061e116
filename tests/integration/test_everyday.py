# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors of every day: each is one red message on the terminal that says what, where and what next.

Nothing here changes a host: the file runs first, on hosts that are virgin, and leaves them so. The errors that need
more are in test_site_repair.py (containerd stopped), test_site_bare.py (docker only) and test_site_nodes.py (an image
that cannot be pulled).
"""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from tests.integration._hosts import Hosts, difference, fingerprint
from tests.integration._play import FOLDER, Data, Run, play
from tests.integration._red import TERMINAL, judge, message, one_message, red
from tests.integration._reports import newest, reporting

A, B = "it-a", "it-b"
# Inputs of a host outside a cluster.
ALONE: Data = {"rbln_kubeconfig": ""}
# {error: (inputs of its host, words of its message)}; every host is the same machine, but for the one without NPUs.
ON_HOSTS: dict[str, tuple[Data, tuple[str, ...]]] = {
    "unreachable": (
        {"ansible_connection": "ansible.builtin.ssh", "ansible_host": "127.0.0.1", "ansible_port": 9},
        ("unreachable cannot be reached", "127.0.0.1", "port 9", "ansible -m ping unreachable"),
    ),
    "no-sudo": ({"ansible_user": "nobody"}, ("no-sudo", "become does not work", "root")),
    "no-npus": ({"ansible_host": B}, ("NPU", "PCI bus")),
    "no-driver-and-no-source": (
        {"rbln_driver_source": "preinstalled"},
        ("rbln_driver_source is preinstalled", "package or runfile"),
    ),
    "unsupported-system": (
        {"rbln_preflight_unlisted": "fail"},
        ("debian 12 is not in the support matrix of driver 3.2.2", "rbln_preflight_unlisted"),
    ),
    "disk-full": ({"rbln_driver_disk_free": 10**8}, ("MiB", "rbln_driver_disk_free")),
}
ON_CONTROLLER: dict[str, tuple[Data, tuple[str, ...]]] = {
    "wrong-path": ({**ALONE, "rbln_driver_runfile": "/nowhere/driver.run"}, ("/nowhere/driver.run",)),
    "wrong-digest": ({**ALONE, "rbln_driver_runfile_sha256": "0" * 64}, ("SHA-256", "0" * 64)),
    "kubeconfig-absent": (
        {"rbln_kubeconfig": "/nowhere/config"},
        ("The kubeconfig /nowhere/config does not exist on the controller",),
    ),
    "kubeconfig-broken": ({"rbln_kubeconfig": "BROKEN"}, ("BROKEN", "kubeconfig")),
    "dead-api": ({"rbln_kubeconfig": "DEAD"}, ("https://127.0.0.1:9", "cannot be reached")),
    "not-a-member": ({"rbln_node_name": "it-nowhere"}, ("it-nowhere", "node")),
}


def aliases(hosts: Hosts, cases: t.Mapping[str, tuple[Data, tuple[str, ...]]], **inputs: t.Any) -> Path:
    """An inventory in which each case is a host of its own."""
    return hosts.inventory(
        *cases,
        host_vars={case: {"ansible_host": A, **given} for case, (given, _words) in cases.items()},
        rbln_serial=len(cases),
        **inputs,
    )


@pytest.fixture(scope="module")
def virgin(nodes: Hosts) -> t.Iterator[Hosts]:
    """The hosts, which have to be as they were afterwards."""
    nodes.virgin()
    yield nodes
    for host in (A, B):
        assert difference(nodes.fresh[host], fingerprint(nodes.lab, host)) == []


def test_what_is_wrong_on_a_host_is_one_message(virgin: Hosts) -> None:
    virgin.lab.exec(B, "umount /sys/bus/pci/devices")
    try:
        where = aliases(virgin, ON_HOSTS, **ALONE)
        run = play("site", where, "-f", str(len(ON_HOSTS)), env={**TERMINAL, **reporting()})
    finally:
        virgin.lab.exec(B, "systemctl restart npu-lab-hardware")
    assert run.code in (2, 4)
    for case, (_given, words) in ON_HOSTS.items():
        one_message(run, case, *words)
    reported = {one["name"]: one for one in newest("site")["hosts"]}
    for case, (_given, words) in ON_HOSTS.items():
        failure, state = reported[case]["failure"], reported[case]["state"]
        assert state == ("unreachable" if case == "unreachable" else "failed"), reported[case]
        told = "%s %s" % (failure["cause"], failure["next_step"])
        assert failure["task"] and failure["next_step"] and all(word in told for word in words), failure


def test_what_is_wrong_on_the_controller_is_one_message(virgin: Hosts) -> None:
    broken, dead = FOLDER / "broken.kubeconfig", FOLDER / "dead.kubeconfig"
    broken.write_text("apiVersion: v1\nclusters: [\n")
    server = {"name": "dead", "cluster": {"server": "https://127.0.0.1:9"}}
    context = {"name": "dead", "context": {"cluster": "dead", "user": "dead"}}
    user = {"name": "dead", "user": {"token": "x"}}
    dead.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "clusters": [server], "users": [user],
                                "contexts": [context], "current-context": "dead"}))  # fmt: skip
    paths = {"BROKEN": str(broken), "DEAD": str(dead)}
    cases = {
        case: ({key: paths.get(str(value), value) for key, value in given.items()}, words)
        for case, (given, words) in ON_CONTROLLER.items()
    }
    run = play("site", aliases(virgin, cases), env=TERMINAL)
    assert run.code == 2
    for case, (_given, words) in cases.items():
        one_message(run, case, *(paths.get(word, word) for word in words))


def test_hosts_that_are_lost_after_the_plan_are_named_at_the_end(virgin: Hosts) -> None:
    """Each is a batch of its own, and a batch that is all unreachable ends what Ansible runs."""
    lost: Data = {
        "ansible_connection": "{{ 'ansible.builtin.ssh' if rbln_preflight_plan is defined else "
        "'containers.podman.podman' }}",
        "ansible_host": "{{ '127.0.0.1' if rbln_preflight_plan is defined else '%s' }}",
        "ansible_port": 9,
    }
    cases = {name: {**lost, "ansible_host": lost["ansible_host"] % A} for name in ("lost-1", "lost-2")}
    where = virgin.inventory(*cases, host_vars=cases, rbln_serial=1, **ALONE)
    run = play("site", where, env=TERMINAL)
    assert run.code == 2 and "5 Result" in run.out
    for host in cases:
        one_message(run, host, host + " cannot be reached", "port 9", "ansible -m ping " + host)


def whole(run: Run) -> str:
    """The one red message of a run that it ends for all hosts."""
    lines = [line for found in red(run).values() for line in found]
    assert run.code != 0 and len(lines) == 1, (run.code, lines, run.out[-1500:], run.err)
    return message(lines[0])


def test_one_node_name_for_two_hosts_is_one_message(virgin: Hosts) -> None:
    twice = {"first": {"ansible_host": A, "rbln_node_name": A}, "second": {"ansible_host": B, "rbln_node_name": A}}
    run = play("site", virgin.inventory(*twice, host_vars=twice, rbln_serial=2), env=TERMINAL)
    assert run.code == 2
    judge(whole(run), "first", "second", "'%s'" % A)


def test_wrong_inputs_end_the_run_before_a_host_is_asked(virgin: Hosts) -> None:
    wrong = {"rbln_kubeconfg": "/nowhere", "rlbn_serial": "1"}
    misspelt = play("site", virgin.inventory(), extra=wrong, env=TERMINAL)
    judge(whole(misspelt), "rbln_kubeconfg", "Write rbln_kubeconfig", "rlbn_serial", "Write rbln_serial")
    assert misspelt.executions == []
    number = play("site", virgin.inventory(A, rbln_driver_version=3.1), env=TERMINAL)
    judge(whole(number), "rbln_driver_version", "Quote")
    assert '"3.1"' not in whole(number) and "'3.1'" not in whole(number) and number.executions == []


EMPTY: Data = {"npu_node": {"hosts": {A: {}}}, "npu_nodes": {"hosts": {}}}
HERE: Data = {"all": {"hosts": {"localhost": {"ansible_connection": "local"}}}}


@pytest.mark.parametrize(
    ("book", "tree", "group"),
    [
        ("site", EMPTY, "npu_nodes"),
        ("plan", EMPTY, "npu_nodes"),
        ("validate", HERE, "npu_nodes"),
        ("remove", HERE, "npu_nodes"),
        ("bundle", HERE, "npu_bundle"),
    ],
)
def test_a_group_without_hosts_ends_the_run_with_an_example(virgin: Hosts, book: str, tree: Data, group: str) -> None:
    where = FOLDER / "empty.json"
    where.write_text(json.dumps(tree))
    judge(whole(play(book, where, env=TERMINAL)), "group " + group, "%s:\n  hosts:" % group)


def test_a_limit_without_a_host_of_the_group_names_those_that_it_has(virgin: Hosts) -> None:
    where = FOLDER / "other.json"
    where.write_text(json.dumps({"npu_nodes": {"hosts": {A: {}}}, "others": {"hosts": {B: {}}}}))
    judge(whole(play("site", where, "--limit", B, env=TERMINAL)), "--limit " + B, "npu_nodes: %s." % A)
