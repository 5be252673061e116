# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml on two nodes of a real Kubernetes: from nothing, again, in slices, after kills, and back to nothing."""

from __future__ import annotations

import collections
import itertools
import re

import pytest

from tests.integration._driver import CHANGE
from tests.integration._hosts import LOADER, Hosts, difference, fingerprint, started
from tests.integration._play import NAMESPACE_OF_TESTS, ONCE, STAGED, Run, play
from tests.integration._red import TERMINAL
from tests.integration._reports import newest, reporting
from tests.lab._base import until

A, B = "it-a", "it-b"
BOTH = [A, B]
HOST_PLAYS = ("1 Discover", "2 Preflight", "3 Hosts", "5 Result")
MARKERS = "/run/rbln/validations"
# Where the package manager and what it calls keep their own records.
OF_PACKAGES = ("/var/lib/dpkg/", "/var/lib/dkms/", "/usr/lib/modules/", "/usr/lib/modprobe.d/rbln-standin.conf")


def markers(hosts: Hosts, host: str) -> list[str]:
    return hosts.lab.exec(host, "ls -A %s 2>/dev/null || :" % MARKERS).stdout.split()


def namespaces(hosts: Hosts) -> list[str]:
    return hosts.lab.kubectl("get", "namespaces", "-o", "name").stdout.split()


def order(run: Run, host: str, *tasks: str) -> list[int]:
    names = [one.task for one in run.results if one.host == host]
    return [next(number for number, name in enumerate(names) if name.endswith(task)) for task in tasks]


def tmp_left(hosts: Hosts, host: str) -> list[str]:
    return hosts.lab.exec(host, "ls /root/.ansible/tmp 2>/dev/null || :").stdout.split()


# What check mode says of a step whose result is known only later, and the task that makes it.
LATER = {
    "CDI | Say that the spec is known only later": "CDI | Write the spec",
    "Say that the proof is known only later": "Prove the host and write the ready files",
}
WORK = "Work for the cluster"


@pytest.fixture(scope="module")
def checked(nodes: Hosts) -> Run:
    """site.yml on virgin hosts in check mode."""
    nodes.virgin()
    return play("site", nodes.inventory(), "--check", "--diff").good(BOTH)


def changes(run: Run, host: str) -> list[str]:
    """The tasks that changed a host or its cluster, in order, once each."""
    names = [name.split(" : ")[-1] for name in run.changed(host)]
    return list(dict.fromkeys(LATER.get(name, name) for name in names))


def test_check_of_virgin_hosts_changes_nothing_A06_check_mode(nodes: Hosts, checked: Run) -> None:
    run = checked
    for host in BOTH:
        assert difference(nodes.fresh[host], fingerprint(nodes.lab, host)) == []
        assert nodes.labels(host) == {} and markers(nodes, host) == []
        assert run.one(CHANGE, host).state == "changed"
        assert run.one("Say that the proof is known only later", host).state == "changed"
    assert "namespace/" + NAMESPACE_OF_TESTS not in namespaces(nodes)
    diff = run.one("Runtime | Switch CDI on", B).data["diff"]
    text = "".join(
        part.get("after", "") + part.get("prepared", "") for part in (diff if isinstance(diff, list) else [diff])
    )
    assert (
        "enable_cdi = true" in text
        and "enable_cdi" not in nodes.lab.exec(B, ["cat", "/etc/containerd/config.toml"]).stdout
    )
    assert run.of("Runtime | Switch CDI on", A) == []


def test_from_nothing_W01_ready_before_driver(nodes: Hosts, checked: Run) -> None:
    nodes.virgin()
    run = nodes.site()
    # Check mode has told each of these changes, and what the labels and gates of the nodes would be.
    told, real = ([one for one in given.of(WORK) if one.state == "changed"] for given in (checked, run))
    assert len(told) == len(real) == 1 and told[0].host == real[0].host
    for host in BOTH:
        assert changes(checked, host) == changes(run, host), host
        assert told[0].data["nodes"][host]["after"] == real[0].data["nodes"][host]["after"] == nodes.labels(host)
    assert told[0].data["objects"] == real[0].data["objects"]
    lines = checked.one("Show the plan", A).data["msg"]
    assert "Hosts: 2 to change, 0 as wanted." in lines and any("2 nodes to label" in line for line in lines), lines
    for host in BOTH:
        steps = order(
            run,
            host,
            CHANGE,
            "Host tool | Install the program with its units",
            "CDI | Write the spec",
            "Prove the host and write the ready files",
        )
        assert steps == sorted(steps), steps
        assert markers(nodes, host) == [".driver-ctr-ready", "driver-ready", "toolkit-ready"]
        assert (
            nodes.labels(host)["rebellions.ai/npu.present"] == "true"
            and nodes.labels(host)["rebellions.ai/npu.count"] == "2"
        )
        assert nodes.labels(host)["rebellions.ai/driver-version.full"].startswith("3.2.2")
        assert tmp_left(nodes, host) == []
    assert [one.play for one in run.of("Work for the cluster") if one.state != "skipped"] == ["4 Cluster"]
    assert nodes.allocatable() == {A: "2", B: "2"}
    for host in BOTH:
        seen = nodes.look(host)
        assert [word for word in seen if word.startswith("/dev/")] in (["/dev/rbln0"], ["/dev/rbln1"]), seen
        assert any("librbln-ml.so" in word for word in seen) and "3.2.2" in seen, seen
        # The hook of the host tool ran, by containerd: the loader knows the libraries, and the variable is the image's.
        assert seen[-2:] == LOADER, seen


def test_second_run_changes_nothing_U06_noop_upgrade(nodes: Hosts) -> None:
    nodes.done()
    before = {host: (started(nodes.lab, host), fingerprint(nodes.lab, host)) for host in BOTH}
    run = play("site", nodes.inventory()).unchanged(BOTH)
    for host in BOTH:
        assert started(nodes.lab, host) == before[host][0]
        assert difference(before[host][1], fingerprint(nodes.lab, host)) == []
    unschedulable = nodes.lab.kubectl("get", "nodes", *BOTH, "-o", "jsonpath={.items[*].spec.unschedulable}").stdout
    assert unschedulable == ""
    # What an unchanged host may cost: counted at the connection and in the events.
    executions = collections.Counter(host for host, _line in run.executions)
    once = [one.host for name in ONCE for one in run.of(name)]
    assert once == [once[0]] * len(ONCE), once
    for host in BOTH:
        part = [
            one for one in run.results if one.host == host and one.play in HOST_PLAYS and not one.task.endswith(ONCE)
        ]
        remote = executions[host]
        # The host tool looks, and no module.
        assert remote == 1, [line for name, line in run.executions if name == host]
        # Observe, plan, and the inputs of the cluster; no task is skipped on it.
        assert len(part) == 3 and {one.state for one in part} == {"ok"}, [(one.task, one.state) for one in part]


SPEC = "/var/run/cdi/rbln.yaml"


def rows(run: Run) -> dict[str, list[str]]:
    """{host: the words of its row} of the screen."""
    lines = run.out.splitlines()
    first = next(number for number, line in enumerate(lines) if line.split()[:2] == ["host", "NPUs"])
    table = itertools.takewhile(str.strip, lines[first + 1 :])
    return {words[0]: words for words in map(str.split, table)}


def test_discover_and_validate_show_the_hosts_and_say_a_failure_once_U03_drain_failed(nodes: Hosts) -> None:
    nodes.done()
    nodes.state[B] = "dirty"
    nodes.lab.kubectl("cordon", A)
    try:
        run = play("discover", nodes.inventory(), env=TERMINAL)
        assert run.code == 0, run.out[-2000:] + run.err[-1000:]
        assert rows(run)[A][1:3] == ["2", "3.2.2"] and "containerd" in rows(run)[A]
        assert "cluster: node it-a is cordoned and drained. Next: Run `kubectl uncordon it-a`" in run.out, run.out
        assert "2 hosts: 2 ok" in run.out and "evidence" not in run.out and len(run.out) < 6000
        # Another callback's output is its own; the screen is beside it.
        asked = play("discover", nodes.inventory())
        assert asked.code == 0 and {line[:1] for line in asked.out.splitlines()} == {"{"}
        assert "2 hosts: 2 ok" in asked.err and asked.one("Show the hosts", A).data["hosts"][B]["state"] == "ok"
        nodes.lab.exec(B, ["rm", SPEC])
        broken = play("validate", nodes.inventory(), env={**TERMINAL, **reporting()})
    finally:
        nodes.lab.kubectl("uncordon", A)
    assert broken.code == 2, broken.out[-2000:]
    red = [line for line in broken.out.splitlines() if line.startswith(("fatal: ", "failed: "))]
    assert len(red) == 1 and red[0].startswith("fatal: [it-b]") and len(red[0]) < 1500, red
    assert "toolkit/cdi_spec_present" in red[0] and "ansible-playbook rebellions.npu.site --tags toolkit" in red[0]
    assert "  FAILED   toolkit/cdi_spec_present: no CDI specification at " in broken.out
    assert "2 hosts: 1 ok, 1 failed" in broken.out and list(rows(broken)) == [B, A]
    said = newest("validate")
    assert [(one["name"], one["state"], one["node"]) for one in said["hosts"]] == [(A, "ok", A), (B, "failed", B)]
    assert "toolkit/cdi_spec_present" in said["hosts"][1]["failure"]["cause"], said["hosts"][1]["failure"]
    told = {one["id"]: one["result"] for one in said["hosts"][0]["checks"]["others"]}
    assert told["cluster/node_in_service"] == "warning", told
    mend = play("site", nodes.inventory(B), "--tags", "toolkit,validate", env=reporting()).good([B])
    nodes.state[B] = "done"
    assert "Report: " in mend.err and "rbln_report: " not in mend.err, mend.err
    said = newest("site")
    (host,) = said["hosts"]
    assert host["state"] == "changed" and host["failure"] is None, host
    assert any(text.startswith("CDI specification %s: " % SPEC) for text in host["changes"]), host["changes"]
    assert {"host": B, "what": "toolkit/cdi_spec_present"} in said["compared"]["repaired"]
    # This inventory has no other host, and there was no --limit.
    assert said["compared"]["gone"] == [A]


def test_the_page_about_a_host_names_what_is_there(nodes: Hosts) -> None:
    """Every path of its first sections exists, and nothing is new that is neither on the page nor of a package."""
    nodes.done()
    page = (STAGED / "docs/host.md").read_text(encoding="utf-8")
    always = page.partition("## On every host")[2].partition("## By the runtime")[0]
    paths = re.findall(r"^\| `(/[^`]+)` \|", always, re.M)
    assert len(paths) > 12
    named = [path for path in re.findall(r"`(/[^`]+)`", page) if path.count("/") > 2]
    for host in BOTH:
        gone = nodes.lab.exec(host, ["sh", "-c", 'for p; do [ -e "$p" ] || echo "$p"; done', "sh", *paths]).stdout
        assert gone == ""
        owned = nodes.lab.exec(host, "dpkg -L $(dpkg-query -W -f '${Package}\n' | grep -E 'rbln|rebellions')").stdout
        lines = difference(nodes.fresh[host], fingerprint(nodes.lab, host))
        new = [line[1:] for line in lines if line.startswith("+") and not line[1:].startswith(OF_PACKAGES)]
        packaged = {re.sub("^/lib/", "/usr/lib/", path) for path in owned.split()}
        units = {path.rpartition("/")[2] for path in packaged}
        links = {path for path in new if ".wants/" in path and path.rpartition("/")[2] in units}
        own = [path.replace("/var/run/", "/run/") for path in named] + sorted((packaged & set(new)) | links)
        assert len(new) > 10
        assert [path for path in new if not any(_covers(path, one) for one in own)] == []


def _covers(path: str, own: str) -> bool:
    """Whether a path that is accounted for is this one, above it or below it."""
    return (path + "/").startswith(own.rstrip("/") + "/") or own.startswith(path + "/")


def test_cosmetic_change_reaches_the_cluster_alone_U06_noop_upgrade(nodes: Hosts) -> None:
    nodes.done()
    before = {host: started(nodes.lab, host) for host in BOTH}
    run = play("site", nodes.inventory(rbln_operands_labels={"team": "npu"}), "--tags", "operands").good(BOTH)
    work = "Work for the cluster"
    assert [name.split(" : ")[-1] for name in run.changed()] == [work], run.changed()
    assert {host: started(nodes.lab, host) for host in BOTH} == before
    assert all(
        item["metadata"]["labels"]["team"] == "npu"
        for key, item in nodes.objects().items()
        if key.startswith("DaemonSet/")
    )
    play("site", nodes.inventory(), "--tags", "operands").good(BOTH)
    assert not any(
        "team" in item["metadata"]["labels"] for key, item in nodes.objects().items() if key.startswith("DaemonSet/")
    )


STEPS = ("Driver", "Container toolkit", "Validation")


@pytest.mark.parametrize("tag", ["driver", "toolkit", "validate"])
def test_a_tag_alone_leaves_finished_hosts_alone(nodes: Hosts, tag: str) -> None:
    nodes.done()
    run = play("site", nodes.inventory(), "--tags", tag).unchanged(BOTH)
    assert {one.host for one in run.of("Plan")} == set(BOTH)
    assert [step for step in STEPS if run.of(step)] == []
    assert [one.task for one in run.results if one.play == "4 Cluster" and one.state != "skipped"] == []


def test_the_plugin_waits_for_its_host_W01_ready_before_driver(nodes: Hosts) -> None:
    nodes.done()
    nodes.state[A] = "dirty"
    nodes.lab.exec(A, ["rm", MARKERS + "/toolkit-ready"])
    pod = [
        "-n",
        NAMESPACE_OF_TESTS,
        "-l",
        "app.kubernetes.io/component=device-plugin",
        "--field-selector",
        "spec.nodeName=" + A,
    ]
    nodes.lab.kubectl("delete", "pod", *pod, "--wait=true")

    def waiting() -> str:
        path = "jsonpath={.items[*].status.phase} {.items[*].status.initContainerStatuses[*].state.running.startedAt}"
        return nodes.lab.kubectl("get", "pod", *pod, "-o", path).stdout

    until(60, "init container", lambda: waiting().startswith("Pending 2"))
    until(60, "no NPU", lambda: nodes.allocatable()[A] == "0")
    run = play("site", nodes.inventory(A), "--tags", "validate").good([A])
    assert [name.split(" : ")[-1] for name in run.changed()] == ["Prove the host and write the ready files"]
    until(60, "NPUs again", lambda: nodes.allocatable() == {A: "2", B: "2"})
    nodes.state[A] = "done"


def test_slices_make_what_one_run_makes(nodes: Hosts) -> None:
    nodes.done()
    whole = nodes.objects()
    assert {"DaemonSet/rbln-device-plugin", "DaemonSet/rbln-validator", "Namespace/" + NAMESPACE_OF_TESTS} <= set(whole)
    assert len(whole["labels of " + A]) >= 5
    where = nodes.inventory()
    # The other order is that of every run of both.
    first, second = B, A
    nodes.lab.kubectl("delete", "namespace", NAMESPACE_OF_TESTS, "--wait=true", timeout=120)
    for host in BOTH:
        gone = [name + "-" for name in nodes.labels(host)]
        nodes.lab.kubectl("label", "node", host, *gone)
    until(60, "NPUs gone", lambda: set(nodes.allocatable().values()) <= {"0", None})
    play("site", where, "--limit", first).good([first])
    half = nodes.objects()
    assert half["labels of " + first] == whole["labels of " + first] and half["labels of " + second] == {}
    assert {key: item for key, item in half.items() if not key.startswith("labels of")} == {
        key: item for key, item in whole.items() if not key.startswith("labels of")
    }
    assert nodes.allocatable()[first] == "2"
    play("site", where, "--limit", second).good([second])
    assert nodes.objects() == whole
    assert nodes.allocatable() == {A: "2", B: "2"}
