# Copyright (c) 2026 The rebellions.npu authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""remove.yml leaves hosts and cluster as they were; a driver that does not build stops its own host and no other."""

from __future__ import annotations

import re

from tests.integration._hosts import Hosts, difference, fingerprint
from tests.integration._play import NAMESPACE_OF_TESTS, play, runfile
from tests.lab._base import until

A, B = "it-a", "it-b"
BOTH = [A, B]
# What stays: folders of the system that may have been there before (Debian 13 has libexec, 12 has not), records of dpkg
# and ldconfig, and folders that the stand-in driver leaves for depmod.
LEFT = {
    "+/run/cdi",
    "+/usr/local/libexec",
    "~/etc/ld.so.cache",
    "~/var/lib/dpkg/status",
    "~/var/lib/dpkg/status-old",
    "+/var/lib/dpkg/status-old",
    "+/usr/lib/modules/KERNEL/updates",
    "+/usr/lib/modules/KERNEL/updates/dkms",
}


def markers(hosts: Hosts, host: str) -> list[str]:
    return hosts.lab.exec(host, "ls -A /run/rbln/validations 2>/dev/null || :").stdout.split()


def test_remove_leaves_hosts_and_cluster_clean(nodes: Hosts) -> None:
    nodes.done()
    for host in BOTH:
        nodes.state[host] = "dirty"
    where = nodes.inventory()
    one = play("remove", where, "--limit", B).good([B])
    assert "The objects stay" in one.warnings() and nodes.labels(B) == {} and len(nodes.labels(A)) >= 5
    assert "DaemonSet/rbln-device-plugin" in nodes.objects() and nodes.allocatable()[A] == "2"
    told = play("remove", where, "--check").good(BOTH)
    assert len(nodes.labels(A)) >= 5 and markers(nodes, A)
    again = play("remove", where).good(BOTH)
    assert told.changed(A) == again.changed(A) and len(again.changed(A)) > 5
    work = "Work for the cluster"
    (foretold,), (done,) = (
        [one.data["objects"] for one in run.of(work) if "objects" in one.data] for run in (told, again)
    )
    assert foretold == done
    assert [one.task for one in again.results if one.host == B and one.state == "changed"] == []
    assert nodes.labels(A) == nodes.labels(B) == {}
    stay = re.search(r"The objects stay: (.*?) still carry", again.warnings())
    if stay:
        # A demo is up on the same cluster: its nodes keep the objects.
        assert set(stay.group(1).split(", ")) <= set(nodes.lab.nodes()) - set(BOTH)
        nodes.lab.kubectl("delete", "namespace", NAMESPACE_OF_TESTS, "--wait=true", timeout=120)
    assert set(nodes.objects()) == {"labels of " + A, "labels of " + B}
    until(60, "NPUs gone", lambda: set(nodes.allocatable().values()) <= {"0", None})
    for host in BOTH:
        rest = set(
            difference(
                {path: [*row[:4], 0] for path, row in nodes.fresh[host].items()},
                fingerprint(nodes.lab, host, times=False),
            )
        )
        kernel = nodes.lab.exec(host, ["uname", "-r"]).stdout.strip()
        rest = {line.replace(kernel, "KERNEL") for line in rest}
        assert rest <= LEFT, sorted(rest - LEFT)
        assert (
            nodes.lab.exec(
                host, "lsmod; ls -d /dev/rbln* /run/rbln /run/cdi/* /var/run/cdi/* 2>/dev/null || :"
            ).stdout.count("rbln")
            == 0
        )
    third = play("remove", where).unchanged(BOTH)
    assert third.one("Check that the host is clean", A).state == "ok"
    # As good as new: the next test starts from here.
    for host in BOTH:
        nodes.state[host] = "virgin"


def test_broken_driver_on_the_first_host_of_a_batch(nodes: Hosts) -> None:
    nodes.virgin()
    for host in BOTH:
        nodes.state[host] = "dirty"
    nodes.listed(B)
    gated = {"rbln_preflight_unlisted": "fail"}
    run = play("site", nodes.inventory(host_vars={A: runfile("3.4.1"), B: gated}, rbln_serial=2))
    assert run.code == 2 and sorted(run.stats) == BOTH
    assert (run.stats[A]["failures"], run.stats[B]["failures"]) == (1, 0), run.stats
    last = run.failed(A)[-1]
    assert last.play == "5 Result" and run.failed(B) == []
    assert "3.4.1.run ended with code" in last.msg and "Next:" in last.msg and "\n" not in last.msg
    # The two were in one batch.
    assert [one.host for one in run.of("Stop the rollout when the failure budget is spent")] in (BOTH, BOTH[::-1])
    assert {one.play for one in run.results if one.host == A and one.task.endswith("Judge the host")} == set()
    assert markers(nodes, A) == [] and nodes.labels(A) == {} and nodes.pods(A) == {}
    assert nodes.allocatable() in ({A: None, B: "2"}, {A: "0", B: "2"})
    assert nodes.labels(B)["rebellions.ai/host.os-id"] == "ubuntu"
    assert markers(nodes, B) == [".driver-ctr-ready", "driver-ready", "toolkit-ready"]
    assert nodes.pods(B) == {"rbln-device-plugin": "Running", "rbln-validator": "Running"}
    repaired = play("site", nodes.inventory(host_vars={A: runfile("3.4.0"), B: gated})).good(BOTH)
    assert repaired.changed(B) == []
    assert nodes.allocatable() == {A: "2", B: "2"}
    assert nodes.labels(A)["rebellions.ai/driver-version.full"].startswith("3.4.0")
    assert "namespace/" + NAMESPACE_OF_TESTS in nodes.lab.kubectl("get", "namespaces", "-o", "name").stdout.split()
